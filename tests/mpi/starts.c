/* SPDX-License-Identifier: BSD-3-Clause */
/* The native MPI cannot start a persistent request (refusing.c). Where MPI_Start says
 * so the request is inactive, and may be started again; where it was started
 * already, in a lane, the call that completes it says so. */
#include "tests/mpi/handled.h"
#include "tests/mpi/one_way.h"

extern int refused_starts, refused_sends, refused_tag;
#pragma weak refused_starts
#pragma weak refused_sends
#pragma weak refused_tag

static void is_inactive(MPI_Request *request)
{
    MPI_Status status;
    int flag = 0;

    CHECK(MPI_Test(request, &flag, &status) == MPI_SUCCESS && flag,
          "an inactive request fails");
    CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG,
          "the status is not empty");
}

static void begin(void)
{
    fill();
    MPI_Start(&in_request[0]);
}

static void end(void)
{
    CHECK(MPI_Wait(&out_request[0], MPI_STATUS_IGNORE) == MPI_SUCCESS, "send");
    CHECK(MPI_Wait(&in_request[0], MPI_STATUS_IGNORE) == MPI_SUCCESS, "receive");
    verify(0);
}

/* The first one of all is native. Then one goes from a copy, before the lane is in
 * an incarnation. */
static void refused_at_once(void)
{
    struct hope hope = {0};

    begin();
    refused_starts = 1;
    CHECK(MPI_Start(&out_request[0]) != MPI_SUCCESS, "it is not refused");
    is_inactive(&out_request[0]);
    refused_sends = 1;
    while (MPI_Start(&out_request[0]) == MPI_SUCCESS) {
        end();
        go_on(&hope, "no copy is sent");
        begin();
    }
    is_inactive(&out_request[0]);
    CHECK(MPI_Start(&out_request[0]) == MPI_SUCCESS, "it does not start again");
    end();
}

/* What was put is started natively when the incarnation ends. */
static void refused_later(void)
{
    struct hope hope = {0};
    MPI_Status status;
    uint64_t before;
    int flag, error;

    do {
        CHECK(lanes_open(), "no incarnation");
        fill();
        before = counter("lane_sends");
        MPI_Start(&out_request[0]);
        refused_starts = counter("lane_sends") > before;
        MPI_Iprobe(receiver, tags[0], comm, &flag, MPI_STATUS_IGNORE);
        handled = 0;
        error = MPI_Wait(&out_request[0], &status);
        if (error == MPI_SUCCESS)
            MPI_Recv(in[0], lengths[0], MPI_INT, sender, tags[0], comm,
                     MPI_STATUS_IGNORE);
        go_on(&hope, "nothing is put");
    } while (error == MPI_SUCCESS);
    CHECK(refused_starts == 0 && handled == 1, "handled %d times", handled);
    is_inactive(&out_request[0]);
    CHECK(lanes_open(), "no incarnation");
}

int main(int argc, char **argv)
{
    MPI_Errhandler errhandler;

    test_init(&argc, &argv, false);
    CHECK(&refused_starts != NULL && &refused_sends != NULL,
          "nothing is refused");
    one_way_init(true);
    one_way_add(42, 1);
    refused_tag = tags[0];
    lanes_init();
    MPI_Comm_create_errhandler(handler, &errhandler);
    MPI_Comm_set_errhandler(comm, errhandler);
    MPI_Errhandler_free(&errhandler);
    refused_at_once();
    refused_later();
    lanes_fini(true);
    one_way_fini();
    return test_fini("starts");
}
