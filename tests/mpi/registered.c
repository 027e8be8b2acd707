/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send buffers while an RDMA device is open, as a stand-in for libibverbs opens it: what is
 * registered is not adopted, all else is. With --unknown the library is one of which we do
 * not know all functions, and nothing is adopted while it has a device. With --device it is
 * libibverbs itself, and there is a device.
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <rsched/memory.h>

#include "common.h"
#include "standin.h"

#pragma weak rsched_memory_adopted
#pragma weak rsched_memory_adoptions

enum {
    PAGE = 4096,
    BYTES = 24 * PAGE, /* to each of two neighbors */
    ALL = 2 * BYTES,
    STARTS = 4, /* RSCHED_ADOPT is 2 */
    ACCESS = IBV_ACCESS_LOCAL_WRITE,
};

static MPI_Comm ring;
static char *receive;
static struct ibv_device device;
static struct ibv_pd domain;

static char value(int sender, int side, int epoch, int i)
{
    return (char)(sender * 29 + side * 7 + epoch * 13 + i + (i >> 8));
}

static void exchange(char *send)
{
    MPI_Request request;

    INIT(Neighbor_alltoall)(send, BYTES, MPI_BYTE, receive, BYTES, MPI_BYTE, ring,
                            MPI_INFO_NULL, &request);
    for (int epoch = 0; epoch < STARTS; epoch++) {
        int wrong = 0;

        for (int i = 0; i < ALL; i++)
            send[i] = value(world_rank, i / BYTES, epoch, i % BYTES);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int side = 0; side < 2; side++) {
            int sender = (world_rank + (side == 0 ? world_size - 1 : 1)) % world_size;

            for (int i = 0; i < BYTES; i++)
                wrong += receive[side * BYTES + i] !=
                         value(sender, 1 - side, epoch, i);
        }
        CHECK(wrong == 0, "epoch %d: %d bytes", epoch, wrong);
    }
    MPI_Request_free(&request);
}

/* Exchange from a block: are all of its pages adopted that are wholly in [from, to)
 * and in the block, and no others? */
static void expect(char *send, int from, int to, const char *what)
{
    uint64_t kept = rsched_memory_adoptions(RSCHED_ADOPT_DEVICE);
    uintptr_t at = ((uintptr_t)send + PAGE - 1) / PAGE * PAGE;
    void *first;

    exchange(send);
    for (; at + PAGE <= (uintptr_t)send + ALL; at += PAGE) {
        bool is = rsched_memory_adopted((void *)at, PAGE, &first) == PAGE;
        bool may = at >= (uintptr_t)send + (uintptr_t)from &&
                   at + PAGE <= (uintptr_t)send + (uintptr_t)to;

        CHECK(is == may, "%s: page %d is %sadopted", what,
              (int)((at - (uintptr_t)send) / PAGE), is ? "" : "not ");
    }
    kept = rsched_memory_adoptions(RSCHED_ADOPT_DEVICE) - kept;
    CHECK((kept > 0) == (from > 0 || to < ALL), "%s: %d bytes for a device", what,
          (int)kept);
}

static void expect_all(char *send, const char *what)
{
    expect(send, 0, ALL, what);
}

static void expect_none(char *send, const char *what)
{
    expect(send, ALL, ALL, what);
}

static char *block(void)
{
    char *memory = malloc(ALL);

    CHECK(memory != NULL, "out of memory");
    return memory;
}

static struct ibv_mr *registered(void *address, size_t bytes)
{
    struct ibv_mr *mr = ibv_reg_mr(&domain, address, bytes, ACCESS);

    CHECK(mr != NULL, "not registered");
    return mr;
}

static void case_registered(void)
{
    char *memory = block();
    struct ibv_mr *mr = registered(memory, ALL), *other;

    expect_none(memory, "registered");
    other = registered(memory + ALL / 2, 1);
    ibv_dereg_mr(mr);
    expect_none(memory, "a byte registered again");
    standin_fails = true;
    CHECK(ibv_dereg_mr(other) != 0, "deregistered");
    expect_none(memory, "not deregistered");
    standin_fails = false;
    ibv_dereg_mr(other);
    expect_all(memory, __func__);
    mr = registered(memory, ALL);
    expect_all(memory, "registered when it had been adopted");
    ibv_dereg_mr(mr);
    free(memory);
}

