/* SPDX-License-Identifier: BSD-3-Clause */
/* When lines of what is copied are asked for in advance: whether it is tried out, how often,
 * and what is made of what was measured. The processor is any. */
#include <criterion/criterion.h>

#include "engines/common/long_copy.h"
#include "engines/common/prefetch.h"
#include "librsched/base/config.h"
#include "librsched/base/log.h"

enum { BYTES = 16 << 10, FIRST = 16, IN_A_TRIAL = RS_PREFETCH_RUNS * RS_PREFETCH_RUN };

static enum rs_copy_prefetch how = RS_PREFETCH_AHEAD;
static bool gains = true;
static bool tried_from_the_beginning;

enum rs_copy_prefetch __wrap_rs_copy_prefetch(void);
bool __wrap_rs_copy_prefetch_gains(void);
void __wrap_rs_copies_run_ahead(const struct rs_copies *list);
void __real_rs_copies_divide(const struct rs_copies *list, uint64_t bytes, struct rs_parts *parts);
void __wrap_rs_copies_divide(const struct rs_copies *list, uint64_t bytes, struct rs_parts *parts);
uint64_t __wrap_rs_copies_run_in_turn(const struct rs_copies *list,
                                      const struct rs_parts *parts);

enum rs_copy_prefetch __wrap_rs_copy_prefetch(void)
{
    return how;
}

bool __wrap_rs_copy_prefetch_gains(void)
{
    return gains;
}

void __wrap_rs_copies_run_ahead(const struct rs_copies *list)
{
    cr_assert_eq(how, RS_PREFETCH_AHEAD);
    rs_copies_run_pair(list);
}

uint64_t __wrap_rs_copies_run_in_turn(const struct rs_copies *list,
                                      const struct rs_parts *parts)
{
    struct rs_parts now;
    uint64_t bytes = 0;

    cr_assert_eq(how, RS_PREFETCH_IN_TURN);
    for (uint32_t i = 0; i < list->num_copies; i++)
        bytes += list->copies[i].bytes * list->copies[i].count;
    __real_rs_copies_divide(list, bytes, &now);
    cr_assert_arr_eq(parts, &now, sizeof(now), "it was divided as it is now");
    return rs_copies_run_pair(list);
}

static int divided; /* lists */

void __wrap_rs_copies_divide(const struct rs_copies *list, uint64_t bytes, struct rs_parts *parts)
{
    __real_rs_copies_divide(list, bytes, parts);
    divided++;
}

static int lines_of_log;

void __wrap_rs_log(enum rs_log_level level, const char *format, ...);

void __wrap_rs_log(enum rs_log_level level, const char *format, ...)
{
    cr_assert_eq(level, RS_LOG_WARN, "%s", format);
    lines_of_log++;
}

static char from[1 << 21], to[1 << 21];

static void list_of(struct rs_copies *list, uint64_t bytes, uint64_t block)
{
    struct rsched_piece sent = {from, bytes, 1, 0};
    struct rsched_piece got = {to, block, bytes / block, (int64_t)block + (block < bytes)};
    struct rsched_message source = {.pieces = &sent, .num_pieces = 1, .bytes = bytes};
    struct rsched_message target = {.pieces = &got, .num_pieces = 1, .bytes = bytes};

    cr_assert_eq(rs_copies_compile_pair(list, &source, &target), 0);
}

/* @return in how many of so many epochs, all of which bring the bytes */
static int run(struct rs_prefetch *p, struct rs_copies *list, int epochs)
{
    uint64_t nontemporal = 0, bytes;
    int ahead = 0;

    for (int i = 0; i < epochs; i++) {
        from[0] = (char)i;
        bytes = rs_prefetch_run(p, list, false, &nontemporal);
        cr_assert(bytes == 0 || bytes == p->bytes);
        cr_assert_eq(to[0], (char)i);
        ahead += bytes > 0;
    }
    cr_assert_eq(nontemporal > 0, list->nontemporal && RS_HAS_NONTEMPORAL);
    return ahead;
}

/* In the second period: the first trial is over, and its result, which is the machine's, is
 * not looked at. */
