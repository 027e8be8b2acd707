/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/verbs/plans.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *grow(void *array, size_t count, size_t size)
{
    array = reallocarray(array, count, size);
    if (array == NULL)
        err(EXIT_FAILURE, "no memory");
    return array;
}

static void read_rail(struct plans *all, char *text)
{
    char *word = strtok(text, " \n");
    const unsigned long rail = word == NULL ? PLAN_RAILS_MOST
                                            : strtoul(word, NULL, 10);
    struct rail_list *list;
    uint64_t sum = 0;

    if (all->count == 0 || rail >= PLAN_RAILS_MOST)
        errx(EXIT_FAILURE, "a line 'rail' before a plan, or without a number below %d",
            PLAN_RAILS_MOST);
    list = &all->plans[all->count - 1].rails[rail];
    while ((word = strtok(NULL, " \n")) != NULL) {
        list->bytes = grow(list->bytes, list->num_puts + 1,
                           sizeof(*list->bytes));
        list->bytes[list->num_puts] = strtoull(word, NULL, 10);
        sum += list->bytes[list->num_puts++];
    }
    all->most_bytes = sum > all->most_bytes ? sum : all->most_bytes;
    if (list->num_puts > all->most_puts)
        all->most_puts = (unsigned)list->num_puts;
}

struct plans plans_read(const char *path)
{
    FILE *file = fopen(path, "r");
    struct plans all = {0};
    char *line = NULL;
    size_t room = 0;

    if (file == NULL)
        err(EXIT_FAILURE, "%s", path);
    while (getline(&line, &room, file) > 0) {
        if (strncmp(line, "plan ", 5) == 0) {
            all.plans = grow(all.plans, all.count + 1, sizeof(*all.plans));
            all.plans[all.count] = (struct plan){0};
            if (sscanf(line, "plan %127s", all.plans[all.count++].name) != 1)
                errx(EXIT_FAILURE, "%s: a plan without a name", path);
        } else if (strncmp(line, "rail ", 5) == 0) {
            read_rail(&all, line + 5);
        } else {
            errx(EXIT_FAILURE, "%s: '%s' is not understood", path, line);
        }
    }
    free(line);
    fclose(file);
    return all;
}


void plans_free(struct plans *all)
{
    for (size_t i = 0; i < all->count; i++)
        for (size_t r = 0; r < PLAN_RAILS_MOST; r++)
            free(all->plans[i].rails[r].bytes);
    free(all->plans);
}
