/* SPDX-License-Identifier: BSD-3-Clause */
/* Neighborhood collectives with buffers in GPU memory, which is that of the driver
 * in software (tests/cuda/fake.h) or of a real one: a processor that touches it dies,
 * so nothing of a native MPI's that knows no GPUs can have moved it.
 *
 * device [--off]   RSCHED_GPU is no in a process */
#include "tests/cuda/buffer.h"
#include "tests/mpi/common.h"

#pragma weak rsched_mpi_topology_from_comm
#pragma weak rsched_mpi_topology_destroy
#pragma weak rsched_mpi_alltoallw_init
#pragma weak rsched_mpi_rebind

enum { NUM = 37 }; /* elements of each message */
enum { GAP = -1 }; /* what nobody may write */

static struct program gpu;
static MPI_Datatype strided; /* NUM doubles, each with one behind it left out */

enum kind { ALLTOALL, ALLTOALLV, ALLTOALLW, ALLGATHER, ALLGATHERV, NUM_KINDS };

static const char *const names[NUM_KINDS] = {
    "neighbor_alltoall", "neighbor_alltoallv", "neighbor_alltoallw",
    "neighbor_allgather", "neighbor_allgatherv"};

/* Which processes have the buffers of a side in GPU memory. */
enum where { NOWHERE, EVERYWHERE, FIRST };

static bool is_on_gpu(enum where where, int rank)
{
    return where == EVERYWHERE || (where == FIRST && rank == 0);
}

/* A ring: what is sent to one side arrives from the other. */
struct ring {
    MPI_Comm comm;
    int peers[2];
    bool strides;
    enum where send_where, receive_where;
    struct buffer send, receive;
    int call; /* calls so far */
};

/* Of one neighbor, in doubles. */
static int block(const struct ring *ring)
{
    return ring->strides ? 2 * NUM : NUM;
}

static void ring_init(struct ring *ring, enum where send, enum where receive,
                      bool strides)
{
    int periodic = 1;

    *ring = (struct ring){.strides = strides, .send_where = send,
                          .receive_where = receive};
    MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &periodic, 0, &ring->comm);
    MPI_Cart_shift(ring->comm, 0, 1, &ring->peers[0], &ring->peers[1]);
    buffer_init(&gpu, &ring->send, 2 * (size_t)block(ring) * sizeof(double),
                is_on_gpu(send, world_rank));
    buffer_init(&gpu, &ring->receive, 2 * (size_t)block(ring) * sizeof(double),
                is_on_gpu(receive, world_rank));
}

static void ring_fini(struct ring *ring)
{
    MPI_Comm_free(&ring->comm);
    buffer_fini(&gpu, &ring->send);
    buffer_fini(&gpu, &ring->receive);
}

static double value(int rank, int call, int way, int i)
{
    return rank * 1e6 + call * 1e3 + way * 500 + i;
}

/* The i-th element of a message. */
static double *element(const struct ring *ring, const struct buffer *buffer,
                       int way, int i)
{
    return (double *)(void *)buffer->touch + way * block(ring) +
           (ring->strides ? 2 * i : i);
}

static void fill(struct ring *ring)
{
    double *receive = (double *)(void *)ring->receive.touch;

    ring->call++;
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < NUM; i++)
            *element(ring, &ring->send, way, i) =
                value(world_rank, ring->call, way, i);
    }
    for (int i = 0; i < 2 * block(ring); i++)
        receive[i] = GAP;
    buffer_push(&gpu, &ring->send);
    buffer_push(&gpu, &ring->receive);
}

static void verify(const struct ring *ring, enum kind kind)
{
    bool gathers = kind == ALLGATHER || kind == ALLGATHERV;

    buffer_pull(&gpu, &ring->receive);
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < NUM; i++) {
            double got = *element(ring, &ring->receive, way, i);

            CHECK(got == value(ring->peers[way], ring->call,
                               gathers ? 0 : 1 - way, i),
                  "%s, call %d, from %d, element %d: %g", names[kind],
                  ring->call, ring->peers[way], i, got);
            CHECK(!ring->strides ||
                      element(ring, &ring->receive, way, i)[1] == GAP,
                  "%s: a gap was written", names[kind]);
        }
    }
}

