/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/pair.h"

#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "librsched/base/cpus.h"
#include "librsched/base/huge.h"
#include "librsched/base/line.h"
#include "librsched/run/run.h"
#include "tools/tool.h"

enum {
    LINE = 64,
    PAGE = 4096,
    LINES = 4096,      /* measurements of a line that are kept */
    BLOCKS = 3,
    GPU_BLOCKS = 6, /* as it takes ten times as long to get ready for them */
    EPOCHS_MOST = 500, /* of a block */
    TRIES = 40,        /* of a block that should keep to the class */
};

/* A block takes about this long, if it has several epochs. Of GPU memory they are
 * longer, and differ more. */
static const double block_ns = 400000, gpu_block_ns = 1000000;

struct meeting {
    _Alignas(LINE) atomic_uint_fast64_t arrived;
    _Atomic double value[2];
};

struct memory {
    struct rs_line line;
    struct meeting meeting;
};

struct pair {
    int side, socket;
    pid_t other;
    struct memory *memory;
    int copied; /* memfd of what is copied without exchanges */
    uint64_t meetings;
    struct rsched_context *context;
    uint64_t tags;
    bool near, any; /* class of blocks */
    const struct rs_numa_pair *where;
    unsigned blocks, mixed;
    unsigned num_lines;
    double lines[LINES];
};

/* ---- out of band ---- */

struct rsched_oob_request {
    struct pair *pair;
    uint64_t tag;
    void *buffer; /* NULL: it has been sent */
    size_t length;
};

static int make_request(struct pair *pair, uint64_t tag, void *buffer,
                        size_t length, struct rsched_oob_request **request)
{
    *request = malloc(sizeof(**request));
    if (*request == NULL)
        return RSCHED_ENOMEM;
    **request = (struct rsched_oob_request){pair, tag, buffer, length};
    return 0;
}

