/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happens to exchanges over verbs when something fails, with the rails of
 * tests/rdma-vm:
 *
 *     verbs-faults down|loss|lossy-1|lossy-5|rail|removed|given-up|kill|stop|memlock|remap
 *
 * A rail that is down, or loses all that it sends, ends an exchange with an
 * error; once it works again a new exchange does too. One that loses 1 % costs
 * time only, one that loses 5 % may also end an exchange. Exchanges that do not
 * use the rail which fails, or whose device is removed, go on, and new ones
 * without it can be made. A process that is killed is named, and the others go
 * on, within the node and between nodes; one that is stopped for seconds is
 * waited for, by those only who need it. What is given up while it is being
 * written does no harm to the next exchange. What may not be locked in memory is
 * an error that names the limit, and what was made before goes on. Memory that is
 * freed may come back with other pages. Processes of even and of odd number are on
 * two nodes.
 */
#include <linux/capability.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "librsched/run/run.h"
#include "tests/runtime/halo.h"

enum { EPOCHS = 3, STOP_SECONDS = 3, GIVEN_UP_SECONDS = 2, LOCKED_BYTES = 65536 };

struct fault {
    const char *begin, *end; /* commands */
    bool may_end;            /* in an error, or in the right data */
};

/* Both ways, some over each rail: inlined, packed and gathered; landing in one
 * chunk and direct. */
static const struct halo_edge edges[] = {
    {0, 1, 100},   {1, 0, 100},   {0, 1, 3000},   {1, 0, 20000},
    {0, 1, 30000}, {1, 0, 30000}, {0, 1, 200000}, {1, 0, 200000},
};
static const struct halo_edge near_edges[] = {{0, 2, 5000}, {2, 0, 300}};
/* Of those who have nothing to do with rank 1, over each rail. */
static const struct halo_edge far_edges[] = {
    {0, 3, 5000}, {3, 0, 300}, {0, 3, 200000}, {3, 0, 200000}};

enum { NUM_NEAR = 2, NUM_FAR = 4 };

/* One put each way takes one rail, the first. */
static const struct halo_edge single[] = {{0, 1, 200000}, {1, 0, 200000}};
/* On both rails, and under way for long. */
static const struct halo_edge big[] = {
    {0, 1, 16 << 20}, {1, 0, 16 << 20}, {0, 1, 16 << 20}, {1, 0, 16 << 20}};

enum { NUM_EDGES = sizeof(edges) / sizeof(edges[0]) };

static uint64_t verbs_bytes(const struct halo *h)
{
    struct rsched_stats stats;
    size_t i = 0;

    while (strcmp(rsched_engine_at(i)->name, "verbs") != 0)
        i++;
    rsched_exchange_get_stats(h->x, &stats);
    return stats.engine_bytes[i];
}

/* Epochs that verbs carries, over all rails. */
static int run_epochs(struct rank *self, struct halo *h)
{
    uint64_t before = verbs_bytes(h), bytes = 0;

    for (int i = 0; i < NUM_EDGES; i++)
        bytes += edges[i].from == self->rank ? edges[i].bytes : 0;
    RANK_CHECK(h->x->num_out > 1 && h->x->num_in > 1);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(h, epoch) == 0);
    RANK_CHECK(verbs_bytes(h) == before + EPOCHS * bytes);
    return 0;
}

static int create(struct rank *self, uint64_t tag, struct halo **h)
{
    return halo_create(self, edges, NUM_EDGES, tag, 0, h);
}

/* Rank 0 does it while nobody does anything else. */
static int run_command(struct rank *self, const char *command)
{
    mesh_barrier(self->end);
    if (self->rank == 0)
        RANK_CHECK(system(command) == 0);
    mesh_barrier(self->end);
    return 0;
}

/* Whether the last error says which queue pair of which rail failed, to whom
 * and why. */
static bool names_the_cause(int peer)
{
    const char *text = strstr(rsched_last_error(), "verbs h");
    unsigned host, rail, number;
    int named, end = 0;

    if (text == NULL ||
        sscanf(text, "verbs h%ur%u/1: qp %x to peer %d: %n", &host, &rail,
               &number, &named, &end) != 4 ||
        named != peer)
        return false;
    /* The own rail is down, or nobody answers. */
    text += end;
    return strncmp(text, "local QP operation error", 24) == 0 ||
           strncmp(text, "transport retry counter exceeded", 32) == 0;
}

