/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that blocking.c defines, with their parameters: it gives the
 * macros their meaning and includes this once, so that there is no guard. */

/* ---- of MPI 3 ---- */

COLLECTIVE(Allgather, ,
         (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
COLLECTIVE(Allgatherv, ,
         (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, const int recvcounts[], const int displs[],
          MPI_Datatype recvtype, MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,
          comm))
COLLECTIVE(Allreduce, ,
         (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, MPI_Comm comm),
         (sendbuf, recvbuf, count, datatype, op, comm))
COLLECTIVE(Alltoall, ,
         (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
COLLECTIVE(Alltoallv, ,
         (const void *sendbuf, const int sendcounts[], const int sdispls[],
          MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
          const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm),
         (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls,
          recvtype, comm))
COLLECTIVE(Alltoallw, ,
         (const void *sendbuf, const int sendcounts[], const int sdispls[],
          const MPI_Datatype sendtypes[], void *recvbuf,
          const int recvcounts[], const int rdispls[],
          const MPI_Datatype recvtypes[], MPI_Comm comm),
         (sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts,
          rdispls, recvtypes, comm))
COLLECTIVE(Barrier, ,
         (MPI_Comm comm),
         (comm))
COLLECTIVE(Bcast, ,
         (void *buffer, int count, MPI_Datatype datatype, int root,
          MPI_Comm comm),
         (buffer, count, datatype, root, comm))
COLLECTIVE(Exscan, ,
         (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, MPI_Comm comm),
         (sendbuf, recvbuf, count, datatype, op, comm))
COLLECTIVE(Gather, ,
         (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
          MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,
          comm))
COLLECTIVE(Gatherv, ,
         (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, const int recvcounts[], const int displs[],
          MPI_Datatype recvtype, int root, MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,
          root, comm))
COLLECTIVE(Reduce, ,
         (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, int root, MPI_Comm comm),
         (sendbuf, recvbuf, count, datatype, op, root, comm))
COLLECTIVE(Reduce_scatter, ,
         (const void *sendbuf, void *recvbuf, const int recvcounts[],
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),
         (sendbuf, recvbuf, recvcounts, datatype, op, comm))
COLLECTIVE(Reduce_scatter_block, ,
         (const void *sendbuf, void *recvbuf, int recvcount,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),
         (sendbuf, recvbuf, recvcount, datatype, op, comm))
COLLECTIVE(Scan, ,
         (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, MPI_Comm comm),
         (sendbuf, recvbuf, count, datatype, op, comm))
COLLECTIVE(Scatter, ,
         (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
          MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,
          comm))
COLLECTIVE(Scatterv, ,
         (const void *sendbuf, const int sendcounts[], const int displs[],
          MPI_Datatype sendtype, void *recvbuf, int recvcount,
          MPI_Datatype recvtype, int root, MPI_Comm comm),
         (sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype,
          root, comm))
BLOCKING(Buffer_detach,
         (void *buffer_addr, int *size),
         (buffer_addr, size))
BLOCKING(Comm_accept,
         (const char *port_name, MPI_Info info, int root, MPI_Comm comm,
          MPI_Comm *newcomm),
         (port_name, info, root, comm, newcomm))
BLOCKING(Comm_connect,
         (const char *port_name, MPI_Info info, int root, MPI_Comm comm,
          MPI_Comm *newcomm),
         (port_name, info, root, comm, newcomm))
MAKES(Comm_create,
         (MPI_Comm comm, MPI_Group group, MPI_Comm *newcomm),
         (comm, group, newcomm), newcomm)
MAKES(Comm_create_group,
         (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *newcomm),
         (comm, group, tag, newcomm), newcomm)
FREES(Comm_disconnect)
PREPARES(Comm_dup,
         (MPI_Comm comm, MPI_Comm *newcomm),
         (comm, newcomm), newcomm, MPI_UNDEFINED)
PREPARES(Comm_dup_with_info,
         (MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm),
         (comm, info, newcomm), newcomm, MPI_UNDEFINED)
FREES(Comm_free)
BLOCKING(Comm_join,
         (int fd, MPI_Comm *intercomm),
         (fd, intercomm))
BLOCKING(Comm_set_info,
         (MPI_Comm comm, MPI_Info info),
         (comm, info))
BLOCKING(Comm_spawn,
         (const char *command, char *argv[], int maxprocs, MPI_Info info,
          int root, MPI_Comm comm, MPI_Comm *intercomm,
          int array_of_errcodes[]),
         (command, argv, maxprocs, info, root, comm, intercomm,
          array_of_errcodes))
BLOCKING(Comm_spawn_multiple,
         (int count, char *array_of_commands[], char **array_of_argv[],
          const int array_of_maxprocs[], const MPI_Info array_of_info[],
          int root, MPI_Comm comm, MPI_Comm *intercomm,
          int array_of_errcodes[]),
         (count, array_of_commands, array_of_argv, array_of_maxprocs,
          array_of_info, root, comm, intercomm, array_of_errcodes))
MAKES(Comm_split,
         (MPI_Comm comm, int color, int key, MPI_Comm *newcomm),
         (comm, color, key, newcomm), newcomm)
MAKES(Comm_split_type,
         (MPI_Comm comm, int split_type, int key, MPI_Info info,
          MPI_Comm *newcomm),
         (comm, split_type, key, info, newcomm), newcomm)
PREPARES(Cart_create,
         (MPI_Comm comm_old, int ndims, const int dims[], const int periods[],
          int reorder, MPI_Comm *comm_cart),
         (comm_old, ndims, dims, periods, reorder, comm_cart), comm_cart, MPI_CART)
PREPARES(Cart_sub,
         (MPI_Comm comm, const int remain_dims[], MPI_Comm *newcomm),
         (comm, remain_dims, newcomm), newcomm, MPI_CART)
PREPARES(Graph_create,
         (MPI_Comm comm_old, int nnodes, const int indx[], const int edges[],
          int reorder, MPI_Comm *comm_graph),
         (comm_old, nnodes, indx, edges, reorder, comm_graph), comm_graph, MPI_GRAPH)
PREPARES(Dist_graph_create,
         (MPI_Comm comm_old, int n, const int sources[], const int degrees[],
          const int destinations[], const int weights[], MPI_Info info,
          int reorder, MPI_Comm *comm_dist_graph),
         (comm_old, n, sources, degrees, destinations, weights, info, reorder,
          comm_dist_graph), comm_dist_graph, MPI_DIST_GRAPH)
PREPARES(Dist_graph_create_adjacent,
         (MPI_Comm comm_old, int indegree, const int sources[],
          const int sourceweights[], int outdegree, const int destinations[],
          const int destweights[], MPI_Info info, int reorder,
          MPI_Comm *comm_dist_graph),
         (comm_old, indegree, sources, sourceweights, outdegree, destinations,
          destweights, info, reorder, comm_dist_graph),
          comm_dist_graph, MPI_DIST_GRAPH)
BLOCKING(Cart_map,
         (MPI_Comm comm, int ndims, const int dims[], const int periods[],
          int *newrank),
         (comm, ndims, dims, periods, newrank))
BLOCKING(Graph_map,
         (MPI_Comm comm, int nnodes, const int indx[], const int edges[],
          int *newrank),
         (comm, nnodes, indx, edges, newrank))
BLOCKING(Intercomm_create,
         (MPI_Comm local_comm, int local_leader, MPI_Comm peer_comm,
          int remote_leader, int tag, MPI_Comm *newintercomm),
         (local_comm, local_leader, peer_comm, remote_leader, tag,
          newintercomm))
MAKES(Intercomm_merge,
         (MPI_Comm intercomm, int high, MPI_Comm *newintracomm),
         (intercomm, high, newintracomm), newintracomm)
BLOCKING(File_open,
         (MPI_Comm comm, const char *filename, int amode, MPI_Info info,
          MPI_File *fh),
         (comm, filename, amode, info, fh))
BLOCKING(File_close,
         (MPI_File *fh),
         (fh))
BLOCKING(File_set_size,
         (MPI_File fh, MPI_Offset size),
         (fh, size))
BLOCKING(File_preallocate,
         (MPI_File fh, MPI_Offset size),
         (fh, size))
BLOCKING(File_set_view,
         (MPI_File fh, MPI_Offset disp, MPI_Datatype etype,
          MPI_Datatype filetype, const char *datarep, MPI_Info info),
         (fh, disp, etype, filetype, datarep, info))
BLOCKING(File_set_info,
         (MPI_File fh, MPI_Info info),
         (fh, info))
BLOCKING(File_set_atomicity,
         (MPI_File fh, int flag),
         (fh, flag))
BLOCKING(File_sync,
         (MPI_File fh),
         (fh))
BLOCKING(File_delete,
         (const char *filename, MPI_Info info),
         (filename, info))
BLOCKING(File_read,
         (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_read_all,
         (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_read_all_begin,
         (MPI_File fh, void *buf, int count, MPI_Datatype datatype),
         (fh, buf, count, datatype))
BLOCKING(File_read_all_end,
         (MPI_File fh, void *buf, MPI_Status *status),
         (fh, buf, status))
BLOCKING(File_read_at,
         (MPI_File fh, MPI_Offset offset, void *buf, int count,
          MPI_Datatype datatype, MPI_Status *status),
         (fh, offset, buf, count, datatype, status))
BLOCKING(File_read_at_all,
         (MPI_File fh, MPI_Offset offset, void *buf, int count,
          MPI_Datatype datatype, MPI_Status *status),
         (fh, offset, buf, count, datatype, status))
BLOCKING(File_read_at_all_begin,
         (MPI_File fh, MPI_Offset offset, void *buf, int count,
          MPI_Datatype datatype),
         (fh, offset, buf, count, datatype))
BLOCKING(File_read_at_all_end,
         (MPI_File fh, void *buf, MPI_Status *status),
         (fh, buf, status))
BLOCKING(File_read_ordered,
         (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_read_ordered_begin,
         (MPI_File fh, void *buf, int count, MPI_Datatype datatype),
         (fh, buf, count, datatype))
BLOCKING(File_read_ordered_end,
         (MPI_File fh, void *buf, MPI_Status *status),
         (fh, buf, status))
BLOCKING(File_read_shared,
         (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_write,
         (MPI_File fh, const void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_write_all,
         (MPI_File fh, const void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_write_all_begin,
         (MPI_File fh, const void *buf, int count, MPI_Datatype datatype),
         (fh, buf, count, datatype))
BLOCKING(File_write_all_end,
         (MPI_File fh, const void *buf, MPI_Status *status),
         (fh, buf, status))
BLOCKING(File_write_at,
         (MPI_File fh, MPI_Offset offset, const void *buf, int count,
          MPI_Datatype datatype, MPI_Status *status),
         (fh, offset, buf, count, datatype, status))
BLOCKING(File_write_at_all,
         (MPI_File fh, MPI_Offset offset, const void *buf, int count,
          MPI_Datatype datatype, MPI_Status *status),
         (fh, offset, buf, count, datatype, status))
BLOCKING(File_write_at_all_begin,
         (MPI_File fh, MPI_Offset offset, const void *buf, int count,
          MPI_Datatype datatype),
         (fh, offset, buf, count, datatype))
BLOCKING(File_write_at_all_end,
         (MPI_File fh, const void *buf, MPI_Status *status),
         (fh, buf, status))
BLOCKING(File_write_ordered,
         (MPI_File fh, const void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_write_ordered_begin,
         (MPI_File fh, const void *buf, int count, MPI_Datatype datatype),
         (fh, buf, count, datatype))
BLOCKING(File_write_ordered_end,
         (MPI_File fh, const void *buf, MPI_Status *status),
         (fh, buf, status))
BLOCKING(File_write_shared,
         (MPI_File fh, const void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_seek_shared,
         (MPI_File fh, MPI_Offset offset, int whence),
         (fh, offset, whence))
BLOCKING(File_get_position_shared,
         (MPI_File fh, MPI_Offset *offset),
         (fh, offset))
BLOCKING(Win_create,
         (void *base, MPI_Aint size, int disp_unit, MPI_Info info,
          MPI_Comm comm, MPI_Win *win),
         (base, size, disp_unit, info, comm, win))
BLOCKING(Win_allocate,
         (MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
          void *baseptr, MPI_Win *win),
         (size, disp_unit, info, comm, baseptr, win))
BLOCKING_PMPI(Win_allocate_shared,
         (MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
          void *baseptr, MPI_Win *win),
         (size, disp_unit, info, comm, baseptr, win))
BLOCKING(Win_create_dynamic,
         (MPI_Info info, MPI_Comm comm, MPI_Win *win),
         (info, comm, win))
BLOCKING(Win_free,
         (MPI_Win *win),
         (win))
BLOCKING(Win_fence,
         (int assert, MPI_Win win),
         (assert, win))
BLOCKING(Win_start,
         (MPI_Group group, int assert, MPI_Win win),
         (group, assert, win))
BLOCKING(Win_complete,
         (MPI_Win win),
         (win))
BLOCKING(Win_post,
         (MPI_Group group, int assert, MPI_Win win),
         (group, assert, win))
BLOCKING(Win_wait,
         (MPI_Win win),
         (win))
POLLED(Win_test,
         (MPI_Win win, int *flag),
         (win, flag))
POLLED(Win_sync,
         (MPI_Win win),
         (win))
BLOCKING(Win_lock,
         (int lock_type, int rank, int assert, MPI_Win win),
         (lock_type, rank, assert, win))
BLOCKING(Win_lock_all,
         (int assert, MPI_Win win),
         (assert, win))
BLOCKING(Win_unlock,
         (int rank, MPI_Win win),
         (rank, win))
BLOCKING(Win_unlock_all,
         (MPI_Win win),
         (win))
BLOCKING(Win_flush,
         (int rank, MPI_Win win),
         (rank, win))
BLOCKING(Win_flush_all,
         (MPI_Win win),
         (win))
BLOCKING(Win_flush_local,
         (int rank, MPI_Win win),
         (rank, win))
BLOCKING(Win_flush_local_all,
         (MPI_Win win),
         (win))
BLOCKING(Win_set_info,
         (MPI_Win win, MPI_Info info),
         (win, info))
COLLECTIVE_PMPI(Neighbor_allgather, ,
         (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
COLLECTIVE_PMPI(Neighbor_allgatherv, ,
         (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, const int recvcounts[], const int displs[],
          MPI_Datatype recvtype, MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,
          comm))
COLLECTIVE_PMPI(Neighbor_alltoall, ,
         (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
COLLECTIVE_PMPI(Neighbor_alltoallv, ,
         (const void *sendbuf, const int sendcounts[], const int sdispls[],
          MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
          const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm),
         (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls,
          recvtype, comm))
COLLECTIVE_PMPI(Neighbor_alltoallw, ,
         (const void *sendbuf, const int sendcounts[],
          const MPI_Aint sdispls[], const MPI_Datatype sendtypes[],
          void *recvbuf, const int recvcounts[], const MPI_Aint rdispls[],
          const MPI_Datatype recvtypes[], MPI_Comm comm),
         (sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts,
          rdispls, recvtypes, comm))
BLOCKING(Publish_name,
         (const char *service_name, MPI_Info info, const char *port_name),
         (service_name, info, port_name))
BLOCKING(Unpublish_name,
         (const char *service_name, MPI_Info info, const char *port_name),
         (service_name, info, port_name))
BLOCKING(Lookup_name,
         (const char *service_name, MPI_Info info, char *port_name),
         (service_name, info, port_name))
BLOCKING(Open_port,
         (MPI_Info info, char *port_name),
         (info, port_name))
BLOCKING(Finalize,
         (void),
         ())
BLOCKING(Mrecv,
         (void *buf, int count, MPI_Datatype datatype, MPI_Message *message,
          MPI_Status *status),
         (buf, count, datatype, message, status))

/* ---- of MPI 4 ---- */

#if RS_MPI4_CALLS
BLOCKING(Comm_create_from_group,
         (MPI_Group group, const char *stringtag, MPI_Info info,
          MPI_Errhandler errhandler, MPI_Comm *newcomm),
         (group, stringtag, info, errhandler, newcomm))
BLOCKING(Intercomm_create_from_groups,
         (MPI_Group local_group, int local_leader, MPI_Group remote_group,
          int remote_leader, const char *stringtag, MPI_Info info,
          MPI_Errhandler errhandler, MPI_Comm *newintercomm),
         (local_group, local_leader, remote_group, remote_leader, stringtag,
          info, errhandler, newintercomm))
BLOCKING(Session_finalize,
         (MPI_Session *session),
         (session))
POLLED(Parrived,
         (MPI_Request request, int partition, int *flag),
         (request, partition, flag))
#endif

#if MPI_VERSION >= 4
COLLECTIVE(Allgather, _c,
         (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
          MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
COLLECTIVE(Allgatherv, _c,
         (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, const MPI_Count recvcounts[], const MPI_Aint displs[],
          MPI_Datatype recvtype, MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,
          comm))
COLLECTIVE(Allreduce, _c,
         (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),
         (sendbuf, recvbuf, count, datatype, op, comm))
COLLECTIVE(Alltoall, _c,
         (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
          MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
COLLECTIVE(Alltoallv, _c,
         (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], MPI_Datatype sendtype, void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[],
          MPI_Datatype recvtype, MPI_Comm comm),
         (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls,
          recvtype, comm))
COLLECTIVE(Alltoallw, _c,
         (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], const MPI_Datatype sendtypes[],
          void *recvbuf, const MPI_Count recvcounts[],
          const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
          MPI_Comm comm),
         (sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts,
          rdispls, recvtypes, comm))
COLLECTIVE(Bcast, _c,
         (void *buffer, MPI_Count count, MPI_Datatype datatype, int root,
          MPI_Comm comm),
         (buffer, count, datatype, root, comm))
COLLECTIVE(Exscan, _c,
         (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),
         (sendbuf, recvbuf, count, datatype, op, comm))
COLLECTIVE(Gather, _c,
         (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root,
          MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,
          comm))
COLLECTIVE(Gatherv, _c,
         (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, const MPI_Count recvcounts[], const MPI_Aint displs[],
          MPI_Datatype recvtype, int root, MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,
          root, comm))
COLLECTIVE(Reduce, _c,
         (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm),
         (sendbuf, recvbuf, count, datatype, op, root, comm))
COLLECTIVE(Reduce_scatter, _c,
         (const void *sendbuf, void *recvbuf, const MPI_Count recvcounts[],
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),
         (sendbuf, recvbuf, recvcounts, datatype, op, comm))
COLLECTIVE(Reduce_scatter_block, _c,
         (const void *sendbuf, void *recvbuf, MPI_Count recvcount,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),
         (sendbuf, recvbuf, recvcount, datatype, op, comm))
COLLECTIVE(Scan, _c,
         (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),
         (sendbuf, recvbuf, count, datatype, op, comm))
COLLECTIVE(Scatter, _c,
         (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root,
          MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,
          comm))
COLLECTIVE(Scatterv, _c,
         (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint displs[], MPI_Datatype sendtype, void *recvbuf,
          MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm),
         (sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype,
          root, comm))
BLOCKING(Buffer_detach_c,
         (void *buffer_addr, MPI_Count *size),
         (buffer_addr, size))
BLOCKING(File_read_c,
         (MPI_File fh, void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_read_all_c,
         (MPI_File fh, void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_read_all_begin_c,
         (MPI_File fh, void *buf, MPI_Count count, MPI_Datatype datatype),
         (fh, buf, count, datatype))
BLOCKING(File_read_at_c,
         (MPI_File fh, MPI_Offset offset, void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Status *status),
         (fh, offset, buf, count, datatype, status))
BLOCKING(File_read_at_all_c,
         (MPI_File fh, MPI_Offset offset, void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Status *status),
         (fh, offset, buf, count, datatype, status))
BLOCKING(File_read_at_all_begin_c,
         (MPI_File fh, MPI_Offset offset, void *buf, MPI_Count count,
          MPI_Datatype datatype),
         (fh, offset, buf, count, datatype))
BLOCKING(File_read_ordered_c,
         (MPI_File fh, void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_read_ordered_begin_c,
         (MPI_File fh, void *buf, MPI_Count count, MPI_Datatype datatype),
         (fh, buf, count, datatype))
BLOCKING(File_read_shared_c,
         (MPI_File fh, void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_write_c,
         (MPI_File fh, const void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_write_all_c,
         (MPI_File fh, const void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_write_all_begin_c,
         (MPI_File fh, const void *buf, MPI_Count count, MPI_Datatype datatype),
         (fh, buf, count, datatype))
BLOCKING(File_write_at_c,
         (MPI_File fh, MPI_Offset offset, const void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Status *status),
         (fh, offset, buf, count, datatype, status))
BLOCKING(File_write_at_all_c,
         (MPI_File fh, MPI_Offset offset, const void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Status *status),
         (fh, offset, buf, count, datatype, status))
BLOCKING(File_write_at_all_begin_c,
         (MPI_File fh, MPI_Offset offset, const void *buf, MPI_Count count,
          MPI_Datatype datatype),
         (fh, offset, buf, count, datatype))
BLOCKING(File_write_ordered_c,
         (MPI_File fh, const void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(File_write_ordered_begin_c,
         (MPI_File fh, const void *buf, MPI_Count count, MPI_Datatype datatype),
         (fh, buf, count, datatype))
BLOCKING(File_write_shared_c,
         (MPI_File fh, const void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Status *status),
         (fh, buf, count, datatype, status))
BLOCKING(Win_create_c,
         (void *base, MPI_Aint size, MPI_Aint disp_unit, MPI_Info info,
          MPI_Comm comm, MPI_Win *win),
         (base, size, disp_unit, info, comm, win))
BLOCKING(Win_allocate_c,
         (MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm,
          void *baseptr, MPI_Win *win),
         (size, disp_unit, info, comm, baseptr, win))
BLOCKING(Win_allocate_shared_c,
         (MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm,
          void *baseptr, MPI_Win *win),
         (size, disp_unit, info, comm, baseptr, win))
COLLECTIVE_PMPI(Neighbor_allgather, _c,
         (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
          MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
COLLECTIVE_PMPI(Neighbor_allgatherv, _c,
         (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, const MPI_Count recvcounts[], const MPI_Aint displs[],
          MPI_Datatype recvtype, MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,
          comm))
COLLECTIVE_PMPI(Neighbor_alltoall, _c,
         (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
          MPI_Comm comm),
         (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
COLLECTIVE_PMPI(Neighbor_alltoallv, _c,
         (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], MPI_Datatype sendtype, void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[],
          MPI_Datatype recvtype, MPI_Comm comm),
         (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls,
          recvtype, comm))
COLLECTIVE_PMPI(Neighbor_alltoallw, _c,
         (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], const MPI_Datatype sendtypes[],
          void *recvbuf, const MPI_Count recvcounts[],
          const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
          MPI_Comm comm),
         (sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts,
          rdispls, recvtypes, comm))
BLOCKING(Mrecv_c,
         (void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Message *message, MPI_Status *status),
         (buf, count, datatype, message, status))
#endif

/* ---- of MPI 4.1 ---- */

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
BLOCKING(Buffer_flush, (void), ())
BLOCKING(Comm_detach_buffer,
         (MPI_Comm comm, void *buffer_addr, int *size),
         (comm, buffer_addr, size))
BLOCKING(Comm_detach_buffer_c,
         (MPI_Comm comm, void *buffer_addr, MPI_Count *size),
         (comm, buffer_addr, size))
BLOCKING(Comm_flush_buffer, (MPI_Comm comm), (comm))
BLOCKING(Session_detach_buffer,
         (MPI_Session session, void *buffer_addr, int *size),
         (session, buffer_addr, size))
BLOCKING(Session_detach_buffer_c,
         (MPI_Session session, void *buffer_addr, MPI_Count *size),
         (session, buffer_addr, size))
BLOCKING(Session_flush_buffer, (MPI_Session session), (session))
#endif

/* ---- beyond the standard ---- */

#if !defined(OPEN_MPI) || defined(OMPI_HAVE_MPI_EXT_FTMPI)
BLOCKING_X(Comm_agree,
         (MPI_Comm comm, int *flag),
         (comm, flag))
BLOCKING_X(Comm_shrink,
         (MPI_Comm comm, MPI_Comm *newcomm),
         (comm, newcomm))
#endif
