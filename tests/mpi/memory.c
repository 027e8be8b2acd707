/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers of MPI_Alloc_mem and MPI_Win_allocate_shared are copied once, alone
 * and together with others, and behave like memory: a forked child has its own.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

enum { BYTES = 50000, EPOCHS = 5 };

static MPI_Comm ring;

static char value(int sender, int side, int epoch, int i)
{
    return (char)(sender * 29 + side * 7 + epoch * 13 + i + (i >> 8));
}

/* Two messages in each direction of the ring; side 0 goes to the left. */
static int neighbor(int side)
{
    return (world_rank + (side == 0 ? world_size - 1 : 1)) % world_size;
}

static uint64_t pulled(void)
{
    uint64_t all = 0, mine = counter("ways.pull") + counter("ways.direct");

    MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static void fill(char *send, int epoch)
{
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < BYTES; i++)
            send[side * BYTES + i] = value(world_rank, side, epoch, i);
}

static void check(const char *receive, int epoch)
{
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < BYTES; i++)
            CHECK(receive[side * BYTES + i] ==
                      value(neighbor(side), 1 - side, epoch, i),
                  "side %d, epoch %d, byte %d", side, epoch, i);
}

/* Bytes that all processes must have copied once, if all that are sent to
 * others are. */
static uint64_t sent(int exchanges)
{
    return world_size == 1 ? 0
                           : (uint64_t)exchanges * 2 * BYTES *
                                 (uint64_t)world_size;
}

static void exchange(char *send, char *receive, bool once)
{
    uint64_t before = pulled();
    MPI_Request request;

    INIT(Neighbor_alltoall)(send, BYTES, MPI_BYTE, receive, BYTES, MPI_BYTE,
                            ring, MPI_INFO_NULL, &request);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        fill(send, epoch);
        memset(receive, 0x55, 2 * BYTES);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check(receive, epoch);
        fill(send, epoch + 100);
        memset(receive, 0x55, 2 * BYTES);
        MPI_Neighbor_alltoall(send, BYTES, MPI_BYTE, receive, BYTES, MPI_BYTE,
                              ring);
        check(receive, epoch + 100);
    }
    MPI_Request_free(&request);
    CHECK(pulled() - before == (once ? sent(2 * EPOCHS) : 0),
          "%" PRIu64 " bytes of %" PRIu64, pulled() - before,
          sent(2 * EPOCHS));
}

static void fork_and_write(char *memory)
{
    int status;
    pid_t child;

    memory[0] = 1;
    child = fork();
    if (child == 0) {
        int bad = memory[0] != 1;

        usleep(20000);
        bad |= memory[0] != 1; /* not what the parent has written since */
        memory[0] = 3;
        _exit(bad);
    }
    memory[0] = 2;
    CHECK(waitpid(child, &status, 0) == child, "no child");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "the child sees its parent's memory");
    CHECK(memory[0] == 2, "the parent sees its child's memory");
}

static void test_alloc_mem(void)
{
    char *ordinary = malloc(2 * BYTES);

    /* Again and again: what a process maps of another goes. */
    for (int round = 0; round < 100; round++) {
        char *send, *receive;

        MPI_Alloc_mem(2 * BYTES + round, MPI_INFO_NULL, &send);
        MPI_Alloc_mem(2 * BYTES, MPI_INFO_NULL, &receive);
        if (round < 3)
            exchange(send, receive, true);
        else
            MPI_Neighbor_alltoall(send, BYTES, MPI_BYTE, receive, BYTES,
                                  MPI_BYTE, ring);
        if (round == 1) {
            exchange(send, ordinary, true);
            exchange(ordinary, receive, false);
            fork_and_write(send);
            exchange(send, receive, true);
            CHECK(system("true") == 0, "system");
        }
        MPI_Free_mem(send);
        MPI_Free_mem(receive);
    }
    free(ordinary);
}