/* One of both finds the cause; the other one may have been told sooner. */
static int check_cause(struct rank *self)
{
    int peer = 1 - self->rank;
    bool found[2];

    found[0] = names_the_cause(peer);
    printf("rank %d: %s\n", self->rank, rsched_last_error());
    RANK_CHECK(found[0] ||
               strstr(rsched_last_error(), "has given up the exchange") != NULL);
    RANK_CHECK(mesh_send(self->end, peer, 1, &found[0], sizeof(bool)) == 0);
    RANK_CHECK(mesh_receive(self->end, peer, 1, &found[1], sizeof(bool)) == 0);
    RANK_CHECK(found[0] || found[1]);
    return 0;
}

static int run_fault(struct rank *self)
{
    const struct fault *fault = self->arg;
    struct halo *before, *after;

    RANK_CHECK(create(self, 1, &before) == 0);
    RANK_CHECK(run_epochs(self, before) == 0);
    RANK_CHECK(run_command(self, fault->begin) == 0);
    RANK_CHECK(halo_step(before, 0) == RSCHED_EPEER);
    RANK_CHECK(check_cause(self) == 0);
    RANK_CHECK(rsched_exchange_start(before->x) == RSCHED_EPEER);
    halo_destroy(before);
    RANK_CHECK(run_command(self, fault->end) == 0);
    RANK_CHECK(create(self, 2, &after) == 0);
    RANK_CHECK(run_epochs(self, after) == 0);
    mesh_barrier(self->end);
    halo_destroy(after);
    return 0;
}

/* Soft-RoCE counts a retry for each gap that the receiver finds, and only an
 * acknowledgement, of 64 packets or of the last one, begins the count anew. So
 * where many are lost a connection that works may run out of them. */
static int run_lossy(struct rank *self)
{
    const struct fault *fault = self->arg;
    struct halo *h, *after;
    int error = 0;

    RANK_CHECK(create(self, 1, &h) == 0);
    RANK_CHECK(run_command(self, fault->begin) == 0);
    if (fault->may_end) {
        for (int epoch = 0; epoch < EPOCHS && error == 0; epoch++)
            error = halo_step(h, epoch);
        RANK_CHECK(error == 0 || error == RSCHED_EPEER);
        if (error != 0)
            printf("rank %d: %s\n", self->rank, rsched_last_error());
        RANK_CHECK(error == 0 || names_the_cause(1 - self->rank) ||
                   strstr(rsched_last_error(), "given up") != NULL);
    } else {
        RANK_CHECK(run_epochs(self, h) == 0);
    }
    RANK_CHECK(run_command(self, fault->end) == 0);
    halo_destroy(h);
    RANK_CHECK(create(self, 2, &after) == 0);
    RANK_CHECK(run_epochs(self, after) == 0);
    mesh_barrier(self->end);
    halo_destroy(after);
    return 0;
}

/* An epoch in the middle of which the fault happens. */
static int run_into_fault(struct rank *self, struct halo *h)
{
    const struct fault *fault = self->arg;
    bool done;

    halo_fill(h, 0);
    RANK_CHECK(rsched_exchange_start(h->x) == 0);
    RANK_CHECK(rsched_exchange_test(h->x, &done) == 0);
    RANK_CHECK(!done);
    RANK_CHECK(run_command(self, fault->begin) == 0);
    RANK_CHECK(rsched_exchange_wait(h->x) == RSCHED_EPEER);
    return 0;
}

/* The second rail fails, or its device goes away; what is on the first one
 * goes on. */
