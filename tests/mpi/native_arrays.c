/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrays whose messages all go natively, which one native call starts, and one completes: what has
 * failed is said and told one error handler, once, also where Open MPI says that all is well;
 * a request may be in an array twice, and what cannot be started stops nobody before it. */
#include "tests/mpi/handled.h"
#include "tests/mpi/lanes.h"

enum { LONG = 4, SHORT = 1, NUM = 2, AGAIN = 8, MANY = 150 };

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

/* More than one native call starts. */
static void case_many(void)
{
    MPI_Request requests[2 * MANY];
    int out[MANY], came[MANY];

    for (int i = 0; i < MANY; i++) {
        MPI_Recv_init(&came[i], 1, MPI_INT, left, i, comm, &requests[i]);
        MPI_Send_init(&out[i], 1, MPI_INT, right, i, comm, &requests[MANY + i]);
    }
    for (int turn = 0; turn < AGAIN; turn++) {
        for (int i = 0; i < MANY; i++)
            out[i] = (world_rank * MANY + i) * AGAIN + turn;
        MPI_Startall(2 * MANY, requests);
        MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < MANY; i++)
            CHECK(came[i] == (left * MANY + i) * AGAIN + turn, "turn %d, %d: %d", turn, i, came[i]);
    }
    for (int i = 0; i < 2 * MANY; i++)
        MPI_Request_free(&requests[i]);
}

static void expect(MPI_Request *request, int value)
{
    MPI_Status status;
    int count;

    MPI_Wait(request, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(count == 1 && in[0][0] == value, "count %d, value %d, not %d", count, in[0][0], value);
}

/* Of those that are started together the second one is active already. */
static void case_started_twice(int tag)
{
    MPI_Request twice[2];
    int error, value = 0;

    MPI_Recv_init(in[0], SHORT, MPI_INT, left, tag, comm, &twice[0]);
    twice[1] = twice[0];
    error = MPI_Startall(2, twice);
    CHECK(error_class(error) == MPI_ERR_REQUEST, "error class %d", error_class(error));
    for (int turn = 0; turn < AGAIN; turn++) {
        if (turn > 0)
            MPI_Start(&twice[0]);
        value++;
        MPI_Send(&value, 1, MPI_INT, right, tag, comm);
        expect(&twice[0], value);
    }
    MPI_Request_free(&twice[0]);
}

/* Open MPI has freed its request when it failed, so that ours cannot be started again. */
static void case_again(int tag)
{
    MPI_Request requests[2];
    const int out[LONG] = {world_rank};
    int error;

    MPI_Recv_init(in[0], SHORT, MPI_INT, left, tag, comm, &requests[0]);
    MPI_Recv_init(in[1], SHORT, MPI_INT, left, tag + 1, comm, &requests[1]);
    MPI_Start(&requests[1]);
    MPI_Send(out, LONG, MPI_INT, right, tag + 1, comm);
    error = MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    CHECK(error_class(error) == MPI_ERR_TRUNCATE, "error class %d", error_class(error));
    error = MPI_Startall(2, requests);
    for (int i = 0; i < 2; i++)
        MPI_Send(out, SHORT, MPI_INT, right, tag + i, comm);
    expect(&requests[0], left);
    if (error == MPI_SUCCESS)
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    else
        MPI_Recv(in[1], SHORT, MPI_INT, left, tag + 1, comm, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2; i++)
        MPI_Request_free(&requests[i]);
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
    /* Before any lane is made, so that these starts are known to be native. */
    case_started_twice(MANY);
    case_again(MANY + 1);
    case_many();
    MPI_Comm_free(&comm);
    return test_fini("native_arrays");
}
