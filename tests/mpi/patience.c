/* SPDX-License-Identifier: BSD-3-Clause */
/* How long a message in a slot is waited for whose receiver does not come (N6
 * of docs/persistent.md): a short one for a bounded time, however seldom the program
 * asks, and for longer while something is on its way to this process, which is found out
 * by a clock that the test sets; a long strided one for ever, because natively it would
 * not be buffered either. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/mpi/hope.h"

enum { TAG = 3, ANSWER, STRIDE = 3, SHORT = 8, LONG = 4096, HELD = 4, MORE = 4 };
/* Between two tests a program computes for so long, and patience is 6.4 ms at most: it
 * begins at the second test and is over at the eighth. */
enum { COMPUTES_US = 2000, FEW_POLLS = 8 };
/* The most patience, which one has to whom something comes. It begins at the second test,
 * and of so many tests one looks at the clock. */
enum { MOST_NS = 6400000, LOOKS_AFTER = 64 };

/* In a window that both map. */
struct flags {
    atomic_int go;     /* messages that the receiver may have */
    atomic_int taken;  /* those that it has had */
    atomic_int pulled; /* those that it did not find in a slot */
    atomic_int over;
};

static struct flags *flags;

static struct flags *share(MPI_Win *window)
{
    struct flags *shared;
    MPI_Aint bytes;
    int unit;

    MPI_Win_allocate_shared(world_rank == 0 ? sizeof(*shared) : 0, 1,
                            MPI_INFO_NULL, MPI_COMM_WORLD, &shared, window);
    MPI_Win_shared_query(*window, 0, &bytes, &unit, &shared);
    return shared;
}

/* ---- the clock ---- */

enum { S = 1000000000 /* ns */ };

static _Atomic int64_t stands_at; /* ns; 0: it goes */

/* Comes before the C library's. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t id,
                                                         struct timespec *now)
{
    int64_t ns = id == CLOCK_MONOTONIC ? atomic_load(&stands_at) : 0;

    if (ns == 0)
        return (int)syscall(SYS_clock_gettime, id, now);
    *now = (struct timespec){ns / S, ns % S};
    return 0;
}

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * S + now.tv_nsec;
}

static void clock_stop(void)
{
    atomic_store(&stands_at, now_ns());
}

static void clock_advance(int64_t ns)
{
    atomic_fetch_add(&stands_at, ns);
}

/* When it would not go back. */
static void clock_go_on(void)
{
    const struct timespec nap = {0, 1000000};
    int64_t stood_at = atomic_exchange(&stands_at, 0);

    while (now_ns() < stood_at)
        nanosleep(&nap, NULL);
}

/* ---- waiting ---- */

static bool is_complete(MPI_Request *request)
{
    int done;

    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    return done;
}

/* What the sender has spent on a message that it then gave up. */
struct effort {
    int64_t ns;
    long polls;
};

static struct effort most;

/* A short message that is put, and goes natively because nobody comes. */
static struct effort spend(MPI_Request *request, uint64_t sends, unsigned computes_us)
{
    struct effort effort = {.ns = now_ns()};
    uint64_t stops = counter("stops");

    while (counter("lane_sends") > sends) {
        CHECK(!is_complete(request) || counter("lane_sends") == sends,
              "complete in a slot, without a receiver");
        effort.polls++;
        if (computes_us > 0)
            usleep(computes_us);
    }
    effort.ns = now_ns() - effort.ns;
    CHECK(counter("stops") > stops, "given up without a stop");
    return effort;
}

static void give_up(MPI_Request *request, uint64_t sends)
{
    struct effort effort = spend(request, sends, 0);

    if (effort.ns > most.ns)
        most.ns = effort.ns;
    if (effort.polls > most.polls)
        most.polls = effort.polls;
}

static void give_up_computing(MPI_Request *request, uint64_t sends)
{
    struct effort effort = spend(request, sends, COMPUTES_US);

    CHECK(effort.polls <= FEW_POLLS, "given up after %ld tests", effort.polls);
}

/* @return whether it has been given up so much later, by the clock that stands still */
static bool is_given_up_after(int64_t ns, MPI_Request *request, uint64_t sends)
{
    clock_advance(ns);
    for (int i = 0; i < LOOKS_AFTER; i++)
        CHECK(!is_complete(request) || counter("lane_sends") == sends,
              "complete in a slot, without a receiver");
    return counter("lane_sends") == sends;
}

static int num_hasty; /* that were given up before the most patience was over */

/* Nothing comes. Where stops were frequent it is waited for as long. */
static void give_up_by_clock(MPI_Request *request, uint64_t sends)
{
    clock_stop();
    if (!is_given_up_after(0, request, sends))
        num_hasty += is_given_up_after(MOST_NS, request, sends);
    clock_go_on();
}

/* The answer comes. */
static void be_patient(MPI_Request *request, uint64_t sends)
{
    uint64_t stops = counter("stops");

    clock_stop();
    CHECK(!is_given_up_after(0, request, sends) &&
              !is_given_up_after(MOST_NS, request, sends),
          "given up though something is on its way");
    CHECK(is_given_up_after(1, request, sends), "it is waited for");
    CHECK(counter("stops") > stops, "given up without a stop");
    clock_go_on();
}

