/* SPDX-License-Identifier: BSD-3-Clause */
#include "exchange.h"

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
/* Open MPI 4 has MPI-4's persistent collectives under names of its own. */
#include <mpi-ext.h>
#define MPI_Neighbor_alltoallw_init MPIX_Neighbor_alltoallw_init
#endif

struct message {
    int dx, dy; /* where it goes: dx -1 is west, dy -1 is north */
    int row;    /* which of the halo's rows; 0 where all rows go at once */
};

static const struct message messages[NUM_MESSAGES] = {
    {-1, 0, 0},  {1, 0, 0},                         /* W E */
    {0, -1, 0},  {0, -1, 1},  {0, 1, 0},  {0, 1, 1}, /* N S */
    {-1, -1, 0}, {-1, -1, 1}, {1, -1, 0}, {1, -1, 1},
    {-1, 1, 0},  {-1, 1, 1},  {1, 1, 0},  {1, 1, 1},
};

static int neighbor(const struct place *p, int dx, int dy)
{
    return (p->y + dy + p->py) % p->py * p->px + (p->x + dx + p->px) % p->px;
}

/* Edge s goes where message s goes and comes from the opposite side. The k-th
 * edge to a process is paired with the k-th edge from it; as both lists are in
 * the order of the messages, message s arrives on edge s. */
static MPI_Comm make_graph(const struct place *place)
{
    int sources[NUM_MESSAGES], destinations[NUM_MESSAGES];
    MPI_Comm comm;

    for (int s = 0; s < NUM_MESSAGES; s++) {
        const struct message *m = &messages[s];

        sources[s] = neighbor(place, -m->dx, -m->dy);
        destinations[s] = neighbor(place, m->dx, m->dy);
    }
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, NUM_MESSAGES, sources,
                                   MPI_UNWEIGHTED, NUM_MESSAGES, destinations,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
    return comm;
}

/* First cell of what is sent (received) along one dimension of n cells:
 * the edge on the side where the message goes (the halo where it comes from). */
static int send_from(int direction, int n, int row)
{
    return direction > 0 ? n - HALO + row : direction < 0 ? row : 0;
}

static int receive_to(int direction, int n, int row)
{
    return direction > 0 ? -HALO + row : direction < 0 ? n + row : 0;
}

static void describe(struct exchange *e, const struct field *f, int s)
{
    const struct message *m = &messages[s];
    int width = m->dx == 0 ? f->nx : HALO;
    int rows = m->dy == 0 ? f->ny : 1;
    char *from = field_column(f, send_from(m->dx, f->nx, 0),
                              send_from(m->dy, f->ny, m->row));
    char *to = field_column(f, receive_to(m->dx, f->nx, 0),
                            receive_to(m->dy, f->ny, m->row));

    e->counts[s] = 1;
    e->send_at[s] = from - (char *)f->q;
    e->receive_at[s] = to - (char *)f->q;
    MPI_Type_create_hvector(
        rows, width * (int)(field_x_stride(f) / sizeof(double)),
        (MPI_Aint)field_y_stride(f), MPI_DOUBLE, &e->types[s]);
    MPI_Type_commit(&e->types[s]);
}

void exchange_init(struct exchange *e, const struct field *f,
                   const struct place *place, enum call call)
{
    e->call = call;
    e->comm = make_graph(place);
    e->buffer = f->q;
    for (int s = 0; s < NUM_MESSAGES; s++)
        describe(e, f, s);
    if (call == CALL_PERSISTENT)
        MPI_Neighbor_alltoallw_init(e->buffer, e->counts, e->send_at, e->types,
                                    e->buffer, e->counts, e->receive_at,
                                    e->types, e->comm, MPI_INFO_NULL,
                                    &e->request);
}

void exchange_fini(struct exchange *e)
{
    if (e->call == CALL_PERSISTENT)
        MPI_Request_free(&e->request);
    for (int s = 0; s < NUM_MESSAGES; s++)
        MPI_Type_free(&e->types[s]);
    MPI_Comm_free(&e->comm);
}

void exchange_run(struct exchange *e)
{
    if (e->call == CALL_PERSISTENT) {
        MPI_Start(&e->request);
        MPI_Wait(&e->request, MPI_STATUS_IGNORE);
    } else {
        MPI_Neighbor_alltoallw(e->buffer, e->counts, e->send_at, e->types,
                               e->buffer, e->counts, e->receive_at, e->types,
                               e->comm);
    }
}

size_t exchange_bytes(const struct exchange *e)
{
    size_t bytes = 0;

    for (int s = 0; s < NUM_MESSAGES; s++) {
        int size;

        MPI_Type_size(e->types[s], &size);
        bytes += (size_t)size;
    }
    return bytes;
}
