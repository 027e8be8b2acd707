/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way persistent messages take, by their length and their memory, against
 * what the arguments say: check-ways has it from `rsched info`. Slots grow at
 * first, so it is waited for.
 *
 * ways MAPPED OTHER MAPPED OTHER [--unmapped] [--far]
 *
 * From how many bytes on each of the two ranks sends what is copied once, out of
 * memory that can be mapped and out of other; 0: it never is. --unmapped: the
 * kernel reads all of it. --far: what is too long for slots goes natively. */
#include "tests/mpi/hope.h"

enum { MOST = 150000, SLOT = 65536, KINDS = 2, FEW = 30 };
enum memory { OTHER, MAPPED };
enum way { SLOTS, ONCE, PACKED, NATIVELY };

static struct {
    long once[KINDS];
} senders[2];
static bool unmapped, far;
static char *out[KINDS], *in;
static int peer;

static enum way way_of(int rank, enum memory memory, int bytes)
{
    long once = senders[rank].once[memory];

    if (once > 0 && bytes >= once)
        return ONCE;
    if (bytes <= SLOT)
        return SLOTS;
    return far ? NATIVELY : PACKED;
}

static char value(int rank, int round, int i)
{
    return (char)(rank * 101 + round * 31 + i * 7);
}

struct counts {
    uint64_t sends, receives, pulls, mapped, packed;
};

static struct counts look(void)
{
    return (struct counts){counter("lane_sends"), counter("lane_receives"),
                           counter("lane_pulls"), counter("lane_mapped"),
                           counter("lane_packed")};
}

/* Whether both messages of this process have gone as they should. */
static bool is_right(enum memory memory, int bytes, const struct counts *before)
{
    enum way sent = way_of(world_rank, memory, bytes);
    enum way got = way_of(peer, memory, bytes);
    bool mapped = got == PACKED ||
                  (got == ONCE && memory == MAPPED && !unmapped);
    struct counts now = look();

    return now.sends - before->sends == (sent != NATIVELY) &&
           now.receives - before->receives == (got != NATIVELY) &&
           now.pulls - before->pulls == (got == ONCE || got == PACKED) &&
           now.mapped - before->mapped == mapped &&
           now.packed - before->packed == (sent == PACKED);
}

static void exchange(MPI_Request requests[2], enum memory memory, int bytes,
                     int round)
{
    for (int i = 0; i < bytes; i++)
        out[memory][i] = value(world_rank, round, i);
    memset(in, 0, MOST);
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < bytes; i++)
        CHECK(in[i] == value(peer, round, i), "%d bytes, round %d, number %d",
              bytes, round, i);
    for (int i = bytes; i < MOST; i++)
        CHECK(in[i] == 0, "%d bytes, round %d: more than that", bytes, round);
}

static void run(MPI_Comm comm, enum memory memory, int bytes)
{
    struct hope hope = {0};
    MPI_Request requests[2];
    char what[80];
    /* A lane of which a message can never go through it stays native (N7). */
    int tag = way_of(world_rank, memory, bytes) == NATIVELY ||
              way_of(peer, memory, bytes) == NATIVELY;

    snprintf(what, sizeof(what), "%d bytes of %s memory, another way", bytes,
             memory == MAPPED ? "mapped" : "other");
    MPI_Recv_init(in, MOST, MPI_CHAR, peer, tag, comm, &requests[0]);
    MPI_Send_init(out[memory], bytes, MPI_CHAR, peer, tag, comm, &requests[1]);
    for (int round = 1;; round++) {
        struct counts before = look();

        exchange(requests, memory, bytes, round);
        /* What goes natively does so from the beginning, and later too. */
        if (all_have(&hope, is_right(memory, bytes, &before)) &&
            (!far || round >= FEW))
            break;
        go_on(&hope, what);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

int main(int argc, char **argv)
{
    static const int lengths[] = {100, 3072, 3073, 4097, 9000, 20000, 35000, SLOT,
                                  SLOT + 1, MOST, 50000, 20000, 5000};
    MPI_Comm comm;

    test_init(&argc, &argv, false);
    CHECK(argc >= 5 && world_size == 2, "usage");
    for (int rank = 0; rank < 2; rank++) {
        senders[rank].once[MAPPED] = strtol(argv[1 + 2 * rank], NULL, 10);
        senders[rank].once[OTHER] = strtol(argv[2 + 2 * rank], NULL, 10);
    }
    unmapped = has_option(argc, argv, "--unmapped");
    far = has_option(argc, argv, "--far");
    peer = 1 - world_rank;
    out[OTHER] = allocate(MOST);
    MPI_Alloc_mem(MOST, MPI_INFO_NULL, &out[MAPPED]);
    in = allocate(MOST);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (enum memory memory = OTHER; memory <= MAPPED; memory++)
            run(comm, memory, lengths[i]);
    }
    MPI_Comm_free(&comm);
    free(out[OTHER]);
    MPI_Free_mem(out[MAPPED]);
    free(in);
    return test_fini("ways");
}
