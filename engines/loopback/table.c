/* SPDX-License-Identifier: BSD-3-Clause */
/* The sender's table of where its message lies. */
#include <stdlib.h>

#include "engines/loopback/lane.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"

int rs_pieces_compile(const struct rs_pieces *pieces, struct lane *l,
                      struct rs_copies *copies)
{
    struct rsched_message message = {.pieces = pieces->at,
                                     .num_pieces = pieces->number};

    for (size_t i = 0; i < pieces->number; i++)
        message.bytes += pieces->at[i].bytes * pieces->at[i].count;
    return rs_copies_compile(copies, &message, chunk_room(l->ring.stride));
}

/* What is in no region goes through slots. */
static int use_slots(struct lane *l, struct rs_table_piece *entry)
{
    struct rsched_piece part = {.address = (char *)(uintptr_t)entry->offset,
                                .bytes = entry->bytes,
                                .count = entry->count,
                                .stride = entry->stride};

    entry->region = RS_TABLE_SLOTS;
    entry->offset = 0;
    return rs_pieces_append(&l->pull.slots, &part);
}

static int make_table(struct lane *l)
{
    struct rs_table_maker *t = &l->pull.table;
    int error = rs_table_make(t, l->pieces, l->num_pieces,
                              rs_config()->mapped_bytes != 0);

    l->pull.slots.number = 0;
    for (size_t i = 0; i < t->num_pieces && error == 0; i++) {
        if (t->pieces[i].region == RS_TABLE_CMA)
            error = use_slots(l, &t->pieces[i]);
    }
    return error;
}

/* The receiver reads the table only in an epoch that announces it, and none is
 * under way. False: there is no memory for it that others can map. */
static bool publish(struct rs_pull *pull, struct rs_announcement *a)
{
    const struct rs_table_maker *t = &pull->table;
    uint64_t bytes = rs_table_bytes(t);
    struct rs_error_text kept;

    if (bytes <= pull->place.bytes &&
        rs_table_is_written(t, pull->place.address))
        return true;
    if (bytes > pull->place.bytes) {
        rsched_free(pull->place.address);
        pull->place = (struct rs_place){0};
        rs_error_save(&kept);
        if (rs_shared_alloc(bytes, &pull->place) != 0) {
            rs_error_restore(&kept);
            return false;
        }
        a->offset = pull->place.offset;
        a->bytes = pull->place.bytes;
    }
    rs_table_write(t, pull->place.address);
    a->version++;
    return true;
}

static bool is_long(uint64_t bytes, uint64_t least)
{
    return least > 0 && bytes >= least;
}

/* What can be done with the message that the table was made of. */
static struct rs_way_parts parts_of(const struct lane *l)
{
    struct rs_way_parts parts;

    rs_table_parts(&l->pull.table,
                   atomic_load_explicit(&l->ring.words->reads,
                                        memory_order_relaxed) != 0,
                   &parts);
    for (size_t i = 0; i < l->pull.huge.parts.number; i++)
        rs_way_parts_set_huge(&parts, l->pull.huge.parts.at[i].bytes);
    return parts;
}

static struct rs_way_choice choose(const struct lane *l,
                                   const struct rs_way_parts *parts)
{
    const struct rs_host_ways *ways = rs_connection_ways(l->lane.connection);
    const struct rs_config *c = rs_config();
    struct rs_way_choice choice = rs_ways_choose(ways, parts);

    if (c->mapped_bytes != RS_LIMIT_AUTO)
        choice.pull = is_long(parts->mapped.bytes, c->mapped_bytes);
    if (c->cma_bytes != RS_LIMIT_AUTO)
        choice.cma = choice.huge = is_long(
            parts->readable.bytes + parts->huge.bytes, c->cma_bytes);
    return choice;
}

/* Whether it is to be found out if a way, which `limit` does not force, is faster
 * than slots, where both are possible. */
static bool tries(const struct rsched_connection *c, enum rs_way way,
                  uint64_t limit)
{
    return rs_config_tries(c->engine->env.ways->host_guessed) &&
           limit == RS_LIMIT_AUTO && rs_connection_ways(c)->of[way].given;
}

static bool tries_kernel(const struct rsched_connection *c)
{
    return tries(c, RS_WAY_CMA, rs_config()->cma_bytes);
}

static bool tries_mapped(const struct rsched_connection *c)
{
    return tries(c, RS_WAY_PULL, rs_config()->mapped_bytes);
}

uint64_t rs_pull_shortest(const struct rsched_connection *connection)
{
    const struct rs_host_ways *ways = rs_connection_ways(connection);
    const uint64_t limits[] = {rs_config()->mapped_bytes,
                               rs_config()->cma_bytes};
    uint64_t shortest = UINT64_MAX;

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        uint64_t limit = limits[i];

        if (limit == RS_LIMIT_AUTO)
            limit = ways->shortest_once;
        if (limit > 0 && limit < shortest)
            shortest = limit;
    }
    if ((tries_kernel(connection) || tries_mapped(connection)) &&
        ways->least_once < shortest)
        shortest = ways->least_once;
    return shortest;
}

