/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that one process copies out of another's memory: what can be mapped
 * and what cannot, more at once than the kernel reads in a call and than unused
 * mappings are kept, longer ones than there is room for, of no bytes, by several
 * threads, and notices and tables that say what is not so. tests/mpi/pulled.c has the layouts.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rsched/memory.h>
#include <rsched/pull.h>

#include "librsched/base/ways.h"
#include "engines/common/table.h"
#include "tests/runtime/ranks.h"

enum { BYTES = 40000, MESSAGES = 140, SKIP = 77 };
enum { MANY = 3 * BYTES }; /* more than the caches keep */

/* Even ones are in memory that can be mapped. */
struct told {
    struct rsched_pull_memory memory;
    struct rsched_pull_notice notices[MESSAGES];
    struct rsched_pull_notice common; /* in memory that both have */
};

enum { COMMON = 7 }; /* its name */

/* What a sender does not write: two regions, two pieces of BYTES together. */
struct forged {
    struct rs_table head;
    struct rs_table_region regions[2];
    struct rs_table_piece pieces[2];
};

static struct forged *forged; /* in memory that both have at one address */

/* Slots are dear, so that what can be copied once is. */
#define COST(rate) {0, 1, {{0, UINT64_C(rate) * 1000000}}}
#define WAY(rate) {true, 100000, COST(rate), COST(rate), 0, 0}
#define WAYS {.of = {[RS_WAY_LANDING] = WAY(100), [RS_WAY_PULL] = WAY(9000), \
                     [RS_WAY_CMA] = WAY(5000)}, .nontemporal = MANY}
static const struct rs_ways ways = {.host = {WAYS, WAYS}};
static const struct rsched_pull_reader reader = {.maps = true};
static struct rsched_pull_group *group;

static struct told *told;
static char *common;

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__,          \
                    #condition, rsched_last_error());                        \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

static char value(int message, int i)
{
    return (char)(message * 31 + i * 7);
}

static struct rsched_pull_source *send_common(void)
{
    struct rsched_piece piece = {common, BYTES, 1, 0};
    struct rsched_message message = {.pieces = &piece,
                                     .num_pieces = 1,
                                     .bytes = BYTES};
    struct rsched_pull_source *source;

    for (int i = 0; i < BYTES; i++)
        common[i] = value(MESSAGES, i);
    CHECK(rsched_memory_add(COMMON, common, BYTES) == 0);
    CHECK(rsched_pull_source_create(&message, &ways, &reader, group, &source) == 0);
    CHECK(rsched_pull_source_load(source, &told->common) == 0);
    return source;
}

static void send_all(int ready, int over)
{
    struct rsched_pull_source *sources[MESSAGES + 1];
    char *memories[MESSAGES];
    char byte = 0;

    CHECK(rsched_pull_memory_open(&told->memory) == 0);
    for (int m = 0; m < MESSAGES; m++) {
        void *memory = NULL;
        struct rsched_piece piece = {NULL, BYTES, 1, 0};
        struct rsched_message message = {.pieces = &piece,
                                         .num_pieces = 1,
                                         .bytes = BYTES};

        if (m % 2 == 0)
            CHECK(rsched_alloc(BYTES, &memory) == 0);
        else
            CHECK((memory = malloc(BYTES)) != NULL);
        piece.address = memories[m] = memory;
        for (int i = 0; i < BYTES; i++)
            piece.address[i] = value(m, i);
        CHECK(rsched_pull_source_create(&message, &ways, &reader, group,
                                        &sources[m]) == 0);
        CHECK(rsched_pull_source_way(sources[m], BYTES, 1) == RSCHED_PULL_IN_PLACE);
        CHECK(rsched_pull_source_load(sources[m], &told->notices[m]) == 0);
    }
    sources[MESSAGES] = send_common();
    CHECK(write(ready, &byte, 1) == 1);
    CHECK(read(over, &byte, 1) == 1);
    for (int m = 0; m <= MESSAGES; m++)
        rsched_pull_source_destroy(sources[m]);
    for (int m = 0; m < MESSAGES; m++) {
        if (m % 2 == 0)
            rsched_free(memories[m]);
        else
            free(memories[m]);
    }
    CHECK(rsched_memory_remove(COMMON) == 0);
    rsched_pull_group_destroy(group);
    exit(0);
}

/* Memory that processors read, and the kernel for nobody, goes through slots,
 * whatever settings and costs say. */
