/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>

#include "bench/verbs/queues.h"
#include "bench/verbs/start.h"

enum { HOSTS_MOST = 16 };

void queue_create(struct queue *queue, struct lane *lane,
                  const uint64_t *bytes, size_t num_puts)
{
    uint64_t offset = 0;

    if (num_puts == 0 || num_puts > lane->depth)
        die("%zu puts in a send queue of %u", num_puts, lane->depth);
    *queue = (struct queue){.lane = lane, .num_puts = num_puts};
    queue->wrs = check_pointer(calloc(num_puts, sizeof(*queue->wrs)), "calloc");
    queue->sges = check_pointer(calloc(num_puts, sizeof(*queue->sges)),
                                "calloc");
    queue->arrived = check_pointer(calloc(num_puts, sizeof(*queue->arrived)),
                                   "calloc");
    for (size_t i = 0; i < num_puts; i++) {
        queue->sges[i] = (struct ibv_sge){
            .addr = (uintptr_t)lane->from.buffer + offset,
            .length = (uint32_t)bytes[i],
            .lkey = lane->from.mr->lkey,
        };
        queue->wrs[i] = (struct ibv_send_wr){
            .wr_id = i,
            .next = i + 1 < num_puts ? &queue->wrs[i + 1] : NULL,
            .sg_list = &queue->sges[i],
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
            .send_flags = i + 1 < num_puts ? 0 : IBV_SEND_SIGNALED,
            .imm_data = htonl((uint32_t)i),
            .wr.rdma = {.remote_addr = (uintptr_t)lane->to.buffer + offset,
                        .rkey = lane->to.mr->rkey},
        };
        offset += bytes[i];
    }
    if (offset > lane->bytes)
        die("%llu bytes in buffers of %llu", (unsigned long long)offset,
            (unsigned long long)lane->bytes);
}

void queue_destroy(struct queue *queue)
{
    free(queue->wrs);
    free(queue->sges);
    free(queue->arrived);
}

/* What the thread of one host works on. */
struct poster {
    pthread_t thread;
    unsigned host;
    struct queue *queues; /* all of them */
    size_t num_queues;
    pthread_barrier_t *ready, *go;
    const uint64_t *start; /* set between `ready` and `go` */
};

/* Whether the queue is not done yet, after a look at both of its ends. */
static bool look(struct queue *queue, uint64_t start)
{
    struct ibv_wc wcs[16];
    size_t got = lane_poll(queue->lane->to.receive_cq, wcs, 16);

    for (size_t i = 0; i < got; i++)
        queue->arrived[ntohl(wcs[i].imm_data)] = now_ns() - start;
    queue->num_arrived += got;
    if (queue->completed == 0 &&
        lane_poll(queue->lane->from.send_cq, wcs, 1) == 1)
        queue->completed = now_ns() - start;
    return queue->completed == 0 || queue->num_arrived < queue->num_puts;
}

static void *post(void *argument)
{
    struct poster *poster = argument;

    pthread_barrier_wait(poster->ready);
    pthread_barrier_wait(poster->go);
    start_wait(*poster->start);
    for (size_t i = 0; i < poster->num_queues; i++) {
        struct queue *queue = &poster->queues[i];
        struct ibv_send_wr *bad;

        if (queue->lane->from.rail->host != poster->host)
            continue;
        check(ibv_post_send(queue->lane->from.qp, queue->wrs, &bad),
              "ibv_post_send");
        queue->posted = now_ns() - *poster->start;
    }
    return NULL;
}

static void wait_for_all(struct queue *queues, size_t num_queues,
                         uint64_t start)
{
    bool pending = true;

    start_sleep(start);
    while (pending) {
        pending = false;
        lane_nap();
        for (size_t i = 0; i < num_queues; i++)
            pending = look(&queues[i], start) || pending;
        if (now_ns() - start > UINT64_C(60000000000))
            die("not done after 60 s");
    }
}

static uint64_t find_end(const struct queue *queues, size_t num_queues)
{
    uint64_t end = 0;

    for (size_t i = 0; i < num_queues; i++) {
        for (size_t p = 0; p < queues[i].num_puts; p++) {
            if (queues[i].arrived[p] > end)
                end = queues[i].arrived[p];
        }
        if (queues[i].completed > end)
            end = queues[i].completed;
    }
    return end;
}

static unsigned count_hosts(const struct queue *queues, size_t num_queues)
{
    unsigned hosts = 0;

    for (size_t i = 0; i < num_queues; i++) {
        if (queues[i].lane->from.rail->host >= hosts)
            hosts = queues[i].lane->from.rail->host + 1;
    }
    return hosts;
}

uint64_t queues_run(struct queue *queues, size_t num_queues)
{
    const unsigned hosts = count_hosts(queues, num_queues);
    struct poster posters[HOSTS_MOST];
    pthread_barrier_t ready, go;
    uint64_t start;

    if (hosts > HOSTS_MOST)
        die("%u hosts are too many", hosts);
    pthread_barrier_init(&ready, NULL, hosts + 1);
    pthread_barrier_init(&go, NULL, hosts + 1);
    for (size_t i = 0; i < num_queues; i++) {
        queues[i].completed = 0;
        queues[i].num_arrived = 0;
        lane_post_receives(queues[i].lane, queues[i].num_puts);
    }
    for (unsigned h = 0; h < hosts; h++) {
        posters[h] = (struct poster){.host = h, .queues = queues,
                                     .num_queues = num_queues, .ready = &ready,
                                     .go = &go, .start = &start};
        check(pthread_create(&posters[h].thread, NULL, post, &posters[h]),
              "pthread_create");
    }
    pthread_barrier_wait(&ready);
    start = now_ns() + START_AHEAD_NS;
    pthread_barrier_wait(&go);
    wait_for_all(queues, num_queues, start);
    for (unsigned h = 0; h < hosts; h++)
        pthread_join(posters[h].thread, NULL);
    pthread_barrier_destroy(&ready);
    pthread_barrier_destroy(&go);
    return find_end(queues, num_queues);
}

/* ---- two hosts that do the same ---- */

void pair_create(struct pair *pair, struct fabric *fabric, unsigned num_rails,
                 uint64_t bytes, unsigned depth)
{
    pair->num_rails = num_rails;
    pair->lanes = check_pointer(calloc(2 * (size_t)num_rails,
                                       sizeof(*pair->lanes)), "calloc");
    for (unsigned i = 0; i < 2 * num_rails; i++) {
        const unsigned from = i / num_rails, rail = i % num_rails;

        lane_create(&pair->lanes[i], fabric_rail(fabric, from, rail),
                    fabric_rail(fabric, 1 - from, rail), bytes, depth);
    }
}

void pair_destroy(struct pair *pair)
{
    for (unsigned i = 0; i < 2 * pair->num_rails; i++)
        lane_destroy(&pair->lanes[i]);
    free(pair->lanes);
}

size_t pair_queues(struct pair *pair, const struct rail_list *lists,
                   struct queue *queues)
{
    size_t count = 0;

    for (unsigned i = 0; i < 2 * pair->num_rails; i++) {
        const struct rail_list *list = &lists[i % pair->num_rails];

        if (list->num_puts > 0)
            queue_create(&queues[count++], &pair->lanes[i], list->bytes,
                         list->num_puts);
    }
    return count;
}
