/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"
#include "librsched/base/log.h"
#include "models/sources.h"

/* With fewer cores than processes whoever spins takes the core from the one
 * it waits for, and whoever yields from others, now and then. */
enum { SPIN_POLLS_CROWDED = 2, YIELD_POLLS_CROWDED = 200 };

/* Of the slots of an edge, where RSCHED_RING does not say. */
enum { RING_BYTES = 512 << 10 };

/* What has been left to say to peers whose connections go is waited for, so long
 * for all of them together. */
#define LEAVE_PS (100 * UINT64_C(1000000000))
#define LEAVE_STEP_PS (50 * UINT64_C(1000000))

static int count_peers(const struct rsched_context *context)
{
    int count = 0;

    for (const struct rs_peer *p = context->peers; p != NULL; p = p->next)
        count += p->process != context->params.process;
    return count;
}

static bool is_near(const struct rsched_context *context, const struct rs_peer *p)
{
    return p->process != context->params.process && p->ops->within_node &&
           p->use == RS_USE_HOST;
}

static int count_near_peers(const struct rsched_context *context)
{
    int count = 0;

    for (const struct rs_peer *p = context->peers; p != NULL; p = p->next)
        count += is_near(context, p);
    return count;
}

/* Those that are not of a group with a quota. */
static int count_outside(const struct rsched_context *context, uint64_t group)
{
    int count = 0;

    for (const struct rs_peer *p = context->peers; p != NULL; p = p->next)
        count += is_near(context, p) && !rs_quotas_include(&p->quotas, group);
    return count;
}

/* Whether more processes share a quota than it has cores. Those that are not known yet
 * share it if the host does not know better, until a neighbor does not. */
static bool exceeds_quota(const struct rsched_context *context)
{
    int known = count_near_peers(context) + 1;

    for (int i = 0; i < RS_QUOTAS; i++) {
        const struct rs_quota *q = &context->own.quotas.of[i];
        int outside, sharing;

        if (q->group == 0)
            continue;
        outside = count_outside(context, q->group);
        sharing = known - outside;
        if (context->params.num_cores == 0 && outside == 0 &&
            context->params.num_local > sharing)
            sharing = context->params.num_local;
        if ((uint64_t)sharing > q->cores)
            return true;
    }
    return false;
}

/* Whether processes of this node outnumber the cores that they may use, or what a quota
 * gives them, as far as they are known: the caller says how many there are, neighbors
 * their own. If he does not know the cores, all compete for the same ones (nobody is
 * bound) until a neighbor has others. */
static bool is_crowded(const struct rsched_context *context)
{
    int known = count_near_peers(context) + 1;
    int local = context->params.num_local, cores = context->params.num_cores;

    if ((cores > 0 && local > cores) || exceeds_quota(context))
        return true;
    if (cores == 0 && context->same_cpus && local > known)
        known = local;
    return context->cpus_known && known > rs_cpus_count(&context->all_cpus);
}

/* Between two looks for dead peers, each a system call for every peer. */
#define LOOK_PS (10 * UINT64_C(1000000000))

static void choose_spin(struct rsched_context *context)
{
    const struct rs_config *config = rs_config();
    bool crowded = is_crowded(context);
    uint64_t spin = config->spin_polls, yield = config->yield_polls;

    if (crowded && spin > SPIN_POLLS_CROWDED)
        spin = SPIN_POLLS_CROWDED;
    if (crowded && yield > YIELD_POLLS_CROWDED)
        yield = YIELD_POLLS_CROWDED;
    atomic_store_explicit(&context->crowded, crowded, memory_order_relaxed);
    atomic_store_explicit(&context->spin_polls, spin, memory_order_relaxed);
    atomic_store_explicit(&context->yield_polls, spin + yield,
                          memory_order_relaxed);
}

