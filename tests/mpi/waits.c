/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that wait or test, of every family, beside lanes in an incarnation:
 *
 * 1. each completes messages of lanes, short and pulled ones, together with a
 *    native request, an inactive one and MPI_REQUEST_NULL
 * 2. each serves the lanes while it waits for something else: the other side
 *    gives that only when its messages have been received
 * 3. so does each native call that blocks, whichever side comes to it first
 * 4. each call that asks whether something has come sees that messages go
 *    natively for which the other side waits so, before it lets that come
 *
 * waits [--native] [--verbose] */
#include <unistd.h>

#include "tests/mpi/flags.h"
#include "tests/mpi/is_complete.h"
#include "tests/mpi/library.h"
#include "tests/mpi/one_way.h"

enum { SHORT, LONG, IDLE, LANES, PLAIN = LANES /* tags */ };
enum { PULLED = 30000 /* ints */ };
enum { STARTED /* flag */ };

/* ---- families ---- */

/* Complete all, and keep the statuses. */
typedef void finish_function(int n, MPI_Request *requests, MPI_Status *statuses);

static void by_Wait(int n, MPI_Request *requests, MPI_Status *statuses)
{
    for (int i = n - 1; i >= 0; i--)
        MPI_Wait(&requests[i], &statuses[i]);
}

static void by_Waitall(int n, MPI_Request *requests, MPI_Status *statuses)
{
    MPI_Waitall(n, requests, statuses);
}

static void by_Waitany(int n, MPI_Request *requests, MPI_Status *statuses)
{
    MPI_Status status;
    int i;

    for (;;) {
        MPI_Waitany(n, requests, &i, &status);
        if (i == MPI_UNDEFINED)
            return;
        statuses[i] = status;
    }
}

static void by_Waitsome(int n, MPI_Request *requests, MPI_Status *statuses)
{
    MPI_Status some[LANES + 2];
    int indices[LANES + 2], num;

    for (;;) {
        MPI_Waitsome(n, requests, &num, indices, some);
        if (num == MPI_UNDEFINED)
            return;
        for (int i = 0; i < num; i++)
            statuses[indices[i]] = some[i];
    }
}

static void by_Test(int n, MPI_Request *requests, MPI_Status *statuses)
{
    for (int i = n - 1; i >= 0; i--) {
        for (int flag = 0; !flag;)
            MPI_Test(&requests[i], &flag, &statuses[i]);
    }
}

static void by_Testall(int n, MPI_Request *requests, MPI_Status *statuses)
{
    for (int flag = 0; !flag;)
        MPI_Testall(n, requests, &flag, statuses);
}

static void by_Testany(int n, MPI_Request *requests, MPI_Status *statuses)
{
    MPI_Status status;
    int i, flag;

    for (;;) {
        MPI_Testany(n, requests, &i, &flag, &status);
        if (flag && i == MPI_UNDEFINED)
            return;
        if (flag)
            statuses[i] = status;
    }
}

static void by_Testsome(int n, MPI_Request *requests, MPI_Status *statuses)
{
    MPI_Status some[LANES + 2];
    int indices[LANES + 2], num;

    for (;;) {
        MPI_Testsome(n, requests, &num, indices, some);
        if (num == MPI_UNDEFINED)
            return;
        for (int i = 0; i < num; i++)
            statuses[indices[i]] = some[i];
    }
}

static void by_Request_get_status(int n, MPI_Request *requests,
                                  MPI_Status *statuses)
{
    for (int i = n - 1; i >= 0; i--) {
        for (int flag = 0; !flag;)
            MPI_Request_get_status(requests[i], &flag, &statuses[i]);
        MPI_Wait(&requests[i], &statuses[i]);
    }
}

static void by_is_complete(int n, MPI_Request *requests, MPI_Status *statuses)
{
    for (int i = n - 1; i >= 0; i--) {
        while (requests[i] != MPI_REQUEST_NULL && !is_complete(requests[i]))
            ;
        MPI_Wait(&requests[i], &statuses[i]);
    }
}

static const struct family {
    const char *name;
    finish_function *finish;
} families[] = {
    {"Wait", by_Wait},
    {"Waitall", by_Waitall},
    {"Waitany", by_Waitany},
    {"Waitsome", by_Waitsome},
    {"Test", by_Test},
    {"Testall", by_Testall},
    {"Testany", by_Testany},
    {"Testsome", by_Testsome},
    {"Request_get_status", by_Request_get_status},
    {"Request_is_complete", by_is_complete},
};

static void expect_status(const char *name, const MPI_Status *status, int tag,
                          int length)
{
    int count;

    MPI_Get_count(status, MPI_INT, &count);
    CHECK(status->MPI_SOURCE == sender && status->MPI_TAG == tag &&
              count == length, "%s: tag %d, source %d, %d ints of %d", name,
          status->MPI_TAG, status->MPI_SOURCE, count, length);
}

