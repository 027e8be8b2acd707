/* SPDX-License-Identifier: BSD-3-Clause */
#include "work.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, PAGE = 4096 };

/* Directions, and how many messages and of which size the paper has there. */
struct direction {
    int dx, dy;
    int scale_messages;
    int scale_columns; /* a message's columns of (2 + levels + 2) doubles */
};

static const struct direction directions[] = {
    {-1, 0, 1, 32}, {1, 0, 1, 32},  {0, -1, 2, 16}, {0, 1, 2, 16},
    {-1, -1, 2, 2}, {1, -1, 2, 2},  {-1, 1, 2, 2},  {1, 1, 2, 2},
};

enum { NUM_DIRECTIONS = sizeof(directions) / sizeof(directions[0]) };

/* ---- boxes ---- */

struct box box_packed(size_t at, size_t bytes)
{
    return (struct box){.at = at, .planes = 1, .rows = 1, .bytes = bytes};
}

static size_t box_bytes(const struct box *b)
{
    return b->planes * b->rows * b->bytes;
}

static bool box_is_packed(const struct box *b)
{
    return b->planes * b->rows == 1;
}

/* Inlined for each number of bytes that is known: a floor must not be slow. */
static inline __attribute__((always_inline)) void
copy_rows(char *to, size_t to_stride, const char *from, size_t from_stride,
          size_t rows, size_t bytes)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * to_stride, from + r * from_stride, bytes);
}

void box_copy(char *to, const struct box *to_box, const char *from,
              const struct box *from_box)
{
    struct box t = *to_box, f = *from_box;

    /* A contiguous side has the blocks of the other one. */
    if (box_is_packed(&t) && !box_is_packed(&f)) {
        t = f;
        t.at = to_box->at;
        t.row_stride = t.bytes;
        t.plane_stride = t.bytes * t.rows;
    } else if (box_is_packed(&f) && !box_is_packed(&t)) {
        f = t;
        f.at = from_box->at;
        f.row_stride = f.bytes;
        f.plane_stride = f.bytes * f.rows;
    }
    for (size_t p = 0; p < t.planes; p++) {
        char *a = to + t.at + p * t.plane_stride;
        const char *b = from + f.at + p * f.plane_stride;

        if (t.bytes == 8)
            copy_rows(a, t.row_stride, b, f.row_stride, t.rows, 8);
        else if (t.bytes == 16)
            copy_rows(a, t.row_stride, b, f.row_stride, t.rows, 16);
        else
            copy_rows(a, t.row_stride, b, f.row_stride, t.rows, t.bytes);
    }
}

/* Byte number i of a box. */
static size_t box_offset(const struct box *b, size_t i)
{
    size_t row = i / b->bytes;

    return b->at + row / b->rows * b->plane_stride +
           row % b->rows * b->row_stride + i % b->bytes;
}

static MPI_Datatype box_type(const struct box *b)
{
    MPI_Datatype plane, all;
    MPI_Aint at = (MPI_Aint)b->at;
    int one = 1;

    MPI_Type_create_hvector((int)b->rows, (int)(b->bytes / sizeof(double)),
                            (MPI_Aint)b->row_stride, MPI_DOUBLE, &plane);
    MPI_Type_create_hvector((int)b->planes, 1, (MPI_Aint)b->plane_stride,
                            plane, &all);
    MPI_Type_free(&plane);
    MPI_Type_create_hindexed(1, &one, &at, all, &plane);
    MPI_Type_free(&all);
    MPI_Type_commit(&plane);
    return plane;
}

/* ---- cases ---- */

static int process(const struct work *w, const int dims[2], int dx, int dy)
{
    int x = (w->rank % dims[0] + dx + dims[0]) % dims[0];
    int y = (w->rank / dims[0] + dy + dims[1]) % dims[1];

    return y * dims[0] + x;
}

/* Offsets are ints, as MPI's are; false if they do not suffice. */
static bool add(struct work *w, const int dims[2], const struct direction *d,
                long bytes, size_t align)
{
    int s = w->messages++;

    w->size = (w->size + align - 1) / align * align;
    if (bytes > INT_MAX - 2 * PAGE - (long)w->size)
        return false;
    w->to[s] = process(w, dims, d->dx, d->dy);
    w->from[s] = process(w, dims, -d->dx, -d->dy);
    w->counts[s] = (int)bytes;
    w->at[s] = (int)w->size;
    w->from_box[s] = w->to_box[s] = box_packed(w->size, (size_t)bytes);
    w->send_type[s] = w->receive_type[s] = MPI_BYTE;
    w->size += (size_t)bytes;
    return true;
}

