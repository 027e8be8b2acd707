/* SPDX-License-Identifier: BSD-3-Clause */
#include "field.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Stable for a step of one time unit: see the growth factors of forward Euler
 * with fourth-order central advection, which mu > u^2 / 2 damps. */
static const double mu = 0.05;  /* diffusion */
static const double nu4 = 0.01; /* hyperdiffusion */
static const double kz = 0.1;   /* vertical diffusion */
static const double wind = 0.2; /* cells per step, at the top */

static size_t num_cells(const struct field *f)
{
    return field_y_stride(f) / sizeof(double) * ((size_t)f->ny + 2 * HALO);
}

/* Index of the first level of a column. */
static size_t at(const struct field *f, int x, int y)
{
    return ((size_t)(y + HALO) * ((size_t)f->nx + 2 * HALO) +
            (size_t)(x + HALO)) *
               ((size_t)f->nz + 2 * HALO) +
           HALO;
}

static double distance2(int position, int center, int size)
{
    int d = abs(position - center);

    if (d > size - d)
        d = size - d;
    return (double)d * (double)d;
}

/* A hill in the middle whose place shifts with height, over a rough floor. */
static double initial_value(const struct field *f, int x, int y, int z)
{
    double hill = distance2(x, (f->gx / 2 + z) % f->gx, f->gx) +
                  distance2(y, f->gy / 3, f->gy);
    double rough = (double)((x * 7 + y * 13 + z * 5) % 32) / 64.0;

    return 1.0 + 1.0 / (1.0 + hill / 16.0) + rough;
}

int field_init(struct field *f)
{
    size_t cells = num_cells(f);

    f->q = calloc(cells, sizeof(double));
    f->next = calloc(cells, sizeof(double));
    f->lap = calloc(cells, sizeof(double));
    if (f->q == NULL || f->next == NULL || f->lap == NULL) {
        field_fini(f);
        return -1;
    }
    for (int y = 0; y < f->ny; y++)
        for (int x = 0; x < f->nx; x++)
            for (int z = 0; z < f->nz; z++)
                f->q[at(f, x, y) + (size_t)z] =
                    initial_value(f, f->x0 + x, f->y0 + y, z);
    return 0;
}

void field_fini(struct field *f)
{
    free(f->q);
    free(f->next);
    free(f->lap);
    f->q = f->next = f->lap = NULL;
}

void field_close_top_and_bottom(struct field *f)
{
    for (int y = 0; y < f->ny; y++) {
        for (int x = 0; x < f->nx; x++) {
            double *bottom = f->q + at(f, x, y);
            double *top = bottom + f->nz - 1;

            bottom[-2] = bottom[-1] = bottom[0];
            top[2] = top[1] = top[0];
        }
    }
}

void field_wrap(struct field *f)
{
    size_t columns = HALO * field_x_stride(f);
    size_t rows = HALO * field_y_stride(f);

    for (int y = 0; y < f->ny; y++) {
        memcpy(field_column(f, -HALO, y), field_column(f, f->nx - HALO, y),
               columns);
        memcpy(field_column(f, f->nx, y), field_column(f, 0, y), columns);
    }
    memcpy(field_column(f, -HALO, -HALO),
           field_column(f, -HALO, f->ny - HALO), rows);
    memcpy(field_column(f, -HALO, f->ny), field_column(f, -HALO, 0), rows);
}

/* The isotropic nine-point Laplacian at `in[c]`, dx and dy cells apart. */
static inline double laplacian(const double *in, size_t c, size_t dx, size_t dy)
{
    double near = (in[c - dx] + in[c + dx]) + (in[c - dy] + in[c + dy]);
    double far = (in[c - dy - dx] + in[c + dy + dx]) +
                 (in[c - dy + dx] + in[c + dy - dx]);

    return (4.0 * near + far - 20.0 * in[c]) * (1.0 / 6.0);
}

/* What flows through the face between cell c and cell c + d in one step. */
static inline double flux(const double *in, size_t c, size_t d, double speed)
{
    return speed * (1.0 / 12.0) *
           (7.0 * (in[c] + in[c + d]) - (in[c - d] + in[c + 2 * d]));
}

static void laplacian_column(struct field *f, int x, int y)
{
    size_t dx = field_x_stride(f) / sizeof(double);
    size_t dy = field_y_stride(f) / sizeof(double);
    size_t first = at(f, x, y);

    for (size_t c = first; c < first + (size_t)f->nz; c++)
        f->lap[c] = laplacian(f->q, c, dx, dy);
}

static void step_column(struct field *f, int x, int y)
{
    size_t dx = field_x_stride(f) / sizeof(double);
    size_t dy = field_y_stride(f) / sizeof(double);
    size_t first = at(f, x, y);
    const double *q = f->q;

    for (size_t z = 0; z < (size_t)f->nz; z++) {
        size_t c = first + z;
        double u = wind * ((double)z + 1.0) / (double)f->nz;
        double v = wind - u;
        double out = (flux(q, c, dx, u) - flux(q, c - dx, dx, u)) +
                     (flux(q, c, dy, v) - flux(q, c - dy, dy, v));
        double spread = mu * f->lap[c] - nu4 * laplacian(f->lap, c, dx, dy);
        double rise = kz * ((q[c + 1] - q[c]) - (q[c] - q[c - 1]));

        f->next[c] = q[c] - out + (spread + rise);
    }
}

void field_step(struct field *f)
{
    for (int y = -1; y <= f->ny; y++)
        for (int x = -1; x <= f->nx; x++)
            laplacian_column(f, x, y);
    for (int y = 0; y < f->ny; y++)
        for (int x = 0; x < f->nx; x++)
            step_column(f, x, y);
    /* Copied back, not swapped: the exchange is bound to this buffer. */
    for (int y = 0; y < f->ny; y++)
        memcpy(f->q + at(f, 0, y), f->next + at(f, 0, y),
               (size_t)f->nx * field_x_stride(f));
}

/* The finalizer of splitmix64: every bit of the input changes half the bits. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t field_hash(const struct field *f)
{
    uint64_t hash = 0;

    for (int y = 0; y < f->ny; y++) {
        for (int x = 0; x < f->nx; x++) {
            for (int z = 0; z < f->nz; z++) {
                uint64_t place = ((uint64_t)(f->y0 + y) * (uint64_t)f->gx +
                                  (uint64_t)(f->x0 + x)) *
                                     (uint64_t)f->nz +
                                 (uint64_t)z;
                uint64_t bits;

                memcpy(&bits, &f->q[at(f, x, y) + (size_t)z], sizeof(bits));
                hash += mix(bits ^ mix(place + 1));
            }
        }
    }
    return hash;
}

int64_t field_integral(const struct field *f)
{
    int64_t sum = 0;

    for (int y = 0; y < f->ny; y++)
        for (int x = 0; x < f->nx; x++)
            for (int z = 0; z < f->nz; z++)
                sum += llrint(f->q[at(f, x, y) + (size_t)z] * 0x1p36);
    return sum;
}