/* Blocks that lie there lie there as a whole: cut_pieces(). */
static bool is_huge(const struct rs_pull *pull, const struct rsched_piece *p)
{
    for (size_t i = 0; i < pull->huge.parts.number; i++) {
        const struct rsched_piece *part = &pull->huge.parts.at[i];

        if (p->count == 1 && p->address >= part->address &&
            p->address < part->address + part->bytes)
            return true;
    }
    return false;
}

/* Have the kernel read what would go through slots. */
static void read_slots(struct lane *l, struct rs_way_choice choice)
{
    struct rs_table_maker *t = &l->pull.table;
    struct rs_pieces *slots = &l->pull.slots;
    size_t kept = 0, seen = 0;

    for (size_t i = 0; i < t->num_pieces; i++) {
        struct rs_table_piece *entry = &t->pieces[i];
        const struct rsched_piece *p = &slots->at[seen];

        if (entry->region != RS_TABLE_SLOTS)
            continue;
        seen++;
        if (p->bytes >= RS_TABLE_LEAST_READ &&
            (is_huge(&l->pull, p) ? choice.huge : choice.cma)) {
            entry->region = RS_TABLE_CMA;
            entry->offset = (uint64_t)(uintptr_t)p->address;
            l->pull.readable += p->bytes * p->count;
        } else {
            slots->at[kept++] = *p;
        }
    }
    slots->number = kept;
}

int rs_pull_offer(struct lane *l)
{
    const struct rs_host_ways *ways = rs_connection_ways(l->lane.connection);
    struct rs_pull *pull = &l->pull;
    int error;

    rs_pull_withdraw(l);
    if (l->bytes < l->shortest_once || !rs_ways_share(ways, l->bytes))
        return 0;
    error = make_table(l);
    if (error != 0 || pull->table.reachable < l->bytes)
        return error;
    pull->shares = publish(pull, &pull->offer);
    return 0;
}

/* Mapped memory is copied once by all costs that anybody has measured, but for short
 * blocks, and where so much goes through slots beside it that both ways have to be paid
 * for: where costs say otherwise, they are doubted, too.
 * @param pull by the costs it is copied once */
static bool is_worth_trials(const struct lane *l,
                            const struct rs_way_parts *parts, bool pull)
{
    const struct rsched_connection *c = l->lane.connection;

    if (parts->mapped.bytes == 0)
        return tries_kernel(c) &&
               l->bytes >= rs_connection_ways(c)->least_once &&
               parts->readable.bytes + parts->huge.bytes > l->bytes / 2;
    if (!tries_mapped(c) || parts->mapped.bytes <= l->bytes / 2)
        return false;
    return rs_way_part_is_choppy(&parts->mapped) ||
           (!pull && parts->mapped.scattered == 0);
}

/* What a trial has copied once, if that is not what the costs say. */
static struct rs_way_choice other_choice(const struct rs_way_parts *parts)
{
    bool mapped = parts->mapped.bytes > 0;

    return (struct rs_way_choice){mapped, !mapped, !mapped};
}

static int load(struct lane *l)
{
    struct rs_pull *pull = &l->pull;
    struct rs_way_choice choice;
    struct rs_way_parts parts;
    int error;

    pull->possible = false;
    if (pull->refused)
        return 0;
    error = make_table(l);
    if (error != 0)
        return error;
    parts = parts_of(l);
    choice = choose(l, &parts);
    pull->worth_trials = is_worth_trials(l, &parts, choice.pull);
    pull->guess = choice.pull || choice.cma || choice.huge;
    if (pull->worth_trials && !pull->guess)
        choice = other_choice(&parts);
    if (!choice.pull && !choice.cma && !choice.huge)
        return 0;
    pull->readable = 0;
    if (choice.cma || choice.huge)
        read_slots(l, choice);
    if (!publish(pull, &pull->announcement))
        return 0; /* all of it through slots */
    error = rs_pieces_compile(&pull->slots, l, &pull->rest);
    if (error != 0)
        return error;
    pull->announcement.rest = pull->rest.num_chunks;
    pull->possible = true;
    return 0;
}

int rs_pull_load(struct lane *l)
{
    int error = load(l);

    rs_lane_load_trial(l);
    return error;
}

/* ---- pages that could be adopted ---- */

const struct rsched_piece *rs_loopback_tx_blocks(struct rsched_lane *lane,
                                                 size_t *number)
{
    struct lane *l = lane_of(lane);

    *number = l->keeps && !l->pull.refused ? l->num_pieces : 0;
    if (lane->connection->self)
        *number = l->num_pieces;
    return l->pieces;
}

static uint64_t less(uint64_t before, uint64_t after)
{
    return after < before ? before - after : 0;
}

/* By the costs of the way that the message takes: where slots have been found to be faster
 * than the kernel, of which the costs say the contrary, the kernel takes longer than they say. */
