/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/clock.h"
#include "librsched/base/ways.h"
#include "tests/conformance/node.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HANG_SECONDS = 150, SPINS = 2000, CHECKS = 5000 };

struct start {
    const struct rsched_engine_ops *ops;
    const struct node_case *c;
    struct mesh *mesh;
    int rank;
    bool threads, tiny;
    int result;
};

/* That long copies are shared; whether there are any is RSCHED_MAPPED's. */
#define SHARE \
    { \
        .of[RS_WAY_PULL] = {.gap = {1000000, 1, {{0, 1000000000}}}}, \
        .of[RS_WAY_SHARED] = {.given = true, \
                              .gap = {101000000, 1, {{0, 2000000000}}}} \
    }
/* Of GPU memory, that processors copy what they can, and nothing is pulled. */
#define GPU(ps) \
    { \
        .given = true, .work = {ps, 1, {{0, 1000000000}}}, \
        .gap = {ps, 1, {{0, 1000000000}}} \
    }
#define GPU_WAY(way, ps) \
    [(way) - RS_NUM_HOST_WAYS] = {GPU(ps), GPU(ps), GPU(ps)}
static const struct rs_ways ways = {
    .host = {SHARE, SHARE},
    .gpu = {GPU_WAY(RS_WAY_GDRCOPY, 1000), GPU_WAY(RS_WAY_STAGED, 1000000)},
};

static struct rsched_engine_env make_env(int rank, bool tiny)
{
    return (struct rsched_engine_env){
        .process = rank,
        .job = 4711,
        .chunk_bytes = tiny ? 64 : 32768,
        .ring_bytes = tiny ? 128 : 262144,
        .ways = &ways,
    };
}

bool node_engine_opens(const struct rsched_engine_ops *ops)
{
    struct rsched_engine_env env = make_env(0, false);
    struct rsched_engine *engine;

    if (ops->open(&env, &engine) != 0)
        return false;
    ops->close(engine);
    return true;
}

_Thread_local int node_rank;

uint64_t node_draw(unsigned *seed, uint64_t below)
{
    return ((uint64_t)rand_r(seed) << 15 ^ (uint64_t)rand_r(seed)) % below;
}

int node_tell(struct node *node, int peer, const void *data, size_t bytes)
{
    return mesh_send(node->end, peer, 1, data, bytes);
}

int node_hear(struct node *node, int peer, void *data, size_t bytes)
{
    return mesh_receive(node->end, peer, 1, data, bytes);
}

int node_meet(struct node *node)
{
    mesh_barrier(node->end);
    return 0;
}

/* Give the peer our half of the connection and accept its. */
static int join(struct node *node, int peer)
{
    unsigned char ours[RSCHED_ENGINE_OFFER_BYTES] = {0};
    unsigned char theirs[RSCHED_ENGINE_OFFER_BYTES];

    node->ops->offer(node->connections[peer], ours);
    memcpy(theirs, ours, sizeof(theirs));
    if (peer != node->rank &&
        (node_tell(node, peer, ours, sizeof(ours)) != 0 ||
         node_hear(node, peer, theirs, sizeof(theirs)) != 0))
        return NODE_FAIL(node, "rank %d is gone", peer);
    NODE_CHECK(node,
               node->ops->accept(node->connections[peer], theirs) == 0);
    return 0;
}

static int connect_all(struct node *node)
{
    unsigned char address[RSCHED_ENGINE_ADDRESS_BYTES] = {0};

    node->ops->address(node->engine, address);
    for (int p = 0; p < node->num_ranks; p++) {
        if (p != node->rank)
            node_tell(node, p, address, sizeof(address));
    }
    for (int p = 0; p < node->num_ranks; p++) {
        unsigned char theirs[RSCHED_ENGINE_ADDRESS_BYTES];

        if (p != node->rank &&
            node_hear(node, p, theirs, sizeof(theirs)) != 0)
            return NODE_FAIL(node, "rank %d is gone", p);
        if (p == node->rank && !node->ops->within_node)
            continue; /* processes of other nodes only */
        NODE_CHECK(node, node->ops->connect(
                             node->engine, p,
                             p == node->rank ? address : theirs,
                             &node->connections[p]) == 0);
    }
    for (int p = 0; p < node->num_ranks; p++) {
        if (node->connections[p] != NULL && join(node, p) != 0)
            return 1;
    }
    /* Addresses are valid only as long as their engines are. */
    return node_meet(node);
}

