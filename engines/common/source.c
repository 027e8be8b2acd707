/* SPDX-License-Identifier: BSD-3-Clause */
/* The sender of messages that are copied out of its memory:
 * include/rsched/pull.h. */
#include <rsched/pull.h>

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "engines/common/copy.h"
#include "engines/common/ends.h"
#include "engines/common/huge.h"
#include "engines/common/stores.h"
#include "engines/common/table.h"
#include "engines/common/trial_group.h"
#include "librsched/base/adopt.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/numa.h"
#include "librsched/base/offer.h"
#include "librsched/base/shared.h"
#include "librsched/base/ways.h"

/* Of messages by what is tried out. */
enum kind {
    READ,   /* whether the kernel reads them faster than they go in two copies */
    CHOPPY, /* likewise, of short blocks, mapped */
    STORED, /* how they are written for two copies */
    ENDED,  /* how their ends are, beside one */
    KINDS   /* nothing, of all that depends on how many copies it is */
};

struct rsched_pull_source {
    struct rs_pieces pieces;
    uint64_t bytes;
    const struct rs_host_ways *ways;
    struct rsched_pull_reader reader;
    struct rs_table_maker lies; /* where the message lies */
    bool looked;                /* it says so, and these too: */
    enum rsched_pull_way way;   /* with slots that are long enough */
    enum rsched_pull_way load;  /* without slots */
    enum kind tries; /* whether one copy or two are faster, if that is tried out */
    bool barred; /* the kernel reads nothing of the message for anybody */
    bool guessed;  /* nobody measured the ways here */
    unsigned stores; /* how it can be written into slots: ways of a trial, a set */
    unsigned usual;  /* the way, trials aside */
    bool started;    /* it is decided how it goes: */
    enum rsched_pull_way going;
    bool nontemporal;
    struct rsched_pull_group *group;
    struct rs_trial_member trial;
    struct rs_table_maker packs; /* where it is packed */
    char *packed;            /* NULL: not yet */
    bool is_shared;          /* it is of rsched_alloc() */
    struct rs_copies copies; /* into it */
    const struct rs_table_maker *published; /* what the table says; or NULL */
    void *table;             /* as the receiver reads it */
    uint64_t room;
    struct rsched_pull_notice notice;
    struct rs_huge_pages huge;
    struct rs_ends ends; /* of where it lies */
    struct rs_adopt_watch adopt;
};

enum { OCTAVES = 24, FIRST_OCTAVE = 11 };
static_assert(RS_WAY_WHOLE_LEAST >= 1 << FIRST_OCTAVE, "none is shorter");
static_assert((RS_STORES_LEAST & (RS_STORES_LEAST - 1)) == 0,
              "messages of one octave may be written in the same ways");

/* What is tried out together: messages of one kind whose lengths are between the same
 * powers of two. */
struct rsched_pull_group {
    struct rs_trial_group of[KINDS][OCTAVES];
    rsched_pull_frozen *frozen;
    void *context;
};

static_assert(sizeof(((struct rsched_pull_told *)0)->way) == KINDS * OCTAVES,
              "a byte for each of them");

static atomic_uint_fast64_t versions;

int rsched_pull_memory_open(struct rsched_pull_memory *memory)
{
    struct rs_shared_file file;
    int error = rs_shared_open(&file);

    if (error == 0)
        *memory = (struct rsched_pull_memory){(int32_t)getpid(), file.fd,
                                              file.id, rs_numa_kept(), 0};
    return error;
}

void rsched_pull_memory_close(void)
{
    rs_shared_close();
}

int rsched_pull_group_create(rsched_pull_frozen *frozen, void *context,
                             struct rsched_pull_group **group)
{
    struct rsched_pull_group *g = calloc(1, sizeof(*g));

