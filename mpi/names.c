/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of communicators. Both ends of a lane must mean the same communicator,
 * and its handle says nothing to another process. So the processes agree on a
 * number in the collective call that makes it. */
#include "mpi/native.h"
#include "mpi/persistent.h"

#include <stdlib.h>

RS_NATIVE(Bcast)

enum { ID_WORLD = 1, ID_SELF = 2 };

static int keyval = MPI_KEYVAL_INVALID;

/* Never freed by the program, so they need no attribute. */
static struct rs_name world = {.refs = 1, .id = ID_WORLD};
static struct rs_name self = {.refs = 1, .id = ID_SELF};

void rs_name_drop(struct rs_name *name)
{
    if (--name->refs > 0)
        return;
    if (name->errhandler != MPI_ERRHANDLER_NULL)
        PMPI_Errhandler_free(&name->errhandler);
    free(name);
}

/* The communicator is being freed; requests on it live on. */
static int name_deleted(MPI_Comm comm, int key, void *value, void *extra)
{
    struct rs_name *name = value;

    (void)key;
    (void)extra;
    PMPI_Comm_get_errhandler(comm, &name->errhandler);
    rs_pairs_detach();
    rs_offers_forget(name->id);
    name->comm = MPI_COMM_NULL;
    rs_name_drop(name);
    return MPI_SUCCESS;
}

struct rs_name *rs_name_find(MPI_Comm comm)
{
    struct rs_name *name;
    int found = 0; /* so it stays where the handle is none */

    if (keyval == MPI_KEYVAL_INVALID || comm == MPI_COMM_NULL)
        return NULL;
    if (comm == world.comm)
        return &world;
    if (comm == self.comm)
        return &self;
    PMPI_Comm_get_attr(comm, keyval, &name, &found);
    return found ? name : NULL;
}

/* What is made of a communicator that has a name has no strangers: to look for them takes
 * some MPI libraries as long as to compare each process with each. */
void rs_name_give(MPI_Comm comm, MPI_Comm parent)
{
    static atomic_uint given;
    struct rs_name *name;
    uint64_t id = 0;
    int inter, rank;

    if (keyval == MPI_KEYVAL_INVALID || comm == MPI_COMM_NULL ||
        rs_name_find(comm) != NULL)
        return;
    PMPI_Comm_test_inter(comm, &inter);
    if (inter || (rs_name_find(parent) == NULL && rs_comm_has_strangers(comm)))
        return;
    PMPI_Comm_rank(comm, &rank);
    if (rank == 0)
        id = ((uint64_t)rs_process.rank + 1) << 32 |
             atomic_fetch_add(&given, 1);
    if (native_Bcast(&id, 1, MPI_UINT64_T, 0, comm) != MPI_SUCCESS)
        return;
    name = calloc(1, sizeof(*name));
    if (name == NULL)
        return; /* native here, so native at the peers too */
    name->refs = 1;
    name->id = id;
    name->comm = comm;
    name->errhandler = MPI_ERRHANDLER_NULL;
    PMPI_Comm_set_attr(comm, keyval, name);
}

int rs_name_raise(struct rs_name *name, int error)
{
    MPI_Comm where = name->comm;

    if (where == MPI_COMM_NULL) {
        where = rs_process.errors;
        PMPI_Comm_set_errhandler(where, name->errhandler);
    }
    PMPI_Comm_call_errhandler(where, error);
    return error;
}

void rs_names_init(void)
{
    world.comm = MPI_COMM_WORLD;
    self.comm = MPI_COMM_SELF;
    world.errhandler = self.errhandler = MPI_ERRHANDLER_NULL;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, name_deleted, &keyval,
                            NULL);
}

void rs_names_fini(void)
{
    PMPI_Comm_free_keyval(&keyval);
}