static void case_not_registered(void)
{
    char *memory = block();
    struct ibv_mr *mr;

    standin_fails = true;
    CHECK(ibv_reg_mr(&domain, memory, ALL, ACCESS) == NULL, "registered");
    standin_fails = false;
    mr = ibv_reg_mr_iova2(&domain, memory, ALL, 0, ACCESS | IBV_ACCESS_ON_DEMAND);
    expect_all(memory, "on demand");
    ibv_dereg_mr(mr);
    free(memory);
}

static void case_other_functions(void)
{
    char *memory = block(), *other = block();
    struct ibv_mr *mr = ibv_reg_mr_iova2(&domain, memory, ALL, 0, ACCESS);

    expect_none(memory, "ibv_reg_mr_iova2");
    ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, &domain, NULL, 0, ACCESS);
    expect_none(memory, "other access");
    standin_fails = true;
    ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, &domain, other, ALL, ACCESS);
    standin_fails = false;
    expect_none(memory, "not registered elsewhere");
    ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, &domain, other, ALL, ACCESS);
    expect_all(memory, "registered elsewhere");
    expect_none(other, "registered here");
    ibv_dereg_mr(mr);
    expect_all(other, "deregistered");
    free(other);
    free(memory);
}

/* What not every header has, by the names that programs call. */
static void *called(const char *name, const char *version)
{
    void *at = dlvsym(RTLD_DEFAULT, name, version);

    CHECK(at != NULL, "no %s", name);
    return at;
}

static void case_later_functions(void)
{
    struct {
        size_t bytes;
        int access;
        uint64_t has, iova;
        void *address;
        char rest[64];
    } attributes = {.bytes = ALL, .access = ACCESS, .has = 1 << 1};
    struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, void *) =
        (struct ibv_mr * (*)(struct ibv_pd *, void *)) called("ibv_reg_mr_ex", "IBVERBS_1.15");
    struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, void *, void *, size_t, int) =
        (struct ibv_mr * (*)(struct ibv_pd *, void *, void *, size_t, int))
            called("ibv_reg_buf_mr", "IBVERBS_1.17");
    char *memory = block();
    struct ibv_mr *mr;

    attributes.address = memory;
    mr = reg_mr_ex(&domain, &attributes);
    expect_none(memory, "ibv_reg_mr_ex");
    ibv_dereg_mr(mr);
    mr = reg_buf_mr(&domain, NULL, memory, ALL, ACCESS);
    expect_none(memory, "ibv_reg_buf_mr");
    ibv_dereg_mr(mr);
    mr = ibv_reg_mr_iova(&domain, memory, ALL, 0, ACCESS);
    expect_none(memory, "ibv_reg_mr_iova");
    ibv_dereg_mr(mr);
    expect_all(memory, __func__);
    free(memory);
}

static void case_mlx5(void)
{
    struct {
        void *address;
        size_t bytes;
        uint32_t access;
        uint64_t page_sizes, has;
        int dmabuf;
    } attributes = {.bytes = ALL};
    struct ibv_context *(*open_device)(struct ibv_device *, void *) =
        (struct ibv_context * (*)(struct ibv_device *, void *))
            called("mlx5dv_open_device", "MLX5_1.7");
    void *(*reg)(struct ibv_context *, void *, size_t, uint32_t) =
        (void *(*)(struct ibv_context *, void *, size_t, uint32_t))
            called("mlx5dv_devx_umem_reg", "MLX5_1.7");
    void *(*reg_ex)(struct ibv_context *, void *) =
        (void *(*)(struct ibv_context *, void *))called("mlx5dv_devx_umem_reg_ex",
                                                        "MLX5_1.19");
    int (*dereg)(void *) = (int (*)(void *))called("mlx5dv_devx_umem_dereg", "MLX5_1.7");
    struct ibv_context *context = open_device(&device, NULL);
    char *memory = block();
    void *umem = reg(context, memory, ALL, ACCESS);

    expect_none(memory, "mlx5dv_devx_umem_reg");
    dereg(umem);
    attributes.address = memory;
    umem = reg_ex(context, &attributes);
    expect_none(memory, "mlx5dv_devx_umem_reg_ex");
    dereg(umem);
    expect_all(memory, __func__);
    ibv_close_device(context);
    free(memory);
}

