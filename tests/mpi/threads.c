/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_THREAD_MULTIPLE: threads with communicators of their own make, use and
 * free requests at the same time, in different orders on different ranks. Their
 * persistent messages are native. */
#include <pthread.h>

#include "tests/mpi/ring.h"

enum { THREADS = 3, EPOCHS = 20 };

/* MPICH never yields a core, so fewer with many threads. */
static unsigned cycles;

struct worker {
    pthread_t thread;
    MPI_Comm comm; /* the thread's own */
    int number;
};

static void blocking(MPI_Comm comm, const struct ring *ring, int epoch)
{
    double send[2] = {ring_value(world_rank, epoch, 0, 0),
                      ring_value(world_rank, epoch, 1, 0)};
    double receive[2] = {-1, -1};

    MPI_Neighbor_alltoall(send, 1, MPI_DOUBLE, receive, 1, MPI_DOUBLE, comm);
    CHECK(receive[0] == ring_value(ring->left, epoch, 1, 0) &&
              receive[1] == ring_value(ring->right, epoch, 0, 0),
          "epoch %d: received %g and %g", epoch, receive[0], receive[1]);
}

static void cycle(struct worker *worker, int number)
{
    MPI_Comm comm = ring_comm(worker->comm);
    struct ring rings[2];

    ring_create(&rings[0], comm, 1 + worker->number);
    ring_create(&rings[1], comm, 5000 * worker->number + 1);
    for (int i = 0; i < EPOCHS; i++) {
        int epoch = number * EPOCHS + i;
        MPI_Request requests[2] = {rings[0].request, rings[1].request};

        for (int k = 0; k < 2; k++)
            ring_fill(&rings[k], world_rank, epoch);
        if (epoch % 2) {
            MPI_Startall(2, requests);
            blocking(comm, &rings[0], epoch);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        } else {
            MPI_Start(&requests[1]);
            MPI_Start(&requests[0]);
            blocking(comm, &rings[0], epoch);
            for (int k = 0, index; k < 2; k++)
                MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
        }
        for (int k = 0; k < 2; k++)
            ring_verify(&rings[k], epoch);
    }
    if (number % 2)
        MPI_Comm_free(&comm);
    for (int k = 0; k < 2; k++) {
        MPI_Request_free(&rings[k].request);
        ring_free(&rings[k]);
    }
    if (number % 2 == 0)
        MPI_Comm_free(&comm);
}

static void *work(void *arg)
{
    struct worker *worker = arg;

    for (unsigned i = 0; i < cycles; i++)
        cycle(worker, (int)i);
    return NULL;
}

/* Calls of one communicator, started in order by one thread and completed by
 * several; most of them queue. */
enum { SHARED = 4 };

struct completer {
    pthread_t thread;
    struct ring rings[SHARED];
};

static void *complete(void *arg)
{
    struct completer *completer = arg;

    for (int i = SHARED - 1; i >= 0; i--) {
        MPI_Request *request = &completer->rings[i].request;
        int flag = 0;

        while (i % 2 && !flag)
            MPI_Test(request, &flag, MPI_STATUS_IGNORE);
        MPI_Wait(request, MPI_STATUS_IGNORE);
    }
    return NULL;
}

static void shared_communicator(MPI_Comm comm, int epoch)
{
    struct completer completers[THREADS];

    for (int i = 0; i < SHARED; i++) {
        for (int k = 0; k < THREADS; k++) {
            struct ring *ring = &completers[k].rings[i];

            ring_create(ring, comm, k == 1 ? 20000 : 50);
            MPI_Request_free(&ring->request);
            ring_fill(ring, world_rank, epoch);
            MPI_Ineighbor_alltoall(ring->send, ring->num, MPI_DOUBLE,
                                   ring->receive, ring->num, MPI_DOUBLE, comm,
                                   &ring->request);
        }
    }
    for (int k = 0; k < THREADS; k++)
        CHECK(pthread_create(&completers[k].thread, NULL, complete,
                             &completers[k]) == 0, "no thread");
    for (int k = 0; k < THREADS; k++) {
        pthread_join(completers[k].thread, NULL);
        for (int i = 0; i < SHARED; i++) {
            ring_verify(&completers[k].rings[i], epoch);
            ring_free(&completers[k].rings[i]);
        }
    }
}

/* Persistent requests of one communicator, made by one thread; each thread
 * starts and completes its own, in its own way, while others do. */
struct starter {
    pthread_t thread;
    struct ring rings[2];
    int number;
};

