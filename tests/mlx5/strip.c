/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/mlx5/strip.h"

#include <string.h>

enum { ABOVE, BELOW };

static size_t grid_values(const struct strip_options *o)
{
    return (size_t)(o->rows + 2) * o->width;
}

static double *row_at(const struct strip *s, const struct strip_rank *r,
                      unsigned set, uint32_t row)
{
    return r->memory + set * grid_values(&s->options) +
           (size_t)row * s->options.width;
}

static uint32_t make_key(struct strip *s, uint32_t rank, void *base,
                         uint64_t bytes)
{
    uint32_t key;

    PAIR_NEEDS(rs_softnic_register(s->nic, 1 + rank, base, bytes,
                                   RS_SOFTNIC_LOCAL_WRITE |
                                       RS_SOFTNIC_REMOTE_WRITE,
                                   &key) == 0);
    return key;
}

static void rank_init(struct strip *s, uint32_t rank)
{
    const struct strip_options *o = &s->options;
    struct strip_rank *r = &s->ranks[rank];
    const struct rs_softnic_qp_attr attr = {.domain = 1 + rank,
                                            .send_blocks = o->blocks,
                                            .cq_entries = o->blocks,
                                            .cqe_bytes = rank % 2 ? 128 : 64};

    r->memory = calloc(2 * grid_values(o), sizeof(double));
    PAIR_NEEDS(r->memory != NULL);
    r->memory_key =
        make_key(s, rank, r->memory, 2 * grid_values(o) * sizeof(double));
    r->arrived_key = make_key(s, rank, r->arrived, sizeof(r->arrived));
    r->has[ABOVE] = rank > 0;
    r->has[BELOW] = rank + 1 < o->ranks;
    for (int side = 0; side < 2; side++) {
        if (!r->has[side])
            continue;
        PAIR_NEEDS(rs_softnic_qp_create(s->nic, &attr, &r->qps[side]) == 0);
        r->queues[side] = pair_memory(r->qps[side]);
        r->num_lanes++;
    }
    r->jacobi = (struct jacobi){.grid = {row_at(s, r, 0, 0), row_at(s, r, 1, 0)},
                                .rows = o->rows,
                                .width = o->width};
}

struct lists {
    struct rs_rdma_piece pieces[STRIP_MAX_PUTS];
    struct rs_rdma_op ops[STRIP_MAX_PUTS + 1];
    uint32_t num_ops;
};

/* An edge row to the neighbor's halo row, cut into puts, then the notification. */
static void make_ops(const struct strip *s, uint32_t rank, int side,
                     unsigned set, struct lists *l)
{
    const struct strip_options *o = &s->options;
    const struct strip_rank *r = &s->ranks[rank];
    const struct strip_rank *peer = side == ABOVE ? r - 1 : r + 1;
    const double *from = row_at(s, r, set, side == ABOVE ? 1 : o->rows);
    const double *to = row_at(s, peer, set, side == ABOVE ? o->rows + 1 : 0);
    uint32_t puts = set == 1 && o->odd_puts != 0 ? o->odd_puts : o->puts;

    for (uint32_t i = 0; i < puts; i++) {
        uint32_t first = o->width * i / puts, end = o->width * (i + 1) / puts;

        l->pieces[i] = (struct rs_rdma_piece){
            .address = (uintptr_t)(from + first),
            .bytes = (end - first) * (uint32_t)sizeof(double),
            .lkey = r->memory_key};
        l->ops[i] = (struct rs_rdma_op){.opcode = RS_RDMA_WRITE,
                                        .remote = (uintptr_t)(to + first),
                                        .rkey = peer->memory_key,
                                        .num_pieces = 1,
                                        .pieces = &l->pieces[i]};
    }
    l->ops[puts] =
        (struct rs_rdma_op){.opcode = RS_RDMA_WRITE,
                            .stamp = RS_STAMP_EPOCH,
                            .remote = (uintptr_t)&peer->arrived[!side],
                            .rkey = peer->arrived_key};
    l->num_ops = puts + 1;
}

