/* SPDX-License-Identifier: BSD-3-Clause */
/* Send buffers in ordinary memory are moved to where neighbors can map them
 * (docs/adopted.md). All messages of an exchange start together: what of them lies
 * side by side is looked at as a whole, as few short messages have whole pages of
 * their own. */
#include "librsched/base/adopt.h"

#include <stdlib.h>

#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/offer.h"
#include "librsched/run/run.h"

/* Parts of memory, as pieces of one block. */
struct parts {
    struct rsched_piece *at;
    size_t number, room;
};

static char *end_of(const struct rsched_piece *p)
{
    return p->address + p->bytes;
}

static int append(struct parts *parts, char *low, char *high)
{
    if (low >= high)
        return 0;
    if (parts->number == parts->room) {
        size_t room = parts->room == 0 ? 16 : 2 * parts->room;
        struct rsched_piece *larger = realloc(parts->at, room * sizeof(*larger));

        if (larger == NULL)
            return rs_fail(RSCHED_ENOMEM, "exchange: no memory for pieces");
        parts->at = larger;
        parts->room = room;
    }
    parts->at[parts->number++] =
        (struct rsched_piece){low, (uint64_t)(high - low), 1, 0};
    return 0;
}

/* The blocks of a lane's message, or the pages that have a byte of them. Blocks of
 * strided pieces would be a part each, and are rarely pages. */
static int add_blocks(struct parts *parts, struct rsched_lane *lane, bool pages)
{
    size_t number;
    const struct rsched_piece *p = lane->ops->tx_blocks(lane, &number);
    int error = 0;

    for (size_t i = 0; i < number && error == 0; i++) {
        if (p[i].count != 1)
            continue;
        error = pages ? append(parts, rs_page_down(p[i].address),
                               rs_page_up(end_of(&p[i])))
                      : append(parts, p[i].address, end_of(&p[i]));
    }
    return error;
}

/* Add up what all lanes would save in a start. */
static uint64_t saving(const struct rsched_exchange *x,
                       const struct parts *pages)
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < x->num_tx; i++) {
        struct rsched_lane *lane = x->tx[i];

        if (lane->ops->tx_blocks != NULL &&
            __builtin_add_overflow(
                all, lane->ops->tx_saves(lane, pages->at, pages->number), &all))
            return UINT64_MAX;
    }
    return all;
}

static void adopt_for(struct rsched_exchange *x, const struct parts *pages)
{
    struct rsched_piece *common = NULL;
    struct parts wanted = {0};
    int error = 0;

    for (uint32_t i = 0; i < x->num_tx && error == 0; i++) {
        struct rsched_lane *lane = x->tx[i];

        if (lane->ops->tx_blocks != NULL &&
            lane->ops->tx_saves(lane, pages->at, pages->number) >
                RSCHED_SAVING_UNKNOWN)
            error = add_blocks(&wanted, lane, true);
    }
    if (error == 0)
        common = calloc(wanted.number + pages->number + 1, sizeof(*common));
    if (common != NULL) {
        wanted.number = rs_adopt_pages(wanted.at, wanted.number);
        rs_adopt(common, rs_adopt_common(wanted.at, wanted.number, pages->at, pages->number,
                                         common));
    }
    free(common);
    free(wanted.at);
}

/* Who finds no memory for that adopts nothing. */
static void consider(struct rsched_exchange *x)
{
    struct parts pages = {0};
    struct rs_error_text kept;
    int error = 0;

    rs_error_save(&kept);
    for (uint32_t i = 0; i < x->num_tx && error == 0; i++) {
        if (x->tx[i]->ops->tx_blocks != NULL)
            error = add_blocks(&pages, x->tx[i], false);
    }
    if (error == 0) {
        pages.number = rs_adopt_pages(pages.at, pages.number);
        if (rs_adopt_is_due(&x->adopt, saving(x, &pages), pages.number,
                            rs_adopt_bytes(pages.at, pages.number)))
            adopt_for(x, &pages);
    }
    rs_error_restore(&kept);
    free(pages.at);
}

int rs_exchange_adopt(struct rsched_exchange *x)
{
    int error = 0;

    if (!rs_offer_any())
        return 0;
    consider(x);
    for (uint32_t i = 0; i < x->num_tx && error == 0; i++) {
        if (x->tx[i]->ops->tx_blocks != NULL)
            error = x->tx[i]->ops->tx_remap(x->tx[i]);
    }
    return error;
}

void rs_exchange_watch(struct rsched_exchange *x)
{
    x->adopt = (struct rs_adopt_watch){0};
    for (uint32_t i = 0; i < x->num_tx; i++) {
        struct rsched_lane *lane = x->tx[i];
        size_t number;

        if (lane->ops->tx_blocks == NULL)
            continue;
        lane->adopt_in = &x->adopt.in;
        lane->ops->tx_blocks(lane, &number);
        if (number > 0)
            x->adopt.in = (uint32_t)rs_config()->adopt;
    }
}