static void wait_for(MPI_Request *requests, int how)
{
    int done[2], num, index, flag = 0;

    switch (how) {
    case 0:
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        break;
    case 1:
        while (!flag)
            MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
        break;
    case 2:
        for (int left = 2; left > 0; left -= num)
            MPI_Waitsome(2, requests, &num, done, MPI_STATUSES_IGNORE);
        break;
    default:
        while (!flag)
            MPI_Request_get_status(requests[1], &flag, MPI_STATUS_IGNORE);
        MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
        MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
        break;
    }
}

static void *start_and_wait(void *arg)
{
    struct starter *starter = arg;
    MPI_Request requests[2] = {starter->rings[0].request,
                               starter->rings[1].request};

    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        for (int k = 0; k < 2; k++)
            ring_fill(&starter->rings[k], world_rank, epoch);
        if ((epoch + starter->number) % 2) {
            MPI_Startall(2, requests);
        } else {
            MPI_Start(&requests[1]);
            MPI_Start(&requests[0]);
        }
        wait_for(requests, (epoch + starter->number) % 4);
        for (int k = 0; k < 2; k++)
            ring_verify(&starter->rings[k], epoch);
    }
    return NULL;
}

static void shared_requests(MPI_Comm comm)
{
    struct starter starters[THREADS];

    for (int i = 0; i < THREADS; i++) {
        starters[i].number = i;
        ring_create(&starters[i].rings[0], comm, 10 + i);
        ring_create(&starters[i].rings[1], comm, i == 1 ? 9000 : 1);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&starters[i].thread, NULL, start_and_wait,
                             &starters[i]) == 0, "no thread");
    for (int i = 0; i < THREADS; i++) {
        pthread_join(starters[i].thread, NULL);
        for (int k = 0; k < 2; k++) {
            MPI_Request_free(&starters[i].rings[k].request);
            ring_free(&starters[i].rings[k]);
        }
    }
}

/* Persistent messages of several threads are the native MPI's
 * (docs/persistent.md, Threads). */
static void *exchange_messages(void *arg)
{
    const struct worker *worker = arg;
    int left = (world_rank + world_size - 1) % world_size;
    int right = (world_rank + 1) % world_size, out, in;
    MPI_Request requests[2];

    MPI_Recv_init(&in, 1, MPI_INT, left, worker->number, MPI_COMM_WORLD,
                  &requests[0]);
    MPI_Send_init(&out, 1, MPI_INT, right, worker->number, MPI_COMM_WORLD,
                  &requests[1]);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        out = (world_rank * THREADS + worker->number) * EPOCHS + epoch;
        in = -1;
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(in == (left * THREADS + worker->number) * EPOCHS + epoch, "%d",
              in);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    return NULL;
}

static void messages(struct worker *workers)
{
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        CHECK(pthread_create(&workers[i].thread, NULL, exchange_messages,
                             &workers[i]) == 0, "no thread");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    CHECK(counter("send_init.native.threads") == THREADS &&
              counter("recv_init.native.threads") == THREADS &&
              counter("lane_sends") + counter("lane_receives") == 0,
          "%" PRIu64 " persistent sends are native",
          counter("send_init.native.threads"));
}

int main(int argc, char **argv)
{
    struct worker workers[THREADS];
    MPI_Comm first;
    int provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (provided < MPI_THREAD_MULTIPLE) {
        printf("SKIP: this MPI has no MPI_THREAD_MULTIPLE\n");
        MPI_Finalize();
        return SKIP;
    }
    CHECK(is_accelerated(), "the backend is not loaded");
    cycles = world_size > 2 ? 4 : 12;
    /* Open MPI 4.1's first MPI_Cart_create is not thread-safe. */
    first = ring_comm(MPI_COMM_WORLD);
    for (unsigned epoch = 0; epoch < cycles; epoch++)
        shared_communicator(first, (int)epoch);
    shared_requests(first);
    MPI_Comm_free(&first);
    for (int i = 0; i < THREADS; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm);
        workers[i].number = i;
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0,
              "no thread");
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        MPI_Comm_free(&workers[i].comm);
    }
    CHECK(counter("neighbor_alltoall_init.accelerated") ==
              (2 + SHARED) * THREADS * cycles + 2 * THREADS,
          "not accelerated");
    CHECK(counter("ineighbor_alltoall.accelerated") ==
              SHARED * THREADS * cycles, "not accelerated");
    CHECK(counter("neighbor_alltoall.accelerated") ==
              THREADS * cycles * EPOCHS, "not accelerated");
    CHECK(counter("starts") == 2 * THREADS * (cycles + 1) * EPOCHS,
          "%" PRIu64 " starts", counter("starts"));
    CHECK(counter("native") == 0, "native calls");
    messages(workers);
    return test_fini("threads");
}
