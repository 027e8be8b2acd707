/* SPDX-License-Identifier: BSD-3-Clause */
#include "patterns/pattern.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/array.h"
#include "librsched/base/error.h"
#include "librsched/base/utf8.h"

int rsched_pattern_create(const char *name, struct rsched_pattern **pattern)
{
    struct rsched_pattern *made;

    if (name == NULL || pattern == NULL)
        return rs_fail(RSCHED_EINVAL, "a pattern needs a name");
    if (!rs_utf8_valid(name))
        return rs_fail(RSCHED_EINVAL, "the pattern's name is not UTF-8");
    made = calloc(1, sizeof(*made));
    if (made != NULL)
        made->name = strdup(name);
    if (made == NULL || made->name == NULL) {
        free(made);
        return rs_fail(RSCHED_ENOMEM, "no memory for pattern %s", name);
    }
    *pattern = made;
    return 0;
}

static void free_transfers(struct rs_transfers *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i].runs);
    free(list->items);
}

void rsched_pattern_destroy(struct rsched_pattern *pattern)
{
    if (pattern == NULL)
        return;
    free_transfers(&pattern->puts);
    free_transfers(&pattern->receives);
    rs_names_fini(&pattern->directions);
    free(pattern->source);
    free(pattern->name);
    free(pattern);
}

/* A run must stay within what an int64_t offset can reach. */
static const char *check_run(const struct rsched_run *run, uint64_t *sum)
{
    uint64_t bytes;
    int64_t last = run->offset, reach, end;

    if (run->count == 0)
        return "a run of 0 blocks";
    if (__builtin_mul_overflow(run->bytes, run->count, &bytes) ||
        __builtin_add_overflow(*sum, bytes, sum))
        return "the layout's bytes do not fit in 64 bits";
    if (run->count > 1 &&
        (__builtin_mul_overflow(run->count - 1, run->stride, &reach) ||
         __builtin_add_overflow(run->offset, reach, &last)))
        return "the layout reaches beyond 64-bit offsets";
    if (__builtin_add_overflow(run->offset, run->bytes, &end) ||
        __builtin_add_overflow(last, run->bytes, &end))
        return "the layout reaches beyond 64-bit offsets";
    return NULL;
}

static int check_put(const struct rsched_put *put, const char *kind, size_t id)
{
    uint64_t sum = 0;

    if (put->source < RSCHED_ANY_PROCESS ||
        put->destination < RSCHED_ANY_PROCESS)
        return rs_fail(RSCHED_EINVAL, "%s %zu: process numbers must not be "
                       "negative", kind, id);
    if (put->direction != NULL &&
        (strlen(put->direction) > RSCHED_DIRECTION_MAX ||
         !rs_utf8_valid(put->direction)))
        return rs_fail(RSCHED_EINVAL, "%s %zu: the direction is longer than "
                       "%d bytes or not UTF-8", kind, id,
                       RSCHED_DIRECTION_MAX);
    if (put->memory != RSCHED_MEMORY_HOST &&
        put->memory != RSCHED_MEMORY_DEVICE)
        return rs_fail(RSCHED_EINVAL, "%s %zu: memory %d does not exist", kind,
                       id, (int)put->memory);
    if (put->device < 0 ||
        (put->device > 0 && put->memory == RSCHED_MEMORY_HOST))
        return rs_fail(RSCHED_EINVAL, "%s %zu: device %d, but %s memory", kind,
                       id, put->device,
                       put->memory == RSCHED_MEMORY_HOST ? "host" : "device");
    if (put->layout.num_runs > 0 && put->layout.runs == NULL)
        return rs_fail(RSCHED_EINVAL, "%s %zu: the layout has %zu runs at NULL",
                       kind, id, put->layout.num_runs);
    for (size_t i = 0; i < put->layout.num_runs; i++) {
        const char *cause = check_run(&put->layout.runs[i], &sum);

        if (cause != NULL)
            return rs_fail(RSCHED_EINVAL, "%s %zu: %s", kind, id, cause);
    }
    if (put->layout.num_runs > 0 && sum != put->bytes)
        return rs_fail(RSCHED_EINVAL, "%s %zu: the layout has %" PRIu64
                       " bytes, but bytes is %" PRIu64, kind, id, sum,
                       put->bytes);
    return 0;
}

/* Copy the runs of `put` into `item`. */
static int copy_runs(struct rs_transfer *item, const struct rsched_put *put)
{
    size_t count = put->layout.num_runs;

    item->runs = NULL;
    if (count > 0) {
        item->runs = calloc(count, sizeof(*item->runs));
        if (item->runs == NULL)
            return RSCHED_ENOMEM;
        memcpy(item->runs, put->layout.runs, count * sizeof(*item->runs));
    }
    item->put.layout.runs = item->runs;
    return 0;
}

