/* SPDX-License-Identifier: BSD-3-Clause */
#include "words_way.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/error.h>

/* As production has it: what kernels write often is their own. */
struct words_there {
    struct rsched_device_target target;
    struct rsched_device_proxy proxy;
    uint64_t asked;
    struct words_job job;
    struct words_seen seen[WORDS_MOST_GROUPS];
};

enum {
    MAX_PIECES = 16,
    MAX_SEGMENTS = 63,
    LEAST_BLOCKS = 64, /* whole pages, which are the driver's to map */
};

static void check(int error, const char *what)
{
    if (error == 0)
        return;
    fprintf(stderr, "rsched-bench-words: %s: %s\n", what, rsched_last_error());
    exit(1);
}

static void expect(const struct words_way *way, bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "rsched-bench-words: by %s: %s%s%s\n", way->name, what,
            rs_gpu_target_check(way->target) != 0 ? ": " : "",
            rs_gpu_target_check(way->target) != 0 ? rsched_last_error() : "");
    exit(1);
}

/* ---- making ---- */

static struct rs_mlx5_memory memory_of(const struct rs_softnic_qp *qp)
{
    struct rs_softnic_qp_view v = rs_softnic_qp_view(qp);

    return (struct rs_mlx5_memory){.qpn = v.qpn,
                                   .send_ring = v.send_ring,
                                   .send_blocks = v.send_blocks,
                                   .dbrec = v.dbrec,
                                   .doorbell = v.doorbell,
                                   .doorbell_bytes = v.doorbell_bytes,
                                   .cq_ring = v.send_cq.ring,
                                   .cq_entries = v.send_cq.entries,
                                   .cqe_bytes = v.send_cq.entry_bytes,
                                   .cq_dbrec = v.send_cq.dbrec,
                                   .max_segments = MAX_SEGMENTS,
                                   .max_inline = rs_softnic_granted_inline(
                                       MAX_PIECES, RS_GPU_WORDS_INLINE)};
}

static uint64_t num_words(const struct words_way *way)
{
    return (uint64_t)WORDS_BURSTS * way->blocks;
}

/* Two queue pairs that are connected, and memory behind the second. @return key */
static uint32_t make_device(struct words_way *way)
{
    const struct rs_softnic_options options = {.seed = 1, .free_ends = true};
    struct rs_softnic_qp_attr attr = {.domain = 1,
                                      .send_blocks = way->blocks,
                                      .cq_entries = way->blocks,
                                      .cqe_bytes = 64};
    uint32_t key;

    check(rs_softnic_create(&options, &way->nic), "softnic");
    check(rs_softnic_qp_create(way->nic, &attr, &way->from), "queue pair");
    attr.domain = 2;
    attr.send_blocks = attr.cq_entries = LEAST_BLOCKS;
    check(rs_softnic_qp_create(way->nic, &attr, &way->to), "queue pair");
    rs_softnic_connect(way->from, way->to);
    way->words = calloc(num_words(way), sizeof(*way->words));
    expect(way, way->words != NULL, "no memory");
    check(rs_softnic_register(way->nic, 2, way->words,
                              num_words(way) * sizeof(*way->words),
                              RS_SOFTNIC_REMOTE_WRITE, &key),
          "memory");
    return key;
}

/* What kernels are given: all addresses are theirs. */
static void make_image(struct words_way *way)
{
    const struct words_side *side = way->side;
    struct rsched_device_target target = *rs_gpu_target_view(way->target);
    struct rsched_device_proxy proxy;

    way->there = side->allocate(sizeof(*way->there));
    if (target.proxy != NULL) {
        proxy = *target.proxy;
        proxy.requests = side->seen(proxy.requests);
        proxy.taken = side->seen(proxy.taken);
        proxy.stop = side->seen((void *)(uintptr_t)proxy.stop);
        proxy.asked = &way->there->asked;
        side->copy(&way->there->proxy, &proxy, sizeof(proxy));
        target.proxy = &way->there->proxy;
        target.flushed = side->seen((void *)(uintptr_t)target.flushed);
        target.proxy_status =
            side->seen((void *)(uintptr_t)target.proxy_status);
    }
    side->copy(&way->there->target, &target, sizeof(target));
}