/* The arguments that all calls of a kind share. */
struct arguments {
    MPI_Datatype type, types[2];
    int count, counts[2], displs[2];
    MPI_Aint offsets[2];
};

static struct arguments arguments(const struct ring *ring)
{
    MPI_Datatype type = ring->strides ? strided : MPI_DOUBLE;
    int count = ring->strides ? 1 : NUM;

    return (struct arguments){
        .type = type, .types = {type, type}, .count = count,
        .counts = {count, count}, .displs = {0, count},
        .offsets = {0, block(ring) * (MPI_Aint)sizeof(double)}};
}

static void persistent_init(const struct ring *ring, enum kind kind,
                            MPI_Request *request)
{
    struct arguments a = arguments(ring);
    void *send = ring->send.address, *receive = ring->receive.address;

    switch (kind) {
    case ALLTOALL:
        INIT(Neighbor_alltoall)
        (send, a.count, a.type, receive, a.count, a.type, ring->comm,
         MPI_INFO_NULL, request);
        break;
    case ALLTOALLV:
        INIT(Neighbor_alltoallv)
        (send, a.counts, a.displs, a.type, receive, a.counts, a.displs, a.type,
         ring->comm, MPI_INFO_NULL, request);
        break;
    case ALLTOALLW:
        INIT(Neighbor_alltoallw)
        (send, a.counts, a.offsets, a.types, receive, a.counts, a.offsets,
         a.types, ring->comm, MPI_INFO_NULL, request);
        break;
    case ALLGATHER:
        INIT(Neighbor_allgather)
        (send, a.count, a.type, receive, a.count, a.type, ring->comm,
         MPI_INFO_NULL, request);
        break;
    default:
        INIT(Neighbor_allgatherv)
        (send, a.count, a.type, receive, a.counts, a.displs, a.type, ring->comm,
         MPI_INFO_NULL, request);
        break;
    }
}

/* One call of a family other than that; `request` is a nonblocking one's. */
static void call(const struct ring *ring, enum kind kind, MPI_Request *request)
{
    struct arguments a = arguments(ring);
    void *send = ring->send.address, *receive = ring->receive.address;

#define SEND_ONE send, a.count, a.type
#define SEND_V send, a.counts, a.displs, a.type
#define SEND_W send, a.counts, a.offsets, a.types
#define RECEIVE_ONE receive, a.count, a.type
#define RECEIVE_V receive, a.counts, a.displs, a.type
#define RECEIVE_W receive, a.counts, a.offsets, a.types
#define CALL(name, from, to)                                                 \
    do {                                                                     \
        if (request == NULL)                                                 \
            MPI_Neighbor_##name(from, to, ring->comm);                       \
        else                                                                 \
            MPI_Ineighbor_##name(from, to, ring->comm, request);             \
    } while (0)
    switch (kind) {
    case ALLTOALL:
        CALL(alltoall, SEND_ONE, RECEIVE_ONE);
        break;
    case ALLTOALLV:
        CALL(alltoallv, SEND_V, RECEIVE_V);
        break;
    case ALLTOALLW:
        CALL(alltoallw, SEND_W, RECEIVE_W);
        break;
    case ALLGATHER:
        CALL(allgather, SEND_ONE, RECEIVE_ONE);
        break;
    default:
        CALL(allgatherv, SEND_ONE, RECEIVE_V);
        break;
    }
}

static uint64_t counter_of(const char *prefix, const char *name,
                           const char *suffix)
{
    char full[100];

    snprintf(full, sizeof(full), "%s%s%s", prefix, name, suffix);
    return counter(full);
}

static void expect(uint64_t value, uint64_t expected, const char *what)
{
    CHECK(value == expected, "%s: %" PRIu64 ", not %" PRIu64, what, value,
          expected);
}

/* Bytes of one call that this process sends with an end in GPU memory, and those
 * that have both there and go to another process. */
static void gpu_bytes(const struct ring *ring, uint64_t *any, uint64_t *both)
{
    bool from = is_on_gpu(ring->send_where, world_rank);

    *any = *both = 0;
    for (int way = 0; way < 2; way++) {
        bool to = is_on_gpu(ring->receive_where, ring->peers[way]);

        *any += from || to ? NUM * sizeof(double) : 0;
        *both += from && to && ring->peers[way] != world_rank
                     ? NUM * sizeof(double)
                     : 0;
    }
}

