/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent messages of which an end lies in GPU memory. Over the driver in software
 * (tests/cuda/fake.h) the native MPI does not know it: while messages may go natively
 * processors are let at it, and then they die of it. No real driver lets them, so
 * there the native MPI has to know GPU memory, as the first messages are its; what
 * needs a driver that is late, or refuses, is left out.
 *
 * opened */
#include <dlfcn.h>
#include <sys/mman.h>

#include "tests/cuda/buffer.h"
#include "tests/mpi/common.h"
#include "tests/mpi/flags.h"

enum { GAP = -1, MOST_ROUNDS = 4000, ROUNDS = 4, TAG = 5 };
enum { READY, SENT, DONE /* flags */ };
enum { LATE_MS = 40 };

static struct program gpu;
static int sender, receiver, sequence;
static bool sends, receives;
static MPI_Comm comm;

/* An end of messages of doubles, which may each have one behind them left out. */
struct end {
    struct buffer memory;
    bool strides;
    int num;
    MPI_Request request;
};

static struct end out, in;
static bool maps; /* made of memory that is opened by descriptors */

/* The last process sends to the first one, which may be the same. */
static void let_processors(const struct end *end, bool touch)
{
    if (end->memory.on_gpu && gpu.is_fake)
        CHECK(mprotect(end->memory.address, end->memory.bytes,
                       touch ? PROT_READ | PROT_WRITE : PROT_NONE) == 0,
              "not allowed");
}

static MPI_Datatype type_of(const struct end *end)
{
    MPI_Datatype one, all;

    MPI_Type_create_resized(MPI_DOUBLE, 0,
                            (end->strides ? 2 : 1) * (MPI_Aint)sizeof(double),
                            &one);
    MPI_Type_contiguous(end->num, one, &all);
    MPI_Type_commit(&all);
    MPI_Type_free(&one);
    return all;
}

static void end_request(struct end *end)
{
    MPI_Datatype type = type_of(end);

    if (end == &out)
        MPI_Send_init(end->memory.address, 1, type, receiver, TAG, comm,
                      &end->request);
    else
        MPI_Recv_init(end->memory.address, 1, type, sender, TAG, comm,
                      &end->request);
    MPI_Type_free(&type);
}

static void end_init(struct end *end, bool on_gpu, bool strides, int num)
{
    size_t bytes = 2 * (size_t)num * sizeof(double);

    *end = (struct end){.strides = strides, .num = num};
    if (maps)
        buffer_map(&gpu, &end->memory, bytes, true, world_rank % 2);
    else
        buffer_init(&gpu, &end->memory, bytes, on_gpu);
    let_processors(end, true);
    end_request(end);
}

static void end_fini(struct end *end)
{
    if (end->request != MPI_REQUEST_NULL)
        MPI_Request_free(&end->request);
    buffer_fini(&gpu, &end->memory);
}

static double *element(const struct end *end, int i)
{
    return (double *)(void *)end->memory.touch + (end->strides ? 2 * i : i);
}

static double value(int i)
{
    return sequence * 1e6 + i;
}

/* The next message. */
static void fill(void)
{
    sequence++;
    for (int i = 0; i < out.num && sends; i++)
        *element(&out, i) = value(i);
    for (int i = 0; i < 2 * in.num && receives; i++)
        ((double *)(void *)in.memory.touch)[i] = GAP;
    if (sends)
        buffer_push(&gpu, &out.memory);
    if (receives)
        buffer_push(&gpu, &in.memory);
}

static void verify(void)
{
    int num = in.num < out.num ? in.num : out.num;

    buffer_pull(&gpu, &in.memory);
    for (int i = 0; i < in.num; i++) {
        double want = i < num ? value(i) : GAP;

        CHECK(*element(&in, i) == want, "message %d, element %d: %g, not %g",
              sequence, i, *element(&in, i), want);
        CHECK(!in.strides || element(&in, i)[1] == GAP, "a gap was written");
    }
}

/* The receive is there when the send starts, so that nobody is out of patience: a
 * message that is in time by chance may leave a stop behind, for the next one. */
static void start(void)
{
    if (receives) {
        MPI_Start(&in.request);
        flag_raise(READY, sequence);
    }
    if (sends) {
        flag_await(READY, sequence);
        MPI_Start(&out.request);
        flag_raise(SENT, sequence);
    }
}