static uint64_t saves_by_costs(const struct lane *l, const struct rs_way_parts *now,
                               const struct rs_way_parts *then)
{
    const struct rs_host_ways *ways = rs_connection_ways(l->lane.connection);
    const struct rs_way_choice slots = {.pull = false};
    bool twice = l->trial.possible && (l->trial.way & RS_TRIAL_ONCE) == 0;

    return less(rs_ways_time(ways, now, twice ? slots : choose(l, now)),
                rs_ways_time(ways, then, choose(l, then)));
}

/* As was found by trying: the bytes that could be mapped would take half of what they take
 * in two copies. What has been found may change. */
static uint64_t saves_by_trial(const struct lane *l, const struct rs_way_parts *then)
{
    uint64_t now = rs_trial_time(&l->trial, true);
    uint64_t twice = rs_trial_time(&l->trial, false);
    uint64_t saves = 0;

    if (now != 0 && twice != 0)
        saves = less(now, (uint64_t)((double)twice * (1 - (double)then->mapped.bytes / 2 /
                                                              (double)l->bytes)));
    return saves > 0 || !l->trial.possible ? saves : RSCHED_SAVING_UNKNOWN;
}

uint64_t rs_loopback_tx_saves(struct rsched_lane *lane,
                              const struct rsched_piece *pages, size_t number)
{
    struct lane *l = lane_of(lane);
    struct rs_way_parts now, then;
    uint64_t by_costs, by_trial;
    bool pull;

    if (!l->keeps || l->pull.refused || rs_config()->mapped_bytes == 0 ||
        make_table(l) != 0)
        return 0;
    now = parts_of(l);
    then = now;
    rs_table_parts_add(&then, l->pieces, l->num_pieces, pages, number);
    if (then.mapped.bytes == now.mapped.bytes)
        return 0;
    pull = choose(l, &then).pull;
    if (!pull && !is_worth_trials(l, &then, false))
        return 0;
    if (rs_config()->mapped_bytes != RS_LIMIT_AUTO)
        return UINT64_MAX;
    by_costs = pull ? saves_by_costs(l, &now, &then) : 0;
    by_trial = saves_by_trial(l, &then);
    return by_costs > by_trial ? by_costs : by_trial;
}

int rs_loopback_tx_remap(struct rsched_lane *lane)
{
    struct lane *l = lane_of(lane);

    return l->keeps ? rs_pull_load(l) : 0;
}

/* ---- huge pages ---- */

/* The part of a block up to where huge pages begin or end. */
static uint64_t cut(const struct rs_pieces *huge, const struct rsched_piece *p)
{
    uint64_t bytes = p->bytes;

    for (size_t i = 0; i < huge->number; i++) {
        const struct rsched_piece *r = &huge->at[i];
        const char *edges[] = {r->address, r->address + r->bytes};

        for (int k = 0; k < 2; k++) {
            if (edges[k] > p->address && edges[k] < p->address + bytes)
                bytes = (uint64_t)(edges[k] - p->address);
        }
    }
    return bytes;
}

/* Cut the message's blocks where huge pages begin and end. */
static int cut_pieces(struct lane *l)
{
    struct rs_pieces pieces = {0};
    int error = 0;

    for (size_t i = 0; i < l->num_pieces && error == 0; i++) {
        struct rsched_piece p = l->pieces[i];

        while (p.count == 1 && p.bytes > 0 && error == 0) {
            struct rsched_piece part = p;

            part.bytes = cut(&l->pull.huge.parts, &p);
            p.address += part.bytes;
            p.bytes -= part.bytes;
            error = rs_pieces_append(&pieces, &part);
        }
        if (p.count > 1 && error == 0)
            error = rs_pieces_append(&pieces, &p);
    }
    if (error != 0) {
        free(pieces.at);
        return error;
    }
    free(l->pieces);
    l->pieces = pieces.at;
    l->num_pieces = pieces.number;
    l->room_pieces = pieces.room;
    return 0;
}

/* What a start would save if so many more bytes were in huge pages. */
static uint64_t huge_saves(const void *arg, uint64_t bytes)
{
    const struct lane *l = arg;
    const struct rs_host_ways *ways = rs_connection_ways(l->lane.connection);
    struct rs_way_parts now = parts_of(l), then = now;
    uint64_t before, after;

    rs_way_parts_set_huge(&then, bytes);
    before = rs_ways_time(ways, &now, choose(l, &now));
    after = rs_ways_time(ways, &then, choose(l, &then));
    return less(before, after);
}

int rs_pull_consider_huge(struct lane *l)
{
    const struct rs_host_ways *ways = rs_connection_ways(l->lane.connection);
    struct rs_huge_pages *huge = &l->pull.huge;
    int error;

    /* Nothing is looked for where all of it would save nothing. */
    if (l->pull.refused || !ways->of[RS_WAY_CMA_HUGE].given ||
        huge_saves(l, l->bytes) == 0)
        return 0;
    error = rs_huge_consider(huge, l->pieces, l->num_pieces, huge_saves, l);
    if (error != 0 || huge->parts.number == 0)
        return error;
    rs_trial_forget(&l->trial); /* the kernel takes another time now */
    error = cut_pieces(l);
    return error != 0 ? error : rs_pull_load(l);
}