static void send_secret(void)
{
    struct rsched_piece pieces[] = {{common, BYTES, 1, 0}, {NULL, BYTES, 1, 0}};
    struct rsched_message message = {.pieces = pieces,
                                     .num_pieces = 2,
                                     .bytes = 2 * BYTES};
    int fd = (int)syscall(SYS_memfd_secret, 0);
    struct rsched_pull_source *source;

    if (fd < 0) {
        printf("no memory that is secret\n");
        return;
    }
    CHECK(ftruncate(fd, BYTES) == 0);
    pieces[1].address =
        mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(pieces[1].address != MAP_FAILED);
    CHECK(rsched_pull_source_create(&message, &ways, &reader, group, &source) == 0);
    CHECK(rsched_pull_source_way(source, 2 * BYTES, 1) == RSCHED_PULL_SLOTS);
    CHECK(rsched_pull_source_way(source, BYTES, 1) == RSCHED_PULL_PACKED);
    rsched_pull_source_destroy(source);
    munmap(pieces[1].address, BYTES);
    pieces[1].address = pieces[0].address;
    CHECK(rsched_pull_source_create(&message, &ways, &reader, group, &source) == 0);
    CHECK(rsched_pull_source_way(source, 2 * BYTES, 1) == RSCHED_PULL_IN_PLACE);
    rsched_pull_source_destroy(source);
    close(fd);
}

/* Pages are adopted whichever way the message goes through them. */
static void send_adopted(void)
{
    enum { PAGE = 4096, HALF = 8 * PAGE };
    char *memory = mmap(NULL, 2 * HALF, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rsched_piece pieces[] = {{memory + HALF, HALF, 1, 0}, {memory, HALF, 1, 0}};
    struct rsched_message message = {.pieces = pieces,
                                     .num_pieces = 2,
                                     .bytes = 2 * HALF};
    struct rsched_pull_source *source;
    size_t adopted = 0;
    void *first;

    CHECK(memory != MAP_FAILED);
    memset(memory, 1, 2 * HALF);
    rsched_memory_offer(memory, 2 * HALF);
    CHECK(rsched_pull_source_create(&message, &ways, &reader, group, &source) == 0);
    for (int i = 0; i < 500 && adopted == 0; i++) {
        rsched_pull_source_start(source, 2 * HALF, 1, NULL, NULL);
        adopted = rsched_memory_adopted(memory, 2 * HALF, &first);
    }
    CHECK(adopted == 2 * HALF && first == memory);
    rsched_pull_source_destroy(source);
    CHECK(rsched_memory_reclaim(memory) == 0);
    munmap(memory, 2 * HALF);
}

/* What is being sent beside a message. */
struct frozen {
    char *at;
    uint64_t bytes;
    unsigned asked;
};

static struct frozen frozen;

static void list_frozen(void *context, rsched_pull_block *add, void *list)
{
    struct frozen *f = context;

    f->asked++;
    if (f->at != NULL)
        add(list, f->at, f->bytes);
}

/* The pages that are adopted of a message from `low` on, in `pages` pages of which others
 * may send something, too. */
static size_t adopted_beside(char *memory, size_t pages, char *low, uint64_t bytes,
                             const void **first)
{
    struct rsched_piece piece = {low, bytes, 1, 0};
    struct rsched_message message = {.pieces = &piece, .num_pieces = 1, .bytes = bytes};
    struct rsched_pull_source *source;
    unsigned asked = frozen.asked;
    void *at = NULL;
    size_t adopted = 0;

    memset(memory, 1, pages * 4096);
    rsched_memory_offer(memory, pages * 4096);
    CHECK(rsched_pull_source_create(&message, &ways, &reader, group, &source) == 0);
    for (int i = 0; i < 3000 && adopted == 0; i++) {
        rsched_pull_source_start(source, bytes, 1, NULL, NULL);
        adopted = rsched_memory_adopted(memory, pages * 4096, &at);
    }
    *first = at;
    CHECK(frozen.asked > asked && frozen.asked - asked < 16);
    rsched_pull_source_destroy(source);
    CHECK(rsched_memory_reclaim(memory) == 0);
    return adopted;
}

/* A message of which others have the rest of the pages at its ends is adopted with these
 * if nobody writes them, and nothing else of theirs is. */
static void send_beside(void)
{
    enum { PAGE = 4096, PAGES = 16, LOW = 4 * PAGE + 1024, SIZE = 3 * PAGE + 1024 };
    char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct {
        uint64_t at, bytes; /* that are frozen beside it */
        size_t adopted, first; /* pages */
    } cases[] = {
        {0, 0, 0, 0}, /* of its pages two thirds are its own, which is too little */
        {0, PAGES * PAGE, 4, 4},
        {0, LOW, 3, 4},
        {4 * PAGE, 1024, 3, 4},
        {4 * PAGE + 1, 1023, 0, 0}, /* a byte may be written */
        {LOW + SIZE, 2 * PAGE, 3, 5},
        {LOW + SIZE, PAGE - 2048, 3, 5}, /* up to the end of a page */
        {LOW + SIZE, PAGE - 2049, 0, 0},
        {LOW + SIZE + 1, 2 * PAGE, 0, 0},
        {0, 4 * PAGE, 0, 0}, /* beside its pages */
        {9 * PAGE, PAGE, 0, 0},
    };

    CHECK(memory != MAP_FAILED);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const void *first;
        size_t adopted;

        frozen.at = memory + cases[i].at;
        frozen.bytes = cases[i].bytes;
        adopted = adopted_beside(memory, PAGES, memory + LOW, SIZE, &first);
        CHECK(adopted == cases[i].adopted * PAGE);
        CHECK(adopted == 0 || first == memory + cases[i].first * PAGE);
    }
    frozen.at = NULL;
    munmap(memory, PAGES * PAGE);
}

