/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two exchanges at once, without the progress thread: rank 1 waits for the second
 * one first, which rank 0 does not start before its first one is over. So a wait has
 * to go on with what is not waited for, or both wait for ever.
 *
 *     cuda_crossed processes|threads
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/cuda/swap.h"

enum { EPOCHS = 20 };

/* More chunks than slots, and several puts. */
static const struct swap_kind kinds[] = {
    {.bytes = 3000000, .from_gpu = true, .to_gpu = true},
    {.bytes = 4096, .shift = 3, .from_gpu = true, .to_gpu = true},
    {.bytes = 96, .from_gpu = true, .to_gpu = true, .from_rows = true},
};

static int begin(struct rank *self, struct swap *s, uint64_t tag)
{
    *s = (struct swap){.tag = tag};
    program_begin(&s->p, self->rank);
    swap_make_buffers(s, SWAP_KINDS(kinds));
    return swap_create(self, s);
}

static void end(struct rank *self, struct swap *s)
{
    swap_forget(self, s);
    program_end(&s->p, self->rank);
}

static int step(struct rank *self, struct swap *first, struct swap *second)
{
    RANK_CHECK(swap_start(self, first) == 0);
    if (self->rank == 0)
        RANK_CHECK(swap_wait(self, first) == 0);
    RANK_CHECK(swap_start(self, second) == 0);
    RANK_CHECK(swap_wait(self, second) == 0);
    if (self->rank == 1)
        RANK_CHECK(swap_wait(self, first) == 0);
    return 0;
}

/* Nothing but waits has gone on with anything, and all of it is of GPU memory. */
static int check_counters(struct rank *self, const struct swap *s)
{
    struct rsched_context_stats all;
    struct rsched_stats stats;

    rsched_context_get_stats(self->context, &all);
    rsched_exchange_get_stats(s->x, &stats);
    RANK_CHECK(all.ticks == 0 && stats.thread_moves == 0);
    RANK_CHECK(stats.way_bytes[RSCHED_WAY_STAGED] +
                   stats.way_bytes[RSCHED_WAY_CUDA_IPC] ==
               EPOCHS * swap_bytes(s));
    return 0;
}

static int run(struct rank *self)
{
    struct swap first, second;

    RANK_CHECK(begin(self, &first, 100) == 0);
    RANK_CHECK(begin(self, &second, 200) == 0);
    for (int i = 0; i < EPOCHS; i++)
        RANK_CHECK(step(self, &first, &second) == 0);
    RANK_CHECK(check_counters(self, &first) == 0);
    RANK_CHECK(check_counters(self, &second) == 0);
    end(self, &second);
    end(self, &first);
    return 0;
}

int main(int argc, char **argv)
{
    alarm(RANKS_HANG_SECONDS);
    return ranks_run(2, argc > 1 && strcmp(argv[1], "threads") == 0, run, NULL);
}
