/* SPDX-License-Identifier: BSD-3-Clause */
/* Making and destroying exchanges; agree.c is about the neighbors' part. */
#include "librsched/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"
#include "librsched/base/log.h"

static int copy_pattern(struct rsched_exchange *x,
                        const struct rsched_pattern *pattern)
{
    int error = rsched_pattern_create(rsched_pattern_name(pattern),
                                      &x->pattern);
    int64_t id = 0;

    if (error != 0)
        return error;
    for (uint32_t i = 0; id >= 0 && i < x->num_puts; i++)
        id = rsched_pattern_add_put(x->pattern, rsched_pattern_put(pattern, i));
    for (uint32_t i = 0; id >= 0 && i < x->num_receives; i++)
        id = rsched_pattern_add_receive(x->pattern,
                                        rsched_pattern_receive(pattern, i));
    return id < 0 ? (int)id : 0;
}

enum { KNOWN_FLAGS = RSCHED_EXCHANGE_VARIABLE | RSCHED_EXCHANGE_COMPARED };

/* Without a pattern, or with one that is too long, there is nobody to tell. */
static int check_pattern(const struct rsched_exchange_params *params)
{
    if (params->pattern == NULL)
        return rs_fail(RSCHED_EINVAL, "making exchange %llu: no pattern",
                       (unsigned long long)params->tag);
    if (rsched_pattern_num_puts(params->pattern) > INT32_MAX ||
        rsched_pattern_num_receives(params->pattern) > INT32_MAX)
        return rs_fail(RSCHED_ELIMIT,
                       "making exchange %llu: more than 2^31 puts",
                       (unsigned long long)params->tag);
    return 0;
}

static int check_params(const struct rsched_exchange_params *params)
{
    bool variable = (params->flags & RSCHED_EXCHANGE_VARIABLE) != 0;

    if ((params->flags & ~(unsigned)KNOWN_FLAGS) != 0)
        return rs_fail(RSCHED_EINVAL, "making exchange %llu: unknown flags",
                       (unsigned long long)params->tag);
    if (!variable && ((params->send == NULL &&
                       rsched_pattern_num_puts(params->pattern) > 0) ||
                      (params->receive == NULL &&
                       rsched_pattern_num_receives(params->pattern) > 0)))
        return rs_fail(RSCHED_EINVAL,
                       "making exchange %llu: no addresses of buffers",
                       (unsigned long long)params->tag);
    return 0;
}