/* No bytes, of one piece or none, which this process copies itself, or not. */
static void send_nothing(void)
{
    const struct rsched_pull_reader readers[] = {
        {.maps = true}, {.maps = false}, {.itself = true, .maps = true}};

    for (int i = 0; i < 6; i++) {
        char byte = 1, slot = 2;
        struct rsched_piece piece = {&byte, 0, 1, 0};
        struct rsched_message message = {.pieces = &piece,
                                         .num_pieces = (size_t)i % 2};
        struct rsched_pull pull = {.bytes = 0};
        struct rsched_pull_source *source;

        CHECK(rsched_pull_source_create(&message, &ways, &readers[i / 2], group, &source) ==
              0);
        CHECK(rsched_pull_source_way(source, 0, 1) == RSCHED_PULL_IN_PLACE);
        for (int again = 0; again < 2; again++) {
            CHECK(rsched_pull_source_load(source, &pull.notice) == 0);
            rsched_pull_source_start(source, 0, 1, NULL, NULL);
        }
        CHECK(rsched_pull_source_load(source, &pull.notice) == 0);
        CHECK(rsched_pull_source_pack(source, &slot) == 0 && slot == 2);
        CHECK(rsched_pull_target_create(NULL, &message, &ways, &pull.target) == 0);
        rsched_pull_copy(&pull, 1);
        CHECK(pull.error == 0 && pull.mapped == 0 && byte == 1);
        rsched_pull_target_destroy(pull.target);
        rsched_pull_source_destroy(source);
    }
}

static char into[MESSAGES][BYTES];

static void verify(const struct rsched_pull *pull, int message, bool mapped)
{
    CHECK(pull->error == 0);
    CHECK(pull->mapped == (mapped ? BYTES : 0));
    for (int i = 0; i < BYTES; i++)
        CHECK(into[message][i] == value(message, i));
}

/* All messages at once, of which one may be told wrongly. */
static void copy_all(struct rsched_pull_peer *peer, bool maps, int wrong,
                     const struct rsched_pull_notice *notice, uint64_t bytes,
                     int error)
{
    struct rsched_pull pulls[MESSAGES];

    memset(into, 0, sizeof(into));
    for (int m = 0; m < MESSAGES; m++) {
        struct rsched_piece piece = {into[m], BYTES, 1, 0};
        struct rsched_message message = {.pieces = &piece,
                                         .num_pieces = 1,
                                         .bytes = BYTES};

        pulls[m] = (struct rsched_pull){
            .notice = m == wrong ? *notice : told->notices[m],
            .bytes = m == wrong ? bytes : BYTES};
        CHECK(rsched_pull_target_create(peer, &message, &ways, &pulls[m].target) ==
              0);
    }
    for (int again = 0; again < 2; again++) {
        rsched_pull_copy(pulls, MESSAGES);
        for (int m = 0; m < MESSAGES; m++) {
            if (m == wrong)
                CHECK(pulls[m].error == error);
            else
                verify(&pulls[m], m, maps && m % 2 == 0);
        }
    }
    for (int m = 0; m < MESSAGES; m++)
        rsched_pull_target_destroy(pulls[m].target);
}

