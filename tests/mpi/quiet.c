/* SPDX-License-Identifier: BSD-3-Clause */
/* What a synchronous native send tells of its lane (docs/persistent.md, O1), and a receive (N3):
 * mpi/native_message.c over an MPI library that says how each one ends, since
 * none at hand cancels sends. */
#include "mpi/message.h"
#include "mpi/native.h"
#include "tests/model/check.h"

static int error_of_test, cancelled;

/* ---- the MPI library ---- */

int PMPI_Start(MPI_Request *request)
{
    (void)request;
    return MPI_SUCCESS;
}

int PMPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    (void)request;
    (void)status;
    *flag = 1;
    return error_of_test;
}

int PMPI_Wait(MPI_Request *request, MPI_Status *status)
{
    (void)request;
    (void)status;
    return error_of_test;
}

int PMPI_Test_cancelled(const MPI_Status *status, int *flag)
{
    (void)status;
    *flag = cancelled;
    return MPI_SUCCESS;
}

/* No message goes from a copy. */
void *rs_native(const char *name)
{
    (void)name;
    return NULL;
}

/* ---- what the rest of the backend would do ---- */

unsigned rs_num_pairs, rs_num_open;
_Atomic unsigned rs_num_quick;
bool rs_unfenced, rs_cohort_started;

static unsigned looks_at_sync;

bool rs_lane_is_quiet(struct rs_lane *lane)
{
    looks_at_sync++;
    return lane->quiet;
}

static bool is_unbarred;

void rs_lane_unbar(struct rs_lane *lane, uint64_t covers)
{
    is_unbarred = covers == lane->covers;
}

void rs_lane_want(struct rs_lane *lane, uint64_t bytes, unsigned num)
{
    (void)lane;
    (void)bytes;
    (void)num;
    CHECK(false);
}

void rs_incarnation_is_due(struct rs_pair *pair)
{
    (void)pair;
}

void rs_incarnations_look(void)
{
}

void rs_progress_at_times(void)
{
}

bool rs_lane_is_barred(const struct rs_lane *lane)
{
    (void)lane;
    return false;
}

bool rs_incarnation_is_tried(const struct rs_pair *pair)
{
    (void)pair;
    return true;
}

void rs_incarnation_foresee(struct rs_pair *pair)
{
    (void)pair;
}

void rs_incarnation_lose(struct rs_pair *pair, bool begins)
{
    (void)pair;
    (void)begins;
}

/* Only for what cannot be started. */
void rs_message_complete(struct rs_message *message, uint64_t bytes, int error)
{
    (void)message;
    (void)bytes;
    (void)error;
    CHECK(false);
}

void rs_message_pack(const struct rs_message *message, char *to)
{
    (void)message;
    (void)to;
}

bool rs_gpu_pack(const struct rs_message *message, char *to)
{
    (void)message;
    (void)to;
    return false;
}

static uint64_t now;

uint64_t rs_now_ns(void)
{
    return now;
}

/* ---- cases ---- */

enum { BY_TEST, BY_WAIT, WAYS };

/* Whether a synchronous send that ends so leaves its lane quiet. */
static bool is_quiet_after(int error, int is_cancelled, int way)
{
    struct rs_name name = {.comm = MPI_COMM_NULL}; /* nor has it a handler */
    struct rs_pair pair = {.name = &name};
    struct rs_lane lane = {.pair = &pair};
    struct rs_message message = {.lane = &lane, .sends = true,
                                 .synchronous = true};
    struct rs_request request = {.message = &message};

    message.request = &request;
    error_of_test = error;
    cancelled = is_cancelled;
    rs_message_start_natively(&request);
    CHECK(request.state == RS_NATIVE && !lane.quiet);
    if (way == BY_TEST)
        CHECK(rs_message_poll_native(&request));
    else
        rs_message_wait_native(&request);
    CHECK(request.state == RS_COMPLETE && request.error == error);
    return lane.quiet;
}

/* Whether a native receive that is over shows that those before it are, though the call that was
 * to start it may have failed. */
static bool is_unbarred_after(bool in_doubt)
{
    struct rs_name name = {.comm = MPI_COMM_NULL};
    struct rs_pair pair = {.name = &name};
    struct rs_lane lane = {.pair = &pair, .barred = true, .covers = 1};
    struct rs_message message = {.lane = &lane};
    struct rs_request request = {.message = &message};

    message.request = &request;
    error_of_test = MPI_SUCCESS;
    cancelled = 0;
    rs_message_start_in_array(&request);
    CHECK(request.state == RS_NATIVE && lane.posted == 1);
    if (in_doubt)
        rs_message_is_in_doubt(&message);
    rs_message_wait_native(&request);
    CHECK(request.state == RS_COMPLETE && lane.posted == 0);
    return is_unbarred;
}

/* A synchronous message of which nobody has found that it is over must not keep the lane from having
 * another one, however many lanes there are. */
static void case_looks_at_start(void)
{
    struct rs_name name = {.comm = MPI_COMM_NULL};
    struct rs_pair pair = {.name = &name};
    struct rs_lane lane = {.pair = &pair, .sync = MPI_REQUEST_NULL};
    struct rs_message message = {.lane = &lane, .sends = true};
    struct rs_request request = {.message = &message};

    message.request = &request;
    looks_at_sync = 0;
    rs_message_start_natively(&request);
    CHECK(request.state == RS_NATIVE && looks_at_sync == 0);
    request.state = RS_INACTIVE;
    memset(&lane.sync, 1, sizeof(lane.sync));
    rs_message_start_natively(&request);
    CHECK(request.state == RS_NATIVE && looks_at_sync == 1);
}

/* Of copies that are waited for one after the other only the first one is waited for in vain. */
static void case_given_up(void)
{
    enum { COPIES = 3, PATIENCE_NS = 1600000 };
    struct rs_name name = {.comm = MPI_COMM_NULL};
    struct rs_pair pair = {.name = &name};
    struct rs_lane lanes[COPIES];
    struct rs_message messages[COPIES];
    struct rs_request requests[COPIES];

    for (int i = 0; i < COPIES; i++) {
        lanes[i] = (struct rs_lane){.pair = &pair, .active = 1, .sync_number = 1};
        memset(&lanes[i].sync, 1, sizeof(lanes[i].sync)); /* not over */
        messages[i] = (struct rs_message){.lane = &lanes[i], .sends = true, .is_copied = true,
                                          .native_number = 1, .request = &requests[i]};
        requests[i] = (struct rs_request){.message = &messages[i], .state = RS_NATIVE};
        lanes[i].started = ++pair.native_starts;
        pair.active++;
        if (i == 0)
            continue;
        now = 1;
        if (i == 1) {
            CHECK(!rs_message_poll_native(&requests[0]));
            now += PATIENCE_NS;
            CHECK(!rs_message_poll_native(&requests[0]));
            now++;
            CHECK(rs_message_poll_native(&requests[0]));
            CHECK(rs_message_poll_native(&requests[1]));
        } else {
            CHECK(!rs_message_poll_native(&requests[2])); /* it was started later */
        }
    }
}

int main(void)
{
    for (int way = 0; way < WAYS; way++) {
        CHECK(is_quiet_after(MPI_SUCCESS, 0, way));
        CHECK(!is_quiet_after(MPI_SUCCESS, 1, way));
        CHECK(!is_quiet_after(MPI_ERR_OTHER, 0, way));
    }
    case_looks_at_start();
    case_given_up();
    CHECK(is_unbarred_after(false) && !is_unbarred_after(true));
    printf("quiet: ok\n");
    return 0;
}
