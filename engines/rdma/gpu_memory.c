/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registrations of GPU memory. A dma-buf needs nothing but the two drivers. Peer
 * memory needs a GPU that other drivers may map, and a kernel module by which the
 * RDMA stack asks the GPU's driver whose address it is (nvidia_peermem); then it is
 * registered like the host's.
 */
#include <stdio.h>
#include <unistd.h>

#include "engines/rdma/memory.h"
#include "librsched/base/error.h"

enum { WHY_BYTES = 256 };

static int register_dmabuf(struct rs_rdma_port *port,
                           struct rsched_gpu_hold *gpu, uintptr_t address,
                           uint64_t bytes, enum rs_rdma_access access,
                           struct rs_rdma_keys *keys)
{
    int fd, error;

    if (port->ops->dmabuf_register == NULL)
        return rs_fail(RSCHED_ENOTSUP, "%s takes none", port->name);
    error = rsched_gpus()->dmabuf(gpu, (const void *)address, bytes, &fd);
    if (error != 0)
        return error;
    error = port->ops->dmabuf_register(port, fd, address, bytes, access, keys);
    close(fd);
    return error;
}

int rs_rdma_gpu_register(struct rs_rdma_port *port, struct rsched_gpu_hold *gpu,
                         uintptr_t address, uint64_t bytes,
                         enum rs_rdma_access access, struct rs_rdma_keys *keys)
{
    char why[WHY_BYTES];
    int error = register_dmabuf(port, gpu, address, bytes, access, keys);

    if (error == 0)
        return 0;
    snprintf(why, sizeof(why), "%s", rsched_last_error());
    error = rsched_gpus()->peer_memory(gpu);
    if (error == 0)
        error = port->ops->memory_register(port, (void *)address, bytes, access,
                                           keys);
    if (error == 0)
        return 0;
    return rs_fail(RSCHED_ENOTSUP,
                   "%llu bytes of GPU memory cannot be registered: as a "
                   "dma-buf: %s; as peer memory (nvidia_peermem): %s",
                   (unsigned long long)bytes, why, rsched_last_error());
}
