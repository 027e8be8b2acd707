/* SPDX-License-Identifier: BSD-3-Clause */
/* What containers and administrators take away: results are those of a machine
 * that has it, and what cannot be accelerated then stays native.
 *
 * limits --no-reads   the kernel reads no other process's memory: messages that
 *                     would be pulled go through slots or natively
 * limits --no-files   no memory can be shared: all is native */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "tests/mpi/ring.h"

enum { SIZES = 3, ROUNDS = 100 };

/* `call` fails from now on, with EPERM as under a container's filter. */
static void forbid(unsigned call)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = 4, .filter = code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        printf("no filters for system calls: %s\n", strerror(errno));
        exit(SKIP);
    }
}

/* Through slots, pulled or in many slots, longer than any slot may be. */
static const int bytes[SIZES] = {64, 40000, 1 << 20};
static char *out[SIZES], *in[SIZES];

static char byte_of(int rank, int round, int i)
{
    return (char)(rank * 31 + round * 7 + i % 251);
}

/* One message of each size around a ring, again and again. */
static void messages(int first, int num)
{
    int left = (world_rank + world_size - 1) % world_size;
    int right = (world_rank + 1) % world_size;
    MPI_Request requests[2 * SIZES];

    for (int k = first; k < first + num; k++) {
        MPI_Recv_init(in[k], bytes[k], MPI_BYTE, left, k, MPI_COMM_WORLD,
                      &requests[2 * (k - first)]);
        MPI_Send_init(out[k], bytes[k], MPI_BYTE, right, k, MPI_COMM_WORLD,
                      &requests[2 * (k - first) + 1]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = first; k < first + num; k++) {
            for (int i = 0; i < bytes[k]; i += 37)
                out[k][i] = byte_of(world_rank, round, i);
        }
        MPI_Startall(2 * num, requests);
        MPI_Waitall(2 * num, requests, MPI_STATUSES_IGNORE);
        for (int k = first; k < first + num; k++) {
            for (int i = 0; i < bytes[k]; i += 37)
                CHECK(in[k][i] == byte_of(left, round, i),
                      "%d bytes, round %d: byte %d", bytes[k], round, i);
        }
    }
    for (int i = 0; i < 2 * num; i++)
        MPI_Request_free(&requests[i]);
}

static void neighbors(void)
{
    MPI_Comm comm = ring_comm(MPI_COMM_WORLD);
    struct ring ring;

    ring_create(&ring, comm, 5000);
    for (int epoch = 1; epoch < 20; epoch++) {
        ring_fill(&ring, world_rank, epoch);
        MPI_Start(&ring.request);
        MPI_Wait(&ring.request, MPI_STATUS_IGNORE);
        ring_verify(&ring, epoch);
    }
    MPI_Request_free(&ring.request);
    ring_free(&ring);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    bool no_files = has_option(argc, argv, "--no-files");
    uint64_t lanes, all;

    if (no_files)
        forbid(SYS_memfd_create);
    else
        forbid(SYS_process_vm_readv);
    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    for (int k = 0; k < SIZES; k++) {
        out[k] = allocate((size_t)bytes[k]);
        in[k] = allocate((size_t)bytes[k]);
    }
    messages(0, 2);
    lanes = counter("lane_receives");
    messages(2, 1);
    neighbors();
    if (!is_accelerated())
        return test_fini("limits");
    printf("limits: rank %d: %" PRIu64 " and %" PRIu64 " messages through lanes, "
           "%" PRIu64 " neighborhood collectives\n", world_rank, lanes,
           counter("lane_receives") - lanes,
           counter("neighbor_alltoall_init.accelerated"));
    if (no_files) {
        CHECK(counter("lane_receives") == 0, "%" PRIu64 " messages through lanes",
              counter("lane_receives"));
        CHECK(counter("neighbor_alltoall_init.accelerated") == 0, "accelerated");
    } else {
        MPI_Allreduce(&lanes, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        CHECK(all > 0, "no message through lanes");
        CHECK(world_size == 1 || counter("lane_receives") == lanes,
              "%" PRIu64 " long messages through lanes",
              counter("lane_receives") - lanes);
        CHECK(world_size == 1 || counter("send_init.native.size") == 1,
              "%" PRIu64 " requests are too long", counter("send_init.native.size"));
        CHECK(counter("neighbor_alltoall_init.accelerated") == 1, "native");
    }
    return test_fini("limits");
}
