/* SPDX-License-Identifier: BSD-3-Clause */
/* HOLD: a GPU whose memory other engines have their devices reach, or have
 * copied. The functions are those of struct rsched_gpu_ops. */
#ifndef RS_CUDA_HOLD_H
#define RS_CUDA_HOLD_H

#include "engines/cuda/node.h"

struct rsched_gpu_hold {
    const struct rs_cuda_driver *driver;
    struct rsched_engine contexts; /* that are held; nothing else of it is used */
    CUcontext context;
    int gpu;
    int flush; /* how what devices write becomes visible */
};

int rs_cuda_hold(int gpu, struct rsched_gpu_hold **hold);
void rs_cuda_release(struct rsched_gpu_hold *hold);
int rs_cuda_extent(struct rsched_gpu_hold *hold, const void *address,
                   uintptr_t *begin, uintptr_t *end);
int rs_cuda_dmabuf(struct rsched_gpu_hold *hold, const void *address,
                   uint64_t bytes, int *fd);
int rs_cuda_flush(struct rsched_gpu_hold *hold);
int rs_cuda_orders(struct rsched_gpu_hold *hold);
int rs_cuda_peer_memory(struct rsched_gpu_hold *hold);

/** Calls of this thread are for the GPU until leave(). */
int rs_cuda_enter(const struct rsched_gpu_hold *hold, CUstreamCaptureMode *mode);
void rs_cuda_leave(const struct rsched_gpu_hold *hold, CUstreamCaptureMode mode);

/* pages.c */

int rs_cuda_pages_map(struct rsched_gpu_hold *hold, void *host, uint64_t bytes,
                      bool is_register, void **mapped);
void rs_cuda_pages_unmap(struct rsched_gpu_hold *hold, void *host);
int rs_cuda_pages_create(struct rsched_gpu_hold *hold, uint64_t bytes,
                         void **pages);
int rs_cuda_pages_clear(struct rsched_gpu_hold *hold, void *memory,
                        uint64_t bytes);
void rs_cuda_pages_destroy(struct rsched_gpu_hold *hold, void *pages);

/* stage.c */

int rs_cuda_stage_create(struct rsched_gpu_hold *hold,
                         const struct rsched_message *message, bool to_host,
                         uint64_t piece_bytes, struct rsched_gpu_stage **stage);
int rs_cuda_stage_pin(struct rsched_gpu_stage *stage, void *memory,
                      uint64_t bytes);
int rs_cuda_stage_begin(struct rsched_gpu_stage *stage, uint32_t piece,
                        void *memory);
int rs_cuda_stage_poll(struct rsched_gpu_stage *stage, uint32_t piece);
void rs_cuda_stage_drain(struct rsched_gpu_stage *stage);
void rs_cuda_stage_destroy(struct rsched_gpu_stage *stage);

#endif
