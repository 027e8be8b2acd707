/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges of GPU memory that lies, or is used, in a way that not every program
 * does, between two ranks over the driver in software:
 *
 *     cuda_corners processes|threads CASE
 *
 * Each case asserts from the counters that its way was taken.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/rsched.h>

#include "tests/cuda/program.h"
#include "tests/runtime/ranks.h"

enum {
    EPOCHS = 4,
    PART = 1 << 16, /* more than a kernel copies in one piece */
    ROWS = 50,
    ROW = 40,
    PITCH = 1001,
    MOST_PUTS = 3
};

struct put {
    char *send, *receive;
    uint64_t bytes;
    bool rows; /* ROWS of ROW bytes, PITCH apart */
};

/* Where the second halves of a put are, or NULL: they follow. */
struct rest {
    char *send, *receive;
};

struct world {
    struct program p;
    struct put puts[MOST_PUTS];
    struct rest rests[MOST_PUTS];
    int num_puts;
    struct rsched_exchange *x;
};

static const struct rsched_run rows = {
    .bytes = ROW, .count = ROWS, .stride = PITCH};

static char *allocate(struct program *p, size_t bytes)
{
    CUdeviceptr device;

    if (p->cuMemAlloc(&device, bytes) != CUDA_SUCCESS)
        abort();
    return (char *)(uintptr_t)device;
}

static void release(struct program *p, char *address)
{
    if (p->cuMemFree((CUdeviceptr)(uintptr_t)address) != CUDA_SUCCESS)
        abort();
}

static char *touch(const struct world *w, char *address)
{
    char *found = w->p.fakeTouch((CUdeviceptr)(uintptr_t)address);

    return found != NULL ? found : address; /* host memory */
}

static void set_halves(struct rsched_put *put, struct rsched_run halves[2],
                       const char *first, const char *rest)
{
    uint64_t bytes = put->bytes / 2;

    if (rest == NULL)
        return;
    halves[0] = (struct rsched_run){0, bytes, 1, 0};
    halves[1] = (struct rsched_run){(intptr_t)rest - (intptr_t)first,
                                    put->bytes - bytes, 1, 0};
    put->layout = (struct rsched_layout){halves, 2};
}

/* @param sends, receives: what this rank has a part in
 * @param peer itself, or the other one */
static int create(struct rank *self, struct world *w, int peer, bool sends,
                  bool receives)
{
    const void *send[MOST_PUTS];
    void *receive[MOST_PUTS];
    struct rsched_exchange_params params = {.send = send, .receive = receive};
    struct rsched_pattern *pattern;
    int error;

    RANK_CHECK(rsched_pattern_create("corners", &pattern) == 0);
    for (int i = 0; i < w->num_puts; i++) {
        struct rsched_put put = {.bytes = w->puts[i].bytes,
                                 .source = self->rank,
                                 .destination = peer};

        struct rsched_run halves[2];

        if (w->puts[i].rows)
            put.layout = (struct rsched_layout){&rows, 1};
        set_halves(&put, halves, w->puts[i].send, w->rests[i].send);
        send[i] = w->puts[i].send;
        receive[i] = w->puts[i].receive;
        RANK_CHECK(!sends || rsched_pattern_add_put(pattern, &put) >= 0);
        set_halves(&put, halves, w->puts[i].receive, w->rests[i].receive);
        put.source = peer;
        put.destination = self->rank;
        RANK_CHECK(!receives || rsched_pattern_add_receive(pattern, &put) >= 0);
    }
    params.pattern = pattern;
    error = rsched_exchange_create(self->context, &params, &w->x);
    rsched_pattern_destroy(pattern);
    RANK_CHECK(error == 0);
    return 0;
}

static size_t place(const struct put *put, uint64_t at)
{
    return put->rows ? at / ROW * PITCH + at % ROW : at;
}