static void finish(void)
{
    if (receives) {
        MPI_Wait(&in.request, MPI_STATUS_IGNORE);
        verify();
    }
    if (sends)
        MPI_Wait(&out.request, MPI_STATUS_IGNORE);
}

static bool everywhere(int has)
{
    PMPI_Allreduce(MPI_IN_PLACE, &has, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return has;
}

/* A message. @return whether it has taken a lane, and was opened if that is how
 * it comes */
static bool pass(void)
{
    uint64_t lanes = counter("lane_receives") + counter("lane_sends");
    uint64_t opened = counter("lane_opened");

    fill();
    start();
    finish();
    return everywhere(counter("lane_receives") + counter("lane_sends") ==
                          lanes + sends + receives &&
                      (!receives || !out.memory.on_gpu ||
                       counter("lane_opened") == opened + 1));
}

static void until_open(void)
{
    for (int i = 0; !pass(); i++)
        CHECK(i < MOST_ROUNDS,
              "never: %" PRIu64 " incarnations, %" PRIu64 " stops",
              counter("incarnations"), counter("stops"));
}

static void have(bool from_gpu, bool to_gpu, int strides, int num, int more)
{
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    out = in = (struct end){.request = MPI_REQUEST_NULL};
    /* Each process knows of both. */
    if (sends)
        end_init(&out, from_gpu, strides & 1, num);
    if (receives)
        end_init(&in, to_gpu, strides & 2, num + more);
    out.memory.on_gpu = from_gpu;
    out.num = num;
    until_open();
}

static void drop(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (sends)
        end_fini(&out);
    if (receives)
        end_fini(&in);
    MPI_Comm_free(&comm);
}

static void lock(bool locked)
{
    if (sends)
        let_processors(&out, !locked);
    if (receives)
        let_processors(&in, !locked);
}

/* ---- cases ---- */

static void case_kinds(bool from_gpu, bool to_gpu, int strides, int num,
                       int more)
{
    uint64_t staged, bytes = (uint64_t)num * sizeof(double);

    have(from_gpu, to_gpu, strides, num, more);
    lock(true);
    staged = counter("staged");
    for (int i = 0; i < ROUNDS; i++)
        CHECK(pass(), "native");
    CHECK(!receives || counter("staged") ==
                           staged + (to_gpu && !from_gpu ? ROUNDS * bytes : 0),
          "staged %" PRIu64, counter("staged") - staged);
    drop();
}

/* Other memory at the address of the message before. */
static void case_remapped(void)
{
    if (sends && receives)
        return; /* within a process it is native */
    maps = true;
    have(true, true, 0, 2000, 0);
    maps = false;
    for (int i = 0; i < ROUNDS; i++) {
        until_open();
        if (sends) {
            buffer_remap(&gpu, &out.memory, world_rank % 2);
            let_processors(&out, true);
        }
    }
    drop();
}

/* Likewise, of memory that is opened by handles: freed and allocated anew. */
static void case_reallocated(void)
{
    char *address;

    if (sends && receives)
        return; /* within a process it is native */
    setenv("FAKE_CUDA_REUSE", "1", 1);
    have(true, true, 0, 2000, 0);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pass(), "native");
        if (sends) {
            address = out.memory.address;
            buffer_fini(&gpu, &out.memory);
            buffer_init(&gpu, &out.memory, out.memory.bytes, true);
            CHECK(out.memory.address == address, "elsewhere");
            let_processors(&out, true);
        }
    }
    CHECK(pass(), "native");
    drop();
    unsetenv("FAKE_CUDA_REUSE");
}

/* The receive is shorter. */
static void case_too_long(void)
{
    uint64_t before;
    int class = MPI_SUCCESS;

    have(true, true, 0, 600, 0);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (receives) {
        end_fini(&in);
        in = (struct end){.num = 500};
        buffer_init(&gpu, &in.memory, 2 * 500 * sizeof(double), true);
        end_request(&in);
    }
    before = counter("lane_receives");
    fill();
    start();
    if (receives) {
        MPI_Error_class(MPI_Wait(&in.request, MPI_STATUS_IGNORE), &class);
        CHECK(class == MPI_ERR_TRUNCATE, "error class %d", class);
        CHECK(counter("lane_receives") == before + 1, "native");
    }
    if (sends)
        MPI_Wait(&out.request, MPI_STATUS_IGNORE);
    drop();
}

