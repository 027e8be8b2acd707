/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is registered with RDMA devices, whose pages must stay where they are: told to
 * librsched, so that other memory is adopted although such a device is open
 * (docs/adopted.md).
 *
 * The functions wrap those of libibverbs and libmlx5 that open devices and register
 * memory. MPI libraries load these late and for themselves, so that they are looked for
 * when they are called first.
 */

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include <rsched/memory.h>

#include "heap/versions.h"

/* ---- who comes next ---- */

#define VERBS "libibverbs.so.1"
#define MLX5 "libmlx5.so.1"

/* XX(name, library, version): all that opens a device or registers ordinary memory, up to
 * IBVERBS_1.18 and MLX5_1.27 (rdma-core 65). */
#define FUNCTIONS(XX)                                                        \
    XX(ibv_open_device, VERBS, "IBVERBS_1.1")                                \
    XX(ibv_close_device, VERBS, "IBVERBS_1.1")                               \
    XX(ibv_import_device, VERBS, "IBVERBS_1.10")                             \
    XX(ibv_reg_mr, VERBS, "IBVERBS_1.1")                                     \
    XX(ibv_reg_mr_iova, VERBS, "IBVERBS_1.7")                                \
    XX(ibv_reg_mr_iova2, VERBS, "IBVERBS_1.8")                               \
    XX(ibv_reg_mr_ex, VERBS, "IBVERBS_1.15")                                 \
    XX(ibv_reg_buf_mr, VERBS, "IBVERBS_1.17")                                \
    XX(ibv_rereg_mr, VERBS, "IBVERBS_1.1")                                   \
    XX(ibv_dereg_mr, VERBS, "IBVERBS_1.1")                                   \
    XX(mlx5dv_open_device, MLX5, "MLX5_1.7")                                 \
    XX(mlx5dv_devx_umem_reg, MLX5, "MLX5_1.7")                               \
    XX(mlx5dv_devx_umem_reg_ex, MLX5, "MLX5_1.19")                           \
    XX(mlx5dv_devx_umem_dereg, MLX5, "MLX5_1.7")

enum { NEWEST_VERBS = 18, NEWEST_MLX5 = 27 };

enum function {
#define XX(name, library, version) F_##name,
    FUNCTIONS(XX)
#undef XX
        NUM_FUNCTIONS
};

static const struct {
    const char *name, *library, *version;
} functions[] = {
#define XX(name, library, version) {#name, library, version},
    FUNCTIONS(XX)
#undef XX
};

/* The library stays loaded, once it has been used. */
static void *next(enum function f)
{
    static _Atomic(void *) found[NUM_FUNCTIONS];
    void *at = atomic_load_explicit(&found[f], memory_order_acquire), *library;

    if (at != NULL)
        return at;
    at = dlsym(RTLD_NEXT, functions[f].name);
    if (at == NULL) {
        library = dlopen(functions[f].library, RTLD_LAZY | RTLD_NOLOAD);
        at = library != NULL ? dlsym(library, functions[f].name) : NULL;
    }
    atomic_store_explicit(&found[f], at, memory_order_release);
    if (at == NULL)
        errno = ENOSYS;
    return at;
}

/* A function that others call by its name, and the next one of this name. */
#define RS_WRAP(type, name, ...)                                             \
    __attribute__((visibility("default"))) type heap_##name(__VA_ARGS__);    \
    type heap_##name(__VA_ARGS__)
