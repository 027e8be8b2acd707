/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs and lanes: finding them, and the memory that the two sides share. */
#include "librsched/base/descriptor.h"
#include "librsched/base/limit.h"
#include "mpi/message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

unsigned rs_num_pairs;
unsigned rs_num_open;
bool rs_unfenced;

/* By communicator, rank and direction. */
enum { BUCKETS = 256 };
static struct rs_pair *buckets[BUCKETS];
static struct rs_pair *all;
/* Some may be of no more use. Several threads may free communicators. */
static atomic_bool detached;

static struct rs_pair **bucket(MPI_Comm comm, bool sends, int peer)
{
    uint64_t key = (uint64_t)(uintptr_t)comm * UINT64_C(0x9e3779b97f4a7c15);

    key += (uint64_t)(2 * (unsigned)peer + sends) *
           UINT64_C(0xbf58476d1ce4e5b9);
    return &buckets[(key >> 40) % BUCKETS];
}

/* ---- finding ---- */

struct rs_pair *rs_pair_find(MPI_Comm comm, bool sends, int peer)
{
    for (struct rs_pair *p = *bucket(comm, sends, peer); p != NULL;
         p = p->next_same) {
        if (p->peer == peer && p->view.sends == sends && p->name->comm == comm)
            return p;
    }
    return NULL;
}

struct rs_pair *rs_pair_named(uint64_t id, bool sends, int world)
{
    struct rs_pair *p = all;

    while (p != NULL && (p->name->id != id || p->view.sends != sends ||
                         p->world != world))
        p = p->next_all;
    return p;
}

struct rs_pair *rs_pairs_first(void)
{
    return all;
}

void rs_pairs_visit(void (*visit)(struct rs_pair *pair))
{
    for (struct rs_pair *p = all; p != NULL; p = p->next_all)
        visit(p);
}

/* ---- making ---- */

static enum rs_reason locate(MPI_Comm comm, int peer, int *world)
{
    MPI_Group group;
    int local = MPI_UNDEFINED;

    PMPI_Comm_group(comm, &group);
    PMPI_Group_translate_ranks(group, 1, &peer, rs_process.world, world);
    PMPI_Group_translate_ranks(group, 1, &peer, rs_process.local, &local);
    PMPI_Group_free(&group);
    if (*world == MPI_UNDEFINED)
        return RS_REASON_WORLD;
    return local == MPI_UNDEFINED ? RS_REASON_NODES : RS_ACCELERATED;
}

static struct rs_pair *pair_create(struct rs_name *name, bool sends, int peer,
                                   enum rs_reason *reason)
{
    struct rs_pair **at = bucket(name->comm, sends, peer), *pair;
    int world;

    *reason = locate(name->comm, peer, &world);
    if (*reason != RS_ACCELERATED)
        return NULL;
    pair = calloc(1, sizeof(*pair));
    if (pair == NULL) {
        *reason = RS_REASON_MEMORY;
        return NULL;
    }
    pair->name = name;
    pair->handle = name->comm;
    name->refs++;
    pair->peer = peer;
    pair->world = world;
    pair->view.sends = sends;
    pair->fd = -1;
    pair->back = rs_pair_find(name->comm, !sends, peer);
    if (pair->back != NULL)
        pair->back->back = pair;
    pair->next = name->pairs;
    name->pairs = pair;
    pair->next_same = *at;
    *at = pair;
    pair->next_all = all;
    if (all != NULL)
        all->previous_all = pair;
    all = pair;
    rs_num_pairs++;
    return pair;
}

/* It is to be used again, or goes. */
static void unretire(struct rs_lane *lane)
{
    if (lane->idle != NULL)
        *lane->idle = NULL;
    lane->idle = NULL;
}

struct rs_lane *rs_lane_of(struct rs_pair *pair, int tag)
{
    struct rs_lane *lane = rs_lane_find(pair, tag);
    enum rs_stay stay;