static void case_of(const char *setting, const char *value, uint64_t bytes, uint64_t block,
                    bool tried, bool always)
{
    struct rs_prefetch p = {.bytes = 0};
    struct rs_copies list = {0};

    cr_assert(setting == NULL || rs_config_set(setting, value));
    list_of(&list, bytes, block);
    rs_prefetch_load(&p, &list);
    cr_assert_eq(p.tried, tried, "%s=%s, %d bytes", setting, value, (int)bytes);
    cr_assert_eq(run(&p, &list, FIRST),
                 always || (tried && tried_from_the_beginning) ? FIRST : 0);
    cr_assert_eq(run(&p, &list, IN_A_TRIAL),
                 always  ? IN_A_TRIAL
                 : tried ? IN_A_TRIAL / 2
                         : 0);
    cr_assert(setting == NULL || rs_config_set(setting, "auto"));
    rs_copies_fini(&list);
}

Test(base_prefetch, where_it_is_tried)
{
    case_of(NULL, NULL, BYTES, BYTES, true, false);
    case_of(NULL, NULL, BYTES, RS_COPY_AHEAD, true, false);
    case_of(NULL, NULL, 1 << 20, 1 << 20, true, false);
    case_of(NULL, NULL, BYTES - 1, BYTES - 1, false, false);
    case_of(NULL, NULL, (1 << 20) + 1, (1 << 20) + 1, false, false);
    case_of(NULL, NULL, BYTES, RS_COPY_AHEAD / 2, false, false);
    case_of("RSCHED_TRIALS", "no", BYTES, BYTES, false, false);
    case_of("RSCHED_PREFETCH", "no", BYTES, BYTES, false, false);
    case_of("RSCHED_PREFETCH", "yes", BYTES, BYTES, false, true);
    case_of("RSCHED_PREFETCH", "yes", 4096, 4096, false, true);
    case_of("RSCHED_PREFETCH", "yes", 4096, RS_COPY_AHEAD / 2, false, false);
    gains = false; /* another processor */
    case_of(NULL, NULL, BYTES, BYTES, false, false);
    case_of("RSCHED_PREFETCH", "yes", BYTES, BYTES, false, true);
    how = RS_PREFETCH_NONE;
    case_of("RSCHED_PREFETCH", "yes", BYTES, BYTES, false, false);
    how = RS_PREFETCH_IN_TURN;
    case_of("RSCHED_PREFETCH", "yes", BYTES, BYTES, false, true);
    gains = true;
    tried_from_the_beginning = true;
    case_of(NULL, NULL, BYTES, BYTES, true, false);
    case_of(NULL, NULL, BYTES - 1, BYTES - 1, false, false);
}

/* What is asked for and cannot be is said once, and nothing else. */
Test(base_prefetch, no_such_way)
{
    case_of("RSCHED_PREFETCH", "yes", BYTES, BYTES, false, true);
    how = RS_PREFETCH_NONE;
    case_of("RSCHED_PREFETCH", "no", BYTES, BYTES, false, false);
    case_of(NULL, NULL, BYTES, BYTES, false, false);
    cr_assert_eq(lines_of_log, 0);
    for (int i = 0; i < 2; i++) {
        case_of("RSCHED_PREFETCH", "yes", BYTES, BYTES, false, false);
        cr_assert_eq(lines_of_log, 1);
    }
}

static void measure(struct rs_prefetch *p, uint64_t plain, uint64_t ahead)
{
    int samples = RS_PREFETCH_RUNS / 2 * (int)(p->run - 1);

    for (int i = 0; i < samples; i++) {
        rs_prefetch_took(p, false, i % 3 == 0 ? plain * 10 : plain);
        rs_prefetch_took(p, true, i % 3 == 1 ? 1 : ahead);
    }
}

/* Lists of any length are tried in turn, long ones in short trials, past the caches or not. */
Test(base_prefetch, long_lists_in_turn)
{
    enum { FIRST_LONG = 4, IN_A_LONG_TRIAL = RS_PREFETCH_RUNS * RS_PREFETCH_LONG_RUN };
    struct rs_prefetch p = {.bytes = 0};
    struct rs_copies list = {0};

    how = RS_PREFETCH_IN_TURN;
    list_of(&list, RS_PREFETCH_LONG + 1, RS_PREFETCH_LONG + 1);
    for (int nontemporal = 0; nontemporal < 2; nontemporal++) {
        list.nontemporal = nontemporal != 0;
        rs_prefetch_load(&p, &list);
        cr_assert(p.tried);
        cr_assert_eq(run(&p, &list, FIRST_LONG), FIRST_LONG);
        cr_assert_eq(run(&p, &list, IN_A_LONG_TRIAL), IN_A_LONG_TRIAL / 2);
        cr_assert_eq(p.known[false], 0, "it has been decided");
        cr_assert_eq(run(&p, &list, 1), p.ahead);
        cr_assert_eq((int)p.at, IN_A_LONG_TRIAL + 1);
    }
    /* What is known of one kind of stores says nothing of the other. */
    measure(&p, 100, 5000);
    cr_assert_not(p.ahead);
    list.nontemporal = false;
    cr_assert_eq(run(&p, &list, 1), 1);
    rs_copies_fini(&list);
}

