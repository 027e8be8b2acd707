/* SPDX-License-Identifier: BSD-3-Clause */
/* Random programs of persistent and plain sends and receives, wildcards,
 * probes, cancels, MPI_Sendrecv and neighborhood collectives between two
 * processes (or one and itself) on communicators of several kinds, with
 * messages of a few bytes to more than any slot holds, against the one result
 * that MPI allows: with a single sender the match is unique, since messages and
 * receives are both taken in their order, whatever the times. Each message says
 * which one it is, and all its bytes are looked at.
 *
 * mixed [--seed N] [--rounds N] [--native] [--verbose]
 */
#include "tests/mpi/common.h"

enum { LANES = 3, TAGS = 4, MOST = 400, PHASES = 6, WARM = 40, ACTIVE = 64 };
enum { NOBODY = -1, CANCELLED = -2, ANY = -3 };
enum { LONGEST = 70000, EAGER = 1000 /* bytes that MPI_Send buffers */ };

static uint64_t carried;
/* Nonblocking receives bar lanes for good, also on a later communicator with
 * the same handle: some seeds have none, and the others free none. */
static bool bars;
static MPI_Comm kept[2000];
static int num_kept;

/* ---- what the other side sends, and what this one receives ---- */

struct history {
    int num_sent, tag[MOST];        /* messages of this process, in order */
    int num_theirs, theirs[MOST];   /* tags of the other's */
    int num_posted, covers[MOST];   /* receives of this process, in order */
    int result[MOST];               /* message, or CANCELLED */
};

static bool covers(int wanted, int tag)
{
    return wanted == ANY || wanted == tag;
}

/* The match that MPI allows. */
static void expect(const struct history *h, int *expected)
{
    static bool taken[MOST];

    memset(taken, 0, sizeof(taken));
    for (int r = 0; r < h->num_posted; r++) {
        expected[r] = NOBODY;
        if (h->result[r] == CANCELLED)
            continue;
        for (int m = 0; m < h->num_theirs; m++) {
            if (taken[m] || !covers(h->covers[r], h->theirs[m]))
                continue;
            taken[m] = true;
            expected[r] = m;
            break;
        }
    }
}

/* ---- messages ---- */

struct header {
    int number, bytes;
};

static int random_length(struct random *r)
{
    static const int most[] = {8, 8, 8, 48, 200, 5000, 20000, LONGEST};

    return (int)sizeof(struct header) +
           random_below(r, most[random_below(r, 8)] - 7);
}

static char byte_of(int sender, int number, int i)
{
    return (char)(number * 31 + i * 7 + (i >> 8) + sender);
}

static void fill(char *to, int sender, int number, int bytes)
{
    struct header h = {number, bytes};

    memcpy(to, &h, sizeof(h));
    for (int i = (int)sizeof(h); i < bytes; i++)
        to[i] = byte_of(sender, number, i);
}

/* The number of a message that has come. */
static int number_of(const char *from, int sender, const MPI_Status *status)
{
    struct header h;
    int bytes;

    memcpy(&h, from, sizeof(h));
    MPI_Get_count(status, MPI_BYTE, &bytes);
    CHECK(bytes == h.bytes, "message %d: %d bytes, not %d", h.number, bytes,
          h.bytes);
    for (int i = (int)sizeof(h); i < bytes; i++)
        CHECK(from[i] == byte_of(sender, h.number, i),
              "message %d of %d bytes: byte %d is wrong", h.number, bytes, i);
    return h.number;
}

/* ---- the requests of one process ---- */

struct active {
    MPI_Request request;
    int receive;  /* its number, or NOBODY for a send */
    int lane;     /* of a persistent one, else NOBODY */
    bool second;
    bool cancelled;
    bool persistent; /* for one time */
};

struct program {
    struct random *own;
    struct history h;
    int me, other;
    MPI_Comm comm, graph;
    MPI_Request sends[LANES][2], receives[LANES][2];
    bool send_busy[LANES][2], receive_busy[LANES][2];
    int send_bytes[LANES][2];
    char *send_buffer[LANES][2], *receive_buffer[LANES][2];
    char *out[MOST], *in[MOST];
    struct active active[2 * MOST];
    int num_active;
};

static void make_send(struct program *p, int lane, int k)
{
    int bytes = p->send_bytes[lane][k] = random_length(p->own);

    (random_one_in(p->own, 4) ? MPI_Ssend_init : MPI_Send_init)(
        p->send_buffer[lane][k], bytes, MPI_BYTE, p->other, lane, p->comm,
        &p->sends[lane][k]);
}