    if (lane != NULL) {
        unretire(lane);
        return lane;
    }
    lane = calloc(1, sizeof(*lane));
    if (lane == NULL)
        return NULL;
    lane->pair = pair;
    lane->tag = tag;
    lane->sync = MPI_REQUEST_NULL;
    rs_lane_add(lane);
    stay = pair->view.sends
               ? RS_STAYS_NOT
               : rs_is_covered(pair->name->comm, pair->peer, tag);
    if (stay != RS_STAYS_NOT)
        rs_lane_bar(lane, stay);
    return lane;
}

/* ---- shared memory ---- */

uint64_t rs_lane_most(void)
{
    static uint64_t most;
    char *end;

    if (most == 0) {
        /* RSCHED_CHUNK has been checked. */
        most = strtoull(rs_setting("RSCHED_CHUNK"), &end, 10);
        most <<= *end == 'k' || *end == 'K'   ? 10
                 : *end == 'm' || *end == 'M' ? 20
                 : *end == 'g' || *end == 'G' ? 30
                                              : 0;
        if (most > RS_LANE_MOST_BYTES)
            most = RS_LANE_MOST_BYTES;
    }
    return most;
}

/* Address space that pairs take, little of which is ever used: of those that receive,
 * and of those that send. */
static uint64_t taken[2];
enum { PART_OF_SPACE = 16, PAGE = 4096 };

/* Where it is limited, no more than a part of it for either: the rest is the program's.
 * With one part for both, those that receive could leave none for their senders. */
static bool is_space_for(const struct rs_pair *pair, uint64_t bytes)
{
    uint64_t left = rs_limit_space();

    if (left == UINT64_MAX || taken[pair->view.sends] + bytes <=
                                  (left + taken[0] + taken[1]) / PART_OF_SPACE)
        return true;
    errno = ENOMEM;
    return false;
}

static void *map(struct rs_pair *pair, int fd)
{
    uint64_t bytes = rs_pair_bytes(rs_lane_most());
    void *memory;

    if (!is_space_for(pair, bytes))
        return NULL;
    memory = rs_limit_map_sparse(fd, 0, bytes);
    if (memory == MAP_FAILED)
        return NULL;
    /* A forked child has no business here. */
    madvise(memory, bytes, MADV_DONTFORK);
    taken[pair->view.sends] += bytes;
    pair->mapped = bytes;
    return memory;
}

static void unmap(struct rs_pair *pair, struct rs_pair_words *words)
{
    munmap(words, pair->mapped);
    taken[pair->view.sends] -= pair->mapped;
}

