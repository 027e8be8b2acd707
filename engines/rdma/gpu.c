/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes of which the own end may lie in GPU memory: a lane of the host's, and how it
 * gets at the memory.
 *
 * Each end by itself decides, when it is loaded, whether its device gets at the
 * memory. Then the inner lane has the message as it is, and no processor touches
 * it: the sender's device gathers it, be it into landing slots or straight into the
 * receive buffer; the receiver's is written to directly, whatever its length, and
 * flushed before the epoch is complete, since the notification is seen by a
 * processor, and the data by the GPU. Else the inner lane has a stage, copies by copy
 * engines between the message and host memory, piece by piece, which it begins and
 * waits for in the course of its epoch. A lane beside another one refuses such a
 * message instead, since that one has better ways.
 *
 * As inner lanes are none of librsched's, their counters are those of the outer
 * ones, after each call.
 */
#include <stdlib.h>

#include "engines/rdma/places.h"
#include "engines/rdma/rdma.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"

struct gpu_lane {
    struct rsched_lane lane; /* first: the public part */
    struct rsched_lane *inner;
    bool sends;
    bool beside; /* another lane: nothing is staged */
    bool warned;
    struct rsched_gpu_hold *gpu; /* of the loaded message; NULL: host memory */
    int number;                  /* of that GPU */
};

static struct gpu_lane *gpu_lane_of(struct rsched_lane *lane)
{
    return (struct gpu_lane *)(void *)lane;
}

static struct rs_rdma_lane *inner_of(const struct gpu_lane *w)
{
    return (struct rs_rdma_lane *)(void *)w->inner;
}

static int mirror(struct gpu_lane *w, int status)
{
    w->lane.stats = w->inner->stats;
    w->lane.streams = w->inner->streams;
    w->lane.copying = w->inner->copying;
    return status;
}

static int fail(const struct gpu_lane *w, int error)
{
    return rs_fail_within(error, "%s: peer %d",
                          w->lane.connection->engine->name,
                          w->lane.connection->peer);
}

/* ---- making ---- */

static const struct rsched_engine_ops lane_ops = {RS_RDMA_GPU_LANE_OPS};

static struct gpu_lane *lane_new(struct rsched_connection *connection,
                                 const struct rsched_lane_spec *spec, bool sends)
{
    struct gpu_lane *w = calloc(1, sizeof(*w));

    if (w == NULL) {
        rs_fail(RSCHED_ENOMEM, "%s: no memory for a lane",
                connection->engine->name);
        return NULL;
    }
    w->lane.connection = connection;
    w->lane.ops = &lane_ops;
    w->sends = sends;
    w->beside = spec->beside;
    return w;
}

int rs_rdma_gpu_rx_create(struct rsched_connection *connection,
                          const struct rsched_lane_spec *spec,
                          unsigned char *descriptor, struct rsched_lane **lane)
{
    struct gpu_lane *w = lane_new(connection, spec, false);
    int error;

    if (w == NULL)
        return RSCHED_ENOMEM;
    error = rs_rdma_rx_create(connection, spec, descriptor, &w->inner);
    if (error != 0) {
        free(w);
        return error;
    }
    *lane = &w->lane;
    return 0;
}

int rs_rdma_gpu_tx_create(struct rsched_connection *connection,
                          const struct rsched_lane_spec *spec,
                          const unsigned char *descriptor, unsigned char *reply,
                          struct rsched_lane **lane)
{
    struct gpu_lane *w = lane_new(connection, spec, true);
    int error;

    if (w == NULL)
        return RSCHED_ENOMEM;
    error = rs_rdma_tx_create(connection, spec, descriptor, reply, &w->inner);
    if (error != 0) {
        free(w);
        return error;
    }
    *lane = &w->lane;
    return 0;
}

int rs_rdma_any_rx_create(struct rsched_connection *connection,
                          const struct rsched_lane_spec *spec,
                          unsigned char *descriptor, struct rsched_lane **lane)
{
    return (spec->gpus ? rs_rdma_gpu_rx_create
                       : rs_rdma_rx_create)(connection, spec, descriptor, lane);
}

int rs_rdma_any_tx_create(struct rsched_connection *connection,
                          const struct rsched_lane_spec *spec,
                          const unsigned char *descriptor, unsigned char *reply,
                          struct rsched_lane **lane)
{
    return (spec->gpus ? rs_rdma_gpu_tx_create
                       : rs_rdma_tx_create)(connection, spec, descriptor, reply,
                                            lane);
}

int rs_rdma_gpu_rx_attach(struct rsched_lane *lane, const unsigned char *reply)
{
    return rs_rdma_rx_attach(gpu_lane_of(lane)->inner, reply);
}

/* No copy of ours touches anybody's memory from now on. */
static void drain(struct gpu_lane *w)
{
    if (inner_of(w)->stage != NULL)
        rsched_gpus()->stage_drain(inner_of(w)->stage);
}

void rs_rdma_gpu_rx_abandon(struct rsched_lane *lane)
{
    drain(gpu_lane_of(lane));
    rs_rdma_rx_abandon(gpu_lane_of(lane)->inner);
}

void rs_rdma_gpu_tx_abandon(struct rsched_lane *lane)
{
    drain(gpu_lane_of(lane));
    rs_rdma_tx_abandon(gpu_lane_of(lane)->inner);
}

int rs_rdma_gpu_rx_check(struct rsched_lane *lane)
{
    return rs_rdma_rx_check(gpu_lane_of(lane)->inner);
}