/* ---- 1 ---- */

static void together(const struct family *f)
{
    MPI_Request in_all[LANES + 2], out_all[LANES + 2];
    MPI_Status statuses[LANES + 2];
    int plain_out = sequence, plain_in = -1;

    for (int tag = 0; tag < LANES; tag++) {
        in_all[tag] = receives ? in_request[tag] : MPI_REQUEST_NULL;
        out_all[tag] = sends ? out_request[tag] : MPI_REQUEST_NULL;
    }
    in_all[PLAIN] = out_all[PLAIN] = MPI_REQUEST_NULL;
    in_all[PLAIN + 1] = out_all[PLAIN + 1] = MPI_REQUEST_NULL;
    if (receives) {
        MPI_Startall(IDLE, in_all);
        MPI_Irecv(&plain_in, 1, MPI_INT, sender, PLAIN, comm, &in_all[PLAIN]);
    }
    if (sends) {
        MPI_Startall(IDLE, out_all);
        MPI_Isend(&plain_out, 1, MPI_INT, receiver, PLAIN, comm,
                  &out_all[PLAIN]);
        f->finish(LANES + 2, out_all, statuses);
        CHECK(out_all[PLAIN] == MPI_REQUEST_NULL &&
                  out_all[LONG] == out_request[LONG], "%s: handles", f->name);
    }
    if (!receives)
        return;
    f->finish(LANES + 2, in_all, statuses);
    for (int tag = 0; tag < IDLE; tag++) {
        expect_status(f->name, &statuses[tag], tag, lengths[tag]);
        verify(tag);
    }
    expect_status(f->name, &statuses[PLAIN], PLAIN, 1);
    CHECK(plain_in == plain_out && in_all[PLAIN] == MPI_REQUEST_NULL, "%s: %d",
          f->name, plain_in);
}

/* ---- 2 ---- */

static void start_receives(void)
{
    if (receives)
        MPI_Startall(IDLE, in_request);
    if (receives)
        flag_raise(STARTED, sequence);
}

static void finish_receives(void)
{
    if (!receives)
        return;
    MPI_Waitall(IDLE, in_request, MPI_STATUSES_IGNORE);
    for (int tag = 0; tag < IDLE; tag++)
        verify(tag);
}

static void start_sends(void)
{
    if (sends)
        MPI_Startall(IDLE, out_request);
}

static void finish_sends(void)
{
    if (sends)
        MPI_Waitall(IDLE, out_request, MPI_STATUSES_IGNORE);
}

static void serve(const struct family *f)
{
    MPI_Request request;
    MPI_Status status;
    int plain = -1;

    if (receives) {
        MPI_Irecv(&plain, 1, MPI_INT, sender, PLAIN, comm, &request);
        start_receives();
        f->finish(1, &request, &status);
        CHECK(plain == sequence, "%s: %d", f->name, plain);
        expect_status(f->name, &status, PLAIN, 1);
        finish_receives();
    } else if (sends) {
        flag_await(STARTED, sequence);
        start_sends();
        finish_sends();
        MPI_Send(&sequence, 1, MPI_INT, receiver, PLAIN, comm);
    }
}

/* ---- 3 ---- */

static int other(void)
{
    return world_size - 1 - world_rank;
}

static void call_Barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static void call_Bcast(void)
{
    int number = sequence;

    /* Who is late is the root. */
    MPI_Bcast(&number, 1, MPI_INT, sequence % 2 ? receiver : sender, comm);
}

static void call_Allreduce(void)
{
    int number = 1;

    MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_INT, MPI_SUM, comm);
    CHECK(number == 2, "%d", number);
}

static void call_Alltoall(void)
{
    int to[2] = {1, 1}, from[2];

    MPI_Alltoall(to, 1, MPI_INT, from, 1, MPI_INT, MPI_COMM_WORLD);
}

static void call_Sendrecv(void)
{
    int to = sequence, from;

    MPI_Sendrecv(&to, 1, MPI_INT, other(), PLAIN, &from, 1, MPI_INT, other(),
                 PLAIN, comm, MPI_STATUS_IGNORE);
    CHECK(from == sequence, "%d", from);
}

static void call_Sendrecv_replace(void)
{
    int number = sequence;

    MPI_Sendrecv_replace(&number, 1, MPI_INT, other(), PLAIN, other(), PLAIN,
                         comm, MPI_STATUS_IGNORE);
    CHECK(number == sequence, "%d", number);
}