static void make_receive(struct program *p, int lane, int k)
{
    MPI_Recv_init(p->receive_buffer[lane][k], LONGEST, MPI_BYTE, p->other,
                  lane, p->comm, &p->receives[lane][k]);
}

/* ---- completing ---- */

static void got(struct program *p, int receive, const char *bytes,
                const MPI_Status *status)
{
    int m = number_of(bytes, p->other, status);

    CHECK(status->MPI_SOURCE == p->other, "source %d", status->MPI_SOURCE);
    CHECK(m >= 0 && m < p->h.num_theirs, "message %d", m);
    CHECK(status->MPI_TAG == p->h.theirs[m], "message %d has tag %d, not %d", m,
          status->MPI_TAG, p->h.theirs[m]);
    p->h.result[receive] = m;
}

static void completed(struct program *p, int i, const MPI_Status *status)
{
    struct active *a = &p->active[i];
    int flag = 0;

    if (a->persistent)
        MPI_Request_free(&a->request);
    if (a->receive != NOBODY) {
        if (a->cancelled)
            MPI_Test_cancelled(status, &flag);
        if (flag)
            p->h.result[a->receive] = CANCELLED;
        else
            got(p, a->receive,
                a->lane == NOBODY ? p->in[a->receive]
                                  : p->receive_buffer[a->lane][a->second],
                status);
        if (a->lane != NOBODY)
            p->receive_busy[a->lane][a->second] = false;
    } else if (a->lane != NOBODY) {
        p->send_busy[a->lane][a->second] = false;
    }
    p->active[i] = p->active[--p->num_active];
}

/* One look at some or all of them. */
static void look(struct program *p)
{
    MPI_Request requests[ACTIVE];
    MPI_Status statuses[ACTIVE];
    int indices[ACTIVE], n = p->num_active, num = 0, flag = 0, index;

    if (n == 0 || n > ACTIVE)
        return;
    for (int i = 0; i < n; i++)
        requests[i] = p->active[i].request;
    switch (random_below(p->own, 4)) {
    case 0:
        MPI_Testany(n, requests, &index, &flag, statuses);
        if (flag && index != MPI_UNDEFINED)
            completed(p, index, statuses);
        return;
    case 1:
        MPI_Testsome(n, requests, &num, indices, statuses);
        for (int i = 0; i < num; i++) {
            for (int k = i + 1; k < num; k++) { /* the last first */
                if (indices[k] > indices[i]) {
                    MPI_Status status = statuses[i];

                    index = indices[i];
                    indices[i] = indices[k];
                    indices[k] = index;
                    statuses[i] = statuses[k];
                    statuses[k] = status;
                }
            }
            completed(p, indices[i], &statuses[i]);
        }
        return;
    case 2:
        index = random_below(p->own, n);
        MPI_Request_get_status(requests[index], &flag, statuses);
        if (!flag)
            return;
        MPI_Wait(&requests[index], statuses);
        completed(p, index, statuses);
        return;
    default:
        index = random_below(p->own, n);
        MPI_Test(&requests[index], &flag, statuses);
        if (flag)
            completed(p, index, statuses);
        return;
    }
}

/* ---- calls ---- */

static struct active *add(struct program *p, int receive, int lane, int k)
{
    struct active *a = &p->active[p->num_active++];

    *a = (struct active){.receive = receive, .lane = lane, .second = k};
    return a;
}

/* The next message of this process, which both know the tag of. */
static void send_one(struct program *p, int tag)
{
    int m = p->h.num_sent++, k = random_below(p->own, 2), bytes;

    p->h.tag[m] = tag;
    if (tag < LANES && random_below(p->own, 4) > 0) {
        if (p->send_busy[tag][k])
            k = !k;
        if (!p->send_busy[tag][k]) {
            if (random_one_in(p->own, 20)) {
                MPI_Request_free(&p->sends[tag][k]);
                make_send(p, tag, k);
            }
            fill(p->send_buffer[tag][k], p->me, m, p->send_bytes[tag][k]);
            p->send_busy[tag][k] = true;
            MPI_Start(&p->sends[tag][k]);
            add(p, NOBODY, tag, k)->request = p->sends[tag][k];
            return;
        }
    }
    bytes = random_length(p->own);
    p->out[m] = allocate((size_t)bytes);
    fill(p->out[m], p->me, m, bytes);
    if (p->me != p->other && bytes <= EAGER && random_one_in(p->own, 3))
        MPI_Send(p->out[m], bytes, MPI_BYTE, p->other, tag, p->comm);
    else
        MPI_Isend(p->out[m], bytes, MPI_BYTE, p->other, tag, p->comm,
                  &add(p, NOBODY, NOBODY, 0)->request);
}