int rs_rdma_gpu_tx_check(struct rsched_lane *lane)
{
    return rs_rdma_tx_check(gpu_lane_of(lane)->inner);
}

/* End the copies. The pages that were pinned for them are the inner lane's, where its
 * device may be at them still. */
static void end_stage(struct gpu_lane *w)
{
    if (inner_of(w)->stage != NULL)
        rsched_gpus()->stage_destroy(inner_of(w)->stage);
    inner_of(w)->stage = NULL;
}

/* The inner lane is gone, or has other memory. */
static void let_go(struct rsched_gpu_hold *gpu)
{
    if (gpu != NULL)
        rsched_gpus()->release(gpu);
}

void rs_rdma_gpu_rx_destroy(struct rsched_lane *lane)
{
    struct gpu_lane *w = gpu_lane_of(lane);

    end_stage(w);
    w->inner->attached = lane->attached;
    rs_rdma_rx_destroy(w->inner);
    let_go(w->gpu);
    free(w);
}

void rs_rdma_gpu_tx_destroy(struct rsched_lane *lane)
{
    struct gpu_lane *w = gpu_lane_of(lane);

    end_stage(w);
    rs_rdma_tx_destroy(w->inner);
    let_go(w->gpu);
    free(w);
}

/* ---- loading ---- */

static int load_inner(struct gpu_lane *w, const struct rsched_message *message,
                      struct rsched_gpu_hold *gpu)
{
    inner_of(w)->gpu = gpu;
    return (w->sends ? rs_rdma_tx_load : rs_rdma_rx_load)(w->inner, message);
}

/* @return RSCHED_ENOTSUP: it cannot be, and the text says why */
static int load_direct(struct gpu_lane *w, const struct rsched_message *message,
                       const struct rs_rdma_places *places)
{
    int error = 0;

    if (!places->all)
        error = rs_fail(RSCHED_ENOTSUP, "not all of the message lies in the "
                                        "memory of one GPU");
    /* One that cannot be made visible must not be written. */
    if (error == 0 && !w->sends)
        error = rsched_gpus()->flush(w->gpu);
    return error != 0 ? error : load_inner(w, message, w->gpu);
}

static int load_staged(struct gpu_lane *w, const struct rsched_message *message)
{
    struct rs_rdma_lane *inner = inner_of(w);
    int error = rsched_gpus()->stage_create(w->gpu, message, w->sends,
                                            inner->ring.chunk_bytes,
                                            &inner->stage);

    return error != 0 ? error : load_inner(w, message, NULL);
}

static void tell(struct gpu_lane *w)
{
    if (w->warned)
        return;
    w->warned = true;
    rs_log(RS_LOG_WARN, "%s: peer %d: GPU memory is staged: %s",
           w->lane.connection->engine->name, w->lane.connection->peer,
           rsched_last_error());
}

static int load_gpu(struct gpu_lane *w, const struct rsched_message *message,
                    const struct rs_rdma_places *places)
{
    int error = rsched_gpus()->hold(places->gpu, &w->gpu);

    if (error != 0)
        return error;
    if (rs_config()->gpu_way != RS_CONFIG_GPU_WAY_STAGED) {
        error = load_direct(w, message, places);
        if (error != RSCHED_ENOTSUP || w->beside)
            return error;
        tell(w);
    }
    return load_staged(w, message);
}

static int load(struct gpu_lane *w, const struct rsched_message *message)
{
    struct rsched_gpu_hold *gpu = w->gpu;
    struct rs_rdma_places places;
    int error = rs_rdma_places_find(message, &places);

    if (error != 0)
        return fail(w, error);
    end_stage(w);
    w->gpu = NULL;
    if (places.gpu < 0 && w->beside)
        error = rs_fail(RSCHED_ENOTSUP, "the message lies in host memory");
    else if (places.gpu < 0)
        error = load_inner(w, message, NULL);
    else
        error = load_gpu(w, message, &places);
    mirror(w, 0);
    let_go(gpu);
    return error == 0 ? 0 : fail(w, error);
}

int rs_rdma_gpu_tx_load(struct rsched_lane *lane,
                        const struct rsched_message *message)
{
    return load(gpu_lane_of(lane), message);
}

int rs_rdma_gpu_rx_load(struct rsched_lane *lane,
                        const struct rsched_message *message)
{
    return load(gpu_lane_of(lane), message);
}

/* ---- running ---- */

int rs_rdma_gpu_tx_progress(struct rsched_lane *lane)
{
    struct gpu_lane *w = gpu_lane_of(lane);

    return mirror(w, rs_rdma_tx_progress(w->inner));
}

int rs_rdma_gpu_tx_start(struct rsched_lane *lane)
{
    struct gpu_lane *w = gpu_lane_of(lane);

    return mirror(w, rs_rdma_tx_start(w->inner));
}

int rs_rdma_gpu_rx_progress(struct rsched_lane *lane)
{
    struct gpu_lane *w = gpu_lane_of(lane);
    int status = rs_rdma_rx_progress(w->inner);

    if (status == RSCHED_LANE_DONE && w->gpu != NULL &&
        inner_of(w)->stage == NULL) {
        int error = rsched_gpus()->flush(w->gpu);

        if (error != 0)
            status = fail(w, error);
    }
    return mirror(w, status);
}

int rs_rdma_gpu_rx_start(struct rsched_lane *lane)
{
    struct gpu_lane *w = gpu_lane_of(lane);

    return mirror(w, rs_rdma_rx_start(w->inner));
}
