/* SPDX-License-Identifier: BSD-3-Clause */
/* What datatypes have been taken apart into (datatype.c), kept for as long as they live. */
#include "mpi/request.h"

#include <stdlib.h>

/* Types freed that somebody compares handles with. */
static atomic_uint_least64_t generation;

uint64_t rs_type_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_acquire);
}

/* ---- named types ---- */

/* Named types take no attributes in every MPI. They are never freed, so that a handle
 * of one always means the same. Where there is no room, they are taken apart each time. */
enum { NAMED_BITS = 8, NUM_NAMED = 1 << NAMED_BITS, NAMED_TRIES = 8 };

struct named {
    MPI_Datatype type;
    struct rs_flat *flat;
};

static _Atomic(struct named *) named_types[NUM_NAMED];

/* Where it is, or could be, after `tries` others. */
static size_t named_place(MPI_Datatype type, unsigned tries)
{
    return (rs_hash((uintptr_t)type, 64 - NAMED_BITS) + tries) % NUM_NAMED;
}

/* Held, or NULL. */
static struct rs_flat *named_find(MPI_Datatype type)
{
    for (unsigned tries = 0; tries < NAMED_TRIES; tries++) {
        /* Acquire: what another thread has found of the type. */
        struct named *n = atomic_load_explicit(&named_types[named_place(type, tries)],
                                               memory_order_acquire);

        if (n == NULL)
            return NULL;
        if (n->type != type)
            continue;
        atomic_fetch_add_explicit(&n->flat->refs, 1, memory_order_relaxed);
        return n->flat;
    }
    return NULL;
}

/* Two threads may do this for one type: it is there twice then. */
static void named_keep(MPI_Datatype type, struct rs_flat *flat)
{
    struct named *n = malloc(sizeof(*n));

    if (n == NULL)
        return;
    *n = (struct named){type, flat};
    atomic_fetch_add_explicit(&flat->refs, 1, memory_order_relaxed);
    for (unsigned tries = 0; tries < NAMED_TRIES; tries++) {
        struct named *none = NULL;

        /* Release: pairs with named_find(). */
        if (atomic_compare_exchange_strong_explicit(
                &named_types[named_place(type, tries)], &none, n,
                memory_order_release, memory_order_relaxed))
            return;
    }
    free(n);
    rs_flat_drop(flat);
}

/* ---- all types ---- */

/* What is kept with the type already, held; under the lock. */
static struct rs_flat *kept(MPI_Datatype type)
{
    struct rs_flat *flat;
    int found = 0;

    PMPI_Type_get_attr(type, rs_process.type_keyval, &flat, &found);
    if (!found)
        return NULL;
    atomic_fetch_add_explicit(&flat->refs, 1, memory_order_relaxed);
    return flat;
}

struct rs_flat *rs_flat_get(MPI_Datatype type)
{
    /* Two threads may use a type for the first time. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct rs_flat *flat, *other;
    bool named;

    flat = named_find(type);
    if (flat != NULL)
        return flat;
    pthread_mutex_lock(&lock);
    flat = kept(type);
    pthread_mutex_unlock(&lock);
    if (flat != NULL)
        return flat;
    flat = rs_flat_make(type, &named);
    if (flat != NULL && named)
        named_keep(type, flat);
    if (flat == NULL || named)
        return flat;
    pthread_mutex_lock(&lock);
    other = kept(type);
    if (other == NULL) {
        atomic_fetch_add_explicit(&flat->refs, 1, memory_order_relaxed);
        PMPI_Type_set_attr(type, rs_process.type_keyval, flat);
    }
    pthread_mutex_unlock(&lock);
    if (other == NULL)
        return flat;
    rs_flat_drop(flat);
    return other;
}

static void flat_free(struct rs_flat *flat)
{
    if (flat->runs != &flat->one)
        free(flat->runs);
    free(flat);
}

void rs_flat_drop(struct rs_flat *flat)
{
    if (flat == NULL)
        return;
    /* acq_rel: whoever frees must see what the others did with it. */
    if (atomic_fetch_sub_explicit(&flat->refs, 1, memory_order_acq_rel) > 1)
        return;
    flat_free(flat);
}

void rs_flats_fini(void)
{
    for (size_t i = 0; i < NUM_NAMED; i++) {
        struct named *n = atomic_exchange(&named_types[i], NULL);

        if (n != NULL)
            rs_flat_drop(n->flat);
        free(n);
    }
}

int rs_type_deleted(MPI_Datatype type, int keyval, void *value, void *extra)
{
    (void)type;
    (void)keyval;
    (void)extra;
    /* Release: whoever sees the new number must not trust the old handle. */
    atomic_fetch_add_explicit(&generation, 1, memory_order_release);
    rs_flat_drop(value);
    return MPI_SUCCESS;
}
