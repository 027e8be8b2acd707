/* SPDX-License-Identifier: BSD-3-Clause */
/* Which buffers lie in GPU memory. */
#include "librsched/run/run.h"

#include <stdio.h>

#include "librsched/base/error.h"

void rs_exchange_find_gpus(struct rsched_exchange *x)
{
    if (x->gpus == NULL && rsched_gpus() != NULL && rsched_gpus()->attach())
        x->gpus = rsched_gpus();
}

static void look_at(const struct rsched_gpu_ops *gpus, const void *address,
                    int64_t offset, uint64_t bytes, struct rsched_place *place)
{
    /* As an integer: the address is NULL where offsets are absolute. */
    gpus->place((const void *)((uintptr_t)address + (uintptr_t)offset), bytes,
                place);
}

void rsched_place_run(const struct rsched_gpu_ops *gpus, const void *address,
                      const struct rsched_run *run, struct rsched_place *place)
{
    int64_t last = (int64_t)(run->count - 1) * run->stride;
    int64_t low = last < 0 ? last : 0, high = last < 0 ? 0 : last;
    struct rsched_place other;

    look_at(gpus, address, run->offset + low,
            (uint64_t)(high - low) + run->bytes, place);
    if (place->kind != RSCHED_PLACE_HOST || last == 0)
        return;
    look_at(gpus, address, run->offset + high, run->bytes, &other);
    if (other.kind != RSCHED_PLACE_HOST)
        place->kind = RSCHED_PLACE_UNKNOWN;
}

/* One run of a put, for errors. */
struct part {
    const struct rsched_exchange *x;
    const struct rsched_put *put;
    bool out;
    uint32_t id;
    size_t run;
};

static int fail(const struct part *part, int error, const char *what)
{
    const char *put = part->out ? "put" : "receive";
    unsigned long long tag = part->x->tag;

    if (part->put->layout.num_runs < 2)
        return rs_fail(error, "exchange %llu: %s %u %s", tag, put, part->id,
                       what);
    return rs_fail(error, "exchange %llu: %s %u, run %zu of its layout, %s",
                   tag, put, part->id, part->run, what);
}

static int check_declared(const struct part *part,
                          const struct rsched_place *place)
{
    const struct rsched_put *put = part->put;
    char text[80];

    if (put->memory != RSCHED_MEMORY_DEVICE ||
        place->kind == RSCHED_PLACE_MANAGED)
        return 0;
    if (part->x->gpus == NULL)
        return fail(part, RSCHED_ENOTSUP,
                    "should lie in GPU memory, and no driver has been loaded");
    if (place->kind == RSCHED_PLACE_HOST)
        return fail(part, RSCHED_EINVAL,
                    "should lie in GPU memory, of which the driver knows "
                    "nothing at its address (is it freed?)");
    if (place->gpu == put->device)
        return 0;
    snprintf(text, sizeof(text), "lies in the memory of GPU %d, not %d",
             place->gpu, put->device);
    return fail(part, RSCHED_EINVAL, text);
}

static int place_part(const struct part *part, const void *address,
                      const struct rsched_run *run, struct rsched_place *place)
{
    *place = (struct rsched_place){RSCHED_PLACE_HOST, -1};
    if (part->x->gpus != NULL)
        rsched_place_run(part->x->gpus, address, run, place);
    if (place->kind == RSCHED_PLACE_UNKNOWN)
        return fail(part, RSCHED_ENOTSUP,
                    "does not lie in one allocation of host memory, or of "
                    "a GPU's primary context");
    return check_declared(part, place);
}

/* A GPU's counts most, as its engines take each run as it is; then managed
 * memory. */
static void add_place(struct rsched_place *sum, const struct rsched_place *run)
{
    if (sum->kind == RSCHED_PLACE_HOST || (sum->kind == RSCHED_PLACE_MANAGED &&
                                           run->kind == RSCHED_PLACE_GPU))
        *sum = *run;
}

static int place_runs(const struct rsched_exchange *x, bool out, uint32_t id,
                      const struct rsched_put *put, const void *address,
                      struct rsched_place *place)
{
    const struct rsched_run whole = {.bytes = put->bytes, .count = 1};
    size_t num_runs = put->layout.num_runs;
    const struct rsched_run *runs = num_runs > 0 ? put->layout.runs : &whole;
    struct part part = {x, put, out, id, 0};
    int error = 0;

    if (put->bytes == 0 ||
        (x->gpus == NULL && put->memory != RSCHED_MEMORY_DEVICE))
        return 0;
    do {
        struct rsched_place run;

        if (runs[part.run].bytes > 0) {
            error = place_part(&part, address, &runs[part.run], &run);
            if (error == 0)
                add_place(place, &run);
        }
    } while (error == 0 && ++part.run < num_runs);
    return error;
}

static bool is_at_null(const struct rsched_put *put)
{
    bool at_null = put->layout.num_runs == 0;

    for (size_t i = 0; i < put->layout.num_runs; i++) {
        const struct rsched_run *run = &put->layout.runs[i];

        at_null = at_null || (run->bytes > 0 && run->offset == 0);
    }
    return at_null;
}

int rs_exchange_check_address(const struct rsched_exchange *x, bool out,
                              uint32_t id, const struct rsched_put *put,
                              const void *const *addresses)
{
    if (put->bytes == 0 || (addresses != NULL && addresses[id] != NULL) ||
        !is_at_null(put))
        return 0;
    return rs_fail(RSCHED_EINVAL, "exchange %llu: the buffer of %s %u is NULL",
                   (unsigned long long)x->tag, out ? "put" : "receive", id);
}

int rs_exchange_place(const struct rsched_exchange *x, bool out, uint32_t id,
                      const struct rsched_put *put,
                      const void *const *addresses, struct rsched_place *place)
{
    struct rsched_place p = {RSCHED_PLACE_HOST, -1};
    int error = 0;

    if (addresses != NULL)
        error = place_runs(x, out, id, put, addresses[id], &p);
    else if (put->memory == RSCHED_MEMORY_DEVICE)
        p = (struct rsched_place){RSCHED_PLACE_GPU, put->device};
    if (error == 0)
        *place = p;
    return error;
}