/* The cube has EDGE cells in each direction. */
enum { EDGE = 64, MAX_WIDTH = EDGE / 2 };

/* What goes in direction d in one dimension, or comes from there: the first
 * cell of the array, margin included, and how many. */
struct span {
    size_t first, cells;
};

static struct span sent(int d, size_t width)
{
    return (struct span){d > 0 ? EDGE : width, d == 0 ? EDGE : width};
}

static struct span received(int d, size_t width)
{
    /* What goes to the right arrives in the left margin. */
    return (struct span){d == 0 ? width : d > 0 ? 0 : EDGE + width,
                         d == 0 ? EDGE : width};
}

/* Spans by dimension, x first. */
static struct box cells(const struct span s[3], size_t width)
{
    size_t row = (EDGE + 2 * width) * sizeof(double);
    size_t plane = row * (EDGE + 2 * width);

    return (struct box){
        .at = s[2].first * plane + s[1].first * row +
              s[0].first * sizeof(double),
        .planes = s[2].cells,
        .rows = s[1].cells,
        .bytes = s[0].cells * sizeof(double),
        .plane_stride = plane,
        .row_stride = row,
    };
}

static int neighbor_in_3d(int rank, const int dims[3], const int d[3])
{
    int at[3] = {rank % dims[0], rank / dims[0] % dims[1],
                 rank / dims[0] / dims[1]};

    for (int i = 0; i < 3; i++)
        at[i] = (at[i] + d[i] + dims[i]) % dims[i];
    return (at[2] * dims[1] + at[1]) * dims[0] + at[0];
}

static void add_region(struct work *w, const int dims[3], const int d[3],
                       size_t width)
{
    int s = w->messages++;
    int back[3] = {-d[0], -d[1], -d[2]};
    struct span from[3], to[3];

    for (int i = 0; i < 3; i++) {
        from[i] = sent(d[i], width);
        to[i] = received(d[i], width);
    }
    w->to[s] = neighbor_in_3d(w->rank, dims, d);
    w->from[s] = neighbor_in_3d(w->rank, dims, back);
    w->from_box[s] = cells(from, width);
    w->to_box[s] = cells(to, width);
    w->counts[s] = (int)box_bytes(&w->from_box[s]);
    w->send_type[s] = box_type(&w->from_box[s]);
    w->receive_type[s] = box_type(&w->to_box[s]);
}

static int add_3d(struct work *w, bool along_z, long width)
{
    int dims[3] = {0, 0, 0}, all = EDGE + 2 * (int)width;

    if (width < 1 || width > MAX_WIDTH)
        return -1;
    MPI_Dims_create(w->ranks, 3, dims);
    if (along_z) {
        int longest = dims[0];

        dims[0] = dims[2];
        dims[2] = longest;
    }
    for (int i = 0; i < 27; i++) {
        int d[3] = {i % 3 - 1, i / 3 % 3 - 1, i / 9 - 1};

        if (d[0] != 0 || d[1] != 0 || d[2] != 0)
            add_region(w, dims, d, (size_t)width);
    }
    w->strided = true;
    w->size = (size_t)all * (size_t)all * (size_t)all * sizeof(double);
    return 0;
}

static int add_many(struct work *w, const int dims[2], long number, size_t align)
{
    static const struct direction next = {1, 0, 0, 0};

    if (number > MAX_MESSAGES)
        return -1;
    for (long i = 0; i < number; i++)
        if (!add(w, dims, &next, 8, align))
            return -1;
    return 0;
}

static int add_messages(struct work *w, const char *name, long argument, size_t align)
{
    int dims[2] = {0, 0};
    bool scale = strcmp(name, "scale-les3") == 0, many = strcmp(name, "many") == 0;

    if (strcmp(name, "3d26x") == 0 || strcmp(name, "3d26z") == 0)
        return add_3d(w, name[4] == 'z', argument);
    if ((!scale && !many && strcmp(name, "2d8") != 0) || argument < 0 ||
        argument > INT_MAX)
        return -1;
    MPI_Dims_create(w->ranks, 2, dims);
    if (many)
        return add_many(w, dims, argument, align);
    for (int i = 0; i < NUM_DIRECTIONS; i++) {
        const struct direction *d = &directions[i];

        for (int k = 0; k < (scale ? d->scale_messages : 1); k++)
            if (!add(w, dims, d,
                     scale ? (argument + 4) * 8 * d->scale_columns : argument, align))
                return -1;
    }
    return 0;
}