static int post(struct program *p, int tag)
{
    p->h.covers[p->h.num_posted] = tag;
    p->h.result[p->h.num_posted] = NOBODY;
    p->in[p->h.num_posted] = allocate(LONGEST);
    return p->h.num_posted++;
}

static void irecv(struct program *p, int tag)
{
    int r = post(p, tag);
    int source = random_one_in(p->own, 3) ? MPI_ANY_SOURCE : p->other;
    struct active *a = add(p, r, NOBODY, 0);

    a->persistent = random_one_in(p->own, 3);
    if (a->persistent) {
        MPI_Recv_init(p->in[r], LONGEST, MPI_BYTE, source,
                      tag == ANY ? MPI_ANY_TAG : tag, p->comm, &a->request);
        MPI_Start(&a->request);
    } else {
        MPI_Irecv(p->in[r], LONGEST, MPI_BYTE, source,
                  tag == ANY ? MPI_ANY_TAG : tag, p->comm, &a->request);
    }
}

static void receive_one(struct program *p)
{
    int tag = random_below(p->own, TAGS), k = random_below(p->own, 2), r;

    if (bars && random_one_in(p->own, 6)) {
        irecv(p, random_one_in(p->own, 3) ? ANY : tag);
        return;
    }
    if (tag == LANES || p->receive_busy[tag][k])
        return;
    if (random_one_in(p->own, 20)) {
        MPI_Request_free(&p->receives[tag][k]);
        make_receive(p, tag, k);
    }
    r = post(p, tag);
    p->receive_busy[tag][k] = true;
    MPI_Start(&p->receives[tag][k]);
    add(p, r, tag, k)->request = p->receives[tag][k];
}

/* A message that a probe sees is received at once. */
static void probe_one(struct program *p)
{
    int tag = random_one_in(p->own, 2) ? MPI_ANY_TAG
                                       : random_below(p->own, TAGS);
    int source = random_one_in(p->own, 3) ? MPI_ANY_SOURCE : p->other;
    int flag = 0, r;
    MPI_Status status;
    MPI_Message message;

    if (random_one_in(p->own, 2)) {
        MPI_Iprobe(source, tag, p->comm, &flag, &status);
        if (!flag)
            return;
        r = post(p, status.MPI_TAG);
        MPI_Recv(p->in[r], LONGEST, MPI_BYTE, status.MPI_SOURCE,
                 status.MPI_TAG, p->comm, &status);
    } else {
        MPI_Improbe(source, tag, p->comm, &flag, &message, &status);
        if (!flag)
            return;
        r = post(p, tag == MPI_ANY_TAG ? ANY : tag);
        MPI_Mrecv(p->in[r], LONGEST, MPI_BYTE, &message, &status);
    }
    got(p, r, p->in[r], &status);
}

static void cancel_one(struct program *p)
{
    for (int i = 0; i < p->num_active; i++) {
        struct active *a = &p->active[i];

        if (a->receive == NOBODY || a->lane == NOBODY || a->cancelled)
            continue;
        MPI_Cancel(&a->request);
        a->cancelled = true;
        return;
    }
}

static void neighbors(struct program *p)
{
    int out = p->me + 1, in = 0;

    MPI_Neighbor_alltoall(&out, 1, MPI_INT, &in, 1, MPI_INT, p->graph);
    CHECK(in == p->other + 1, "neighbor %d", in);
}

/* ---- rounds ---- */

/* Until incarnations are likely to be open. */
static void warm_up(struct program *p)
{
    for (int i = 0; i < WARM; i++) {
        MPI_Request requests[2 * LANES];

        MPI_Status statuses[2 * LANES];

        for (int lane = 0; lane < LANES; lane++) {
            requests[lane] = p->receives[lane][0];
            requests[LANES + lane] = p->sends[lane][0];
            fill(p->send_buffer[lane][0], p->me, -7 - i,
                 p->send_bytes[lane][0]);
        }
        MPI_Startall(2 * LANES, requests);
        MPI_Waitall(2 * LANES, requests, statuses);
        for (int lane = 0; lane < LANES; lane++) {
            int m = number_of(p->receive_buffer[lane][0], p->other,
                              &statuses[lane]);

            CHECK(m == -7 - i, "warming up: %d", m);
        }
    }
}