/* Blocks with gaps, or one, of fewer bytes than are sent. */
static void copy_less(struct rsched_pull_peer *peer, int message,
                      struct rsched_piece piece)
{
    const int bytes = (int)(piece.bytes * piece.count);
    struct rsched_message less = {.pieces = &piece,
                                  .num_pieces = 1,
                                  .bytes = (uint64_t)bytes};
    struct rsched_pull pull = {.notice = told->notices[message],
                               .bytes = BYTES};
    int touched = 0;

    memset(into, -1, sizeof(into));
    piece.address = into[1];
    CHECK(rsched_pull_target_create(peer, &less, &ways, &pull.target) == 0);
    rsched_pull_copy(&pull, 1);
    CHECK(pull.error == 0);
    CHECK(pull.mapped == (message % 2 == 0 ? (uint64_t)bytes : 0));
    for (int i = 0; i < bytes; i++) {
        int block = i / (int)piece.bytes, within = i % (int)piece.bytes;
        char *at = into[1] + block * piece.stride + within;

        CHECK(*at == value(message, i));
        *at = -1;
    }
    for (size_t i = 0; i < sizeof(into); i++)
        touched += (&into[0][0])[i] != -1;
    CHECK(touched == 0);
    rsched_pull_target_destroy(pull.target);
}

static void verify_common(struct rsched_pull *pull, bool mapped)
{
    memset(into[0], 0, BYTES);
    rsched_pull_copy(pull, 1);
    CHECK(pull->error == 0);
    CHECK(pull->mapped == (mapped ? BYTES : 0));
    for (int i = 0; i < BYTES; i++)
        CHECK(into[0][i] == value(MESSAGES, i));
}

/* What the sender tells stays the same, and this process has it no more. */
static void copy_common(struct rsched_pull_peer *peer)
{
    struct rsched_piece piece = {into[0], BYTES, 1, 0};
    struct rsched_message message = {.pieces = &piece,
                                     .num_pieces = 1,
                                     .bytes = BYTES};
    struct rsched_pull pull = {.notice = told->common, .bytes = BYTES};

    CHECK(rsched_memory_add(COMMON, common, BYTES) == 0);
    CHECK(rsched_pull_target_create(peer, &message, &ways, &pull.target) == 0);
    verify_common(&pull, true);
    CHECK(rsched_memory_remove(COMMON) == 0);
    CHECK(munmap(common, BYTES) == 0);
    verify_common(&pull, false);
    rsched_pull_target_destroy(pull.target);
}

/* What is mapped goes past the caches if much comes. */
static void copy_among_others(struct rsched_pull_peer *peer)
{
    static const uint64_t incoming[] = {0, MANY - 1, MANY, MANY - 1};

    for (int m = 0; m < 2; m++) {
        struct rsched_piece piece = {into[m], BYTES, 1, 0};
        struct rsched_message message = {.pieces = &piece,
                                         .num_pieces = 1,
                                         .bytes = BYTES};
        struct rsched_pull pull = {.notice = told->notices[m], .bytes = BYTES};

        CHECK(rsched_pull_target_create(peer, &message, &ways, &pull.target) ==
              0);
        for (int i = 0; i < 4; i++) {
            memset(into[m], 0, BYTES);
            pull.incoming = incoming[i];
            rsched_pull_copy(&pull, 1);
            verify(&pull, m, m % 2 == 0);
            CHECK((pull.nontemporal > 0) == (m % 2 == 0 && incoming[i] >= MANY));
        }
        rsched_pull_target_destroy(pull.target);
    }
}

/* ---- tables ---- */

/* A true one: the first half of what the sender has in memory that can be mapped,
 * and the second one of what it has not. */
static struct forged honest(void)
{
    const struct rs_table_region *region;
    const struct rs_table_piece *piece;
    struct rs_table_view view;
    char table[2][1024];
    struct forged f;

    for (int m = 0; m < 2; m++) {
        const struct rsched_pull_notice *notice = &told->notices[m];
        struct iovec here = {table[m], notice->bytes};
        struct iovec there = {(void *)(uintptr_t)notice->table, notice->bytes};

        CHECK(notice->bytes <= sizeof(table[m]));
        CHECK(process_vm_readv(told->memory.pid, &here, 1, &there, 1, 0) ==
              (ssize_t)notice->bytes);
    }
    CHECK(rs_table_view(table[0], told->notices[0].bytes, &view));
    CHECK(view.head.num_regions == 1 && view.head.num_pieces == 1);
    region = view.regions;
    f = (struct forged){.head = {2, 2}, .regions = {*region, *region},
                        .pieces = {*view.pieces}};
    CHECK(rs_table_view(table[1], told->notices[1].bytes, &view));
    piece = view.pieces;
    CHECK(view.head.num_pieces == 1 && piece->region == RS_TABLE_CMA);
    f.pieces[1] = *piece;
    f.pieces[1].offset += BYTES / 2;
    f.pieces[0].bytes = f.pieces[1].bytes = BYTES / 2;
    return f;
}

