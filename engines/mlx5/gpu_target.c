/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs by which kernels put words (rsched/device_put.h). */
#include <stdlib.h>

#include "engines/mlx5/gpu_inside.h"
#include "librsched/base/error.h"

struct rs_gpu_words {
    struct rs_gpu_memory memory;
    struct rs_gpu_mapped_queue mapped;
    struct rsched_device_target image;
};

static int check_words(const struct rs_mlx5_memory *queue, uint64_t remote)
{
    if (remote % 8 != 0)
        return rs_fail(RSCHED_EINVAL,
                       "mlx5 qp 0x%x: words at a remote address that is not a "
                       "multiple of 8",
                       queue->qpn);
    if (queue->max_inline < 8 || queue->send_blocks < RSCHED_DEVICE_MAX_GROUP)
        return rs_fail(RSCHED_ENOTSUP,
                       "mlx5 qp 0x%x: %u bytes inline, %u blocks: too little "
                       "for a warp's words",
                       queue->qpn, queue->max_inline, queue->send_blocks);
    return 0;
}

int rs_gpu_words_create(const struct rs_gpu_memory *memory,
                        const struct rs_mlx5_memory *queue, uint64_t remote,
                        uint32_t rkey, uint64_t bytes,
                        struct rs_gpu_words **words)
{
    struct rs_gpu_words *w;
    int error = check_words(queue, remote);

    if (error != 0)
        return error;
    w = calloc(1, sizeof(*w));
    if (w == NULL)
        return rs_fail(RSCHED_ENOMEM, "mlx5: no memory for a target");
    w->memory = *memory;
    w->image = (struct rsched_device_target){.remote = remote,
                                             .bytes = bytes,
                                             .rkey = rkey,
                                             .max_inline = queue->max_inline};
    error = rs_gpu_queue_map(memory, queue, &w->mapped, &w->image.queue);
    if (error != 0) {
        free(w);
        return error;
    }
    *words = w;
    return 0;
}

void rs_gpu_words_destroy(struct rs_gpu_words *w)
{
    if (w == NULL)
        return;
    rs_gpu_queue_unmap(&w->memory, &w->mapped);
    free(w);
}

void rs_gpu_words_fill(const struct rs_gpu_words *w,
                       struct rsched_device_target *target)
{
    *target = w->image;
}

int rs_gpu_words_check(const struct rs_gpu_words *w,
                       const struct rsched_device_target *target)
{
    /* Acquire: the failure comes before the status. */
    int status = (int)rsched_device_load32((const uint32_t *)&target->status);

    return status == 0 ? 0
                       : rs_gpu_explain(w->image.queue.qpn, &target->failure,
                                        status, 0);
}

/* ---- with a thread that may put for kernels ---- */

static int allocate_target(struct rs_gpu_target *t)
{
    const struct rs_gpu_memory *m = &t->memory;
    void *memory;
    int error = m->allocate(m->arg, sizeof(*t->view), false, &memory);

    if (error != 0)
        return error;
    t->view = memory;
    if (t->proxy == NULL)
        return 0;
    error = m->allocate(m->arg, sizeof(*t->word), true, &memory);
    if (error != 0)
        return error;
    t->word = memory;
    t->host = calloc(1, sizeof(*t->host));
    return t->host != NULL ? 0 : rs_fail(RSCHED_ENOMEM, "mlx5: no memory");
}

static void join_proxy(struct rs_gpu_target *t)
{
    *t->host = *t->view;
    t->view->proxy = t->proxy->view;
    t->view->host = t;
    t->view->flushed = &t->word->flushed;
    t->view->proxy_status = &t->word->status;
    t->next = t->proxy->targets;
    t->proxy->targets = t;
}

int rs_gpu_target_create(const struct rs_gpu_memory *memory,
                         const struct rs_mlx5_memory *queue, uint64_t remote,
                         uint32_t rkey, uint64_t bytes,
                         struct rs_gpu_proxy *proxy,
                         struct rs_gpu_target **target)
{
    struct rs_gpu_target *t = calloc(1, sizeof(*t));
    int error;

    if (t == NULL)
        return rs_fail(RSCHED_ENOMEM, "mlx5: no memory for a target");
    t->memory = *memory;
    t->proxy = proxy;
    error = rs_gpu_words_create(proxy == NULL ? memory : &rs_gpu_memory_plain,
                                queue, remote, rkey, bytes, &t->words);
    if (error == 0)
        error = allocate_target(t);
    if (error != 0) {
        rs_gpu_target_destroy(t);
        return error;
    }
    rs_gpu_words_fill(t->words, t->view);
    if (proxy != NULL)
        join_proxy(t);
    *target = t;
    return 0;
}

void rs_gpu_target_destroy(struct rs_gpu_target *t)
{
    const struct rs_gpu_memory *m = &t->memory;

    if (t->proxy != NULL) {
        struct rs_gpu_target **link = &t->proxy->targets;

        while (*link != NULL && *link != t)
            link = &(*link)->next;
        if (*link == t)
            *link = t->next;
    }
    rs_gpu_words_destroy(t->words);
    if (t->view != NULL)
        m->release(m->arg, t->view);
    if (t->word != NULL)
        m->release(m->arg, t->word);
    free(t->host);
    free(t);
}

struct rsched_device_target *
rs_gpu_target_view(const struct rs_gpu_target *target)
{
    return target->view;
}

int rs_gpu_target_check(const struct rs_gpu_target *target)
{
    return rs_gpu_words_check(target->words, rs_gpu_target_producer(target));
}

const struct rsched_device_target *
rs_gpu_target_producer(const struct rs_gpu_target *target)
{
    return target->proxy == NULL ? target->view : target->host;
}