static int run_node(struct start *start)
{
    struct node node = {.ops = start->ops,
                        .env = make_env(start->rank, start->tiny),
                        .rank = start->rank,
                        .num_ranks = start->c->num_ranks,
                        .threads = start->threads};
    int result;

    node_rank = node.rank;
    node.end = mesh_end_create(start->mesh, node.rank);
    if (node.ops->open(&node.env, &node.engine) != 0)
        return NODE_FAIL(&node, "%s", rsched_last_error());
    result = connect_all(&node);
    if (result == 0)
        result = start->c->run(&node);
    /* A device that is part of the process answers its peers as long as they
     * are at work. Who has died does not come. */
    if (result == 0)
        (void)node_meet(&node);
    for (int p = 0; p < node.num_ranks; p++) {
        if (node.connections[p] != NULL)
            node.ops->disconnect(node.connections[p]);
    }
    node.ops->close(node.engine);
    mesh_end_destroy(node.end);
    return result;
}

static void *run_thread(void *arg)
{
    struct start *start = arg;

    start->result = run_node(start);
    /* The others must not wait for ever. */
    if (start->result != 0)
        _exit(1);
    return NULL;
}

static int run_threads(struct start *starts, int n)
{
    pthread_t threads[NODE_MAX];
    int result = 0;

    alarm(HANG_SECONDS);
    for (int i = 0; i < n; i++)
        pthread_create(&threads[i], NULL, run_thread, &starts[i]);
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        result |= starts[i].result;
    }
    alarm(0);
    return result;
}

static int run_processes(struct start *starts, int n)
{
    int result = 0;

    fflush(NULL);
    for (int i = 0; i < n; i++) {
        if (fork() == 0) {
            alarm(HANG_SECONDS);
            mesh_keep(starts[i].mesh, i);
            result = run_node(&starts[i]);
            mesh_destroy(starts[i].mesh);
            exit(result);
        }
    }
    mesh_keep(starts[0].mesh, -1);
    for (int i = 0; i < n; i++) {
        int status;

        /* Only a case that wants it kills a process. */
        if (wait(&status) < 0 ||
            (WIFSIGNALED(status) ? WTERMSIG(status) != SIGKILL
                                 : WEXITSTATUS(status) != 0))
            result = 1;
    }
    return result;
}

static const char *running; /* case */

static void __attribute__((noreturn)) hang(int number)
{
    static const char text[] = " hangs\n";

    (void)number;
    if (write(STDERR_FILENO, running, strlen(running)) > 0 &&
        write(STDERR_FILENO, text, sizeof(text) - 1) > 0)
        _exit(1);
    _exit(2);
}

int node_run(const struct rsched_engine_ops *ops, const struct node_case *c,
             bool threads, bool tiny)
{
    struct start starts[NODE_MAX];
    struct mesh *mesh = mesh_create(c->num_ranks);
    int result;

    running = c->name;
    signal(SIGALRM, hang);
    for (int i = 0; i < c->num_ranks; i++)
        starts[i] = (struct start){ops, c, mesh, i, threads, tiny, 0};
    result = threads ? run_threads(starts, c->num_ranks)
                     : run_processes(starts, c->num_ranks);
    mesh_destroy(mesh);
    return result;
}

enum { TAG_REPLY = 2 };

static int make_tx(struct node *node, int peer,
                   const struct rsched_lane_spec *spec,
                   struct rsched_lane **lane)
{
    unsigned char descriptor[RSCHED_LANE_DESCRIPTOR_BYTES];
    unsigned char reply[RSCHED_LANE_DESCRIPTOR_BYTES] = {0};

