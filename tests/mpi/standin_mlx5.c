/* SPDX-License-Identifier: BSD-3-Clause */
/* STANDIN for libmlx5: as that for libibverbs, and beside it. */
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "tests/mpi/standin.h"

struct umem {
    void *address;
    size_t bytes;
};

struct ibv_context *mlx5dv_open_device(struct ibv_device *device, void *attributes);
struct ibv_context *mlx5dv_open_device(struct ibv_device *device, void *attributes)
{
    struct ibv_context *context = calloc(1, sizeof(*context));

    (void)attributes;
    standin_calls++;
    context->device = device;
    context->cmd_fd = standin_open();
    return context;
}

void *mlx5dv_devx_umem_reg(struct ibv_context *context, void *address, size_t bytes,
                           uint32_t access);
void *mlx5dv_devx_umem_reg(struct ibv_context *context, void *address, size_t bytes,
                           uint32_t access)
{
    (void)context;
    (void)address;
    (void)bytes;
    (void)access;
    standin_calls++;
    return malloc(1);
}

void *mlx5dv_devx_umem_reg_ex(struct ibv_context *context, struct umem *umem);
void *mlx5dv_devx_umem_reg_ex(struct ibv_context *context, struct umem *umem)
{
    return mlx5dv_devx_umem_reg(context, umem->address, umem->bytes, 0);
}

int mlx5dv_devx_umem_dereg(void *umem);
int mlx5dv_devx_umem_dereg(void *umem)
{
    standin_calls++;
    free(umem);
    return 0;
}
