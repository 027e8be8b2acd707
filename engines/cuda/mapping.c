/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/cuda/mapping.h"

#include <string.h>

#include "librsched/base/error.h"

static uint64_t address_of(const struct rs_mapped_block *block)
{
    return (uint64_t)(uintptr_t)block->address;
}

/* @return the allocation's number; 0: it is none */
static unsigned long long buffer_of(const struct rs_mapped_block *block)
{
    const struct rs_cuda_driver *driver = rs_cuda_driver_found();
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_BUFFER_ID;
    unsigned long long buffer = 0;
    void *value = &buffer;

    return driver != NULL && driver->cuPointerGetAttributes(
                                 1, &attribute, &value,
                                 address_of(block)) == CUDA_SUCCESS
               ? buffer
               : 0;
}

static bool contains(const struct rs_mapping *mapping, const char *address,
                     uint64_t bytes)
{
    uint64_t offset = (uintptr_t)address - (uintptr_t)mapping->block.address;

    return offset < mapping->block.bytes &&
           bytes <= mapping->block.bytes - offset;
}

static bool is_of(const struct rs_mapping *mapping,
                  const struct rs_mapped_block *block)
{
    return contains(mapping, block->address, block->bytes) &&
           mapping->buffer == buffer_of(block);
}

static bool is_of_any(const struct rs_mapping *mapping,
                      const struct rs_mapped_block *blocks, size_t num)
{
    for (size_t i = 0; i < num; i++) {
        if (is_of(mapping, &blocks[i]))
            return true;
    }
    return false;
}

static void undo(struct rs_mappings *m, unsigned number)
{
    struct rs_mapping *mapping = &m->of[number];

    rs_gdr_unmap(m->gdr, mapping->handle, mapping->pages, mapping->bytes);
    *mapping = m->of[--m->num];
}

void rs_mappings_fini(struct rs_mappings *m)
{
    while (m->num > 0)
        undo(m, m->num - 1);
}

void rs_mappings_trim(struct rs_mappings *m, const struct rs_mapped_block *blocks,
                      size_t num)
{
    for (unsigned i = m->num; i-- > 0;) {
        if (!is_of_any(&m->of[i], blocks, num))
            undo(m, i);
    }
}

static int add(struct rs_mappings *m, const struct rs_mapped_block *block)
{
    uint64_t first = address_of(block) / RS_GDR_PAGE;
    uint64_t end = (address_of(block) + block->bytes - 1) / RS_GDR_PAGE + 1;
    struct rs_mapping n = {.block = *block,
                           .buffer = buffer_of(block),
                           .bytes = (end - first) * RS_GDR_PAGE};
    struct rs_gdr_info info;
    int error;

    if (m->num == RS_MAPPINGS)
        return rs_fail(RSCHED_ELIMIT, "more than %d blocks", RS_MAPPINGS);
    error = rs_gdr_map(m->gdr, first * RS_GDR_PAGE, n.bytes, &n.handle,
                       &n.pages, &info);
    if (error != 0)
        return error;
    n.mapped = n.pages + (address_of(block) - info.start);
    m->of[m->num++] = n;
    return 0;
}

int rs_mappings_complete(struct rs_mappings *m, struct rs_gdr *gdr,
                         const struct rs_mapped_block *blocks, size_t num)
{
    int error = 0;

    m->gdr = gdr;
    for (size_t i = 0; i < num && error == 0; i++) {
        bool there = false;

        for (unsigned k = 0; k < m->num && !there; k++)
            there = is_of(&m->of[k], &blocks[i]);
        if (!there)
            error = add(m, &blocks[i]);
    }
    if (error != 0)
        rs_mappings_fini(m);
    return error;
}

/* With the block of some of its bytes. */
static struct rs_mapping *find(struct rs_mappings *m, const char *address,
                               uint64_t bytes)
{
    for (unsigned i = 0; i < m->num; i++) {
        if (contains(&m->of[i], address, bytes))
            return &m->of[i];
    }
    return NULL;
}

static int check(const char *what, int number)
{
    return number == 0 ? 0
                       : rs_fail(RSCHED_ESYS, "GDRCopy: %s: %s", what,
                                 strerror(number));
}

static int __attribute__((cold)) not_mapped(void)
{
    return rs_fail(RSCHED_ESYS, "GPU memory that is not mapped");
}

int rs_mappings_read(struct rs_mappings *m, const char *from, char *to,
                     uint64_t bytes)
{
    const struct rs_mapping *n = find(m, from, bytes);

    if (n == NULL)
        return not_mapped();
    return check("reading GPU memory",
                 m->gdr->copy_from(n->handle, to,
                                   n->mapped + (from - n->block.address), bytes));
}

int rs_mappings_write(struct rs_mappings *m, char *to, const char *from,
                      uint64_t bytes)
{
    struct rs_mapping *n = find(m, to, bytes);

    if (n == NULL)
        return not_mapped();
    n->written = n->mapped + (to - n->block.address);
    return check("writing GPU memory",
                 m->gdr->copy_to(n->handle, n->written, from, bytes));
}

/* Whether another one to the same GPU is read back after it. */
static bool is_followed(const struct rs_mappings *m, unsigned number)
{
    for (unsigned i = number + 1; i < m->num; i++) {
        if (m->of[i].written != NULL &&
            m->of[i].block.gpu == m->of[number].block.gpu)
            return true;
    }
    return false;
}

/* On the bus a read follows all writes to that GPU. */
int rs_mappings_flush(struct rs_mappings *m)
{
    char byte;
    int error = 0;

    for (unsigned i = 0; i < m->num && error == 0; i++) {
        struct rs_mapping *n = &m->of[i];

        if (n->written != NULL && !is_followed(m, i))
            error = check("reading GPU memory back",
                          m->gdr->copy_from(n->handle, &byte, n->written, 1));
        n->written = NULL;
    }
    return error;
}