/* The socket takes more than is ever under way. */
static int pair_isend(void *arg, int peer, uint64_t tag, const void *buffer,
                      size_t length, struct rsched_oob_request **request)
{
    struct pair *pair = arg;
    struct iovec parts[2] = {{&tag, sizeof(tag)},
                             {(void *)(uintptr_t)buffer, length}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

    (void)peer;
    if (sendmsg(pair->socket, &message, MSG_NOSIGNAL) < 0)
        return RSCHED_EPEER;
    return make_request(pair, tag, NULL, length, request);
}

static int pair_irecv(void *arg, int peer, uint64_t tag, void *buffer,
                      size_t length, struct rsched_oob_request **request)
{
    (void)peer;
    return make_request(arg, tag, buffer, length, request);
}

/* Only the first packet is looked at; if another request wants that, it is
 * tested too. */
static int pair_test(void *arg, struct rsched_oob_request *request, bool *done)
{
    struct pair *pair = arg;
    uint64_t tag = 0;
    struct iovec parts[2] = {{&tag, sizeof(tag)},
                             {request->buffer, request->length}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t got;

    *done = request->buffer == NULL;
    if (!*done) {
        got = recv(pair->socket, &tag, sizeof(tag), MSG_PEEK | MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return RSCHED_EPEER;
        if (got < 0 || tag != request->tag)
            return 0;
        got = recvmsg(pair->socket, &message, 0);
        if (got != (ssize_t)(sizeof(tag) + request->length))
            return RSCHED_EMISMATCH;
        *done = true;
    }
    free(request);
    return 0;
}

static void pair_cancel(void *arg, struct rsched_oob_request *request)
{
    (void)arg;
    free(request);
}

/* ---- meetings ---- */

/* Goes when the other one has gone: it has said why. */
static void look_for_other(const struct pair *pair)
{
    if (pair->side == 1 || waitpid(pair->other, NULL, WNOHANG) == 0)
        return;
    fprintf(stderr, "rsched: the second process has ended\n");
    exit(TOOL_FAILED);
}

/* @return the larger of the values that the two have brought */
static double meet(struct pair *pair, double value)
{
    struct meeting *m = &pair->memory->meeting;
    double other = 0;

    /* Twice: the values must have been read before the next ones come. */
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 0)
            m->value[pair->side] = value;
        else
            other = m->value[1 - pair->side];
        pair->meetings++;
        atomic_fetch_add(&m->arrived, 1);
        for (unsigned i = 1; atomic_load(&m->arrived) < 2 * pair->meetings;
             i++) {
            if (i % 1000000 == 0)
                look_for_other(pair);
        }
    }
    return value > other ? value : other;
}

static double measure_line(struct pair *pair)
{
    return meet(pair, rs_line_round_trip(&pair->memory->line, pair->side));
}

bool pair_is_first(const struct pair *pair)
{
    return pair->side == 0;
}

static bool is_near(double ns)
{
    return ns < RS_LINE_NEAR_BELOW;
}

void pair_choose_class(struct pair *pair, const char *name)
{
    pair->any = name != NULL && strcmp(name, "any") == 0;
    pair->near = name != NULL ? strcmp(name, "near") == 0
                              : is_near(measure_line(pair));
}

const char *pair_class(const struct pair *pair)
{
    return pair->any ? "any" : pair->near ? "near" : "far";
}

uint64_t pair_line(struct pair *pair)
{
    if (pair->num_lines == 0)
        return 0;
    qsort(pair->lines, pair->num_lines, sizeof(*pair->lines), rs_line_compare);
    return (uint64_t)(pair->lines[pair->num_lines / 2] * 1000 / 2);
}

void pair_blocks(const struct pair *pair, unsigned *all, unsigned *mixed)
{
    *all = pair->blocks;
    *mixed = pair->mixed;
}

/* ---- exchanges ---- */

struct station {
    struct rsched_exchange *exchanges[PAIR_WINDOW];
    unsigned window;
    char *send, *receive;
    uint64_t bytes; /* of each buffer */
    bool mapped, reads, on_gpu, huge, settles, updates;
    bool bare;           /* no exchanges: this side copies so many bytes */
    uint64_t part, from; /* from there on; side 0 writes them */
    int gpu;
    struct rsched_gpu_memory gpu_send, gpu_receive;
};

static uint64_t room_for(const struct pair_work *work, unsigned message)
{
    return work->bytes[message] / LINE * LINE + LINE;
}

/* A context of the GPU holds it; the host's part is of no use here. */
static char *get_gpu_buffer(const struct station *s, struct rsched_gpu_memory *gpu)
{
    const struct rsched_gpu_ops *gpus = rsched_gpus();
    int count;

    if (gpus == NULL || gpus->open(&count) != 0 ||
        gpus->memory_create(s->gpu, LINE, s->bytes, gpu) != 0) {
        *gpu = (struct rsched_gpu_memory){0};
        return NULL;
    }
    return (char *)(uintptr_t)gpu->gpu;
}

static char *get_buffer(const struct station *s, struct rsched_gpu_memory *gpu)
{
    uint64_t unit = s->huge ? rs_huge_unit() : PAGE;
    void *memory = NULL;

    if (s->on_gpu)
        return get_gpu_buffer(s, gpu);
    if (!s->mapped)
        memory = aligned_alloc(unit, (s->bytes + unit - 1) / unit * unit);
    else if (rsched_alloc(s->bytes, &memory) != 0)
        memory = NULL;
    if (memory != NULL)
        memset(memory, 1, s->huge ? (s->bytes + unit - 1) / unit * unit
                                  : s->bytes);
    return memory;
}

static bool make_huge(const char *memory, uint64_t bytes)
{
    const char *low = memory, *high = memory + bytes;

    return rs_huge_make(&low, &high) && low == memory && high == low + bytes;
}

static void put_buffer(const struct station *s, char *memory,
                       struct rsched_gpu_memory *gpu)
{
    if (s->on_gpu && memory != NULL)
        rsched_gpus()->memory_destroy(gpu);
    if (s->on_gpu)
        return;
    if (s->mapped)
        rsched_free(memory);
    else
        free(memory);
}

static void close_exchanges(struct station *s)
{
    for (unsigned i = 0; i < s->window; i++)
        rsched_exchange_destroy(s->exchanges[i]);
    s->window = 0;
}

static void close_station(struct station *s)
{
    close_exchanges(s);
    put_buffer(s, s->send, &s->gpu_send);
    put_buffer(s, s->receive, &s->gpu_receive);
}

static int add_message(const struct pair *pair, const struct pair_work *work,
                       unsigned message, struct rsched_pattern *pattern,
                       bool put)
{
    int other = work->self[message] ? pair->side : 1 - pair->side;
    struct rsched_put p = {.bytes = work->bytes[message],
                           .source = put ? pair->side : other,
                           .destination = put ? other : pair->side};

    return (int)(put ? rsched_pattern_add_put(pattern, &p)
                     : rsched_pattern_add_receive(pattern, &p));
}

/* Whether this side sends (or receives) a message. */
static bool takes_part(const struct pair *pair, const struct pair_work *work,
                       bool sends)
{
    return !work->one_way || (pair->side == 0) == sends;
}

/* The next one of the window; `*at` is where its messages lie in the buffers. */
static int make_exchange(struct pair *pair, const struct pair_work *work,
                         struct station *s, uint64_t *at)
{
    void *sends[PAIR_MESSAGES], *receives[PAIR_MESSAGES];
    struct rsched_pattern *pattern;
    struct rsched_exchange_params params = {
        .send = (const void *const *)sends,
        .receive = receives,
        .tag = ++pair->tags,
    };
    int error = rsched_pattern_create("probe", &pattern);

    if (error != 0)
        return error;
    for (unsigned i = 0; i < work->messages && error >= 0; i++) {
        sends[i] = s->send + *at;
        receives[i] = s->receive + *at;
        *at += room_for(work, i);
        if (takes_part(pair, work, true))
            error = add_message(pair, work, i, pattern, true);
        if (error >= 0 && takes_part(pair, work, false))
            error = add_message(pair, work, i, pattern, false);
    }
    params.pattern = pattern;
    if (error >= 0)
        error = rsched_exchange_create(pair->context, &params,
                                       &s->exchanges[s->window]);
    rsched_pattern_destroy(pattern);
    s->window += error == 0;
    return error;
}

static int no_buffers(const struct station *s)
{
    if (s->on_gpu)
        return tool_library(RSCHED_ENOMEM);
    return tool_bad("no memory for two buffers of %llu bytes",
                    (unsigned long long)s->bytes);
}

static unsigned window_of(const struct pair_work *work)
{
    return work->window == 0 ? 1 : work->window;
}

static void set_host_ways(struct pair *pair, const struct rs_host_ways *ways)
{
    rs_ways_set_host(&pair->context->ways, ways);
    for (int d = 0; d < RS_NUM_HOST_DISTANCES; d++)
        pair->context->ways.host[d].shortest_once = rs_ways_shortest_once(ways);
}

void pair_set_gpu_ways(struct pair *pair, const struct rs_ways *ways)
{
    memcpy(pair->context->ways.gpu, ways->gpu, sizeof(ways->gpu));
}

static int open_station(struct pair *pair, const struct pair_work *work,
                        const struct rs_host_ways *ways, struct station *s)
{
    uint64_t at = 0;
    int error = 0;

    *s = (struct station){.mapped = work->mapped,
                          .reads = work->reads,
                          .settles = work->settles,
                          .on_gpu = work->on_gpu,
                          .updates = work->updates,
                          .huge = work->huge && rs_huge_unit() > 0,
                          .gpu = work->gpus[pair->side]};
    for (unsigned i = 0; i < work->messages; i++)
        s->bytes += window_of(work) * room_for(work, i);
    s->send = get_buffer(s, &s->gpu_send);
    s->receive = get_buffer(s, &s->gpu_receive);
    if (s->send == NULL || s->receive == NULL) {
        close_station(s);
        return no_buffers(s);
    }
    if (s->huge)
        s->huge = make_huge(s->send, s->bytes);
    if (ways != NULL)
        set_host_ways(pair, ways);
    for (unsigned i = 0; i < window_of(work) && error == 0; i++)
        error = make_exchange(pair, work, s, &at);
    if (error == 0)
        return TOOL_OK;
    close_station(s);
    return tool_library(error);
}

/* ---- time ---- */

/* Each line of the send buffer is in this core's cache, and no other's. Also
 * where it is not sent, so that nobody waits for the other to write. */
static void rewrite(const struct station *s)
{
    for (uint64_t i = 0; i < s->bytes; i += LINE)
        ++*(volatile char *)&s->send[i];
}

/* One number of each line. */
static void read_all(const struct station *s)
{
    for (uint64_t i = 0; i < s->bytes; i += LINE)
        (void)*(const volatile uint64_t *)(const void *)&s->receive[i];
}

static int run_epoch(const struct station *s)
{
    int error = 0;

    if (s->bare)
        memcpy(s->receive + s->from, s->send + s->from, s->part);
    for (unsigned i = 0; i < s->window && error == 0; i++)
        error = rsched_exchange_start(s->exchanges[i]);
    for (unsigned i = 0; i < s->window && error == 0; i++)
        error = rsched_exchange_wait(s->exchanges[i]);
    return error;
}

/* Buffers of so many bytes are not written in the same time by both. Who is ready
 * first would wait for the other, and that be taken for a part of the epoch. */
enum { UNEVEN_FROM = 4 << 10 };

/* @return ns of an epoch, or below 0 after a line on standard error */
static double run_block(struct pair *pair, const struct station *s, unsigned epochs)
{
    double sum = 0;

    for (unsigned i = 0; i < epochs; i++) {
        double start, clock;
        int error;

        if (i % 2 == 0 && !s->on_gpu && !(s->bare && pair->side == 1))
            rewrite(s);
        if (s->bytes >= UNEVEN_FROM)
            meet(pair, 0);
        start = rs_line_now();
        clock = rs_line_now() - start; /* what reading the clock adds */
        start = rs_line_now();
        error = run_epoch(s);
        if (s->reads)
            read_all(s);
        sum += rs_line_now() - start - clock;
        if (error != 0) {
            tool_library(error);
            return -1;
        }
    }
    /* What takes no longer than to read a clock may seem to take nothing. */
    return sum > epochs ? sum / epochs : 1;
}

/* Both decide alike, since both know the larger of each value. */
static double run_in_class(struct pair *pair, const struct station *s,
                           unsigned epochs)
{
    double ns = 0, before, after;
    int tries = 0;

    pair->blocks++;
    do {
        before = measure_line(pair);
        ns = run_block(pair, s, epochs);
        /* NaN and errors would be lost in the larger value. */
        if (meet(pair, ns < 0) > 0)
            return -1;
        ns = meet(pair, ns);
        after = measure_line(pair);
        if (pair->any ||
            (is_near(before) == pair->near && is_near(after) == pair->near)) {
            if (pair->num_lines + 2 <= LINES) {
                pair->lines[pair->num_lines++] = before;
                pair->lines[pair->num_lines++] = after;
            }
            return ns;
        }
        if (tries > 0)
            usleep(20000);
    } while (++tries < TRIES);
    pair->mixed++;
    return ns;
}

static unsigned choose_epochs(const struct station *s, double ns)
{
    double epochs = (s->on_gpu ? gpu_block_ns : block_ns) / (ns > 1 ? ns : 1);

    if (epochs > EPOCHS_MOST)
        return EPOCHS_MOST;
    return epochs < 2 ? 2 : (unsigned)epochs / 2 * 2;
}

/* The first trial of stores is over after so many epochs (engines/common/trial.h): it
 * begins when all slots have been used, of which there are many for short messages. */
static unsigned settled_after(uint64_t bytes)
{
    return bytes > 64 << 10 ? 64 : 300;
}

/* Epochs before those that are measured: where ways are updated, as many starts
 * as it takes to know how many are in flight (rsched_exchange_update()). */
static unsigned warm_up(const struct station *s)
{
    enum { FEW = 4, STARTS = 16 };
    unsigned starts = s->updates ? (STARTS + s->window - 1) / s->window : 0;

    if (s->settles)
        return settled_after(s->bytes);
    return starts > FEW ? starts : FEW;
}

/* As a program would that has all of the window in flight. */
static int update_ways(const struct station *s)
{
    int error = 0;

    for (unsigned i = 0; i < s->window && error == 0; i++)
        error = rsched_exchange_update(s->exchanges[i], NULL);
    return error == 0 ? 0 : tool_library(error);
}

/* @param[out] before what had been sent when the ways of GPU memory were updated
 * @return ns of an epoch, the least of the blocks, or below 0 */
static double run_blocks(struct pair *pair, const struct station *s,
                         struct rsched_stats *before)
{
    double least = HUGE_VAL, ns;
    unsigned epochs;

    *before = (struct rsched_stats){0};
    /* What was in flight before counts no more. */
    if (s->updates && meet(pair, update_ways(s)) > 0)
        return -1;
    ns = run_in_class(pair, s, warm_up(s));
    if (ns >= 0 && s->updates) {
        if (meet(pair, update_ways(s)) > 0)
            return -1;
        rsched_exchange_get_stats(s->exchanges[0], before);
    }
    if (ns >= 0)
        ns = run_in_class(pair, s, 2); /* the first ones warm up */
    epochs = choose_epochs(s, ns);
    for (unsigned i = 0; i < (s->on_gpu ? GPU_BLOCKS : BLOCKS) && ns >= 0; i++) {
        ns = run_in_class(pair, s, epochs);
        if (ns < least)
            least = ns;
    }
    return least;
}

static int measure(struct pair *pair, const struct station *s, struct pair_time *time)
{
    struct rsched_stats stats, before;
    double least = run_blocks(pair, s, &before);

    if (least < 0)
        return TOOL_FAILED;
    *time = (struct pair_time){.ps = least * 1000,
                               .huge = meet(pair, s->huge ? 0 : 1) < 1};
    rsched_exchange_get_stats(s->exchanges[0], &stats);
    for (int way = 0; way < RSCHED_NUM_WAYS; way++)
        time->way_bytes[way] = (uint64_t)meet(
            pair, pair->side == 0 ? (double)(stats.way_bytes[way] -
                                             before.way_bytes[way])
                                  : 0);
    return TOOL_OK;
}

int pair_measure(struct pair *pair, const struct pair_work *work,
                 const struct rs_host_ways *ways, struct pair_time *time)
{
    struct station s;
    int status = open_station(pair, work, ways, &s);

    if (status != TOOL_OK)
        return status;
    status = measure(pair, &s, time);
    meet(pair, 0); /* nobody copies any more */
    close_exchanges(&s);
    meet(pair, 0); /* nor has memory open that is freed */
    close_station(&s);
    return status;
}

int pair_measure_copies(struct pair *pair, uint64_t bytes, bool halves, double *ps)
{
    struct station s = {.bytes = bytes, .bare = true};
    bool fits = pair->side == 1 ||
                ftruncate(pair->copied, (off_t)(2 * bytes)) == 0;
    struct rsched_stats unused;
    double least;

    if (meet(pair, fits ? 0 : 1) > 0)
        return no_buffers(&s);
    s.send = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                  pair->copied, 0);
    if (meet(pair, s.send == MAP_FAILED ? 1 : 0) > 0)
        return no_buffers(&s);
    s.receive = s.send + bytes;
    s.from = halves && pair->side == 0 ? bytes / 2 : 0;
    s.part = halves ? bytes / 2 : pair->side == 0 ? 0 : bytes;
    memset(pair->side == 0 ? s.send : s.receive, 1, bytes);
    meet(pair, 0);
    least = run_blocks(pair, &s, &unused);
    munmap(s.send, 2 * bytes);
    meet(pair, 0); /* the next one may be shorter */
    if (least < 0)
        return TOOL_FAILED;
    *ps = least * 1000;
    return TOOL_OK;
}