static int num_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    int number = 0, c;

    CHECK(maps != NULL, "no maps");
    while ((c = getc(maps)) != EOF)
        number += c == '\n';
    fclose(maps);
    return number;
}

/* Programs may ask for as much as they like, in small parts, and free it by the
 * name that tools call. */
static void test_small(long bytes, int most)
{
    enum { NUMBER = 30000 };
    static char *memory[NUMBER];
    int before = num_mappings();

    for (int i = 0; i < NUMBER; i++) {
        CHECK(MPI_Alloc_mem(bytes, MPI_INFO_NULL, &memory[i]) == MPI_SUCCESS,
              "number %d", i);
        memory[i][0] = memory[i][bytes - 1] = (char)i;
    }
    CHECK(num_mappings() - before <= most, "%d mappings for %d parts",
          num_mappings() - before, NUMBER);
    for (int i = 0; i < NUMBER; i++) {
        CHECK(memory[i][0] == (char)i, "number %d", i);
        (i % 2 == 0 ? MPI_Free_mem : PMPI_Free_mem)(memory[i]);
    }
    CHECK(num_mappings() - before <= most, "mappings are left");
}

/* MPICH heeds it; what it gives out then is no worse with us. */
static void test_aligned(void)
{
    enum { ALIGNMENT = 65536, TRIES = 16 };
    char *memory[TRIES];
    MPI_Info info;

    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_minimum_memory_alignment", "65536");
    for (int i = 0; i < TRIES; i++) {
        CHECK(MPI_Alloc_mem(20000, info, &memory[i]) == MPI_SUCCESS, "aligned");
#ifdef MPICH
        CHECK((uintptr_t)memory[i] % ALIGNMENT == 0, "%p", (void *)memory[i]);
#endif
    }
    for (int i = 0; i < TRIES; i++)
        PMPI_Free_mem(memory[i]);
    MPI_Info_free(&info);
}

/* The memory goes while a request is there that will not be started again, and
 * other memory comes, where it was perhaps. */
static void test_outlived(void)
{
    MPI_Request requests[3];
    char *receive = malloc(2 * BYTES), *send;

    for (int i = 0; i < 3; i++) {
        MPI_Alloc_mem(2 * BYTES, MPI_INFO_NULL, &send);
        fill(send, i);
        INIT(Neighbor_alltoall)(send, BYTES, MPI_BYTE, receive, BYTES, MPI_BYTE,
                                ring, MPI_INFO_NULL, &requests[i]);
        MPI_Start(&requests[i]);
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        check(receive, i);
        MPI_Free_mem(send);
    }
    MPI_Alloc_mem(2 * BYTES, MPI_INFO_NULL, &send);
    exchange(send, receive, true);
    for (int i = 0; i < 3; i++)
        MPI_Request_free(&requests[i]);
    exchange(send, receive, true);
    MPI_Free_mem(send);
    free(receive);
}

static void test_window(void)
{
    char *memory;
    MPI_Win win;
    MPI_Comm node;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &node);
    for (int round = 0; round < 3; round++) {
        MPI_Win_allocate_shared(4 * BYTES, 1, MPI_INFO_NULL, node, &memory,
                                &win);
        exchange(memory, memory + 2 * BYTES, true);
        MPI_Win_free(&win);
    }
    MPI_Comm_free(&node);
}

int main(int argc, char **argv)
{
    int one = 1;

    setenv("RSCHED_MAPPED", "12k", 1); /* not what costs say */
    setenv("RSCHED_CMA", "0", 1);
    setenv("RSCHED_ADOPT", "0", 1); /* ordinary memory stays so */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &one, 0, &ring);
    test_alloc_mem();
    test_small(64, 1000);
    test_small(2000, 8192 + 1000);
    test_aligned();
    test_outlived();
    test_window();
    MPI_Comm_free(&ring);
    MPI_Finalize();
    return PASS;
}
