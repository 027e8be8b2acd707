/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent point-to-point requests of all kinds: modes, lengths, layouts, more
 * of them than a lane has slots, and those that stay native.
 *
 * kinds */
#include "tests/base/entries.h"
#include "tests/mpi/lanes.h"

enum { MOST = 40000 };
enum { SLOTS = 8 }; /* that a lane has at most */

typedef int init_function(const void *, int, MPI_Datatype, int, int, MPI_Comm,
                          MPI_Request *);

enum lanes { NEVER, PERHAPS, ALWAYS };

/* Other modes, longer messages, strided ones, on a communicator of their own,
 * which is freed at once where that leaves them their lanes. */
static void exchange(init_function *init, int ints, MPI_Datatype type,
                     int count, enum lanes lanes)
{
    static int out[2 * MOST], in[2 * MOST];
    uint64_t before = counter("lane_sends");
    MPI_Request requests[2];
    struct hope hope = {0};
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Recv_init(in, count, type, left, 7, comm, &requests[0]);
    init(out, count, type, right, 7, comm, &requests[1]);
    if (init == MPI_Ssend_init)
        MPI_Comm_free(&comm); /* they go on */
    for (int i = 0;; i++) {
        uint64_t carried = counter("lane_sends") - before;
        bool enough = lanes == ALWAYS ? carried > SLOTS : i > 20;
        int good = !uses_lanes || enough, all;

        for (int k = 0; k < ints; k++) {
            out[k] = world_rank * 7 + i + k;
            in[k] = -1;
        }
        MPI_Start(&requests[0]);
        if (init == MPI_Rsend_init)
            MPI_Barrier(MPI_COMM_WORLD);
        MPI_Start(&requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (int k = 0; k < ints; k++) {
            bool gap = type != MPI_INT && k % 2 == 1;

            CHECK(in[k] == (gap ? -1 : left * 7 + i + k), "%d: %d", k, in[k]);
        }
        MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (all)
            break;
        go_on(&hope, "too few sends through lanes");
    }
    CHECK(lanes != NEVER || counter("lane_sends") == before, "carried");
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    if (comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
}

static void case_modes(void)
{
    static char space[1 << 16];
    MPI_Datatype every_second;
    int bytes = sizeof(space);
    void *at = space;

    exchange(MPI_Ssend_init, 10, MPI_INT, 10, ALWAYS);
    exchange(MPI_Send_init, 12, MPI_INT, 12, ALWAYS);
    exchange(MPI_Send_init, 13, MPI_INT, 13, ALWAYS);
    exchange(MPI_Ssend_init, 4000, MPI_INT, 4000, ALWAYS);
    exchange(MPI_Send_init, 0, MPI_INT, 0, ALWAYS);
    exchange(MPI_Send_init, MOST, MPI_INT, MOST, ALWAYS);
    MPI_Type_vector(50, 1, 2, MPI_INT, &every_second);
    MPI_Type_commit(&every_second);
    exchange(MPI_Send_init, 99, every_second, 1, ALWAYS);
    MPI_Type_free(&every_second);
    exchange(MPI_Rsend_init, 10, MPI_INT, 10, PERHAPS);
    MPI_Buffer_attach(space, sizeof(space));
    exchange(MPI_Bsend_init, 10, MPI_INT, 10, NEVER);
    MPI_Buffer_detach(&at, &bytes);
}

/* From here on each process waits for its own lanes: where there are fewer cores
 * than processes it is rare that those of all go on in one round. */

/* A message may be shorter than the receive, and may not be longer. */
static void case_lengths(void)
{
    int out[8] = {0}, in[8], count, error;
    MPI_Request requests[3];
    struct hope hope = {0};
    MPI_Status status;
    MPI_Comm comm;

    MPI_Comm_split(MPI_COMM_WORLD, 0, world_rank, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Recv_init(in, 8, MPI_INT, left, 1, comm, &requests[0]);
    MPI_Send_init(out, 5, MPI_INT, right, 1, comm, &requests[1]);
    MPI_Recv_init(in, 2, MPI_INT, left, 1, comm, &requests[2]);
    for (int i = 0, good = !uses_lanes, all = 0; !all; i++) {
        uint64_t before = counter("lane_receives");

        for (int k = 0; k < 5; k++)
            out[k] = world_rank + i + k;
        MPI_Startall(2, requests);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        MPI_Wait(&requests[0], &status);
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(count == 5 && in[4] == left + i + 4, "count %d", count);
        good |= counter("lane_receives") > before;
        MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (!all)
            go_on(&hope, "no round through lanes");
    }
    MPI_Start(&requests[2]);
    MPI_Start(&requests[1]);
    error = MPI_Wait(&requests[2], &status);
    MPI_Error_class(error, &error);
    CHECK(error == MPI_ERR_TRUNCATE, "error %d", error);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    for (int i = 0; i < 3; i++)
        MPI_Request_free(&requests[i]);
    MPI_Comm_free(&comm);
}

/* More receives on a lane than it has slots are completed before the first
 * one, whose message must stay. */
static void out_of_turn(int ints)
{
    enum { MESSAGES = 20 };
    static int out[MOST], in[2][MOST];
    MPI_Request first, second, send;
    struct hope hope = {0};
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Recv_init(in[0], ints, MPI_INT, left, 1, comm, &first);
    MPI_Recv_init(in[1], ints, MPI_INT, left, 1, comm, &second);
    MPI_Send_init(out, ints, MPI_INT, right, 1, comm, &send);
    for (int i = 0, good = !uses_lanes, all;; i++) {
        uint64_t before = counter("lane_receives");

        MPI_Start(&first);
        for (int k = 0; k <= MESSAGES; k++) {
            if (k > 0)
                MPI_Start(&second);
            out[0] = out[ints - 1] = 100 * i + k;
            MPI_Start(&send);
            if (k > 0)
                MPI_Wait(&second, MPI_STATUS_IGNORE);
            MPI_Wait(&send, MPI_STATUS_IGNORE);
            CHECK(k == 0 || (in[1][0] == 100 * i + k &&
                             in[1][ints - 1] == 100 * i + k),
                  "%d, not %d", in[1][ints - 1], 100 * i + k);
        }
        MPI_Wait(&first, MPI_STATUS_IGNORE);
        CHECK(in[0][0] == 100 * i && in[0][ints - 1] == 100 * i,
              "%d, not %d", in[0][ints - 1], 100 * i);
        good |= counter("lane_receives") == before + 1 + MESSAGES;
        MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (all)
            break;
        go_on(&hope, "not all through lanes");
    }
    MPI_Request_free(&first);
    MPI_Request_free(&second);
    MPI_Request_free(&send);
    MPI_Comm_free(&comm);
}

/* Two long messages go opposite to the order in which they are waited for; the
 * sender is done only when they have been read. */
static void pulled_in_any_order(void)
{
    static int out[2][MOST], in[2][MOST];
    MPI_Request receives_of[2], sends_of[2];
    struct hope hope = {0};
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int tag = 0; tag < 2; tag++) {
        MPI_Recv_init(in[tag], MOST, MPI_INT, left, tag, comm,
                      &receives_of[tag]);
        MPI_Send_init(out[tag], MOST, MPI_INT, right, tag, comm,
                      &sends_of[tag]);
    }
    for (int i = 0, good = !uses_lanes, all;; i++) {
        uint64_t before = counter("lane_receives");

        MPI_Startall(2, receives_of);
        for (int tag = 0; tag < 2; tag++) {
            out[tag][MOST - 1] = 2 * i + tag;
            MPI_Start(&sends_of[tag]);
            if (world_rank % 2 == 0)
                MPI_Wait(&sends_of[tag], MPI_STATUS_IGNORE);
        }
        MPI_Wait(&receives_of[1], MPI_STATUS_IGNORE);
        MPI_Wait(&receives_of[0], MPI_STATUS_IGNORE);
        MPI_Waitall(2, sends_of, MPI_STATUSES_IGNORE);
        for (int tag = 0; tag < 2; tag++)
            CHECK(in[tag][MOST - 1] == 2 * i + tag, "%d",
                  in[tag][MOST - 1]);
        good |= counter("lane_receives") == before + 2;
        MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (all)
            break;
        go_on(&hope, "not all through lanes");
    }
    /* Freed while the other side has yet to read it. */
    MPI_Startall(2, receives_of);
    out[0][MOST - 1] = out[1][MOST - 1] = -5;
    MPI_Startall(2, sends_of);
    MPI_Request_free(&sends_of[0]);
    MPI_Wait(&sends_of[1], MPI_STATUS_IGNORE);
    MPI_Waitall(2, receives_of, MPI_STATUSES_IGNORE);
    CHECK(in[0][MOST - 1] == -5 && in[1][MOST - 1] == -5, "%d and %d",
          in[0][MOST - 1], in[1][MOST - 1]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Request_free(&sends_of[1]);
    MPI_Request_free(&receives_of[0]);
    MPI_Request_free(&receives_of[1]);
    MPI_Comm_free(&comm);
}

/* Requests that stay native, and what the backend says of them. */
static void case_native(void)
{
    int out = 1, in = 0;
    MPI_Request requests[2];
    struct {
        int source, tag;
        const char *counter;
    } kinds[] = {{MPI_ANY_SOURCE, 5, "recv_init.native.wildcard"},
                 {left, MPI_ANY_TAG, "recv_init.native.wildcard"},
                 {MPI_PROC_NULL, 5, "recv_init.native.no-peer"}};
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < 3; i++) {
        uint64_t before = counter(kinds[i].counter);

        MPI_Recv_init(&in, 1, MPI_INT, kinds[i].source, kinds[i].tag, comm,
                      &requests[0]);
        CHECK(!uses_lanes || counter(kinds[i].counter) == before + 1,
              "%s", kinds[i].counter);
        MPI_Send_init(&out, 1, MPI_INT,
                      kinds[i].source == MPI_PROC_NULL ? MPI_PROC_NULL : right,
                      5, comm, &requests[1]);
        for (int k = 0; k < 10; k++) {
            MPI_Startall(2, requests);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        }
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
    }
    MPI_Comm_free(&comm);
}

/* Both halves of the processes, each the other's remote group. */
static void case_intercommunicator(void)
{
    int color = world_rank % 2, rank, size, out, in;
    uint64_t before = counter("send_init.native.unnamed");
    MPI_Request requests[2];
    MPI_Comm half, inter;

    if (world_size == 1)
        return;
    MPI_Comm_split(MPI_COMM_WORLD, color, world_rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, !color, 3, &inter);
    MPI_Comm_rank(inter, &rank);
    MPI_Comm_remote_size(inter, &size);
    if (rank < size) { /* the remote process of the same rank */
        MPI_Recv_init(&in, 1, MPI_INT, rank, 5, inter, &requests[0]);
        MPI_Send_init(&out, 1, MPI_INT, rank, 5, inter, &requests[1]);
        CHECK(counter("send_init.native.unnamed") == before + uses_lanes,
              "not counted as native");
        for (int i = 0; i < 50; i++) {
            out = world_rank * 100 + i;
            in = -1;
            MPI_Startall(2, requests);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            CHECK(in == (2 * rank + !color) * 100 + i, "%d", in);
        }
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
    }
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

/* Programs may have few descriptors, and lanes on many communicators. */
static void case_descriptors(void)
{
    enum { COMMS = 12 };
    static int out[COMMS], in[COMMS];
    MPI_Request requests[2 * COMMS];
    MPI_Comm comms[COMMS];
    uint64_t lanes = counter("lane_receives");
    int before = count_descriptors();
    struct hope hope = {0};
    bool all;

    for (int i = 0; i < COMMS; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        MPI_Recv_init(&in[i], 1, MPI_INT, left, 5, comms[i], &requests[i]);
        MPI_Send_init(&out[i], 1, MPI_INT, right, 5, comms[i],
                      &requests[COMMS + i]);
    }
    do {
        go_on(&hope, "descriptors stay open, or no lanes");
        MPI_Startall(2 * COMMS, requests);
        MPI_Waitall(2 * COMMS, requests, MPI_STATUSES_IGNORE);
        all = all_have(&hope, counter("lane_receives") > lanes + 4 * COMMS &&
                                  count_descriptors() < before + COMMS / 2);
    } while (!all);
    for (int i = 0; i < COMMS; i++) {
        MPI_Request_free(&requests[i]);
        MPI_Request_free(&requests[COMMS + i]);
        MPI_Comm_free(&comms[i]);
    }
}

static MPI_Request kept;

static int free_kept(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    return MPI_Request_free(&kept);
}

/* The last request on a communicator that has been freed takes it with it, in
 * MPICH: with what is known of its neighbors, and a request that the program frees
 * then. */
static void case_last_request(void)
{
    int periodic = 1, keyval;
    MPI_Request requests[2];
    struct hope hope = {0};
    MPI_Comm comm;

    MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &periodic, 0, &comm);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_kept, &keyval, NULL);
    MPI_Comm_set_attr(comm, keyval, NULL);
    MPI_Comm_free_keyval(&keyval);
    for (int i = 0; i < 10; i++) {
        static int out, in;

        if (i == 0) {
            MPI_Recv_init(&in, 1, MPI_INT, left, 5, comm, &requests[0]);
            MPI_Send_init(&out, 1, MPI_INT, right, 5, comm, &requests[1]);
            MPI_Send_init(&out, 1, MPI_INT, right, 6, MPI_COMM_WORLD, &kept);
        }
        if (i == 5)
            MPI_Comm_free(&comm);
        out = world_rank * 100 + i;
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(in == left * 100 + i, "%d", in);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    while (kept != MPI_REQUEST_NULL) { /* MPICH 4.2 waits for all to be found complete */
        int flag;

        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag,
                   MPI_STATUS_IGNORE);
        go_on(&hope, "a communicator is left");
    }
}

int main(int argc, char **argv)
{
    test_init(&argc, &argv, false); /* native MPIs fail: see persistent.c */
    uses_lanes = true;
    lanes_init();
    promote();
    case_modes();
    case_lengths();
    out_of_turn(1);
    out_of_turn(3000);
    pulled_in_any_order();
    case_native();
    case_intercommunicator();
    case_descriptors();
    case_last_request();
    lanes_fini();
    CHECK(counter("requests") == 0, "requests are left");
    return test_fini("kinds");
}
