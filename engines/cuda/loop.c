/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that go over the lane beside (way `gdr-loopback`): what is done with
 * that lane. lane.h has what the two ends tell each other meanwhile. */
#include "engines/cuda/lane.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"

int rs_cuda_loop_check(const struct rs_cuda_lane *l)
{
    if (l->lane.beside == NULL)
        return rs_fail(RSCHED_ENOTSUP,
                       "no NIC joins the two that moves GPU memory, or the "
                       "messages are of variable length");
    if (l->loop_refused)
        return rs_fail(RSCHED_ENOTSUP, "the NIC does not get at the peer's "
                                       "memory");
    return 0;
}

int rs_cuda_loop_load(struct rs_cuda_lane *l,
                      const struct rsched_message *message)
{
    struct rsched_lane *beside = l->lane.beside;
    int error;

    if (l->loop_loaded)
        return 0;
    error = l->sends ? beside->ops->tx_load(beside, message)
                     : beside->ops->rx_load(beside, message);
    l->loop_loaded = error == 0;
    if (error == RSCHED_ENOTSUP) {
        free(l->no_loop);
        l->no_loop = strdup(rsched_last_error());
    }
    return error;
}

int rs_cuda_loop_load_kept(struct rs_cuda_lane *l)
{
    struct rsched_message message = {.num_pieces = l->message.num_pieces,
                                     .bytes = l->message.bytes,
                                     .signature = l->message.signature};
    struct rsched_piece *pieces = rs_cuda_plain_pieces(&l->message);
    int error;

    if (pieces == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for pieces");
    message.pieces = pieces;
    error = rs_cuda_loop_load(l, &message);
    free(pieces);
    return error;
}

/* What moves there has moved here. */
static int drive(struct rs_cuda_lane *l, int (*step)(struct rsched_lane *lane))
{
    struct rsched_lane *beside = l->lane.beside;
    uint64_t chunks = beside->stats.chunks, stalls = beside->stats.stalls;
    int status = step(beside);

    l->lane.stats.chunks += beside->stats.chunks - chunks;
    l->lane.stats.stalls += beside->stats.stalls - stalls;
    return status;
}

int rs_cuda_loop_start(struct rs_cuda_lane *l)
{
    const struct rsched_engine_ops *ops = l->lane.beside->ops;

    return drive(l, l->sends ? ops->tx_start : ops->rx_start);
}

int rs_cuda_loop_progress(struct rs_cuda_lane *l)
{
    const struct rsched_engine_ops *ops = l->lane.beside->ops;

    return drive(l, l->sends ? ops->tx_progress : ops->rx_progress);
}
