/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of GPU memory that peers write, cut from pages of the engine's own. */
#include <stdlib.h>
#include <unistd.h>

#include "engines/rdma/memory.h"
#include "librsched/base/error.h"

enum { LINE = 64 };

struct rs_rdma_gpu_page {
    struct rs_rdma_gpu_page *next;
    int gpu;
    struct rsched_gpu_hold *hold;
    char *memory;
    uint64_t bytes, used;
    struct rs_rdma_keys keys;
};

static void page_free(struct rs_rdma_gpu_page *p)
{
    if (p->memory != NULL)
        rsched_gpus()->pages_destroy(p->hold, p->memory);
    rsched_gpus()->release(p->hold);
    free(p);
}

static int page_open(struct rs_rdma_gpu_page *p, struct rs_rdma_port *port)
{
    const struct rsched_gpu_ops *gpus = rsched_gpus();
    void *memory;
    int error = gpus->hold(p->gpu, &p->hold);

    if (error == 0)
        error = gpus->orders(p->hold);
    if (error == 0)
        error = gpus->pages_create(p->hold, p->bytes, &memory);
    if (error != 0)
        return error;
    p->memory = memory;
    return rs_rdma_gpu_register(port, p->hold, (uintptr_t)memory, p->bytes,
                                RS_RDMA_REMOTE, &p->keys);
}

static int add_page(struct rs_rdma_memory *memory, int gpu,
                    struct rs_rdma_gpu_page **page)
{
    struct rs_rdma_gpu_page *p = calloc(1, sizeof(*p));
    int error;

    if (p == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a page");
    p->gpu = gpu;
    p->bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    error = page_open(p, memory->port);
    if (error != 0) {
        page_free(p);
        return error;
    }
    p->next = memory->gpu_pages;
    memory->gpu_pages = p;
    *page = p;
    return 0;
}

static int add_block(struct rs_rdma_memory *memory, int gpu,
                     struct rs_rdma_gpu_block **block)
{
    struct rs_rdma_gpu_page *p = memory->gpu_pages;
    struct rs_rdma_gpu_block *b;
    int error = 0;

    while (p != NULL && (p->gpu != gpu || p->bytes - p->used < LINE))
        p = p->next;
    if (p == NULL)
        error = add_page(memory, gpu, &p);
    if (error != 0)
        return error;
    b = calloc(1, sizeof(*b));
    if (b == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a block");
    b->memory = p->memory + p->used;
    b->hold = p->hold;
    b->keys = &p->keys;
    b->gpu = gpu;
    p->used += LINE;
    b->next = memory->gpu_blocks;
    memory->gpu_blocks = b;
    *block = b;
    return 0;
}

int rs_rdma_gpu_block_allocate(struct rs_rdma_memory *memory, int gpu,
                               struct rs_rdma_gpu_block **block)
{
    struct rs_rdma_gpu_block *b = memory->gpu_blocks;
    int error = 0;

    while (b != NULL && (b->in_use || b->gpu != gpu))
        b = b->next;
    if (b == NULL)
        error = add_block(memory, gpu, &b);
    if (error == 0)
        error = rsched_gpus()->pages_clear(b->hold, b->memory, LINE);
    if (error != 0)
        return error;
    b->in_use = true;
    *block = b;
    return 0;
}

void rs_rdma_gpu_block_release(struct rs_rdma_gpu_block *block)
{
    if (block != NULL)
        block->in_use = false;
}

void rs_rdma_gpu_blocks_fini(struct rs_rdma_memory *memory)
{
    for (struct rs_rdma_gpu_block *b = memory->gpu_blocks, *next; b != NULL;
         b = next) {
        next = b->next;
        free(b);
    }
    for (struct rs_rdma_gpu_page *p = memory->gpu_pages, *next; p != NULL;
         p = next) {
        next = p->next;
        memory->port->ops->memory_release(memory->port, &p->keys);
        page_free(p);
    }
}
