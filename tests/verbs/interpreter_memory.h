/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that is registered with the interpreter, of all instances. The caller
 * has the interpreter's lock. */
#ifndef TESTS_VERBS_INTERPRETER_MEMORY_H
#define TESTS_VERBS_INTERPRETER_MEMORY_H

#include "engines/rdma/port.h"

struct memory {
    char *address;
    uint64_t bytes; /* 0: it has been released */
    enum rs_rdma_access access;
    char *touch; /* where processors have it */
    bool on_gpu; /* and see what is written once that is flushed */
    bool mapped; /* by interpreter_gpu_map() */
};

void memory_add(const struct memory *memory, struct rs_rdma_keys *keys);
void memory_release(const struct rs_rdma_keys *keys);

/** What a key stands for, if it has these bytes and allows that; else NULL. Until
 * more is added. */
const struct memory *memory_local(uint32_t lkey, uint64_t address,
                                  uint64_t bytes, enum rs_rdma_access access);
const struct memory *memory_remote(uint32_t rkey, uint64_t address,
                                   uint64_t bytes);

/** Whether a byte of these is registered. */
bool memory_is_registered(const char *address, uint64_t bytes);

static inline char *memory_touch(const struct memory *m, uint64_t address)
{
    return m->touch + (address - (uintptr_t)m->address);
}

#endif