/* Where the processor finds a byte of a put's buffer. */
static char *find(const struct world *w, const struct put *put, char *first,
                  char *rest, uint64_t at)
{
    if (rest != NULL && at >= put->bytes / 2)
        return touch(w, rest) + (at - put->bytes / 2);
    return touch(w, first) + place(put, at);
}

static char *sent(const struct world *w, int i, uint64_t at)
{
    return find(w, &w->puts[i], w->puts[i].send, w->rests[i].send, at);
}

static char *received(const struct world *w, int i, uint64_t at)
{
    return find(w, &w->puts[i], w->puts[i].receive, w->rests[i].receive, at);
}

static char byte_of(int rank, int epoch, int put, uint64_t at)
{
    return (char)(rank * 71 + epoch * 29 + put * 13 + (int)(at % 241));
}

static void fill(const struct rank *self, struct world *w, int epoch)
{
    for (int i = 0; i < w->num_puts; i++) {
        for (uint64_t at = 0; at < w->puts[i].bytes; at++) {
            *sent(w, i, at) = byte_of(self->rank, epoch, i, at);
            *received(w, i, at) = 0;
        }
    }
}

static int compare(struct rank *self, struct world *w, int peer, int epoch)
{
    for (int i = 0; i < w->num_puts; i++) {
        for (uint64_t at = 0; at < w->puts[i].bytes; at++)
            RANK_CHECK(*received(w, i, at) == byte_of(peer, epoch, i, at));
    }
    return 0;
}

static int run(struct rank *self, struct world *w, int peer, int epochs)
{
    for (int epoch = 0; epoch < epochs; epoch++) {
        fill(self, w, epoch);
        RANK_CHECK(rsched_exchange_start(w->x) == 0);
        RANK_CHECK(rsched_exchange_wait(w->x) == 0);
        RANK_CHECK(compare(self, w, peer, epoch) == 0);
    }
    return 0;
}

/* Of the epochs of run(). */
static int check_way(struct rank *self, struct world *w, enum rsched_way way)
{
    struct rsched_stats stats;
    uint64_t bytes = 0;

    for (int i = 0; i < w->num_puts; i++)
        bytes += w->puts[i].bytes;
    rsched_exchange_get_stats(w->x, &stats);
    RANK_CHECK(stats.way_bytes[way] == EPOCHS * bytes);
    return 0;
}

static enum rsched_way way_wanted(void)
{
    return strcmp(getenv("RSCHED_GPU_WAY"), "staged") == 0
               ? RSCHED_WAY_STAGED
               : RSCHED_WAY_CUDA_IPC;
}

static void destroy(struct rank *self, struct world *w)
{
    rsched_exchange_destroy(w->x);
    mesh_barrier(self->end); /* nobody has the memory open any more */
}

/* ---- cases ---- */

static int exchange_all(struct rank *self, struct world *w, enum rsched_way way)
{
    int other = 1 - self->rank;

    RANK_CHECK(create(self, w, other, true, true) == 0);
    RANK_CHECK(run(self, w, other, EPOCHS) == 0);
    RANK_CHECK(check_way(self, w, way) == 0);
    destroy(self, w);
    RANK_CHECK(create(self, w, self->rank, true, true) == 0);
    RANK_CHECK(run(self, w, self->rank, EPOCHS) == 0);
    RANK_CHECK(check_way(self, w, RSCHED_WAY_SELF) == 0);
    destroy(self, w);
    return 0;
}

/* Allocations that touch are no one allocation: a copy lies in one. */
static int case_neighbors(struct rank *self)
{
    struct world w = {.num_puts = 2};
    char *memory[4];

    mesh_barrier(self->end);
    for (int turn = 0; turn < 2; turn++) {
        /* Ranks may be threads: one after the other. */
        if (turn == self->rank) {
            program_begin(&w.p, self->rank);
            for (int i = 0; i < 4; i++)
                memory[i] = allocate(&w.p, PART);
        }
        mesh_barrier(self->end);
    }
    RANK_CHECK(memory[1] == memory[0] + PART);
    RANK_CHECK(memory[3] == memory[2] + PART);
    for (int i = 0; i < 2; i++)
        w.puts[i] = (struct put){memory[i], memory[i + 2], PART, false};
    RANK_CHECK(exchange_all(self, &w, way_wanted()) == 0);
    for (int i = 0; i < 4; i++)
        release(&w.p, memory[i]);
    program_end(&w.p, self->rank);
    return 0;
}