/* A copy that takes long is under way. */
static void begin_late(void)
{
    int flag;

    fill();
    start();
    flag_await(SENT, sequence);
    if (!receives)
        return;
    for (int i = 0; i < 2; i++) {
        MPI_Test(&in.request, &flag, MPI_STATUS_IGNORE);
        CHECK(!flag, "it was not late");
    }
}

/* What happens while a copy is under way; the message comes all the same. */
enum meanwhile { PROBE, CANCEL, FREE, RECEIVE, NUM_MEANWHILE };

static void meanwhile(enum meanwhile what)
{
    int flag, number = 0, cancelled = 0;
    MPI_Status status;

    setenv("FAKE_CUDA_LATE", "40", 1);
    begin_late();
    if (receives) {
        uint64_t stops = counter("stops");

        if (what == PROBE)
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status);
        if (what == CANCEL)
            MPI_Cancel(&in.request);
        if (what == FREE)
            MPI_Request_free(&in.request);
        if (what == RECEIVE && !sends)
            MPI_Recv(&number, 1, MPI_INT, sender, MPI_ANY_TAG, comm,
                     MPI_STATUS_IGNORE);
        CHECK(what != PROBE || counter("stops") == stops + 1, "no stop");
    }
    /* The receiver looks no more, but in a native call. */
    if (what == FREE && receives && !sends)
        MPI_Recv(&number, 1, MPI_INT, sender, TAG + 1, comm,
                 MPI_STATUS_IGNORE);
    if (sends) {
        MPI_Wait(&out.request, MPI_STATUS_IGNORE);
        number = sequence;
        if ((what == FREE || what == RECEIVE) && !receives)
            MPI_Send(&number, 1, MPI_INT, receiver, TAG + 1, comm);
    }
    if (receives) {
        if (what != FREE) {
            MPI_Wait(&in.request, &status);
            MPI_Test_cancelled(&status, &cancelled);
            CHECK(!cancelled, "cancelled");
        }
        verify();
        CHECK(sends || (what != FREE && what != RECEIVE) || number == sequence,
              "number %d", number);
        if (what == FREE)
            end_request(&in);
    }
    unsetenv("FAKE_CUDA_LATE");
}

static void case_late(void)
{
    for (enum meanwhile what = 0; what < NUM_MEANWHILE; what++) {
        have(true, true, 0, 5000, 0);
        meanwhile(what);
        drop();
    }
}

/* Two of one lane, and a stop while the first one is copied. */
static void case_in_turn(bool second_on_gpu)
{
    struct end first_out, first_in, second_out = {0}, second_in = {0};
    int flag;

    have(true, true, 0, 5000, 0);
    first_out = out;
    first_in = in;
    if (sends) {
        end_init(&out, second_on_gpu, false, 5000);
        second_out = out;
    }
    if (receives) {
        end_init(&in, true, false, 5000);
        second_in = in;
    }
    setenv("FAKE_CUDA_LATE", "40", 1);
    fill();
    for (int i = 0; i < 5000; i++) {
        if (sends)
            *element(&first_out, i) = value(i) + 0.5;
    }
    if (receives) {
        MPI_Start(&first_in.request);
        MPI_Start(&second_in.request);
        flag_raise(READY, sequence);
    }
    if (sends) {
        flag_await(READY, sequence);
        MPI_Start(&first_out.request);
        MPI_Start(&second_out.request);
        flag_raise(SENT, sequence);
    }
    flag_await(SENT, sequence);
    if (receives) {
        MPI_Test(&first_in.request, &flag, MPI_STATUS_IGNORE);
        MPI_Test(&second_in.request, &flag, MPI_STATUS_IGNORE);
        CHECK(!flag, "it was not late");
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE);
        MPI_Wait(&second_in.request, MPI_STATUS_IGNORE);
        MPI_Wait(&first_in.request, MPI_STATUS_IGNORE);
        in = second_in;
        verify();
        for (int i = 0; i < 5000; i++)
            CHECK(*element(&first_in, i) == value(i) + 0.5, "element %d", i);
    }
    if (sends) {
        MPI_Wait(&second_out.request, MPI_STATUS_IGNORE);
        MPI_Wait(&first_out.request, MPI_STATUS_IGNORE);
    }
    unsetenv("FAKE_CUDA_LATE");
    out = second_out;
    in = second_in;
    if (sends)
        end_fini(&first_out);
    if (receives)
        end_fini(&first_in);
    drop();
}

