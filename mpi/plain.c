/* SPDX-License-Identifier: BSD-3-Clause */
/* Plain point-to-point calls. They stay native; here they only tell the pairs
 * that they concern (docs/persistent.md). Where there are no pairs that costs a
 * comparison, but for nonblocking receives, which are noted. */
#include "mpi/native.h"
#include "mpi/persistent.h"

#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Both names of a function. */
#define BOTH(Name, before, params, args)                                     \
    RS_NATIVE(Name)                                                          \
    int PMPI_##Name params                                                   \
    {                                                                        \
        before;                                                              \
        return native_##Name args;                                           \
    }                                                                        \
    RS_BEHIND(Name)                                                          \
    int MPI_##Name params                                                    \
    {                                                                        \
        before;                                                              \
        return behind_##Name args;                                           \
    }

/* ---- sends ---- */

/* Without pairs a call only hands on, by a jump. What else it does is in a
 * function of its own, or it would keep its arguments before it knows. */
#define HAND_ON(Name, if_so, to, args, args_and_to)                          \
    return __builtin_expect(if_so, 1) ? to args : beside_##Name args_and_to;
#define CALL_IF(if_so, Name, params, ...)                                    \
    RS_BEHIND(Name)                                                          \
    int PMPI_##Name params                                                   \
    {                                                                        \
        HAND_ON(Name, if_so, native_##Name, (__VA_ARGS__),                   \
                (__VA_ARGS__, native_##Name))                                \
    }                                                                        \
    int MPI_##Name params                                                    \
    {                                                                        \
        HAND_ON(Name, if_so, behind_##Name, (__VA_ARGS__),                   \
                (__VA_ARGS__, behind_##Name))                                \
    }
#define CALL(Name, params, ...) CALL_IF(rs_num_pairs == 0, Name, params, __VA_ARGS__)
#define BESIDE(Name, ...)                                                    \
    static int __attribute__((noinline)) beside_##Name(                      \
        __VA_ARGS__, __typeof__(PMPI_##Name) *to)

static inline void before_send(MPI_Comm comm, int peer, int tag)
{
    if (UNLIKELY(rs_num_pairs > 0))
        rs_before_send(comm, peer, tag);
}

/* Whether a pair may have to know of a call that blocks. With nobody it ends at once. */
static inline bool is_concerned(int peer)
{
    return UNLIKELY(rs_num_pairs > 0) && peer != MPI_PROC_NULL;
}

/* N4 too. */
static inline void before_blocking(MPI_Comm comm, int peer, int tag)
{
    if (is_concerned(peer)) {
        rs_before_send(comm, peer, tag);
        rs_settle();
    }
}

/* A receive that was granted is not posted natively when its incarnation ends:
 * a message of a lane may not be a ready one. */
static inline bool is_unready(MPI_Comm comm, int peer, int tag)
{
    return UNLIKELY(rs_num_pairs > 0) && rs_is_lane(comm, peer, tag);
}

#define BUFFER const void *buf, RS_COUNT count, MPI_Datatype type
#define SEND_PARAMS BUFFER, int peer, int tag, MPI_Comm comm
#define SEND_ARGS buf, count, type, peer, tag, comm

#define SEND(Name)                                                           \
    RS_NATIVE(Name)                                                          \
    BESIDE(Name, SEND_PARAMS)                                                \
    {                                                                        \
        before_blocking(comm, peer, tag);                                    \
        return to(SEND_ARGS);                                                \
    }                                                                        \
    CALL(Name, (SEND_PARAMS), SEND_ARGS)
#define READY_SEND(Name, Standard)                                           \
    RS_NATIVE(Name)                                                          \
    BESIDE(Name, SEND_PARAMS)                                                \
    {                                                                        \
        before_blocking(comm, peer, tag);                                    \
        return is_unready(comm, peer, tag) ? native_##Standard(SEND_ARGS)    \
                                           : to(SEND_ARGS);                  \
    }                                                                        \
    CALL(Name, (SEND_PARAMS), SEND_ARGS)
#define ISEND(Name)                                                          \
    RS_NATIVE(Name)                                                          \
    BESIDE(Name, SEND_PARAMS, MPI_Request *request)                          \
    {                                                                        \
        before_send(comm, peer, tag);                                        \
        return to(SEND_ARGS, request);                                       \
    }                                                                        \
    CALL(Name, (SEND_PARAMS, MPI_Request *request), SEND_ARGS, request)
#define READY_ISEND(Name, Standard)                                          \
    RS_NATIVE(Name)                                                          \
    BESIDE(Name, SEND_PARAMS, MPI_Request *request)                          \
    {                                                                        \
        before_send(comm, peer, tag);                                        \
        return is_unready(comm, peer, tag)                                   \
                   ? native_##Standard(SEND_ARGS, request)                   \
                   : to(SEND_ARGS, request);                                 \
    }                                                                        \
    CALL(Name, (SEND_PARAMS, MPI_Request *request), SEND_ARGS, request)

#define SENDS(c)                                                             \
    SEND(Send##c)                                                            \
    SEND(Bsend##c)                                                           \
    SEND(Ssend##c)                                                           \
    READY_SEND(Rsend##c, Send##c)                                            \
    ISEND(Isend##c)                                                          \
    ISEND(Ibsend##c)                                                         \
    ISEND(Issend##c)                                                         \
    READY_ISEND(Irsend##c, Isend##c)

/* ---- receives ---- */

/* N2, N4 */
static inline void before_receive(MPI_Comm comm, int peer, int tag)
{
    if (is_concerned(peer)) {
        rs_before_receive(comm, peer, tag, RS_STAYS_NOT);
        rs_settle();
    }
}

/* Whether nobody has to know of it, or everybody does. */
static inline bool is_noted(MPI_Comm comm, int peer, int tag)
{
    return __builtin_expect(rs_num_pairs == 0, 1) &&
           (!rs_process.persistent || rs_filter_has(rs_filters[0], comm, peer, tag));
}

/* It may cover a lane that is made later, so it is kept without pairs too. */
static inline void before_posting(MPI_Comm comm, int peer, int tag,
                                  enum rs_stay stay)
{
    if (UNLIKELY(rs_process.persistent))
        rs_before_receive(comm, peer, tag, stay);
}

#define RECEIVE_PARAMS                                                       \
    void *buf, RS_COUNT count, MPI_Datatype type, int peer, int tag,         \
        MPI_Comm comm
#define RECEIVES(c)                                                          \
    RS_NATIVE(Recv##c)                                                       \
    BESIDE(Recv##c, RECEIVE_PARAMS, MPI_Status *status)                      \
    {                                                                        \
        before_receive(comm, peer, tag);                                     \
        return to(SEND_ARGS, status);                                        \
    }                                                                        \
    CALL(Recv##c, (RECEIVE_PARAMS, MPI_Status *status), SEND_ARGS, status)   \
    RS_NATIVE(Irecv##c)                                                      \
    BESIDE(Irecv##c, RECEIVE_PARAMS, MPI_Request *request)                   \
    {                                                                        \
        before_posting(comm, peer, tag, RS_STAYS);                           \
        return to(SEND_ARGS, request);                                       \
    }                                                                        \
    CALL_IF(is_noted(comm, peer, tag), Irecv##c,                             \
            (RECEIVE_PARAMS, MPI_Request *request), SEND_ARGS, request)

/* ---- both ---- */

#define SENDRECV_PARAMS                                                      \
    BUFFER, int dest, int sendtag, void *recvbuf, RS_COUNT recvcount,        \
        MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm
#define SENDRECV_ARGS                                                        \
    buf, count, type, dest, sendtag, recvbuf, recvcount, recvtype, source,   \
        recvtag, comm
#define REPLACE_PARAMS                                                       \
    void *buf, RS_COUNT count, MPI_Datatype type, int dest, int sendtag,     \
        int source, int recvtag, MPI_Comm comm
#define REPLACE_ARGS buf, count, type, dest, sendtag, source, recvtag, comm

static inline void before_both(MPI_Comm comm, int dest, int sendtag, int source,
                               int recvtag)
{
    if (is_concerned(dest))
        rs_before_send(comm, dest, sendtag);
    if (is_concerned(source))
        rs_before_receive(comm, source, recvtag, RS_STAYS_NOT);
    if (is_concerned(dest) || is_concerned(source))
        rs_settle();
}

#define SENDRECV(Name, PARAMS, ...)                                          \
    BOTH(Name, before_both(comm, dest, sendtag, source, recvtag),            \
         (PARAMS, MPI_Status *status), (__VA_ARGS__, status))
/* The MPI may post it later than it says. */
#define ISENDRECV(Name, PARAMS, ...)                                         \
    BOTH(Name,                                                               \
         (before_send(comm, dest, sendtag),                                  \
          before_posting(comm, source, recvtag, RS_COMES)),                  \
         (PARAMS, MPI_Request *request), (__VA_ARGS__, request))

/* ---- probes ---- */

/* It does not block, but is called again and again. */
static inline void before_iprobe(MPI_Comm comm, int peer, int tag)
{
    if (UNLIKELY(rs_num_pairs > 0 || rs_num_orphans > 0)) {
        rs_before_receive(comm, peer, tag, RS_STAYS_NOT);
        rs_look_around();
    }
}

#define PROBE(Name, PARAMS, ARGS)                                            \
    BOTH(Name, before_receive(comm, peer, tag), PARAMS, ARGS)
#define IPROBE(Name, PARAMS, ARGS)                                           \
    BOTH(Name, before_iprobe(comm, peer, tag), PARAMS, ARGS)

PROBE(Probe, (int peer, int tag, MPI_Comm comm, MPI_Status *status),
      (peer, tag, comm, status))
PROBE(Mprobe,
      (int peer, int tag, MPI_Comm comm, MPI_Message *message,
       MPI_Status *status),
      (peer, tag, comm, message, status))
IPROBE(Iprobe,
       (int peer, int tag, MPI_Comm comm, int *flag, MPI_Status *status),
       (peer, tag, comm, flag, status))
IPROBE(Improbe,
       (int peer, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
        MPI_Status *status),
       (peer, tag, comm, flag, message, status))

/* ---- for both types of counts ---- */

#define RS_COUNT int
SENDS()
RECEIVES()
SENDRECV(Sendrecv, SENDRECV_PARAMS, SENDRECV_ARGS)
SENDRECV(Sendrecv_replace, REPLACE_PARAMS, REPLACE_ARGS)

#if RS_MPI4_CALLS
ISENDRECV(Isendrecv, SENDRECV_PARAMS, SENDRECV_ARGS)
ISENDRECV(Isendrecv_replace, REPLACE_PARAMS, REPLACE_ARGS)
#endif
#if MPI_VERSION >= 4
#undef RS_COUNT
#define RS_COUNT MPI_Count
SENDS(_c)
RECEIVES(_c)
SENDRECV(Sendrecv_c, SENDRECV_PARAMS, SENDRECV_ARGS)
SENDRECV(Sendrecv_replace_c, REPLACE_PARAMS, REPLACE_ARGS)
ISENDRECV(Isendrecv_c, SENDRECV_PARAMS, SENDRECV_ARGS)
ISENDRECV(Isendrecv_replace_c, REPLACE_PARAMS, REPLACE_ARGS)
#endif