static int pull_forged(struct rsched_pull_peer *peer, const struct forged *f)
{
    static uint64_t version = UINT64_C(1) << 32; /* none comes again */
    struct rsched_piece piece = {into[0], BYTES, 1, 0};
    struct rsched_message message = {.pieces = &piece,
                                     .num_pieces = 1,
                                     .bytes = BYTES};
    struct rsched_pull pull = {.notice = {(uint64_t)(uintptr_t)forged,
                                          sizeof(*forged), version++},
                               .bytes = BYTES};

    *forged = *f;
    memset(into, 0, sizeof(into));
    CHECK(rsched_pull_target_create(peer, &message, &ways, &pull.target) == 0);
    rsched_pull_copy(&pull, 1);
    rsched_pull_target_destroy(pull.target);
    for (size_t i = BYTES; i < sizeof(into); i++)
        CHECK((&into[0][0])[i] == 0);
    return pull.error;
}

/* Each lie alone. */
static void refuse_tables(struct rsched_pull_peer *peer)
{
    const struct forged truth = honest();
    const uint64_t most = UINT64_MAX;
    struct forged f = truth;

    CHECK(pull_forged(peer, &f) == 0);
    for (int i = 0; i < BYTES; i++)
        CHECK(into[0][i] == value(i >= BYTES / 2, i));
#define REFUSE(error, place, lie)                                            \
    do {                                                                     \
        f = truth;                                                           \
        f.place = (lie);                                                     \
        CHECK(pull_forged(peer, &f) == (error));                             \
    } while (0)
    REFUSE(RSCHED_EMISMATCH, head.num_regions, 3);
    REFUSE(RSCHED_EMISMATCH, head.num_regions, most);
    REFUSE(RSCHED_EMISMATCH, head.num_regions, most / 32 + 2);
    REFUSE(RSCHED_EMISMATCH, head.num_pieces, 1);
    REFUSE(RSCHED_EMISMATCH, head.num_pieces, 3);
    REFUSE(RSCHED_EMISMATCH, head.num_pieces, most / 40 + 2);
    REFUSE(RSCHED_EMISMATCH, pieces[0].region, 2);
    REFUSE(RSCHED_EMISMATCH, pieces[0].region, RS_TABLE_SLOTS);
    REFUSE(RSCHED_EMISMATCH, pieces[0].offset, most);
    REFUSE(RSCHED_EMISMATCH, pieces[0].offset, truth.regions[0].bytes - 1);
    REFUSE(RSCHED_EMISMATCH, pieces[0].bytes, 0);
    REFUSE(RSCHED_EMISMATCH, pieces[0].bytes, BYTES / 2 + 1);
    REFUSE(RSCHED_EMISMATCH, pieces[0].bytes, most);
    REFUSE(RSCHED_EMISMATCH, pieces[0].count, 0);
    REFUSE(RSCHED_EMISMATCH, pieces[0].count, 2);
    REFUSE(RSCHED_EMISMATCH, pieces[1].count, 3);
    REFUSE(RSCHED_EMISMATCH, pieces[1].count, most / (BYTES / 2) + 1);
    REFUSE(RSCHED_EMISMATCH, pieces[1].bytes, BYTES / 2 - 1);
    REFUSE(RSCHED_EUNREACH, pieces[1].offset, 64);
    /* Two blocks, of which the second is before or behind the region. */
    f = truth;
    f.pieces[0] = (struct rs_table_piece){0, truth.pieces[0].offset, BYTES / 4,
                                          2, INT64_MIN};
    CHECK(pull_forged(peer, &f) == RSCHED_EMISMATCH);
    f.pieces[0].stride = -(int64_t)truth.regions[0].bytes;
    CHECK(pull_forged(peer, &f) == RSCHED_EMISMATCH);
    f.pieces[0].stride = (int64_t)truth.regions[0].bytes;
    CHECK(pull_forged(peer, &f) == RSCHED_EMISMATCH);
    f.pieces[0].stride = INT64_MAX;
    CHECK(pull_forged(peer, &f) == RSCHED_EMISMATCH);
    /* A region that cannot be mapped is read where it is in the sender. */
    f = truth;
    f.regions[0].id++;
    CHECK(pull_forged(peer, &f) == 0);
    f = truth;
    f.regions[0].bytes = most;
    CHECK(pull_forged(peer, &f) == 0);
    f.regions[0].offset = most - 4095;
    f.regions[0].address = 64;
    CHECK(pull_forged(peer, &f) != 0);
#undef REFUSE
}

