/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes beside a lane gets what it would get natively, though other lanes
 * of the pair are in an incarnation: receives that cover the lane and may be
 * incomplete, and messages of other calls. One process sends, one receives, on
 * a communicator that each case has to itself, so that no stop of another case
 * keeps lanes from being used.
 *
 * Two lanes: CONTROL is covered by nothing, and says when an incarnation is
 * open that TESTED could be in. Between the start of a receive on TESTED and
 * its match no process may make a native call that blocks: that would stop the
 * incarnation, and prove nothing.
 *
 * beside [--native] */
#include "tests/mpi/hope.h"

enum { CONTROL, TESTED, NUM, OTHER = NUM /* tag without a lane */ };

static bool uses_lanes, sends, receives; /* this process */
static int sender, receiver = 0;

static MPI_Comm comm;
static MPI_Request out_request[NUM], in_request[NUM];
static int out[NUM], in[NUM];
static int number[NUM]; /* of the lane's next message; all processes count */

static int value(int tag, int n)
{
    return tag * 1000000 + n;
}

static void make_send(int tag)
{
    if (sends)
        MPI_Send_init(&out[tag], 1, MPI_INT, receiver, tag, comm,
                      &out_request[tag]);
}

static void make_receive(int tag)
{
    if (receives)
        MPI_Recv_init(&in[tag], 1, MPI_INT, sender, tag, comm,
                      &in_request[tag]);
}

static void make_lanes(void)
{
    for (int tag = 0; tag < NUM; tag++) {
        number[tag] = 0;
        make_send(tag);
        make_receive(tag);
    }
}

static void free_lanes(void)
{
    for (int tag = 0; tag < NUM; tag++) {
        if (sends)
            MPI_Request_free(&out_request[tag]);
        if (receives)
            MPI_Request_free(&in_request[tag]);
    }
}

static void start_receive(int tag)
{
    if (receives)
        MPI_Start(&in_request[tag]);
}

/* The lane's next message. */
static int start_send(int tag)
{
    int next = value(tag, number[tag]++);

    if (sends) {
        out[tag] = next;
        MPI_Start(&out_request[tag]);
    }
    return next;
}

static void wait_sent(int tag)
{
    if (sends)
        MPI_Wait(&out_request[tag], MPI_STATUS_IGNORE);
}

static int send_one(int tag)
{
    int sent = start_send(tag);

    wait_sent(tag);
    return sent;
}

static void expect(int tag, int wanted)
{
    if (!receives)
        return;
    MPI_Wait(&in_request[tag], MPI_STATUS_IGNORE);
    CHECK(in[tag] == wanted, "tag %d: message %d, not %d", tag,
          in[tag] % 1000000, wanted % 1000000);
}

/* For a plain receive. */
static void expect_plain(MPI_Request *request, const int *got, int wanted)
{
    if (!receives)
        return;
    MPI_Wait(request, MPI_STATUS_IGNORE);
    CHECK(*got == wanted, "message %d, not %d", *got % 1000000,
          wanted % 1000000);
}

/* One message in each of `lanes`. @return how many of them have gone through
 * lanes at both ends */