/* `shared` gives the tags of both sides' messages, the same numbers in both
 * processes; all else is each one's own. */
static void run_phase(struct program *p, struct random *shared)
{
    int tags[2][24], num[2], sent = 0;

    for (int side = 0; side < 2; side++) {
        num[side] = random_below(shared, 24);
        for (int i = 0; i < num[side]; i++)
            tags[side][i] = random_below(shared, TAGS);
    }
    if (p->me == p->other)
        num[1] = num[0];
    for (int i = 0; i < num[p->me != p->other ? !p->me : 0]; i++)
        p->h.theirs[p->h.num_theirs++] =
            tags[p->me != p->other ? !p->me : 0][i];
    while (sent < num[p->me]) {
        switch (random_below(p->own, 8)) {
        case 0:
        case 1:
        case 2:
            send_one(p, tags[p->me][sent++]);
            break;
        case 3:
        case 4:
            receive_one(p);
            break;
        case 5:
            if (random_one_in(p->own, 6))
                probe_one(p);
            break;
        case 6:
            if (random_one_in(p->own, 20))
                cancel_one(p);
            break;
        default:
            look(p);
            break;
        }
    }
    if (random_one_in(shared, 2))
        neighbors(p);
}

/* Receive what is left, in ways that can only end when it is all there. */
static void drain(struct program *p)
{
    /* More receives than messages on each tag would wait for ever: those that
     * nothing matches are cancelled. */
    static int expected[MOST];
    int left;

    MPI_Barrier(p->comm);
    for (int i = p->num_active - 1; i >= 0; i--) {
        MPI_Status status;

        if (!p->active[i].cancelled)
            continue;
        MPI_Wait(&p->active[i].request, &status);
        completed(p, i, &status);
    }
    expect(&p->h, expected);
    left = p->h.num_theirs;
    for (int r = 0; r < p->h.num_posted; r++)
        left -= expected[r] != NOBODY;
    for (int i = 0; i < left; i++) {
        int r = post(p, ANY);
        MPI_Status status;

        MPI_Recv(p->in[r], LONGEST, MPI_BYTE, p->other, MPI_ANY_TAG, p->comm,
                 &status);
        got(p, r, p->in[r], &status);
    }
    for (int i = 0; i < p->num_active; i++) {
        struct active *a = &p->active[i];

        if (a->receive == NOBODY || expected[a->receive] != NOBODY ||
            a->cancelled)
            continue;
        MPI_Cancel(&a->request);
        a->cancelled = true;
    }
    while (p->num_active > 0) {
        MPI_Status status;

        MPI_Wait(&p->active[0].request, &status);
        completed(p, 0, &status);
    }
}

/* Both processes, when nothing else is under way. */
static void exchange(struct program *p, struct random *shared)
{
    int tag = random_below(shared, TAGS), m = p->h.num_sent++;
    int r = post(p, tag), bytes = random_length(p->own);
    MPI_Status status;

    p->h.tag[m] = tag;
    p->h.theirs[p->h.num_theirs++] = tag;
    if (random_one_in(shared, 2)) {
        p->out[m] = allocate((size_t)bytes);
        fill(p->out[m], p->me, m, bytes);
        MPI_Sendrecv(p->out[m], bytes, MPI_BYTE, p->other, tag, p->in[r],
                     LONGEST, MPI_BYTE,
                     random_one_in(p->own, 3) ? MPI_ANY_SOURCE : p->other, tag,
                     p->comm, &status);
    } else {
        fill(p->in[r], p->me, m, LONGEST);
        MPI_Sendrecv_replace(p->in[r], LONGEST, MPI_BYTE, p->other, tag,
                             p->other, tag, p->comm, &status);
    }
    got(p, r, p->in[r], &status);
}

static void check(const struct program *p)
{
    static int expected[MOST];

    expect(&p->h, expected);
    for (int r = 0; r < p->h.num_posted; r++) {
        CHECK(p->h.result[r] == CANCELLED || p->h.result[r] == expected[r],
              "receive %d of tag %d got message %d, not %d", r, p->h.covers[r],
              p->h.result[r], expected[r]);
        CHECK(p->h.result[r] != NOBODY, "receive %d is lost", r);
    }
}

