/* SPDX-License-Identifier: BSD-3-Clause */
/* Every kind of plain call beside messages of a lane in an incarnation: before,
 * between and after them. Which receive gets which message is known, since one
 * process sends all, and is the same natively.
 *
 * Three messages each time. Sends: one of the three is plain, with the lane's
 * tag, with that of another lane, or with one that no lane has; persistent
 * receives wait for them, or plain receives with MPI_ANY_TAG take them in their
 * order. Receives: all three are the lane's, and one of the receives is plain,
 * exact or with wildcards; they are posted before anything is sent, or later.
 *
 * plain [--native] [--verbose] */
#include "tests/mpi/flags.h"
#include "tests/mpi/one_way.h"

enum { LANE, OTHER_LANE, LANES, NO_LANE = LANES /* tags */, NUM_TAGS };
enum { DEPTH = 3 /* requests of a lane at each side, messages of a case */ };
enum { POSTED, SENT /* flags */ };

static bool is_verbose;

static void announce(const char *what, int place, int tag, int mode)
{
    if (is_verbose && world_rank == 0)
        fprintf(stderr, "%s at %d, tag %d, mode %d\n", what, place, tag, mode);
}

/* ---- plain sends ---- */

typedef void send_function(int *from, int tag, MPI_Request *request);

#define BLOCKING(Name)                                                       \
    static void send_##Name(int *from, int tag, MPI_Request *request)        \
    {                                                                        \
        (void)request;                                                       \
        MPI_##Name(from, 1, MPI_INT, receiver, tag, comm);                   \
    }
#define NONBLOCKING(Name)                                                    \
    static void send_##Name(int *from, int tag, MPI_Request *request)        \
    {                                                                        \
        MPI_##Name(from, 1, MPI_INT, receiver, tag, comm, request);          \
    }
/* Nothing is received. */
#define BOTH(Name, ...)                                                      \
    static void send_##Name(int *from, int tag, MPI_Request *request)        \
    {                                                                        \
        int to;                                                              \
                                                                             \
        (void)request;                                                       \
        (void)to;                                                            \
        MPI_##Name(from, 1, MPI_INT, receiver, tag, __VA_ARGS__);            \
    }
