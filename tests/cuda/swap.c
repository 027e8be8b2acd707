/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/cuda/swap.h"

#include <stdlib.h>
#include <string.h>

static size_t place(const struct swap_kind *k, bool in_rows, size_t at)
{
    return k->shift +
           (in_rows ? at / SWAP_ROW * SWAP_PITCH + at % SWAP_ROW : at);
}

static size_t span(const struct swap_kind *k, bool in_rows)
{
    return k->shift + (in_rows ? k->bytes / SWAP_ROW * SWAP_PITCH : k->bytes);
}

static char byte_of(const struct swap *s, int rank, int put, size_t at)
{
    return (char)(rank * 89 + s->epoch * 41 + put * 17 + (int)(at % 251) + 1);
}

static bool sends(const struct rank *self, const struct swap *s)
{
    return !s->one_way || self->rank == 0;
}

static bool receives(const struct rank *self, const struct swap *s)
{
    return !s->one_way || self->rank == 1;
}

static void add(struct rsched_pattern *pattern, const struct rank *self,
                const struct swap_kind *k, bool out)
{
    const struct rsched_run rows = {.bytes = SWAP_ROW,
                                    .count = k->bytes / SWAP_ROW,
                                    .stride = SWAP_PITCH};
    struct rsched_put put = {.bytes = k->bytes,
                             .source = out ? self->rank : 1 - self->rank,
                             .destination = out ? 1 - self->rank : self->rank};

    if (out ? k->from_rows : k->to_rows)
        put.layout = (struct rsched_layout){&rows, 1};
    if ((out ? rsched_pattern_add_put(pattern, &put)
             : rsched_pattern_add_receive(pattern, &put)) < 0)
        abort();
}

struct rsched_pattern *swap_pattern(const struct rank *self,
                                    const struct swap *s)
{
    struct rsched_pattern *pattern;

    if (rsched_pattern_create("swap", &pattern) != 0)
        abort();
    for (int i = 0; i < s->puts; i++) {
        if (sends(self, s))
            add(pattern, self, &s->kinds[i], true);
        if (receives(self, s))
            add(pattern, self, &s->kinds[i], false);
    }
    return pattern;
}

void swap_make_buffers(struct swap *s, const struct swap_kind *kinds, size_t puts)
{
    if (puts > SWAP_MOST)
        abort();
    s->kinds = kinds;
    s->puts = (int)puts;
    for (int i = 0; i < s->puts; i++) {
        const struct swap_kind *k = &kinds[i];

        buffer_init(&s->p, &s->send[i], span(k, k->from_rows), k->from_gpu);
        buffer_init(&s->p, &s->receive[i], span(k, k->to_rows), k->to_gpu);
    }
}

void swap_free_buffers(struct swap *s)
{
    for (int i = 0; i < s->puts; i++) {
        buffer_fini(&s->p, &s->send[i]);
        buffer_fini(&s->p, &s->receive[i]);
    }
}

void swap_addresses(const struct swap *s, const void **send, void **receive)
{
    for (int i = 0; i < s->puts; i++) {
        send[i] = s->send[i].address + s->kinds[i].shift;
        receive[i] = s->receive[i].address + s->kinds[i].shift;
    }
}

int swap_create(struct rank *self, struct swap *s)
{
    struct rsched_pattern *pattern = swap_pattern(self, s);
    const void *send[SWAP_MOST];
    void *receive[SWAP_MOST];
    const struct rsched_exchange_params params = {
        .pattern = pattern,
        .send = send,
        .receive = receive,
        .flags = s->flags,
        .tag = s->tag++};
    int error;

    swap_addresses(s, send, receive);
    error = rsched_exchange_create(self->context, &params, &s->x);
    rsched_pattern_destroy(pattern);
    return error;
}

void swap_forget(struct rank *self, struct swap *s)
{
    rsched_exchange_destroy(s->x);
    s->x = NULL;
    mesh_barrier(self->end);
    swap_free_buffers(s);
}

void swap_fill(const struct rank *self, const struct swap *s)
{
    for (int i = 0; i < s->puts; i++) {
        const struct swap_kind *k = &s->kinds[i];

        for (size_t at = 0; at < k->bytes; at++)
            s->send[i].touch[place(k, k->from_rows, at)] =
                byte_of(s, self->rank, i, at);
        memset(s->receive[i].touch, 0, span(k, k->to_rows));
    }
}

/* Before it, and between its rows. */
static bool is_clean(const struct swap_kind *k, const char *touch)
{
    for (size_t at = 0; at < span(k, k->to_rows); at++) {
        if (at >= k->shift &&
            (!k->to_rows || (at - k->shift) % SWAP_PITCH < SWAP_ROW))
            continue;
        if (touch[at] != 0)
            return false;
    }
    return true;
}

int swap_check(struct rank *self, const struct swap *s)
{
    for (int i = 0; i < s->puts && receives(self, s); i++) {
        const struct swap_kind *k = &s->kinds[i];
        const char *touch = s->receive[i].touch;

        for (size_t at = 0; at < k->bytes; at++) {
            if (touch[place(k, k->to_rows, at)] !=
                byte_of(s, 1 - self->rank, i, at))
                return RANK_FAIL("rank %d: epoch %d: byte %zu of put %d",
                                 self->rank, s->epoch, at, i);
        }
        RANK_CHECK(is_clean(k, touch));
    }
    return 0;
}

int swap_start(struct rank *self, struct swap *s)
{
    swap_fill(self, s);
    for (int i = 0; i < s->puts; i++) {
        buffer_push(&s->p, &s->send[i]);
        buffer_push(&s->p, &s->receive[i]);
    }
    return rsched_exchange_start(s->x);
}

int swap_wait(struct rank *self, struct swap *s)
{
    int error = rsched_exchange_wait(s->x);

    for (int i = 0; i < s->puts; i++)
        buffer_pull(&s->p, &s->receive[i]);
    if (error == 0)
        error = swap_check(self, s);
    s->epoch += error == 0;
    return error;
}

int swap_run(struct rank *self, struct swap *s, int epochs)
{
    int error = 0;

    for (int i = 0; i < epochs && error == 0; i++) {
        error = swap_start(self, s);
        if (error == 0)
            error = swap_wait(self, s);
    }
    return error;
}

uint64_t swap_bytes(const struct swap *s)
{
    uint64_t bytes = 0;

    for (int i = 0; i < s->puts; i++)
        bytes += s->kinds[i].bytes;
    return bytes;
}