static int go_round(int first, int last)
{
    uint64_t before = counter("lane_sends") + counter("lane_receives");
    int wanted[NUM], went;

    for (int tag = first; tag <= last; tag++)
        start_receive(tag);
    for (int tag = first; tag <= last; tag++)
        wanted[tag] = start_send(tag);
    for (int tag = first; tag <= last; tag++)
        wait_sent(tag);
    for (int tag = first; tag <= last; tag++)
        expect(tag, wanted[tag]);
    went = (int)(counter("lane_sends") + counter("lane_receives") - before);
    if (sends && receives)
        went /= 2;
    else if (!sends && !receives)
        went = last - first + 1;
    MPI_Allreduce(MPI_IN_PLACE, &went, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return went;
}

/* Until all of them do. */
static void open_lanes(int first, int last)
{
    struct hope hope = {0};

    while (go_round(first, last) <= last - first && uses_lanes)
        go_on(&hope, "no incarnation");
}

/* An incarnation that has begun after all that was done so far. */
static void reopen(void)
{
    int flag;

    if (receives)
        MPI_Iprobe(sender, CONTROL, comm, &flag, MPI_STATUS_IGNORE);
    open_lanes(CONTROL, CONTROL);
}

/* Native starts until the pair's sender makes an attempt to open it, which none
 * of them need follow: a stop asks for 4 of them, and twice as many again. */
static void calm_down(void)
{
    for (int i = 0; i < 64; i++)
        go_round(CONTROL, CONTROL);
}

static void post(MPI_Request *request, int *got, int source, int tag)
{
    *got = -1;
    if (receives)
        MPI_Irecv(got, 1, MPI_INT, source, tag, comm, request);
}

/* ---- cases ---- */

/* Whoever sends. */
static void case_any_source(void)
{
    MPI_Request request;
    int got, sent;

    open_lanes(CONTROL, TESTED);
    post(&request, &got, MPI_ANY_SOURCE, TESTED);
    start_receive(TESTED);
    sent = send_one(TESTED);
    expect(TESTED, send_one(TESTED));
    expect_plain(&request, &got, sent);
}

/* A receive that was posted after a persistent one is not complete because that
 * one is: it gets the lane's next message. */
static void case_pending(void)
{
    MPI_Request early, late;
    int got[2], sent;

    open_lanes(CONTROL, TESTED);
    post(&early, &got[0], sender, TESTED);
    start_receive(TESTED);
    post(&late, &got[1], sender, TESTED);
    calm_down(); /* a receive of a lane is posted: no incarnation may open */
    sent = send_one(TESTED);
    expect_plain(&early, &got[0], sent);
    calm_down();
    expect(TESTED, send_one(TESTED));
    reopen();
    start_receive(TESTED);
    sent = send_one(TESTED);
    expect(TESTED, send_one(TESTED));
    expect_plain(&late, &got[1], sent);
}

/* A persistent receive that is cancelled says nothing of one posted before. */
static void case_cancelled(void)
{
    MPI_Request request;
    MPI_Status status;
    int got, sent, flag;

    open_lanes(CONTROL, TESTED);
    post(&request, &got, sender, TESTED);
    reopen();
    start_receive(TESTED);
    if (receives) {
        MPI_Cancel(&in_request[TESTED]);
        MPI_Wait(&in_request[TESTED], &status);
        MPI_Test_cancelled(&status, &flag);
        CHECK(flag, "not cancelled though nothing was sent");
    }
    reopen();
    start_receive(TESTED);
    sent = send_one(TESTED);
    expect(TESTED, send_one(TESTED));
    expect_plain(&request, &got, sent);
}

/* They were there before the receiver had a lane: several lanes, and the last of
 * those receives is incomplete after a number of messages that is even for some
 * of them. */
static void case_posted_before(void)
{
    enum { LANES = 4, MOST = LANES + 2 };

    for (int lane = 0; lane < LANES; lane++) {
        MPI_Request plain[MOST], request[2];
        int got[MOST], n = 3 + lane, tag = 10 + lane, message, last = -1;

        for (int i = 0; i < n; i++)
            post(&plain[i], &got[i], sender, tag);
        if (sends)
            MPI_Send_init(&message, 1, MPI_INT, receiver, tag, comm,
                          &request[0]);
        if (receives)
            MPI_Recv_init(&last, 1, MPI_INT, sender, tag, comm, &request[1]);
        for (int i = 0; i <= n; i++) {
            if (i < n)
                reopen();
            if (i == n - 1 && receives)
                MPI_Start(&request[1]);
            message = value(tag, i);
            if (sends) {
                MPI_Start(&request[0]);
                MPI_Wait(&request[0], MPI_STATUS_IGNORE);
            }
            if (i < n - 1)
                expect_plain(&plain[i], &got[i], value(tag, i));
        }
        if (receives) {
            MPI_Wait(&request[1], MPI_STATUS_IGNORE);
            CHECK(last == value(tag, n), "message %d of %d", last % 1000000,
                  n);
            MPI_Request_free(&request[1]);
        }
        expect_plain(&plain[n - 1], &got[n - 1], value(tag, n - 1));
        if (sends)
            MPI_Request_free(&request[0]);
    }
}

/* Nobody knows when a receive is complete that was freed while it was active. */
static void case_freed(void)
{
    static volatile int first;
    int sent, flag;

    if (world_size == 1)
        return; /* MPICH 4.0 itself loses one from the process itself */
    open_lanes(CONTROL, TESTED);
    if (receives) {
        MPI_Request_free(&in_request[TESTED]);
        first = -1;
        MPI_Recv_init((int *)&first, 1, MPI_INT, sender, TESTED, comm,
                      &in_request[TESTED]);
        MPI_Start(&in_request[TESTED]);
        MPI_Request_free(&in_request[TESTED]);
    }
    make_receive(TESTED);
    reopen();
    start_receive(TESTED);
    sent = send_one(TESTED);
    expect(TESTED, send_one(TESTED));
    while (receives && first == -1)
        MPI_Iprobe(MPI_ANY_SOURCE, OTHER, comm, &flag, MPI_STATUS_IGNORE);
    CHECK(!receives || first == sent, "message %d", first % 1000000);
}

/* A plain message of the same tag that waits for its receive comes first. */
static void case_plain_send(void)
{
    int plain = value(TESTED, 999999);
    MPI_Request request;
    int sent;

    open_lanes(CONTROL, TESTED);
    if (sends)
        MPI_Isend(&plain, 1, MPI_INT, receiver, TESTED, comm, &request);
    reopen();
    start_receive(TESTED);
    sent = start_send(TESTED);
    expect(TESTED, plain);
    start_receive(TESTED);
    wait_sent(TESTED);
    expect(TESTED, sent);
    if (sends)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* That a message of the lane is matched says nothing of a plain one that was sent
 * behind it: it waits for its receive, and comes first then. */
static void case_sent_behind(void)
{
    int plain = value(TESTED, 999999);
    MPI_Request request;

    open_lanes(CONTROL, TESTED);
    for (int i = 0; i < 3; i++) { /* the second start tells */
        int first, last;

        start_receive(TESTED);
        first = start_send(TESTED);
        if (sends)
            MPI_Isend(&plain, 1, MPI_INT, receiver, TESTED, comm, &request);
        wait_sent(TESTED);
        expect(TESTED, first);
        reopen();
        start_receive(TESTED);
        last = start_send(TESTED);
        expect(TESTED, plain);
        start_receive(TESTED);
        wait_sent(TESTED);
        expect(TESTED, last);
        if (sends)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* A persistent message that is no lane's does not overtake one that waits in a
 * lane: a receive with MPI_ANY_TAG can take both. */
static void case_without_lane(void)
{
    struct hope hope = {0};
    MPI_Request request;
    int other = OTHER, was_put = 0;

    if (sends)
        MPI_Send_init(&other, 1, MPI_INT, receiver, OTHER, comm, &request);
    while (!was_put) {
        uint64_t before;

        open_lanes(CONTROL, TESTED);
        before = counter("lane_sends");
        start_send(TESTED);
        was_put = !uses_lanes || !sends || counter("lane_sends") > before;
        if (sends)
            MPI_Start(&request);
        MPI_Allreduce(MPI_IN_PLACE, &was_put, 1, MPI_INT, MPI_MIN,
                      MPI_COMM_WORLD);
        for (int tag = TESTED; tag <= OTHER && receives; tag++) {
            MPI_Status status;
            int got;

            MPI_Recv(&got, 1, MPI_INT, sender, MPI_ANY_TAG, comm, &status);
            CHECK(status.MPI_TAG == tag, "tag %d, not %d", status.MPI_TAG, tag);
        }
        wait_sent(TESTED);
        if (sends)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        go_on(&hope, "never put");
    }
    if (sends)
        MPI_Request_free(&request);
}

/* A receive with wildcards that is persistent may be posted at any time. */
static void check_outside(MPI_Request *any, const int *got)
{
    enum { ENOUGH = 20 };
    struct hope hope = {0};
    int sent;

    for (int i = 0; i < ENOUGH; i += uses_lanes ? 0 : 1) {
        int went = go_round(CONTROL, TESTED);

        CHECK(went <= 1, "a lane that a persistent wildcard covers is in use");
        i += went;
        go_on(&hope, "no incarnation");
    }
    reopen();
    if (receives)
        MPI_Start(any);
    start_receive(TESTED);
    sent = send_one(TESTED);
    expect(TESTED, send_one(TESTED));
    expect_plain(any, got, sent);
    if (receives)
        MPI_Request_free(any);
}

static void make_wildcard(MPI_Request *any, int *got)
{
    *got = -1;
    if (receives)
        MPI_Recv_init(got, 1, MPI_INT, MPI_ANY_SOURCE, TESTED, comm, any);
}

/* It is made when the lane is in use. */
static void case_wildcard_later(void)
{
    MPI_Request any;
    int got;

    open_lanes(CONTROL, TESTED);
    make_wildcard(&any, &got);
    check_outside(&any, &got);
}

/* It is made before the lane. */
static void case_wildcard_before(void)
{
    MPI_Request any;
    int got;

    free_lanes();
    MPI_Comm_dup(MPI_COMM_WORLD, &comm); /* the other one is freed in the end */
    make_wildcard(&any, &got);
    make_lanes();
    check_outside(&any, &got);
}

/* A send of nothing, which has no datatype, is the lane's next message, where it is taken at
 * all. */
static void case_of_nothing(void)
{
    MPI_Request request;
    MPI_Status status;
    int error = MPI_SUCCESS, count;

    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (sends)
        error = MPI_Send_init(NULL, 0, MPI_DATATYPE_NULL, receiver, TESTED, comm, &request);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    MPI_Bcast(&error, 1, MPI_INT, sender, comm);
    if (error != MPI_SUCCESS)
        return;
    open_lanes(CONTROL, TESTED);
    start_receive(TESTED);
    if (sends) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
    }
    if (receives) {
        MPI_Wait(&in_request[TESTED], &status);
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(count == 0, "%d numbers", count);
    }
    start_receive(TESTED);
    expect(TESTED, send_one(TESTED));
}

static void call_nobody(void)
{
    int none = 0;

    MPI_Send(&none, 1, MPI_INT, MPI_PROC_NULL, TESTED, comm);
    MPI_Recv(&none, 1, MPI_INT, MPI_PROC_NULL, TESTED, comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&none, 1, MPI_INT, MPI_PROC_NULL, TESTED, &none, 1, MPI_INT, MPI_PROC_NULL,
                 TESTED, comm, MPI_STATUS_IGNORE);
    MPI_Probe(MPI_PROC_NULL, TESTED, comm, MPI_STATUS_IGNORE);
}

/* Calls that concern nobody stop nothing, whatever is under way. */
static void case_nobody(void)
{
    enum { ROUNDS = 200 };
    struct hope hope = {0};
    uint64_t before;
    int rounds = 0;

    do {
        CHECK(rounds++ < ROUNDS, "stopped for nobody");
        open_lanes(CONTROL, TESTED);
        before = counter("lane_sends") + counter("lane_receives");
        start_receive(TESTED);
        call_nobody();
        expect(TESTED, send_one(TESTED));
    } while (!all_have(&hope, !uses_lanes || counter("lane_sends") + counter("lane_receives") ==
                                                 before + sends + receives));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"any source", case_any_source},
        {"pending", case_pending},
        {"cancelled", case_cancelled},
        {"posted before", case_posted_before},
        {"freed", case_freed},
        {"plain send", case_plain_send},
        {"sent behind", case_sent_behind},
        {"without lane", case_without_lane},
        {"wildcard later", case_wildcard_later},
        {"wildcard before", case_wildcard_before},
        {"of nothing", case_of_nothing},
        {"nobody", case_nobody},
    };
    enum { CASES = sizeof(cases) / sizeof(cases[0]) };
    MPI_Comm comms[CASES + 1]; /* freed last: their handles would come again */
    int num_comms = 0;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    uses_lanes = is_accelerated();
    sender = world_size - 1;
    sends = world_rank == sender;
    receives = world_rank == receiver;
    for (size_t i = 0; i < CASES; i++) {
        if (has_option(argc, argv, "--verbose") && world_rank == 0)
            fprintf(stderr, "%s\n", cases[i].name);
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        comms[num_comms++] = comm;
        make_lanes();
        cases[i].run();
        free_lanes();
        if (comm != comms[num_comms - 1])
            comms[num_comms++] = comm;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK(counter("requests") == 0, "requests are left");
    while (num_comms > 0)
        MPI_Comm_free(&comms[--num_comms]);
    return test_fini("beside");
}