#define NO_INTS &to, 1, MPI_INT, MPI_PROC_NULL, 0, comm
#define SENDS(c)                                                             \
    BLOCKING(Send##c)                                                        \
    BLOCKING(Bsend##c)                                                       \
    BLOCKING(Ssend##c)                                                       \
    BLOCKING(Rsend##c)                                                       \
    NONBLOCKING(Isend##c)                                                    \
    NONBLOCKING(Ibsend##c)                                                   \
    NONBLOCKING(Issend##c)                                                   \
    NONBLOCKING(Irsend##c)                                                   \
    BOTH(Sendrecv##c, NO_INTS, MPI_STATUS_IGNORE)                            \
    BOTH(Sendrecv_replace##c, MPI_PROC_NULL, 0, comm, MPI_STATUS_IGNORE)
#define SEND_KINDS(c)                                                        \
    {"Send" #c, send_Send##c, false}, {"Bsend" #c, send_Bsend##c, false},    \
        {"Ssend" #c, send_Ssend##c, false},                                  \
        {"Rsend" #c, send_Rsend##c, true},                                   \
        {"Isend" #c, send_Isend##c, false},                                  \
        {"Ibsend" #c, send_Ibsend##c, false},                                \
        {"Issend" #c, send_Issend##c, false},                                \
        {"Irsend" #c, send_Irsend##c, true},                                 \
        {"Sendrecv" #c, send_Sendrecv##c, false},                            \
        {"Sendrecv_replace" #c, send_Sendrecv_replace##c, false}

SENDS()
#if MPI_VERSION >= 4
SENDS(_c)
BOTH(Isendrecv, NO_INTS, request)
BOTH(Isendrecv_replace, MPI_PROC_NULL, 0, comm, request)
BOTH(Isendrecv_c, NO_INTS, request)
BOTH(Isendrecv_replace_c, MPI_PROC_NULL, 0, comm, request)
#endif

static const struct send_kind {
    const char *name;
    send_function *send;
    bool ready; /* only when its receive has been posted */
} send_kinds[] = {
    SEND_KINDS(),
#if MPI_VERSION >= 4
    SEND_KINDS(_c),
    {"Isendrecv", send_Isendrecv, false},
    {"Isendrecv_replace", send_Isendrecv_replace, false},
    {"Isendrecv_c", send_Isendrecv_c, false},
    {"Isendrecv_replace_c", send_Isendrecv_replace_c, false},
#endif
};

struct send_case {
    const struct send_kind *kind;
    int place, tag;
    bool posted; /* persistent receives, before the sends; or with any tag */
};

static int tag_at(const struct send_case *c, int i)
{
    return i == c->place ? c->tag : LANE;
}

static void send_three(const struct send_case *c)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int plain, lane = 0;

    if (c->posted)
        flag_await(POSTED, sequence);
    for (int i = 0; i < DEPTH; i++) {
        if (i == c->place) {
            plain = value(i);
            flag_raise(SENT, sequence); /* or it may wait for ever */
            c->kind->send(&plain, c->tag, &request);
        } else {
            *out[lane] = value(i);
            MPI_Start(&out_request[lane++]);
        }
    }
    MPI_Waitall(lane, out_request, MPI_STATUSES_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static MPI_Request without_lane;
static int got_without_lane;

static void post_three(const struct send_case *c)
{
    int num[LANES] = {0};

    for (int i = 0; i < DEPTH; i++) {
        int tag = tag_at(c, i);

        if (tag == NO_LANE)
            MPI_Irecv(&got_without_lane, 1, MPI_INT, sender, tag, comm,
                      &without_lane);
        else
            MPI_Start(&in_request[tag * DEPTH + num[tag]++]);
    }
    flag_raise(POSTED, sequence);
}

static void finish_three(const struct send_case *c)
{
    int num[LANES] = {0};

    for (int i = 0; i < DEPTH; i++) {
        int tag = tag_at(c, i), *got = &got_without_lane;
        MPI_Request *request = &without_lane;
        MPI_Status status;

        if (tag != NO_LANE) {
            got = in[tag * DEPTH + num[tag]];
            request = &in_request[tag * DEPTH + num[tag]++];
        }
        MPI_Wait(request, &status);
        CHECK(*got == value(i) && status.MPI_TAG == tag &&
                  status.MPI_SOURCE == sender,
              "%s at %d, tag %d: message %d is %d", c->kind->name, c->place,
              c->tag, i, *got - value(0));
    }
}

static void receive_three(const struct send_case *c)
{
    flag_await(SENT, sequence);
    for (int i = 0; i < DEPTH; i++) {
        MPI_Status status;
        int got;

        MPI_Recv(&got, 1, MPI_INT, sender, MPI_ANY_TAG, comm, &status);
        CHECK(got == value(i) && status.MPI_TAG == tag_at(c, i),
              "%s at %d, tag %d: message %d is %d, with tag %d", c->kind->name,
              c->place, c->tag, i, got - value(0), status.MPI_TAG);
    }
}

static void send_case(const struct send_case *c)
{
    struct hope hope = {0};
    uint64_t before;

    announce(c->kind->name, c->place, c->tag, c->posted);
    do {
        have_lanes();
        before = look();
        sequence++;
        if (receives && c->posted)
            post_three(c);
        if (sends)
            send_three(c);
        if (receives && c->posted)
            finish_three(c);
        else if (receives)
            receive_three(c);
        go_on(&hope, c->kind->name);
        lanes_fini(false);
    } while (!all_have(&hope, were_open(before)));
}

static void plain_sends(void)
{
    enum { NUM = sizeof(send_kinds) / sizeof(send_kinds[0]) };

    for (int i = 0; i < NUM * DEPTH * NUM_TAGS * 2; i++) {
        struct send_case c = {&send_kinds[i % NUM], i / NUM % DEPTH,
                              i / NUM / DEPTH % NUM_TAGS,
                              i / NUM / DEPTH / NUM_TAGS};

        /* Who is alone posts first, or waits for itself. */
        if (c.posted || (!c.kind->ready && world_size > 1))
            send_case(&c);
    }
}

/* ---- plain receives ---- */

typedef void receive_function(int *to, int source, int tag,
                              MPI_Request *request);

static void receive_Recv(int *to, int source, int tag, MPI_Request *request)
{
    (void)request;
    MPI_Recv(to, 1, MPI_INT, source, tag, comm, MPI_STATUS_IGNORE);
}

static void receive_Irecv(int *to, int source, int tag, MPI_Request *request)
{
    MPI_Irecv(to, 1, MPI_INT, source, tag, comm, request);
}

/* A persistent one of its own, which may have wildcards. */
static void receive_Start(int *to, int source, int tag, MPI_Request *request)
{
    MPI_Recv_init(to, 1, MPI_INT, source, tag, comm, request);
    MPI_Start(request);
}

static void receive_Probe(int *to, int source, int tag, MPI_Request *request)
{
    MPI_Status status;
    int count;

    (void)request;
    MPI_Probe(source, tag, comm, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(count == 1, "%d", count);
    MPI_Recv(to, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, comm,
             MPI_STATUS_IGNORE);
}

static void receive_Iprobe(int *to, int source, int tag, MPI_Request *request)
{
    MPI_Status status;
    int flag = 0;

    while (!flag)
        MPI_Iprobe(source, tag, comm, &flag, &status);
    receive_Irecv(to, status.MPI_SOURCE, status.MPI_TAG, request);
}

static void receive_Mprobe(int *to, int source, int tag, MPI_Request *request)
{
    MPI_Message message;

    (void)request;
    MPI_Mprobe(source, tag, comm, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(to, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
}

static void receive_Improbe(int *to, int source, int tag, MPI_Request *request)
{
    MPI_Message message;
    int flag = 0;

    while (!flag)
        MPI_Improbe(source, tag, comm, &flag, &message, MPI_STATUS_IGNORE);
    MPI_Imrecv(to, 1, MPI_INT, &message, request);
}

/* Nothing is sent. */
static void receive_Sendrecv(int *to, int source, int tag, MPI_Request *request)
{
    int from = 0;

    (void)request;
    MPI_Sendrecv(&from, 1, MPI_INT, MPI_PROC_NULL, 0, to, 1, MPI_INT, source,
                 tag, comm, MPI_STATUS_IGNORE);
}

static void receive_Sendrecv_replace(int *to, int source, int tag,
                                     MPI_Request *request)
{
    (void)request;
    MPI_Sendrecv_replace(to, 1, MPI_INT, MPI_PROC_NULL, 0, source, tag, comm,
                         MPI_STATUS_IGNORE);
}

static void cancel(MPI_Request *request)
{
    MPI_Status status;
    int flag;

    MPI_Cancel(request);
    MPI_Wait(request, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag, "not cancelled though nothing was sent");
}

static void receive_Cancel(int *to, int source, int tag, MPI_Request *request)
{
    receive_Irecv(to, source, tag, request);
    cancel(request);
}

static void receive_Start_cancel(int *to, int source, int tag,
                                 MPI_Request *request)
{
    receive_Start(to, source, tag, request);
    cancel(request);
    MPI_Request_free(request);
}

#if MPI_VERSION >= 4
static void receive_Recv_c(int *to, int source, int tag, MPI_Request *request)
{
    (void)request;
    MPI_Recv_c(to, 1, MPI_INT, source, tag, comm, MPI_STATUS_IGNORE);
}

static void receive_Irecv_c(int *to, int source, int tag, MPI_Request *request)
{
    MPI_Irecv_c(to, 1, MPI_INT, source, tag, comm, request);
}

static void receive_Isendrecv(int *to, int source, int tag,
                              MPI_Request *request)
{
    static int from;

    MPI_Isendrecv(&from, 1, MPI_INT, MPI_PROC_NULL, 0, to, 1, MPI_INT, source,
                  tag, comm, request);
}

static void receive_Isendrecv_replace(int *to, int source, int tag,
                                      MPI_Request *request)
{
    MPI_Isendrecv_replace(to, 1, MPI_INT, MPI_PROC_NULL, 0, source, tag, comm,
                          request);
}
#endif

enum { WAITS, POSTS, CANCELS };

static const struct receive_kind {
    const char *name;
    receive_function *receive;
    int what; /* WAITS: it has its message when the function ends */
} receive_kinds[] = {
    {"Recv", receive_Recv, WAITS},
    {"Irecv", receive_Irecv, POSTS},
    {"Start", receive_Start, POSTS},
    {"Probe", receive_Probe, WAITS},
    {"Iprobe", receive_Iprobe, WAITS},
    {"Mprobe", receive_Mprobe, WAITS},
    {"Improbe", receive_Improbe, WAITS},
    {"Sendrecv", receive_Sendrecv, WAITS},
    {"Sendrecv_replace", receive_Sendrecv_replace, WAITS},
    {"Irecv, Cancel", receive_Cancel, CANCELS},
    {"Start, Cancel", receive_Start_cancel, CANCELS},
#if MPI_VERSION >= 4
    {"Recv_c", receive_Recv_c, WAITS},
    {"Irecv_c", receive_Irecv_c, POSTS},
    {"Isendrecv", receive_Isendrecv, POSTS},
    {"Isendrecv_replace", receive_Isendrecv_replace, POSTS},
#endif
};

struct receive_case {
    const struct receive_kind *kind;
    int place;
    bool any_source, any_tag;
    bool late; /* nothing is sent before the receives are posted */
};

static void send_lane(const struct receive_case *c)
{
    if (c->late)
        flag_await(POSTED, sequence);
    for (int i = 0; i < DEPTH; i++)
        *out[i] = value(i);
    MPI_Startall(DEPTH, out_request);
    flag_raise(SENT, sequence);
    if (!receives)
        MPI_Waitall(DEPTH, out_request, MPI_STATUSES_IGNORE);
}

static void receive_lane(const struct receive_case *c)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int plain = -1, lane = 0, got[DEPTH];
    bool takes = c->kind->what != CANCELS;

    if (!c->late)
        flag_await(SENT, sequence);
    for (int i = 0; i < DEPTH; i++) {
        if (i != c->place) {
            *in[lane] = -1;
            MPI_Start(&in_request[lane++]);
            continue;
        }
        if (c->kind->what == WAITS)
            flag_raise(POSTED, sequence);
        c->kind->receive(&plain, c->any_source ? MPI_ANY_SOURCE : sender,
                         c->any_tag ? MPI_ANY_TAG : LANE, &request);
    }
    flag_raise(POSTED, sequence);
    MPI_Waitall(lane, in_request, MPI_STATUSES_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (c->kind->receive == receive_Start)
        MPI_Request_free(&request);
    if (!takes)
        MPI_Recv(&plain, 1, MPI_INT, sender, LANE, comm, MPI_STATUS_IGNORE);
    lane = 0;
    for (int i = 0; i < DEPTH; i++)
        got[i] = i == (takes ? c->place : DEPTH - 1) ? plain : *in[lane++];
    for (int i = 0; i < DEPTH; i++)
        CHECK(got[i] == value(i), "%s at %d: receive %d has message %d",
              c->kind->name, c->place, i, got[i] - value(0));
}

static void receive_case(const struct receive_case *c)
{
    struct hope hope = {0};
    uint64_t before;

    announce(c->kind->name, c->place, c->any_source + 2 * c->any_tag, c->late);
    do {
        have_lanes();
        before = look();
        sequence++;
        if (sends)
            send_lane(c);
        if (receives)
            receive_lane(c);
        if (sends && receives)
            MPI_Waitall(DEPTH, out_request, MPI_STATUSES_IGNORE);
        go_on(&hope, c->kind->name);
        lanes_fini(true);
    } while (!all_have(&hope, were_open(before)));
}

static void plain_receives(void)
{
    enum { NUM = sizeof(receive_kinds) / sizeof(receive_kinds[0]) };

    for (int i = 0; i < NUM * DEPTH * 8; i++) {
        int rest = i / NUM / DEPTH;
        struct receive_case c = {&receive_kinds[i % NUM], i / NUM % DEPTH,
                                 rest % 2, rest / 2 % 2, rest / 4};

        /* What waits cannot be first in a process that is alone, and what is
         * there may not be cancelled. */
        if (c.late ? world_size > 1 : c.kind->what != CANCELS)
            receive_case(&c);
    }
}

int main(int argc, char **argv)
{
    static char space[1 << 16];
    int bytes = sizeof(space);
    void *at = space;

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    one_way_init(is_accelerated());
    for (int i = 0; i < LANES * DEPTH; i++)
        one_way_add(i / DEPTH, 1);
    is_verbose = has_option(argc, argv, "--verbose");
    flags_init();
    MPI_Buffer_attach(space, sizeof(space));
    plain_sends();
    plain_receives();
    MPI_Buffer_detach(&at, &bytes);
    one_way_fini();
    flags_fini();
    return test_fini("plain");
}