    if (g == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a group of sources");
    g->frozen = frozen;
    g->context = context;
    *group = g;
    return 0;
}

void rsched_pull_group_destroy(struct rsched_pull_group *g)
{
    free(g);
}

/* From now on, again. */
static void watch_for_adopting(struct rsched_pull_source *s)
{
    if (s->bytes > RS_WAY_WHOLE_LEAST && s->reader.maps && !s->reader.itself)
        s->adopt.in = (uint32_t)rs_config()->adopt;
}

int rsched_pull_source_create(const struct rsched_message *message,
                              const struct rs_ways *ways,
                              const struct rsched_pull_reader *reader,
                              struct rsched_pull_group *group,
                              struct rsched_pull_source **source)
{
    struct rsched_pull_source *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a source");
    s->bytes = message->bytes;
    s->reader = *reader;
    s->group = group;
    s->guessed = ways->host_guessed;
    s->stores = rs_stores_ways(s->bytes);
    s->ways = rs_ways_host(ways, reader->near ? RS_DISTANCE_SAME_NUMA
                                              : RS_DISTANCE_OTHER_NUMA);
    if (s->ways->of[RS_WAY_CMA_HUGE].given)
        rs_huge_watch(&s->huge);
    watch_for_adopting(s);
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
    rs_trial_join(&s->trial, NULL, 0, 0, 0, 0);
    if (s->is_shared)
        rsched_free(s->packed);
    else
        free(s->packed);
    rs_copies_fini(&s->copies);
    rs_table_fini(&s->lies);
    rs_table_fini(&s->packs);
    rs_huge_fini(&s->huge);
    rs_ends_fini(&s->ends);
    free(s->pieces.at);
    free(s->table);
    free(s);
}

/* ---- which way ---- */

/* A setting, or RS_LIMIT_AUTO: the costs decide. */
static bool is_long(uint64_t bytes, uint64_t least)
{
    return least == RS_LIMIT_AUTO || (least > 0 && bytes >= least);
}

/* Whether the receiver may map anything of ours. */
static bool can_map(const struct rsched_pull_source *s)
{
    return s->reader.maps && is_long(s->bytes, rs_config()->mapped_bytes);
}

/* Whether it maps the message's memory, where that is possible. Else the kernel
 * reads it, as all other. */
static bool maps(const struct rsched_pull_source *s)
{
    return can_map(s) && (rs_config()->mapped_bytes != RS_LIMIT_AUTO ||
                          s->ways->of[RS_WAY_PULL].given);
}

/* Whether the kernel may read so much of the message. */
static bool reads(const struct rsched_pull_source *s, uint64_t bytes)
{
    return is_long(bytes, rs_config()->cma_bytes) &&
           (rs_config()->cma_bytes != RS_LIMIT_AUTO ||
            s->ways->of[RS_WAY_CMA].given);
}

/* Whether all of it goes where a setting says. Short blocks do not. */
static bool is_forced(const struct rs_way_parts *parts)
{
    return (parts->mapped.bytes == 0 ||
            rs_config()->mapped_bytes != RS_LIMIT_AUTO) &&
           (parts->readable.bytes == 0 ||
            rs_config()->cma_bytes != RS_LIMIT_AUTO) &&
           parts->rest.bytes == 0;
}

/* @param twice as for rs_ways_choose_whole() */
static bool is_in_place(const struct rsched_pull_source *s,
                        const struct rs_way_parts *parts, enum rs_way twice)
{
    uint64_t read = parts->readable.bytes + parts->rest.bytes;

    if (s->reader.itself)
        return true;
    if (read > 0 && (s->barred || !reads(s, read)))
        return false;
    if (is_forced(parts))
        return s->bytes > RS_WAY_WHOLE_LEAST;
    return rs_ways_choose_whole(s->ways, parts, twice);
}

/* Whether it can be found out if slots, or memory into which it is packed, are
 * faster than one copy. */
static bool may_try(const struct rsched_pull_source *s)
{
    const struct rs_config *c = rs_config();

    return rs_config_tries(s->guessed) && c->mapped_bytes == RS_LIMIT_AUTO &&
           c->cma_bytes == RS_LIMIT_AUTO && !s->reader.itself &&
           s->reader.maps && s->bytes > RS_WAY_WHOLE_LEAST;
}

/* Whether that is worth it: where the one copy is the kernel's, or of short blocks that
 * are mapped. */
static enum kind kind_of(const struct rsched_pull_source *s,
                         const struct rs_way_parts *parts)
{
    if (!may_try(s))
        return KINDS;
    if (parts->mapped.bytes == 0)
        return s->ways->of[RS_WAY_CMA].given && !s->barred &&
                       parts->readable.bytes > s->bytes / 2
                   ? READ
                   : KINDS;
    return s->ways->of[RS_WAY_PULL].given &&
                   parts->mapped.bytes == s->bytes &&
                   rs_way_part_is_choppy(&parts->mapped)
               ? CHOPPY
               : KINDS;
}

static void choose(struct rsched_pull_source *s)
{
    enum rs_way twice = can_map(s) ? RS_WAY_LANDING : RS_WAY_CMA;
    struct rs_way_parts parts;

    rs_table_parts(&s->lies, true, &parts);
    s->barred = !rs_table_is_readable(&s->lies);
    s->tries = kind_of(s, &parts);
    s->way = is_in_place(s, &parts, RS_WAY_LANDING) ? RSCHED_PULL_IN_PLACE
                                                    : RSCHED_PULL_SLOTS;
    /* Of no bytes there is nothing to pack. */
    if (s->bytes == 0 || is_in_place(s, &parts, twice))
        s->load = RSCHED_PULL_IN_PLACE;
    else if (twice == RS_WAY_LANDING || reads(s, s->bytes))
        s->load = RSCHED_PULL_PACKED;
    else
        s->load = RSCHED_PULL_NOT;
}

static bool is_stale(const struct rsched_pull_source *s)
{
    return !s->looked ||
           s->lies.changes != atomic_load_explicit(&rs_shared_changes,
                                                   memory_order_relaxed) ||
           s->lies.additions != atomic_load_explicit(&rs_shared_additions,
                                                     memory_order_relaxed);
}

/* Where the message lies, as far as that is not known. */
static int look(struct rsched_pull_source *s)
{
    uint64_t reachable = s->lies.reachable;
    int error;

    if (!is_stale(s))
        return 0;
    s->looked = false;
    s->published = NULL;
    error = rs_table_make(&s->lies, s->pieces.at, s->pieces.number, maps(s));
    if (error == 0 && !s->reader.itself)
        error = rs_ends_redirect(&s->ends, &s->lies, s->bytes);
    if (error != 0)
        return error;
    /* Adopted memory has been freed, and what is there now may be adopted; or that of others
     * has been of which this message has a part, and with it the rest may be worth it. */
    if (s->lies.reachable != reachable)
        watch_for_adopting(s);
    choose(s);
    s->looked = true;
    return 0;
}

static enum rsched_pull_way way_in(const struct rsched_pull_source *s,
                                   uint64_t room, unsigned way)
{
    if ((way & RS_TRIAL_ONCE) != 0)
        return RSCHED_PULL_IN_PLACE;
    return s->bytes <= room ? RSCHED_PULL_SLOTS : RSCHED_PULL_PACKED;
}

static struct rs_trial_group *group_of(const struct rsched_pull_source *s,
                                       enum kind kind)
{
    unsigned octave = 63u - (unsigned)__builtin_clzll(s->bytes | 1);

