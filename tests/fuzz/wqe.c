/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzing the softnic: a list is posted, then changed, then rung. Whatever it
 * has become is refused or executed within registered memory, and the device
 * comes to rest.
 *
 * Input: the kind of list, options, then changes of four bytes each: where (16
 * bits, little endian) and how (a mask to turn bits, and whether to set instead)
 * in what the producer writes: the ring, the doorbell record, the doorbell.
 *
 * Built with clang -fsanitize=fuzzer (RSCHED_FUZZ) it is a libFuzzer target.
 * Built otherwise it has a main of its own that makes a fixed number of inputs.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/mlx5/kinds.h"

enum {
    RING_BYTES = KIND_RING * RS_WQE_BLOCK,
    RECORD_AT = RING_BYTES,
    DOORBELL_AT = RECORD_AT + 4,
    ALL_BYTES = DOORBELL_AT + 8,
    MOST_STEPS = 100000,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "fuzz_wqe: %s\n", what);
        abort();
    }
}

static unsigned char *byte_at(const struct rs_mlx5_memory *m, uint32_t at)
{
    if (at < RECORD_AT)
        return (unsigned char *)m->send_ring + at;
    if (at < DOORBELL_AT)
        return (unsigned char *)&m->dbrec[RS_MLX5_DBREC_SEND] + at - RECORD_AT;
    return (unsigned char *)m->doorbell + at - DOORBELL_AT;
}

static void change(const struct rs_mlx5_memory *m, const uint8_t *data,
                   size_t size)
{
    for (; size >= 4; data += 4, size -= 4) {
        uint32_t at = (uint32_t)(data[0] | data[1] << 8) % ALL_BYTES;
        unsigned char *byte = byte_at(m, at);

        *byte = data[3] % 2 == 0 ? *byte ^ data[2] : data[2];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct kind *kind;
    struct rs_softnic_options options = {.rnr_steps = KIND_RNR_STEPS};
    struct rs_rdma_list *list;
    struct rs_rdma_done done;
    struct kind_memory memory;
    struct pair pair;
    unsigned posts;

    if (size < 2)
        return 0;
    kind = &kinds[data[0] % NUM_KINDS];
    options.seed = data[1];
    options.relaxed = data[1] % 2 == 1;
    options.check_sources = data[1] % 4 >= 2;
    options.mtu = data[1] % 8 >= 4 ? 16 : 0;
    posts = 1 + data[1] / 8 % (KIND_RING / kind->blocks);
    list = kind_begin(kind, &options, &pair, &memory);
    for (unsigned i = 0; i < posts; i++)
        require(rs_mlx5_queue_ops.post(list, i, i), "no room");
    rs_mlx5_queue_ops.ring(&pair.a.queue.base);
    change(&pair.a.memory, data + 2, size - 2);
    for (int steps = 0; rs_softnic_step(pair.nic); steps++)
        require(steps < MOST_STEPS, "the device does not come to rest");
    require(kind_kept_within(kind, &memory), "it has written elsewhere");
    while (rs_mlx5_queue_ops.poll(&pair.a.queue.base, &done) == 1)
        require(done.id < posts, "a completion of nothing");
    rs_mlx5_queue_ops.list_destroy(list);
    pair_fini(&pair);
    return 0;
}

#ifndef RSCHED_LIBFUZZER
int main(void)
{
    enum { INPUTS = 40000, LONGEST = 42 };
    unsigned seed = 1;

    for (int i = 0; i < INPUTS; i++) {
        uint8_t input[LONGEST];
        size_t size = 2 + 4 * ((unsigned)rand_r(&seed) % 11);

        for (size_t k = 0; k < size; k++)
            input[k] = (uint8_t)(rand_r(&seed) >> 8);
        LLVMFuzzerTestOneInput(input, size);
    }
    return 0;
}
#endif
