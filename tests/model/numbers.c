/* SPDX-License-Identifier: BSD-3-Clause */
/* A lane's numbers (mpi/lane.h) have 32 bits and may run out: the sender gets no
 * slot before that, and after the stop that follows both sides agree on what is
 * matched, and the next incarnation begins with nothing put or granted. */
#include <string.h>

#include "mpi/lane.h"
#include "tests/model/check.h"

enum { BYTES = 8, MANY = 64, LANE = RS_BANK_LANES + 3 }; /* of the second bank */

/* Both sides of a pair of one lane. */
static struct rs_pair_view sender = {.sends = true}, receiver;
static struct rs_slots sends, receives;
static const struct rs_slots *const all_sends[LANE + 1] = {[LANE] = &sends};
static const struct rs_slots *const all_receives[LANE + 1] = {[LANE] = &receives};
static struct rs_lane_set only;

static void make_pair(void)
{
    size_t bytes = (rs_pair_bytes(4096) + 4095) / 4096 * 4096;
    struct rs_pair_words *words = aligned_alloc(4096, bytes);
    struct rs_rows rows = {0};
    uint64_t place = rs_rows_take(&rows, LANE, BYTES, 4096, 0, 0);

    CHECK(words != NULL && place != 0);
    memset(words, 0, bytes);
    sender.words = receiver.words = words;
    rs_lane_set_add(&only, LANE);
    CHECK(rs_slots_init(&sends, &sender, LANE, place, 4096));
    CHECK(rs_slots_init(&receives, &receiver, LANE, place, 4096));
}

static void open_pair(void)
{
    rs_pair_ready(&receiver);
    CHECK(rs_pair_open(&sender, &only));
    CHECK(rs_pair_enter(&receiver));
    sends.number = sends.seen = rs_pair_base(&sender);
    receives.number = receives.seen = rs_pair_base(&receiver);
}

/* As if so many messages had been sent. */
static void skip(uint64_t count)
{
    sends.number += count;
    receives.number += count;
    for (uint64_t n = sends.number - sends.num + 1; n <= sends.number; n++)
        atomic_store(&rs_slots_at(&sends, n)->number, n);
    atomic_store(sends.granted, receives.number);
    rs_lane_consume(&receives, receives.number);
}

/* A message. @return whether there was a slot */
static bool send(void)
{
    struct rs_slot *slot = rs_lane_next(&sends);
    uint64_t number;

    /* It stays so until a stop. */
    if (slot == NULL)
        return rs_lane_next(&sends) != NULL;
    number = rs_lane_grant(&receives);
    CHECK(rs_lane_put(&sends, slot, BYTES) == number);
    CHECK(rs_lane_is_granted(&sends, number));
    CHECK(rs_lane_is_put(&receives, number) == slot);
    rs_lane_consume(&receives, number);
    return true;
}

static void check_stop(void)
{
    uint64_t last = sends.number;

    CHECK(rs_pair_stop(&receiver, all_receives, LANE + 1));
    CHECK(!rs_pair_stop(&sender, all_sends, LANE + 1));
    CHECK(rs_pair_final(&sender, LANE) == last);
    open_pair();
    for (unsigned i = 1; i <= MANY; i++) {
        uint64_t number = rs_pair_base(&sender) + i;

        CHECK(rs_lane_is_put(&receives, number) == NULL);
        CHECK(!rs_lane_is_granted(&sends, number));
        CHECK(!rs_lane_reached(atomic_load(sends.consumed), number));
    }
    CHECK(send());
}

/* What a receiver has granted while it was alone holds when the sender comes, and means
 * nothing once it has been withdrawn. */
static void check_alone(void)
{
    uint64_t withdrawn, number;

    CHECK(rs_pair_stop(&sender, all_sends, LANE + 1));
    CHECK(!rs_pair_stop(&receiver, all_receives, LANE + 1));
    rs_pair_ready(&receiver);
    CHECK(rs_pair_enter_alone(&receiver) && rs_pair_is_alone(&receiver));
    receives.number = receives.seen = rs_pair_base(&receiver);
    withdrawn = rs_lane_grant(&receives);
    CHECK(!rs_pair_follow(&receiver) && rs_pair_withdraw(&receiver));
    CHECK(!rs_pair_open(&sender, &only));

    rs_pair_ready(&receiver);
    CHECK(rs_pair_enter_alone(&receiver));
    receives.number = receives.seen = rs_pair_base(&receiver);
    CHECK(rs_pair_open(&sender, &only));
    sends.number = sends.seen = rs_pair_base(&sender);
    CHECK(!rs_lane_reached(withdrawn, sends.number + 1));
    CHECK(!rs_lane_is_granted(&sends, sends.number + 1));
    number = rs_lane_grant(&receives);
    CHECK(number == sends.number + 1 && rs_lane_is_granted(&sends, number));
    CHECK(!rs_pair_withdraw(&receiver) && !rs_pair_is_alone(&receiver));
    CHECK(rs_pair_is_open(&receiver) && rs_lane_set_has(&receiver.joined, LANE));
    CHECK(rs_lane_put(&sends, rs_lane_next(&sends), BYTES) == number);
    rs_lane_consume(&receives, number);
    CHECK(send());
}

/* Before it is ready the sender cannot open the pair, but knows of it; what is withdrawn then
 * means nothing in the next incarnation either. */
static void check_holding(void)
{
    uint64_t withdrawn, number;

    CHECK(rs_pair_stop(&sender, all_sends, LANE + 1));
    CHECK(!rs_pair_stop(&receiver, all_receives, LANE + 1));
    CHECK(rs_pair_held(&sender) == 0);
    CHECK(rs_pair_enter_alone(&receiver) && rs_pair_is_alone(&receiver));
    CHECK(rs_pair_holds(&receiver) && rs_pair_held(&sender) != 0);
    receives.number = receives.seen = rs_pair_base(&receiver);
    withdrawn = rs_lane_grant(&receives);
    CHECK(!rs_pair_is_ready(&sender) && !rs_pair_open(&sender, &only));
    CHECK(!rs_pair_follow(&receiver) && rs_pair_withdraw(&receiver));
    CHECK(receiver.open == 0 && rs_pair_held(&sender) == 0);

    CHECK(rs_pair_enter_alone(&receiver) && rs_pair_holds(&receiver));
    receives.number = receives.seen = rs_pair_base(&receiver);
    number = rs_lane_grant(&receives);
    rs_pair_ready(&receiver);
    CHECK(rs_pair_is_alone(&receiver) && !rs_pair_holds(&receiver));
    CHECK(!rs_pair_follow(&receiver));
    CHECK(rs_pair_open(&sender, &only));
    sends.number = sends.seen = rs_pair_base(&sender);
    CHECK(!rs_lane_reached(withdrawn, sends.number + 1));
    CHECK(number == sends.number + 1 && rs_lane_is_granted(&sends, number));
    CHECK(rs_pair_follow(&receiver) && rs_pair_is_open(&receiver));
    CHECK(rs_lane_put(&sends, rs_lane_next(&sends), BYTES) == number);
    rs_lane_consume(&receives, number);
    CHECK(send());
}

int main(void)
{
    unsigned i;

    make_pair();
    open_pair();
    CHECK(send());
    skip((UINT64_C(1) << 32) - MANY / 2);
    for (i = 0; i < MANY && send(); i++)
        ;
    CHECK(i <= RS_LANE_FEW_SLOTS);
    check_stop();
    check_alone();
    check_holding();
    free(sender.words);
    printf("numbers: ok\n");
    return 0;
}