    octave = octave > FIRST_OCTAVE ? octave - FIRST_OCTAVE : 0;
    if (octave >= OCTAVES)
        octave = OCTAVES - 1;
    return &s->group->of[kind][octave];
}

/* What is tried out for a message that by the costs goes in one copy or not. */
static void join(struct rsched_pull_source *s, bool once, uint32_t round)
{
    unsigned in_one = rs_stores_ways_once(rs_ends_bytes(&s->ends));
    unsigned ways = s->tries < KINDS ? s->stores | RS_TRIAL_SET(RS_TRIAL_ONCE)
                    : once           ? in_one
                                     : s->stores;
    unsigned first = rs_stores_first(once ? in_one : s->stores);
    enum kind kind = s->tries < KINDS ? s->tries : once ? ENDED : STORED;
    bool several = (ways & (ways - 1)) != 0 && !s->reader.itself;

    rs_trial_join(&s->trial, several ? group_of(s, kind) : NULL, s->bytes, ways,
                  first, round);
    s->usual = several ? rs_trial_group_way(&s->trial) : first;
}

enum rsched_pull_way rsched_pull_source_way(struct rsched_pull_source *s,
                                            uint64_t room, uint32_t slots)
{
    enum rsched_pull_way guess;

    if (look(s) != 0)
        return RSCHED_PULL_NOT;
    guess = room > 0 && s->bytes <= room ? s->way : s->load;
    join(s, guess == RSCHED_PULL_IN_PLACE, slots);
    return s->trial.group != NULL && guess != RSCHED_PULL_NOT
               ? way_in(s, room, s->usual)
               : guess;
}

/* ---- pages that could be adopted ---- */

/* What a start would save if whole pages of the message could be mapped, and the rest
 * were packed. */
static uint64_t adopting_saves(struct rsched_pull_source *s,
                               const struct rs_pieces *pages)
{
    const struct rs_way_choice once = {.pull = true, .cma = true, .huge = true};
    const struct rs_way_choice slots = {.pull = false};
    struct rs_way_parts now, then;
    uint64_t before, after;
    bool found_slower;

    rs_table_parts(&s->lies, true, &now);
    then = now;
    rs_table_parts_add(&then, s->pieces.at, s->pieces.number, pages->at,
                       pages->number);
    if (then.mapped.bytes == now.mapped.bytes ||
        !rs_ends_parts(&then, s->bytes) ||
        !is_in_place(s, &then, RS_WAY_LANDING))
        return 0;
    if (rs_config()->mapped_bytes != RS_LIMIT_AUTO)
        return UINT64_MAX;
    /* Where slots have been found to be faster the kernel takes longer than its costs say. */
    found_slower = s->trial.group != NULL && (s->usual & RS_TRIAL_ONCE) == 0;
    before = rs_ways_time(s->ways, &now,
                          s->way == RSCHED_PULL_IN_PLACE && !found_slower ? once : slots);
    after = rs_ways_time(s->ways, &then, once);
    return after < before ? before - after : 0;
}

static int append(struct rs_pieces *pieces, char *low, char *high)
{
    struct rsched_piece p = {low, (uint64_t)(high - low), 1, 0};

    return rs_pieces_append(pieces, &p);
}

/* What nobody writes of the pages from `low` to `high`, in which a message lies. */
struct frozen {
    struct rs_pieces blocks;
    char *low, *high;
    int error;
};

static void add_frozen(void *list, const void *address, uint64_t bytes)
{
    struct frozen *f = list;
    uintptr_t low = (uintptr_t)address;

    if (f->error == 0 && bytes > 0 && low < (uintptr_t)f->high &&
        low + bytes > (uintptr_t)f->low)
        f->error = append(&f->blocks, (char *)low, (char *)low + bytes);
}

/* A region that has a byte of [low, high), as an adopted page of which others have a part. */
static void add_region(struct frozen *f, const char *low, const char *high)
{
    struct rs_place place;

    if (f->error == 0 && rs_shared_find(low, high, &place))
        f->error = append(&f->blocks, place.address, place.address + place.bytes);
}

/* The message's blocks, and the pages that have a byte of them. */
static void find_blocks(struct rsched_pull_source *s, struct frozen *f, struct rs_pieces *pages)
{
    char *low, *high;

    for (size_t i = 0;
         f->error == 0 && rs_pieces_run(s->pieces.at, s->pieces.number, &i, &low, &high);) {
        f->error = append(&f->blocks, low, high);
        add_region(f, rs_page_down(low), low + 1);
        add_region(f, high - 1, rs_page_up(high));
        low = rs_page_down(low);
        high = rs_page_up(high);
        if (f->error == 0)
            f->error = append(pages, low, high);
        f->low = f->low == NULL || low < f->low ? low : f->low;
        f->high = high > f->high ? high : f->high;
    }
    pages->number = rs_adopt_pages(pages->at, pages->number);
}

/* The pages that have a byte of the message, and none that somebody may write. False: there is
 * no memory to find them. */
static bool find_pages(struct rsched_pull_source *s, struct rs_pieces *pages)
{
    const struct rsched_pull_group *g = s->group;
    struct rs_pieces own = {0};
    struct frozen f = {.error = 0};

    find_blocks(s, &f, &own);
    if (f.error == 0 && g->frozen != NULL)
        g->frozen(g->context, add_frozen, &f);
    if (f.error == 0)
        pages->at = calloc(own.number + f.blocks.number + 1, sizeof(*pages->at));
    if (pages->at != NULL) {
        f.blocks.number = rs_adopt_pages(f.blocks.at, f.blocks.number);
        pages->number =
            rs_adopt_common(f.blocks.at, f.blocks.number, own.at, own.number, pages->at);
    }
    free(f.blocks.at);
    free(own.at);
    return pages->at != NULL;
}

/* In a start: nobody writes the message until it is complete. */
static void __attribute__((cold)) consider_adopting(struct rsched_pull_source *s)
{
    struct rs_pieces pages = {0};

    if (rs_offer_any() && maps(s) && look(s) == 0 && find_pages(s, &pages) &&
        rs_adopt_is_due(&s->adopt, adopting_saves(s, &pages), pages.number,
                        rs_adopt_bytes(pages.at, pages.number)))
        rs_adopt(pages.at, pages.number);
    free(pages.at);
}

/* Of its group, in what the two sides tell each other. */
static size_t number_of(const struct rsched_pull_source *s)
{
    return (size_t)(s->trial.group - &s->group->of[0][0]);
}

static uint8_t hear(const struct rsched_pull_source *s,
                    const struct rsched_pull_told *told)
{
    return told != NULL
               ? __atomic_load_n(&told->way[number_of(s)], __ATOMIC_RELAXED)
               : 0;
}

/* Written only if it changes: the other side reads its line in each step. */
static void tell(const struct rsched_pull_source *s, struct rsched_pull_told *told)
{
    uint8_t what = rs_trial_member_tells(&s->trial);
    uint8_t *at = told != NULL ? &told->way[number_of(s)] : NULL;

    if (at != NULL && __atomic_load_n(at, __ATOMIC_RELAXED) != what)
        __atomic_store_n(at, what, __ATOMIC_RELAXED);
}

struct rsched_pull_start
rsched_pull_source_start(struct rsched_pull_source *s, uint64_t room, uint32_t slots,
                         struct rsched_pull_told *own,
                         const struct rsched_pull_told *others)
{
    struct rsched_pull_start start = {.way = RSCHED_PULL_NOT};
    struct rs_trial_start trial;
    unsigned way;

    if (s->adopt.in != 0 && --s->adopt.in == 0)
        consider_adopting(s);
    start.way = rsched_pull_source_way(s, room, slots);
    way = s->usual;
    if (start.way != RSCHED_PULL_NOT && s->trial.group != NULL) {
        trial = rs_trial_member_start(&s->trial, hear(s, others));
        tell(s, own);
        way = trial.way;
        start.way = way_in(s, room, way);
        start.timed = trial.timed;
    }
    start.nontemporal = start.way != RSCHED_PULL_NOT &&
                        (way & RS_TRIAL_NONTEMPORAL) != 0;
    s->started = true;
    s->going = start.way;
    s->nontemporal = start.nontemporal;
    return start;
}

void rsched_pull_source_took(struct rsched_pull_source *s, uint64_t ps)
{
    rs_trial_member_took(&s->trial, ps);
}

void rsched_pull_source_trials(const struct rsched_pull_source *s,
                               uint64_t *trials, uint64_t *changes)
{
    *trials = s->trial.trials;
    *changes = s->trial.changes;
}

/* ---- loading ---- */

static int have_copies(struct rsched_pull_source *s)
{
    struct rsched_message message = rs_pieces_message(&s->pieces, s->bytes);

    return s->copies.num_chunks > 0
               ? 0
               : rs_copies_compile(&s->copies, &message, s->bytes);
}

int rsched_pull_source_pack(struct rsched_pull_source *s, void *slot)
{
    int error = have_copies(s);

    if (error == 0 && s->copies.num_chunks > 0)
        rs_copies_pack_nontemporal(&s->copies, s->copies.chunks, slot);
    return error;
}

static int have_packed(struct rsched_pull_source *s)
{
    void *memory = NULL;
    int error;

    if (s->packed != NULL)
        return 0;
    error = have_copies(s);
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

/* Where that is. It stays there, as long as it is there. */
static int look_packed(struct rsched_pull_source *s)
{
    struct rsched_piece all;
    int error = have_packed(s);

    if (error != 0 || s->published == &s->packs)
        return error;
    all = (struct rsched_piece){s->packed, s->bytes, 1, 0};
    return rs_table_make(&s->packs, &all, 1, can_map(s));
}

static int publish(struct rsched_pull_source *s, const struct rs_table_maker *t)
{
    uint64_t bytes = rs_table_bytes(t);

    if (s->published == t)
        return 0;
    s->published = NULL;
    if (s->notice.version != 0 && bytes == s->notice.bytes &&
        rs_table_is_written(t, s->table)) {
        s->published = t;
        return 0;
    }
    if (bytes > s->room) {
        void *larger = realloc(s->table, bytes);

        if (larger == NULL)
            return rs_fail(RSCHED_ENOMEM, "no memory for a table");
        s->table = larger;
        s->room = bytes;
    }
    rs_table_write(t, s->table);
    s->notice = (struct rsched_pull_notice){
        (uint64_t)(uintptr_t)s->table, bytes,
        atomic_fetch_add_explicit(&versions, 1, memory_order_relaxed) + 1};
    s->published = t;
    return 0;
}

/* What a start would save if so many more of the bytes that the kernel reads were
 * in huge pages. */
static uint64_t huge_saves(const void *arg, uint64_t bytes)
{
    const struct rsched_pull_source *s = arg;
    const struct rs_way_choice once = {.pull = true, .cma = true, .huge = true};
    struct rs_way_parts now, then;
    uint64_t before, after;

    rs_table_parts(&s->lies, true, &now);
    then = now;
    rs_way_parts_set_huge(&then, bytes);
    before = rs_ways_time(s->ways, &now, once);
    after = rs_ways_time(s->ways, &then, once);
    return after < before ? before - after : 0;
}

int rsched_pull_source_load(struct rsched_pull_source *s,
                            struct rsched_pull_notice *notice)
{
    int error = look(s);
    bool packs, nontemporal;

    if (error != 0)
        return error;
    if (s->load == RSCHED_PULL_NOT)
        return rs_fail(RSCHED_EUNREACH, "%llu bytes that nobody may read",
                       (unsigned long long)s->bytes);
    packs = (s->started ? s->going : s->load) == RSCHED_PULL_PACKED;
    nontemporal = s->started ? s->nontemporal
                             : (s->usual & RS_TRIAL_NONTEMPORAL) != 0;
    s->started = false;
    if (packs)
        error = look_packed(s);
    if (error == 0)
        error = publish(s, packs ? &s->packs : &s->lies);
    if (error != 0)
        return error;
    if (packs && nontemporal)
        rs_copies_pack_nontemporal(&s->copies, s->copies.chunks, s->packed);
    else if (packs)
        rs_copies_pack(&s->copies, s->copies.chunks, s->packed);
    else if (s->ends.used)
        rs_ends_pack(&s->ends, nontemporal);
    else if (rs_huge_is_due(&s->huge) && huge_saves(s, s->bytes) > 0)
        error = rs_huge_consider(&s->huge, s->pieces.at, s->pieces.number,
                                 huge_saves, s);
    if (error != 0)
        return error;
    *notice = s->notice;
    return 0;
}
