/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Executes plans on rails with libibverbs alone: hosts 0 and 1 send the same
 * lists to each other, one queue pair and one post for each rail.
 *
 * Usage: replay FILE REPETITIONS. Lines of FILE:
 *     plan NAME
 *     rail NUMBER BYTES...     what that rail sends, in this order
 * All plans are run once, then again, and so on, so that what else happens on
 * the machine hits all alike. Lines of stdout:
 *     NAME RUN NS              until all has arrived and is acknowledged
 *     NAME RUN RAIL NS...      when each put had arrived, the later of both ways
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/verbs/queues.h"

enum { SKIP = 77, NAME = 128, RAILS_MOST = 16 };

struct plan {
    char name[NAME];
    struct rail_list rails[RAILS_MOST];
    struct queue queues[2 * RAILS_MOST];
    size_t num_queues;
};

struct plans {
    struct plan *plans;
    size_t count;
    uint64_t most_bytes; /* of a rail in a plan */
    unsigned most_puts;
};

static void read_rail(struct plans *all, char *text)
{
    char *word = strtok(text, " \n");
    const unsigned long rail = word == NULL ? RAILS_MOST
                                            : strtoul(word, NULL, 10);
    struct rail_list *list;
    uint64_t sum = 0;

    if (all->count == 0 || rail >= RAILS_MOST)
        die("a line 'rail' before a plan, or without a number below %d",
            RAILS_MOST);
    list = &all->plans[all->count - 1].rails[rail];
    while ((word = strtok(NULL, " \n")) != NULL) {
        list->bytes = check_pointer(
            realloc(list->bytes, (list->num_puts + 1) * sizeof(*list->bytes)),
            "realloc");
        list->bytes[list->num_puts] = strtoull(word, NULL, 10);
        sum += list->bytes[list->num_puts++];
    }
    all->most_bytes = sum > all->most_bytes ? sum : all->most_bytes;
    if (list->num_puts > all->most_puts)
        all->most_puts = (unsigned)list->num_puts;
}

static struct plans read_plans(const char *path)
{
    FILE *file = check_pointer(fopen(path, "r"), path);
    struct plans all = {0};
    char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, file) > 0) {
        if (strncmp(line, "plan ", 5) == 0) {
            all.plans = check_pointer(
                realloc(all.plans, (all.count + 1) * sizeof(*all.plans)),
                "realloc");
            all.plans[all.count] = (struct plan){0};
            if (sscanf(line, "plan %127s", all.plans[all.count++].name) != 1)
                die("%s: a plan without a name", path);
        } else if (strncmp(line, "rail ", 5) == 0) {
            read_rail(&all, line + 5);
        } else {
            die("%s: '%s' is not understood", path, line);
        }
    }
    free(line);
    fclose(file);
    return all;
}

static void run(struct plan *plan, unsigned long repetition)
{
    const size_t half = plan->num_queues / 2;
    const uint64_t time = queues_run(plan->queues, plan->num_queues);

    printf("%s %lu %" PRIu64 "\n", plan->name, repetition, time);
    for (size_t i = 0; i < half; i++) {
        const struct queue *there = &plan->queues[i];
        const struct queue *back = &plan->queues[half + i];

        printf("%s %lu %u", plan->name, repetition,
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
    struct fabric fabric;
    struct plans all;
    struct pair pair;

    if (repetitions == 0)
        die("usage: replay FILE REPETITIONS");
    if (!fabric_open(&fabric)) {
        puts("SKIP: there are no devices h0r0, h0r1, ...");
        return SKIP;
    }
    all = read_plans(argv[1]);
    pair_create(&pair, &fabric, fabric.num_rails, all.most_bytes,
                all.most_puts);
    for (size_t i = 0; i < all.count; i++)
        all.plans[i].num_queues = pair_queues(&pair, all.plans[i].rails,
                                              all.plans[i].queues);
    for (unsigned long r = 0; r < repetitions; r++)
        for (size_t i = 0; i < all.count; i++)
            run(&all.plans[i], r);
    for (size_t i = 0; i < all.count; i++) {
        for (size_t q = 0; q < all.plans[i].num_queues; q++)
            queue_destroy(&all.plans[i].queues[q]);
        for (size_t r = 0; r < RAILS_MOST; r++)
            free(all.plans[i].rails[r].bytes);
    }
    free(all.plans);
    pair_destroy(&pair);
    fabric_close(&fabric);
    return EXIT_SUCCESS;
}
