/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes an exchange of a process with itself, of one put, whose runs lie in host and in GPU
 * memory in turn: cuda_pieces RUNS. For check-pieces. */
#include <assert.h>
#include <stdlib.h>

#include <rsched/rsched.h>

#include "tests/cuda/program.h"

enum { BYTES = 8, STRIDE = 24 };

static void *checked(void *memory)
{
    assert(memory != NULL);
    return memory;
}

static void must(int error)
{
    if (error == 0)
        return;
    fprintf(stderr, "%s\n", rsched_last_error());
    exit(1);
}

/* Run i lies in device memory if i is odd, so no two of them touch. */
static struct rsched_run *make_runs(size_t runs, char *host, char *device)
{
    struct rsched_run *r = checked(calloc(runs, sizeof(*r)));

    for (size_t i = 0; i < runs; i++)
        r[i] = (struct rsched_run){(intptr_t)((i % 2 == 0 ? host : device) + i * STRIDE),
                                   BYTES, 1, 0};
    return r;
}

int main(int argc, char **argv)
{
    const struct rsched_context_params params = {.num_processes = 1, .job = 1};
    size_t runs = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    size_t all = runs * STRIDE;
    char *host = checked(calloc(2, all + 1)), *device;
    struct rsched_exchange *exchange;
    struct rsched_context *context;
    struct rsched_pattern *pattern;
    struct rsched_run *from, *to;
    struct rsched_put put;
    struct program p;
    CUdeviceptr allocated;

    if (runs == 0)
        return 2;
    program_begin(&p, 0);
    assert(p.cuMemAlloc(&allocated, 2 * all) == CUDA_SUCCESS);
    device = (char *)(uintptr_t)allocated;
    from = make_runs(runs, host, device);
    to = make_runs(runs, host + all, device + all);
    must(rsched_context_create(&params, &context));
    must(rsched_pattern_create("pieces", &pattern));
    put = (struct rsched_put){.bytes = runs * BYTES, .layout = {from, runs}};
    must(rsched_pattern_add_put(pattern, &put));
    put.layout.runs = to;
    must(rsched_pattern_add_receive(pattern, &put));
    must(rsched_exchange_create(context,
                                &(struct rsched_exchange_params){
                                    .pattern = pattern,
                                    .send = (const void *[]){NULL},
                                    .receive = (void *[]){NULL}},
                                &exchange));
    must(rsched_exchange_start(exchange));
    must(rsched_exchange_wait(exchange));
    rsched_exchange_destroy(exchange);
    rsched_pattern_destroy(pattern);
    rsched_context_destroy(context);
    assert(p.cuMemFree(allocated) == CUDA_SUCCESS);
    program_end(&p, 0);
    free(from);
    free(to);
    free(host);
    return 0;
}
