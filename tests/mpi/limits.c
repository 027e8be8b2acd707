/* SPDX-License-Identifier: BSD-3-Clause */
/* What containers and administrators take away: results are those of a machine
 * that has it, and what cannot be accelerated then stays native.
 *
 * limits --no-reads   the kernel reads no other process's memory: messages that
 *                     would be pulled go through slots or natively
 * limits --no-files   no memory can be shared: all is native
 * limits --no-locks   no memory can be locked: nothing needs it within a node
 * limits --all-locked  from MPI_Init on all memory is locked: what is hardly used of
 *                     what is mapped takes no more for that
 * limits --short-files  from MPI_Init on no file may be longer than some pages, also
 *                     none in memory: all is native
 * limits --little-space  from MPI_Init on few GiB may be mapped: lanes leave nearly all of
 *                     them to the program */
#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/mpi/hope.h"
#include "tests/mpi/ring.h"

enum { SIZES = 3, LEAST_ROUNDS = 20 };

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
        printf("SKIP: no filters for system calls: %s\n", strerror(errno));
        exit(SKIP);
    }
}

/* No process may lock a page from now on, be it root's. */
static void forbid_locks(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    struct rlimit none = {0, 0};
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (syscall(SYS_capget, &header, data) == 0) {
        data[0].effective &= ~(UINT32_C(1) << CAP_IPC_LOCK);
        data[0].permitted &= ~(UINT32_C(1) << CAP_IPC_LOCK);
        data[0].inheritable &= ~(UINT32_C(1) << CAP_IPC_LOCK);
        syscall(SYS_capset, &header, data);
    }
    if (page == MAP_FAILED || setrlimit(RLIMIT_MEMLOCK, &none) != 0 ||
        mlock(page, 4096) == 0) {
        printf("SKIP: memory can be locked nevertheless\n");
        exit(SKIP);
    }
    munmap(page, 4096);
}

