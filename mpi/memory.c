/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that MPI gives out: where its other processes can map it, exchanges
 * copy once. */
#include "mpi/native.h"
#include "mpi/persistent.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- MPI_Alloc_mem ---- */

RS_BEHIND(Alloc_mem)
RS_BEHIND(Free_mem)
RS_NATIVE(Free_mem)
RS_BEHIND(Win_allocate_shared)

/* Each allocation is a mapping of its own, in whole pages, of which the kernel lets a
 * process have some 65000; and no message of fewer bytes is ever copied once. */
enum { LEAST = 1024, MOST_MAPPED = 8192 };

static atomic_uint num_mapped;

static bool is_of_use(MPI_Aint size)
{
    return rs_process.reason == RS_ACCELERATED && rs_process.num_local > 1 &&
           size >= LEAST &&
           atomic_load_explicit(&num_mapped, memory_order_relaxed) <
               MOST_MAPPED;
}

/* What is mapped begins on a page. MPI 4.1, 9.2: an MPI may heed the key. */
static bool wants_more_than_pages(MPI_Info info)
{
    char value[24];
    int found = 0;

    if (info != MPI_INFO_NULL)
        PMPI_Info_get(info, "mpi_minimum_memory_alignment",
                      (int)sizeof(value) - 1, value, &found);
    return found != 0 && strtoul(value, NULL, 10) > (unsigned long)getpagesize();
}

int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void *baseptr)
{
    void *memory;

    if (!is_of_use(size) || wants_more_than_pages(info) ||
        rsched_alloc((size_t)size, &memory) != 0)
        return behind_Alloc_mem(size, info, baseptr);
    atomic_fetch_add_explicit(&num_mapped, 1, memory_order_relaxed);
    *(void **)baseptr = memory;
    return MPI_SUCCESS;
}

/* Whether it was ours, and is gone. */
static bool free_mapped(void *base)
{
    if (base == NULL || rsched_free(base) != 0)
        return false;
    atomic_fetch_sub_explicit(&num_mapped, 1, memory_order_relaxed);
    return true;
}

int MPI_Free_mem(void *base)
{
    return free_mapped(base) ? MPI_SUCCESS : behind_Free_mem(base);
}

/* Whoever wraps MPI_Free_mem calls this one. */
int PMPI_Free_mem(void *base)
{
    return free_mapped(base) ? MPI_SUCCESS : native_Free_mem(base);
}

/* ---- MPI_Win_allocate_shared ---- */

/* What each process of a window has in it is a region; all have it mapped. */
struct window {
    int parts;
    uint64_t ids[]; /* 0: none */
};

static int keyval = MPI_KEYVAL_INVALID;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Called by MPI_Win_free, while the memory is still mapped. */
static int window_freed(MPI_Win win, int key, void *value, void *extra)
{
    struct window *w = value;

    (void)win;
    (void)key;
    (void)extra;
    for (int i = 0; i < w->parts; i++) {
        if (w->ids[i] != 0)
            rsched_memory_remove(w->ids[i]);
    }
    free(w);
    return MPI_SUCCESS;
}

static void make_keyval(void)
{
    PMPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, window_freed, &keyval, NULL);
}

/* All processes of the window call it; the first one draws its number. */
static uint64_t draw_number(MPI_Comm comm)
{
    uint64_t number = 0;
    int rank;

    PMPI_Comm_rank(comm, &rank);
    if (rank == 0 &&
        getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        number = 0;
    PMPI_Bcast(&number, 1, MPI_UINT64_T, 0, comm);
    return number;
}

static void add_parts(struct window *w, MPI_Win win, uint64_t number)
{
    for (int i = 0; i < w->parts; i++) {
        void *address = NULL;
        MPI_Aint size = 0;
        int unit;

        if (PMPI_Win_shared_query(win, i, &size, &unit, &address) !=
                MPI_SUCCESS ||
            size <= 0)
            continue;
        if (rsched_memory_add(number + (uint64_t)i, address, (size_t)size) == 0)
            w->ids[i] = number + (uint64_t)i;
    }
}

int MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info,
                            MPI_Comm comm, void *baseptr, MPI_Win *win)
{
    struct window *w;
    uint64_t number;
    int error, parts;

    rs_settle();
    error = behind_Win_allocate_shared(size, unit, info, comm, baseptr, win);
    if (error != MPI_SUCCESS || rs_process.reason != RS_ACCELERATED ||
        rs_comm_has_strangers(comm))
        return error;
    number = draw_number(comm);
    PMPI_Comm_size(comm, &parts);
    pthread_once(&once, make_keyval);
    w = calloc(1, sizeof(*w) + (size_t)parts * sizeof(w->ids[0]));
    /* Whoever has no memory for this copies twice. */
    if (number == 0 || w == NULL || keyval == MPI_KEYVAL_INVALID) {
        free(w);
        return error;
    }
    w->parts = parts;
    add_parts(w, *win, number);
    if (PMPI_Win_set_attr(*win, keyval, w) != MPI_SUCCESS)
        window_freed(*win, keyval, w, NULL);
    return error;
}