/* What is reserved at once, and mapped one by one. */
struct mapped {
    CUdeviceptr address;
    CUmemGenericAllocationHandle parts[3];
};

static void map(struct program *p, struct mapped *m, int gpu)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu}};
    const CUmemAccessDesc access = {
        .location = prop.location,
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    if (p->cuMemAddressReserve(&m->address, 3 * PART, 0, 0, 0) != CUDA_SUCCESS)
        abort();
    for (int i = 0; i < 3; i++) {
        CUdeviceptr at = m->address + (CUdeviceptr)i * PART;

        if (p->cuMemCreate(&m->parts[i], PART, &prop, 0) != CUDA_SUCCESS ||
            p->cuMemMap(at, PART, 0, m->parts[i], 0) != CUDA_SUCCESS ||
            p->cuMemSetAccess(at, PART, &access, 1) != CUDA_SUCCESS)
            abort();
    }
}

static void unmap(struct program *p, struct mapped *m)
{
    for (int i = 0; i < 3; i++) {
        p->cuMemUnmap(m->address + (CUdeviceptr)i * PART, PART);
        p->cuMemRelease(m->parts[i]);
    }
    p->cuMemAddressFree(m->address, 3 * PART);
}

/* In mapped memory: within the second part, or across two of them, which no
 * handle is of. */
static int with_mapped(struct rank *self, size_t at, enum rsched_way way)
{
    struct world w = {.num_puts = 1};
    struct mapped m[2];

    program_begin(&w.p, self->rank);
    for (int i = 0; i < 2; i++)
        map(&w.p, &m[i], self->rank);
    w.puts[0] = (struct put){(char *)(uintptr_t)m[0].address + at,
                             (char *)(uintptr_t)m[1].address + at, PART - 500,
                             false};
    RANK_CHECK(exchange_all(self, &w, way) == 0);
    for (int i = 0; i < 2; i++)
        unmap(&w.p, &m[i]);
    program_end(&w.p, self->rank);
    return 0;
}

static int case_mapped(struct rank *self)
{
    return with_mapped(self, PART + 100, way_wanted());
}

static int case_across(struct rank *self)
{
    return with_mapped(self, PART + 1000, RSCHED_WAY_STAGED);
}

/* A message with pieces on both GPUs. */
static int case_two_gpus(struct rank *self)
{
    struct world w = {.num_puts = 2};
    struct program second;

    program_begin(&second, 1 - self->rank);
    w.puts[1] = (struct put){allocate(&second, PART), allocate(&second, PART),
                             PART, false};
    program_begin(&w.p, self->rank);
    w.puts[0] = (struct put){allocate(&w.p, PART), allocate(&w.p, PART), PART,
                             false};
    RANK_CHECK(exchange_all(self, &w, way_wanted()) == 0);
    for (int i = 0; i < 2; i++) {
        release(&w.p, w.puts[i].send);
        release(&w.p, w.puts[i].receive);
    }
    program_end(&second, 1 - self->rank);
    program_end(&w.p, self->rank);
    return 0;
}

/* Puts whose halves lie in the memory of two GPUs, and in a GPU's after other
 * memory. */
