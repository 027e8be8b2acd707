/* SPDX-License-Identifier: BSD-3-Clause */
/* What is refused without a device: that one is there cannot be tested here. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/error.h>

#include "engines/mlx5/device.h"

/* As much as a driver's device may be; of no driver. */
static union {
    struct ibv_device device;
    char bytes[4096];
} fake = {.device = {.name = "fake0"}};

Test(device, of_another_kind)
{
    unsetenv("MLX5_QP_SIGNATURE");
    cr_assert_eq(rs_mlx5_device_check(&fake.device), RSCHED_ENOTSUP);
    cr_assert_str_eq(rsched_last_error(), "mlx5: fake0 is not an mlx5 device");
}

Test(device, with_signatures)
{
    setenv("MLX5_QP_SIGNATURE", "0", 1); /* means yes to the driver */
    cr_assert_eq(rs_mlx5_device_check(&fake.device), RSCHED_ENOTSUP);
    cr_assert(strstr(rsched_last_error(), "fake0: MLX5_QP_SIGNATURE is set") !=
              NULL);
}

/* No queue pair of it is touched. */
Test(device, queue_pairs_of_another_kind)
{
    struct ibv_context context = {.device = &fake.device};
    struct ibv_qp qp = {.context = &context, .qp_type = IBV_QPT_RC};
    struct ibv_qp_cap cap = {.max_send_sge = 1};
    struct rs_mlx5_memory memory;

    unsetenv("MLX5_QP_SIGNATURE");
    cr_assert_eq(rs_mlx5_device_describe(&qp, &cap, &memory), RSCHED_ENOTSUP);
}