void words_way_init(struct words_way *way, const struct words_side *side,
                    bool by_proxy, uint32_t burst)
{
    struct rs_mlx5_memory queue;
    uint32_t key;

    *way = (struct words_way){.name = by_proxy ? "the proxy" : "kernels",
                              .side = side,
                              .by_proxy = by_proxy,
                              .blocks = LEAST_BLOCKS};
    while (way->blocks < burst)
        way->blocks *= 2;
    key = make_device(way);
    queue = memory_of(way->from);
    check(rs_gpu_proxy_create(&side->memory, way->blocks, &way->proxy),
          "proxy");
    check(rs_gpu_target_create(&side->memory, &queue, (uintptr_t)way->words,
                               key, num_words(way) * sizeof(*way->words),
                               by_proxy ? way->proxy : NULL, &way->target),
          "target");
    make_image(way);
}

void words_way_fini(struct words_way *way)
{
    way->side->release(way->there);
    rs_gpu_target_destroy(way->target);
    rs_gpu_proxy_destroy(way->proxy);
    rs_softnic_destroy(way->nic);
    free(way->words);
}

/* ---- running ---- */

static uint64_t words_of(const struct words_job *job)
{
    return (uint64_t)job->blocks * job->groups * job->threads * job->puts;
}

/* Launch a job and wait for its end; what the groups have seen is here then. */
static void run(struct words_way *way, const struct words_job *job)
{
    const struct words_side *side = way->side;
    uint32_t groups = job->blocks * job->groups;

    side->copy(&way->there->job, job, sizeof(*job));
    side->run(&way->there->job, job);
    side->copy(way->seen, way->there->seen, groups * sizeof(*way->seen));
    if (!way->by_proxy) {
        /* The host's own copy is looked at, and tells of failures. */
        side->copy(rs_gpu_target_view(way->target), &way->there->target,
                   sizeof(struct rsched_device_target));
    }
    for (uint32_t i = 0; i < groups; i++)
        expect(way, way->seen[i].status == 0, "a put has failed");
}

static struct words_taken take(const struct words_way *way,
                               const struct words_job *job)
{
    uint32_t groups = job->blocks * job->groups;
    uint64_t begin = UINT64_MAX, end = 0;
    double cycles = 0;

    for (uint32_t i = 0; i < groups; i++) {
        const struct words_seen *s = &way->seen[i];

        begin = s->begin_ns < begin ? s->begin_ns : begin;
        end = s->end_ns > end ? s->end_ns : end;
        cycles += (double)s->cycles;
    }
    /* A clock that has not moved is not one to divide by. */
    return (struct words_taken){
        .seconds = (double)(end > begin ? end - begin : 1) / 1e9,
        .cycles = cycles / (double)words_of(job)};
}

static double settle(struct words_way *way)
{
    uint64_t wqes = rs_softnic_stats(way->nic).wqes, from = words_ns(), to;

    rs_softnic_settle(way->nic);
    to = words_ns();
    return (double)(rs_softnic_stats(way->nic).wqes - wqes) * 1e9 /
           (double)(to > from ? to - from : 1);
}

/* One group is enough to see the completions. */
static void flush(struct words_way *way, const struct words_job *job)
{
    struct words_job one = *job;

    one.blocks = one.groups = 1;
    one.puts = 0;
    one.flush = 1;
    run(way, &one);
}

/* @return the WQEs that a job's words are */
static uint64_t account(struct words_way *way, const struct words_job *job)
{
    bool together = job->threads > 1 && !job->apart && !way->by_proxy;
    uint64_t words = words_of(job);
    uint64_t wqes = together ? words / job->threads : words;

    way->put += words;
    way->wqes += wqes;
    return wqes;
}

