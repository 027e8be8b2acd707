/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory for the interpreter. What is written to it is visible, to whoever
 * looks, once the driver is told to flush (FAKE_CUDA_ORDERING=100 in the
 * environment, without FAKE_CUDA_HOST_TABLES=1: at once).
 */
#ifndef TESTS_VERBS_INTERPRETER_GPU_H
#define TESTS_VERBS_INTERPRETER_GPU_H

#include <stdint.h>

/** Where processors touch GPU memory; NULL: the address is none's. */
char *interpreter_gpu_peer(void *address);

/** Map what a dma-buf stands for; munmap() it. NULL: it is none. */
char *interpreter_gpu_map(int fd, uint64_t bytes);

void interpreter_gpu_write(char *to, const char *from, uint64_t bytes);

/** The memory is about to go: what has not become visible never does. */
void interpreter_gpu_forget(const char *touch, uint64_t bytes);

/** Writes to GPU memory so far. */
uint64_t interpreter_gpu_writes(void);

#endif