#define RS_NEXT(name)                                                        \
    __typeof__(heap_##name) *f = (__typeof__(heap_##name) *)next(F_##name)

/* ---- devices ---- */

static bool sees_all(void);

static struct ibv_context *opened(struct ibv_context *context)
{
    int kept = errno;

    if (context != NULL && sees_all())
        rsched_memory_device(context->cmd_fd, true);
    errno = kept;
    return context;
}

RS_WRAP(struct ibv_context *, ibv_open_device, struct ibv_device *device)
{
    RS_NEXT(ibv_open_device);

    return f == NULL ? NULL : opened(f(device));
}

RS_WRAP(struct ibv_context *, ibv_import_device, int cmd_fd)
{
    RS_NEXT(ibv_import_device);

    return f == NULL ? NULL : opened(f(cmd_fd));
}

RS_WRAP(struct ibv_context *, mlx5dv_open_device, struct ibv_device *device,
        void *attributes)
{
    RS_NEXT(mlx5dv_open_device);

    return f == NULL ? NULL : opened(f(device, attributes));
}

RS_WRAP(int, ibv_close_device, struct ibv_context *context)
{
    RS_NEXT(ibv_close_device);

    if (f == NULL)
        return -1;
    rsched_memory_device(context->cmd_fd, false);
    return f(context);
}

/* ---- registering ---- */

/* The kernel follows what is registered on demand where it goes. */
static struct rsched_pin *pin(const void *address, size_t bytes, unsigned access)
{
    return access & IBV_ACCESS_ON_DEMAND ? NULL : rsched_memory_pin(address, bytes);
}

static void *pinned(struct rsched_pin *p, void *handle)
{
    int kept = errno;

    rsched_memory_pinned(p, handle);
    errno = kept;
    return handle;
}

RS_WRAP(struct ibv_mr *, ibv_reg_mr, struct ibv_pd *pd, void *address, size_t bytes,
        int access)
{
    RS_NEXT(ibv_reg_mr);
    struct rsched_pin *p;

    if (f == NULL)
        return NULL;
    p = pin(address, bytes, (unsigned)access);
    return pinned(p, f(pd, address, bytes, access));
}

RS_WRAP(struct ibv_mr *, ibv_reg_mr_iova, struct ibv_pd *pd, void *address,
        size_t bytes, uint64_t iova, int access)
{
    RS_NEXT(ibv_reg_mr_iova);
    struct rsched_pin *p;

    if (f == NULL)
        return NULL;
    p = pin(address, bytes, (unsigned)access);
    return pinned(p, f(pd, address, bytes, iova, access));
}

RS_WRAP(struct ibv_mr *, ibv_reg_mr_iova2, struct ibv_pd *pd, void *address,
        size_t bytes, uint64_t iova, unsigned access)
{
    RS_NEXT(ibv_reg_mr_iova2);
    struct rsched_pin *p;

    if (f == NULL)
        return NULL;
    p = pin(address, bytes, access);
    return pinned(p, f(pd, address, bytes, iova, access));
}

/* The beginning of struct ibv_mr_init_attr, which not every header has. */
struct registration {
    size_t bytes;
    int access;
    uint64_t has; /* HAS_ADDRESS, ... */
    uint64_t iova;
    void *address;
};
enum { HAS_ADDRESS = 1 << 1 };

RS_WRAP(struct ibv_mr *, ibv_reg_mr_ex, struct ibv_pd *pd, struct registration *r)
{
    RS_NEXT(ibv_reg_mr_ex);
    struct rsched_pin *p = NULL;

    if (f == NULL)
        return NULL;
    if (r->has & HAS_ADDRESS)
        p = pin(r->address, r->bytes, (unsigned)r->access);
    return pinned(p, f(pd, r));
}

RS_WRAP(struct ibv_mr *, ibv_reg_buf_mr, struct ibv_pd *pd, void *buffer,
        void *address, size_t bytes, int access)
{
    RS_NEXT(ibv_reg_buf_mr);
    struct rsched_pin *p;

    if (f == NULL)
        return NULL;
    p = pin(address, bytes, (unsigned)access);
    return pinned(p, f(pd, buffer, address, bytes, access));
}

/* On most errors it is not known which memory it has, if any. */
RS_WRAP(int, ibv_rereg_mr, struct ibv_mr *mr, int flags, struct ibv_pd *pd,
        void *address, size_t bytes, int access)
{
    RS_NEXT(ibv_rereg_mr);
    struct rsched_pin *p;
    int error;

    if (f == NULL)
        return IBV_REREG_MR_ERR_INPUT;
    if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION))
        return f(mr, flags, pd, address, bytes, access);
    p = rsched_memory_pin(address, bytes);
    error = f(mr, flags, pd, address, bytes, access);
    if (error == 0)
        pinned(rsched_memory_unpin(mr), NULL);
    pinned(p, error == IBV_REREG_MR_ERR_INPUT ? NULL : mr);
    return error;
}

