/* SPDX-License-Identifier: BSD-3-Clause */
/* Offers of lanes for which this process has no persistent receive, and may never
 * have one: so only a bounded number is kept. */
#include "mpi/notes.h"

#include <stdlib.h>

enum { HEADS = 128, MOST_OF_HEAD = 8 };
static struct rs_letter *heads[HEADS];
static size_t num_kept;

static struct rs_letter **head(uint64_t id, int peer, int tag)
{
    uint64_t key = id * UINT64_C(0x9e3779b97f4a7c15);

    key ^= (uint64_t)(uint32_t)peer << 32 | (uint32_t)tag;
    key *= UINT64_C(0xbf58476d1ce4e5b9);
    return &heads[(key >> 32) % HEADS];
}

static bool is_of(const struct rs_letter *letter, uint64_t id, int peer, int tag)
{
    return letter->note.id == id && letter->peer == peer &&
           letter->note.tag == tag;
}

/* NULL: there is none. */
static struct rs_letter *unlink_at(struct rs_letter **at)
{
    struct rs_letter *letter = *at;

    if (letter != NULL) {
        *at = letter->next;
        num_kept--;
    }
    return letter;
}

void rs_offer_keep(struct rs_letter *letter)
{
    struct rs_letter **first =
        head(letter->note.id, letter->peer, letter->note.tag);
    struct rs_letter **at = first;

    /* The same lane's, or the oldest. */
    for (unsigned i = 1; *at != NULL && i < MOST_OF_HEAD &&
                         !is_of(*at, letter->note.id, letter->peer,
                                letter->note.tag);
         i++)
        at = &(*at)->next;
    free(unlink_at(at));
    letter->next = *first;
    *first = letter;
    num_kept++;
}

struct rs_letter *rs_offer_take(const struct rs_lane *lane)
{
    uint64_t id = lane->pair->name->id;
    int peer = lane->pair->world;
    struct rs_letter **at = head(id, peer, lane->tag);

    while (*at != NULL && !is_of(*at, id, peer, lane->tag))
        at = &(*at)->next;
    return unlink_at(at);
}

void rs_offers_forget(uint64_t id)
{
    for (size_t i = 0; i < HEADS && num_kept > 0; i++) {
        for (struct rs_letter **at = &heads[i]; *at != NULL;) {
            if ((*at)->note.id == id)
                free(unlink_at(at));
            else
                at = &(*at)->next;
        }
    }
}

size_t rs_offers_kept(void)
{
    return num_kept;
}

void rs_offers_fini(void)
{
    for (size_t i = 0; i < HEADS; i++) {
        while (heads[i] != NULL)
            free(unlink_at(&heads[i]));
    }
}
