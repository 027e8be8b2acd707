/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Request_get_status_any, _all and _some (MPI 4.1), and MPICH's
 * MPIX_Request_is_complete, on arrays of all kinds of requests, held against
 * MPI_Request_get_status of each. The MPIs that we build with lack them, so they
 * are the backend's alone; with later.c behind it they are the native MPI's too.
 *
 * get_status [later] */
#include <dlfcn.h>
#include <sched.h>

#include "tests/mpi/handled.h"
#include "tests/mpi/hope.h"
#include "tests/mpi/ring.h"

extern int later_has_seen(MPI_Request handle), later_num_whole(void);
#pragma weak later_has_seen
#pragma weak later_num_whole

typedef int any_function(int count, const MPI_Request handles[], int *index,
                         int *flag, MPI_Status *status);
typedef int all_function(int count, const MPI_Request handles[], int *flag,
                         MPI_Status statuses[]);
typedef int some_function(int count, const MPI_Request handles[], int *num,
                          int indices[], MPI_Status statuses[]);

static any_function *get_any;
static all_function *get_all;
static some_function *get_some;
static int (*is_complete)(MPI_Request handle);

static void *find(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

static void find_all(void)
{
    *(void **)&get_any = find("MPI_Request_get_status_any");
    *(void **)&get_all = find("MPI_Request_get_status_all");
    *(void **)&get_some = find("MPI_Request_get_status_some");
    *(void **)&is_complete = find("MPIX_Request_is_complete");
    CHECK(get_any != NULL && get_all != NULL && get_some != NULL,
          "calls are missing");
#ifdef OPEN_MPI
    CHECK(is_complete == NULL, "MPICH's call in Open MPI");
#else
    CHECK(is_complete != NULL, "MPICH's call is missing");
#endif
}

/* ---- requests ---- */

enum kind {
    NOTHING,
    RING,          /* persistent collective */
    RECEIVE, SEND, /* of a lane */
    PLAIN_RECEIVE, PLAIN_SEND,
    NATIVE_RECEIVE, /* persistent, with a wildcard */
    RING_ONCE,      /* nonblocking collective */
    IDLE_RING, IDLE_RECEIVE, IDLE_NATIVE, /* are never started */
    NUM
};

enum { TAG = 5, PLAIN_TAG, WILD_TAG, IDLE_TAG };

static MPI_Comm comm;
static int left, right, step;
static struct ring ring, idle;
static int lane_in, lane_out, plain_in, plain_out, wild_in, wild_out;
static double once_out[2], once_in[2];
static MPI_Request handles[NUM], before[NUM];
static bool active[NUM];

static int value(int from, enum kind kind)
{
    return from * 1000000 + step * 20 + (int)kind;
}

static void make_requests(void)
{
    ring_create(&ring, comm, 3);
    ring_create(&idle, comm, 3);
    for (int i = 0; i < NUM; i++)
        handles[i] = MPI_REQUEST_NULL;
    handles[RING] = ring.request;
    handles[IDLE_RING] = idle.request;
    MPI_Recv_init(&lane_in, 1, MPI_INT, left, TAG, comm, &handles[RECEIVE]);
    MPI_Send_init(&lane_out, 1, MPI_INT, right, TAG, comm, &handles[SEND]);
    MPI_Recv_init(&wild_in, 1, MPI_INT, left, IDLE_TAG, comm,
                  &handles[IDLE_RECEIVE]);
    /* On a communicator of its own: wildcards keep lanes from being used. */
    MPI_Recv_init(&wild_in, 1, MPI_INT, MPI_ANY_SOURCE, WILD_TAG,
                  MPI_COMM_WORLD, &handles[NATIVE_RECEIVE]);
    MPI_Recv_init(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, comm,
                  &handles[IDLE_NATIVE]);
}

static void free_requests(void)
{
    for (int i = 0; i < NUM; i++) {
        if (handles[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&handles[i]);
    }
    ring_free(&ring);
    ring_free(&idle);
}

static void fill(void)
{
    step++;
    ring_fill(&ring, world_rank, step % 500);
    lane_out = value(world_rank, SEND);
    plain_out = value(world_rank, PLAIN_SEND);
    wild_out = value(world_rank, NATIVE_RECEIVE);
    once_out[0] = value(world_rank, RING_ONCE);
    once_out[1] = once_out[0] + 0.5;
    lane_in = plain_in = wild_in = -1;
    once_in[0] = once_in[1] = -1;
    memset(active, 0, sizeof(active));
}

static void begin(enum kind kind)
{
    MPI_Request request;

    switch (kind) {
    case RING: case RECEIVE: case SEND: case NATIVE_RECEIVE:
        MPI_Start(&handles[kind]);
        break;
    case PLAIN_RECEIVE:
        MPI_Irecv(&plain_in, 1, MPI_INT, left, PLAIN_TAG, MPI_COMM_WORLD,
                  &handles[kind]);
        break;
    case PLAIN_SEND:
        MPI_Isend(&plain_out, 1, MPI_INT, right, PLAIN_TAG, MPI_COMM_WORLD,
                  &handles[kind]);
        /* For the receive with a wildcard. */
        MPI_Isend(&wild_out, 1, MPI_INT, right, WILD_TAG, MPI_COMM_WORLD,
                  &request);
        MPI_Request_free(&request);
        break;
    case RING_ONCE:
        MPI_Ineighbor_alltoall(once_out, 1, MPI_DOUBLE, once_in, 1, MPI_DOUBLE,
                               comm, &handles[kind]);
        break;
    default:
        return;
    }
    active[kind] = true;
}

static void verify(void)
{
    ring_verify(&ring, step % 500);
    CHECK(lane_in == value(left, SEND), "%d", lane_in);
    CHECK(plain_in == value(left, PLAIN_SEND), "%d", plain_in);
    CHECK(wild_in == value(left, NATIVE_RECEIVE), "%d", wild_in);
    CHECK(once_in[0] == value(left, RING_ONCE) + 0.5 &&
              once_in[1] == value(right, RING_ONCE), "%g and %g", once_in[0],
          once_in[1]);
}

/* ---- statuses ---- */

static void poison(MPI_Status *status)
{
    memset(status, 0x5a, sizeof(*status));
}

static void expect_empty(const MPI_Status *status)
{
    int count = -1, cancelled = -1;

    MPI_Get_count(status, MPI_BYTE, &count);
    MPI_Test_cancelled(status, &cancelled);
    CHECK(status->MPI_SOURCE == MPI_ANY_SOURCE &&
              status->MPI_TAG == MPI_ANY_TAG && count == 0 && !cancelled,
          "source %d, tag %d, count %d, cancelled %d", status->MPI_SOURCE,
          status->MPI_TAG, count, cancelled);
}

/* The status that MPI_Request_get_status gives. */
static void expect_status(enum kind kind, const MPI_Status *status)
{
    MPI_Status expected;
    int flag = 0, counts[2], cancelled[2];

    poison(&expected);
    MPI_Request_get_status(handles[kind], &flag, &expected);
    CHECK(flag, "kind %d is not complete any more", (int)kind);
    MPI_Test_cancelled(status, &cancelled[0]);
    MPI_Test_cancelled(&expected, &cancelled[1]);
    CHECK(cancelled[0] == cancelled[1], "kind %d", (int)kind);
    if (kind == PLAIN_SEND)
        return; /* nothing else is said of it */
    MPI_Get_count(status, MPI_BYTE, &counts[0]);
    MPI_Get_count(&expected, MPI_BYTE, &counts[1]);
    CHECK(status->MPI_SOURCE == expected.MPI_SOURCE &&
              status->MPI_TAG == expected.MPI_TAG && counts[0] == counts[1],
          "kind %d: source %d, tag %d, %d bytes", (int)kind,
          status->MPI_SOURCE, status->MPI_TAG, counts[0]);
    if (kind == RECEIVE)
        CHECK(status->MPI_SOURCE == left && status->MPI_TAG == TAG &&
                  counts[0] == (int)sizeof(int), "source %d, tag %d, %d bytes",
              status->MPI_SOURCE, status->MPI_TAG, counts[0]);
    if (kind == RING || kind == RECEIVE || kind == SEND || kind == RING_ONCE)
        CHECK(status->MPI_ERROR == expected.MPI_ERROR, "kind %d: MPI_ERROR %d",
              (int)kind, status->MPI_ERROR);
}

/* ---- the calls ---- */

static MPI_Status statuses[NUM];

static void poison_all(void)
{
    for (int i = 0; i < NUM; i++)
        poison(&statuses[i]);
}

static void expect_same_handles(void)
{
    CHECK(memcmp(handles, before, sizeof(handles)) == 0, "a handle was changed");
}

static int num_active(void)
{
    int num = 0;

    for (int i = 0; i < NUM; i++)
        num += active[i];
    return num;
}

/* Which active ones are complete, by the oracle; returns how many. */
static int look_at_each(bool done[NUM])
{
    int num = 0;

    for (int i = 0; i < NUM; i++) {
        int flag = 0;

        MPI_Request_get_status(handles[i], &flag, MPI_STATUS_IGNORE);
        CHECK(flag || active[i], "inactive is not complete");
        done[i] = flag && active[i];
        num += done[i];
    }
    return num;
}

/* Each call returns how many it says are complete at least, and -1 when it says
 * that none is active. */
static int look_by_any(bool ignore)
{
    int index = 77, flag = 77;

    poison_all();
    CHECK(get_any(NUM, handles, &index, &flag,
                  ignore ? MPI_STATUS_IGNORE : statuses) == MPI_SUCCESS,
          "an error");
    expect_same_handles();
    CHECK(flag == 0 || flag == 1, "flag %d", flag);
    if (index == MPI_UNDEFINED) {
        if (flag && !ignore)
            expect_empty(statuses);
        return flag ? -1 : 0;
    }
    CHECK(flag && index >= 0 && index < NUM && active[index], "index %d", index);
    if (!ignore)
        expect_status((enum kind)index, statuses);
    return 1;
}

static int look_by_all(bool ignore)
{
    int flag = 77;

    poison_all();
    CHECK(get_all(NUM, handles, &flag,
                  ignore ? MPI_STATUSES_IGNORE : statuses) == MPI_SUCCESS,
          "an error");
    expect_same_handles();
    CHECK(flag == 0 || flag == 1, "flag %d", flag);
    for (int i = 0; i < NUM && flag && !ignore; i++) {
        if (active[i])
            expect_status((enum kind)i, &statuses[i]);
        else
            expect_empty(&statuses[i]);
    }
    return flag ? num_active() : 0;
}

static int look_by_some(bool ignore)
{
    int num = 77, indices[NUM];
    bool seen[NUM] = {false};

    poison_all();
    CHECK(get_some(NUM, handles, &num, indices,
                   ignore ? MPI_STATUSES_IGNORE : statuses) == MPI_SUCCESS,
          "an error");
    expect_same_handles();
    if (num == MPI_UNDEFINED)
        return -1;
    CHECK(num >= 0 && num <= NUM, "outcount %d", num);
    for (int i = 0; i < num; i++) {
        int index = indices[i];

        CHECK(index >= 0 && index < NUM && active[index] && !seen[index],
              "index %d", index);
        seen[index] = true;
        if (!ignore)
            expect_status((enum kind)index, &statuses[i]);
    }
    return num;
}

static int look_by_is_complete(bool ignore)
{
    int num = 0;

    (void)ignore;
    for (int i = 0; i < NUM; i++) {
        int flag = is_complete(handles[i]);

        CHECK(flag || active[i], "inactive is not complete");
        num += flag && active[i];
    }
    expect_same_handles();
    return num;
}

typedef int look_function(bool ignore);

/* Between two looks by the oracle. */
static void compare(look_function *look)
{
    bool done[NUM];
    int most, least = look_at_each(done), found = look(step % 2);

    most = look_at_each(done);
    if (look == look_by_is_complete) {
        CHECK(found >= least && found <= most, "%d", found);
    } else if (num_active() == 0) {
        CHECK(found == (look == look_by_all ? 0 : -1), "%d", found);
    } else if (look == look_by_any) {
        CHECK(found == 1 || (found == 0 && least == 0), "%d of %d", found,
              least);
    } else if (look == look_by_all) {
        CHECK(found == 0 ? least < num_active() : most == num_active(),
              "%d of %d", found, num_active());
    } else {
        CHECK(found >= least && found <= most, "%d, not %d to %d", found, least,
              most);
    }
}

static look_function *const looks[] = {look_by_any, look_by_all, look_by_some,
                                       look_by_is_complete};

/* MPICH's call is the last one. */
static int num_looks(void)
{
    return (int)(sizeof(looks) / sizeof(looks[0])) - (is_complete == NULL);
}

static void compare_all(void)
{
    memcpy(before, handles, sizeof(handles));
    for (int i = 0; i < num_looks(); i++)
        compare(looks[i]);
}

/* Complete one by a call that does, with the status that was seen before. */
static void finish(enum kind kind)
{
    MPI_Status seen, status;
    bool once = kind == PLAIN_RECEIVE || kind == PLAIN_SEND || kind == RING_ONCE;
    int flag = 0;

    poison(&seen);
    poison(&status);
    MPI_Request_get_status(handles[kind], &flag, &seen);
    CHECK(flag, "kind %d is not complete", (int)kind);
    flag = 0;
    MPI_Test(&handles[kind], &flag, &status);
    CHECK(flag, "kind %d is not complete", (int)kind);
    if (kind == RECEIVE || kind == PLAIN_RECEIVE)
        CHECK(status.MPI_SOURCE == seen.MPI_SOURCE &&
                  status.MPI_TAG == seen.MPI_TAG, "another status");
    CHECK(once == (handles[kind] == MPI_REQUEST_NULL), "the handle");
    active[kind] = false;
    memcpy(before, handles, sizeof(handles));
}

/* Nothing of this list can complete before rank 0 has begun. */
static void wait_for_rank_0(void)
{
    static const enum kind kinds[] = {RING, RECEIVE, PLAIN_RECEIVE,
                                      NATIVE_RECEIVE, RING_ONCE};
    int num;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        begin(kinds[i]);
    memcpy(before, handles, sizeof(handles));
    if (left != 0)
        return;
    for (int i = 0; i < 3; i++) {
        num = look_by_any(i % 2);
        CHECK(num == 0, "any: %d", num);
        num = look_by_all(i % 2);
        CHECK(num == 0, "all: %d", num);
        num = look_by_some(i % 2);
        CHECK(num == 0, "some: %d", num);
        if (is_complete != NULL)
            CHECK(!is_complete(handles[RING]) &&
                      !is_complete(handles[RECEIVE]) &&
                      !is_complete(handles[RING_ONCE]), "complete");
    }
}

/* Only these calls make progress: until they say that all is complete. */
static void wait_by(look_function *look)
{
    if (look == look_by_any) {
        while (num_active() > 0) {
            int index, flag = 0;

            while (!flag) {
                get_any(NUM, handles, &index, &flag, MPI_STATUS_IGNORE);
                sched_yield();
            }
            CHECK(index != MPI_UNDEFINED && active[index], "index %d", index);
            finish((enum kind)index);
            look_by_any(false);
        }
        return;
    }
    while (look(step % 2) != num_active())
        sched_yield();
}

static void go_round(look_function *look, bool is_late)
{
    fill();
    compare_all(); /* all are inactive */
    if (is_late && world_rank > 0)
        wait_for_rank_0();
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < NUM; i++) {
        if (!active[i])
            begin((enum kind)i);
    }
    memcpy(before, handles, sizeof(handles));
    if (look == NULL) {
        for (int num = -1; num != num_active(); sched_yield()) {
            bool done[NUM];

            compare_all();
            num = look_at_each(done);
        }
    } else {
        wait_by(look);
    }
    compare_all();
    for (int i = 0; i < NUM; i++) {
        if (!active[i])
            continue;
        finish((enum kind)i);
        if (look == NULL)
            compare_all();
    }
    verify();
}

/* ---- other arrays ---- */

static void nothing(void)
{
    MPI_Request nulls[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status status[2];
    int flag, index, num, indices[2];

    for (int count = 0; count < 3; count++) {
        flag = index = num = 77;
        poison(&status[0]);
        poison(&status[1]);
        get_any(count, nulls, &index, &flag, status);
        CHECK(flag == 1 && index == MPI_UNDEFINED, "flag %d, index %d", flag,
              index);
        expect_empty(status);
        flag = 77;
        get_all(count, nulls, &flag, status);
        CHECK(flag == 1, "flag %d", flag);
        for (int i = 0; i < count; i++)
            expect_empty(&status[i]);
        get_some(count, nulls, &num, indices, MPI_STATUSES_IGNORE);
        CHECK(num == MPI_UNDEFINED, "outcount %d", num);
    }
}

/* Of failed requests the calls say that they are complete; the error of one of
 * ours comes with its completion, and one that the native MPI tells is told. */
static void failed(void)
{
    int out[2] = {1, 2}, in, flag = 0, index = 77, num = 77, indices[3];
    uint64_t calls = counter("ineighbor_alltoall.accelerated");
    double to[4] = {0}, from[2];
    MPI_Request list[3] = {MPI_REQUEST_NULL};
    MPI_Status status[3];
    int error, expected;
    MPI_Comm own = ring_comm(MPI_COMM_SELF);
    bool tells;

    MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN); /* MPICH's and  */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* MPI 4's choice */
    MPI_Irecv(&in, 1, MPI_INT, 0, 1, own, &list[2]);
    MPI_Send(out, 2, MPI_INT, 0, 1, own);
    MPI_Ineighbor_alltoall(to, 2, MPI_DOUBLE, from, 1, MPI_DOUBLE, own,
                           &list[1]);
    CHECK(counter("ineighbor_alltoall.accelerated") == calls + 1,
          "it is not ours");
    while (!flag)
        MPI_Request_get_status(list[1], &flag, MPI_STATUS_IGNORE);
    for (flag = 0, error = 0; !flag && error == 0;)
        error = MPI_Request_get_status(list[2], &flag, MPI_STATUS_IGNORE);
    tells = error != MPI_SUCCESS && later_has_seen == NULL;
    expected = tells ? MPI_ERR_IN_STATUS : MPI_SUCCESS;
    for (int i = 0; i < 3; i++) {
        poison(&status[i]);
        status[i].MPI_ERROR = 77;
    }
    error = get_all(3, list, &flag, status);
    CHECK(flag && error_class(error) == expected, "flag %d, error class %d",
          flag, error_class(error));
    CHECK(!tells || (status[0].MPI_ERROR == MPI_SUCCESS &&
                     error_class(status[2].MPI_ERROR) == MPI_ERR_TRUNCATE),
          "errors %d, %d", status[0].MPI_ERROR, status[2].MPI_ERROR);
    CHECK(tells || status[1].MPI_ERROR == 77, "MPI_ERROR was changed");
    error = get_some(3, list, &num, indices, status);
    CHECK(num == 2 && indices[0] == 1 && indices[1] == 2 &&
              error_class(error) == expected, "outcount %d, error class %d",
          num, error_class(error));
    CHECK(!tells || error_class(status[1].MPI_ERROR) == MPI_ERR_TRUNCATE,
          "error %d", status[1].MPI_ERROR);
    error = get_any(2, list, &index, &flag, status);
    CHECK(flag && index == 1 && error == MPI_SUCCESS, "index %d, error %d",
          index, error);
    error = get_any(1, &list[2], &index, &flag, status);
    CHECK(flag && index == 0 &&
              error_class(error) == (tells ? MPI_ERR_TRUNCATE : MPI_SUCCESS),
          "index %d, error class %d", index, error_class(error));
    error = MPI_Wait(&list[1], MPI_STATUS_IGNORE);
    CHECK(error_class(error) == MPI_ERR_TRUNCATE, "error class %d",
          error_class(error));
    MPI_Wait(&list[2], MPI_STATUS_IGNORE);
    MPI_Comm_free(&own);
}

/* None of ours has come to the native MPI, and arrays without them have as they
 * are. */
static void handed_on(void)
{
    MPI_Request natives[2] = {handles[NATIVE_RECEIVE], handles[IDLE_NATIVE]};
    int whole = later_num_whole(), flag, index, num, indices[2];

    for (int i = 0; i < NUM; i++) {
        if (i == RING || i == RECEIVE || i == SEND || i == IDLE_RING ||
            i == IDLE_RECEIVE)
            CHECK(!later_has_seen(handles[i]), "kind %d has been seen", i);
    }
    CHECK(later_has_seen(handles[NATIVE_RECEIVE]) &&
              later_has_seen(handles[IDLE_NATIVE]), "nothing is handed on");
    get_any(2, natives, &index, &flag, MPI_STATUS_IGNORE);
    get_all(2, natives, &flag, MPI_STATUSES_IGNORE);
    get_some(2, natives, &num, indices, MPI_STATUSES_IGNORE);
    CHECK(later_num_whole() == whole + 3, "%d calls", later_num_whole());
    CHECK(index == MPI_UNDEFINED && flag && num == MPI_UNDEFINED, "not inactive");
}

/* Until messages go through lanes everywhere. Where processes have no core of their
 * own, which takes long, once. Returns how many rounds. */
static uint64_t go_rounds(look_function *look)
{
    struct hope hope = {0};

    for (uint64_t round = 1;; round++) {
        uint64_t sends = counter("lane_sends");
        uint64_t receives = counter("lane_receives");

        go_round(look, false);
        if (world_size > 2 ||
            all_have(&hope, counter("lane_sends") == sends + 1 &&
                                counter("lane_receives") == receives + 1))
            return round;
        go_on(&hope, "not through lanes");
    }
}

int main(int argc, char **argv)
{
    bool later = has_option(argc, argv, "later");
    uint64_t starts = 0;

    test_init(&argc, &argv, false);
    CHECK(later == (later_has_seen != NULL), "later.c");
    find_all();
    comm = ring_comm(MPI_COMM_WORLD);
    MPI_Cart_shift(comm, 0, 1, &left, &right);
    make_requests();
    nothing();
    for (int i = 0; i < num_looks(); i++)
        starts += go_rounds(looks[i]);
    for (int i = 0; i < 10; i++, starts++)
        go_round(NULL, false);
    /* Last: who waits in a barrier stops incarnations. */
    for (int i = 0; i < num_looks(); i++, starts++)
        go_round(looks[i], true);
    CHECK(counter("neighbor_alltoall_init.accelerated") == 2 &&
              counter("starts") == starts, "not accelerated");
    CHECK(counter("ineighbor_alltoall.accelerated") == starts,
          "nonblocking calls are native");
    failed();
    if (later)
        handed_on();
    free_requests();
    MPI_Comm_free(&comm);
    CHECK(world_size > 2 || (counter("send_init.accelerated") == 1 &&
                             counter("recv_init.accelerated") == 1),
          "messages are native");
    return test_fini("get_status");
}
