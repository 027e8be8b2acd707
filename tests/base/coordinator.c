/* SPDX-License-Identifier: BSD-3-Clause */
/* A coordinator is updated while another thread starts and ends: starts and what was
 * in flight with them are taken together, so no mean is above what ever was in
 * flight. tests/plan/coordinator.c has what is counted. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "librsched/base/coordinator.h"

enum { ROUNDS = 1000000, PUTS = 1000 };

static struct rs_coordinator coordinator;
static pthread_barrier_t together;
static atomic_bool over;

static void *work(void *arg)
{
    pthread_barrier_wait(&together);
    for (int i = 0; i < ROUNDS; i++) {
        rs_coordinator_started(&coordinator, PUTS);
        /* So many that an update believes what is counted at each end. */
        for (int k = 1; k < RS_COORDINATOR_STARTS; k++)
            rs_coordinator_started(&coordinator, 0);
        rs_coordinator_ended(&coordinator, PUTS);
    }
    atomic_store(&over, true);
    return arg;
}

/* @return the largest mean */
static uint64_t update_all(void)
{
    uint64_t most = 0;
    bool last;

    do {
        last = atomic_load(&over);
        rs_coordinator_update(&coordinator);
        if (rs_coordinator_in_flight(&coordinator, 0) > most)
            most = rs_coordinator_in_flight(&coordinator, 0);
    } while (!last);
    return most;
}

int main(void)
{
    pthread_t thread;
    uint64_t most;

    rs_coordinator_init(&coordinator);
    pthread_barrier_init(&together, NULL, 2);
    if (pthread_create(&thread, NULL, work, NULL) != 0) {
        perror("pthread_create");
        return 1;
    }
    pthread_barrier_wait(&together);
    most = update_all();
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&together);
    if (most == 0 || most > PUTS) {
        fprintf(stderr, "a mean of %" PRIu64 " where at most %d were in flight\n",
                most, PUTS);
        return 1;
    }
    return 0;
}
