/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that wait for each other outside of MPI: what is complete here needs
 * no further call of this process to be complete there. */
#include <limits.h>
#include <stdatomic.h>
#include <time.h>

#include "tests/mpi/common.h"

enum { TAG = 3, EPOCHS = 200, LATE = 20, LIMIT_S = 20, STRIDE = 3 };

/* In a window that all map. */
struct flags {
    atomic_int received; /* messages that the receiver has had */
    atomic_int last;     /* number of the last one, once the sender knows */
};

static struct flags *share(MPI_Win *window)
{
    struct flags *flags;
    MPI_Aint bytes;
    int unit;

    MPI_Win_allocate_shared(world_rank == 0 ? sizeof(*flags) : 0, 1,
                            MPI_INFO_NULL, MPI_COMM_WORLD, &flags, window);
    MPI_Win_shared_query(*window, 0, &bytes, &unit, &flags);
    return flags;
}

static void nap(long ns)
{
    nanosleep(&(struct timespec){0, ns}, NULL);
}

/* Naps: this process has nothing to do with MPI. */
static void wait_outside(struct flags *flags, int messages, int num)
{
    time_t begin = time(NULL);

    while (atomic_load(&flags->received) < messages) {
        CHECK(time(NULL) - begin < LIMIT_S,
              "%d elements, message %d: the receiver waits for one whose "
              "sender is through with it", num, messages);
        nap(50000);
    }
}

/* Until lanes have been used for long; without the backend, as often as that. */
static void send_and_leave(struct flags *flags, int num, bool strided)
{
    static int messages; /* of all calls */
    uint64_t before = counter("lane_sends");
    int *memory = allocate((size_t)num * STRIDE * sizeof(int));
    int stride = strided ? STRIDE : 1;
    MPI_Request request;
    MPI_Datatype type;

    MPI_Type_vector(num, 1, stride, MPI_INT, &type);
    MPI_Type_commit(&type);
    if (world_rank == 0)
        MPI_Send_init(memory, 1, type, 1, TAG, MPI_COMM_WORLD, &request);
    else
        MPI_Recv_init(memory, 1, type, 0, TAG, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int epoch = 0; messages < atomic_load(&flags->last); epoch++) {
        if (world_rank == 0 &&
            (is_accelerated() ? counter("lane_sends") - before >= EPOCHS
                              : epoch >= EPOCHS))
            atomic_store(&flags->last, messages + 1);
        for (int i = 0; i < num && world_rank == 0; i++)
            memory[i * stride] = epoch + i;
        /* The first messages are not taken while the sender still looks. */
        if (world_rank == 1 && messages < LATE)
            nap(20000000);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        messages++;
        if (world_rank == 0) {
            wait_outside(flags, messages, num);
            continue;
        }
        for (int i = 0; i < num; i++)
            CHECK(memory[i * stride] == epoch + i, "%d elements, epoch %d: %d",
                  num, epoch, memory[i * stride]);
        atomic_store(&flags->received, messages);
    }
    MPI_Request_free(&request);
    MPI_Type_free(&type);
    free(memory);
}

int main(int argc, char **argv)
{
    /* 4 B to 400 kB, with those around where messages are not buffered. */
    static const int nums[] = {1, 100, 768, 769, 1024, 8192, 16384, 100000};
    bool native = has_option(argc, argv, "--native");
    struct flags *flags;
    MPI_Win window;

    test_init(&argc, &argv, native);
    flags = share(&window);
    for (size_t i = 0; i < 2 * sizeof(nums) / sizeof(nums[0]); i++) {
        atomic_store(&flags->last, INT_MAX);
        send_and_leave(flags, nums[i / 2], i % 2);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&window);
    return test_fini("outside");
}
