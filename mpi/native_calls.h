/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that are passed on, with the names, count and displacement types that
 * native.c defines: it includes this once for each, so that there is no
 * guard. */

RS_POINT_TO_POINT(Send, SEND)
RS_POINT_TO_POINT(Bsend, BSEND)
RS_POINT_TO_POINT(Ssend, SSEND)
RS_POINT_TO_POINT(Rsend, RSEND)

int RS_NAME(Recv_init)(void *buf, RS_COUNT count, MPI_Datatype type, int source,
                       int tag, MPI_Comm comm, MPI_Request *request)
{
    pass_on(RS_CALL_RECV_INIT);
    return RS_PNAME(Recv_init)(buf, count, type, source, tag, comm, request);
}
