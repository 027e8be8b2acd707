/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/verbs/interpreter_memory.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/verbs/interpreter_gpu.h"

/* The key is the place in the table. Keys are not small numbers, and local ones
 * are no remote ones. */
static struct memory *memories;
static uint32_t num_memories, room_memories;

enum { FIRST_LKEY = 0x10000, FIRST_RKEY = 0x5000000 };

void memory_add(const struct memory *memory, struct rs_rdma_keys *keys)
{
    uint32_t key = num_memories++;

    if (key == room_memories) {
        room_memories = key == 0 ? 64 : 2 * key;
        memories = realloc(memories, room_memories * sizeof(*memories));
        assert(memories != NULL);
    }
    memories[key] = *memory;
    *keys = (struct rs_rdma_keys){.lkey = FIRST_LKEY + key,
                                  .rkey = FIRST_RKEY + key};
}

void memory_release(const struct rs_rdma_keys *keys)
{
    struct memory *m = &memories[keys->lkey - FIRST_LKEY];

    if (m->on_gpu)
        interpreter_gpu_forget(m->touch, m->bytes);
    if (m->mapped)
        munmap(m->touch, m->bytes);
    m->bytes = 0;
}

static const struct memory *find(uint32_t key, uint64_t address, uint64_t bytes,
                                 enum rs_rdma_access access)
{
    const struct memory *m = &memories[key];

    return key < num_memories && m->access >= access &&
                   address >= (uintptr_t)m->address && bytes <= m->bytes &&
                   address - (uintptr_t)m->address <= m->bytes - bytes
               ? m
               : NULL;
}

const struct memory *memory_local(uint32_t lkey, uint64_t address,
                                  uint64_t bytes, enum rs_rdma_access access)
{
    return find(lkey - FIRST_LKEY, address, bytes, access);
}

const struct memory *memory_remote(uint32_t rkey, uint64_t address,
                                   uint64_t bytes)
{
    return find(rkey - FIRST_RKEY, address, bytes, RS_RDMA_REMOTE);
}

bool memory_is_registered(const char *address, uint64_t bytes)
{
    for (uint32_t i = 0; i < num_memories; i++) {
        const struct memory *m = &memories[i];

        if (m->bytes > 0 && address < m->address + m->bytes &&
            m->address < address + bytes)
            return true;
    }
    return false;
}