/* Of a thing that nobody has told of nothing is known; nor of what it was before. */
static void case_devices(struct ibv_context *context)
{
    char *memory = block();
    struct ibv_context *second = ibv_open_device(&device);
    int number = second->cmd_fd, untold = standin_open();

    expect_none(memory, "another one is open");
    CHECK(ibv_close_device(second) == 0, "not closed");
    CHECK(dup2(untold, number) == number, "dup2");
    close(untold);
    expect_none(memory, "another one has its number");
    close(number);
    expect_all(memory, "one is open");
    free(memory);
    memory = block();
    ibv_close_device(context);
    expect_all(memory, "none is open");
    free(memory);
}

static void case_unknown(struct ibv_context *context)
{
    char *memory = block();

    expect_none(memory, "a library of which not all is known");
    ibv_close_device(context);
    expect_all(memory, "no device");
    free(memory);
}

static void all_cases(struct ibv_context *context)
{
    case_registered();
    case_not_registered();
    case_other_functions();
    case_later_functions();
    case_mlx5();
    case_devices(context);
}

/* What the kernel counts as pinned, in KiB. */
static unsigned long pinned_kib(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    unsigned long kib = 0;
    char line[128];

    CHECK(file != NULL, "no status");
    while (fgets(line, sizeof(line), file) != NULL &&
           sscanf(line, "VmPin: %lu", &kib) != 1)
        ;
    fclose(file);
    return kib;
}

/* There is no stand-in for these. */
static void case_device(void)
{
    struct ibv_device **(*get_device_list)(int *) = (struct ibv_device * *(*)(int *))
        called("ibv_get_device_list", "IBVERBS_1.1");
    struct ibv_pd *(*alloc_pd)(struct ibv_context *) =
        (struct ibv_pd * (*)(struct ibv_context *)) called("ibv_alloc_pd", "IBVERBS_1.1");
    char *memory = block(), *other = block();
    int devices = 0;
    struct ibv_device **list = get_device_list(&devices);
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;

    CHECK(list != NULL && devices > 0, "no devices");
    context = ibv_open_device(list[0]);
    pd = context != NULL ? alloc_pd(context) : NULL;
    mr = pd != NULL ? ibv_reg_mr(pd, memory, ALL, ACCESS) : NULL;
    CHECK(mr != NULL, "not registered: %s", strerror(errno));
    CHECK(pinned_kib() >= ALL / 1024, "%lu KiB are pinned", pinned_kib());
    expect_none(memory, "registered");
    expect_all(other, "not registered");
    CHECK(ibv_dereg_mr(mr) == 0, "not deregistered");
    expect_all(memory, "deregistered");
    mr = ibv_reg_mr(pd, memory, ALL, ACCESS);
    CHECK(mr != NULL, "not registered when adopted: %s", strerror(errno));
    expect_all(memory, "registered when adopted");
    ibv_dereg_mr(mr);
    CHECK(standin_calls == 0, "the stand-in was called");
    free(other);
    free(memory);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int one = 1, fd = standin_open();

    setenv("RSCHED_MAPPED", "12k", 1); /* not what costs say */
    setenv("RSCHED_CMA", "0", 1);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    CHECK(rsched_memory_adopted != NULL, "rsched is not preloaded");
    if (fd < 0) {
        if (world_rank == 0)
            puts("SKIP: this kernel has neither userfaultfd() nor AF_ALG here");
        MPI_Finalize();
        return 77;
    }
    close(fd);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &one, 0, &ring);
    receive = malloc(ALL);
    if (strcmp(how, "--device") == 0) {
        case_device();
    } else {
        struct ibv_context *context = ibv_open_device(&device);

        CHECK(standin_calls == 1, "the stand-in was not called");
        (strcmp(how, "--unknown") == 0 ? case_unknown : all_cases)(context);
    }
    if (world_rank == 0)
        printf("%u calls of the stand-in\n", standin_calls);
    free(receive);
    MPI_Comm_free(&ring);
    MPI_Finalize();
    return 0;
}
