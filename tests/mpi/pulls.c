/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent messages that are pulled out of the sender's memory (pulled.c has
 * the layouts and memories): several in one call of the kernel, requests that are
 * made anew on one side, receives that are too short, memory that the kernel
 * refuses to read, a sender of which it reads nothing any more, and sends that are
 * freed before they are read.
 *
 * pulls [--native] */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/mpi/flags.h"
#include "tests/mpi/one_way.h"

enum { MESSAGES = 6, INTS = 20000, SHORTER = 5000 };
enum { STARTED, FREED /* flags */ };

static atomic_uint calls, asked; /* of these, by rsched while it is refused all */
static int *refused; /* what is not to be read into; or NULL */
static bool closed;  /* no other process is to be read */

/* The native MPIs read each other, too. */
static bool is_of_rsched(const void *caller)
{
    Dl_info info;
    const char *name;

    if (dladdr(caller, &info) == 0)
        return false;
    name = strrchr(info.dli_fname, '/');
    return strncmp(name != NULL ? name + 1 : info.dli_fname, "librsched", 9) == 0;
}

/* Comes before the C library's. */
__attribute__((visibility("default"))) ssize_t
process_vm_readv(pid_t pid, const struct iovec *here, unsigned long num_here,
                 const struct iovec *there, unsigned long num_there,
                 unsigned long options)
{
    atomic_fetch_add(&calls, 1);
    if (closed && pid != getpid() &&
        is_of_rsched(__builtin_return_address(0))) {
        atomic_fetch_add(&asked, 1);
        errno = EPERM;
        return -1;
    }
    for (unsigned long i = 0; i < num_here && refused != NULL; i++) {
        if (here[i].iov_base == refused) {
            errno = EPERM;
            return -1;
        }
    }
    return syscall(SYS_process_vm_readv, pid, here, num_here, there, num_there,
                   options);
}

static void expect(bool condition, const char *what, int number)
{
    CHECK(condition, "%s: %d", what, number);
}

/* ---- cases ---- */

/* All are announced before one is taken. @return whether all were pulled */
static bool round_of_all(void)
{
    uint64_t before = counter("lane_pulls");

    fill();
    if (sends) {
        MPI_Startall(MESSAGES, out_request);
        flag_raise(STARTED, sequence);
    }
    if (receives) {
        flag_await(STARTED, sequence);
        MPI_Startall(MESSAGES, in_request);
        MPI_Waitall(MESSAGES, in_request, MPI_STATUSES_IGNORE);
        for (int i = 0; i < MESSAGES; i++)
            verify(i);
    }
    if (sends)
        MPI_Waitall(MESSAGES, out_request, MPI_STATUSES_IGNORE);
    return !uses_lanes || !receives ||
           counter("lane_pulls") == before + MESSAGES;
}

/* Their layouts are known after the first time. */
static void case_together(void)
{
    struct hope hope = {0};
    bool known = false, all;

    have_lanes();
    do {
        unsigned before = atomic_load(&calls);

        all = round_of_all();
        if (all && known && uses_lanes && !sends)
            expect(atomic_load(&calls) - before <= 1, "calls of the kernel",
                   (int)(atomic_load(&calls) - before));
        go_on(&hope, "never pulled together");
        known = known || all;
    } while (!all_have(&hope, all && known && hope.rounds > 2));
    lanes_fini(true);
}

/* Every second one of a side, so that what is left of the others' layouts and of
 * its own must not be taken for the new one's: other memory, and other strides in
 * a table of the same length. */
static void remake(bool sending, int round)
{
    for (int i = round % 2; i < MESSAGES; i += 2) {
        MPI_Request *request = sending ? &out_request[i] : &in_request[i];
        int **memory = sending ? &out[i] : &in[i], *old = *memory;

        MPI_Request_free(request);
        *memory = allocate(INTS * sizeof(int));
        free(old);
        if (sending)
            MPI_Send_init(*memory, INTS, MPI_INT, receiver, tags[i], comm,
                          request);
        else
            MPI_Recv_init(*memory, INTS, MPI_INT, sender, tags[i], comm,
                          request);
    }
}

static void case_one_side(void)
{
    enum { ROUNDS = 12 };
    struct hope hope = {0};
    int seen = 0;

    have_lanes();
    for (int round = 0; seen < ROUNDS; round++) {
        bool sending = round / 2 % 2;

        if (sending ? sends : receives)
            remake(sending, round);
        seen += all_have(&hope, round_of_all());
        go_on(&hope, "never pulled after requests were made anew");
    }
    lanes_fini(true);
}