static void close_engines(struct rsched_context *context)
{
    for (int i = 0; i < RSCHED_MAX_ENGINES; i++) {
        if (context->engines[i].ops != NULL)
            context->engines[i].ops->close(context->engines[i].engine);
    }
}

/* Of a core, not shared with others: the second level, mostly. */
static uint64_t cache_bytes(void)
{
    enum { USUAL = 1 << 20, MOST = 4 << 20 };
    long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);

    return bytes <= 0 ? USUAL : bytes > MOST ? MOST : (uint64_t)bytes;
}

uint64_t rsched_slots_bytes(void)
{
    return rs_config()->ring_bytes != RS_LIMIT_AUTO ? 0 : 2 * cache_bytes();
}

/* RDMA devices that are named are wanted, but processes of one node need none. */
static void tell_of_named_devices(const struct rsched_context *context,
                                  const char *why)
{
    const char *names = rs_config()->devices;
    const struct rsched_engine_absence *absence;

    if (names[0] == '\0')
        return;
    for (int i = 0; i < RSCHED_MAX_ENGINES; i++) {
        const struct rsched_engine_ops *ops = context->engines[i].ops;

        if (ops != NULL && !ops->within_node)
            return;
    }
    for (size_t i = 0; (absence = rsched_engine_absence_at(i)) != NULL; i++)
        if (strcmp(absence->name, "verbs") == 0)
            why = absence->reason;
    rs_log(RS_LOG_WARN, "RSCHED_DEVICES=%s: no device is used: %s", names, why);
}

/* Open all engines that this machine can. @return 0, or why there is none */
static int open_engines(struct rsched_context *context)
{
    const struct rs_config *config = rs_config();
    struct rsched_engine_env env = {
        .process = context->params.process,
        .job = context->params.job,
        .node = XXH64(config->node, strlen(config->node), 0),
        .chunk_bytes = config->chunk_bytes,
        .ring_bytes = config->ring_bytes != RS_LIMIT_AUTO ? config->ring_bytes
                                                          : RING_BYTES,
        .slots_bytes = rsched_slots_bytes(),
        .ways = &context->ways,
        .sources = context->machine != NULL
                       ? rs_machine_sources(context->machine)
                       : &rs_sources_usual,
    };
    struct rs_error_text kept, without_devices = {.text = ""};
    int error = RSCHED_ENOTSUP;
    bool any = false;

    rs_error_save(&kept);
    for (int i = 0; i < RSCHED_MAX_ENGINES && rsched_engine_at((size_t)i);
         i++) {
        const struct rsched_engine_ops *ops = rsched_engine_at((size_t)i);

        error = ops->open(&env, &context->engines[i].engine);
        if (error == 0) {
            context->engines[i].ops = ops;
            any = true;
            rs_log(RS_LOG_INFO, "engine %s is open", ops->name);
        } else if (error != RSCHED_ENOTSUP) {
            close_engines(context);
            return error;
        } else {
            rs_log(RS_LOG_INFO, "no engine %s: %s", ops->name,
                   rsched_last_error());
            if (!ops->within_node)
                rs_error_save(&without_devices);
        }
    }
    if (!any)
        return error;
    tell_of_named_devices(context, without_devices.text);
    rs_error_restore(&kept);
    return 0;
}

/* @param machine NULL when the user has not said which one it is */
static int open_machine(struct rsched_machine **machine)
{
    const char *name = rs_config()->machine;
    int error = 0;

    if (name[0] != '\0')
        error = rsched_machine_open(name, machine);
    return error == 0 ? 0 : rs_fail_within(error, "RSCHED_MACHINE=%s", name);
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
    c->pid = getpid();
    c->sleep_ps = rs_config()->sleep_ps;
    rs_allowance_find(&c->own);
    c->cpus_known = rs_cpus_count(&c->own.cpus) > 0;
    c->all_cpus = c->own.cpus;
    c->same_cpus = true;
    choose_spin(c);
    rs_log_set_rank(params->process);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->oob_lock, NULL);
    error = open_machine(&c->machine);
    if (error != 0)
        goto err_free;
    rs_coordinator_init(&c->coordinator);
    error = rs_ways_open(c->machine, &c->ways);
    if (error == 0)
        error = open_engines(c);
    if (error != 0)
        goto err_destroy_machine;
    error = rs_safety_init(c);
    if (error != 0)
        goto err_close_engines;
    *context = c;
    return 0;

