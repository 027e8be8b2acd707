/* SPDX-License-Identifier: BSD-3-Clause */
#include "calls.h"

#include <stddef.h>
#include <string.h>

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
/* Open MPI 4 has MPI-4's persistent collectives under names of its own. */
#include <mpi-ext.h>
#define MPI_Neighbor_alltoallv_init MPIX_Neighbor_alltoallv_init
#define MPI_Neighbor_alltoallw_init MPIX_Neighbor_alltoallw_init
#endif

static void nothing(struct call_state *c)
{
    (void)c;
}

/* Plain point-to-point: message s has tag s. Persistent: tags of its own, since
 * a plain receive that was posted for a tag bars it for rsched. */
enum { PERSISTENT_TAG = 100 };

/* What MPI calls a message: an address, and how many of which type. */
static int count_of(const struct work *w, int s)
{
    return w->strided ? 1 : w->counts[s];
}

static void isend_run(struct call_state *c)
{
    const struct work *w = c->work;

    for (int s = 0; s < w->messages; s++)
        MPI_Irecv(w->receive + w->at[s], count_of(w, s), w->receive_type[s], w->from[s], s,
                  MPI_COMM_WORLD, &c->requests[s]);
    for (int s = 0; s < w->messages; s++)
        MPI_Isend(w->send + w->at[s], count_of(w, s), w->send_type[s], w->to[s], s,
                  MPI_COMM_WORLD, &c->requests[w->messages + s]);
    MPI_Waitall(2 * w->messages, c->requests, MPI_STATUSES_IGNORE);
}

static void persistent_setup(struct call_state *c)
{
    const struct work *w = c->work;

    for (int s = 0; s < w->messages; s++) {
        MPI_Recv_init(w->receive + w->at[s], count_of(w, s), w->receive_type[s],
                      w->from[s], PERSISTENT_TAG + s, MPI_COMM_WORLD,
                      &c->requests[s]);
        MPI_Send_init(w->send + w->at[s], count_of(w, s), w->send_type[s], w->to[s],
                      PERSISTENT_TAG + s, MPI_COMM_WORLD,
                      &c->requests[w->messages + s]);
    }
}

static void persistent_run(struct call_state *c)
{
    MPI_Startall(2 * c->work->messages, c->requests);
    MPI_Waitall(2 * c->work->messages, c->requests, MPI_STATUSES_IGNORE);
}

static void persistent_teardown(struct call_state *c)
{
    for (int i = 0; i < 2 * c->work->messages; i++)
        MPI_Request_free(&c->requests[i]);
}

/* Neighborhood collectives. */

/* Of messages of derived datatypes, whose addresses are in their types. */
static const MPI_Aint no_offsets[MAX_MESSAGES];

static void neighbor_run(struct call_state *c)
{
    const struct work *w = c->work;

    if (w->strided) {
        MPI_Neighbor_alltoallw(w->send, w->ones, no_offsets, w->send_type,
                               w->receive, w->ones, no_offsets,
                               w->receive_type, w->graph);
        return;
    }
    MPI_Neighbor_alltoallv(w->send, w->counts, w->at, MPI_BYTE, w->receive,
                           w->counts, w->at, MPI_BYTE, w->graph);
}

static void neighbor_init_setup(struct call_state *c)
{
    const struct work *w = c->work;

    if (w->strided) {
        MPI_Neighbor_alltoallw_init(w->send, w->ones, no_offsets,
                                    w->send_type, w->receive, w->ones,
                                    no_offsets, w->receive_type, w->graph,
                                    MPI_INFO_NULL, &c->requests[0]);
        return;
    }
    MPI_Neighbor_alltoallv_init(w->send, w->counts, w->at, MPI_BYTE,
                                w->receive, w->counts, w->at, MPI_BYTE,
                                w->graph, MPI_INFO_NULL, &c->requests[0]);
}

static void neighbor_init_run(struct call_state *c)
{
    MPI_Start(&c->requests[0]);
    MPI_Wait(&c->requests[0], MPI_STATUS_IGNORE);
}

static void neighbor_init_teardown(struct call_state *c)
{
    MPI_Request_free(&c->requests[0]);
}

/* Floors: what two processes need at least, with no library at all. The
 * shared bytes are, for each side, a copy of its send buffer (which stands for
 * an application whose buffers are shared) and two slots. */

static size_t slot_size(const struct work *w)
{
    return w->size + 64;
}

size_t calls_shared_size(const struct work *w)
{
    return sizeof(struct shared) + 2 * (w->size + 2 * slot_size(w));
}

static char *shared_part(const struct call_state *c, int side)
{
    const struct work *w = c->work;

    return c->shared->bytes + (size_t)side * (w->size + 2 * slot_size(w));
}

static char *slot_of(const struct call_state *c, int side, uint64_t epoch)
{
    return shared_part(c, side) + c->work->size +
           (epoch & 1) * slot_size(c->work);
}

static void copy_messages(const struct work *w, int from, const char *buffer)
{
    for (int s = 0; s < w->messages; s++)
        if (w->from[s] == from)
            box_copy(w->receive, &w->to_box[s], buffer, &w->from_box[s]);
}

