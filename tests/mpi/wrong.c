/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong arguments: the native MPI's error comes, from one error handler at most, once,
 * and nothing else happens.
 *
 * wrong [--native] */
#include "tests/mpi/common.h"

static int handled;

static void handler(MPI_Comm *where, int *error, ...)
{
    (void)where;
    (void)error;
    handled++;
}

static int error_class(int error)
{
    int class;

    MPI_Error_class(error, &class);
    return class;
}

/* Of a call that must fail. */
static void expect(const char *call, int error)
{
    CHECK(error != MPI_SUCCESS, "%s succeeds", call);
    CHECK(handled <= 1, "%s: class %d, handled %d times", call,
          error_class(error), handled);
    handled = 0;
}

static void expect_class(const char *call, int error, int class)
{
    CHECK(error_class(error) == class, "%s: class %d, not %d", call,
          error_class(error), class);
    expect(call, error);
}

/* What no communicator has for a handle, and the MPIs find out. */
static MPI_Comm no_comm(void)
{
#ifdef OPEN_MPI
    static char memory[4096];

    memset(memory, 0xff, sizeof(memory));
    return (MPI_Comm)(void *)memory;
#else
    return (MPI_Comm)0xc4ffff00;
#endif
}

static void wrong_comm(void)
{
    MPI_Request request;
    int number = 0;

    expect_class("Send_init", MPI_Send_init(&number, 1, MPI_INT, 0, 0, no_comm(),
                                            &request), MPI_ERR_COMM);
    expect_class("Recv_init", MPI_Recv_init(&number, 1, MPI_INT, 0, 0, no_comm(),
                                            &request), MPI_ERR_COMM);
    expect_class("Rsend_init", MPI_Rsend_init(&number, 1, MPI_INT, 0, 0,
                                              no_comm(), &request),
                 MPI_ERR_COMM);
}

int main(int argc, char **argv)
{
    MPI_Errhandler errhandler;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    MPI_Comm_create_errhandler(handler, &errhandler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, errhandler);
    MPI_Errhandler_free(&errhandler);
    wrong_comm();
    CHECK(handled == 0, "handled %d times", handled);
    return test_fini("wrong");
}