    NODE_CHECK(node, node_hear(node, peer, descriptor, sizeof(descriptor)) == 0);
    NODE_CHECK(node, node->ops->tx_create(node->connections[peer], spec,
                                          descriptor, reply, lane) == 0);
    NODE_CHECK(node, mesh_send(node->end, peer, TAG_REPLY, reply,
                               sizeof(reply)) == 0);
    return 0;
}

static int make_rx(struct node *node, int peer,
                   const struct rsched_lane_spec *spec,
                   struct rsched_lane **lane)
{
    unsigned char descriptor[RSCHED_LANE_DESCRIPTOR_BYTES] = {0};
    struct node_lanes *lanes = &node->lanes[peer];

    NODE_CHECK(node, lanes->num_unattached < NODE_MAX_UNATTACHED);
    NODE_CHECK(node, node->ops->rx_create(node->connections[peer], spec,
                                          descriptor, lane) == 0);
    NODE_CHECK(node, node_tell(node, peer, descriptor, sizeof(descriptor)) == 0);
    lanes->unattached[lanes->num_unattached++] = *lane;
    return 0;
}

/* The replies come in the order of the lanes. */
static int attach_until(struct node *node, int peer, struct rsched_lane *lane)
{
    struct node_lanes *lanes = &node->lanes[peer];
    unsigned char reply[RSCHED_LANE_DESCRIPTOR_BYTES];
    unsigned at = 0, done = 0;

    while (at < lanes->num_unattached && lanes->unattached[at] != lane)
        at++;
    if (at == lanes->num_unattached)
        return 0; /* it is attached */
    for (; done <= at; done++) {
        if (mesh_receive(node->end, peer, TAG_REPLY, reply, sizeof(reply)) != 0)
            return -1;
        NODE_CHECK(node, node->ops->rx_attach(lanes->unattached[done],
                                              reply) == 0);
    }
    lanes->num_unattached -= done;
    memmove(lanes->unattached, lanes->unattached + done,
            lanes->num_unattached * sizeof(lanes->unattached[0]));
    return 0;
}

static int attach(struct node *node, struct rsched_lane *lane)
{
    int error = 0;

    for (int p = 0; p < node->num_ranks && error == 0; p++) {
        if (node->connections[p] == lane->connection)
            error = attach_until(node, p, lane);
    }
    return error;
}

int node_lane(struct node *node, int peer, bool tx, uint64_t bytes,
              struct rsched_lane **lane)
{
    uint32_t rails = node->ops->rails(node->connections[peer]);
    struct node_lanes *lanes = &node->lanes[peer];
    struct rsched_lane_spec spec = {
        .bytes = bytes,
        .rail = (tx ? lanes->num_tx++ : lanes->num_rx++) % rails};
    int error = tx ? make_tx(node, peer, &spec, lane)
                   : make_rx(node, peer, &spec, lane);

    if (error != 0)
        return error;
    (*lane)->ops = node->ops;
    (*lane)->attached = true;
    return 0;
}

int node_self_lanes(struct node *node, uint64_t bytes, struct rsched_lane **tx,
                    struct rsched_lane **rx)
{
    struct rsched_connection *c = node->connections[node->rank];
    unsigned char descriptor[RSCHED_LANE_DESCRIPTOR_BYTES] = {0};
    unsigned char reply[RSCHED_LANE_DESCRIPTOR_BYTES] = {0};
    struct rsched_lane_spec spec = {.bytes = bytes};

    NODE_CHECK(node, node->ops->rx_create(c, &spec, descriptor, rx) == 0);
    NODE_CHECK(node, node->ops->tx_create(c, &spec, descriptor, reply, tx) == 0);
    NODE_CHECK(node, node->ops->rx_attach(*rx, reply) == 0);
    (*tx)->ops = (*rx)->ops = node->ops;
    (*rx)->attached = (*tx)->attached = true;
    return 0;
}

void node_drop(struct node *node, struct rsched_lane *lane, bool tx)
{
    if (tx) {
        node->ops->tx_destroy(lane);
        return;
    }
    attach(node, lane); /* hears what the peer has said, or that it is gone */
    node->ops->rx_destroy(lane);
}