/* A thread is made late: the first put is none of those that are measured. */
static void wake(struct words_way *way, const struct words_job *job)
{
    struct words_job one = *job;

    one.blocks = one.groups = one.puts = 1;
    one.flush = 0;
    run(way, &one);
    settle(way);
    flush(way, &one);
    account(way, &one);
    /* Acquire: the proxy has counted its doorbells before. */
    expect(way, rs_gpu_proxy_taken(way->proxy) == (way->by_proxy ? way->put : 0),
           "the proxy has not taken what it was asked for");
    way->rung = rs_gpu_target_producer(way->target)->queue.rings;
    memset(way->words, 0, num_words(way) * sizeof(*way->words));
}

static void begin(struct words_way *way, struct words_job *job)
{
    job->target = &way->there->target;
    job->seen = way->there->seen;
    job->salt = ++way->salt;
    if (way->by_proxy)
        check(rs_gpu_proxy_start(way->proxy), "proxy");
    wake(way, job);
}

/* All words are there, and nothing else. */
static void check_words(const struct words_way *way,
                        const struct words_job *job)
{
    uint64_t num = words_of(job);

    for (uint64_t i = 0; i < num_words(way); i++)
        expect(way, way->words[i] == (i < num ? words_value(job, i) : 0),
               "a wrong word has come, or none");
}

/* Who should has put and rung, and nobody else. */
static void check_counters(const struct words_way *way)
{
    const struct rsched_device_target *p = rs_gpu_target_producer(way->target);
    struct words_there *t = malloc(sizeof(*t));
    uint64_t taken = rs_gpu_proxy_taken(way->proxy);

    expect(way, t != NULL, "no memory");
    way->side->copy(t, way->there, sizeof(*t));
    expect(way, rs_softnic_violation(way->nic)[0] == '\0',
           rs_softnic_violation(way->nic));
    expect(way, rs_gpu_target_check(way->target) == 0, "it has failed");
    expect(way, p->puts == way->put && p->wqes == way->wqes,
           "puts and WQEs are not what was put");
    expect(way, p->queue.rings > 0 && p->queue.rings <= p->wqes,
           "more doorbells than WQEs, or none");
    expect(way, rs_softnic_stats(way->nic).wqes == way->wqes,
           "the softnic has seen other WQEs");
    if (way->by_proxy)
        expect(way, taken == way->put && t->asked == taken &&
                        t->target.puts == 0 && t->target.wqes == 0 &&
                        t->target.queue.rings == 0,
               "kernels have put or rung");
    else
        expect(way, taken == 0 && t->asked == 0, "the proxy was asked");
    free(t);
}

static void end(struct words_way *way, const struct words_job *job,
                struct words_taken *taken)
{
    double words = (double)words_of(job);

    if (way->by_proxy)
        rs_gpu_proxy_stop(way->proxy);
    taken->wqes = (double)account(way, job) / words;
    check_words(way, job);
    check_counters(way);
    taken->rings = (rs_gpu_target_producer(way->target)->queue.rings -
                    way->rung) / words;
}

struct words_taken words_way_burst(struct words_way *way, struct words_job job)
{
    struct words_taken taken;

    begin(way, &job);
    run(way, &job);
    taken = take(way, &job);
    taken.limit = settle(way);
    flush(way, &job);
    end(way, &job, &taken);
    return taken;
}

struct words_taken words_way_stream(struct words_way *way, struct words_job job)
{
    struct words_taken taken;

    job.puts *= WORDS_BURSTS;
    job.flush = 1;
    begin(way, &job);
    check(rs_softnic_start(way->nic), "softnic");
    run(way, &job);
    rs_softnic_stop(way->nic);
    rs_softnic_settle(way->nic);
    taken = take(way, &job);
    end(way, &job, &taken);
    return taken;
}