/* ---- persistent ---- */

enum { EPOCHS = 3 };

static void persistent(struct ring *ring, enum kind kind)
{
    uint64_t made = counter_of("", names[kind], "_init.accelerated");
    uint64_t bytes = counter("engines.cuda"), pulled = counter("ways.cuda-ipc");
    uint64_t any, both;
    MPI_Request request;

    persistent_init(ring, kind, &request);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        fill(ring);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        verify(ring, kind);
    }
    MPI_Request_free(&request);
    gpu_bytes(ring, &any, &both);
    expect(counter_of("", names[kind], "_init.accelerated"), made + 1, "made");
    expect(counter("engines.cuda"), bytes + EPOCHS * any, "engines.cuda");
    expect(counter("ways.cuda-ipc"), pulled + EPOCHS * both, "ways.cuda-ipc");
}

/* ---- blocking and nonblocking ---- */

/* Bytes of this process's buffers that lie in GPU memory, of one call. */
static uint64_t own_gpu_bytes(const struct ring *ring)
{
    uint64_t message = NUM * sizeof(double);

    return (ring->send.on_gpu ? 2 * message : 0) +
           (ring->receive.on_gpu ? 2 * message : 0);
}

static void blocking(struct ring *ring, enum kind kind)
{
    uint64_t made = counter_of("", names[kind], ".accelerated");
    uint64_t bytes = counter("engines.cuda"), pulled = counter("ways.cuda-ipc");
    uint64_t any, both;

    for (int i = 0; i < EPOCHS; i++) {
        unsigned long long asked = program_count(&gpu, FAKE_QUESTIONS);

        fill(ring);
        call(ring, kind, NULL);
        verify(ring, kind);
        /* For each allocation, whatever lies in it. */
        asked += (unsigned)ring->send.on_gpu + (unsigned)ring->receive.on_gpu;
        CHECK(i == 0 || program_counted(&gpu, FAKE_QUESTIONS, asked),
              "%s has asked for more than allocations", names[kind]);
    }
    gpu_bytes(ring, &any, &both);
    expect(counter_of("", names[kind], ".accelerated"), made + EPOCHS, "calls");
    expect(counter("engines.cuda"), bytes + EPOCHS * any, "engines.cuda");
    expect(counter("ways.cuda-ipc"), pulled + EPOCHS * both, "ways.cuda-ipc");
}