static int case_halves(struct rank *self)
{
    struct world w = {.num_puts = 3};
    struct program second;
    char *own, *others, *host = malloc(3 * PART);
    CUdeviceptr managed;

    program_begin(&second, 1 - self->rank);
    others = allocate(&second, 2 * PART);
    program_begin(&w.p, self->rank);
    own = allocate(&w.p, 6 * PART);
    RANK_CHECK(w.p.cuMemAllocManaged(&managed, PART, CU_MEM_ATTACH_GLOBAL) ==
               CUDA_SUCCESS);
    w.puts[0] = (struct put){host, host + PART, PART, false};
    w.rests[0] = (struct rest){own, own + PART};
    w.puts[1] = (struct put){(char *)(uintptr_t)managed, host + 2 * PART, PART,
                             false};
    w.rests[1] = (struct rest){own + 2 * PART, own + 3 * PART};
    w.puts[2] = (struct put){own + 4 * PART, others, PART, false};
    w.rests[2] = (struct rest){others + PART, own + 5 * PART};
    RANK_CHECK(exchange_all(self, &w, RSCHED_WAY_STAGED) == 0);
    release(&w.p, own);
    release(&w.p, others);
    w.p.cuMemFree(managed);
    free(host);
    program_end(&second, 1 - self->rank);
    program_end(&w.p, self->rank);
    return 0;
}

/* Rows at a distance that copies in two dimensions do not take, without a
 * kernel. */
static int case_pitch(struct rank *self)
{
    struct world w = {.num_puts = 1};

    program_begin(&w.p, self->rank);
    w.puts[0] = (struct put){allocate(&w.p, (size_t)ROWS * PITCH),
                             allocate(&w.p, (size_t)ROWS * PITCH),
                             (uint64_t)ROWS * ROW, true};
    RANK_CHECK(exchange_all(self, &w, way_wanted()) == 0);
    RANK_CHECK(w.p.fakeCount(FAKE_LAUNCHES) == 0);
    release(&w.p, w.puts[0].send);
    release(&w.p, w.puts[0].receive);
    program_end(&w.p, self->rank);
    return 0;
}

/* The program captures a stream all the while, with the mode that forbids most:
 * exchanges work, and so does the capture. */