/* What is known is kept for other blocks of as many bytes, but not how they were divided; and
 * a list that could not be made is none. */
Test(base_prefetch, other_blocks_in_turn)
{
    struct rs_prefetch p = {.bytes = 0};
    struct rs_copies list = {0};

    how = RS_PREFETCH_IN_TURN;
    list_of(&list, BYTES, BYTES);
    rs_prefetch_load(&p, &list);
    run(&p, &list, FIRST + IN_A_TRIAL);
    measure(&p, 5000, 100);
    list_of(&list, BYTES, RS_COPY_AHEAD);
    rs_prefetch_load(&p, &list);
    cr_assert_eq(run(&p, &list, 1), 1);
    cr_assert_eq((int)p.at, IN_A_TRIAL + 1, "it went on");
    rs_prefetch_drop(&p);
    list.num_copies = 0;
    cr_assert_eq(rs_prefetch_run(&p, &list, false, &(uint64_t){0}), 0);
    rs_copies_fini(&list);
}

/* What comes out of the process's own memory is not asked for in advance, but copied in turn. */
Test(base_prefetch, own_memory)
{
    struct rs_prefetch p = {.bytes = 1};
    struct rs_copies list = {0};

    list_of(&list, BYTES, BYTES);
    rs_prefetch_load_own(&p, &list);
    cr_assert(p.bytes == 0 && !p.tried);
    cr_assert_eq(run(&p, &list, 1), 0);
    how = RS_PREFETCH_IN_TURN;
    rs_prefetch_load_own(&p, &list);
    cr_assert(p.bytes == BYTES && p.tried);
    rs_copies_fini(&list);
}

/* @return whether the second chunk of a list goes in turn, and nothing else of the list is copied */
static bool second_goes_in_turn(uint64_t chunk, uint64_t block, bool past)
{
    struct rs_copy copy = {.user = from, .bytes = block, .count = 3 * chunk / block,
                           .stride = (int64_t)block, .other = to,
                           .other_stride = (int64_t)block + 1};
    struct rs_copies list = {.nontemporal = past};
    struct rs_prefetch_chunks chunks = {.room = 0};
    uint64_t nontemporal = 0, bytes;

    for (uint64_t i = 0; i < 3 * chunk; i++)
        from[i] = (char)(i % 251 + 1);
    memset(to, 0, sizeof(to));
    cr_assert_eq(rs_copies_append_pair(&list, &copy, false, chunk), 0);
    cr_assert_eq(list.num_chunks, 3);
    bytes = rs_prefetch_run_chunk(&chunks, &list, 1, &nontemporal);
    cr_assert_eq(bytes, 0, "nobody has divided it");
    memset(to, 0, sizeof(to));
    rs_prefetch_load_chunks(&chunks, &list);
    nontemporal = divided = 0;
    bytes = rs_prefetch_run_chunk(&chunks, &list, 1, &nontemporal);
    cr_assert_eq(divided, 0, "it was divided before");
    cr_assert(bytes == 0 || bytes == chunk);
    cr_assert_eq(nontemporal > 0, past && RS_HAS_NONTEMPORAL);
    for (uint64_t i = 0; i < 3 * chunk; i++)
        cr_assert_eq(to[i + i / block], i < chunk || i >= 2 * chunk ? 0 : from[i]);
    rs_prefetch_fini_chunks(&chunks);
    rs_copies_fini(&list);
    return bytes > 0;
}

