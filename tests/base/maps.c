/* SPDX-License-Identifier: BSD-3-Clause */
/* What is mapped of a peer's memory stays mapped from one message to the next. */
#include <criterion/criterion.h>

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engines/common/maps.h"

enum { ID = 77, PIECE = 4096, PLACES = 200, MOST_KEPT = 64 };

static struct rs_maps maps;
static struct rs_map_list list;
static void *addresses[PLACES];

static void open_peer(void)
{
    const uint64_t head[2] = {RS_SHARED_MAGIC, ID};
    int fd = memfd_create("peer", MFD_CLOEXEC);

    cr_assert_eq(ftruncate(fd, (2 * PLACES + 1) * PIECE), 0);
    cr_assert_eq(pwrite(fd, head, sizeof(head), 0), (ssize_t)sizeof(head));
    rs_maps_init(&maps, fd, ID);
    cr_assert_geq(maps.fd, 0);
}

static void close_peer(void)
{
    rs_map_list_fini(&list, &maps);
    rs_maps_fini(&maps);
}

static void *get(int number)
{
    struct rs_place place = {ID, (uint64_t)(number + 1) * PIECE, PIECE, NULL};

    cr_assert_eq(rs_map_list_get(&list, &maps, &place), 0);
    return place.address;
}

static bool is_mapped(void *address)
{
    unsigned char in;

    return mincore(address, PIECE, &in) == 0;
}

Test(base_maps, of_the_next_message_those_of_this_one_stay, .init = open_peer,
     .fini = close_peer)
{
    for (int i = 0; i < PLACES; i++)
        addresses[i] = get(i);
    for (int epoch = 0; epoch < 3; epoch++) {
        rs_map_list_clear(&list, &maps);
        for (int i = 0; i < PLACES; i++)
            cr_assert(is_mapped(addresses[i]), "%d in epoch %d", i, epoch);
        get(PLACES + epoch); /* one is new */
        for (int i = 0; i < PLACES; i++)
            cr_assert_eq(get(i), addresses[i]);
        cr_assert_eq(get(0), addresses[0], "twice");
    }
}

Test(base_maps, of_messages_that_differ_each_time_few_stay, .init = open_peer,
     .fini = close_peer)
{
    for (int i = 0; i < PLACES; i++) {
        rs_map_list_clear(&list, &maps);
        addresses[i] = get(i);
    }
    rs_map_list_clear(&list, &maps);
    cr_assert_eq(maps.num_unused, MOST_KEPT + 1);
    cr_assert(is_mapped(addresses[PLACES - 1]));
}

Test(base_maps, places_that_are_not_there, .init = open_peer, .fini = close_peer)
{
    struct rs_place behind = {ID, (2 * PLACES + 1) * PIECE, PIECE, NULL};
    struct rs_place others = {ID + 1, PIECE, PIECE, NULL};

    cr_assert_eq(rs_map_list_get(&list, &maps, &behind), RSCHED_EUNREACH);
    cr_assert_eq(rs_map_list_get(&list, &maps, &others), RSCHED_EUNREACH);
    cr_assert_eq(list.number, 0);
}

/* A region of this process is where it is here, until it is taken back. */
Test(base_maps, places_of_this_process_go_stale, .init = open_peer, .fini = close_peer)
{
    static char memory[2 * PIECE];
    struct rs_place place = {ID + 1, 0, sizeof(memory), NULL};

    get(0);
    cr_assert_not(rs_map_list_is_stale(&list));
    cr_assert_eq(rsched_memory_add(ID + 1, memory, sizeof(memory)), 0);
    cr_assert_not(rs_map_list_is_stale(&list), "none is of this process");
    rs_map_list_clear(&list, &maps);
    cr_assert_eq(rs_map_list_get(&list, &maps, &place), 0);
    cr_assert_eq(place.address, memory);
    cr_assert_not(rs_map_list_is_stale(&list));
    cr_assert_eq(rsched_memory_remove(ID + 1), 0);
    cr_assert(rs_map_list_is_stale(&list));
    rs_map_list_clear(&list, &maps);
    cr_assert_not(rs_map_list_is_stale(&list));
    cr_assert_eq(rs_map_list_get(&list, &maps, &place), RSCHED_EUNREACH);
}
