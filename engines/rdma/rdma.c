/* SPDX-License-Identifier: BSD-3-Clause */
/* Instances and connections. */
#include "engines/rdma/rdma.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <xxhash.h>

#include "engines/common/look.h"
#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"

#define MAGIC UINT64_C(0x31616d6472686373) /* "schrdma1" */

/* After that a rail that was left out may work, though no port has said so. */
#define RETRY_PS (30 * UINT64_C(1000000000000))

/* What a peer must know of us. */
struct address {
    uint64_t magic;
    uint64_t job;
    uint64_t nonce;
    uint32_t num_rails;
    uint32_t reserved;
    unsigned char rails[RSCHED_MAX_RAILS][RS_PORT_ADDRESS_BYTES];
    uint64_t hash; /* of all before */
};
static_assert(sizeof(struct address) <= RSCHED_ENGINE_ADDRESS_BYTES,
              "wire layout");

struct offer {
    struct rs_rdma_link_offer links[RSCHED_MAX_RAILS];
    uint64_t hash;
};
static_assert(sizeof(struct offer) <= RSCHED_ENGINE_OFFER_BYTES, "wire layout");

static void close_ports(struct rs_rdma_port **ports, uint32_t num_ports)
{
    for (uint32_t i = 0; i < num_ports; i++)
        ports[i]->ops->close(ports[i]);
}

/* The flag costs the least on both sides, but needs writes that are seen in
 * their order; a fetch-and-add or an immediate is ordered by itself. (No memory
 * is registered for relaxed ordering.) */
static enum rs_rdma_notify best_notify(const struct rs_rdma_port *port)
{
    if (port->in_order)
        return RS_NOTIFY_FLAG;
    return port->fetch_add ? RS_NOTIFY_ADD : RS_NOTIFY_IMM;
}

static int choose_notify(const char *name, struct rs_rdma_port *port)
{
    static const enum rs_rdma_notify wanted[] = {
        [RS_CONFIG_NOTIFY_FLAG] = RS_NOTIFY_FLAG,
        [RS_CONFIG_NOTIFY_ADD] = RS_NOTIFY_ADD,
        [RS_CONFIG_NOTIFY_IMM] = RS_NOTIFY_IMM,
    };
    uint64_t setting = rs_config()->notify;

    port->notify = setting == RS_CONFIG_NOTIFY_AUTO ? best_notify(port)
                                                    : wanted[setting];
    if (port->notify == RS_NOTIFY_FLAG && !port->in_order)
        return rs_fail(RSCHED_EINVAL,
                       "%s %s: RSCHED_NOTIFY=flag: the device does not keep "
                       "writes in order",
                       name, port->name);
    if (port->notify == RS_NOTIFY_ADD && !port->fetch_add)
        return rs_fail(RSCHED_EINVAL,
                       "%s %s: RSCHED_NOTIFY=add: the device has no atomic "
                       "operations",
                       name, port->name);
    if (port->notify == RS_NOTIFY_IMM && !port->immediates)
        return rs_fail(setting == RS_CONFIG_NOTIFY_AUTO ? RSCHED_ENOTSUP
                                                         : RSCHED_EINVAL,
                       "%s %s: the device has no writes with immediates",
                       name, port->name);
    return 0;
}

/* Close the ports whose peers could not notify us; those that the user has named
 * are all wanted. @return how many are left, at least one; or, with all of them
 * closed, what is wrong with the first of the others */
static int keep_able(const char *name, struct rs_rdma_port **ports, int found)
{
    bool named = rs_config()->devices[0] != '\0';
    int kept = 0, error;

    for (int i = 0; i < found; i++) {
        struct rs_rdma_port *port = ports[i];

        if (choose_notify(name, port) != 0)
            continue;
        ports[i] = ports[kept];
        ports[kept++] = port;
    }
    if (kept == 0 || (named && kept < found)) {
        error = choose_notify(name, ports[kept]);
        close_ports(ports, (uint32_t)found);
        return error;
    }
    for (int i = kept; i < found; i++) {
        choose_notify(name, ports[i]);
        rs_log(RS_LOG_WARN, "a port is not used: %s", rsched_last_error());
    }
    close_ports(ports + kept, (uint32_t)(found - kept));
    return kept;
}