/* The signal by which the kernel answers would end the process. */
static void forbid_files(void)
{
    const struct rlimit some = {16384, 16384};

    if (setrlimit(RLIMIT_FSIZE, &some) != 0) {
        printf("SKIP: no limit for files: %s\n", strerror(errno));
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

/* The calls that wait for several requests take turns. */
static void wait_all(int way, int num, MPI_Request *requests)
{
    int left = num, index, some, indices[2 * SIZES];

    if (way % 3 == 0)
        MPI_Waitall(num, requests, MPI_STATUSES_IGNORE);
    for (; way % 3 == 1 && left > 0; left--)
        MPI_Waitany(num, requests, &index, MPI_STATUS_IGNORE);
    for (; way % 3 == 2 && left > 0; left -= some)
        MPI_Waitsome(num, requests, &some, indices, MPI_STATUSES_IGNORE);
}

/* One message of each size around a ring, again and again: until they have gone
 * through lanes everywhere, if they are to. */
static void messages(int first, int num, bool lanes)
{
    uint64_t before = counter("lane_receives");
    struct hope hope = {0};
    int all = 0;

    int left = (world_rank + world_size - 1) % world_size;
    int right = (world_rank + 1) % world_size;
    MPI_Request requests[2 * SIZES];

    for (int k = first; k < first + num; k++) {
        MPI_Recv_init(in[k], bytes[k], MPI_BYTE, left, k, MPI_COMM_WORLD,
                      &requests[2 * (k - first)]);
        MPI_Send_init(out[k], bytes[k], MPI_BYTE, right, k, MPI_COMM_WORLD,
                      &requests[2 * (k - first) + 1]);
    }
    for (int round = 0; !all; round++) {
        for (int k = first; k < first + num; k++) {
            for (int i = 0; i < bytes[k]; i += 37)
                out[k][i] = byte_of(world_rank, round, i);
        }
        MPI_Startall(2 * num, requests);
        wait_all(round, 2 * num, requests);
        for (int k = first; k < first + num; k++) {
            for (int i = 0; i < bytes[k]; i += 37)
                CHECK(in[k][i] == byte_of(left, round, i),
                      "%d bytes, round %d: byte %d", bytes[k], round, i);
        }
        all = round >= LEAST_ROUNDS &&
              (!lanes || counter("lane_receives") >= before + (uint64_t)num);
        MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        go_on(&hope, "no message through lanes");
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

/* What the process has, in KiB. */
static long kib_of(const char *what)
{
    FILE *status = fopen("/proc/self/status", "r");
    size_t length = strlen(what);
    char line[256];
    long kib = -1;

    while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
        if (strncmp(line, what, length) == 0 && line[length] == ':')
            kib = strtol(line + length + 1, NULL, 10);
    }
    if (status != NULL)
        fclose(status);
    return kib;
}

/* Shared memory. */
static long resident(void)
{
    return kib_of("RssShmem");
}

/* Messages of many communicators, each with lanes of its own, and in the end the program
 * wants most of what it may have. */
static void in_little_space(void)
{
    enum { COMMS = 8, MIB = 1 << 20 };
    struct rlimit limit = {0, RLIM_INFINITY};
    int numbers[COMMS], left = (world_rank + world_size - 1) % world_size;
    MPI_Request requests[2 * COMMS];
    MPI_Comm comms[COMMS];
    struct hope hope = {0};
    void *most;

    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = (rlim_t)(kib_of("VmSize") + 2048 * 1024) * 1024;
    if (limit.rlim_cur > limit.rlim_max || setrlimit(RLIMIT_AS, &limit) != 0) {
        printf("SKIP: no limit for address space: %s\n", strerror(errno));
        MPI_Finalize();
        exit(SKIP);
    }
    for (int i = 0; i < COMMS; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        MPI_Recv_init(&numbers[i], 1, MPI_INT, left, 1, comms[i], &requests[2 * i]);
        MPI_Send_init(&world_rank, 1, MPI_INT, (world_rank + 1) % world_size, 1, comms[i],
                      &requests[2 * i + 1]);
    }
    for (int round = 0, all = 0; !all || round < 2 * LEAST_ROUNDS; round++) {
        MPI_Startall(2 * COMMS, requests);
        MPI_Waitall(2 * COMMS, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < COMMS; i++)
            CHECK(numbers[i] == left, "number %d", numbers[i]);
        all |= all_have(&hope, counter("lane_receives") > 0);
        go_on(&hope, "no message through lanes");
    }
    most = malloc(1500 * (size_t)MIB);
    CHECK(most != NULL, "no memory is left of 2 GiB");
    free(most);
    for (int i = 0; i < 2 * COMMS; i++)
        MPI_Request_free(&requests[i]);
    for (int i = 0; i < COMMS; i++)
        MPI_Comm_free(&comms[i]);
}

static void lock_all(void)
{
    if (mlockall(MCL_CURRENT | MCL_FUTURE) == 0)
        return;
    printf("SKIP: memory cannot be locked: %s\n", strerror(errno));
    MPI_Finalize();
    exit(SKIP);
}

int main(int argc, char **argv)
{
    bool all_locked = has_option(argc, argv, "--all-locked");
    bool short_files = has_option(argc, argv, "--short-files");
    bool no_files = short_files || has_option(argc, argv, "--no-files");
    bool no_locks = has_option(argc, argv, "--no-locks");
    uint64_t lanes;
    long before;

    if (no_locks)
        forbid_locks();
    else if (!short_files && !all_locked && !has_option(argc, argv, "--little-space"))
        forbid(no_files ? SYS_memfd_create : SYS_process_vm_readv);
    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    if (short_files)
        forbid_files();
    if (all_locked)
        lock_all();
    if (has_option(argc, argv, "--little-space")) {
        in_little_space();
        return test_fini("limits");
    }
    for (int k = 0; k < SIZES; k++) {
        out[k] = allocate((size_t)bytes[k]);
        in[k] = allocate((size_t)bytes[k]);
    }
    before = resident();
    messages(0, 2, is_accelerated() && !no_files);
    printf("limits: rank %d: %ld KiB of shared memory for that\n", world_rank,
           resident() - before);
    CHECK(!all_locked || resident() - before < 16384, "%ld KiB",
          resident() - before);
    lanes = counter("lane_receives");
    messages(2, 1, is_accelerated() && (no_locks || all_locked));
    neighbors();
    if (!is_accelerated())
        return test_fini("limits");
    printf("limits: rank %d: %" PRIu64 " and %" PRIu64 " messages through lanes, "
           "%" PRIu64 " neighborhood collectives\n", world_rank, lanes,
           counter("lane_receives") - lanes,
           counter("neighbor_alltoall_init.accelerated"));
    if (no_files)
        CHECK(counter("lane_receives") == 0, "%" PRIu64 " messages through lanes",
              counter("lane_receives"));
    else if (!no_locks && !all_locked && world_size > 1)
        CHECK(counter("lane_receives") == lanes &&
                  counter("send_init.native.size") == 1,
              "%" PRIu64 " long messages through lanes, %" PRIu64
              " requests are too long", counter("lane_receives") - lanes,
              counter("send_init.native.size"));
    CHECK(counter("neighbor_alltoall_init.accelerated") == !no_files,
          "neighborhood collectives");
    return test_fini("limits");
}
