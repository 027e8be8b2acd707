/* SPDX-License-Identifier: BSD-3-Clause */
/* The loopback engine: processes of one node, through shared memory. */
#include "engines/loopback/loopback.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engines/common/process.h"
#include "librsched/base/clock.h"
#include "librsched/base/descriptor.h"
#include "librsched/base/error.h"
#include "librsched/base/numa.h"

/* What a peer must know of us. */
struct address {
    uint64_t magic;
    uint64_t job;
    uint64_t node;
    uint64_t nonce;
    int32_t pid;
    int32_t fd;
    uint64_t memory_id;
    int32_t memory_fd;
    int32_t numa_node;
    uint64_t spaces;
};
static_assert(sizeof(struct address) <= RSCHED_ENGINE_ADDRESS_BYTES,
              "wire layout");

/* How long a word may take from a core to the cache, and then some. */
#define LOOK_PS (3 * UINT64_C(1000000))

static int loopback_open(const struct rsched_engine_env *env,
                         struct rsched_engine **engine)
{
    struct rsched_engine *e = calloc(1, sizeof(*e));
    int error;

    if (e == NULL)
        return rs_fail(RSCHED_ENOMEM, "loopback: no memory");
    e->env = *env;
    error = rs_shared_open(&e->memory);
    if (error != 0)
        goto err_free;
    error = rs_segment_init(&e->segment, env->job);
    if (error != 0)
        goto err_close;
    rs_hands_init(&e->hands, e->segment.nonce);
    e->spaces = rs_hands_spaces(e->hands.nonce);
    e->numa_node = rs_numa_node(NULL);
    *engine = e;
    return 0;

err_close:
    rs_shared_close();
err_free:
    free(e);
    return error;
}

static void connection_free(struct rsched_connection *connection)
{
    if (connection->pidfd >= 0)
        close(connection->pidfd);
    free(connection);
}

static void loopback_close(struct rsched_engine *engine)
{
    for (struct rsched_connection *c = engine->former, *next; c != NULL; c = next) {
        next = c->next_former;
        connection_free(c);
    }
    rs_hands_fini(&engine->hands);
    rs_segment_fini(&engine->segment);
    rs_shared_close();
    free(engine);
}

static void loopback_address(struct rsched_engine *engine,
                             unsigned char *address)
{
    const struct address a = {
        .magic = RS_SEGMENT_MAGIC,
        .job = engine->env.job,
        .node = engine->env.node,
        .nonce = engine->segment.nonce,
        .pid = getpid(),
        .fd = engine->segment.fd,
        .memory_id = engine->memory.id,
        .memory_fd = engine->memory.fd,
        .numa_node = engine->numa_node,
        .spaces = engine->spaces,
    };

    memcpy(address, &a, sizeof(a));
}

/* Map the peer's header; the nonce tells whether it is the right one. Takes the
 * descriptor over. */
static int open_header(struct rsched_connection *c, int fd)
{
    struct rs_segment_header *header;
    struct stat status;
    int error;

    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_size < RS_HEADER_BYTES || status.st_uid != geteuid()) {
        close(fd);
        return rs_fail(RSCHED_EUNREACH,
                       "loopback: peer %d: what was opened is not its memory",
                       c->peer);
    }
    header = rs_segment_map(fd, 0, RS_HEADER_BYTES, false);
    if (header == NULL) {
        error = rs_fail(rs_segment_map_error(),
                        "loopback: peer %d: mapping its memory: %m", c->peer);
        close(fd);
        return error;
    }
    if (header->magic != RS_SEGMENT_MAGIC ||
        header->job != c->engine->env.job || header->nonce != c->nonce) {
        rs_segment_unmap(header);
        close(fd);
        return rs_fail(RSCHED_EUNREACH,
                       "loopback: peer %d: what was opened belongs to "
                       "somebody else", c->peer);
    }
    c->header = header;
    c->segment_fd = fd;
    return 0;
}

/* Whether descriptors that can be done without may be opened after this one. The last
 * quarter of those that there may be is for peers that come later, who need one each,
 * and for the program. */
static bool has_room_after(int fd)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
           (rlim_t)fd < limit.rlim_cur - limit.rlim_cur / 4;
}