static int make_arrays(struct rsched_exchange *x)
{
    x->send = calloc((size_t)x->num_puts + 1, sizeof(*x->send));
    x->receive = calloc((size_t)x->num_receives + 1, sizeof(*x->receive));
    x->tx = calloc(x->num_out + 1, sizeof(*x->tx));
    x->rx = calloc(x->num_in + 1, sizeof(*x->rx));
    x->pending_tx.lanes = calloc(x->num_out + 1, sizeof(*x->tx));
    x->pending_rx.lanes = calloc(x->num_in + 1, sizeof(*x->rx));
    if (x->send == NULL || x->receive == NULL || x->tx == NULL ||
        x->rx == NULL || x->pending_tx.lanes == NULL ||
        x->pending_rx.lanes == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for an exchange");
    return 0;
}

static void pair_lanes(struct rsched_exchange *x)
{
    for (uint32_t i = 0; i < x->num_out; i++) {
        for (uint32_t k = 0; k < x->num_in; k++) {
            if (x->out[i].peer == x->in[k].peer && x->out[i].rail == x->in[k].rail)
                x->out[i].lane->back = x->in[k].lane;
        }
    }
}

/* How many edges it has, and by which engines. */
static void log_made(const struct rsched_exchange *x)
{
    uint32_t edges[RSCHED_MAX_ENGINES] = {0};
    char text[200] = "";
    size_t length = 0;

    for (uint32_t i = 0; i < x->num_out; i++)
        edges[x->out[i].peer->engine]++;
    for (uint32_t i = 0; i < x->num_in; i++)
        edges[x->in[i].peer->engine]++;
    for (int i = 0; i < RSCHED_MAX_ENGINES; i++) {
        if (edges[i] > 0 && length < sizeof(text))
            length += (size_t)snprintf(
                text + length, sizeof(text) - length, "%s%s %u",
                length == 0 ? ": " : ", ", x->context->engines[i].ops->name,
                edges[i]);
    }
    rs_log(RS_LOG_INFO, "exchange %llu: sends on %u edges, receives on %u%s",
           (unsigned long long)x->tag, x->num_out, x->num_in, text);
}

int rsched_exchange_create(struct rsched_context *context,
                           const struct rsched_exchange_params *params,
                           struct rsched_exchange **exchange)
{
    const struct rsched_pattern *pattern = params->pattern;
    struct rsched_exchange *x;
    bool variable = (params->flags & RSCHED_EXCHANGE_VARIABLE) != 0;
    struct rs_error_text kept;
    int status; /* a mistake of this process that its peers are told of */
    int error = check_pattern(params);

    if (error != 0)
        return error;
    if (getpid() != context->pid)
        return rs_fail(RSCHED_ESTATE,
                       "making exchange %llu: the context is of process %d, before "
                       "a fork",
                       (unsigned long long)params->tag, (int)context->pid);
    rs_error_save(&kept);
    x = calloc(1, sizeof(*x));
    if (x == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for an exchange");
    x->context = context;
    x->flags = params->flags & KNOWN_FLAGS;
    x->tag = params->tag;
    x->num_puts = (uint32_t)rsched_pattern_num_puts(pattern);
    x->num_receives = (uint32_t)rsched_pattern_num_receives(pattern);
    status = check_params(params);
    if (status == 0 && !variable)
        status = copy_pattern(x, pattern);
    error = rs_exchange_agree(x, params, status);
    if (error == 0)
        error = make_arrays(x);
    if (error == 0)
        pair_lanes(x);
    if (error == 0 && !variable)
        error = rs_exchange_compile(x, pattern, params->send, params->receive);
    if (error != 0) {
        rsched_exchange_destroy(x);
        return error;
    }
    rs_error_restore(&kept);
    log_made(x);
    *exchange = x;
    return 0;
}

static void free_edges(struct rs_edge *edges, uint32_t num_edges)
{
    for (uint32_t i = 0; i < num_edges; i++)
        free(edges[i].order);
    free(edges);
}

/* Between two looks at who writes. */
#define WRITER_STEP_PS (50 * UINT64_C(1000000))

/* One has stopped, perhaps, and writes when it goes on. Without the lock: other exchanges
 * go on. */
static void await_writers(const struct rsched_exchange *x)
{
    uint64_t limit_ps = rs_config()->destroy_timeout_ps;
    uint64_t late_ps = limit_ps == 0 ? UINT64_MAX : rs_clock_after(limit_ps);
    const struct rs_edge *edge;

    while ((edge = rs_exchange_written(x)) != NULL) {
        if (rs_clock_now() > late_ps) {
            rs_log(RS_LOG_WARN,
                   "exchange %llu: destroying it waits for process %d, which has stopped "
                   "while it writes into receive buffers",
                   (unsigned long long)x->tag, edge->peer->process);
            late_ps = UINT64_MAX;
        }
        rs_clock_sleep(WRITER_STEP_PS);
    }
}

static void destroy_lanes(struct rsched_exchange *x)
{
    /* Nothing of ours touches the buffers any more. Streams have to go on before
     * a driver is asked to free anything: it waits for them. */
    if (x->order != NULL)
        rsched_gpus()->order_destroy(x->order);
    for (uint32_t i = 0; i < x->num_out; i++)
        rs_edge_destroy(x->context, &x->out[i], true);
    for (uint32_t i = 0; i < x->num_in; i++)
        rs_edge_destroy(x->context, &x->in[i], false);
    for (uint32_t i = 0; i < x->num_groups; i++)
        x->groups[i].ops->group_destroy(x->groups[i].group);
}

void rsched_exchange_destroy(struct rsched_exchange *x)
{
    bool left;

    if (x == NULL)
        return;
    RS_FAILPOINT("destroy");
    if (x->offered)
        rs_safety_reclaim(x);
    rs_safety_remove(x);
    rs_exchange_end(x);
    /* All learn of it before one of them is waited for. */
    rs_exchange_abandon(x);
    await_writers(x);
    pthread_mutex_lock(&x->context->lock);
    destroy_lanes(x);
    left = rs_context_settle(x->context);
    pthread_mutex_unlock(&x->context->lock);
    if (left)
        rs_safety_watch(x->context);
    free_edges(x->out, x->num_out);
    free_edges(x->in, x->num_in);
    rsched_pattern_destroy(x->pattern);
    free(x->tx);
    free(x->rx);
    free(x->pending_tx.lanes);
    free(x->pending_rx.lanes);
    free(x->send);
    free(x->receive);
    free(x->pieces);
    free(x->error_text);
    free(x);
}