/* Through host memory at each end that is a GPU's. */
static void nonblocking(struct ring *ring, enum kind kind)
{
    uint64_t made = counter_of("i", names[kind], ".accelerated");
    uint64_t bytes = counter("engines.cuda"), staged = counter("staged");
    MPI_Request request;

    for (int i = 0; i < EPOCHS; i++) {
        fill(ring);
        call(ring, kind, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        verify(ring, kind);
    }
    expect(counter_of("i", names[kind], ".accelerated"), made + EPOCHS, "calls");
    expect(counter("staged"), staged + EPOCHS * own_gpu_bytes(ring), "staged");
    expect(counter("engines.cuda"), bytes, "engines.cuda");
}

static void all_kinds(enum where send, enum where receive, bool strides)
{
    uint64_t staged;
    struct ring ring;

    ring_init(&ring, send, receive, strides);
    for (enum kind kind = 0; kind < NUM_KINDS; kind++)
        persistent(&ring, kind);
    staged = counter("staged");
    for (enum kind kind = 0; kind < NUM_KINDS; kind++)
        blocking(&ring, kind);
    expect(counter("staged"), staged, "staged");
    for (enum kind kind = 0; kind < NUM_KINDS; kind++)
        nonblocking(&ring, kind);
    ring_fini(&ring);
}

/* ---- other buffers on the exchange that is there ---- */

static void take_buffers(struct ring *ring, bool send_on_gpu,
                         bool receive_on_gpu)
{
    size_t bytes = 2 * (size_t)block(ring) * sizeof(double);

    buffer_fini(&gpu, &ring->send);
    buffer_fini(&gpu, &ring->receive);
    buffer_init(&gpu, &ring->send, bytes, send_on_gpu);
    buffer_init(&gpu, &ring->receive, bytes, receive_on_gpu);
}

/* A channel that was made for host memory: GPU memory is staged at its own end,
 * in changing buffers, and in turn with host memory. */
static void later(bool strides)
{
    struct ring ring;

    ring_init(&ring, NOWHERE, NOWHERE, strides);
    blocking(&ring, ALLTOALL);
    for (int i = 0; i < 8; i++) {
        uint64_t staged = counter("staged"), bytes = counter("engines.cuda");
        bool send = ((i + world_rank) & 1) != 0, receive = (i & 2) != 0;

        take_buffers(&ring, send, receive);
        for (int again = 0; again < 2; again++) {
            fill(&ring);
            call(&ring, i & 4 ? ALLTOALL : ALLGATHERV, NULL);
            verify(&ring, i & 4 ? ALLTOALL : ALLGATHERV);
        }
        expect(counter("staged"), staged + 2 * own_gpu_bytes(&ring), "staged");
        expect(counter("engines.cuda"), bytes, "engines.cuda");
    }
    ring_fini(&ring);
}

/* And one that was made for GPU memory where the first process has it: that takes
 * both there, and others stage what they come to later. */
static void turned(void)
{
    struct ring ring;

    ring_init(&ring, FIRST, FIRST, false);
    blocking(&ring, ALLTOALLW);
    for (int i = 0; i < 4; i++) {
        uint64_t staged = counter("staged"), bytes = counter("engines.cuda");
        uint64_t own, any, both;

        take_buffers(&ring, (i & 1) != 0, (i & 2) != 0);
        fill(&ring);
        call(&ring, ALLTOALLW, NULL);
        verify(&ring, ALLTOALLW);
        own = world_rank == 0 ? 0 : own_gpu_bytes(&ring);
        gpu_bytes(&ring, &any, &both); /* of the edges that there are */
        expect(counter("staged"), staged + own, "staged");
        expect(counter("engines.cuda"), bytes + any, "engines.cuda");
    }
    ring_fini(&ring);
}

/* Two nonblocking calls at once, of buffers that take turns. */
static void overlapping(void)
{
    uint64_t staged = counter("staged");
    struct ring rings[2];
    MPI_Request requests[2];

    for (int i = 0; i < 2; i++)
        ring_init(&rings[i], EVERYWHERE, EVERYWHERE, i != 0);
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < 2; i++) {
            fill(&rings[i]);
            call(&rings[i], ALLTOALL, &requests[i]);
        }
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < 2; i++)
            verify(&rings[i], ALLTOALL);
    }
    expect(counter("staged"), staged + 4 * (own_gpu_bytes(&rings[0]) +
                                            own_gpu_bytes(&rings[1])),
           "staged");
    for (int i = 0; i < 2; i++)
        ring_fini(&rings[i]);
}

/* Other memory at the addresses of the call before: what neighbors have opened is
 * none of it. */
static void remapped(void)
{
    uint64_t pulled = counter("ways.cuda-ipc"), expected = 0;
    struct ring ring;

    ring_init(&ring, EVERYWHERE, EVERYWHERE, false);
    buffer_fini(&gpu, &ring.send);
    buffer_map(&gpu, &ring.send, 2 * (size_t)block(&ring) * sizeof(double),
               true, world_rank % 2);
    for (int i = 0; i < 4; i++) {
        uint64_t any, both;

        fill(&ring);
        call(&ring, ALLTOALL, NULL);
        verify(&ring, ALLTOALL);
        gpu_bytes(&ring, &any, &both);
        expected += both;
        MPI_Barrier(MPI_COMM_WORLD);
        buffer_remap(&gpu, &ring.send, world_rank % 2);
    }
    expect(counter("ways.cuda-ipc"), pulled + expected, "ways.cuda-ipc");
    ring_fini(&ring);
}

/* Requests without a communicator; the second half of the epochs has another
 * send buffer. */
