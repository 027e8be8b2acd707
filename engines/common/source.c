/* SPDX-License-Identifier: BSD-3-Clause */
/* The sender of messages that are copied out of its memory:
 * include/rsched/pull.h. */
#include <rsched/pull.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "engines/common/copy.h"
#include "engines/common/table.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"

/* Shorter blocks of mapped memory are packed where they are in a cache. */
enum { LEAST_MAPPED = 64 };

struct rsched_pull_source {
    struct rs_pieces pieces;
    uint64_t bytes;
    bool itself;
    bool packs;
    char *packed;         /* NULL: not yet */
    bool is_shared;       /* it is of rsched_alloc() */
    struct rs_copies copies; /* into it */
    struct rs_table_maker maker;
    bool made;
    bool published; /* the table says what it has made */
    void *table;    /* as the receiver reads it */
    uint64_t room;
    struct rsched_pull_notice notice;
};

static atomic_uint_fast64_t versions;

int rsched_pull_memory_open(struct rsched_pull_memory *memory)
{
    struct rs_shared_file file;
    int error = rs_shared_open(&file);

    if (error == 0)
        *memory =
            (struct rsched_pull_memory){(int32_t)getpid(), file.fd, file.id};
    return error;
}

void rsched_pull_memory_close(void)
{
    rs_shared_close();
}

int rsched_pull_source_create(const struct rsched_message *message,
                              bool itself, struct rsched_pull_source **source)
{
    struct rsched_pull_source *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a source");
    s->bytes = message->bytes;
    s->itself = itself;
    if (rs_pieces_copy(message, &s->pieces) != 0) {
        rsched_pull_source_destroy(s);
        return RSCHED_ENOMEM;
    }
    *source = s;
    return 0;
}

void rsched_pull_source_destroy(struct rsched_pull_source *s)
{
    if (s == NULL)
        return;
    if (s->is_shared)
        rsched_free(s->packed);
    else
        free(s->packed);
    rs_copies_fini(&s->copies);
    rs_table_fini(&s->maker);
    free(s->pieces.at);
    free(s->table);
    free(s);
}

/* Whether the receiver should get along with a piece as it is. */
static bool is_short(const struct rs_table_piece *p)
{
    if (p->count == 1 && p->region != RS_TABLE_CMA)
        return false;
    return p->bytes <
           (p->region == RS_TABLE_CMA ? RS_TABLE_LEAST_READ : LEAST_MAPPED);
}

/* Ends of a buffer that lie in no whole page of it are short and few. */
static bool has_many_short(const struct rs_table_maker *t)
{
    uint64_t number = 0, short_ones = 0;

    for (size_t i = 0; i < t->num_pieces; i++) {
        number += t->pieces[i].count;
        if (is_short(&t->pieces[i]))
            short_ones += t->pieces[i].count;
    }
    return number > 1 && short_ones > 2 && short_ones > number / 8;
}

static int make(struct rs_table_maker *t, const struct rs_pieces *pieces,
                uint64_t bytes)
{
    uint64_t least = rs_config()->mapped_bytes;

    return rs_table_make(t, pieces->at, pieces->number,
                         least == RS_LIMIT_AUTO ||
                             (least > 0 && bytes >= least));
}

static bool is_stale(const struct rsched_pull_source *s)
{
    return !s->made ||
           s->maker.changes != atomic_load_explicit(&rs_shared_changes,
                                                    memory_order_relaxed) ||
           s->maker.additions != atomic_load_explicit(&rs_shared_additions,
                                                      memory_order_relaxed);
}

/* Where the message lies, as far as that is not known. */
static int look(struct rsched_pull_source *s)
{
    int error;

    if (!is_stale(s))
        return 0;
    s->made = s->published = false;
    error = make(&s->maker, &s->pieces, s->bytes);
    if (error != 0)
        return error;
    s->packs = !s->itself && has_many_short(&s->maker);
    s->made = !s->packs || s->packed != NULL;
    if (s->packs && s->packed != NULL) {
        struct rs_pieces one = {
            .at = &(struct rsched_piece){s->packed, s->bytes, 1, 0},
            .number = 1};

        error = make(&s->maker, &one, s->bytes);
        s->made = error == 0;
    }
    return error;
}

bool rsched_pull_source_packs(struct rsched_pull_source *s)
{
    return look(s) == 0 && s->packs;
}

bool rsched_pull_source_maps(struct rsched_pull_source *s)
{
    return look(s) == 0 && s->maker.reachable > s->bytes / 2;
}

static int have_packed(struct rsched_pull_source *s)
{
    struct rsched_message message = rs_pieces_message(&s->pieces, s->bytes);
    void *memory = NULL;
    int error;

    if (s->packed != NULL)
        return 0;
    error = rs_copies_compile(&s->copies, &message, s->bytes);
    if (error != 0)
        return error;
    s->is_shared = rsched_alloc(s->bytes, &memory) == 0;
    if (!s->is_shared)
        memory = malloc(s->bytes);
    if (memory == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a packed message");
    s->packed = memory;
    return 0;
}

static int publish(struct rsched_pull_source *s)
{
    uint64_t bytes = rs_table_bytes(&s->maker);

    s->published = s->notice.version != 0 && bytes == s->notice.bytes &&
                   rs_table_is_written(&s->maker, s->table);
    if (s->published)
        return 0;
    if (bytes > s->room) {
        void *larger = realloc(s->table, bytes);

        if (larger == NULL)
            return rs_fail(RSCHED_ENOMEM, "no memory for a table");
        s->table = larger;
        s->room = bytes;
    }
    rs_table_write(&s->maker, s->table);
    s->notice = (struct rsched_pull_notice){
        (uint64_t)(uintptr_t)s->table, bytes,
        atomic_fetch_add_explicit(&versions, 1, memory_order_relaxed) + 1};
    s->published = true;
    return 0;
}

int rsched_pull_source_load(struct rsched_pull_source *s,
                            struct rsched_pull_notice *notice)
{
    int error = look(s);

    if (error == 0 && s->packs && s->packed == NULL) {
        error = have_packed(s);
        if (error == 0)
            error = look(s);
    }
    if (error == 0 && !s->published)
        error = publish(s);
    if (error != 0)
        return error;
    if (s->packs)
        rs_copies_pack(&s->copies, s->copies.chunks, s->packed);
    *notice = s->notice;
    return 0;
}