int node_load(struct node *node, struct rsched_lane *lane, bool tx,
              const struct rsched_message *message)
{
    if (tx)
        return node->ops->tx_load(lane, message);
    NODE_CHECK(node, attach(node, lane) == 0);
    return node->ops->rx_load(lane, message);
}

struct progress {
    struct node *node;
    struct rsched_lane *lane;
    bool tx;
    int status;
};

static bool go_on(void *arg)
{
    struct progress *p = arg;

    p->status = p->tx ? p->node->ops->tx_progress(p->lane)
                      : p->node->ops->rx_progress(p->lane);
    return p->status != RSCHED_LANE_PENDING;
}

/* Long enough that only a missed wake-up lasts so long. */
#define SLEEP_PS (200 * UINT64_C(1000000000))

static int finish(struct node *node, struct rsched_lane *lane, bool tx,
                  int spins, uint64_t limit_ps)
{
    struct progress p = {node, lane, tx, RSCHED_LANE_PENDING};

    for (int i = 0; !go_on(&p); i++) {
        if (i > spins)
            node->ops->sleep(node->engine, NULL, limit_ps, go_on, &p);
        else if (i % 16 == 15)
            sched_yield();
        /* A connection that has failed is better told than waited for. */
        if (i % CHECKS == CHECKS - 1 &&
            node->ops->check(lane->connection) != 0 && !go_on(&p))
            return RSCHED_EPEER;
    }
    return p.status < 0 ? p.status : 0;
}

void node_yield(void)
{
    sched_yield();
}

int node_check_until(struct node *node, struct rsched_lane *lane, bool tx)
{
    int status = 0;

    for (int i = 0; i < CHECKS && status == 0; i++) {
        status = tx ? node->ops->tx_check(lane) : node->ops->rx_check(lane);
        if (status == 0 && i > 0)
            usleep(1000);
    }
    return status;
}

int node_finish(struct node *node, struct rsched_lane *lane, bool tx)
{
    return finish(node, lane, tx, SPINS, UINT64_C(1000000000));
}

static void sleep_until(struct node *node, bool (*ready)(void *arg), void *arg)
{
    while (!ready(arg)) {
        uint64_t before = rs_clock_now();

        node->ops->sleep(node->engine, NULL, SLEEP_PS, ready, arg);
        if (rs_clock_now() - before >= SLEEP_PS && ready(arg))
            node->missed_wakes++;
    }
}

int node_sleep_until_done(struct node *node, struct rsched_lane *lane, bool tx)
{
    struct progress p = {node, lane, tx, RSCHED_LANE_PENDING};

    sleep_until(node, go_on, &p);
    return p.status < 0 ? p.status : 0;
}

/* Each lane until it is done. */
static bool go_on_both(void *arg)
{
    struct progress *both = arg;
    bool done = true;

    for (int i = 0; i < 2; i++)
        done &= both[i].status != RSCHED_LANE_PENDING || go_on(&both[i]);
    return done || both[0].status < 0 || both[1].status < 0;
}

int node_sleep_until_both(struct node *node, struct rsched_lane *out, struct rsched_lane *in)
{
    struct progress both[] = {{node, out, true, RSCHED_LANE_PENDING},
                              {node, in, false, RSCHED_LANE_PENDING}};

    sleep_until(node, go_on_both, both);
    return both[0].status < 0 ? both[0].status : both[1].status < 0 ? both[1].status : 0;
}

int node_epoch(struct node *node, struct rsched_lane *lane, bool tx)
{
    int status = tx ? node->ops->tx_start(lane) : node->ops->rx_start(lane);

    if (status < 0)
        return status;
    return status == RSCHED_LANE_DONE ? 0 : node_finish(node, lane, tx);
}

int node_start_alone(struct node *node, struct rsched_lane *lane)
{
    int status = node->ops->tx_start(lane);

    for (int i = 0; node->ops->gpus && i < 100; i++) {
        if (status != RSCHED_LANE_PENDING)
            break;
        usleep(100);
        status = node->ops->tx_progress(lane);
    }
    return status;
}
