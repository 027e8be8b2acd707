/* SPDX-License-Identifier: BSD-3-Clause */
/* A persistent receive fails natively, in each of the calls that complete requests. Open MPI
 * frees what it has made for it then; the request itself is the program's until it frees
 * that, which no error handler hears of, or MPI_Finalize. */
#include "tests/mpi/common.h"
#include "tests/mpi/handled.h"

enum { SHORT = 1, LONG = 4 };

/* Until the request is complete. */
typedef int complete_function(MPI_Request *request);

static int by_Wait(MPI_Request *request)
{
    return MPI_Wait(request, MPI_STATUS_IGNORE);
}

static int by_Waitall(MPI_Request *request)
{
    return MPI_Waitall(1, request, MPI_STATUSES_IGNORE);
}

static int by_Waitany(MPI_Request *request)
{
    int index;

    return MPI_Waitany(1, request, &index, MPI_STATUS_IGNORE);
}

static int by_Waitsome(MPI_Request *request)
{
    int num, index;

    return MPI_Waitsome(1, request, &num, &index, MPI_STATUSES_IGNORE);
}

static int by_Test(MPI_Request *request)
{
    int flag = 0, error = MPI_SUCCESS;

    while (!flag && error == MPI_SUCCESS)
        error = MPI_Test(request, &flag, MPI_STATUS_IGNORE);
    return error;
}

static int by_Testall(MPI_Request *request)
{
    int flag = 0, error = MPI_SUCCESS;

    while (!flag && error == MPI_SUCCESS)
        error = MPI_Testall(1, request, &flag, MPI_STATUSES_IGNORE);
    return error;
}

static int by_Testany(MPI_Request *request)
{
    int flag = 0, error = MPI_SUCCESS, index;

    while (!flag && error == MPI_SUCCESS)
        error = MPI_Testany(1, request, &index, &flag, MPI_STATUS_IGNORE);
    return error;
}

static int by_Testsome(MPI_Request *request)
{
    int num = 0, error = MPI_SUCCESS, index;

    while (num == 0 && error == MPI_SUCCESS)
        error = MPI_Testsome(1, request, &num, &index, MPI_STATUSES_IGNORE);
    return error;
}

static const struct {
    const char *name;
    complete_function *complete;
} families[] = {
    {"Wait", by_Wait},       {"Waitall", by_Waitall},
    {"Waitany", by_Waitany}, {"Waitsome", by_Waitsome},
    {"Test", by_Test},       {"Testall", by_Testall},
    {"Testany", by_Testany}, {"Testsome", by_Testsome},
};

enum { FAMILIES = (int)(sizeof(families) / sizeof(families[0])) };

static int in[LONG];

/* A plain message is too long for it. */
static void fail(int family, MPI_Request *request)
{
    static const int out[LONG];
    int left = (world_rank + world_size - 1) % world_size;
    int right = (world_rank + 1) % world_size;
    int before = handled, error;

    MPI_Recv_init(in, SHORT, MPI_INT, left, family, MPI_COMM_WORLD, request);
    CHECK(counter("requests") == 1, "%s: %" PRIu64 " requests are the backend's",
          families[family].name, counter("requests"));
    MPI_Start(request);
    MPI_Barrier(MPI_COMM_WORLD); /* it is posted */
    MPI_Send(out, LONG, MPI_INT, right, family, MPI_COMM_WORLD);
    error = families[family].complete(request);
    CHECK(error != MPI_SUCCESS && handled == before + 1, "%s: class %d, handled %d times",
          families[family].name, error_class(error), handled - before);
}

int main(int argc, char **argv)
{
    MPI_Errhandler errhandler;
    MPI_Request request;
    int before;

    test_init(&argc, &argv, false);
    MPI_Comm_create_errhandler(handler, &errhandler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, errhandler);
    MPI_Errhandler_free(&errhandler);
    for (int family = 0; family < FAMILIES; family++) {
        fail(family, &request);
        before = handled;
        CHECK(MPI_Request_free(&request) == MPI_SUCCESS && handled == before,
              "%s: handled %d times", families[family].name, handled - before);
        CHECK(request == MPI_REQUEST_NULL, "%s: it is left", families[family].name);
    }
    CHECK(counter("recv_init.native") == FAMILIES, "%" PRIu64 " were native",
          counter("recv_init.native"));
    fail(0, &request);
    before = handled;
    test_fini("freed");
    if (handled == before)
        return PASS;
    fprintf(stderr, "MPI_Finalize: handled %d times\n", handled - before);
    return FAIL;
}
