/* SPDX-License-Identifier: BSD-3-Clause */
/* The lanes of all pairs by their tags, and the messages of each pair. A program may have
 * thousands, and each plain call looks for a lane. */
#include "mpi/message.h"

#include <stdlib.h>

enum { FIRST_HEADS = 64 };
static struct rs_lane *first_heads[FIRST_HEADS];
static struct rs_lane **heads = first_heads;
static size_t num_heads = FIRST_HEADS; /* a power of two */
static size_t num_lanes;

static struct rs_lane **head(const struct rs_pair *pair, int tag)
{
    uint64_t key = (uint64_t)(uintptr_t)pair * UINT64_C(0x9e3779b97f4a7c15);

    key = (key ^ (uint32_t)tag) * UINT64_C(0xbf58476d1ce4e5b9);
    return &heads[(key >> 32) & (num_heads - 1)];
}

struct rs_lane *rs_lane_find(const struct rs_pair *pair, int tag)
{
    struct rs_lane *lane = *head(pair, tag);

    while (lane != NULL && (lane->tag != tag || lane->pair != pair))
        lane = lane->next_same;
    return lane;
}

static void push(struct rs_lane *lane)
{
    struct rs_lane **at = head(lane->pair, lane->tag);

    lane->next_same = *at;
    *at = lane;
}

/* Without memory for it the lists become longer. */
static void grow(void)
{
    struct rs_lane **old = heads, *lane;
    size_t num_old = num_heads;
    struct rs_lane **made = calloc(2 * num_old, sizeof(struct rs_lane *));

    if (made == NULL)
        return;
    heads = made;
    num_heads = 2 * num_old;
    for (size_t i = 0; i < num_old; i++) {
        while ((lane = old[i]) != NULL) {
            old[i] = lane->next_same;
            push(lane);
        }
    }
    if (old != first_heads)
        free(old);
}

void rs_lane_add(struct rs_lane *lane)
{
    if (num_lanes++ == num_heads)
        grow();
    push(lane);
    lane->next = lane->pair->lanes;
    if (lane->next != NULL)
        lane->next->previous = lane;
    lane->pair->lanes = lane;
}

void rs_lane_remove(struct rs_lane *lane)
{
    struct rs_lane **at = head(lane->pair, lane->tag);

    while (*at != lane)
        at = &(*at)->next_same;
    *at = lane->next_same;
    if (lane->next != NULL)
        lane->next->previous = lane->previous;
    if (lane->previous != NULL)
        lane->previous->next = lane->next;
    else
        lane->pair->lanes = lane->next;
    num_lanes--;
}

size_t rs_lanes_count(void)
{
    return num_lanes;
}

void rs_lanes_fini(void)
{
    if (heads != first_heads)
        free(heads);
    heads = first_heads;
    num_heads = FIRST_HEADS;
}

/* ---- messages ---- */

/* The first one of its list, and the last one. */
static struct rs_message **first_of(const struct rs_message *message)
{
    struct rs_lane *lane = message->lane;

    return lane->attached ? &lane->pair->messages : &lane->pair->unattached;
}

static struct rs_message **last_of(const struct rs_message *message)
{
    struct rs_lane *lane = message->lane;

    return lane->attached ? &lane->pair->last : &lane->pair->last_unattached;
}

void rs_pair_add(struct rs_message *message)
{
    struct rs_message **last = last_of(message);

    message->slots = &message->lane->slots;
    message->next = NULL;
    message->previous = *last;
    if (*last != NULL)
        (*last)->next = message;
    else
        *first_of(message) = message;
    *last = message;
    message->lane->pair->num_unattached += !message->lane->attached;
}

void rs_pair_remove(struct rs_message *message)
{
    struct rs_pair *pair = message->lane->pair;

    if (pair->open_one == message)
        pair->open_one = NULL;
    if (pair->probed == message)
        pair->probed = NULL;
    pair->num_unattached -= !message->lane->attached;
    if (message->previous != NULL)
        message->previous->next = message->next;
    else
        *first_of(message) = message->next;
    if (message->next != NULL)
        message->next->previous = message->previous;
    else
        *last_of(message) = message->previous;
}

void rs_lane_is_attached(struct rs_lane *lane)
{
    struct rs_message *next, *own = NULL, **end = &own;
    unsigned left = lane->requests; /* the oldest ones of all, most likely */

    for (struct rs_message *m = lane->pair->unattached; m != NULL && left > 0; m = next) {
        next = m->next;
        if (m->lane != lane)
            continue;
        left--;
        rs_pair_remove(m);
        *end = m;
        end = &m->next;
        *end = NULL;
    }
    lane->attached = true;
    lane->pair->num_used += lane->requests > 0;
    for (; own != NULL; own = next) {
        next = own->next;
        rs_pair_add(own);
    }
}