err_close_engines:
    close_engines(c);
err_destroy_machine:
    rsched_machine_destroy(c->machine);
err_free:
    pthread_mutex_destroy(&c->oob_lock);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return error;
}

static bool settle_all(struct rs_peer *peers)
{
    bool left = false;

    for (struct rs_peer *p = peers; p != NULL; p = p->next) {
        if (p->ops->settle != NULL)
            left = p->ops->settle(p->connection) || left;
    }
    return left;
}

/* Disconnect all peers of a list and free it. */
static void leave(struct rs_peer *peers)
{
    uint64_t until_ps = rs_clock_now() + LEAVE_PS;

    while (settle_all(peers) && rs_clock_now() < until_ps)
        rs_clock_sleep(LEAVE_STEP_PS);
    for (struct rs_peer *p = peers, *next; p != NULL; p = next) {
        next = p->next;
        p->ops->disconnect(p->connection);
        free(p);
    }
}

void rsched_context_destroy(struct rsched_context *context)
{
    if (context == NULL)
        return;
    rs_safety_fini(context);
    leave(context->peers);
    close_engines(context);
    rsched_machine_destroy(context->host);
    rsched_machine_destroy(context->machine);
    pthread_mutex_destroy(&context->oob_lock);
    pthread_mutex_destroy(&context->lock);
    free(context);
}

void rs_context_addresses(struct rsched_context *context,
                          struct rs_addresses *addresses)
{
    memset(addresses, 0, sizeof(*addresses));
    for (int i = 0; i < RSCHED_MAX_ENGINES; i++) {
        struct rs_engine *e = &context->engines[i];

        if (e->ops != NULL)
            e->ops->address(e->engine, addresses->of[i]);
    }
}

static int connect_by(struct rsched_context *context, struct rs_peer *peer,
                      int engine)
{
    struct rs_engine *e = &context->engines[engine];
    int error;

    if (e->ops == NULL)
        return rs_fail(RSCHED_EUNREACH, "engine %d is not there", engine);
    error = e->ops->connect(e->engine, peer->process,
                            peer->addresses.of[engine], &peer->connection);
    if (error != 0)
        return error;
    peer->engine = engine;
    peer->ops = e->ops;
    return 0;
}

static bool is_for(const struct rsched_engine_ops *ops, enum rs_use use)
{
    switch (use) {
    case RS_USE_HOST:
        return !ops->gpus;
    case RS_USE_GPUS:
        return ops->gpus || ops->also_gpus;
    default:
        return ops->also_gpus && !ops->within_node;
    }
}

/* By the first engine that reaches it; otherwise all their reasons are told. */
static int connect_by_any(struct rsched_context *context,
                          struct rs_peer *peer)
{
    char whys[512] = "no engine moves GPU memory here";
    size_t length = 0;

    for (int i = 0; i < RSCHED_MAX_ENGINES; i++) {
        int error;

        if (context->engines[i].ops == NULL ||
            !is_for(context->engines[i].ops, peer->use))
            continue;
        error = connect_by(context, peer, i);
        if (error != RSCHED_EUNREACH)
            return error;
        if (length < sizeof(whys))
            length += (size_t)snprintf(whys + length, sizeof(whys) - length,
                                       "%s%s", length == 0 ? "" : "; ",
                                       rsched_last_error());
    }
    return rs_fail(RSCHED_EUNREACH, "%s", whys);
}

