/* SPDX-License-Identifier: BSD-3-Clause */
/* The two processes, and how they talk and meet. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "librsched/base/config.h"
#include "librsched/base/cpus.h"
#include "tools/pair_inside.h"
#include "tools/tool.h"

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

double pair_meet(struct pair *pair, double value)
{
    struct pair_meeting *m = &pair->memory->meeting;
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

double pair_measure_line(struct pair *pair)
{
    /* What strangers exchange does not go that way. */
    if (pair->settings != NULL)
        return 0;
    return pair_meet(pair, rs_line_round_trip(&pair->memory->line, pair->side));
}

bool pair_is_first(const struct pair *pair)
{
    return pair->side == 0;
}

bool pair_is_near(double ns)
{
    return ns < RS_LINE_NEAR_BELOW;
}

void pair_choose_class(struct pair *pair, const char *name)
{
    pair->any = name != NULL && strcmp(name, "any") == 0;
    pair->near = name != NULL ? strcmp(name, "near") == 0
                              : pair_is_near(pair_measure_line(pair));
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

/* Two names of nodes: there is nobody else whose they could be. */
static int become_stranger(const struct pair *pair)
{
    bool good = rs_config_set("RSCHED_NODE", pair->side == 0 ? "probe-0" : "probe-1");

    for (const char *const *s = pair->settings; *s != NULL && good; s += 2)
        good = rs_config_set(s[0], s[1]);
    return good ? TOOL_OK : tool_bad("a setting is not as it was");
}

static int run_side(struct pair *pair, pair_fn *main, void *arg, uint64_t job)
{
    int status = pin(pair->where->cores[pair->side]);

    if (status == TOOL_OK && pair->settings != NULL)
        status = become_stranger(pair);
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
    return pair_run_strangers(where, NULL, main, arg);
}

int pair_run_strangers(const struct rs_numa_pair *where, const char *const *settings,
                       pair_fn *main, void *arg)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    struct rs_cpus allowed;
    int status;

    if (pair == NULL)
        return tool_bad("no memory");
    pair->where = where;
    pair->settings = settings;
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