static void api(void)
{
    MPI_Count counts[2] = {NUM, NUM};
    MPI_Datatype types[2] = {MPI_DOUBLE, MPI_DOUBLE};
    MPI_Aint offsets[2] = {0, NUM * sizeof(double)};
    uint64_t bytes = counter("engines.cuda"), any, both;
    struct rsched_mpi_topology *topology;
    MPI_Request request;
    struct buffer other;
    struct ring ring;

    ring_init(&ring, EVERYWHERE, FIRST, false);
    buffer_init(&gpu, &other, ring.send.bytes, true);
    CHECK(rsched_mpi_topology_from_comm(ring.comm, 3, &topology) == 0 &&
              rsched_mpi_alltoallw_init(ring.send.address, counts, offsets,
                                        types, ring.receive.address, counts,
                                        offsets, types, topology,
                                        &request) == 0,
          "no request");
    for (int epoch = 0; epoch < 4; epoch++) {
        if (epoch == 2) {
            struct buffer first = ring.send;

            ring.send = other;
            other = first;
            CHECK(rsched_mpi_rebind(request, ring.send.address,
                                    ring.receive.address) == 0,
                  "not bound");
        }
        fill(&ring);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        verify(&ring, ALLTOALLW);
    }
    MPI_Request_free(&request);
    rsched_mpi_topology_destroy(topology);
    gpu_bytes(&ring, &any, &both);
    expect(counter("engines.cuda"), bytes + 4 * any, "engines.cuda");
    buffer_fini(&gpu, &other);
    ring_fini(&ring);
}

/* ---- failures ---- */

/* Process 0 gets no stream: all are native, and none of them starts it. */
static void not_set_up(void)
{
    uint64_t native = counter("neighbor_alltoall_init.native.setup");
    MPI_Request request;
    struct ring ring;

    ring_init(&ring, EVERYWHERE, EVERYWHERE, false);
    if (world_rank == 0)
        setenv("FAKE_CUDA_FAIL", "cuStreamCreateWithPriority:1:2", 1);
    persistent_init(&ring, ALLTOALL, &request);
    unsetenv("FAKE_CUDA_FAIL");
    MPI_Request_free(&request);
    expect(counter("neighbor_alltoall_init.native.setup"), native + 1,
           "native.setup");
    ring_fini(&ring);
}

/* One message out of GPU memory and host memory; and one whose end is not of its
 * allocation. */
static void not_one_memory(void)
{
    uint64_t native = counter("neighbor_alltoallw_init.native.gpu");
    static double host[NUM];
    MPI_Datatype doubles = MPI_DOUBLE, both, types[2];
    int lengths[2] = {1, 1}, counts[2] = {1, 1};
    MPI_Aint offsets[2], none[2] = {0, 0};
    MPI_Request request;
    struct ring ring;

    ring_init(&ring, EVERYWHERE, EVERYWHERE, false);
    offsets[0] = (MPI_Aint)ring.send.address;
    MPI_Get_address(host, &offsets[1]);
    MPI_Type_create_struct(2, lengths, offsets,
                           (MPI_Datatype[]){doubles, doubles}, &both);
    MPI_Type_commit(&both);
    types[0] = types[1] = both;
    INIT(Neighbor_alltoallw)
    (MPI_BOTTOM, counts, none, types, MPI_BOTTOM, counts, none, types,
     ring.comm, MPI_INFO_NULL, &request);
    MPI_Request_free(&request);
    MPI_Type_free(&both);
    types[0] = types[1] = doubles;
    counts[0] = counts[1] = 1 << 20;
    INIT(Neighbor_alltoallw)
    (ring.send.address, counts, none, types, ring.receive.address, counts, none,
     types, ring.comm, MPI_INFO_NULL, &request);
    MPI_Request_free(&request);
    expect(counter("neighbor_alltoallw_init.native.gpu"), native + 2,
           "native.gpu");
    ring_fini(&ring);
}

