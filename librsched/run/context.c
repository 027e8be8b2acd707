/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/run/run.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"
#include "librsched/base/log.h"

/* With fewer cores than processes whoever spins takes the core from the one
 * it waits for. */
enum { SPIN_POLLS_CROWDED = 2 };

static int count_peers(const struct rsched_context *context)
{
    int count = 0;

    for (const struct rs_peer *p = context->peers; p != NULL; p = p->next)
        count += p->process != context->params.process;
    return count;
}

/* Whether processes of this node outnumber the cores that they may use. When
 * all may use the same cores (nobody is bound), all processes of the node
 * compete for them; else only those are counted whose cores are known. */
static bool is_crowded(const struct rsched_context *context)
{
    int known = count_peers(context) + 1;
    int local = context->params.num_local;

    if (context->same_cpus && local > known)
        known = local;
    return known > CPU_COUNT(&context->all_cpus);
}

/* Between two looks for dead peers, each a system call for every peer. */
#define LOOK_PS (10 * UINT64_C(1000000000))

static void choose_spin(struct rsched_context *context)
{
    const struct rs_config *config = rs_config();
    bool crowded = is_crowded(context);
    uint64_t spin = config->spin_polls;

    if (crowded && spin > SPIN_POLLS_CROWDED)
        spin = SPIN_POLLS_CROWDED;
    atomic_store_explicit(&context->crowded, crowded, memory_order_relaxed);
    atomic_store_explicit(&context->spin_polls, spin, memory_order_relaxed);
    atomic_store_explicit(&context->yield_polls, spin + config->yield_polls,
                          memory_order_relaxed);
}

/* Engines are tried in their order; the first that opens is used for all
 * peers. */
static int open_engine(struct rsched_context *context)
{
    const struct rs_config *config = rs_config();
    struct rsched_engine_env env = {
        .process = context->params.process,
        .job = context->params.job,
        .chunk_bytes = config->chunk_bytes,
        .ring_bytes = config->ring_bytes,
    };
    int error = RSCHED_ENOTSUP;

    for (size_t i = 0; error != 0 && rsched_engine_at(i) != NULL; i++) {
        context->ops = rsched_engine_at(i);
        error = context->ops->open(&env, &context->engine);
    }
    return error;
}

int rsched_context_create(const struct rsched_context_params *params,
                          struct rsched_context **context)
{
    struct rsched_context *c;
    int error = rsched_config_check();

    if (error != 0)
        return error;
    if (params->process < 0 || params->process >= params->num_processes)
        return rs_fail(RSCHED_EINVAL, "process %d of %d processes",
                       params->process, params->num_processes);
    error = rs_failpoints_arm(params->process);
    if (error != 0)
        return error;
    c = calloc(1, sizeof(*c));
    if (c == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a context");
    c->params = *params;
    c->sleep_ps = rs_config()->sleep_ps;
    if (sched_getaffinity(0, sizeof(c->own_cpus), &c->own_cpus) != 0)
        CPU_SET(0, &c->own_cpus);
    c->all_cpus = c->own_cpus;
    c->same_cpus = true;
    choose_spin(c);
    rs_log_set_rank(params->process);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->oob_lock, NULL);
    error = rsched_machine_open(rs_config()->machine, &c->machine);
    if (error != 0) {
        rs_fail_within(error, "RSCHED_MACHINE=%s", rs_config()->machine);
        goto err_free;
    }
    error = open_engine(c);
    if (error != 0)
        goto err_destroy_machine;
    error = rs_safety_init(c);
    if (error != 0)
        goto err_close_engine;
    *context = c;
    return 0;

err_close_engine:
    c->ops->close(c->engine);
err_destroy_machine:
    rsched_machine_destroy(c->machine);
err_free:
    pthread_mutex_destroy(&c->oob_lock);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return error;
}

void rsched_context_destroy(struct rsched_context *context)
{
    if (context == NULL)
        return;
    rs_safety_fini(context);
    for (struct rs_peer *p = context->peers, *next; p != NULL; p = next) {
        next = p->next;
        context->ops->disconnect(p->connection);
        free(p);
    }
    context->ops->close(context->engine);
    rsched_machine_destroy(context->machine);
    pthread_mutex_destroy(&context->oob_lock);
    pthread_mutex_destroy(&context->lock);
    free(context);
}

int rs_context_peer(struct rsched_context *context, int process,
                    const unsigned char *address, const cpu_set_t *cpus,
                    struct rs_peer **peer)
{
    struct rs_peer *p;
    int error;

    /* With another address it is another instance, whose memory and whose
     * death are not those of the one before. */
    for (p = context->peers; p != NULL; p = p->next) {
        if (p->process == process &&
            memcmp(p->address, address, sizeof(p->address)) == 0) {
            *peer = p;
            return 0;
        }
    }
    p = calloc(1, sizeof(*p));
    if (p == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for peer %d", process);
    p->process = process;
    memcpy(p->address, address, sizeof(p->address));
    error = context->ops->connect(context->engine, process, address,
                                  &p->connection);
    if (error != 0) {
        free(p);
        return error;
    }
    p->next = context->peers;
    context->peers = p;
    CPU_OR(&context->all_cpus, &context->all_cpus, cpus);
    context->same_cpus =
        context->same_cpus && CPU_EQUAL(cpus, &context->own_cpus);
    choose_spin(context);
    *peer = p;
    return 0;
}

struct rs_peer *rs_context_known_peer(const struct rsched_context *context,
                                      int process)
{
    struct rs_peer *p = context->peers;

    while (p != NULL && p->process != process)
        p = p->next;
    return p;
}

void rs_context_look(struct rsched_context *context)
{
    uint64_t now = rs_clock_now();
    uint64_t next = atomic_load_explicit(&context->next_look_ps,
                                         memory_order_relaxed);

    /* One thread looks for all; whoever makes an exchange is not waited for. */
    if (now < next ||
        !atomic_compare_exchange_strong(&context->next_look_ps, &next,
                                        now + LOOK_PS) ||
        pthread_mutex_trylock(&context->lock) != 0)
        return;
    for (struct rs_peer *p = context->peers; p != NULL; p = p->next) {
        if (atomic_load(&p->dead) || context->ops->check(p->connection) == 0)
            continue;
        atomic_store(&p->dead, true);
        atomic_store(&context->any_dead, true);
    }
    pthread_mutex_unlock(&context->lock);
}

void rsched_context_get_stats(struct rsched_context *context,
                          struct rsched_context_stats *stats)
{
    struct rs_safety *safety = &context->safety;

    pthread_mutex_lock(&context->lock);
    *stats = (struct rsched_context_stats){
        .connections = (uint64_t)count_peers(context),
        .shared_bytes = context->ops->memory(context->engine),
        .ticks = atomic_load(&safety->ticks),
        .tick_moves = atomic_load(&safety->moves),
        .yields = atomic_load(&context->yields),
        .sleeps = atomic_load(&context->sleeps),
        .wakes = context->ops->wakes(context->engine),
    };
    pthread_mutex_unlock(&context->lock);
}