static int run_rail(struct rank *self)
{
    const struct fault *fault = self->arg;
    struct halo *one, *both, *during, *after;
    uint32_t life;

    RANK_CHECK(halo_create(self, single, 2, 1, 0, &one) == 0);
    RANK_CHECK(halo_create(self, big, 4, 2, 0, &both) == 0);
    RANK_CHECK(one->x->num_out == 1 && one->x->num_in == 1);
    RANK_CHECK(both->x->num_out == 2 && both->x->num_in == 2);
    RANK_CHECK(halo_step(one, 0) == 0 && halo_step(both, 0) == 0);
    /* 16 MiB take 7 s now, so they are under way when it happens. */
    RANK_CHECK(run_command(self, "rail h0r1 rate 20") == 0);
    RANK_CHECK(run_into_fault(self, both) == 0);
    RANK_CHECK(check_cause(self) == 0);
    RANK_CHECK(strstr(rsched_last_error(), "r0/1") == NULL);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(one, epoch) == 0);
    mesh_barrier(self->end);
    RANK_CHECK(halo_create(self, single, 2, 3, 0, &during) == 0);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(during, epoch) == 0 && halo_step(one, epoch) == 0);
    RANK_CHECK(verbs_bytes(during) == EPOCHS * single[0].bytes);
    life = during->x->out[0].peer->life;
    mesh_barrier(self->end);
    halo_destroy(both);
    halo_destroy(one);
    halo_destroy(during);
    if (fault->end == NULL)
        return 0;
    RANK_CHECK(run_command(self, fault->end) == 0);
    /* It is used again. */
    RANK_CHECK(create(self, 4, &after) == 0);
    RANK_CHECK(after->x->out[0].peer->life == life + 1);
    RANK_CHECK(run_epochs(self, after) == 0);
    mesh_barrier(self->end);
    halo_destroy(after);
    return 0;
}

/* Rank 0 gives up what rank 1 is writing into its buffer, and is still at when
 * the next exchange has been made. */
static int run_given_up(struct rank *self)
{
    static const struct halo_edge slow[] = {{0, 1, 100}, {1, 0, 2 << 20}};
    const struct fault *fault = self->arg;
    struct halo *given, *after;

    RANK_CHECK(halo_create(self, slow, 2, 1, 0, &given) == 0);
    RANK_CHECK(halo_step(given, 0) == 0);
    halo_fill(given, 1);
    RANK_CHECK(run_command(self, fault->begin) == 0);
    if (self->rank == 0)
        RANK_CHECK(rsched_exchange_start(given->x) == 0);
    mesh_barrier(self->end);
    if (self->rank == 1)
        RANK_CHECK(rsched_exchange_start(given->x) == 0);
    mesh_barrier(self->end);
    if (self->rank == 0)
        halo_destroy(given);
    mesh_barrier(self->end);
    if (self->rank == 1) {
        /* By that, or by what the device said by now. */
        RANK_CHECK(rsched_exchange_wait(given->x) == RSCHED_EPEER);
        printf("rank 1: %s\n", rsched_last_error());
        halo_destroy(given);
    }
    RANK_CHECK(halo_create(self, single, 2, 2, 0, &after) == 0);
    sleep(GIVEN_UP_SECONDS);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        RANK_CHECK(halo_step(after, epoch) == 0);
    mesh_barrier(self->end);
    halo_destroy(after);
    return 0;
}

/* The second exchange sends from, and receives into, buffers of the first. */
static int share_buffers(struct halo *owner, struct halo *h)
{
    h->send[0] = owner->send[0];
    h->receive[0] = owner->receive[0];
    return rsched_exchange_bind(h->x, (const void *const *)h->send, h->receive);
}

/* Other pages at the same addresses: what was registered for the ones before
 * must not be used for them, although another exchange has not let go of it
 * yet. */
static int run_remap(struct rank *self)
{
    struct halo *one, *two;
    int same = 0;

    mallopt(M_MMAP_THRESHOLD, LOCKED_BYTES); /* free() gives pages back */
    RANK_CHECK(halo_create(self, single, 2, 1, 0, &one) == 0);
    RANK_CHECK(halo_create(self, single, 2, 2, 0, &two) == 0);
    free(two->send[0]);
    free(two->receive[0]);
    RANK_CHECK(share_buffers(one, two) == 0);
    for (int epoch = 0; epoch < 10 * EPOCHS; epoch++) {
        const void *before[2] = {one->send[0], one->receive[0]};

        RANK_CHECK(halo_step(one, epoch) == 0);
        RANK_CHECK(halo_step(two, epoch) == 0);
        RANK_CHECK(halo_rebind(one) == 0);
        same += one->send[0] == before[0] && one->receive[0] == before[1];
        RANK_CHECK(halo_step(one, epoch) == 0);
        RANK_CHECK(share_buffers(one, two) == 0);
    }
    RANK_CHECK(same > 0);
    RANK_CHECK(halo_step(two, 0) == 0);
    mesh_barrier(self->end);
    two->num_send = two->num_receive = 0;
    halo_destroy(two);
    halo_destroy(one);
    return 0;
}

