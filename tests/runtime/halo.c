/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/runtime/halo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char expected(const struct halo *h, int edge, int epoch, uint64_t i)
{
    return (char)((uint64_t)epoch * 29 + h->tag * 5 + (uint64_t)edge * 7 +
                  (i * 11 >> 3) + i + 1);
}

static int add_edges(struct halo *h, int rank)
{
    int64_t id = 0;

    for (int i = 0; i < h->num_edges && id >= 0; i++) {
        const struct halo_edge *e = &h->edges[i];
        struct rsched_put put = {.bytes = e->bytes,
                                 .source = e->from,
                                 .destination = e->to};

        if (e->from == rank) {
            h->send[h->num_send] = malloc(e->bytes + 1);
            h->send_edges[h->num_send++] = i;
            id = rsched_pattern_add_put(h->pattern, &put);
        }
        if (e->to == rank && id >= 0) {
            h->receive[h->num_receive] = malloc(e->bytes + 1);
            h->receive_edges[h->num_receive++] = i;
            id = rsched_pattern_add_receive(h->pattern, &put);
        }
    }
    return id < 0 ? (int)id : 0;
}

int halo_create(struct rank *self, const struct halo_edge *edges,
                int num_edges, uint64_t tag, unsigned flags,
                struct halo **halo)
{
    struct halo *h = calloc(1, sizeof(*h));
    struct rsched_exchange_params params = {.tag = tag, .flags = flags};
    size_t n = (size_t)num_edges + 1;
    int error;

    *h = (struct halo){.edges = edges, .num_edges = num_edges, .tag = tag};
    h->send = calloc(n, sizeof(*h->send));
    h->receive = calloc(n, sizeof(*h->receive));
    h->send_edges = calloc(n, sizeof(int));
    h->receive_edges = calloc(n, sizeof(int));
    error = rsched_pattern_create("halo", &h->pattern);
    if (error == 0)
        error = add_edges(h, self->rank);
    params.pattern = h->pattern;
    params.send = (const void *const *)h->send;
    params.receive = h->receive;
    if (error == 0)
        error = rsched_exchange_create(self->context, &params, &h->x);
    if (error != 0) {
        halo_destroy(h);
        return error;
    }
    *halo = h;
    return 0;
}

void halo_destroy(struct halo *h)
{
    rsched_exchange_destroy(h->x);
    rsched_pattern_destroy(h->pattern);
    for (int i = 0; i < h->num_send; i++)
        free(h->send[i]);
    for (int i = 0; i < h->num_receive; i++)
        free(h->receive[i]);
    free(h->send);
    free(h->receive);
    free(h->send_edges);
    free(h->receive_edges);
    free(h);
}

void halo_fill(struct halo *h, int epoch)
{
    for (int i = 0; i < h->num_send; i++) {
        int edge = h->send_edges[i];
        char *to = h->send[i];

        for (uint64_t b = 0; b < h->edges[edge].bytes; b++)
            to[b] = expected(h, edge, epoch, b);
    }
    for (int i = 0; i < h->num_receive; i++)
        memset(h->receive[i], 0xa5, h->edges[h->receive_edges[i]].bytes + 1);
}

uint64_t halo_wrong(const struct halo *h, int epoch)
{
    uint64_t wrong = 0;

    for (int i = 0; i < h->num_receive; i++) {
        int edge = h->receive_edges[i];
        const char *at = h->receive[i];
        uint64_t bytes = h->edges[edge].bytes;

        for (uint64_t b = 0; b < bytes; b++)
            wrong += at[b] != expected(h, edge, epoch, b);
        wrong += at[bytes] != (char)0xa5; /* the guard */
    }
    return wrong;
}

int halo_step(struct halo *h, int epoch)
{
    int error;

    halo_fill(h, epoch);
    error = rsched_exchange_start(h->x);
    if (error == 0)
        error = rsched_exchange_wait(h->x);
    if (error == 0 && halo_wrong(h, epoch) != 0) {
        fprintf(stderr, "tag %llu epoch %d: %llu bytes are wrong\n",
                (unsigned long long)h->tag, epoch,
                (unsigned long long)halo_wrong(h, epoch));
        abort();
    }
    return error;
}