static int case_capturing(struct rank *self)
{
    struct world w = {.num_puts = 2};
    CUstream stream;
    CUgraph graph;

    program_begin(&w.p, self->rank);
    RANK_CHECK(w.p.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) ==
               CUDA_SUCCESS);
    w.puts[0] = (struct put){allocate(&w.p, PART), allocate(&w.p, PART), PART,
                             false};
    w.puts[1] = (struct put){allocate(&w.p, (size_t)ROWS * PITCH),
                             allocate(&w.p, (size_t)ROWS * PITCH),
                             (uint64_t)ROWS * ROW, true};
    mesh_barrier(self->end);
    RANK_CHECK(w.p.cuStreamBeginCapture(
                   stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    RANK_CHECK(exchange_all(self, &w, way_wanted()) == 0);
    RANK_CHECK(w.p.cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    RANK_CHECK(w.p.cuGraphDestroy(graph) == CUDA_SUCCESS);
    mesh_barrier(self->end);
    for (int i = 0; i < 2; i++) {
        release(&w.p, w.puts[i].send);
        release(&w.p, w.puts[i].receive);
    }
    RANK_CHECK(w.p.cuStreamDestroy(stream) == CUDA_SUCCESS);
    program_end(&w.p, self->rank);
    return 0;
}

/* Rank 1 dies when all that it sends is in rank 0's slots, whose copies take
 * longer than it takes to learn of that. */
static int case_died(struct rank *self)
{
    struct world w = {.num_puts = 1};

    program_begin(&w.p, self->rank);
    w.puts[0] = (struct put){allocate(&w.p, PART), allocate(&w.p, PART), PART,
                             false};
    RANK_CHECK(create(self, &w, 1 - self->rank, self->rank == 1,
                      self->rank == 0) == 0);
    fill(self, &w, 0);
    if (self->rank == 1) {
        RANK_CHECK(rsched_exchange_start(w.x) == 0);
        RANK_CHECK(rsched_exchange_wait(w.x) == 0);
        raise(SIGKILL);
    }
    setenv("FAKE_CUDA_LATE", "400", 1);
    RANK_CHECK(rsched_exchange_start(w.x) == 0);
    RANK_CHECK(rsched_exchange_wait(w.x) == 0);
    RANK_CHECK(compare(self, &w, 1, 0) == 0);
    /* There is no other one. */
    if (rsched_exchange_start(w.x) == 0)
        RANK_CHECK(rsched_exchange_wait(w.x) == RSCHED_EPEER);
    rsched_exchange_destroy(w.x);
    release(&w.p, w.puts[0].send);
    release(&w.p, w.puts[0].receive);
    program_end(&w.p, self->rank);
    return 0;
}

/* Rank 1 has no GPU memory and cannot have a stream to pull with, but could at
 * the second attempt. The exchange fails, and the program's context is what it
 * was. */
static int case_no_stream(struct rank *self)
{
    struct world w = {.num_puts = 1};
    CUcontext current;
    int error;

    program_begin(&w.p, self->rank);
    if (self->rank == 0)
        w.puts[0].send = allocate(&w.p, PART);
    else
        w.puts[0].receive = calloc(1, PART);
    w.puts[0].bytes = PART;
    RANK_CHECK(create(self, &w, 1 - self->rank, self->rank == 0,
                      self->rank == 1) == 0);
    if (self->rank == 1)
        setenv("FAKE_CUDA_FAIL", "cuStreamCreateWithPriority:1:2:1", 1);
    RANK_CHECK(rsched_exchange_start(w.x) == 0);
    error = rsched_exchange_wait(w.x);
    if (self->rank == 1)
        RANK_CHECK(error == RSCHED_ENOMEM &&
                   strstr(rsched_last_error(), "cuStreamCreate") != NULL);
    else
        RANK_CHECK(error == RSCHED_EPEER);
    RANK_CHECK(w.p.cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    RANK_CHECK(current == w.p.context);
    destroy(self, &w);
    if (self->rank == 0)
        release(&w.p, w.puts[0].send);
    else
        free(w.puts[0].receive);
    program_end(&w.p, self->rank);
    return 0;
}

static int bind(struct world *w, char *receive)
{
    const void *send = w->puts[0].send;
    void *to = receive;

    w->puts[0].receive = receive;
    return rsched_exchange_bind(w->x, &send, &to);
}

/* Rank 1, which has pulled, cannot be bound to memory of its other GPU, and is bound
 * to the host's: rank 0 does not know of it, and has it pull. */
static int case_no_rebind(struct rank *self)
{
    struct world w = {.num_puts = 1};
    char *memory = NULL, *other = NULL, *host = calloc(1, PART);
    struct program second;

    program_begin(&second, 1 - self->rank);
    other = allocate(&second, PART);
    program_begin(&w.p, self->rank);
    memory = allocate(&w.p, PART);
    w.puts[0] = (struct put){memory, memory, PART, false};
    RANK_CHECK(create(self, &w, 1 - self->rank, self->rank == 0,
                      self->rank == 1) == 0);
    for (int epoch = 0; epoch < 2; epoch++) {
        if (self->rank == 1 && epoch > 0) {
            setenv("FAKE_CUDA_FAIL", "cuStreamCreateWithPriority:1:2", 1);
            RANK_CHECK(bind(&w, other) == RSCHED_ENOMEM);
            unsetenv("FAKE_CUDA_FAIL");
            RANK_CHECK(bind(&w, host) == 0);
        }
        if (self->rank == 0)
            memset(touch(&w, memory), 1 + epoch, PART);
        RANK_CHECK(rsched_exchange_start(w.x) == 0);
        RANK_CHECK(rsched_exchange_wait(w.x) == 0);
        RANK_CHECK(self->rank == 0 ||
                   *touch(&w, w.puts[0].receive) == 1 + epoch);
    }
    if (self->rank == 0) {
        struct rsched_stats stats;

        rsched_exchange_get_stats(w.x, &stats);
        RANK_CHECK(stats.way_bytes[RSCHED_WAY_CUDA_IPC] == 2 * PART);
    }
    destroy(self, &w);
    release(&w.p, memory);
    release(&w.p, other);
    free(host);
    program_end(&second, 1 - self->rank);
    program_end(&w.p, self->rank);
    return 0;
}

static int open_on(struct rsched_exchange *const sets[2], int gpu)
{
    struct rsched_opening *opening;
    int error = rsched_exchange_open_device(sets, gpu, &opening);

    if (error == 0)
        rsched_opening_close(opening);
    return error;
}

/* Opening exchanges for kernels: what the driver refuses is told and undone,
 * and a program that captures may do it. */
static int case_opening(struct rank *self)
{
    static const char *const refused[] = {
        "cuDevicePrimaryCtxRetain:1:2", "cuMemHostGetDevicePointer:1:2",
        "cuMemAlloc:1:2", "cuStreamCreateWithPriority:1:2",
        "cuMemcpyAsync:1:2"};
    struct world even = {.num_puts = 1}, odd = {.num_puts = 1};
    struct rsched_exchange *sets[2];
    unsigned long long held, memory;
    CUcontext current;
    CUstream stream;
    CUgraph graph;

    program_begin(&even.p, self->rank);
    odd.p = even.p;
    even.puts[0] = odd.puts[0] = (struct put){
        allocate(&even.p, PART), allocate(&even.p, PART), PART, false};
    RANK_CHECK(create(self, &even, 1 - self->rank, true, true) == 0);
    RANK_CHECK(create(self, &odd, 1 - self->rank, true, true) == 0);
    sets[0] = even.x;
    sets[1] = odd.x;
    held = even.p.fakeCount(FAKE_CONTEXTS);
    memory = even.p.fakeCount(FAKE_DEVICE);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        setenv("FAKE_CUDA_FAIL", refused[i], 1);
        RANK_CHECK(open_on(sets, self->rank) == RSCHED_ENOMEM);
        RANK_CHECK(strncmp(strchr(rsched_last_error(), 'c'), refused[i],
                           strcspn(refused[i], ":")) == 0);
        unsetenv("FAKE_CUDA_FAIL");
        RANK_CHECK(even.p.fakeCount(FAKE_CONTEXTS) == held);
        RANK_CHECK(even.p.fakeCount(FAKE_DEVICE) == memory);
    }
    RANK_CHECK(open_on(sets, 7) == RSCHED_ESYS);
    RANK_CHECK(even.p.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) ==
               CUDA_SUCCESS);
    RANK_CHECK(even.p.cuStreamBeginCapture(
                   stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    RANK_CHECK(open_on(sets, self->rank) == 0);
    RANK_CHECK(even.p.cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    RANK_CHECK(even.p.cuGraphDestroy(graph) == CUDA_SUCCESS);
    RANK_CHECK(even.p.cuStreamDestroy(stream) == CUDA_SUCCESS);
    RANK_CHECK(even.p.fakeCount(FAKE_CONTEXTS) == held);
    RANK_CHECK(even.p.cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    RANK_CHECK(current == even.p.context);
    destroy(self, &odd);
    destroy(self, &even);
    release(&even.p, even.puts[0].send);
    release(&even.p, even.puts[0].receive);
    program_end(&even.p, self->rank);
    return 0;
}

static const struct {
    const char *name;
    rank_fn *main;
    int result;
} cases[] = {
    {"neighbors", case_neighbors, 0}, {"mapped", case_mapped, 0},
    {"across", case_across, 0},       {"two-gpus", case_two_gpus, 0},
    {"pitch", case_pitch, 0},         {"capturing", case_capturing, 0},
    {"opening", case_opening, 0},     {"halves", case_halves, 0},
    {"died", case_died, RANKS_KILLED}, {"no-stream", case_no_stream, 0},
    {"no-rebind", case_no_rebind, 0},
};

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[2], cases[i].name) == 0)
            return ranks_run(2, strcmp(argv[1], "threads") == 0, cases[i].main,
                             NULL) == cases[i].result
                       ? 0
                       : 1;
    }
    return 2;
}
