/* SPDX-License-Identifier: BSD-3-Clause */
/* What was accelerated, what was not, and why. Exchanges count for themselves;
 * the hot path counts nothing here. */
#include "mpi/message.h"

#include <stdio.h>
#include <string.h>

#include <rsched/engine.h>
#include <rsched/memory.h>

const char *const rs_call_names[RS_NUM_CALLS] = {
#define RS_XX(id, name) [RS_CALL_##id] = (name),
    RS_CALL_MAP(RS_XX)
#undef RS_XX
};

const char *const rs_reason_slugs[RS_NUM_REASONS] = {
    [RS_ACCELERATED] = "accelerated",
#define RS_XX(id, slug, text) [RS_REASON_##id] = (slug),
    RS_REASON_MAP(RS_XX)
#undef RS_XX
};

const char *const rs_reason_texts[RS_NUM_REASONS] = {
    [RS_ACCELERATED] = "accelerated",
#define RS_XX(id, slug, text) [RS_REASON_##id] = (text),
    RS_REASON_MAP(RS_XX)
#undef RS_XX
};

static atomic_uint_least64_t calls[RS_NUM_CALLS][RS_NUM_REASONS];
static atomic_uint_least64_t numbers[RS_NUM_NUMBERS];

static void count(atomic_uint_least64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

void rs_count_native(enum rs_call call, enum rs_reason reason)
{
    count(&calls[call][reason], 1);
}

void rs_count_accelerated(enum rs_call call, uint64_t by)
{
    count(&calls[call][RS_ACCELERATED], by);
}

void rs_count_packed(uint64_t blocks)
{
    count(&numbers[RS_NUMBER_PACKED], blocks);
}

void rs_count_loads(uint64_t loads)
{
    count(&numbers[RS_NUMBER_LOADS], loads);
}

static void add_exchange(uint64_t *to, const struct rsched_exchange *exchange,
                         bool persistent)
{
    struct rsched_stats stats;

    rsched_exchange_get_stats(exchange, &stats);
    to[RS_NUMBER_STARTS] += persistent ? stats.epochs : 0;
    to[RS_NUMBER_EDGES_OUT] += stats.edges_out;
    to[RS_NUMBER_EDGES_IN] += stats.edges_in;
    to[RS_NUMBER_EDGES_SELF] += stats.edges_self;
    to[RS_NUMBER_PUTS] += stats.puts;
    to[RS_NUMBER_BYTES] += stats.bytes;
    to[RS_NUMBER_SELF_BYTES] += stats.self_bytes;
    to[RS_NUMBER_CHUNKS] += stats.chunks_out;
    to[RS_NUMBER_STALLS] += stats.credit_stalls;
    to[RS_NUMBER_TRIALS] += stats.trials;
    to[RS_NUMBER_TRIAL_CHANGES] += stats.trial_changes;
    for (int way = 0; way < RSCHED_NUM_WAYS; way++)
        to[RS_NUMBER_WAYS + way] += stats.way_bytes[way];
    for (int engine = 0; engine < RSCHED_MAX_ENGINES; engine++)
        to[RS_NUMBER_ENGINES + engine] += stats.engine_bytes[engine];
}

static void add_variable(uint64_t *to, const struct rsched_exchange *exchange)
{
    add_exchange(to, exchange, false);
}

void rs_count_retire(const struct rsched_exchange *exchange, bool persistent)
{
    uint64_t more[RS_NUM_NUMBERS] = {0};

    add_exchange(more, exchange, persistent);
    for (int i = 0; i < RS_NUM_NUMBERS; i++)
        count(&numbers[i], more[i]);
}

void rs_count_number(enum rs_number number, uint64_t by)
{
    count(&numbers[number], by);
}

static void add_message(struct rs_counts *to, const struct rs_message *message)
{
    uint64_t trials, changes;

    rs_message_trials(message, &trials, &changes);
    to->numbers[RS_NUMBER_TRIALS] += trials;
    to->numbers[RS_NUMBER_TRIAL_CHANGES] += changes;
    to->calls[message->call][rs_message_reason(message)]++;
    to->numbers[message->sends ? RS_NUMBER_LANE_SENDS
                               : RS_NUMBER_LANE_RECEIVES] += message->puts;
    to->numbers[RS_NUMBER_LANE_NATIVE] += message->natives;
    to->numbers[RS_NUMBER_LANE_PULLS] += message->pulls;
    to->numbers[RS_NUMBER_LANE_MAPPED] += message->mapped;
    to->numbers[RS_NUMBER_LANE_PACKED] += message->packed;
    to->numbers[RS_NUMBER_LANE_NONTEMPORAL] += message->nontemporal;
    to->numbers[RS_NUMBER_LANE_PREFETCHED] += message->prefetched;
    to->numbers[RS_NUMBER_LANE_OPENED] += message->opened;
}

void rs_count_message(const struct rs_message *message)
{
    uint64_t trials, changes;

    rs_message_trials(message, &trials, &changes);
    count(&numbers[RS_NUMBER_TRIALS], trials);
    count(&numbers[RS_NUMBER_TRIAL_CHANGES], changes);
    count(&calls[message->call][rs_message_reason(message)], 1);
    count(&numbers[message->sends ? RS_NUMBER_LANE_SENDS
                                  : RS_NUMBER_LANE_RECEIVES],
          message->puts);
    count(&numbers[RS_NUMBER_LANE_NATIVE], message->natives);
    count(&numbers[RS_NUMBER_LANE_PULLS], message->pulls);
    count(&numbers[RS_NUMBER_LANE_MAPPED], message->mapped);
    count(&numbers[RS_NUMBER_LANE_PACKED], message->packed);
    count(&numbers[RS_NUMBER_LANE_NONTEMPORAL], message->nontemporal);
    count(&numbers[RS_NUMBER_LANE_PREFETCHED], message->prefetched);
    count(&numbers[RS_NUMBER_LANE_OPENED], message->opened);
}

void rs_count_collect(struct rs_counts *counts)
{
    bool crowded = rs_is_crowded();

    pthread_mutex_lock(&rs_process.lock);
    for (int call = 0; call < RS_NUM_CALLS; call++) {
        for (int reason = 0; reason < RS_NUM_REASONS; reason++)
            counts->calls[call][reason] = calls[call][reason];
    }
    for (int i = 0; i < RS_NUM_NUMBERS; i++)
        counts->numbers[i] = numbers[i];
    for (int i = 0; i < RSCHED_NUM_ADOPTIONS; i++)
        counts->numbers[RS_NUMBER_ADOPTIONS + i] =
            rsched_memory_adoptions((enum rsched_adoption)i);
    counts->numbers[RS_NUMBER_HUGE] = rsched_memory_huge();
    counts->numbers[RS_NUMBER_CROWDED] = crowded;
    for (const struct rs_request *r = rs_requests; r != NULL; r = r->next) {
        if (r->exchange != NULL)
            add_exchange(counts->numbers, r->exchange, true);
        if (r->message != NULL)
            add_message(counts, r->message);
    }
    for (const struct rs_request *r = rs_zombies; r != NULL; r = r->next) {
        if (r->exchange != NULL)
            add_exchange(counts->numbers, r->exchange, true);
    }
    for (struct rs_comm *c = rs_comms; c != NULL; c = c->next) {
        for (int kind = 0; kind < RS_NUM_KINDS; kind++)
            counts->calls[kind][RS_ACCELERATED] += c->calls[kind];
        counts->numbers[RS_NUMBER_LOADS] += c->loads;
        if (c->channel != NULL)
            add_variable(counts->numbers, c->channel);
        rs_channels_visit(c, add_variable, counts->numbers);
    }
    pthread_mutex_unlock(&rs_process.lock);
}

/* ---- queries ---- */

const char *rs_way_name(size_t way)
{
    return way < RSCHED_NUM_WAYS ? rsched_way_name((enum rsched_way)way) : NULL;
}

const char *rs_engine_name(size_t engine)
{
    const struct rsched_engine_ops *ops =
        engine < RSCHED_MAX_ENGINES ? rsched_engine_at(engine) : NULL;

    return ops != NULL ? ops->name : NULL;
}

const char *rs_adoption_name(size_t adoption)
{
    return rsched_adoption_name((enum rsched_adoption)adoption);
}

/* "ways.WAY", "engines.ENGINE", "adoptions.ADOPTION" */
static bool named_counter(const struct rs_counts *counts, const char *name,
                          uint64_t *value)
{
    static const struct {
        const char *prefix;
        const char *(*name_of)(size_t index);
        int first;
    } groups[] = {{"ways.", rs_way_name, RS_NUMBER_WAYS},
                  {"engines.", rs_engine_name, RS_NUMBER_ENGINES},
                  {"adoptions.", rs_adoption_name, RS_NUMBER_ADOPTIONS}};

    for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
        size_t length = strlen(groups[g].prefix);
        const char *known;

        if (strncmp(name, groups[g].prefix, length) != 0)
            continue;
        for (size_t i = 0; (known = groups[g].name_of(i)) != NULL; i++) {
            if (strcmp(known, name + length) != 0)
                continue;
            *value = counts->numbers[(size_t)groups[g].first + i];
            return true;
        }
    }
    return false;
}