/* Root may lock any amount unless it gives that up. */
static int give_up_locking(void)
{
    struct __user_cap_header_struct header = {
        .version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

    if (syscall(SYS_capget, &header, data) != 0)
        return -1;
    data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
    return (int)syscall(SYS_capset, &header, data);
}

static int run_memlock(struct rank *self)
{
    struct rlimit limit;
    struct halo *before, *h;

    RANK_CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    limit.rlim_cur = LOCKED_BYTES;
    rank_close(self); /* a device is for those who opened it */
    RANK_CHECK(give_up_locking() == 0);
    RANK_CHECK(rank_open(self) == 0);
    RANK_CHECK(create(self, 0, &before) == 0);
    RANK_CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    RANK_CHECK(create(self, 1, &h) == RSCHED_ELIMIT);
    printf("rank %d: %s\n", self->rank, rsched_last_error());
    RANK_CHECK(strstr(rsched_last_error(),
                      "the limit on locked memory (ulimit -l) is 64 KiB") !=
               NULL);
    RANK_CHECK(run_epochs(self, before) == 0);
    limit.rlim_cur = limit.rlim_max;
    RANK_CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    RANK_CHECK(create(self, 2, &h) == 0);
    RANK_CHECK(run_epochs(self, h) == 0 && run_epochs(self, before) == 0);
    mesh_barrier(self->end);
    halo_destroy(h);
    halo_destroy(before);
    return 0;
}

/* What rank 0 has to do with others than rank 1: rank 2, of its node, and rank 3,
 * of the other one. NULL: not with this rank. */
struct others {
    struct halo *near, *far;
};

static int create_others(struct rank *self, struct others *o)
{
    *o = (struct others){0};
    if (self->rank == 0 || self->rank == 2)
        RANK_CHECK(halo_create(self, near_edges, NUM_NEAR, 10, 0, &o->near) ==
                   0);
    if (self->rank == 0 || self->rank == 3)
        RANK_CHECK(halo_create(self, far_edges, NUM_FAR, 11, 0, &o->far) == 0);
    if (o->far != NULL)
        RANK_CHECK(o->far->x->num_out == 2 && o->far->x->num_in == 2);
    return 0;
}

static int run_others(struct rank *self, const struct others *o)
{
    uint64_t bytes = 0;

    for (int i = 0; i < NUM_FAR; i++)
        bytes += far_edges[i].from == self->rank ? far_edges[i].bytes : 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        RANK_CHECK(o->near == NULL || halo_step(o->near, epoch) == 0);
        RANK_CHECK(o->far == NULL || halo_step(o->far, epoch) == 0);
    }
    RANK_CHECK(o->near == NULL || verbs_bytes(o->near) == 0);
    RANK_CHECK(o->far == NULL || verbs_bytes(o->far) == EPOCHS * bytes);
    return 0;
}

/* Two ranks meet; all cannot any more where one is dead. */
static int meet(struct rank *self, int peer)
{
    char here = 1;

    RANK_CHECK(mesh_send(self->end, peer, 2, &here, sizeof(here)) == 0);
    RANK_CHECK(mesh_receive(self->end, peer, 2, &here, sizeof(here)) == 0);
    return 0;
}

/* What is on its way to one that has it not arrives before this ends. */
static int destroy_others(struct rank *self, const struct others *o)
{
    if (o->near != NULL)
        RANK_CHECK(meet(self, 2 - self->rank) == 0);
    if (o->far != NULL)
        RANK_CHECK(meet(self, 3 - self->rank) == 0);
    if (o->near != NULL)
        halo_destroy(o->near);
    if (o->far != NULL)
        halo_destroy(o->far);
    return 0;
}

/* Rank 1 dies; rank 0, which waits for it, finds that out. */
static int lose_peer(struct rank *self, struct halo *h)
{
    struct halo *again;
    int error = 0;

    while (error == 0)
        error = halo_step(h, 0);
    printf("rank 0: %s\n", rsched_last_error());
    RANK_CHECK(error == RSCHED_EPEER && names_the_cause(1));
    RANK_CHECK(create(self, 3, &again) == RSCHED_EPEER);
    RANK_CHECK(strstr(rsched_last_error(), "process 1") != NULL);
    RANK_CHECK(rsched_exchange_start(h->x) == RSCHED_EPEER);
    halo_destroy(h);
    return 0;
}

