/* SPDX-License-Identifier: BSD-3-Clause */
/* One process of a random program: communicators, requests, messages, and what
 * is completed. For programs.c. */
#ifndef TESTS_MPI_PROGRAMS_RUN_H
#define TESTS_MPI_PROGRAMS_RUN_H

#include "tests/mpi/library.h"
#include "tests/mpi/programs_plan.h"

enum { MOST_LANES = 2 * MOST_RANKS * LANE_TAGS, MOST_ACTIVE = 512 };
enum { LONGEST = 70000, EAGER = 1000 /* bytes that MPI_Send buffers */ };
enum { STRIDE = 2 /* blocks of 4 bytes to the next one */ };
enum { MOST_KEPT = 900 };

/* One of the two requests of a lane, or the wildcard that is kept. */
struct end {
    struct lane *lane; /* NULL: of none */
    MPI_Request request;
    bool busy, strided;
    int bytes; /* of a send */
    char *buffer;
};

struct lane {
    int peer, tag;
    bool sends, whole; /* whole: persistent on both sides */
    struct end ends[2];
};

struct active {
    MPI_Request request;
    int receive; /* its number, or -1 for a send */
    struct end *end;
    char *buffer; /* of a receive without an end */
    bool cancelled;
    bool once; /* persistent, for one time */
};

struct neighbors {
    MPI_Comm graph;
    MPI_Request persistent, request;
    int num_in, num_out, sources[MOST_RANKS];
    int in[MOST_RANKS], out[MOST_RANKS];
    int way; /* of what is under way, or -1 */
    uint64_t digest;
};

struct program {
    struct plan plan;
    struct random *own;
    struct history h;
    MPI_Comm comm;
    int num_sent[MOST_RANKS], num_calls;
    struct lane lanes[MOST_LANES];
    int num_lanes;
    struct end wild;
    int wild_source, wild_tag;
    struct neighbors neighbors;
    struct active active[MOST_ACTIVE];
    int num_active;
    /* Persistent requests to be started by the next MPI_Startall. */
    MPI_Request later[16];
    int num_later;
    void *memory; /* a list, freed with the program */
};

/* Nonblocking receives bar lanes for good, also on a later communicator with
 * the same handle: those of programs that have some are freed in the end. */
static MPI_Comm kept_comms[MOST_KEPT];
static int num_kept;

static inline const char *text_option(int argc, char **argv, const char *option)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], option) == 0)
            return argv[i + 1];
    }
    return NULL;
}

static inline int wanted(int value, int any)
{
    return value == ANY ? any : value;
}

/* Memory that stays until the end of the program, whatever is still sent. */
static inline char *program_memory(struct program *p, size_t bytes)
{
    void **memory = malloc(sizeof(void *) + bytes);

    CHECK(memory != NULL, "out of memory");
    *memory = p->memory;
    p->memory = memory;
    return (char *)(memory + 1);
}

#ifdef PROGRAMS_ON_GPU
#include "tests/mpi/programs_gpu.h"

static inline char *end_memory(struct program *p, size_t bytes)
{
    return random_one_in(p->own, 4) ? program_memory(p, bytes)
                                    : gpu_memory(bytes);
}
#else
static inline void gpu_memory_begin(void)
{
}

static inline void gpu_memory_drop(void)
{
}

static inline void gpu_memory_end(void)
{
}

static inline char *end_memory(struct program *p, size_t bytes)
{
    return program_memory(p, bytes);
}
#endif

/* ---- messages ---- */

struct header {
    int number, bytes;
};

/* Of messages with a tag. */
static inline int limit(int tag)
{
    static const int most[TAGS] = {64, LONGEST, 5000, 20000};

    return tag == ANY ? LONGEST : most[tag];
}

static inline int random_length(struct random *r, int tag)
{
    static const int most[] = {8, 8, 48, 200, 4100, 5000, 20000, LONGEST};
    int bytes = most[random_below(r, 8)];

    bytes = bytes < limit(tag) ? bytes : limit(tag);
    bytes = (int)sizeof(struct header) +
            random_below(r, bytes - (int)sizeof(struct header) + 1);
    return bytes & ~3;
}

static inline char byte_of(int sender, int number, int i)
{
    return (char)(number * 31 + i * 7 + (i >> 8) + sender);
}

/* Where byte `i` of a message is. */
static inline int place_of(int i, bool strided)
{
    return strided ? i / 4 * 4 * STRIDE + i % 4 : i;
}