/* So far behind the beginning of a page in memory of either kind: what differs is only
 * whose it is. */
static char *get_buffer(struct work *w, int which, size_t offset)
{
    char *memory;

    if (!w->given) {
        memory = w->memory[which] = aligned_alloc(PAGE, w->size + PAGE);
    } else if (MPI_Alloc_mem((MPI_Aint)(w->size + 2 * PAGE), MPI_INFO_NULL,
                             &w->memory[which]) == MPI_SUCCESS) {
        memory = (char *)w->memory[which] +
                 -(uintptr_t)w->memory[which] % PAGE;
    } else {
        memory = NULL;
    }
    if (memory == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(memory, 0, w->size + offset);
    return memory + offset;
}

static void put_buffer(struct work *w, int which)
{
    if (w->given)
        MPI_Free_mem(w->memory[which]);
    else
        free(w->memory[which]);
}

bool places_are_valid(const struct places *places)
{
    return places->send < PAGE && places->receive < PAGE && places->align >= 1 &&
           places->align <= PAGE;
}

int work_init(struct work *w, const char *name, long argument, bool given,
              const struct places *places)
{
    memset(w, 0, sizeof(*w));
    MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->ranks);
    if (add_messages(w, name, argument, places->align) != 0)
        return -1;
    w->size = (w->size + PAGE) / PAGE * PAGE;
    w->given = given;
    w->send = get_buffer(w, 0, places->send);
    w->receive = w->strided ? w->send : get_buffer(w, 1, places->receive);
    /* Real weights: compilers take MPI_UNWEIGHTED for an array of no length. */
    for (int s = 0; s < w->messages; s++)
        w->ones[s] = 1;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, w->messages, w->from,
                                   w->ones, w->messages, w->to, w->ones, MPI_INFO_NULL, 0,
                                   &w->graph);
    return 0;
}

void work_fini(struct work *w)
{
    if (w->send == NULL)
        return;
    MPI_Comm_free(&w->graph);
    put_buffer(w, 0);
    if (!w->strided)
        put_buffer(w, 1);
    for (int s = 0; s < w->messages && w->strided; s++) {
        MPI_Type_free(&w->send_type[s]);
        MPI_Type_free(&w->receive_type[s]);
    }
    w->send = w->receive = NULL;
}

/* ---- bytes ---- */

static unsigned char expected(int sender, int s, unsigned salt, size_t i)
{
    return (unsigned char)((unsigned)(sender * 31 + s * 7) + (unsigned)i +
                           salt * 101 + ((unsigned)i >> 8));
}

/* Cells that go to several neighbors hold the same for all of them: where they
 * are in the array. */
static unsigned char expected_at(const struct work *w, int s, int sender,
                                 unsigned salt, size_t i)
{
    if (!w->strided)
        return expected(sender, s, salt, i);
    return expected(sender, 0, salt, box_offset(&w->from_box[s], i));
}

void work_fill(struct work *w, unsigned salt)
{
    memset(w->receive, 0x55, w->size);
    for (int s = 0; s < w->messages; s++)
        for (size_t i = 0; i < (size_t)w->counts[s]; i++)
            w->send[box_offset(&w->from_box[s], i)] =
                (char)expected_at(w, s, w->rank, salt, i);
}

void work_rewrite(const struct work *w, char *send)
{
    for (int s = 0; s < w->messages; s++) {
        const struct box *b = &w->from_box[s];

        if (b->bytes == 0)
            continue;
        for (size_t row = 0; row < b->planes * b->rows; row++) {
            char *at = send + box_offset(b, row * b->bytes);

            for (size_t i = 0; i < b->bytes; i += LINE)
                at[i]++;
        }
    }
}

int work_check(const struct work *w, unsigned salt)
{
    for (int s = 0; s < w->messages; s++)
        for (size_t i = 0; i < (size_t)w->counts[s]; i++)
            if ((unsigned char)w->receive[box_offset(&w->to_box[s], i)] !=
                expected_at(w, s, w->from[s], salt, i))
                return s;
    return -1;
}