static uint64_t sum_native(const uint64_t *reasons)
{
    uint64_t sum = 0;

    for (int reason = RS_ACCELERATED + 1; reason < RS_NUM_REASONS; reason++)
        sum += reasons[reason];
    return sum;
}

/* "CALL.accelerated", "CALL.native", "CALL.native.REASON" */
static bool call_counter(const struct rs_counts *counts, const char *name,
                         uint64_t *value)
{
    static const char native[] = "native";
    size_t length = strcspn(name, ".");

    if (name[length] == '\0')
        return false;
    for (int call = 0; call < RS_NUM_CALLS; call++) {
        const char *rest = name + length + 1;

        if (strlen(rs_call_names[call]) != length ||
            memcmp(rs_call_names[call], name, length) != 0)
            continue;
        if (strcmp(rest, "accelerated") == 0) {
            *value = counts->calls[call][RS_ACCELERATED];
            return true;
        }
        if (strncmp(rest, native, sizeof(native) - 1) != 0)
            return false;
        rest += sizeof(native) - 1;
        if (*rest == '\0') {
            *value = sum_native(counts->calls[call]);
            return true;
        }
        if (*rest++ != '.')
            return false;
        for (int reason = 1; reason < RS_NUM_REASONS; reason++) {
            if (strcmp(rest, rs_reason_slugs[reason]) == 0) {
                *value = counts->calls[call][reason];
                return true;
            }
        }
        return false;
    }
    return false;
}

