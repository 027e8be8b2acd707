/* SPDX-License-Identifier: BSD-3-Clause */
/* What native calls beside the lanes do to them: sends, and receives that cover some. The rules'
 * names are those of docs/persistent.md. */
#include "mpi/persistent.h"

void rs_before_send(MPI_Comm comm, int peer, int tag)
{
    struct rs_pair *pair = rs_pair_find(comm, true, peer);
    struct rs_lane *lane;

    if (pair == NULL)
        return;
    lane = rs_lane_find(pair, tag);
    if (lane != NULL) {
        rs_incarnation_close(pair);
        lane->natives++;
        lane->quiet = false;
        pair->has_chosen = false;
    } else if (rs_incarnation_has_open(pair)) {
        rs_incarnation_settle(pair);
    }
}

void rs_lane_bar(struct rs_lane *lane, enum rs_stay stay)
{
    lane->covers++;
    lane->barred_for_good |= stay == RS_COMES;
    if (!lane->barred && lane->attached)
        rs_pair_bar(&lane->pair->view, lane->index);
    lane->barred = true;
}

void rs_lane_unbar(struct rs_lane *lane, uint64_t covers)
{
    /* O2: the sender may open the pair at any time. */
    if (!lane->barred || lane->barred_for_good || covers != lane->covers ||
        lane->posted > 0)
        return;
    if (lane->attached)
        rs_pair_unbar(&lane->pair->view, lane->index);
    lane->barred = false;
}

bool rs_lane_is_barred(const struct rs_lane *lane)
{
    return lane->barred ||
           (lane->attached && rs_pair_has_barred(&lane->pair->view, lane->index));
}

void rs_lane_leave_native(struct rs_lane *lane)
{
    if (lane->barred_for_good)
        return;
    if (!lane->pair->view.sends) {
        rs_lane_bar(lane, RS_COMES);
        rs_incarnation_unready(lane->pair); /* O3 */
        return;
    }
    lane->barred = lane->barred_for_good = true;
    if (lane->attached)
        rs_pair_leave_out(&lane->pair->view, lane->index);
}

static void hide(struct rs_pair *pair, int tag, enum rs_stay stay)
{
    struct rs_lane *lane =
        tag == MPI_ANY_TAG ? pair->lanes : rs_lane_find(pair, tag);

    if (lane == NULL)
        return;
    for (; stay != RS_STAYS_NOT && lane != NULL;
         lane = tag == MPI_ANY_TAG ? lane->next : NULL)
        rs_lane_bar(lane, stay);
    rs_incarnation_close(pair);
}

/* ---- nonblocking receives ---- */

rs_filter rs_filters[2];

static void filter_add(rs_filter filter, MPI_Comm comm, int peer, int tag)
{
    unsigned key = rs_filter_key(comm, peer, tag);

    atomic_fetch_or_explicit(&filter[key / 64], UINT64_C(1) << key % 64,
                             memory_order_relaxed);
}

static bool filter_covers(const rs_filter filter, MPI_Comm comm, int peer,
                          int tag)
{
    return rs_filter_has(filter, comm, peer, tag) ||
           rs_filter_has(filter, comm, MPI_ANY_SOURCE, tag) ||
           rs_filter_has(filter, comm, peer, MPI_ANY_TAG) ||
           rs_filter_has(filter, comm, MPI_ANY_SOURCE, MPI_ANY_TAG);
}

enum rs_stay rs_is_covered(MPI_Comm comm, int peer, int tag)
{
    return filter_covers(rs_filters[1], comm, peer, tag)   ? RS_COMES
           : filter_covers(rs_filters[0], comm, peer, tag) ? RS_STAYS
                                                           : RS_STAYS_NOT;
}

void rs_lane_lose_receive(struct rs_lane *lane)
{
    const struct rs_pair *pair = lane->pair;

    lane->posted--;
    /* The lane may be gone before it is complete, and made again. */
    if (pair->name->comm != MPI_COMM_NULL)
        filter_add(rs_filters[0], pair->name->comm, pair->peer, lane->tag);
    rs_lane_bar(lane, RS_STAYS);
}

void rs_before_receive(MPI_Comm comm, int peer, int tag, enum rs_stay stay)
{
    struct rs_name *name;
    struct rs_pair *pair;

    if (stay != RS_STAYS_NOT &&
        !rs_filter_has(rs_filters[stay == RS_COMES], comm, peer, tag))
        filter_add(rs_filters[stay == RS_COMES], comm, peer, tag);
    if (rs_num_pairs == 0)
        return;
    if (peer != MPI_ANY_SOURCE) {
        pair = rs_pair_find(comm, false, peer);
        if (pair != NULL)
            hide(pair, tag, stay);
        return;
    }
    name = rs_name_find(comm);
    for (pair = name != NULL ? name->pairs : NULL; pair != NULL;
         pair = pair->next) {
        if (!pair->view.sends)
            hide(pair, tag, stay);
    }
}

bool rs_is_lane(MPI_Comm comm, int peer, int tag)
{
    struct rs_pair *pair = rs_pair_find(comm, true, peer);

    return pair != NULL && rs_lane_find(pair, tag) != NULL;
}