static void make_exchange(struct strip *s, uint32_t rank)
{
    struct strip_rank *r = &s->ranks[rank];
    struct rs_gpu_lane lanes[2];
    struct lists lists[2][2];
    uint32_t n = 0;

    for (int side = 0; side < 2; side++) {
        if (!r->has[side])
            continue;
        lanes[n] = (struct rs_gpu_lane){.queue = &r->queues[side],
                                        .arrived = &r->arrived[side]};
        for (unsigned set = 0; set < 2; set++) {
            make_ops(s, rank, side, set, &lists[side][set]);
            lanes[n].ops[set] = lists[side][set].ops;
            lanes[n].num_ops[set] = lists[side][set].num_ops;
        }
        n++;
    }
    PAIR_NEEDS(rs_gpu_proxy_create(&rs_gpu_memory_plain, 8, &r->proxy) == 0);
    PAIR_NEEDS(rs_gpu_exchange_create(&rs_gpu_memory_plain, lanes, n,
                                      s->options.proxy ? r->proxy : NULL,
                                      &r->exchange) == 0);
    r->jacobi.halo = rs_gpu_exchange_view(r->exchange);
}

void strip_init(struct strip *s, const struct strip_options *options)
{
    *s = (struct strip){.options = *options};
    PAIR_NEEDS(options->ranks <= STRIP_MAX_RANKS &&
               options->puts <= STRIP_MAX_PUTS &&
               options->odd_puts <= STRIP_MAX_PUTS);
    PAIR_NEEDS(rs_softnic_create(&options->nic, &s->nic) == 0);
    for (uint32_t i = 0; i < options->ranks; i++)
        rank_init(s, i);
    for (uint32_t i = 0; i + 1 < options->ranks; i++)
        rs_softnic_connect(s->ranks[i].qps[BELOW], s->ranks[i + 1].qps[ABOVE]);
    for (uint32_t i = 0; i < options->ranks; i++)
        make_exchange(s, i);
    strip_fill(s);
}

void strip_fini(struct strip *s)
{
    for (uint32_t i = 0; i < s->options.ranks; i++) {
        rs_gpu_exchange_destroy(s->ranks[i].exchange);
        rs_gpu_proxy_destroy(s->ranks[i].proxy);
    }
    rs_softnic_destroy(s->nic);
    for (uint32_t i = 0; i < s->options.ranks; i++)
        free(s->ranks[i].memory);
}

static double value_at(uint64_t row, uint32_t column)
{
    return (double)((row * 7919 + column * 104729) % 1000) / 7.0;
}

void strip_fill(struct strip *s)
{
    const struct strip_options *o = &s->options;

    for (uint32_t rank = 0; rank < o->ranks; rank++) {
        for (size_t i = 0; i < grid_values(o); i++) {
            uint64_t row = (uint64_t)rank * o->rows + i / o->width;
            uint64_t local = i / o->width;
            /* What neighbors are to write is nonsense until they have. */
            bool is_halo = (local == 0 && rank > 0) ||
                           (local == o->rows + 1 && rank + 1 < o->ranks);
            double value = is_halo ? -1e300
                                   : value_at(row, (uint32_t)(i % o->width));

            s->ranks[rank].jacobi.grid[0][i] = value;
            s->ranks[rank].jacobi.grid[1][i] = value;
        }
    }
}

uint64_t strip_compare(const struct strip *s, uint64_t steps)
{
    const struct strip_options *o = &s->options;
    uint32_t rows = o->ranks * o->rows;
    size_t values = (size_t)(rows + 2) * o->width;
    double *memory = calloc(2 * values, sizeof(double));
    struct jacobi whole = {
        .grid = {memory, memory + values}, .rows = rows, .width = o->width};
    uint64_t different = 0;

    PAIR_NEEDS(memory != NULL);
    for (size_t i = 0; i < values; i++)
        memory[i] = memory[values + i] =
            value_at(i / o->width, (uint32_t)(i % o->width));
    for (uint64_t step = 0; step < steps; step++) {
        for (uint32_t row = 1; row <= rows; row++)
            jacobi_row(&whole, step, row, 0, 1);
    }
    for (uint32_t rank = 0; rank < o->ranks; rank++) {
        const double *mine = s->ranks[rank].jacobi.grid[steps % 2] + o->width;
        const double *right =
            whole.grid[steps % 2] + ((size_t)rank * o->rows + 1) * o->width;

        for (size_t i = 0; i < (size_t)o->rows * o->width; i++)
            different += memcmp(&mine[i], &right[i], sizeof(double)) != 0;
    }
    free(memory);
    return different;
}

uint32_t strip_list_blocks(const struct strip *s, uint32_t rank)
{
    return rsched_device_lane_at(s->ranks[rank].jacobi.halo, 0)->blocks;
}