/* A copy fails: the receive does, and the next one does not. */
static void case_failed(void)
{
    have(true, true, 0, 50000, 0);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    fill();
    if (receives)
        setenv("FAKE_CUDA_FAIL", "cuEventRecord:1:999", 1);
    start();
    if (receives) {
        CHECK(MPI_Wait(&in.request, MPI_STATUS_IGNORE) != MPI_SUCCESS,
              "it has not failed");
        unsetenv("FAKE_CUDA_FAIL");
    }
    if (sends)
        MPI_Wait(&out.request, MPI_STATUS_IGNORE);
    CHECK(pass(), "native");
    drop();
}

/* Messages in host memory next to the others, until they go through a lane. */
static void until_beside(MPI_Request *beside, int *number)
{
    uint64_t before;
    int has;

    for (int i = 0;; i++) {
        before = counter("lane_sends") + counter("lane_receives");
        fill();
        *number = sends ? sequence : 0;
        start();
        MPI_Start(beside);
        finish();
        MPI_Wait(beside, MPI_STATUS_IGNORE);
        CHECK((!sends && !receives) || *number == sequence, "number %d", *number);
        has = counter("lane_sends") + counter("lane_receives") == before + sends + receives;
        PMPI_Allreduce(MPI_IN_PLACE, &has, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (has)
            return;
        CHECK(i < MOST_ROUNDS, "they are native, too");
    }
}

/* The receiver cannot open it: all is native, and nothing else. */
static void case_refused(void)
{
    uint64_t native = counter("send_init.native.gpu");
    uint64_t opened = counter("lane_opened");
    MPI_Request beside;
    int number;

    if (sends && receives)
        return; /* nothing is opened */
    setenv("FAKE_CUDA_FAIL", "cuIpcOpenMemHandle:1:999", 1);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    out = in = (struct end){.request = MPI_REQUEST_NULL};
    if (sends)
        end_init(&out, true, false, 100);
    if (receives)
        end_init(&in, true, false, 100);
    out.num = 100;
    if (sends)
        MPI_Send_init(&number, 1, MPI_INT, receiver, TAG + 1, comm, &beside);
    else
        MPI_Recv_init(&number, 1, MPI_INT, receives ? sender : MPI_PROC_NULL, TAG + 1, comm,
                      &beside);
    for (int i = 0; i < 100; i++) {
        fill();
        start();
        finish();
    }
    until_beside(&beside, &number);
    MPI_Request_free(&beside);
    unsetenv("FAKE_CUDA_FAIL");
    CHECK(counter("lane_opened") == opened, "opened");
    CHECK(!sends || counter("send_init.native.gpu") == native + 1,
          "no reason");
    drop();
}

/* Of Open MPI; others do not say it. */
static bool native_knows_gpus(void)
{
    int (*query)(void) = (int (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");

    return query != NULL && query() == 1;
}

/* Which the driver in software is told. */
static void cases_of_troubles(void)
{
    case_reallocated();
    case_late();
    case_in_turn(true);
    case_in_turn(false);
    case_failed();
    case_refused();
}

int main(int argc, char **argv)
{
    static const int lengths[] = {1, 37, 2000, 50000};

    test_init(&argc, &argv, false);
    sender = world_size - 1;
    sends = world_rank == sender;
    receives = world_rank == receiver;
    program_begin(&gpu, world_rank % 2);
    if (!gpu.is_fake && !native_knows_gpus()) {
        program_end(&gpu, world_rank % 2);
        if (world_rank == 0)
            printf("SKIP: the first messages are native, of GPU memory that this MPI does not know\n");
        MPI_Finalize();
        return SKIP;
    }
    flags_init();
    for (int kind = 1; kind < 4; kind++) {
        for (int strides = 0; strides < 4; strides++) {
            for (int i = 0; i < 4; i++)
                case_kinds(kind & 1, kind & 2, strides, lengths[i],
                           i % 2 == 0 ? 0 : 3);
        }
    }
    case_remapped();
    case_too_long();
    if (gpu.is_fake)
        cases_of_troubles();
    CHECK(counter("requests") == 0, "requests are left");
    flags_fini();
    program_end(&gpu, world_rank % 2);
    return test_fini("opened");
}