/* In some of them this process has another rank than in MPI_COMM_WORLD. */
static void make_comm(struct random *shared, MPI_Comm *comm)
{
    int periodic = 1;

    switch (random_below(shared, 4)) {
    case 0:
        MPI_Comm_dup(MPI_COMM_WORLD, comm);
        return;
    case 1:
        MPI_Comm_split(MPI_COMM_WORLD, 7, random_one_in(shared, 2) ? -world_rank
                                                                   : world_rank,
                       comm);
        return;
    case 2:
        MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &periodic, 0, comm);
        return;
    default:
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -world_rank,
                            MPI_INFO_NULL, comm);
        return;
    }
}

static void make_requests(struct program *p)
{
    for (int lane = 0; lane < LANES; lane++) {
        for (int k = 0; k < 2; k++) {
            p->send_buffer[lane][k] = allocate(LONGEST);
            p->receive_buffer[lane][k] = allocate(LONGEST);
            make_send(p, lane, k);
            make_receive(p, lane, k);
        }
    }
}

static void free_all(struct program *p)
{
    for (int lane = 0; lane < LANES; lane++) {
        for (int k = 0; k < 2; k++) {
            MPI_Request_free(&p->sends[lane][k]);
            MPI_Request_free(&p->receives[lane][k]);
            free(p->send_buffer[lane][k]);
            free(p->receive_buffer[lane][k]);
        }
    }
    for (int i = 0; i < MOST; i++) {
        free(p->out[i]);
        free(p->in[i]);
    }
    MPI_Comm_free(&p->graph);
    if (bars && num_kept < (int)(sizeof(kept) / sizeof(kept[0])))
        kept[num_kept++] = p->comm;
    else
        MPI_Comm_free(&p->comm);
    free(p);
}

static void run_round(struct random *shared, struct random *own)
{
    struct program *p = allocate(sizeof(*p));
    int phases = 1 + random_below(shared, PHASES);
    uint64_t before = counter("lane_receives");

    p->own = own;
    make_comm(shared, &p->comm);
    MPI_Comm_rank(p->comm, &p->me);
    p->other = world_size - 1 - p->me;
    MPI_Dist_graph_create_adjacent(p->comm, 1, &p->other, MPI_UNWEIGHTED, 1,
                                   &p->other, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                   &p->graph);
    make_requests(p);
    for (int i = 0; i < phases; i++) {
        warm_up(p);
        for (int n = random_below(shared, 3); n > 0; n--)
            exchange(p, shared);
        run_phase(p, shared);
        drain(p);
        MPI_Barrier(p->comm);
        for (int n = random_below(shared, 2); n > 0; n--)
            exchange(p, shared);
    }
    check(p);
    carried += counter("lane_receives") - before;
    free_all(p);
}

int main(int argc, char **argv)
{
    uint64_t seed = (uint64_t)number_option(argc, argv, "--seed", 1);
    long rounds = number_option(argc, argv, "--rounds", 60);

    test_init(&argc, &argv, has_option(argc, argv, "--native"));
    CHECK(world_size <= 2, "for one process or two");
    bars = seed % 2 == 0;
    for (long i = 0; i < rounds; i++) {
        struct random shared = {.state = seed * 1000003 + (uint64_t)i};
        struct random own = {.state = (seed * 1000003 + (uint64_t)i) * 7919 +
                                      (uint64_t)world_rank};

        if (has_option(argc, argv, "--verbose") && world_rank == 0)
            fprintf(stderr, "round %ld\n", i);
        run_round(&shared, &own);
    }
    while (num_kept > 0)
        MPI_Comm_free(&kept[--num_kept]);
    /* A test that passed natively has failed. */
    CHECK(!is_accelerated() || carried > (uint64_t)rounds * LANES,
          "%" PRIu64 " messages through lanes", carried);
    CHECK(counter("requests") == 0, "requests are left");
    if (is_accelerated() && has_option(argc, argv, "--verbose"))
        fprintf(stderr, "%" PRIu64 " through lanes, %" PRIu64 " native, %" PRIu64
                " incarnations, %" PRIu64 " stops\n", counter("lane_receives"),
                counter("lane_native"), counter("incarnations"), counter("stops"));
    return test_fini("mixed");
}