static bool live_counter(const char *name, uint64_t *value)
{
    uint64_t requests = 0, comms = 0;

    pthread_mutex_lock(&rs_process.lock);
    for (const struct rs_request *r = rs_requests; r != NULL; r = r->next)
        requests++;
    for (const struct rs_comm *c = rs_comms; c != NULL; c = c->next)
        comms += c->reason == RS_ACCELERATED;
    pthread_mutex_unlock(&rs_process.lock);
    if (strcmp(name, "requests") == 0)
        *value = requests;
    else if (strcmp(name, "communicators") == 0)
        *value = comms;
    else if (strcmp(name, "lanes") == 0)
        *value = rs_lanes_count();
    else if (strcmp(name, "lane_slot_bytes") == 0)
        *value = rs_lanes_slot_bytes();
    else if (strcmp(name, "lane_offers") == 0)
        *value = rs_notes_offers();
    else if (strcmp(name, "offers_kept") == 0)
        *value = rs_offers_kept();
    else
        return false;
    return true;
}

int rsched_mpi_counter(const char *name, uint64_t *value)
{
    static const struct {
        const char *name;
        enum rs_number number;
    } plain[] = {
        {"starts", RS_NUMBER_STARTS},
        {"edges_out", RS_NUMBER_EDGES_OUT},
        {"edges_in", RS_NUMBER_EDGES_IN},
        {"edges_self", RS_NUMBER_EDGES_SELF},
        {"puts", RS_NUMBER_PUTS},
        {"bytes", RS_NUMBER_BYTES},
        {"self_bytes", RS_NUMBER_SELF_BYTES},
        {"chunks", RS_NUMBER_CHUNKS},
        {"credit_stalls", RS_NUMBER_STALLS},
        {"packed", RS_NUMBER_PACKED},
        {"staged", RS_NUMBER_STAGED},
        {"loads", RS_NUMBER_LOADS},
        {"queued", RS_NUMBER_QUEUED},
        {"lane_sends", RS_NUMBER_LANE_SENDS},
        {"lane_receives", RS_NUMBER_LANE_RECEIVES},
        {"lane_native", RS_NUMBER_LANE_NATIVE},
        {"lane_pulls", RS_NUMBER_LANE_PULLS},
        {"lane_mapped", RS_NUMBER_LANE_MAPPED},
        {"lane_packed", RS_NUMBER_LANE_PACKED},
        {"lane_nontemporal", RS_NUMBER_LANE_NONTEMPORAL},
        {"lane_prefetched", RS_NUMBER_LANE_PREFETCHED},
        {"trials", RS_NUMBER_TRIALS},
        {"trial_changes", RS_NUMBER_TRIAL_CHANGES},
        {"lane_opened", RS_NUMBER_LANE_OPENED},
        {"lane_wakes", RS_NUMBER_LANE_WAKES},
        {"huge", RS_NUMBER_HUGE},
        {"incarnations", RS_NUMBER_INCARNATIONS},
        {"stops", RS_NUMBER_STOPS},
        {"withdrawn", RS_NUMBER_WITHDRAWN},
        {"crowded", RS_NUMBER_CROWDED},
    };
    struct rs_counts counts;
    uint64_t accelerated = 0, native = 0;
    char text[256];

    rs_count_collect(&counts);
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        if (strcmp(plain[i].name, name) == 0) {
            *value = counts.numbers[plain[i].number];
            return 0;
        }
    }
    for (int call = 0; call < RS_NUM_CALLS; call++) {
        accelerated += counts.calls[call][RS_ACCELERATED];
        native += sum_native(counts.calls[call]);
    }
    if (strcmp(name, "accelerated") == 0) {
        *value = accelerated;
        return 0;
    }
    if (strcmp(name, "native") == 0) {
        *value = native;
        return 0;
    }
    if (call_counter(&counts, name, value) || named_counter(&counts, name, value) ||
        live_counter(name, value))
        return 0;
    snprintf(text, sizeof(text), "%s: there is no counter '%.200s'", __func__, name);
    return rsched_fail(RSCHED_ENAME, text);
}

const char *rsched_mpi_reason(size_t index)
{
    static const char *const reasons[] = {
#define RS_XX(id, slug, text) slug "\t" text,
        RS_REASON_MAP(RS_XX)
#undef RS_XX
    };

    return index < sizeof(reasons) / sizeof(reasons[0]) ? reasons[index] : NULL;
}