/* A long one that is put, for several times as long and as many polls. */
static void hold_on(MPI_Request *request, uint64_t sends)
{
    uint64_t stops = counter("stops");
    int64_t begin = now_ns();

    for (long polls = 0;
         polls < MORE * most.polls || now_ns() - begin < MORE * most.ns;
         polls++)
        CHECK(!is_complete(request), "without a receiver");
    CHECK(counter("stops") == stops && counter("lane_sends") == sends + 1,
          "a long message has been given up");
}

/* What only the other process's memory tells. */
static void wait_outside(const atomic_int *flag, int value)
{
    const struct timespec nap = {0, 20000};

    while (atomic_load(flag) < value)
        nanosleep(&nap, NULL);
}

/* What comes back for each message, if anything does. */
static MPI_Request answers = MPI_REQUEST_NULL;
static int answer;

static void start_answer(void)
{
    if (answers != MPI_REQUEST_NULL)
        MPI_Start(&answers);
}

static void finish_answer(int message)
{
    if (answers == MPI_REQUEST_NULL)
        return;
    MPI_Wait(&answers, MPI_STATUS_IGNORE);
    CHECK(answer == message, "message %d: answer %d", message, answer);
}

/* Until HELD messages have been put while their receiver was away and, with
 * `slots`, have been found in slots by it. */
static void send_all(int num, int *memory, MPI_Request *request, bool slots,
                     void (*wait)(MPI_Request *, uint64_t))
{
    struct hope hope = {0};
    int message = 0;

    for (int held = 0; held < HELD;) {
        uint64_t sends = counter("lane_sends");
        int pulled = atomic_load(&flags->pulled);
        bool put;

        message++;
        for (int i = 0; i < num; i++)
            memory[i * STRIDE] = message + i;
        start_answer();
        MPI_Start(request);
        put = counter("lane_sends") > sends;
        if (put)
            wait(request, sends);
        atomic_store(&flags->go, message);
        MPI_Wait(request, MPI_STATUS_IGNORE);
        finish_answer(message);
        wait_outside(&flags->taken, message);
        if (put && (!slots || (counter("lane_sends") > sends &&
                               atomic_load(&flags->pulled) == pulled)))
            held++;
        else
            go_on(&hope, "not in a slot");
    }
    atomic_store(&flags->over, 1);
    atomic_store(&flags->go, message + 1);
}

static void receive_all(int num, const int *memory, MPI_Request *request)
{
    for (int message = 1;; message++) {
        uint64_t pulls = counter("lane_pulls");

        wait_outside(&flags->go, message);
        if (atomic_load(&flags->over))
            return;
        MPI_Start(request);
        MPI_Wait(request, MPI_STATUS_IGNORE);
        for (int i = 0; i < num; i++)
            CHECK(memory[i * STRIDE] == message + i,
                  "%d numbers, message %d: %d", num, message,
                  memory[i * STRIDE]);
        if (counter("lane_pulls") > pulls)
            atomic_fetch_add(&flags->pulled, 1);
        answer = message;
        start_answer();
        finish_answer(message);
        atomic_store(&flags->taken, message);
    }
}

/* On a communicator of its own, so with an own history. */
static void run(int num, bool slots, bool answered, void (*wait)(MPI_Request *, uint64_t))
{
    int *memory = allocate((size_t)num * STRIDE * sizeof(int));
    MPI_Request request;
    MPI_Datatype type;
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Type_vector(num, 1, STRIDE, MPI_INT, &type);
    MPI_Type_commit(&type);
    if (world_rank == 0) {
        *flags = (struct flags){0};
        MPI_Send_init(memory, 1, type, 1, TAG, comm, &request);
        if (answered)
            MPI_Recv_init(&answer, 1, MPI_INT, 1, ANSWER, comm, &answers);
    } else {
        MPI_Recv_init(memory, 1, type, 0, TAG, comm, &request);
        if (answered)
            MPI_Send_init(&answer, 1, MPI_INT, 0, ANSWER, comm, &answers);
    }
    MPI_Barrier(comm);
    if (world_rank == 0)
        send_all(num, memory, &request, slots, wait);
    else
        receive_all(num, memory, &request);
    MPI_Request_free(&request);
    if (answered)
        MPI_Request_free(&answers);
    MPI_Type_free(&type);
    MPI_Comm_free(&comm);
    free(memory);
}

int main(int argc, char **argv)
{
    MPI_Win window;

    test_init(&argc, &argv, false);
    flags = share(&window);
    run(SHORT, false, false, give_up);
    run(SHORT, false, false, give_up_computing);
    run(SHORT, false, false, give_up_by_clock);
    CHECK(world_rank > 0 || num_hasty > 0, "all were waited for though nothing comes");
    run(SHORT, false, true, be_patient);
    run(LONG, true, false, hold_on);
    MPI_Win_free(&window);
    return test_fini("patience");
}