/* What two processes copy together. Blocks are short or long on average: chunks end anywhere. */
Test(base_prefetch, chunks)
{
    enum { LONG = 3 * RS_COPY_AHEAD };

    cr_assert_not(second_goes_in_turn(BYTES, LONG, false), "it is the way of another processor");
    how = RS_PREFETCH_IN_TURN;
    cr_assert(second_goes_in_turn(BYTES, LONG, false));
    cr_assert(second_goes_in_turn(BYTES, LONG, true));
    cr_assert_not(second_goes_in_turn(BYTES, RS_COPY_AHEAD / 2, false));
    cr_assert_not(second_goes_in_turn(BYTES - RS_COPY_LINE, LONG, false));
    rs_config_set("RSCHED_PREFETCH", "no");
    cr_assert_not(second_goes_in_turn(BYTES, LONG, false));
    rs_config_set("RSCHED_PREFETCH", "yes");
    cr_assert(second_goes_in_turn(BYTES - RS_COPY_LINE, LONG, false));
    rs_config_set("RSCHED_PREFETCH", "auto");
    rs_config_set("RSCHED_TRIALS", "no");
    cr_assert_not(second_goes_in_turn(BYTES, LONG, false));
    rs_config_set("RSCHED_TRIALS", "auto");
    gains = false;
    cr_assert_not(second_goes_in_turn(BYTES, LONG, false));
}

struct trial {
    uint64_t plain, ahead;
    bool is_ahead;
};

static void decide_all(const struct trial *trials, size_t number)
{
    struct rs_prefetch p = {.bytes = 0};
    struct rs_copies list = {0};

    list_of(&list, BYTES, BYTES);
    rs_prefetch_load(&p, &list);
    for (size_t i = 0; i < number; i++) {
        measure(&p, trials[i].plain, trials[i].ahead);
        cr_assert_eq(p.ahead, trials[i].is_ahead, "trial %zu", i);
    }
    rs_copies_fini(&list);
}

/* It must gain a sixteenth, and is given up where it gains nothing. Single times do not
 * count. */
Test(base_prefetch, what_is_decided)
{
    static const struct trial trials[] = {
        {1600, 1500, false}, {1600, 1499, true}, {1600, 1599, true}, {1600, 1600, false},
        {1600, 1599, false}, {1600, 100, true}, {1600, 5000, false}};

    decide_all(trials, sizeof(trials) / sizeof(trials[0]));
}

/* In turn is the way from the beginning on, and it is the other one that must gain. */
Test(base_prefetch, what_is_decided_in_turn)
{
    static const struct trial trials[] = {
        {1600, 1600, true}, {1600, 1649, true}, {1600, 1650, false}, {1600, 1550, false},
        {1600, 1549, true}, {1600, 1649, true}, {1600, 5000, false}};

    how = RS_PREFETCH_IN_TURN;
    decide_all(trials, sizeof(trials) / sizeof(trials[0]));
}

/* Between trials all epochs go as was decided, and a period has one trial. What was found
 * is kept for a list of as many bytes, and forgotten for another. */
Test(base_prefetch, periods)
{
    enum { REST = RS_PREFETCH_PERIOD - IN_A_TRIAL };
    struct rs_prefetch p = {.bytes = 0};
    struct rs_copies list = {0};

    list_of(&list, BYTES, BYTES);
    rs_prefetch_load(&p, &list);
    for (int ahead = 0; ahead < 2; ahead++) {
        run(&p, &list, ahead == 0 ? FIRST + IN_A_TRIAL : IN_A_TRIAL);
        measure(&p, 1600, ahead != 0 ? 100 : 5000);
        rs_prefetch_load(&p, &list);
        cr_assert_eq(run(&p, &list, REST), ahead != 0 ? REST : 0);
    }
    /* Nothing is tried in an epoch that is measured, nor counted. */
    for (int i = 0; i < 10; i++)
        cr_assert_eq(rs_prefetch_run(&p, &list, true, &(uint64_t){0}), BYTES);
    list.nontemporal = true;
    cr_assert_eq(run(&p, &list, 10), 0);
    list.nontemporal = false;
    cr_assert_eq(run(&p, &list, IN_A_TRIAL), IN_A_TRIAL / 2, "the next one was not begun");
    measure(&p, 1600, 100);
    cr_assert_eq(run(&p, &list, 1), 1);
    list_of(&list, BYTES * 2, BYTES * 2);
    rs_prefetch_load(&p, &list);
    cr_assert_eq(run(&p, &list, FIRST), 0);
    rs_copies_fini(&list);
}