static void spin_hint(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void await(_Atomic uint64_t *word, uint64_t value)
{
    /* Acquire: the bytes that the other side wrote before it wrote the word. */
    while (atomic_load_explicit(word, memory_order_acquire) < value)
        spin_hint();
}

/* What stands for the application's buffer is written as that is: a copy would leave
 * its lines elsewhere, out of which they are read faster or slower. */
static void floor_rewritten(struct call_state *c)
{
    work_rewrite(c->work, shared_part(c, c->work->rank));
}

static void floor_setup(struct call_state *c)
{
    const struct work *w = c->work;

    /* Flags only grow, over all cases and calls. */
    c->epoch = atomic_load(&c->shared->side[w->rank].begun);
    for (int s = 0; s < w->messages; s++)
        box_copy(shared_part(c, w->rank), &w->from_box[s], w->send,
                 &w->from_box[s]);
    /* Bytes of an earlier case may lie where the slots' flags are now. */
    memset(slot_of(c, w->rank, 0), 0, sizeof(uint64_t));
    memset(slot_of(c, w->rank, 1), 0, sizeof(uint64_t));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void floor_teardown(struct call_state *c)
{
    atomic_store(&c->shared->side[c->work->rank].begun, c->epoch);
}

/* One copy out of the other side's buffer, which it must not write again
 * before it knows that the copy is done. */
static void floor_one_copy_run(struct call_state *c)
{
    const struct work *w = c->work;
    int me = w->rank, peer = 1 - me;

    c->epoch++;
    /* Release: what this side has written into its buffer. */
    atomic_store_explicit(&c->shared->side[me].ready, c->epoch,
                          memory_order_release);
    copy_messages(w, me, shared_part(c, me));
    await(&c->shared->side[peer].ready, c->epoch);
    copy_messages(w, peer, shared_part(c, peer));
    /* Release: the reads of the peer's buffer come before the word. */
    atomic_store_explicit(&c->shared->side[me].taken, c->epoch,
                          memory_order_release);
    await(&c->shared->side[peer].taken, c->epoch);
}

/* Copy in (the first 56 bytes go into the flag's own line) and copy out. Two
 * slots, used in turn, need no word back: that the peer's epoch k has arrived
 * says that it has taken k - 1. */
static void floor_two_copies_run(struct call_state *c)
{
    const struct work *w = c->work;
    int me = w->rank, peer = 1 - me;
    char *out = slot_of(c, me, ++c->epoch), *in = slot_of(c, peer, c->epoch);
    size_t total = 0, at;
    struct box slot;

    for (int s = 0; s < w->messages; s++)
        total += w->to[s] == peer ? (size_t)w->counts[s] : 0;
    at = total <= 56 ? 8 : 64;
    for (size_t s = 0, o = 0; s < (size_t)w->messages; s++) {
        if (w->to[s] != peer)
            continue;
        slot = box_packed(at + o, (size_t)w->counts[s]);
        box_copy(out, &slot, w->send, &w->from_box[s]);
        o += (size_t)w->counts[s];
    }
    /* Release: the bytes in the slot. */
    atomic_store_explicit((_Atomic uint64_t *)(void *)out, c->epoch,
                          memory_order_release);
    copy_messages(w, me, w->send);
    await((_Atomic uint64_t *)(void *)in, c->epoch);
    for (size_t s = 0, o = 0; s < (size_t)w->messages; s++) {
        if (w->from[s] != peer)
            continue;
        slot = box_packed(at + o, (size_t)w->counts[s]);
        box_copy(w->receive, &w->to_box[s], in, &slot);
        o += (size_t)w->counts[s];
    }
}

/* The bytes alone, where all edges lead to the process itself. */
static void copy_run(struct call_state *c)
{
    copy_messages(c->work, c->work->rank, c->work->send);
}

const struct call calls[] = {
    {"isend", "MPI_Irecv, MPI_Isend, MPI_Waitall", false, nothing, isend_run,
     nothing, NULL},
    {"persistent", "MPI_Startall, MPI_Waitall", false, persistent_setup,
     persistent_run, persistent_teardown, NULL},
    {"neighbor", "MPI_Neighbor_alltoallv", false, nothing, neighbor_run,
     nothing, NULL},
    {"neighbor-init", "MPI_Neighbor_alltoallv_init", false,
     neighbor_init_setup, neighbor_init_run, neighbor_init_teardown, NULL},
    {"one-copy", "floor: one copy from a shared mapping", true, floor_setup,
     floor_one_copy_run, floor_teardown, floor_rewritten},
    {"two-copies", "floor: two copies through slots", true, floor_setup,
     floor_two_copies_run, floor_teardown, NULL},
    {"copy", "floor: copies within the process", false, nothing, copy_run,
     nothing, NULL},
    {NULL, NULL, false, NULL, NULL, NULL, NULL}};

const struct call *calls_find(const char *name)
{
    for (const struct call *c = calls; c->name != NULL; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}