/* Ranks 2 and 3 have started meanwhile, and wait for rank 0. */
static int run_kill(struct rank *self)
{
    struct halo *h = NULL;
    struct others others;

    if (self->rank < 2)
        RANK_CHECK(create(self, 1, &h) == 0);
    RANK_CHECK(create_others(self, &others) == 0);
    if (h != NULL)
        RANK_CHECK(run_epochs(self, h) == 0);
    if (self->rank == 1)
        raise(SIGKILL);
    if (self->rank == 0)
        RANK_CHECK(lose_peer(self, h) == 0);
    RANK_CHECK(run_others(self, &others) == 0);
    return destroy_others(self, &others);
}

/* Rank 0 waits until a process is stopped. */
static int see_stopped(struct rank *self, pid_t process)
{
    char path[64], state = '?';

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)process);
    while (state != 'T') {
        FILE *file = fopen(path, "r");

        RANK_CHECK(file != NULL);
        RANK_CHECK(fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
        fclose(file);
        usleep(1000);
    }
    return 0;
}

/* Rank 1 is stopped; the others do without it. When they have, and rank 0 has
 * waited for it for seconds, rank 3 lets it go on. */
static int run_stop(struct rank *self)
{
    pid_t stopped = getpid();
    struct halo *h = NULL;
    struct others others;

    if (self->rank < 2)
        RANK_CHECK(create(self, 1, &h) == 0);
    RANK_CHECK(create_others(self, &others) == 0);
    if (h != NULL)
        RANK_CHECK(run_epochs(self, h) == 0);
    for (int to = 0; self->rank == 1 && to < 4; to += 3)
        RANK_CHECK(mesh_send(self->end, to, 3, &stopped, sizeof(stopped)) == 0);
    if (self->rank == 1)
        raise(SIGSTOP);
    else if (self->rank != 2)
        RANK_CHECK(mesh_receive(self->end, 1, 3, &stopped, sizeof(stopped)) ==
                   0);
    if (self->rank == 0)
        RANK_CHECK(see_stopped(self, stopped) == 0);
    if (self->rank != 1)
        RANK_CHECK(run_others(self, &others) == 0);
    if (self->rank == 3) {
        sleep(STOP_SECONDS);
        RANK_CHECK(kill(stopped, SIGCONT) == 0);
    }
    if (h != NULL)
        RANK_CHECK(run_epochs(self, h) == 0);
    mesh_barrier(self->end);
    if (h != NULL)
        halo_destroy(h);
    return destroy_others(self, &others);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        rank_fn *run;
        struct fault fault;
        int ranks, result;
    } cases[] = {
        {"down", run_fault, {"rail h0r0 down", "rail h0r0 up", false}, 2, 0},
        {"loss", run_fault, {"rail h1r1 loss 100", "rail h1r1 loss 0", false},
         2, 0},
        {"lossy-1", run_lossy, {"rail h0r0 loss 1", "rail h0r0 loss 0", false},
         2, 0},
        {"lossy-5", run_lossy, {"rail h0r0 loss 5", "rail h0r0 loss 0", true},
         2, 0},
        {"rail", run_rail, {"rail h0r1 down", "rail h0r1 up && rail h0r1 rate 0",
                          false}, 2, 0},
        /* It is gone once nobody has the device open. */
        {"removed", run_rail, {"rail h0r1 remove & sleep 1", NULL, false}, 2,
         0},
        /* 2 MiB take 2 s then. */
        {"given-up", run_given_up, {"rail h1r0 rate 8", "rail h1r0 rate 0",
                                    false}, 2, 0},
        {"kill", run_kill, {0}, 4, RANKS_KILLED},
        {"stop", run_stop, {0}, 4, 0},
        {"memlock", run_memlock, {0}, 2, 0},
        {"remap", run_remap, {0}, 2, 0},
    };
    static const char *const nodes[2] = {"RSCHED_NODE=even", "RSCHED_NODE=odd"};

    setenv("RSCHED_DEVICES", "h0r0,h0r1/h1r0,h1r1", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *end = cases[i].fault.end;
        int result;

        if (argc != 2 || strcmp(argv[1], cases[i].name) != 0)
            continue;
        result = ranks_run_with(cases[i].ranks, false, cases[i].run,
                                (void *)(uintptr_t)&cases[i].fault, nodes);
        /* A case that failed may have left it undone. */
        if (end != NULL && system(end) != 0)
            return 2;
        return result != cases[i].result;
    }
    fprintf(stderr, "usage: verbs-faults down|loss|lossy-1|lossy-5|rail|removed|"
                    "given-up|kill|stop|memlock|remap\n");
    return 2;
}
