/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrays whose messages have all gone natively, which one native call completes: what has
 * failed is said and told one error handler, once, also where Open MPI says that all is well;
 * a request may be in an array twice. */
#include "tests/mpi/handled.h"
#include "tests/mpi/lanes.h"

enum { LONG = 4, SHORT = 1, NUM = 2, AGAIN = 8 };

/* What an array is of: requests that fail, or not. */
struct form {
    const char *name;
    bool tests, first_is_plain, second_fails;
};

static MPI_Comm comm;
static int in[NUM][LONG];

static int complete(const struct form *form, MPI_Request *requests, MPI_Status *statuses)
{
    int flag = 0, error;

    if (!form->tests)
        return MPI_Waitall(NUM, requests, statuses);
    do
        error = MPI_Testall(NUM, requests, &flag, statuses);
    while (!flag && error == MPI_SUCCESS);
    return error;
}

static void start(const struct form *form, int tag, MPI_Request *requests)
{
    static const int out[NUM * LONG];

    if (form->first_is_plain)
        MPI_Irecv(in[0], SHORT, MPI_INT, left, tag, comm, &requests[0]);
    else
        MPI_Recv_init(in[0], SHORT, MPI_INT, left, tag, comm, &requests[0]);
    MPI_Recv_init(in[1], form->second_fails ? SHORT : LONG, MPI_INT, left, tag + 1, comm,
                  &requests[1]);
    MPI_Startall(form->first_is_plain ? 1 : NUM, requests + form->first_is_plain);
    MPI_Barrier(comm);
    for (int i = 0; i < NUM; i++)
        MPI_Send(out, LONG, MPI_INT, right, tag + i, comm);
}

static void case_fails(const struct form *form, int tag)
{
    MPI_Request requests[NUM];
    MPI_Status statuses[NUM];
    int before, error;

    start(form, tag, requests);
    before = handled;
    error = complete(form, requests, statuses);
    CHECK(error_class(error) == MPI_ERR_IN_STATUS, "%s: error class %d", form->name,
          error_class(error));
    CHECK(handled == before + 1, "%s: handled %d times", form->name, handled - before);
    for (int i = 0; i < NUM; i++) {
        int class = error_class(statuses[i].MPI_ERROR);

        if (class == MPI_ERR_PENDING)
            class = error_class(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        CHECK(class == (i == 0 || form->second_fails ? MPI_ERR_TRUNCATE : MPI_SUCCESS),
              "%s, %d: error class %d", form->name, i, class);
    }
    for (int i = form->first_is_plain; i < NUM; i++)
        MPI_Request_free(&requests[i]);
}

/* The second one is inactive by then, and nothing is counted twice. */
static void case_twice(void)
{
    uses_lanes = true;
    lanes_init();
    for (int i = 0; i < AGAIN; i++) {
        MPI_Request twice[2 * TAGS];
        MPI_Status statuses[2 * TAGS];

        start_all();
        for (int tag = 0; tag < 2 * TAGS; tag++)
            twice[tag] = receives[tag % TAGS];
        MPI_Waitall(2 * TAGS, twice, statuses);
        for (int tag = 0; tag < 2 * TAGS; tag++)
            CHECK(statuses[tag].MPI_TAG == (tag < TAGS ? tag : MPI_ANY_TAG),
                  "status %d is of tag %d", tag, statuses[tag].MPI_TAG);
        MPI_Waitall(TAGS, sends, MPI_STATUSES_IGNORE);
        for (int tag = 0; tag < TAGS; tag++)
            verify(tag);
    }
    promote();
    lanes_fini();
}

int main(int argc, char **argv)
{
    static const struct form forms[] = {
        {"wait", false, false, false},       {"wait, both", false, false, true},
        {"wait, plain", false, true, false}, {"wait, both, plain", false, true, true},
        {"test", true, false, false},        {"test, both", true, false, true},
    };
    MPI_Errhandler errhandler;

    test_init(&argc, &argv, false);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    case_twice();
    MPI_Comm_create_errhandler(handler, &errhandler);
    MPI_Comm_set_errhandler(comm, errhandler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, errhandler); /* MPICH's choice for
                                                    calls with many requests */
    MPI_Errhandler_free(&errhandler);
    for (int i = 0; i < (int)(sizeof(forms) / sizeof(forms[0])); i++)
        case_fails(&forms[i], NUM * i);
    MPI_Comm_free(&comm);
    return test_fini("native_arrays");
}