bool rs_pair_share(struct rs_pair *pair)
{
    struct rs_pair_words *words = NULL;
    static bool complained;
    uint64_t nonce;

    if (pair->view.words != NULL)
        return true;
    pair->fd = rs_descriptor_keep(
        memfd_create("rsched-lanes", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (pair->fd >= 0 && fchmod(pair->fd, 0600) == 0 &&
        /* Pages are there when they are touched. */
        rs_limit_grow(pair->fd, rs_pair_bytes(rs_lane_most())) == 0 &&
        fcntl(pair->fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0 &&
        getrandom(&nonce, sizeof(nonce), 0) == (ssize_t)sizeof(nonce))
        words = map(pair, pair->fd);
    if (words == NULL) {
        if (!complained)
            rs_log(RS_LOG_WARN, "no shared memory for lanes: %m");
        complained = true;
        if (pair->fd >= 0)
            close(pair->fd);
        pair->fd = -1;
        return false;
    }
    words->nonce = nonce;
    pair->view.words = words;
    return true;
}

bool rs_pair_reach(struct rs_pair *pair, int pid, int fd, uint64_t nonce)
{
    char path[64];
    int file;

    if (pair->view.words != NULL)
        return pair->view.words->nonce == nonce;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    file = rs_descriptor_keep(open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    return rs_pair_map(pair, file, nonce);
}

bool rs_pair_map(struct rs_pair *pair, int file, uint64_t nonce)
{
    struct rs_pair_words *words;
    off_t bytes = file < 0 ? 0 : lseek(file, 0, SEEK_END);

    /* The other side's settings may differ. */
    words = bytes > 0 && (size_t)bytes == rs_pair_bytes(rs_lane_most())
                ? map(pair, file)
                : NULL;
    if (file >= 0)
        close(file);
    if (words == NULL)
        return false;
    /* Process numbers mean nothing across namespaces. */
    if (words->nonce != nonce) {
        unmap(pair, words);
        return false;
    }
    pair->view.words = words;
    return true;
}

uint64_t rs_pair_most(const struct rs_pair *pair)
{
    /* Longer messages are cheaper to pull: with one copy instead of two, and
     * the kernel's part of that. */
    return rs_pair_pulls(pair) && rs_lane_most() > RS_LANE_FEW_BYTES
               ? RS_LANE_FEW_BYTES
               : rs_lane_most();
}

/* Whether a page of the pair's memory has been touched before; it is now. Many lanes' slots lie on
 * one. */
static bool was_touched(struct rs_pair *pair, size_t page)
{
    unsigned char bit = (unsigned char)(1u << page % 8);
    bool was;

    if (pair->touched == NULL)
        pair->touched = calloc(1, pair->mapped / PAGE / 8 + 1);
    if (pair->touched == NULL)
        return false;
    was = (pair->touched[page / 8] & bit) != 0;
    pair->touched[page / 8] |= bit;
    return was;
}

/* A lane's pages, before messages come. */
static void touch(struct rs_pair *pair, const struct rs_slots *slots)
{
    char *memory = (char *)pair->view.words;

    for (unsigned i = 0; i < slots->num; i++) {
        size_t begin = (size_t)((char *)rs_slots_at(slots, i) - memory);
        size_t first = begin / PAGE;
        size_t end = (begin + sizeof(struct rs_slot) + slots->room + PAGE - 1) / PAGE;

        while (first < end && was_touched(pair, first))
            first++;
        if (first == end)
            continue;
        for (size_t page = first + 1; page < end; page++)
            was_touched(pair, page);
        madvise(memory + first * PAGE, (end - first) * PAGE, MADV_POPULATE_WRITE);
    }
}

/* The receiver's choice of where a lane's slots shall be; *slots is its view of
 * them. */
static bool take_place(struct rs_lane *lane, unsigned index, uint64_t bytes,
                       unsigned num, struct rs_slots *slots)
{
    struct rs_pair *pair = lane->pair;
    uint64_t place =
        rs_rows_take(&pair->rows, index, bytes, rs_lane_most(), rs_cohort_share(lane), num);

    if (place == 0 ||
        !rs_slots_init(slots, &pair->view, index, place, rs_lane_most()))
        return false;
    rs_cohort_place(lane, bytes > 0, rs_place_bytes(place));
    touch(pair, slots);
    rs_slots_offer(&pair->view, index, place);
    return true;
}

/* The arrays by index, a bank at a time. */
static bool have_index(struct rs_pair *pair, unsigned index)
{
    unsigned num = pair->room, more = (index / RS_BANK_LANES + 1) * RS_BANK_LANES;
    struct rs_lane **attached;
    const struct rs_slots **slots;

    if (index >= RS_LANES)
        return false;
    if (index < num)
        return true;
    attached = realloc(pair->attached, more * sizeof(struct rs_lane *));
    if (attached == NULL)
        return false;
    pair->attached = attached;
    slots = realloc(pair->slots, more * sizeof(const struct rs_slots *));
    if (slots == NULL)
        return false;
    pair->slots = slots;
    memset(attached + num, 0, (more - num) * sizeof(struct rs_lane *));
    memset(slots + num, 0, (more - num) * sizeof(const struct rs_slots *));
    pair->room = more;
    return true;
}

bool rs_lane_attach(struct rs_lane *lane, unsigned index, uint64_t bytes)
{
    struct rs_pair *pair = lane->pair;

    if (!have_index(pair, index))
        return false;
    if (rs_pair_pulls(pair) && bytes > rs_pair_most(pair))
        bytes = 0; /* room for an announcement */
    lane->index = index;
    if (pair->view.sends) {
        rs_lane_move(lane);
    } else {
        /* O2: the sender may not open the pair as long as a receive is posted on the
         * lane, of which nobody knew up to now. */
        if (rs_pair_is_alone(&pair->view))
            rs_incarnation_stop(pair);
        rs_incarnation_unready(pair);
        /* Without that much memory: for announcements, where it waits for its receiver anyway. */
        if (!take_place(lane, index, bytes, 0, &lane->slots) && rs_pair_pulls(pair) &&
            bytes > RS_LANE_SHORT_BYTES)
            take_place(lane, index, 0, 0, &lane->slots);
    }
    if (lane->slots.place == 0)
        return false;
    rs_lane_is_attached(lane);
    pair->has_chosen = false;
    pair->attached[index] = lane;
    pair->slots[index] = &lane->slots;
    if (lane->barred && pair->view.sends)
        rs_pair_leave_out(&pair->view, index);
    else if (lane->barred)
        rs_pair_bar(&pair->view, index);
    if (index >= pair->num_attached)
        pair->num_attached = index + 1;
    return true;
}

void rs_lane_move(struct rs_lane *lane)
{
    if (rs_slots_move(&lane->slots, &lane->pair->view, lane->index,
                      rs_lane_most()))
        touch(lane->pair, &lane->slots);
}

static _Atomic uint64_t *wanted_word(const struct rs_lane *lane)
{
    return &rs_bank_of(lane->pair->view.words, lane->index)
                ->wanted[lane->index % RS_BANK_LANES];
}

void rs_lane_want(struct rs_lane *lane, uint64_t bytes, unsigned num)
{
    if (bytes <= lane->wanted && num <= lane->wanted_num)
        return;
    if (bytes > lane->wanted)
        lane->wanted = bytes;
    if (num > lane->wanted_num)
        lane->wanted_num = num;
    atomic_store_explicit(wanted_word(lane), (uint64_t)lane->wanted_num << 32 | lane->wanted,
                          memory_order_relaxed);
    rs_pair_ask(&lane->pair->view);
}

static uint64_t wanted_by_sender(const struct rs_lane *lane)
{
    return atomic_load_explicit(wanted_word(lane), memory_order_relaxed);
}

static uint64_t wanted_bytes(const struct rs_lane *lane)
{
    return (uint32_t)wanted_by_sender(lane);
}

bool rs_lane_is_wanted(const struct rs_lane *lane, uint64_t bytes)
{
    return bytes <= wanted_bytes(lane) && !lane->full;
}

/* At least twice as much each time, so that it comes to an end. */
static uint64_t longer_room(const struct rs_lane *lane, uint64_t room)
{
    uint64_t most = rs_pair_most(lane->pair), wanted = wanted_bytes(lane);

    if (wanted > most)
        most = rs_lane_most();
    if (wanted <= room || wanted > most)
        return room;
    if (wanted < 2 * room)
        wanted = 2 * room < most ? 2 * room : most;
    return wanted;
}

static void grow(struct rs_lane *lane)
{
    uint64_t place = rs_lane_place(lane);
    uint64_t room = rs_place_room(place), bytes = longer_room(lane, room);
    uint64_t wanted = wanted_by_sender(lane) >> 32;
    unsigned num = wanted < RS_LANE_MOST_SLOTS ? (unsigned)wanted : RS_LANE_MOST_SLOTS;
    struct rs_slots slots;

    if (bytes > room && !lane->full) {
        lane->full = !take_place(lane, lane->index, bytes, num, &slots);
        if (!lane->full)
            return;
    }
    if (num > rs_place_num(place) && !lane->full_num)
        lane->full_num = !take_place(lane, lane->index, room, num, &slots);
}

void rs_pair_grow(struct rs_pair *pair)
{
    uint32_t asks = rs_pair_asks(&pair->view);

    if (pair->asked == asks)
        return;
    pair->asked = asks;
    for (unsigned i = 0; i < pair->num_attached; i++) {
        if (pair->attached[i] != NULL)
            grow(pair->attached[i]);
    }
}

bool rs_pair_can_pull(int pid, uint64_t at, uint64_t cookie)
{
    uint64_t found = ~cookie;
    struct iovec here = {&found, sizeof(found)};
    struct iovec there = {(void *)(uintptr_t)at, sizeof(found)};

    /* Process numbers mean nothing across namespaces. */
    return process_vm_readv(pid, &here, 1, &there, 1, 0) ==
               (ssize_t)sizeof(found) &&
           found == cookie;
}

/* ---- life ---- */

/* Synchronous messages whose lanes are gone, or are of no more use, since the program
 * has freed the communicator and all requests: from 4.2 on MPICH keeps a communicator
 * until somebody has found them complete. They are not looked at while one is being
 * freed: MPICH's requests to oneself do not survive that. */
struct orphan {
    struct orphan *next;
    MPI_Request request;
    char *bytes;
};

static struct orphan *orphans;
unsigned rs_num_orphans;
static _Thread_local unsigned frees; /* of communicators that this thread is in */

static void leave_orphan(struct rs_lane *lane)
{
    struct orphan *orphan = malloc(sizeof(*orphan));

    if (orphan == NULL)
        return; /* and its bytes stay */
    *orphan = (struct orphan){orphans, lane->sync, lane->copy};
    orphans = orphan;
    rs_num_orphans++;
    lane->sync = MPI_REQUEST_NULL;
    lane->copy = NULL;
}

void rs_orphans_reap(void)
{
    struct orphan *orphan, *left = orphans;

    if (rs_num_orphans == 0 || frees > 0)
        return;
    /* A communicator may go with one, and functions of the program's with that, which
     * may come here. */
    orphans = NULL;
    while ((orphan = left) != NULL) {
        int done;

        left = orphan->next;
        PMPI_Test(&orphan->request, &done, MPI_STATUS_IGNORE);
        if (done) {
            rs_num_orphans--;
            free(orphan->bytes);
            free(orphan);
        } else {
            orphan->next = orphans;
            orphans = orphan;
        }
    }
}

static void end_orphans(void)
{
    struct orphan *orphan;

    rs_orphans_reap();
    while ((orphan = orphans) != NULL) {
        orphans = orphan->next;
        PMPI_Request_free(&orphan->request); /* and its bytes stay */
        free(orphan);
        rs_num_orphans--;
    }
}

static void pair_unlink(struct rs_pair *pair)
{
    struct rs_pair **at = &pair->name->pairs;

    if (pair->back != NULL)
        pair->back->back = NULL;
    while (*at != pair)
        at = &(*at)->next;
    *at = pair->next;
    at = bucket(pair->handle, pair->view.sends, pair->peer);
    while (*at != pair)
        at = &(*at)->next_same;
    *at = pair->next_same;
    if (pair->next_all != NULL)
        pair->next_all->previous_all = pair->previous_all;
    if (pair->previous_all != NULL)
        pair->previous_all->next_all = pair->next_all;
    else
        all = pair->next_all;
}

static void lane_destroy(struct rs_lane *lane)
{
    unretire(lane);
    rs_cohort_leave(lane);
    rs_lane_remove(lane);
    if (lane->sync != MPI_REQUEST_NULL)
        leave_orphan(lane);
    free(lane);
}

/* No request of the pair's is left, nor will there be one. */
static void leave_orphans(struct rs_pair *pair)
{
    for (struct rs_lane *lane = pair->lanes; lane != NULL; lane = lane->next) {
        if (lane->sync != MPI_REQUEST_NULL)
            leave_orphan(lane);
    }
}

static void pair_destroy(struct rs_pair *pair)
{
    pair_unlink(pair);
    if (!pair->view.sends && pair->view.words != NULL)
        rs_notes_leave(pair);
    rs_num_alone -= rs_pair_is_alone(&pair->view);
    while (pair->lanes != NULL)
        lane_destroy(pair->lanes);
    /* The other side's mapping keeps the memory as long as it is needed. */
    if (pair->view.words != NULL)
        unmap(pair, pair->view.words);
    if (pair->fd >= 0)
        close(pair->fd);
    rs_gpu_link_destroy(pair->gpu);
    rs_sender_put(pair->sender);
    rsched_pull_group_destroy(pair->sources);
    rs_name_drop(pair->name);
    rs_num_pairs--;
    free(pair->attached);
    free(pair->slots);
    free(pair->touched);
    free(pair);
}

/* One that is made for its tag later has to know no more than what rs_is_covered()
 * does. */
static bool is_forgettable(const struct rs_lane *lane)
{
    return lane->requests == 0 && !lane->attached && lane->posted == 0 &&
           lane->sync == MPI_REQUEST_NULL;
}

/* In the place of the one that has been idle for longest. */
static void retire(struct rs_lane *lane)
{
    struct rs_pair *pair = lane->pair;
    struct rs_lane **at = &pair->idle[pair->retired++ % RS_IDLE_LANES];

    if (*at != NULL)
        lane_destroy(*at);
    *at = lane;
    lane->idle = at;
}

void rs_lane_release(struct rs_lane *lane)
{
    struct rs_pair *pair = lane->pair;

    if (--lane->requests == 0) {
        rs_cohort_leave(lane);
        pair->num_used -= lane->attached;
    }
    if (is_forgettable(lane))
        retire(lane);
    if (--pair->requests > 0)
        return;
    if (pair->name->comm == MPI_COMM_NULL)
        pair_destroy(pair);
    else if (pair->name->is_freed)
        leave_orphans(pair);
}

void rs_pairs_comm_free(MPI_Comm comm)
{
    for (struct rs_pair *pair = all; pair != NULL; pair = pair->next_all) {
        if (comm == MPI_COMM_NULL || pair->name->comm != comm)
            continue;
        pair->name->is_freed = true;
        if (pair->requests == 0)
            leave_orphans(pair);
    }
    rs_orphans_reap();
    frees++;
}

void rs_pairs_comm_freed(void)
{
    frees--;
}

/* MPICH frees a communicator, and calls this, when the last request on it is
 * complete, which may be anywhere inside a completion call. */
void rs_pairs_detach(void)
{
    atomic_store_explicit(&detached, true, memory_order_relaxed);
}

static void reap_detached(void)
{
    struct rs_pair *next;

    atomic_store_explicit(&detached, false, memory_order_relaxed);
    for (struct rs_pair *pair = all; pair != NULL; pair = next) {
        next = pair->next_all;
        if (pair->name->comm == MPI_COMM_NULL && pair->requests == 0)
            pair_destroy(pair);
    }
}

struct rs_lane *rs_lane_hold(struct rs_name *name, bool sends, int peer,
                             int tag, enum rs_reason *reason)
{
    struct rs_pair *pair;
    struct rs_lane *lane;

    rs_orphans_reap();
    if (atomic_load_explicit(&detached, memory_order_relaxed))
        reap_detached();
    *reason = RS_ACCELERATED;
    pair = rs_pair_find(name->comm, sends, peer);
    if (pair == NULL)
        pair = pair_create(name, sends, peer, reason);
    if (pair == NULL)
        return NULL;
    lane = rs_lane_of(pair, tag);
    if (lane == NULL) {
        *reason = RS_REASON_MEMORY;
        return NULL;
    }
    pair->requests++;
    if (lane->requests++ == 0) {
        rs_cohort_join(lane);
        pair->num_used += lane->attached;
    }
    return lane;
}

void rs_pairs_fini(void)
{
    while (all != NULL)
        pair_destroy(all);
    rs_lanes_fini();
    end_orphans();
}
