/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/runtime/halo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Byte i of a message is i + i * 11 / 8 and a number that the message has: again and
 * again the same TABLE bytes, in which it begins later by STEP for each 1 of that
 * number. Copied and compared in pieces, since sanitizers look at each access of a
 * loop. */
enum { TABLE = 2048, STEP = 8 * 27 /* 27 * 19 = 1, modulo 256 */ };

static char table[TABLE];

static void __attribute__((constructor)) make_table(void)
{
    for (uint64_t i = 0; i < TABLE; i++)
        table[i] = (char)((i * 11 >> 3) + i);
}

/* What a message has from byte i on; `bytes` becomes how many, at most. */
static const char *expected(const struct halo *h, int edge, int epoch,
                            uint64_t i, uint64_t *bytes)
{
    uint64_t number = (uint64_t)epoch * 29 + h->tag * 5 + (uint64_t)edge * 7 + 1;
    uint64_t left = TABLE - (number * STEP + i) % TABLE;

    *bytes = *bytes < left ? *bytes : left;
    return table + TABLE - left;
}

static uint64_t bytes_of(const struct halo_edge *e)
{
    return e->bytes & ~(HALO_SHARED | HALO_OFFERED);
}

static void *get_buffer(const struct halo_edge *e)
{
    void *memory;

    if ((e->bytes & HALO_SHARED) == 0) {
        memory = malloc(bytes_of(e) + 1);
        if ((e->bytes & HALO_OFFERED) != 0)
            rsched_memory_offer(memory, bytes_of(e) + 1);
        return memory;
    }
    if (rsched_alloc(bytes_of(e) + 1, &memory) != 0)
        abort();
    return memory;
}

static void put_buffer(const struct halo_edge *e, void *memory)
{
    if ((e->bytes & HALO_OFFERED) != 0 && rsched_memory_reclaim(memory) != 0)
        abort();
    if ((e->bytes & HALO_SHARED) == 0)
        free(memory);
    else if (rsched_free(memory) != 0)
        abort();
}

static int add_edges(struct halo *h, int rank)
{
    int64_t id = 0;

    for (int i = 0; i < h->num_edges && id >= 0; i++) {
        const struct halo_edge *e = &h->edges[i];
        struct rsched_put put = {.bytes = bytes_of(e),
                                 .source = e->from,
                                 .destination = e->to};

        if (e->from == rank) {
            h->send[h->num_send] = get_buffer(e);
            h->send_edges[h->num_send++] = i;
            id = rsched_pattern_add_put(h->pattern, &put);
        }
        if (e->to == rank && id >= 0) {
            h->receive[h->num_receive] = get_buffer(e);
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
    if (error == 0) {
        rsched_fail(0, "as before");
        error = rsched_exchange_create(self->context, &params, &h->x);
        if (error == 0 && strcmp(rsched_last_error(), "as before") != 0)
            error = RSCHED_ESTATE;
    }
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
        put_buffer(&h->edges[h->send_edges[i]], h->send[i]);
    for (int i = 0; i < h->num_receive; i++)
        put_buffer(&h->edges[h->receive_edges[i]], h->receive[i]);
    free(h->send);
    free(h->receive);
    free(h->send_edges);
    free(h->receive_edges);
    free(h);
}

int halo_rebind(struct halo *h)
{
    for (int i = 0; i < h->num_send; i++) {
        const struct halo_edge *e = &h->edges[h->send_edges[i]];

        put_buffer(e, h->send[i]);
        h->send[i] = get_buffer(e);
    }
    for (int i = 0; i < h->num_receive; i++) {
        const struct halo_edge *e = &h->edges[h->receive_edges[i]];

        put_buffer(e, h->receive[i]);
        h->receive[i] = get_buffer(e);
    }
    return rsched_exchange_bind(h->x, (const void *const *)h->send,
                                h->receive);
}

void halo_fill(struct halo *h, int epoch)
{
    for (int i = 0; i < h->num_send; i++) {
        int edge = h->send_edges[i];
        uint64_t bytes = bytes_of(&h->edges[edge]);
        char *to = h->send[i];

        for (uint64_t b = 0, some; b < bytes; b += some) {
            const char *from;

            some = bytes - b;
            from = expected(h, edge, epoch, b, &some);
            memcpy(to + b, from, some);
        }
    }
    for (int i = 0; i < h->num_receive; i++)
        memset(h->receive[i], 0xa5, bytes_of(&h->edges[h->receive_edges[i]]) + 1);
}

uint64_t halo_wrong(const struct halo *h, int epoch)
{
    uint64_t wrong = 0;

    for (int i = 0; i < h->num_receive; i++) {
        int edge = h->receive_edges[i];
        const char *at = h->receive[i];
        uint64_t bytes = bytes_of(&h->edges[edge]);

        for (uint64_t b = 0, some; b < bytes; b += some) {
            const char *wanted;

            some = bytes - b;
            wanted = expected(h, edge, epoch, b, &some);
            if (memcmp(at + b, wanted, some) != 0) {
                for (uint64_t k = 0; k < some; k++)
                    wrong += at[b + k] != wanted[k];
            }
        }
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
