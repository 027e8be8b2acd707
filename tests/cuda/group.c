/* SPDX-License-Identifier: BSD-3-Clause */
/* Launches for a group of lanes, over the driver in software: more jobs than a
 * launch has room for, and more launches than there are events. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engines/cuda/group.h"
#include "tests/cuda/program.h"

enum { ROWS = 200, ROW = 64, LANES = 50, JOBS = 4 };

struct world {
    struct program p;
    struct rsched_engine engine;
    struct rsched_group *group;
    struct rs_batch *batch;
    struct rs_blocks blocks; /* an entry for each row */
    CUdeviceptr from, to;
    char *touch;
};

static void begin(struct world *w)
{
    const struct rs_cuda_driver *driver;

    memset(w, 0, sizeof(*w));
    program_begin(&w->p, 0);
    cr_assert_eq(rs_cuda_driver_find(false, &driver), 0);
    pthread_mutex_init(&w->engine.lock, NULL);
    cr_assert_eq(rs_cuda_group_create(&w->engine, &w->group), 0);
    for (int i = 0; i < LANES; i++)
        rs_group_join(w->group);
    cr_assert_eq(rs_group_batch(w->group, 0, JOBS, &w->batch), 0);
    cr_assert_eq(w->p.cuMemAlloc(&w->from, ROWS * ROW * 2), CUDA_SUCCESS);
    cr_assert_eq(w->p.cuMemAlloc(&w->to, ROWS * ROW), CUDA_SUCCESS);
    for (uint64_t i = 0; i < ROWS; i++) {
        memset((char *)w->p.fakeTouch(w->from) + i * ROW * 2, (int)i + 1,
               ROW * 2);
        cr_assert_eq(rs_blocks_add(&w->blocks, w->to + i * ROW, 16,
                                   w->from + i * ROW * 2, 32, 16, ROW / 16), 0);
    }
    w->touch = w->p.fakeTouch(w->to);
    memset(w->touch, 0, ROWS * ROW);
    cr_assert_eq(rs_stream_enter(&w->batch->stream), 0);
    cr_assert_eq(rs_blocks_upload(&w->blocks, &w->batch->stream), 0);
    rs_stream_leave(&w->batch->stream);
}

static void end(struct world *w)
{
    rs_batch_drain(w->batch);
    rs_blocks_withdraw(&w->blocks, &w->batch->stream);
    rs_blocks_fini(&w->blocks);
    rs_cuda_group_destroy(w->group);
    rs_cuda_unload_kernels(&w->engine, 0);
    w->p.cuDevicePrimaryCtxRelease(0);
    w->p.cuMemFree(w->from);
    w->p.cuMemFree(w->to);
    cr_assert_eq(w->p.fakeCount(FAKE_DEVICE), 0);
    program_end(&w->p, 0);
}

static bool is_there(const struct world *w, int row)
{
    for (int i = 0; i < ROW; i++) {
        if (w->touch[row * ROW + i] != (char)(row + 1))
            return false;
    }
    return true;
}

static uint64_t add_row(struct world *w, uint32_t row)
{
    return rs_batch_add(w->batch, &w->blocks, row, row + 1, 0, 0);
}

Test(group, more_jobs_than_a_launch_has)
{
    uint64_t ticket = 0;
    struct world w;

    begin(&w);
    for (uint32_t i = 0; i < ROWS; i++)
        ticket = add_row(&w, i);
    cr_assert_eq(ticket, ROWS);
    cr_assert_eq(rs_cuda_group_flush(w.group), 0);
    cr_assert_eq(w.p.fakeCount(FAKE_LAUNCHES),
                 (ROWS + RS_PACK_JOBS - 1) / RS_PACK_JOBS);
    cr_assert_not(rs_batch_is_done(w.batch, 1));
    while (!rs_batch_is_done(w.batch, ticket))
        cr_assert_eq(rs_cuda_group_flush(w.group), 0);
    for (int i = 0; i < ROWS; i++)
        cr_assert(is_there(&w, i), "row %d", i);
    end(&w);
}

/* What finds no event waits for the next flush; tickets keep their order. */
Test(group, more_launches_than_events)
{
    uint64_t tickets[ROWS];
    struct world w;
    int done = 0;

    setenv("FAKE_CUDA_ASKED", "30", 1);
    begin(&w);
    for (uint32_t i = 0; i < 10; i++) {
        tickets[i] = add_row(&w, i);
        cr_assert_eq(rs_cuda_group_flush(w.group), 0);
    }
    cr_assert_eq(w.p.fakeCount(FAKE_LAUNCHES), RS_STREAM_EVENTS);
    while (done < 10) {
        if (!rs_batch_is_done(w.batch, tickets[done])) {
            cr_assert_eq(rs_cuda_group_flush(w.group), 0);
            continue;
        }
        cr_assert(is_there(&w, done), "row %d", done);
        done++;
    }
    cr_assert_leq(w.p.fakeCount(FAKE_LAUNCHES), RS_STREAM_EVENTS + 2);
    end(&w);
}

/* What has not been launched never is. */
Test(group, drained)
{
    struct world w;

    begin(&w);
    add_row(&w, 0);
    cr_assert_eq(rs_cuda_group_flush(w.group), 0);
    add_row(&w, 1);
    rs_batch_drain(w.batch);
    cr_assert(is_there(&w, 0));
    cr_assert_not(is_there(&w, 1));
    cr_assert_eq(rs_cuda_group_flush(w.group), 0);
    cr_assert_eq(w.p.fakeCount(FAKE_LAUNCHES), 1);
    cr_assert(rs_batch_is_done(w.batch, 2));
    end(&w);
}

/* Memory that is freed under a kernel: the flush says so. */
Test(group, an_illegal_access_is_told)
{
    struct world w;
    int error = 0;

    begin(&w);
    add_row(&w, 0);
    w.p.cuMemFree(w.from);
    for (int i = 0; i < 10 && error == 0; i++)
        error = rs_cuda_group_flush(w.group);
    cr_assert_eq(error, RSCHED_ESYS);
    cr_assert_not_null(strstr(rsched_last_error(),
                              "CUDA_ERROR_ILLEGAL_ADDRESS"), "%s",
                       rsched_last_error());
    cr_assert_eq(w.p.cuMemAlloc(&w.from, 1), CUDA_SUCCESS);
    end(&w);
}