int rs_context_change_engine(struct rsched_context *context,
                             struct rs_peer *peer, int engine)
{
    struct rsched_connection *old = peer->connection;
    const struct rsched_engine_ops *old_ops = peer->ops;
    int error = connect_by(context, peer, engine);

    if (error != 0)
        return error;
    old_ops->disconnect(old);
    choose_spin(context);
    return 0;
}

/* The record of the highest life, the newest of them; NULL: there is none. */
static struct rs_peer *latest(const struct rsched_context *context, int process,
                              enum rs_use use)
{
    struct rs_peer *found = NULL;

    for (struct rs_peer *p = context->peers; p != NULL; p = p->next) {
        if (p->process == process && p->use == use &&
            (found == NULL || p->life > found->life))
            found = p;
    }
    return found;
}

/* The record of a life, or else a later one. With another address it is another
 * instance, whose memory and whose death are not those of the one before. */
static struct rs_peer *find_life(const struct rsched_context *context,
                                 int process,
                                 const struct rs_addresses *addresses,
                                 enum rs_use use, uint32_t life)
{
    struct rs_peer *found = NULL;

    for (struct rs_peer *p = context->peers; p != NULL; p = p->next) {
        if (p->process == process && p->use == use && p->life >= life &&
            memcmp(&p->addresses, addresses, sizeof(*addresses)) == 0 &&
            (found == NULL || p->life < found->life))
            found = p;
    }
    return found;
}

/* Starts need not look for dead peers if there is none. */
static void note_dead(struct rsched_context *context)
{
    bool any = false;

    for (const struct rs_peer *p = context->peers; p != NULL; p = p->next)
        any = any || atomic_load(&p->dead);
    atomic_store(&context->any_dead, any);
}

/* Give back the connections that have been replaced and nobody uses: by another one, or
 * those with a former instance of the process. */
