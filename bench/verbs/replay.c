/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Executes plans on rails with libibverbs alone: hosts 0 and 1 send the same
 * lists to each other, one queue pair and one post for each rail.
 *
 * Usage: replay FILE REPETITIONS (plans.h has the format). All plans are run
 * once, then again, and so on, so that what else happens on the machine hits all
 * alike. Lines of stdout:
 *     NAME RUN NS              until all has arrived and is acknowledged
 *     NAME RUN RAIL NS...      when each put had arrived, the later of both ways
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/verbs/plans.h"
#include "bench/verbs/queues.h"

enum { SKIP = 77 };

/* A plan that is ready to be run. */
struct prepared {
    const struct plan *plan;
    struct queue queues[2 * PLAN_RAILS_MOST];
    size_t num_queues;
};

static void run(struct prepared *prepared, unsigned long repetition)
{
    const size_t half = prepared->num_queues / 2;
    const uint64_t time = queues_run(prepared->queues,
                                     prepared->num_queues);

    printf("%s %lu %" PRIu64 "\n", prepared->plan->name, repetition, time);
    for (size_t i = 0; i < half; i++) {
        const struct queue *there = &prepared->queues[i];
        const struct queue *back = &prepared->queues[half + i];

        printf("%s %lu %u", prepared->plan->name, repetition,
               there->lane->from.rail->number);
        for (size_t p = 0; p < there->num_puts; p++)
            printf(" %" PRIu64, there->arrived[p] > back->arrived[p]
                                    ? there->arrived[p]
                                    : back->arrived[p]);
        putchar('\n');
    }
}

int main(int argc, char **argv)
{
    const unsigned long repetitions = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    struct prepared *prepared;
    uint64_t before;
    struct fabric fabric;
    struct plans all;
    struct pair pair;

    if (repetitions == 0)
        die("usage: replay FILE REPETITIONS");
    if (!fabric_open(&fabric, RAIL_TIMEOUT_MEASURED)) {
        puts("SKIP: there are no devices h0r0, h0r1, ...");
        return SKIP;
    }
    all = plans_read(argv[1]);
    prepared = check_pointer(calloc(all.count, sizeof(*prepared)), "calloc");
    pair_create(&pair, &fabric, fabric.num_rails, all.most_bytes,
                all.most_puts);
    for (size_t i = 0; i < all.count; i++) {
        prepared[i].plan = &all.plans[i];
        prepared[i].num_queues = pair_queues(&pair, all.plans[i].rails,
                                             prepared[i].queues);
    }
    before = fabric_retransmissions(&fabric);
    for (unsigned long r = 0; r < repetitions; r++)
        for (size_t i = 0; i < all.count; i++)
            run(&prepared[i], r);
    fprintf(stderr, "replay: %" PRIu64 " retransmissions\n",
            fabric_retransmissions(&fabric) - before);
    for (size_t i = 0; i < all.count; i++)
        for (size_t q = 0; q < prepared[i].num_queues; q++)
            queue_destroy(&prepared[i].queues[q]);
    free(prepared);
    plans_free(&all);
    pair_destroy(&pair);
    fabric_close(&fabric);
    return EXIT_SUCCESS;
}