static inline void fill(char *to, int sender, int number, int bytes,
                        bool strided)
{
    struct header h = {number, bytes};
    char head[sizeof(h)];

    memcpy(head, &h, sizeof(h));
    for (int i = 0; i < (int)sizeof(h); i++)
        to[place_of(i, strided)] = head[i];
    for (int i = (int)sizeof(h); i < bytes; i++)
        to[place_of(i, strided)] = byte_of(sender, number, i);
}

/* The number of a message that has come. */
static inline int number_of(const char *from, int sender, bool strided,
                            const MPI_Status *status)
{
    struct header h;
    char head[sizeof(h)];
    int bytes;

    for (int i = 0; i < (int)sizeof(h); i++)
        head[i] = from[place_of(i, strided)];
    memcpy(&h, head, sizeof(h));
    MPI_Get_elements(status, MPI_BYTE, &bytes);
    EXPECT(bytes == h.bytes,
          "message %d of %d: %d bytes, not %d",
          h.number, sender, bytes, h.bytes);
    for (int i = (int)sizeof(h); i < bytes; i++)
        EXPECT(from[place_of(i, strided)] == byte_of(sender, h.number, i),
              "message %d of %d, %d bytes: byte %d is wrong",
              h.number, sender, bytes, i);
    return h.number;
}

/* ---- requests ---- */

