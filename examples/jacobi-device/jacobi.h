/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jacobi's method for Laplace's equation on a strip of a grid, all steps in one
 * kernel: each step starts the exchange of the strip's edge rows from inside,
 * computes the rows that need no halo, waits, and computes the edge rows.
 *
 * A strip has `rows` rows of `width` values between two halo rows; the outer
 * columns, and halo rows without a neighbor, hold boundary values. Step k reads
 * grid[k % 2], whose edge rows are the send buffers of that set and whose halo
 * rows its receive buffers, and writes the other one.
 */
#ifndef JACOBI_H
#define JACOBI_H

#include <rsched/device.h>

struct jacobi {
    double *grid[2]; /* (rows + 2) * width */
    uint32_t rows, width;
    uint64_t steps;
    struct rsched_device_exchange *halo;
    int32_t status; /* of the first step that failed */
};

RSCHED_DEVICE void jacobi_row(const struct jacobi *j, uint64_t step,
                              uint32_t row, uint32_t worker, uint32_t workers)
{
    const double *from = j->grid[step % 2] + (size_t)row * j->width;
    double *to = j->grid[(step + 1) % 2] + (size_t)row * j->width;

    for (uint32_t c = 1 + worker; c + 1 < j->width; c += workers)
        to[c] = 0.25 * ((from[c - 1] + from[c + 1]) +
                        (from[(size_t)c - j->width] + from[c + j->width]));
}

/* All threads of the group call. @return 0 or an RSCHED_E* code */
RSCHED_DEVICE int jacobi_run(struct jacobi *j,
                             const struct rsched_device_group *g)
{
    int status = 0;

    for (uint64_t step = 0; step < j->steps && status == 0; step++) {
        status = rsched_device_start(j->halo, g);
        for (uint32_t row = 2; row < j->rows && status == 0; row++)
            jacobi_row(j, step, row, g->rank, g->size);
        if (status == 0)
            status = rsched_device_wait(j->halo, g);
        if (status != 0)
            break;
        jacobi_row(j, step, 1, g->rank, g->size);
        if (j->rows > 1)
            jacobi_row(j, step, j->rows, g->rank, g->size);
    }
    rsched_device_sync(g);
    if (g->rank == 0)
        j->status = status;
    return status;
}

#endif