static void call_Recv(void)
{
    int to = sequence, from;
    MPI_Request request;

    MPI_Isend(&to, 1, MPI_INT, other(), PLAIN, comm, &request);
    MPI_Recv(&from, 1, MPI_INT, other(), PLAIN, comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void call_Probe(void)
{
    int to = sequence, from;
    MPI_Request request;

    MPI_Isend(&to, 1, MPI_INT, other(), PLAIN, comm, &request);
    MPI_Probe(other(), PLAIN, comm, MPI_STATUS_IGNORE);
    MPI_Recv(&from, 1, MPI_INT, other(), PLAIN, comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void call_Mprobe(void)
{
    int to = sequence, from;
    MPI_Request request;
    MPI_Message message;

    MPI_Isend(&to, 1, MPI_INT, other(), PLAIN, comm, &request);
    MPI_Mprobe(other(), PLAIN, comm, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(&from, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void call_Ssend(void)
{
    int to = sequence, from;
    MPI_Request request;

    MPI_Irecv(&from, 1, MPI_INT, other(), PLAIN, comm, &request);
    MPI_Ssend(&to, 1, MPI_INT, other(), PLAIN, comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void call_Ibarrier(void)
{
    MPI_Request request;

    MPI_Ibarrier(comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void call_Comm_dup(void)
{
    MPI_Comm copy;

    MPI_Comm_dup(comm, &copy);
    MPI_Comm_free(&copy);
}

static void call_Comm_split(void)
{
    MPI_Comm half;

    MPI_Comm_split(comm, 0, -world_rank, &half);
    MPI_Comm_free(&half);
}

static void call_Win_create(void)
{
    MPI_Win window;

    MPI_Win_create(&sequence, sizeof(sequence), 1, MPI_INFO_NULL, comm,
                   &window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

static const struct block {
    const char *name;
    void (*call)(void);
} blocks[] = {
    {"Barrier", call_Barrier},
    {"Bcast", call_Bcast},
    {"Allreduce", call_Allreduce},
    {"Alltoall", call_Alltoall},
    {"Sendrecv", call_Sendrecv},
    {"Sendrecv_replace", call_Sendrecv_replace},
    {"Recv", call_Recv},
    {"Probe", call_Probe},
    {"Mprobe", call_Mprobe},
    {"Ssend", call_Ssend},
    {"Ibarrier", call_Ibarrier},
    {"Comm_dup", call_Comm_dup},
    {"Comm_split", call_Comm_split},
    {"Win_create", call_Win_create},
};

/* The receiver is in the call when messages are sent, or the sender before they
 * are received. */
static void block(const struct block *b, bool receiver_first)
{
    if (receiver_first) {
        start_receives();
        if (sends) {
            flag_await(STARTED, sequence);
            start_sends();
            finish_sends();
        }
        b->call();
        finish_receives();
    } else {
        start_sends();
        if (receives) {
            start_receives();
            finish_receives();
        }
        b->call();
        finish_sends();
    }
}

/* ---- 4 ---- */

/* The sender's: open it, and ask whether it has come; the receiver's: let it come;
 * and the end at both. */
struct poll {
    const char *name;
    void (*prepare)(void);
    int (*ask)(void);
    void (*give)(void);
    void (*end)(void);
};

static void nothing(void) {}

static void give_plain(void)
{
    MPI_Send(&sequence, 1, MPI_INT, sender, PLAIN, comm);
}

static void take_plain(void)
{
    int from;

    if (!sends)
        return;
    MPI_Recv(&from, 1, MPI_INT, receiver, PLAIN, comm, MPI_STATUS_IGNORE);
    CHECK(from == sequence, "%d", from);
}

static int ask_Iprobe(void)
{
    int flag;

    MPI_Iprobe(receiver, PLAIN, comm, &flag, MPI_STATUS_IGNORE);
    return flag;
}

static MPI_Request polled_request;
static int polled;

static void prepare_is_complete(void)
{
    if (sends)
        MPI_Irecv(&polled, 1, MPI_INT, receiver, PLAIN, comm, &polled_request);
}

static int ask_is_complete(void)
{
    return is_complete(polled_request);
}

static void end_is_complete(void)
{
    if (!sends)
        return;
    MPI_Wait(&polled_request, MPI_STATUS_IGNORE);
    CHECK(polled == sequence, "%d", polled);
}

static MPI_Message polled_message;

static int ask_Improbe(void)
{
    int flag;

    MPI_Improbe(receiver, PLAIN, comm, &flag, &polled_message,
                MPI_STATUS_IGNORE);
    return flag;
}

static void end_Improbe(void)
{
    int from;

    if (!sends)
        return;
    MPI_Mrecv(&from, 1, MPI_INT, &polled_message, MPI_STATUS_IGNORE);
    CHECK(from == sequence, "%d", from);
}

static MPI_Win polled_window;
static MPI_Group polled_group; /* the other side */

static void prepare_Win_test(void)
{
    int peer = other();
    MPI_Group all;

    MPI_Win_create(NULL, 0, 1, MPI_INFO_NULL, comm, &polled_window);
    MPI_Comm_group(comm, &all);
    MPI_Group_incl(all, 1, &peer, &polled_group);
    MPI_Group_free(&all);
    if (sends)
        MPI_Win_post(polled_group, 0, polled_window);
}

static int ask_Win_test(void)
{
    int flag;

    MPI_Win_test(polled_window, &flag);
    return flag;
}

static void give_Win_test(void)
{
    MPI_Win_start(polled_group, 0, polled_window);
    MPI_Win_complete(polled_window);
}

static void end_Win_test(void)
{
    MPI_Group_free(&polled_group);
    MPI_Win_free(&polled_window);
}

#if MPI_VERSION >= 4
static void prepare_Parrived(void)
{
    static int part;

    if (sends)
        MPI_Precv_init(&part, 1, 1, MPI_INT, receiver, PLAIN, comm,
                       MPI_INFO_NULL, &polled_request);
    else
        MPI_Psend_init(&part, 1, 1, MPI_INT, sender, PLAIN, comm,
                       MPI_INFO_NULL, &polled_request);
    if (sends)
        MPI_Start(&polled_request);
}

static int ask_Parrived(void)
{
    int flag;

    MPI_Parrived(polled_request, 0, &flag);
    return flag;
}

static void give_Parrived(void)
{
    MPI_Start(&polled_request);
    MPI_Pready(0, polled_request);
}

static void end_Parrived(void)
{
    MPI_Wait(&polled_request, MPI_STATUS_IGNORE);
    MPI_Request_free(&polled_request);
}
#endif

static const struct poll polls[] = {
    {"Iprobe", nothing, ask_Iprobe, give_plain, take_plain},
    {"Improbe", nothing, ask_Improbe, give_plain, end_Improbe},
    {"Request_is_complete", prepare_is_complete, ask_is_complete, give_plain,
     end_is_complete},
    {"Win_test", prepare_Win_test, ask_Win_test, give_Win_test, end_Win_test},
#if MPI_VERSION >= 4
    {"Parrived", prepare_Parrived, ask_Parrived, give_Parrived, end_Parrived},
#endif
};

enum { MOST_POLLS = 100000, NAP_US = 100 };

static void poll_once(const struct poll *p)
{
    p->prepare();
    PMPI_Barrier(comm);
    if (sends) {
        MPI_Start(&out_request[SHORT]);
        flag_raise(STARTED, sequence);
        for (int i = 0; !p->ask(); i++) {
            CHECK(i < MOST_POLLS, "%s: nothing comes", p->name);
            usleep(NAP_US);
        }
        MPI_Wait(&out_request[SHORT], MPI_STATUS_IGNORE);
    } else {
        flag_await(STARTED, sequence);
        MPI_Recv(in[SHORT], 1, MPI_INT, sender, SHORT, comm, MPI_STATUS_IGNORE);
        verify(SHORT);
        p->give();
    }
    p->end();
}

/* ---- all ---- */

enum { NUM_FAMILIES = sizeof(families) / sizeof(families[0]) };
enum { NUM_BLOCKS = sizeof(blocks) / sizeof(blocks[0]) };
enum { NUM_POLLS = sizeof(polls) / sizeof(polls[0]) };
enum { CASES = 2 * NUM_FAMILIES + 2 * NUM_BLOCKS + NUM_POLLS };

static const char *run(int number)
{
    int i = number / 2;

    if (i < NUM_FAMILIES) {
        if ((families[i].finish == by_Request_get_status ||
             families[i].finish == by_is_complete) &&
            !library_keeps_asked())
            return families[i].name;
        if (number % 2)
            together(&families[i]);
        else
            serve(&families[i]);
        return families[i].name;
    }
    i -= NUM_FAMILIES;
    if (i < NUM_BLOCKS) {
        block(&blocks[i], number % 2);
        return blocks[i].name;
    }
    i = number - 2 * (NUM_FAMILIES + NUM_BLOCKS);
    poll_once(&polls[i]);
    return polls[i].name;
}

int main(int argc, char **argv)
{
    bool is_verbose;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    is_verbose = has_option(argc, argv, "--verbose");
    one_way_init(is_accelerated());
    one_way_add(SHORT, 1);
    one_way_add(LONG, PULLED);
    one_way_add(IDLE, 1);
    flags_init();
    for (int number = 0; number < CASES; number++) {
        const char *name;
        struct hope hope = {0};
        uint64_t before;

        do {
            have_lanes();
            before = look();
            fill();
            name = run(number);
            if (is_verbose && world_rank == 0)
                fprintf(stderr, "case %d: %s\n", number, name);
            go_on(&hope, name);
            lanes_fini(true);
        } while (!all_have(&hope, were_open(before)));
    }
    one_way_fini();
    flags_fini();
    return test_fini("waits");
}
