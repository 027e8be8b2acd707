/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory that the two sides of a pair share, and the slots of its lanes there. */
#include "librsched/base/descriptor.h"
#include "librsched/base/limit.h"
#include "mpi/persistent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

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

void rs_pair_unmap(struct rs_pair *pair, struct rs_pair_words *words)
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
        rs_pair_unmap(pair, words);
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