static inline MPI_Datatype strided_type(int bytes)
{
    MPI_Datatype type;

    MPI_Type_vector(bytes / 4, 4, 4 * STRIDE, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
}

static inline void make_send(struct program *p, struct lane *lane,
                             struct end *end)
{
    MPI_Datatype type = MPI_BYTE;
    int bytes = end->bytes = random_length(p->own, lane->tag);

    end->strided = random_one_in(p->own, 4);
    end->buffer = end_memory(p, (size_t)bytes * STRIDE);
    if (end->strided)
        type = strided_type(bytes);
    (random_one_in(p->own, 4) ? MPI_Ssend_init : MPI_Send_init)(
        end->buffer, end->strided ? 1 : bytes, type, lane->peer, lane->tag,
        p->comm, &end->request);
    if (end->strided)
        MPI_Type_free(&type);
}

static inline void make_receive(struct program *p, struct lane *lane,
                                struct end *end)
{
    MPI_Datatype type = MPI_BYTE;
    int bytes = limit(lane->tag);

    end->strided = random_one_in(p->own, 4);
    if (end->buffer == NULL)
        end->buffer = end_memory(p, (size_t)bytes * STRIDE);
    if (end->strided)
        type = strided_type(bytes);
    MPI_Recv_init(end->buffer, end->strided ? 1 : bytes, type, lane->peer,
                  lane->tag, p->comm, &end->request);
    if (end->strided)
        MPI_Type_free(&type);
}

static inline struct lane *lane_find(struct program *p, bool sends, int peer,
                                     int tag)
{
    for (struct lane *lane = p->lanes; lane < &p->lanes[p->num_lanes]; lane++) {
        if (lane->sends == sends && lane->peer == peer && lane->tag == tag)
            return lane;
    }
    return NULL;
}

static inline struct end *lane_free_end(struct program *p, struct lane *lane)
{
    int k = random_below(p->own, 2);

    return !lane->ends[k].busy    ? &lane->ends[k]
           : !lane->ends[!k].busy ? &lane->ends[!k]
                                  : NULL;
}

static inline struct active *active_add(struct program *p, int receive,
                                        struct end *end)
{
    struct active *a = &p->active[p->num_active++];

    CHECK(p->num_active <= MOST_ACTIVE, "too many requests");
    *a = (struct active){.receive = receive, .end = end};
    return a;
}

/* Start what is to be started, in one call. */
static inline void start_now(struct program *p)
{
    if (p->num_later == 1)
        MPI_Start(&p->later[0]);
    else if (p->num_later > 1)
        MPI_Startall(p->num_later, p->later);
    p->num_later = 0;
}

static inline void start_later(struct program *p, MPI_Request request,
                               int receive, struct end *end)
{
    p->later[p->num_later++] = request;
    active_add(p, receive, end)->request = request;
    if (p->num_later == (int)(sizeof(p->later) / sizeof(p->later[0])))
        start_now(p);
}

/* ---- what is got ---- */

/* A receive is posted: its number. */
static inline int post(struct program *p, int source, int tag)
{
    CHECK(p->h.num < MOST_RECEIVES, "too many receives");
    p->h.receives[p->h.num] =
        (struct receive){.source = source, .tag = tag, .sender = NOBODY};
    return p->h.num++;
}

static inline void got(struct program *p, int receive, const char *bytes,
                       bool strided, const MPI_Status *status)
{
    struct receive *r = &p->h.receives[receive];
    const struct incoming *in;

    EXPECT(status->MPI_SOURCE >= 0 && status->MPI_SOURCE < p->plan.size,
          "source %d", status->MPI_SOURCE);
    r->sender = status->MPI_SOURCE;
    r->number = number_of(bytes, r->sender, strided, status);
    in = &p->h.from[r->sender];
    EXPECT(r->number >= 0 && r->number < in->num,
          "message %d of %d", r->number,
          r->sender);
    EXPECT(status->MPI_TAG == in->tags[r->number],
          "message %d of %d has tag %d, not %d",
          r->number, r->sender, status->MPI_TAG,
          in->tags[r->number]);
    p->h.num_received++;
}

/* `request` is what the completing call has made of it. */
static inline void completed(struct program *p, int i, MPI_Request request,
                             const MPI_Status *status)
{
    struct active *a = &p->active[i];
    int flag = 0;

    if (a->once)
        MPI_Request_free(&request);
    if (a->receive >= 0) {
        if (a->cancelled)
            MPI_Test_cancelled(status, &flag);
        if (flag)
            p->h.receives[a->receive].sender = CANCELLED;
        else
            got(p, a->receive, a->end != NULL ? a->end->buffer : a->buffer,
                a->end != NULL && a->end->strided, status);
    }
    if (a->end != NULL)
        a->end->busy = false;
    p->active[i] = p->active[--p->num_active];
}

/* Several, the last one first: others take the places of those. */
static inline void completed_some(struct program *p, int num,
                                  const MPI_Request *requests,
                                  const int *indices,
                                  const MPI_Status *statuses)
{
    int before = MOST_ACTIVE;

    if (num == MPI_UNDEFINED)
        return;
    for (int n = 0; n < num; n++) {
        int last = -1;

        for (int i = 0; i < num; i++) {
            if (indices[i] < before && (last < 0 || indices[i] > indices[last]))
                last = i;
        }
        before = indices[last];
        completed(p, before, requests[before], &statuses[last]);
    }
}

/* ---- neighborhood collectives ---- */

static inline void neighbors_finish(struct program *p)
{
    struct neighbors *n = &p->neighbors;

    if (n->way == 1)
        MPI_Wait(&n->request, MPI_STATUS_IGNORE);
    else if (n->way == 2)
        MPI_Wait(&n->persistent, MPI_STATUS_IGNORE);
    if (n->way < 0)
        return;
    for (int i = 0; i < n->num_in; i++) {
        EXPECT(n->in[i] == p->num_calls * 100 + n->sources[i],
              "call %d: %d from neighbor %d", p->num_calls, n->in[i], n->sources[i]);
        n->digest = mixed_up(n->digest, (uint64_t)n->in[i]);
    }
    n->way = -1;
}

/* The program's communicator, or one without a topology where the native library's
 * graphs must not have such a parent. The backend's may. */
static inline MPI_Comm neighbors_parent(const struct program *p)
{
    MPI_Comm parent = p->comm;

    if (!library_redoes_topology() && !is_accelerated())
        MPI_Comm_split(p->comm, 0, p->plan.me, &parent);
    return parent;
}

static inline void neighbors_create(struct program *p)
{
    struct neighbors *n = &p->neighbors;
    MPI_Comm parent = neighbors_parent(p);
    int destinations[MOST_RANKS];

    for (int i = 0; i < p->plan.size; i++) {
        if (p->plan.edges[i][p->plan.me])
            n->sources[n->num_in++] = i;
        if (p->plan.edges[p->plan.me][i])
            destinations[n->num_out++] = i;
    }
    MPI_Dist_graph_create_adjacent(parent, n->num_in, n->sources,
                                   MPI_UNWEIGHTED, n->num_out, destinations,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &n->graph);
    if (parent != p->comm)
        MPI_Comm_free(&parent);
    INIT(Neighbor_alltoall)(n->out, 1, MPI_INT, n->in, 1, MPI_INT, n->graph,
                            MPI_INFO_NULL, &n->persistent);
    n->request = MPI_REQUEST_NULL;
    n->way = -1;
}

/* ---- programs ---- */

/* In some of them processes have other ranks than in MPI_COMM_WORLD, or there
 * are several groups of them. */
static inline MPI_Comm make_comm(struct random *shared)
{
    int periodic[2] = {1, 0}, dims[2] = {0, 0}, kind = random_below(shared, 6);
    bool reverse = random_one_in(shared, 2);
    int from = 0, degree = 1, to = world_size - 1 - world_rank;
    MPI_Comm comm;

    switch (kind) {
    case 0:
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        break;
    case 1:
        MPI_Comm_split(MPI_COMM_WORLD, 7, reverse ? -world_rank : world_rank,
                       &comm);
        break;
    case 2: /* groups */
        MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2,
                       reverse ? -world_rank : world_rank, &comm);
        break;
    case 3:
        MPI_Dims_create(world_size, 2, dims);
        MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periodic, reverse, &comm);
        break;
    case 4:
        from = world_rank;
        MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &from, &degree, &to,
                              MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
        break;
    default:
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -world_rank,
                            MPI_INFO_NULL, &comm);
        break;
    }
    return comm;
}

