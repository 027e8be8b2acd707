/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * FIELD: one process's part of the grid, and the arithmetic of a step.
 *
 * The grid is what SCALE-LES3's dynamics exchange halos of: levels (z) lie
 * next to each other in memory, then columns along x (west to east), then
 * along y (north to south), each with a halo of two cells on both sides. The
 * step is advection and diffusion in flux form with a 5 x 5 horizontal
 * footprint, so every cell of the halo matters, corners included.
 *
 * A cell's new value is computed from the same operands in the same order
 * however the grid is cut (no fused multiply-add, no libm), so the result is
 * the same to the bit on any number of processes and on any IEEE machine.
 */
#ifndef HALO_FIELD_H
#define HALO_FIELD_H

#include <stddef.h>
#include <stdint.h>

enum { HALO = 2 }; /* cells, on every side of every dimension */

struct field {
    int nx, ny, nz;    /* cells of this part, without halos */
    int x0, y0;        /* global position of its first cell */
    int gx, gy;        /* cells of the whole periodic grid */
    double *q;         /* the quantity, with halos */
    double *next, *lap;
};

/** Bytes from one column's first cell to the next one's, along x and y. */
static inline size_t field_x_stride(const struct field *f)
{
    return ((size_t)f->nz + 2 * HALO) * sizeof(double);
}

static inline size_t field_y_stride(const struct field *f)
{
    return ((size_t)f->nx + 2 * HALO) * field_x_stride(f);
}

/** The first byte of column (x, y), its lower halo cells included; x and y
 * count from the first cell that is not halo and may be negative. */
static inline char *field_column(const struct field *f, int x, int y)
{
    return (char *)f->q + (size_t)(y + HALO) * field_y_stride(f) +
           (size_t)(x + HALO) * field_x_stride(f);
}

/** Allocate and set the initial values; nx to gy must be set. Returns 0, or
 * -1 when memory is short. */
int field_init(struct field *f);
void field_fini(struct field *f);

/** Fill the halo cells above and below, which need no neighbor. To be done
 * before the halo is exchanged, which moves them along. */
void field_close_top_and_bottom(struct field *f);

/** Copy the halo from the opposite side: for a field that is the whole grid,
 * in place of an exchange. */
void field_wrap(struct field *f);

/** One step, when the halo is up to date. */
void field_step(struct field *f);

/** A hash of all values and their global positions. The hash of the whole
 * grid is the sum (modulo 2^64) of its parts' hashes. */
uint64_t field_hash(const struct field *f);

/** The conserved quantity in units of 2^-36, rounded cell by cell: sums of
 * such integers do not depend on the order. */
int64_t field_integral(const struct field *f);

#endif
