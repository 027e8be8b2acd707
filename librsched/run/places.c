/* SPDX-License-Identifier: BSD-3-Clause */
/* Which buffers lie in GPU memory. */
#include "librsched/run/run.h"

#include "librsched/base/error.h"

void rs_exchange_find_gpus(struct rsched_exchange *x)
{
    if (x->gpus == NULL && rsched_gpus() != NULL && rsched_gpus()->attach())
        x->gpus = rsched_gpus();
}

static int fail(const struct rsched_exchange *x, int error, bool out,
                uint32_t id, const char *what)
{
    return rs_fail(error, "exchange %llu: %s %u %s",
                   (unsigned long long)x->tag, out ? "put" : "receive", id,
                   what);
}

/* A look at the first byte, and at the block that begins there, finds mistakes;
 * the rest of a put is of the same allocation. */
static void look_at(const struct rsched_exchange *x,
                    const struct rsched_put *put, const void *address,
                    struct rsched_place *place)
{
    const struct rsched_run whole = {.bytes = put->bytes, .count = 1};
    const struct rsched_run *run =
        put->layout.num_runs == 0 ? &whole : put->layout.runs;

    if (x->gpus != NULL && put->bytes > 0)
        x->gpus->place((const void *)((uintptr_t)address +
                                      (uintptr_t)run->offset),
                       run->bytes, place);
}

static int check_declared(const struct rsched_exchange *x, bool out,
                          uint32_t id, const struct rsched_put *put,
                          const struct rsched_place *place)
{
    if (put->memory != RSCHED_MEMORY_DEVICE || put->bytes == 0 ||
        place->kind == RSCHED_PLACE_MANAGED)
        return 0;
    if (x->gpus == NULL)
        return fail(x, RSCHED_ENOTSUP, out, id,
                    "should lie in GPU memory, and no driver has been loaded");
    if (place->kind == RSCHED_PLACE_HOST)
        return fail(x, RSCHED_EINVAL, out, id,
                    "should lie in GPU memory, of which the driver knows "
                    "nothing at its address (is it freed?)");
    if (place->gpu == put->device)
        return 0;
    return rs_fail(RSCHED_EINVAL,
                   "exchange %llu: %s %u lies in the memory of GPU %d, not %d",
                   (unsigned long long)x->tag, out ? "put" : "receive", id,
                   place->gpu, put->device);
}

int rs_exchange_place(const struct rsched_exchange *x, bool out, uint32_t id,
                      const struct rsched_put *put,
                      const void *const *addresses, struct rsched_place *place)
{
    struct rsched_place p = {RSCHED_PLACE_HOST, -1};
    int error = 0;

    if (addresses == NULL) {
        if (put->memory == RSCHED_MEMORY_DEVICE)
            p = (struct rsched_place){RSCHED_PLACE_GPU, put->device};
    } else {
        look_at(x, put, addresses[id], &p);
        if (p.kind == RSCHED_PLACE_UNKNOWN)
            return fail(x, RSCHED_ENOTSUP, out, id,
                        "does not lie in one allocation of GPU or host memory");
        error = check_declared(x, out, id, put, &p);
    }
    if (error == 0)
        *place = p;
    return error;
}