/* ---- threads ---- */

enum { THREADS = 3 };

struct worker {
    pthread_t thread;
    struct rsched_pull_peer *peer;
    int number;
};

/* Messages number, number + THREADS, ..., each by itself, and made anew. */
static void *pull_some(void *arg)
{
    struct worker *w = arg;

    for (int again = 0; again < 3; again++) {
        for (int m = w->number; m < MESSAGES; m += THREADS) {
            struct rsched_piece piece = {into[m], BYTES, 1, 0};
            struct rsched_message message = {.pieces = &piece,
                                             .num_pieces = 1,
                                             .bytes = BYTES};
            struct rsched_pull pull = {.notice = told->notices[m],
                                       .bytes = BYTES};

            memset(into[m], 0, BYTES);
            CHECK(rsched_pull_target_create(w->peer, &message, &ways, &pull.target) ==
                  0);
            rsched_pull_copy(&pull, 1);
            verify(&pull, m, m % 2 == 0);
            rsched_pull_target_destroy(pull.target);
        }
    }
    return NULL;
}

static void pull_at_once(struct rsched_pull_peer *peer)
{
    struct worker workers[THREADS];

    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.peer = peer, .number = i};
        CHECK(pthread_create(&workers[i].thread, NULL, pull_some,
                             &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(workers[i].thread, NULL) == 0);
}

static void receive_all(void)
{
    struct rsched_pull_memory hidden = told->memory;
    struct rsched_pull_notice wrong;
    struct rsched_pull_peer *peer;

    CHECK(rsched_pull_peer_create(&told->memory, &peer) == 0);
    copy_all(peer, true, -1, NULL, 0, 0);
    copy_common(peer);
    copy_among_others(peer);
    for (int m = 2; m < 4; m++) {
        copy_less(peer, m, (struct rsched_piece){NULL, 13001, 1, 0});
        copy_less(peer, m, (struct rsched_piece){NULL, 100, 120, 130});
        copy_less(peer, m, (struct rsched_piece){NULL, 2500, 7, 3000});
    }
    wrong = told->notices[2];
    copy_all(peer, true, 2, &wrong, BYTES - 1, RSCHED_EMISMATCH);
    wrong.bytes = 24; /* in the middle of it */
    copy_all(peer, true, 2, &wrong, BYTES, RSCHED_EMISMATCH);
    wrong = told->notices[3];
    wrong.table = 64;
    copy_all(peer, true, 3, &wrong, BYTES, RSCHED_EUNREACH);
    wrong.table = told->notices[3].table;
    wrong.bytes = UINT64_MAX;
    copy_all(peer, true, 3, &wrong, BYTES, RSCHED_EMISMATCH);
    refuse_tables(peer);
    pull_at_once(peer);
    rsched_pull_peer_destroy(peer);

    hidden.fd = -1;
    CHECK(rsched_pull_peer_create(&hidden, &peer) == 0);
    copy_all(peer, false, -1, NULL, 0, 0);
    rsched_pull_peer_destroy(peer);

    hidden = told->memory;
    hidden.id++; /* another's */
    CHECK(rsched_pull_peer_create(&hidden, &peer) == 0);
    copy_all(peer, false, -1, NULL, 0, 0);
    rsched_pull_peer_destroy(peer);
}

int main(void)
{
    int ready[2], over[2], status;
    char byte;
    pid_t pid;

    if (!ranks_may_read()) {
        puts("the kernel lets no process read another's memory");
        return SKIP;
    }
    told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    common = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    forged = mmap(NULL, sizeof(*forged), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(told != MAP_FAILED && common != MAP_FAILED && forged != MAP_FAILED);
    CHECK(rsched_pull_group_create(list_frozen, &frozen, &group) == 0);
    send_secret();
    send_adopted();
    send_beside();
    send_nothing();
    CHECK(pipe(ready) == 0 && pipe(over) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(over[1]); /* it ends when the other one does */
        send_all(ready[1], over[0]);
    }
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    receive_all();
    CHECK(write(over[1], &byte, 1) == 1);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    rsched_pull_group_destroy(group);
    return 0;
}