/* The handle may be another's as soon as it is one no more. */
RS_WRAP(int, ibv_dereg_mr, struct ibv_mr *mr)
{
    RS_NEXT(ibv_dereg_mr);
    struct rsched_pin *p;
    int error;

    if (f == NULL)
        return ENOSYS;
    p = rsched_memory_unpin(mr);
    error = f(mr);
    pinned(p, error == 0 ? NULL : mr);
    return error;
}

RS_WRAP(void *, mlx5dv_devx_umem_reg, struct ibv_context *context, void *address,
        size_t bytes, uint32_t access)
{
    RS_NEXT(mlx5dv_devx_umem_reg);
    struct rsched_pin *p;

    if (f == NULL)
        return NULL;
    p = rsched_memory_pin(address, bytes);
    return pinned(p, f(context, address, bytes, access));
}

/* The beginning of struct mlx5dv_devx_umem_in. */
struct umem {
    void *address;
    size_t bytes;
    uint32_t access;
    uint64_t page_sizes, has; /* HAS_DMABUF */
};
enum { HAS_DMABUF = 1 << 0 };

RS_WRAP(void *, mlx5dv_devx_umem_reg_ex, struct ibv_context *context,
        struct umem *umem)
{
    RS_NEXT(mlx5dv_devx_umem_reg_ex);
    struct rsched_pin *p = NULL;

    if (f == NULL)
        return NULL;
    if (!(umem->has & HAS_DMABUF))
        p = rsched_memory_pin(umem->address, umem->bytes);
    return pinned(p, f(context, umem));
}

RS_WRAP(int, mlx5dv_devx_umem_dereg, void *umem)
{
    RS_NEXT(mlx5dv_devx_umem_dereg);
    struct rsched_pin *p;
    int error;

    if (f == NULL)
        return ENOSYS;
    p = rsched_memory_unpin(umem);
    error = f(umem);
    pinned(p, error == 0 ? NULL : umem);
    return error;
}

/* ---- their names ---- */

#define XX(name, library, version)                                           \
    __asm__(".symver heap_" #name ", " #name "@@" version);
FUNCTIONS(XX)
#undef XX

/* ---- whether nothing is missed ---- */

static void *const ours[] = {
#define XX(name, library, version) (void *)heap_##name,
    FUNCTIONS(XX)
#undef XX
};

/* Whether programs and libraries call ours. */
static bool are_called(void)
{
    for (int f = 0; f < NUM_FUNCTIONS; f++) {
        if (dlvsym(RTLD_DEFAULT, functions[f].name, functions[f].version) != ours[f])
            return false;
    }
    return true;
}

static const void *library_of(const void *function)
{
    Dl_info info;

    return function != NULL && dladdr(function, &info) != 0 ? info.dli_fbase : NULL;
}

/* A library that has no ibv_reg_mr_iova2() may be one of those where a header registers
 * memory past the library's functions. */
static bool sees_all(void)
{
    const void *opens = next(F_ibv_open_device), *mlx5 = next(F_mlx5dv_devx_umem_reg);

    return are_called() && library_of(opens) != NULL &&
           library_of(opens) == library_of(next(F_ibv_reg_mr_iova2)) &&
           heap_versions_known(opens, "IBVERBS_1.", NEWEST_VERBS, "IBVERBS_PRIVATE_") &&
           (mlx5 == NULL ||
            heap_versions_known(mlx5, "MLX5_1.", NEWEST_MLX5, "MLX5_PRIVATE_"));
}