static void free_useless(struct rsched_context *context, int process)
{
    struct rs_peer *useless = NULL;

    for (struct rs_peer **at = &context->peers; *at != NULL;) {
        struct rs_peer *p = *at;

        if (p->process != process || p->users > 0 ||
            p == latest(context, process, p->use)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        p->next = useless;
        useless = p;
    }
    leave(useless);
    note_dead(context);
    choose_spin(context);
}

void rs_peer_acquire(struct rs_peer *peer)
{
    peer->users++;
}

void rs_context_release_peer(struct rsched_context *context,
                             struct rs_peer *peer)
{
    if (peer != NULL && --peer->users == 0)
        free_useless(context, peer->process);
}

int rs_context_peer(struct rsched_context *context, int process,
                    const struct rs_addresses *addresses, enum rs_use use,
                    uint32_t life, const struct rs_allowance *allowance,
                    struct rs_peer **peer)
{
    struct rs_peer *p;
    int error;

    p = find_life(context, process, addresses, use, life);
    if (p != NULL && p->life != life)
        return rs_fail(RSCHED_EPEER,
                       "the connection with process %d has failed meanwhile",
                       process);
    if (p != NULL) {
        rs_peer_acquire(p);
        *peer = p;
        return 0;
    }
    p = calloc(1, sizeof(*p));
    if (p == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for peer %d", process);
    p->process = process;
    p->life = life;
    p->use = use;
    p->addresses = *addresses;
    p->quotas = allowance->quotas;
    error = connect_by_any(context, p);
    if (error != 0) {
        free(p);
        return error;
    }
    p->next = context->peers;
    context->peers = p;
    if (p->ops->within_node) {
        rs_cpus_add(&context->all_cpus, &allowance->cpus);
        context->cpus_known =
            context->cpus_known && rs_cpus_count(&allowance->cpus) > 0;
        context->same_cpus =
            context->same_cpus && memcmp(&allowance->cpus, &context->own.cpus,
                                         sizeof(allowance->cpus)) == 0;
    }
    rs_peer_acquire(p);
    free_useless(context, process);
    *peer = p;
    return 0;
}

/* @return whether the peer is dead, or its connection */
static bool look_at(struct rsched_context *context, struct rs_peer *p)
{
    struct rs_error_text kept;

    if (atomic_load(&p->dead))
        return true;
    /* It may be no peer of the exchange whose call this is. */
    rs_error_save(&kept);
    if (p->ops->check(p->connection) == 0)
        return false;
    rs_error_restore(&kept);
    atomic_store(&p->dead, true);
    note_dead(context);
    return true;
}

/* Whether the next exchange wants another connection, or has to do with another instance
 * of the process. */
static bool is_spent(struct rsched_context *context, struct rs_peer *p)
{
    if (look_at(context, p))
        return p->ops->reconnects || context->params.restarts;
    return p->ops->reconnects && !p->ops->is_whole(p->connection);
}

struct rs_peer *rs_context_known_peer(struct rsched_context *context,
                                      int process, enum rs_use use,
                                      uint32_t *life)
{
    struct rs_peer *p = latest(context, process, use);

    *life = p == NULL ? 0 : p->life;
    if (p != NULL && is_spent(context, p)) {
        *life += p->ops->reconnects;
        p = NULL;
    }
    if (p != NULL)
        rs_peer_acquire(p);
    return p;
}

int rs_context_check(struct rsched_context *context, const struct rs_peer *peer)
{
    int error;

    if (pthread_mutex_trylock(&context->lock) != 0)
        return 0;
    error = peer->ops->check(peer->connection);
    pthread_mutex_unlock(&context->lock);
    return error;
}

bool rs_context_knows_dead(struct rsched_context *context, int process)
{
    const struct rs_peer *p;
    bool dead;

    pthread_mutex_lock(&context->lock);
    p = latest(context, process, RS_USE_HOST);
    dead = p != NULL && atomic_load(&p->dead);
    pthread_mutex_unlock(&context->lock);
    return dead;
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
    for (struct rs_peer *p = context->peers; p != NULL; p = p->next)
        look_at(context, p);
    pthread_mutex_unlock(&context->lock);
}

void rs_context_collect(struct rsched_context *context)
{
    if (pthread_mutex_trylock(&context->lock) != 0)
        return;
    for (int i = 0; i < RSCHED_MAX_ENGINES; i++) {
        struct rs_engine *e = &context->engines[i];

        if (e->ops != NULL && e->ops->collect != NULL)
            e->ops->collect(e->engine);
    }
    pthread_mutex_unlock(&context->lock);
}

bool rs_context_settle(struct rsched_context *context)
{
    return settle_all(context->peers);
}

bool rsched_context_leaves_node(const struct rsched_context *context)
{
    for (int i = 0; i < RSCHED_MAX_ENGINES; i++) {
        const struct rsched_engine_ops *ops = context->engines[i].ops;

        if (ops != NULL && !ops->within_node)
            return true;
    }
    return false;
}

void rsched_context_get_stats(struct rsched_context *context,
                          struct rsched_context_stats *stats)
{
    struct rs_safety *safety = &context->safety;

    pthread_mutex_lock(&context->lock);
    *stats = (struct rsched_context_stats){
        .connections = (uint64_t)count_peers(context),
        .ticks = atomic_load(&safety->ticks),
        .tick_moves = atomic_load(&safety->moves),
        .yields = atomic_load(&context->yields),
        .sleeps = atomic_load(&context->sleeps),
        .crowded = atomic_load(&context->crowded),
        .gpu_messages = rs_coordinator_now(&context->coordinator),
        .gpu_in_flight = rs_coordinator_in_flight(&context->coordinator, 0),
    };
    for (int i = 0; i < RSCHED_MAX_ENGINES; i++) {
        const struct rs_engine *e = &context->engines[i];

        if (e->ops == NULL)
            continue;
        stats->shared_bytes += e->ops->memory(e->engine);
        stats->wakes += e->ops->wakes(e->engine);
    }
    pthread_mutex_unlock(&context->lock);
}