/* Process numbers mean nothing across PID namespaces or nodes. */
static int open_peer(struct rsched_connection *c, const struct address *a)
{
    char path[64];
    int fd, error;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", a->pid, a->fd);
    fd = rs_descriptor_keep(
        open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (fd < 0)
        return rs_fail(RSCHED_EUNREACH,
                       "loopback: peer %d: cannot open its memory (%s): %m",
                       c->peer, path);
    error = open_header(c, fd);
    if (error != 0)
        return error;
    /* The nonce was in its memory just now, so the number is its own. */
    c->pid = a->pid;
    if (has_room_after(fd)) {
        c->pidfd = rs_descriptor_keep((int)syscall(SYS_pidfd_open, a->pid, 0));
        rs_maps_open(&c->maps, a->pid, a->memory_fd, c->memory_id);
    } else {
        rs_maps_init(&c->maps, -1, c->memory_id);
    }
    c->reads = rs_process_may_read(c->pid);
    return 0;
}

/* Whoever is in other namespaces or groups, or must not be dumped, may be able to open
 * us while we cannot open him, or the other way round: both hand over what the other
 * may need. */
static int reach_peer(struct rsched_connection *c, const struct address *a)
{
    struct rsched_engine *engine = c->engine;
    const int own[RS_HAND_FDS] = {engine->segment.fd, engine->memory.fd};
    int error = open_peer(c, a);

    if (a->spaces == engine->spaces)
        return error;
    if (rs_hands_send(&engine->hands, a->nonce, own) == 0 || error == 0)
        return 0;
    return rs_fail(RSCHED_EUNREACH,
                   "loopback: peer %d is in other namespaces or groups, or must "
                   "not be dumped: neither /proc nor a socket leads to it (%m)",
                   c->peer);
}

static int loopback_connect(struct rsched_engine *engine, int peer,
                            const unsigned char *address,
                            struct rsched_connection **connection)
{
    struct rsched_connection *c;
    struct address a;

    memcpy(&a, address, sizeof(a));
    if (a.magic != RS_SEGMENT_MAGIC)
        return rs_fail(RSCHED_EUNREACH,
                       "loopback: peer %d has no loopback engine", peer);
    if (a.job != engine->env.job)
        return rs_fail(RSCHED_EUNREACH, "loopback: peer %d is of another job",
                       peer);
    if (a.node != engine->env.node)
        return rs_fail(RSCHED_EUNREACH,
                       "loopback: peer %d is on another node (RSCHED_NODE)",
                       peer);
    c = calloc(1, sizeof(*c));
    if (c == NULL)
        return rs_fail(RSCHED_ENOMEM, "loopback: no memory");
    c->engine = engine;
    c->peer = peer;
    c->nonce = a.nonce;
    c->memory_id = a.memory_id;
    c->segment_fd = c->pidfd = c->maps.fd = -1;
    /* Pointers are followed then: of another process not even if it were told so. */
    c->self = peer == engine->env.process && a.nonce == engine->segment.nonce;
    c->distance = c->self ? RS_DISTANCE_SAME_NUMA
                          : rs_numa_distance(engine->numa_node, a.numa_node);
    if (!c->self) {
        int error = reach_peer(c, &a);

        if (error != 0) {
            free(c);
            return error;
        }
    }
    *connection = c;
    return 0;
}

/* What the peer needs of us it has opened, or it is in its socket's queue. */
static void loopback_offer(struct rsched_connection *connection,
                           unsigned char *offer)
{
    (void)connection;
    memset(offer, 0, RSCHED_ENGINE_OFFER_BYTES);
}

static int take(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

/* Take what the peer, which could not be opened, has handed over. */
static int open_handed(struct rsched_connection *c, struct rs_hand *hand)
{
    int error = open_header(c, take(&hand->fds[0]));
    bool has_room;

    if (error != 0)
        return error;
    c->pid = hand->pid;
    c->reads = c->pid > 0 && rs_process_may_read(c->pid);
    has_room = has_room_after(c->segment_fd);
    /* Of one that has no number here nothing else says that it is dead. */
    if (has_room || c->pid == 0)
        c->pidfd = take(&hand->pidfd);
    rs_maps_init(&c->maps, has_room ? take(&hand->fds[1]) : -1, c->memory_id);
    return 0;
}

static void loopback_collect(struct rsched_engine *engine)
{
    rs_hands_collect(&engine->hands);
}

static int loopback_accept(struct rsched_connection *connection,
                           const unsigned char *offer)
{
    struct rs_hand *hand;
    int error = 0;

    (void)offer;
    if (connection->self)
        return 0;
    /* Also where it is not needed: it would stay open as long as the engine. */
    hand = rs_hands_take(&connection->engine->hands, connection->nonce);
    if (connection->header == NULL)
        error = hand != NULL
                    ? open_handed(connection, hand)
                    : rs_fail(RSCHED_EUNREACH,
                              "loopback: peer %d, which cannot be opened, has "
                              "not handed over its memory", connection->peer);
    if (hand != NULL)
        rs_hand_destroy(hand);
    return error;
}

static uint32_t loopback_rails(const struct rsched_connection *connection)
{
    (void)connection;
    return 1;
}

void rs_connections_sweep(struct rsched_engine *engine)
{
    for (struct rsched_connection **at = &engine->former; *at != NULL;) {
        struct rsched_connection *c = *at;

        if (rs_segment_forget(&engine->segment, c, rs_connection_is_dead)) {
            at = &c->next_former;
            continue;
        }
        *at = c->next_former;
        connection_free(c);
    }
}

/* What says that the peer is dead is kept as long as it may write. */
static void loopback_disconnect(struct rsched_connection *connection)
{
    struct rsched_engine *engine = connection->engine;

    if (!connection->self) {
        rs_maps_fini(&connection->maps);
        if (connection->header != NULL) {
            rs_segment_unmap(connection->header);
            close(connection->segment_fd);
        }
    }
    connection->next_former = engine->former;
    engine->former = connection;
    rs_connections_sweep(engine);
}

bool rs_connection_is_dead(const struct rsched_connection *connection)
{
    return !connection->self &&
           rs_process_is_dead(connection->pid, connection->pidfd);
}

static bool loopback_is_whole(const struct rsched_connection *connection)
{
    return !rs_connection_is_dead(connection);
}

static int loopback_check(struct rsched_connection *connection)
{
    if (!rs_connection_is_dead(connection))
        return 0;
    return rs_fail(RSCHED_EPEER, "loopback: peer %d (pid %d) is dead",
                   connection->peer, (int)connection->pid);
}

void rs_doorbell_ring(struct rsched_engine *engine, struct rs_doorbell *bell)
{
    atomic_fetch_add_explicit(&bell->rings, 1, memory_order_release);
    syscall(SYS_futex, &bell->rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    atomic_fetch_add_explicit(&engine->wakes, 1, memory_order_relaxed);
}

static void sleepers_enter(struct rs_doorbell *bell, uint32_t tag)
{
    uint64_t old = atomic_load_explicit(&bell->sleepers, memory_order_relaxed);
    uint64_t next;

    do {
        uint32_t others = (uint32_t)old;

        next = others == 0 ? (uint64_t)tag << 32 | 1 : (uint64_t)others + 1;
    } while (!atomic_compare_exchange_weak(&bell->sleepers, &old, next));
}

static void sleepers_leave(struct rs_doorbell *bell)
{
    uint64_t old = atomic_load_explicit(&bell->sleepers, memory_order_relaxed);
    uint64_t next;

    do {
        next = (uint32_t)old == 1 ? 0 : old - 1;
    } while (!atomic_compare_exchange_weak(&bell->sleepers, &old, next));
}

static void loopback_sleep(struct rsched_engine *engine,
                           const struct rsched_lane *lane, uint64_t limit_ps,
                           bool (*ready)(void *arg), void *arg)
{
    struct rs_doorbell *bell = &engine->segment.header->doorbell;
    unsigned rings = atomic_load_explicit(&bell->rings, memory_order_acquire);
    struct timespec limit = rs_clock_timespec(limit_ps);
    uint64_t begin;
    bool is_ready;

    /* Whoever writes a word for us looks at `sleepers` afterwards, without a
     * fence (it would wait for all the lines that the data goes into). So its
     * look may come before ours is visible while its word is still on its way
     * to the cache, for some hundred nanoseconds: look again for that long.
     * If even that is too short (the core was taken away by a
     * hypervisor, say), the limit bounds what was missed. (A fence
     * in all running threads by membarrier(2) costs 20 us and interrupts
     * those who compute.) */
    sleepers_enter(bell, lane == NULL ? 0 : rs_loopback_tag(lane));
    begin = rs_clock_now();
    do
        is_ready = ready(arg);
    while (!is_ready && rs_clock_now() - begin < LOOK_PS);
    if (!is_ready)
        syscall(SYS_futex, &bell->rings, FUTEX_WAIT, rings, &limit, NULL, 0);
    sleepers_leave(bell);
}

static uint64_t loopback_memory(struct rsched_engine *engine)
{
    return engine->segment.bytes;
}

static uint64_t loopback_wakes(struct rsched_engine *engine)
{
    return atomic_load_explicit(&engine->wakes, memory_order_relaxed);
}

const struct rsched_engine_ops rs_loopback_ops = {
    .name = "loopback",
    .help = "within a process and a node: self copies, mapped pages, cross-memory attach, landing slots",
    .within_node = true,
    .accept = loopback_accept,
    .address = loopback_address,
    .check = loopback_check,
    .close = loopback_close,
    .collect = loopback_collect,
    .connect = loopback_connect,
    .disconnect = loopback_disconnect,
    .is_whole = loopback_is_whole,
    .memory = loopback_memory,
    .offer = loopback_offer,
    .open = loopback_open,
    .rails = loopback_rails,
    .rx_abandon = rs_loopback_rx_abandon,
    .rx_attach = rs_loopback_rx_attach,
    .rx_check = rs_loopback_rx_check,
    .rx_create = rs_loopback_rx_create,
    .rx_destroy = rs_loopback_rx_destroy,
    .rx_is_over = rs_loopback_rx_is_over,
    .rx_load = rs_loopback_rx_load,
    .rx_progress = rs_loopback_rx_progress,
    .rx_start = rs_loopback_rx_start,
    .sleep = loopback_sleep,
    .tx_abandon = rs_loopback_tx_abandon,
    .tx_blocks = rs_loopback_tx_blocks,
    .tx_check = rs_loopback_tx_check,
    .tx_create = rs_loopback_tx_create,
    .tx_destroy = rs_loopback_tx_destroy,
    .tx_load = rs_loopback_tx_load,
    .tx_progress = rs_loopback_tx_progress,
    .tx_remap = rs_loopback_tx_remap,
    .tx_saves = rs_loopback_tx_saves,
    .tx_start = rs_loopback_tx_start,
    .wakes = loopback_wakes,
};