static int64_t add(struct rsched_pattern *pattern, struct rs_transfers *list,
                   const char *kind, const struct rsched_put *put)
{
    struct rs_transfer item = {0};
    struct rs_transfer *room;
    uint64_t total;
    int64_t direction;
    int error = check_put(put, kind, list->count);

    if (error != 0)
        return error;
    if (__builtin_add_overflow(list->bytes, put->bytes, &total))
        return rs_fail(RSCHED_EINVAL, "%s %zu: the bytes of all do not fit in "
                       "64 bits", kind, list->count);
    if (list->count >= UINT32_MAX - 1)
        return rs_fail(RSCHED_ELIMIT, "more than %zu of kind %s", list->count,
                       kind);
    direction = rs_names_add(&pattern->directions,
                             put->direction ? put->direction : "");
    if (direction < 0)
        return direction;
    room = rs_array_grow(list->items, &list->capacity, list->count + 1,
                         sizeof(*room));
    if (room != NULL)
        list->items = room;
    item.put = *put;
    if (room == NULL || copy_runs(&item, put) != 0)
        return rs_fail(RSCHED_ENOMEM, "no memory for %s %zu", kind,
                       list->count);
    item.direction = (uint32_t)direction;
    item.put.direction = pattern->directions.text[direction];
    list->items[list->count] = item;
    list->bytes = total;
    return (int64_t)list->count++;
}

int64_t rsched_pattern_add_put(struct rsched_pattern *pattern,
                               const struct rsched_put *put)
{
    return add(pattern, &pattern->puts, "put", put);
}

int64_t rsched_pattern_add_receive(struct rsched_pattern *pattern,
                                   const struct rsched_put *receive)
{
    return add(pattern, &pattern->receives, "receive", receive);
}

const char *rsched_pattern_name(const struct rsched_pattern *pattern)
{
    return pattern->name;
}

size_t rsched_pattern_num_puts(const struct rsched_pattern *pattern)
{
    return pattern->puts.count;
}

size_t rsched_pattern_num_receives(const struct rsched_pattern *pattern)
{
    return pattern->receives.count;
}

const struct rsched_put *
rsched_pattern_put(const struct rsched_pattern *pattern, size_t id)
{
    return &pattern->puts.items[id].put;
}

const struct rsched_put *
rsched_pattern_receive(const struct rsched_pattern *pattern, size_t id)
{
    return &pattern->receives.items[id].put;
}

uint64_t rsched_pattern_total_bytes(const struct rsched_pattern *pattern)
{
    return pattern->puts.bytes;
}

static int copy_list(struct rsched_pattern *copy, struct rs_transfers *to,
                     const char *kind, const struct rs_transfers *from)
{
    for (size_t i = 0; i < from->count; i++) {
        int64_t id = add(copy, to, kind, &from->items[i].put);

        if (id < 0)
            return (int)id;
        to->items[i].line = from->items[i].line;
        to->items[i].column = from->items[i].column;
    }
    return 0;
}

int rs_pattern_copy(const struct rsched_pattern *pattern,
                    struct rsched_pattern **copy)
{
    struct rsched_pattern *made;
    int error = rsched_pattern_create(pattern->name, &made);

    if (error != 0)
        return error;
    if (pattern->source != NULL) {
        made->source = strdup(pattern->source);
        if (made->source == NULL) {
            error = rs_fail(RSCHED_ENOMEM, "no memory for pattern %s",
                            pattern->name);
            goto err_destroy;
        }
    }
    error = copy_list(made, &made->puts, "put", &pattern->puts);
    if (error == 0)
        error = copy_list(made, &made->receives, "receive",
                          &pattern->receives);
    if (error != 0)
        goto err_destroy;
    *copy = made;
    return 0;

err_destroy:
    rsched_pattern_destroy(made);
    return error;
}

int rs_pattern_fail(const struct rsched_pattern *pattern, size_t put,
                    int error, const char *format, ...)
{
    const struct rs_transfer *item = &pattern->puts.items[put];
    char cause[512];
    va_list args;

    va_start(args, format);
    vsnprintf(cause, sizeof(cause), format, args);
    va_end(args);
    if (pattern->source != NULL && item->line != 0)
        return rs_fail(error, "%s:%" PRIu32 ":%" PRIu32 ": put %zu: %s",
                       pattern->source, item->line, item->column, put, cause);
    return rs_fail(error, "pattern %s: put %zu: %s", pattern->name, put,
                   cause);
}