/* Process 0 frees what it goes on to send; it is told, and its neighbors are. */
static void freed(void)
{
    enum { LONG = 1 << 14 }; /* what copy engines copy, not a kernel */
    double *receive = allocate(2 * LONG * sizeof(double));
    struct buffer send;
    MPI_Request request;
    struct ring ring;
    int error;

    ring_init(&ring, NOWHERE, NOWHERE, false);
    MPI_Comm_set_errhandler(ring.comm, MPI_ERRORS_RETURN);
    buffer_init(&gpu, &send, 2 * LONG * sizeof(double), true);
    INIT(Neighbor_alltoall)
    (send.address, LONG, MPI_DOUBLE, receive, LONG, MPI_DOUBLE, ring.comm,
     MPI_INFO_NULL, &request);
    for (int epoch = 0; epoch < 2; epoch++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 0)
        buffer_fini(&gpu, &send);
    error = MPI_Start(&request);
    if (error == MPI_SUCCESS)
        error = MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(error != MPI_SUCCESS, "nobody was told");
    MPI_Request_free(&request);
    if (world_rank != 0)
        buffer_fini(&gpu, &send);
    ring_fini(&ring);
    free(receive);
}

/* What is native dies when it is started. */
static void off(void)
{
    MPI_Request request;
    struct ring ring;

    for (enum where receive = NOWHERE; receive <= FIRST; receive++) {
        ring_init(&ring, NOWHERE, receive, false);
        persistent_init(&ring, ALLGATHER, &request);
        MPI_Request_free(&request);
        ring_fini(&ring);
    }
    expect(counter("neighbor_allgather_init.accelerated"), 1, "accelerated");
    expect(counter("neighbor_allgather_init.native.gpu"), 2, "native");
}

/* Blocks of one call that lie in GPU memory, next to others that do not. */
static void mixed_blocks(void)
{
    static double host[2];
    int counts[2] = {1, 1};
    MPI_Datatype types[2] = {MPI_DOUBLE, MPI_DOUBLE};
    MPI_Aint send[2], receive[2];
    uint64_t bytes = counter("engines.cuda");
    MPI_Request request;
    struct ring ring;

    ring_init(&ring, EVERYWHERE, EVERYWHERE, false);
    send[0] = (MPI_Aint)ring.send.address; /* to GPU memory at the other end */
    receive[1] = (MPI_Aint)ring.receive.address;
    MPI_Get_address(&host[0], &send[1]);
    MPI_Get_address(&host[1], &receive[0]);
    INIT(Neighbor_alltoallw)
    (MPI_BOTTOM, counts, send, types, MPI_BOTTOM, counts, receive, types,
     ring.comm, MPI_INFO_NULL, &request);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        *element(&ring, &ring.send, 0, 0) = value(world_rank, epoch, 0, 0);
        buffer_push(&gpu, &ring.send);
        host[0] = value(world_rank, epoch, 1, 0);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        buffer_pull(&gpu, &ring.receive);
        CHECK(host[1] == value(ring.peers[0], epoch, 1, 0), "%g", host[1]);
        CHECK(*element(&ring, &ring.receive, 0, 0) ==
                  value(ring.peers[1], epoch, 0, 0),
              "epoch %d", epoch);
    }
    MPI_Request_free(&request);
    expect(counter("engines.cuda"), bytes + EPOCHS * sizeof(double),
           "engines.cuda");
    ring_fini(&ring);
}

static void on(void)
{
    for (int strides = 0; strides < 2; strides++) {
        for (enum where send = 0; send <= FIRST; send++) {
            for (enum where receive = 0; receive <= FIRST; receive++)
                all_kinds(send, receive, strides != 0);
        }
    }
    mixed_blocks();
    later(false);
    later(true);
    turned();
    overlapping();
    remapped();
    api();
    expect(counter("native"), 0, "native");
    expect(counter("packed"), 0, "packed");
    if (gpu.is_fake) /* which fails as it is told */
        not_set_up();
    not_one_memory();
    if (gpu.is_fake) /* another one may not know that it is freed */
        freed();
}

int main(int argc, char **argv)
{
    test_init(&argc, &argv, false);
    MPI_Type_create_resized(MPI_DOUBLE, 0, 2 * sizeof(double), &strided);
    MPI_Type_contiguous(NUM, strided, &strided);
    MPI_Type_commit(&strided);
    if (!has_option(argc, argv, "--off"))
        all_kinds(NOWHERE, NOWHERE, true); /* no driver has been loaded */
    program_begin(&gpu, world_rank % 2);
    if (has_option(argc, argv, "--off"))
        off();
    else
        on();
    MPI_Type_free(&strided);
    program_end(&gpu, world_rank % 2);
    return test_fini("device");
}