int rs_rdma_open(const char *name, const struct rsched_engine_env *env,
                 rs_rdma_ports_fn *find, struct rsched_engine **engine)
{
    struct rs_rdma_port *ports[RSCHED_MAX_RAILS];
    struct rsched_engine *e;
    int found = find(env, ports);

    if (found > 0)
        found = keep_able(name, ports, found);
    if (found < 0)
        return found;
    e = calloc(1, sizeof(*e));
    if (e == NULL) {
        close_ports(ports, (uint32_t)found);
        return rs_fail(RSCHED_ENOMEM, "%s: no memory", name);
    }
    if (getrandom(&e->nonce, sizeof(e->nonce), 0) != sizeof(e->nonce)) {
        close_ports(ports, (uint32_t)found);
        free(e);
        return rs_fail(RSCHED_ESYS, "%s: getrandom: %m", name);
    }
    e->env = *env;
    e->name = name;
    e->num_rails = (uint32_t)found;
    for (uint32_t i = 0; i < e->num_rails; i++)
        rs_rdma_memory_init(&e->rails[i], ports[i]);
    pthread_mutex_init(&e->lock, NULL);
    *engine = e;
    return 0;
}

void rs_rdma_close(struct rsched_engine *engine)
{
    for (uint32_t i = 0; i < engine->num_rails; i++) {
        rs_rdma_memory_fini(&engine->rails[i]);
        close_ports(&engine->rails[i].port, 1);
    }
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

void rs_rdma_address(struct rsched_engine *engine, unsigned char *address)
{
    struct address a = {
        .magic = MAGIC,
        .job = engine->env.job,
        .nonce = engine->nonce,
        .num_rails = engine->num_rails,
    };

    for (uint32_t i = 0; i < engine->num_rails; i++) {
        const struct rs_rdma_port *port = engine->rails[i].port;

        port->ops->address(port, a.rails[i]);
    }
    a.hash = XXH64(&a, offsetof(struct address, hash), 0);
    memcpy(address, &a, sizeof(a));
}

uint32_t rs_rdma_tell_ports(const struct rsched_engine *engine,
                            struct rsched_engine_port *ports)
{
    for (uint32_t i = 0; i < engine->num_rails; i++) {
        const struct rs_rdma_port *port = engine->rails[i].port;

        ports[i] = (struct rsched_engine_port){.name = port->name,
                                               .max_pieces = port->max_pieces,
                                               .max_inline = port->max_inline};
    }
    return engine->num_rails;
}

static int check_address(const struct rsched_engine *engine, int peer,
                         const struct address *a)
{
    if (a->magic != MAGIC ||
        a->hash != XXH64(a, offsetof(struct address, hash), 0) ||
        a->num_rails == 0 || a->num_rails > RSCHED_MAX_RAILS)
        return rs_fail(RSCHED_EUNREACH, "%s: peer %d has no port that it uses",
                       engine->name, peer);
    if (a->job != engine->env.job)
        return rs_fail(RSCHED_EUNREACH, "%s: peer %d is of another job",
                       engine->name, peer);
    if (a->nonce == engine->nonce)
        return rs_fail(RSCHED_EUNREACH,
                       "%s: peer %d is the process itself", engine->name,
                       peer);
    return 0;
}

static void fini_links(struct rsched_connection *c)
{
    pthread_mutex_lock(&c->engine->lock);
    while (c->num_links > 0)
        rs_rdma_link_fini(&c->links[--c->num_links]);
    pthread_mutex_unlock(&c->engine->lock);
}

/* What is wrong with one device is no reason not to use the others. */
static bool is_of_the_device(int error)
{
    return error == RSCHED_ESYS || error == RSCHED_EPEER;
}

static int init_links(struct rsched_connection *c, uint32_t num_links)
{
    struct rsched_engine *engine = c->engine;
    int error = 0, first = 0;
    bool any = false;

    pthread_mutex_lock(&engine->lock);
    while (error == 0 && c->num_links < num_links) {
        uint32_t i = c->num_links;

        error = rs_rdma_link_init(&c->links[i], &engine->rails[i], c->peer,
                                  engine->name, &c->offers[i]);
        any = any || error == 0;
        first = first == 0 ? error : first;
        if (is_of_the_device(error)) {
            rs_rdma_link_init_broken(&c->links[i], &engine->rails[i], c->peer,
                                     engine->name, &c->offers[i]);
            error = 0;
        }
        c->num_links += error == 0;
    }
    pthread_mutex_unlock(&engine->lock);
    return error == 0 && !any ? first : error;
}

int rs_rdma_connect(struct rsched_engine *engine, int peer,
                    const unsigned char *address,
                    struct rsched_connection **connection)
{
    struct rsched_connection *c;
    struct address a;
    int error;

    memcpy(&a, address, sizeof(a));
    error = check_address(engine, peer, &a);
    if (error != 0)
        return error;
    c = calloc(1, sizeof(*c));
    if (c == NULL)
        return rs_fail(RSCHED_ENOMEM, "%s: no memory", engine->name);
    c->engine = engine;
    c->peer = peer;
    c->used = UINT32_MAX;
    memcpy(c->addresses, a.rails, sizeof(c->addresses));
    /* Rail i here is rail i there. */
    error = init_links(c, a.num_rails < engine->num_rails ? a.num_rails
                                                          : engine->num_rails);
    if (error != 0) {
        fini_links(c);
        free(c);
        return error;
    }
    *connection = c;
    return 0;
}

void rs_rdma_offer(struct rsched_connection *connection, unsigned char *offer)
{
    struct offer o = {0};

    memcpy(o.links, connection->offers, sizeof(o.links));
    o.hash = XXH64(o.links, sizeof(o.links), 0);
    memcpy(offer, &o, sizeof(o));
}

int rs_rdma_accept(struct rsched_connection *connection,
                   const unsigned char *offer)
{
    struct offer o;
    int error = 0;

    memcpy(&o, offer, sizeof(o));
    if (o.hash != XXH64(o.links, sizeof(o.links), 0))
        return rs_fail(RSCHED_EMISMATCH,
                       "%s: peer %d offers something else than queue pairs",
                       connection->engine->name, connection->peer);
    for (uint32_t i = 0; i < connection->num_links; i++) {
        int wrong = rs_rdma_link_connect(&connection->links[i],
                                         connection->addresses[i], &o.links[i]);

        connection->connected |= (uint32_t)(wrong == 0) << i;
        error = wrong == 0 || error != 0 ? error : wrong;
        if (wrong != 0 && !is_of_the_device(wrong))
            return wrong;
    }
    connection->used = connection->connected;
    connection->retry_ps = rs_clock_now() + RETRY_PS;
    return connection->connected != 0 ? 0 : error;
}

uint32_t rs_rdma_rails(const struct rsched_connection *connection)
{
    return connection->num_links;
}

uint32_t rs_rdma_rails_connected(const struct rsched_connection *connection)
{
    return connection->connected;
}

static bool has(uint32_t links, uint32_t i)
{
    return (links >> i & 1) != 0;
}

static const char *why_left_out(const struct rsched_connection *c, uint32_t i)
{
    return has(c->connected, i) ? "the peer cannot connect it" : c->links[i].why;
}

static int has_no_rail(const struct rsched_connection *c)
{
    uint32_t i = 0;

    while (i + 1 < c->num_links && has(c->connected, i))
        i++;
    return rs_fail(RSCHED_EUNREACH, "%s: peer %d: no rail works at both ends; rail %u: %s",
                   c->engine->name, c->peer, i, why_left_out(c, i));
}

int rs_rdma_rails_agree(struct rsched_connection *connection, uint32_t theirs)
{
    uint32_t used = connection->connected & theirs;

    if (used == 0)
        return has_no_rail(connection);
    for (uint32_t i = 0; !connection->agreed && i < connection->num_links; i++) {
        if (!has(used, i))
            rs_log(RS_LOG_WARN, "%s %s: rail %u to peer %d is left out: %s",
                   connection->engine->name, connection->engine->rails[i].port->name, i,
                   connection->peer, why_left_out(connection, i));
    }
    connection->used = used;
    connection->agreed = true;
    return 0;
}

uint32_t rs_rdma_rails_used(const struct rsched_connection *connection)
{
    return connection->used;
}

struct rs_rdma_link *rs_rdma_find_link(struct rsched_connection *connection, uint32_t rail)
{
    uint32_t n = connection->num_links, skipped = 0;

    while (skipped < n && !has(connection->used, (rail + skipped) % n))
        skipped++;
    return &connection->links[(rail + skipped) % n];
}

/* Destroyed lanes may still have to say that nothing follows. @return whether any
 * of them is left, as far as can be told without waiting */
static bool bury_all(struct rsched_connection *connection)
{
    bool left = false;

    if (pthread_mutex_trylock(&connection->engine->lock) != 0)
        return true;
    for (uint32_t i = 0; i < connection->num_links; i++) {
        rs_rdma_lanes_bury(&connection->links[i]);
        left = left || connection->links[i].zombies != NULL;
    }
    pthread_mutex_unlock(&connection->engine->lock);
    return left;
}

bool rs_rdma_settle(struct rsched_connection *connection)
{
    bool left = false;

    for (uint32_t i = 0; i < connection->num_links; i++) {
        struct rs_rdma_link *link = &connection->links[i];

        rs_rdma_link_lock(link);
        rs_rdma_link_poll(link);
        rs_rdma_link_note(link);
        rs_rdma_lanes_say_last(link);
        left = left || link->owing != NULL;
        rs_rdma_link_unlock(link);
    }
    return bury_all(connection) || left;
}

void rs_rdma_disconnect(struct rsched_connection *connection)
{
    for (uint32_t i = 0; i < connection->num_links; i++)
        rs_rdma_lanes_keep_promises(&connection->links[i], connection->engine);
    fini_links(connection);
    free(connection);
}

/* A rail that fails takes the lanes over it along, and nothing else: the peer
 * is gone once nothing moves any more on the rails that are in use. */
int rs_rdma_check(struct rsched_connection *connection)
{
    const struct rs_rdma_link *broken = NULL;
    bool moves = false;

    bury_all(connection);

    for (uint32_t i = 0; i < connection->num_links; i++) {
        struct rs_rdma_link *link = &connection->links[i];

        int error = rs_rdma_link_check(link);

        if (!atomic_load(&link->in_use))
            continue;
        moves = moves || error == 0;
        broken = error != 0 && broken == NULL ? link : broken;
    }
    return broken == NULL || moves ? 0 : rs_rdma_link_failed(broken);
}

/* Without the rails that are left out it is as good as another one would be, as far as
 * this end knows. */
bool rs_rdma_is_whole(const struct rsched_connection *connection)
{
    bool whole = true;

    for (uint32_t i = 0; i < connection->num_links; i++) {
        const struct rs_rdma_link *link = &connection->links[i];

        if (has(connection->used, i))
            whole = whole && rs_rdma_link_is_whole(link);
        else
            whole = whole && rs_clock_now() < connection->retry_ps &&
                    !rs_rdma_link_has_come_up(link);
    }
    return whole;
}

/* Nothing wakes us but the clock: a write of a peer makes no completion here.
 * Between looks the core is free, for the device too where software is one. */
void rs_rdma_sleep(struct rsched_engine *engine, const struct rsched_lane *lane,
                   uint64_t limit_ps, bool (*ready)(void *arg), void *arg)
{
    (void)engine;
    (void)lane;
    rs_look_until(limit_ps, ready, arg);
}

uint64_t rs_rdma_memory_bytes(struct rsched_engine *engine)
{
    uint64_t bytes = 0;

    pthread_mutex_lock(&engine->lock);
    for (uint32_t i = 0; i < engine->num_rails; i++)
        bytes += engine->rails[i].bytes;
    pthread_mutex_unlock(&engine->lock);
    return bytes;
}

uint64_t rs_rdma_wakes(struct rsched_engine *engine)
{
    (void)engine;
    return 0;
}