static inline void make_lanes(struct program *p)
{
    const struct plan *plan = &p->plan;

    for (int i = 0; i < 2 * plan->size * LANE_TAGS; i++) {
        struct lane *lane = &p->lanes[p->num_lanes];
        int peer = i / 2 / LANE_TAGS, tag = i / 2 % LANE_TAGS;
        bool sends = i % 2, out, in;

        out = sends ? plan->sends[plan->me][peer][tag]
                    : plan->sends[peer][plan->me][tag];
        in = sends ? plan->receives[plan->me][peer][tag]
                   : plan->receives[peer][plan->me][tag];
        if (!(sends ? out : in))
            continue;
        *lane = (struct lane){peer, tag, sends, out && in, {{0}, {0}}};
        p->num_lanes++;
        for (int k = 0; k < 2; k++) {
            lane->ends[k].lane = lane;
            if (sends)
                make_send(p, lane, &lane->ends[k]);
            else
                make_receive(p, lane, &lane->ends[k]);
        }
    }
}

/* A persistent wildcard, before the lanes or after them. */
static inline void make_wild(struct program *p)
{
    p->wild_source = random_one_in(p->own, 2) ? ANY
                                              : random_below(p->own, p->plan.size);
    p->wild_tag = random_one_in(p->own, 2) ? ANY : random_below(p->own, TAGS);
    if (p->wild_source != ANY && p->wild_tag != ANY)
        p->wild_source = ANY;
    p->wild.buffer = program_memory(p, LONGEST);
    MPI_Recv_init(p->wild.buffer, LONGEST, MPI_BYTE,
                  wanted(p->wild_source, MPI_ANY_SOURCE),
                  wanted(p->wild_tag, MPI_ANY_TAG), p->comm, &p->wild.request);
}

static inline struct program *program_create(struct random *shared,
                                             struct random *own)
{
    struct program *p = allocate(sizeof(*p));
    bool wild, before = random_one_in(own, 2);

    p->own = own;
    p->comm = make_comm(shared);
    MPI_Comm_rank(p->comm, &p->plan.me);
    MPI_Comm_size(p->comm, &p->plan.size);
    p->plan.exact = random_one_in(shared, 2);
    p->plan.stays = random_one_in(shared, 3);
    p->plan.num_phases = 1 + random_below(shared, MOST_PHASES);
    plan_lanes(&p->plan, shared);
    wild = p->plan.stays && random_one_in(own, 3);
    p->wild.request = MPI_REQUEST_NULL;
    if (wild && before)
        make_wild(p);
    make_lanes(p);
    if (wild && !before)
        make_wild(p);
    neighbors_create(p);
    return p;
}

static inline void program_destroy(struct program *p)
{
    for (struct lane *lane = p->lanes; lane < &p->lanes[p->num_lanes]; lane++) {
        MPI_Request_free(&lane->ends[0].request);
        MPI_Request_free(&lane->ends[1].request);
    }
    if (p->wild.request != MPI_REQUEST_NULL)
        MPI_Request_free(&p->wild.request);
    MPI_Request_free(&p->neighbors.persistent);
    MPI_Comm_free(&p->neighbors.graph);
    CHECK(num_kept < MOST_KEPT, "more programs than one launch may have");
    if (p->plan.stays)
        kept_comms[num_kept++] = p->comm;
    else
        MPI_Comm_free(&p->comm);
    gpu_memory_drop();
    while (p->memory != NULL) {
        void *next = *(void **)p->memory;

        free(p->memory);
        p->memory = next;
    }
    free(p);
}

static inline void programs_fini(void)
{
    while (num_kept > 0)
        MPI_Comm_free(&kept_comms[--num_kept]);
}

#endif
