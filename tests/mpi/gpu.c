/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers that a GPU's driver knows stay native, with the reason `gpu`, in all
 * processes also if only one has such a buffer; others are accelerated as ever.
 *
 * The memory is managed memory of the driver in software (tests/cuda/fake.h),
 * because MPIs that know nothing of GPUs can move that. */
#include <dlfcn.h>

#include "tests/cuda/fake.h"
#include "tests/mpi/ring.h"

enum { DOUBLES = 2 * 4 };

#define TEXT(name) #name
#define SYMBOL(name) TEXT(name)

/* A function of the driver. */
#define LOOK(library, name)                                                  \
    __typeof__(&name) call_##name =                                          \
        (__typeof__(&name))(uintptr_t)dlsym(library, SYMBOL(name))

static double *managed_memory(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUcontext context;
    CUdeviceptr memory;

    CHECK(library != NULL, "%s", dlerror());
    LOOK(library, cuInit);
    LOOK(library, cuDevicePrimaryCtxRetain);
    LOOK(library, cuCtxSetCurrent);
    LOOK(library, cuMemAllocManaged);
    CHECK(call_cuInit(0) == CUDA_SUCCESS, "no GPU");
    CHECK(call_cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
              call_cuCtxSetCurrent(context) == CUDA_SUCCESS, "no context");
    CHECK(call_cuMemAllocManaged(&memory, DOUBLES * sizeof(double),
                                 CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS,
          "no memory");
    return (double *)(uintptr_t)memory;
}

static void expect(const char *name, uint64_t value)
{
    CHECK(counter(name) == value, "%s is %" PRIu64 ", not %" PRIu64, name,
          counter(name), value);
}

static void pass_once(MPI_Request *requests, double *send,
                      const double *receive, int before, int epoch)
{
    for (int i = 0; i < DOUBLES; i++)
        send[i] = 1000 * world_rank + 10 * epoch + i;
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < DOUBLES; i++)
        CHECK(receive[i] == 1000 * before + 10 * epoch + i,
              "%f in epoch %d", receive[i], epoch);
}

/* To the next process and from the one before, until lanes carry it in all
 * processes; when they must not, for as long as that takes elsewhere. */
static void pass_on(double *send, double *receive, bool carried)
{
    uint64_t sends = counter("lane_sends"), receives = counter("lane_receives");
    int next = (world_rank + 1) % world_size;
    int before = (world_rank + world_size - 1) % world_size;
    MPI_Request requests[2];
    int all = 0;

    MPI_Send_init(send, DOUBLES, MPI_DOUBLE, next, 7, MPI_COMM_WORLD,
                  &requests[0]);
    MPI_Recv_init(receive, DOUBLES, MPI_DOUBLE, before, 7, MPI_COMM_WORLD,
                  &requests[1]);
    for (int epoch = 0; epoch < (carried ? 2000 : 200) && !all; epoch++) {
        int good;

        pass_once(requests, send, receive, before, epoch);
        good = counter("lane_sends") > sends &&
               counter("lane_receives") > receives;
        MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    CHECK(all == carried, "lanes have carried it: %d", all);
    CHECK(carried || counter("lane_receives") == receives,
          "a lane has carried a message");
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

/* Both kinds of collectives, on a ring of its own: everybody sends its rank to
 * both neighbors. */
static void gather(double *send, double *receive)
{
    MPI_Comm comm = ring_comm(MPI_COMM_WORLD);
    MPI_Request request;

    INIT(Neighbor_allgather)(send, 1, MPI_DOUBLE, receive, 1, MPI_DOUBLE, comm,
                             MPI_INFO_NULL, &request);
    for (int call = 0; call < 3; call++) {
        send[0] = world_rank + 100 * call;
        if (call < 2) {
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Neighbor_allgather(send, 1, MPI_DOUBLE, receive, 1, MPI_DOUBLE,
                                   comm);
        }
        CHECK(receive[0] == (world_rank + world_size - 1) % world_size +
                                100 * call &&
                  receive[1] == (world_rank + 1) % world_size + 100 * call,
              "call %d: %f %f", call, receive[0], receive[1]);
    }
    MPI_Request_free(&request);
    MPI_Comm_free(&comm);
}

/* Process 0 comes to other memory when its neighbors already count on an
 * exchange: the native MPI packs what it sends and unpacks what it gets. */
static void later(double *host, double *other, double *receive)
{
    MPI_Comm comm = ring_comm(MPI_COMM_WORLD);
    uint64_t packed = counter("packed");
    MPI_Request request;

    for (int call = 0; call < 6; call++) {
        bool turned = world_rank == 0 && call % 3 != 0;
        double *send = turned ? other : host;
        double *got = turned ? other + DOUBLES / 2 : receive;

        send[0] = world_rank + 100 * call;
        if (call < 3) {
            MPI_Neighbor_allgather(send, 1, MPI_DOUBLE, got, 1, MPI_DOUBLE,
                                   comm);
        } else {
            MPI_Ineighbor_allgather(send, 1, MPI_DOUBLE, got, 1, MPI_DOUBLE,
                                    comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        CHECK(got[0] == (world_rank + world_size - 1) % world_size +
                            100 * call &&
                  got[1] == (world_rank + 1) % world_size + 100 * call,
              "call %d: %f %f", call, got[0], got[1]);
    }
    CHECK(world_rank != 0 || counter("packed") > packed, "nothing was packed");
    CHECK(world_rank == 0 || counter("packed") == packed,
          "host memory was packed");
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    double host[2][DOUBLES], *managed;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    gather(host[0], host[1]);
    expect("neighbor_allgather.accelerated", 1);
    expect("neighbor_allgather_init.accelerated", 1);

    managed = managed_memory();
    gather(host[0], host[1]); /* the driver is there, and knows none of them */
    expect("neighbor_allgather.accelerated", 2);
    expect("neighbor_allgather_init.accelerated", 2);

    later(host[0], managed, host[1]);
    expect("neighbor_allgather.accelerated", 5);
    expect("ineighbor_allgather.accelerated", 3);

    /* One process has a buffer that is no other's kind. */
    gather(world_rank == 0 ? managed : host[0], host[1]);
    expect("neighbor_allgather.accelerated", 5);
    expect("neighbor_allgather.native.gpu", 1);
    expect("neighbor_allgather_init.native.gpu", 1);

    pass_on(host[0], host[1], true);
    pass_on(managed, host[1], false);
    expect("send_init.native.gpu", 1);
    pass_on(host[0], managed, false);
    expect("recv_init.native.gpu", 1);
    test_fini("gpu");
    return PASS;
}