/* ---- the two ---- */

static int open_context(struct pair *pair, uint64_t job)
{
    const struct rsched_context_params params = {
        .process = pair->side,
        .num_processes = 2,
        .num_local = 2,
        .num_cores = 2, /* both are bound */
        .job = job,
        .oob = {.arg = pair,
                .isend = pair_isend,
                .irecv = pair_irecv,
                .test = pair_test,
                .cancel = pair_cancel},
    };
    int error = rsched_context_create(&params, &pair->context);

    return error == 0 ? TOOL_OK : tool_library(error);
}

const struct rs_numa_pair *pair_where(const struct pair *pair)
{
    return pair->where;
}

static int pin(int core)
{
    if (rs_cpus_bind_to(core) == 0)
        return TOOL_OK;
    tool_bad("core %d: %s", core, strerror(errno));
    return TOOL_FAILED;
}

static int run_side(struct pair *pair, pair_fn *main, void *arg, uint64_t job)
{
    int status = pin(pair->where->cores[pair->side]);

    if (status == TOOL_OK)
        status = open_context(pair, job);
    if (status == TOOL_OK) {
        status = main(pair, arg);
        rsched_context_destroy(pair->context);
    }
    return status;
}

static int fork_other(struct pair *pair, pair_fn *main, void *arg)
{
    pid_t parent = getpid();
    int sockets[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
        return -1;
    fflush(NULL);
    pair->other = fork();
    if (pair->other != 0) {
        pair->socket = sockets[0];
        close(sockets[1]);
        return pair->other;
    }
    pair->side = 1;
    pair->socket = sockets[1];
    close(sockets[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(TOOL_FAILED);
    _exit(run_side(pair, main, arg, (uint64_t)parent));
}

static int fork_and_run(struct pair *pair, pair_fn *main, void *arg)
{
    int status;

    pair->memory = mmap(NULL, sizeof(*pair->memory), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pair->copied = memfd_create("rsched-probe", MFD_CLOEXEC);
    if (pair->memory == MAP_FAILED || pair->copied < 0 || fork_other(pair, main, arg) < 0) {
        tool_bad("a second process: %s", strerror(errno));
        return TOOL_FAILED;
    }
    status = run_side(pair, main, arg, (uint64_t)getpid());
    if (status != TOOL_OK)
        kill(pair->other, SIGKILL);
    close(pair->socket);
    waitpid(pair->other, NULL, 0);
    munmap(pair->memory, sizeof(*pair->memory));
    close(pair->copied);
    return status;
}

/* Have buffers that are freed go back to the kernel. What was advised to be in huge pages
 * would be the next ones' else, which are to be ordinary memory. */
static void return_buffers(void)
{
#ifdef M_MMAP_THRESHOLD
    enum { LEAST = 128 << 10 };

    /* By itself it grows with what is freed. */
    mallopt(M_MMAP_THRESHOLD, LEAST);
#endif
}

int pair_run(const struct rs_numa_pair *where, pair_fn *main, void *arg)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    struct rs_cpus allowed;
    int status;

    if (pair == NULL)
        return tool_bad("no memory");
    pair->where = where;
    return_buffers();
    if (!rs_cpus_allowed(&allowed)) {
        tool_bad("the cores of this process: %s", strerror(errno));
        free(pair);
        return TOOL_FAILED;
    }
    status = pin(where->cores[1]); /* nobody waits for one that cannot come */
    if (status == TOOL_OK)
        status = fork_and_run(pair, main, arg);
    rs_cpus_bind(&allowed);
    free(pair);
    return status;
}