/* The same tag and memory, other places in it: rows of as many bytes, further and
 * further apart. */
static void case_strides(void)
{
    enum { ROWS = 10, ROW = 1000, MOST = ROW + 40, ROUNDS = 8 };
    static int from[ROWS * MOST], to[ROWS * ROW];
    struct hope hope = {0};
    MPI_Request request;

    have_lanes();
    if (receives)
        MPI_Recv_init(to, ROWS * ROW, MPI_INT, sender, MESSAGES, comm, &request);
    for (int round = 0, seen = 0; seen < ROUNDS; round++) {
        uint64_t before = counter("lane_pulls");
        int stride = MOST - round % 20;

        sequence++;
        for (int i = 0; i < ROWS * ROW; i++) {
            from[i / ROW * stride + i % ROW] = sequence + i;
            to[i] = -1;
        }
        if (receives)
            MPI_Start(&request);
        if (sends) {
            MPI_Request send;
            MPI_Datatype type;

            MPI_Type_vector(ROWS, ROW, stride, MPI_INT, &type);
            MPI_Type_commit(&type);
            MPI_Send_init(from, 1, type, receiver, MESSAGES, comm, &send);
            MPI_Type_free(&type);
            MPI_Start(&send);
            MPI_Wait(&send, MPI_STATUS_IGNORE);
            MPI_Request_free(&send);
        }
        if (receives) {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            for (int i = 0; i < ROWS * ROW; i++)
                expect(to[i] == sequence + i, "number", i);
        }
        seen += all_have(&hope, !uses_lanes || !receives ||
                                    counter("lane_pulls") > before);
        go_on(&hope, "never pulled");
    }
    if (receives)
        MPI_Request_free(&request);
    lanes_fini(true);
}

/* Open MPI 4 writes behind the end natively, and calls another communicator's
 * error handler. */
static void case_too_long(void)
{
    struct hope hope = {0};
    MPI_Request shorter;
    bool seen;

    have_lanes();
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (receives)
        MPI_Recv_init(in[0], SHORTER, MPI_INT, sender, tags[0], comm, &shorter);
    do {
        uint64_t before = counter("lane_pulls");
        int error = MPI_SUCCESS, class = MPI_SUCCESS;

        fill();
        if (receives)
            MPI_Start(&shorter);
        if (sends)
            MPI_Start(&out_request[0]);
        if (receives) {
            error = MPI_Wait(&shorter, MPI_STATUS_IGNORE);
            MPI_Error_class(error, &class);
            expect(class == MPI_ERR_TRUNCATE, "error class", class);
        }
        if (sends)
            MPI_Wait(&out_request[0], MPI_STATUS_IGNORE);
        seen = !uses_lanes || !receives || counter("lane_pulls") > before;
        for (int k = SHORTER; k < INTS && uses_lanes && receives && seen; k++)
            expect(in[0][k] == -1, "written behind the end", k);
        go_on(&hope, "never pulled");
    } while (!all_have(&hope, seen));
    if (receives)
        MPI_Request_free(&shorter);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    lanes_fini(true);
}

/* One message cannot be read: its receive fails, its sender goes on, the others
 * come, and the next one does. */
static void case_refused(void)
{
    struct hope hope = {0};
    int seen = 0;

    if (!uses_lanes || world_size == 1)
        return;
    have_lanes();
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    while (seen < 3) {
        uint64_t before = counter("lane_pulls");
        int failed = 0;

        fill();
        if (sends) {
            MPI_Startall(MESSAGES, out_request);
            flag_raise(STARTED, sequence);
            MPI_Waitall(MESSAGES, out_request, MPI_STATUSES_IGNORE);
        }
        if (receives) {
            flag_await(STARTED, sequence);
            refused = in[2];
            MPI_Startall(MESSAGES, in_request);
            for (int i = 0; i < MESSAGES; i++) {
                bool good = MPI_Wait(&in_request[i], MPI_STATUS_IGNORE) ==
                            MPI_SUCCESS;

                failed += !good;
                expect(good || i == 2, "failed", i);
                if (good)
                    verify(i);
            }
            refused = NULL;
        }
        seen += all_have(&hope, !receives ||
                                    counter("lane_pulls") == before + MESSAGES);
        expect(!receives || failed == 1 ||
                   counter("lane_pulls") < before + MESSAGES, "not refused", 2);
        round_of_all();
        go_on(&hope, "never refused");
    }
    lanes_fini(true);
}

/* One message of each of these requests. @return how many receives have failed */
static int send_once(int num, MPI_Request *requests)
{
    int failed = 0;

    fill();
    MPI_Startall(num, requests);
    for (int i = 0; i < num; i++)
        failed += MPI_Wait(&requests[i], MPI_STATUS_IGNORE) != MPI_SUCCESS;
    expect(failed == 0 || receives, "sends failed", failed);
    return failed;
}

/* They come, and the kernel is not asked for them. */
static void expect_unread(int num, MPI_Request *requests)
{
    unsigned before = atomic_load(&asked);
    uint64_t pulls = counter("lane_pulls");

    expect(send_once(num, requests) == 0, "failed again", num);
    expect(atomic_load(&asked) == before, "calls of the kernel",
           (int)(atomic_load(&asked) - before));
    expect(counter("lane_pulls") == pulls, "pulled", num);
    for (int i = 0; i < num && receives; i++)
        verify(i);
}

static void refuse_once(int num, MPI_Request *requests)
{
    struct hope hope = {0};
    int failed;

    do {
        failed = send_once(num, requests);
        go_on(&hope, "never refused");
    } while (!all_have(&hope, !receives || failed > 0));
}

/* Nothing of the sender can be read any more: what it has announced fails, and
 * nothing is announced after that. What slots can have room for goes through them
 * once they have, what is longer goes natively. */
static void case_closed(int length)
{
    enum { ROUNDS = 20, LONGEST_IN_SLOTS = 65536 };
    bool in_slots = length * (int)sizeof(int) <= LONGEST_IN_SLOTS;
    MPI_Request *requests = sends ? out_request : in_request;
    int num = sends || receives ? MESSAGES : 0;
    struct hope hope = {0};
    uint64_t before;

    if (!uses_lanes || world_size == 1)
        return;
    for (int i = 0; i < MESSAGES; i++)
        lengths[i] = length;
    have_lanes();
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    closed = receives;
    refuse_once(num, requests);
    for (int round = 0; round < ROUNDS; round++)
        expect_unread(num, requests);
    do {
        before = in_lanes();
        expect_unread(num, requests);
        go_on(&hope, "never through slots");
    } while (in_slots && !all_have(&hope, in_lanes() == before + (uint64_t)num));
    lanes_fini(true);
    closed = false;
    for (int i = 0; i < MESSAGES; i++)
        lengths[i] = INTS;
}

/* Memory of the heap is used again at once. */
static void scribble(void)
{
    enum { BLOCKS = 400 };
    void *blocks[BLOCKS];

    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = allocate(8 + i % 50 * 8);
        memset(blocks[i], 0xff, 8 + i % 50 * 8);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
}

/* A send is freed when it is matched and has not been read. */
static void free_unread(int i)
{
    int flag;

    MPI_Start(&out_request[i]);
    for (int polls = 0; polls < 3; polls++) {
        MPI_Test(&out_request[i], &flag, MPI_STATUS_IGNORE);
        if (flag) /* it went natively */
            return;
    }
    MPI_Request_free(&out_request[i]);
    scribble();
    MPI_Send_init(out[i], lengths[i], MPI_INT, receiver, tags[i], comm,
                  &out_request[i]);
}

static void case_freed(void)
{
    enum { ROUNDS = 10 };
    struct hope hope = {0};

    have_lanes();
    for (int seen = 0; seen < ROUNDS;) {
        uint64_t before = counter("lane_pulls");

        fill();
        if (receives) {
            MPI_Start(&in_request[0]);
            flag_raise(STARTED, sequence);
            flag_await(FREED, sequence);
            MPI_Wait(&in_request[0], MPI_STATUS_IGNORE);
            verify(0);
        } else if (sends) {
            flag_await(STARTED, sequence);
            free_unread(0);
            flag_raise(FREED, sequence);
        }
        seen += all_have(&hope, !uses_lanes || !receives ||
                                    counter("lane_pulls") > before);
        go_on(&hope, "never pulled");
    }
    lanes_fini(true);
}

int main(int argc, char **argv)
{
    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    one_way_init(is_accelerated());
    for (int i = 0; i < MESSAGES; i++)
        one_way_add(i, INTS);
    flags_init();
    case_together();
    case_one_side();
    case_strides();
    if (world_size > 1)
        case_too_long();
    case_refused();
    case_closed(INTS);
    case_closed(SHORTER);
    case_freed();
    one_way_fini();
    flags_fini();
    return test_fini("pulls");
}
