/* SPDX-License-Identifier: BSD-3-Clause */
/* Where slots lie (mpi/lane.h): no two of them share a byte, data of long ones
 * begins with a line, lanes of short messages lie side by side, and the memory
 * suffices for as many lanes as there can be, each of which has grown again and
 * again. */
#include "mpi/lane.h"
#include "tests/model/check.h"

static struct rs_pair_words *words;
static unsigned char *taken; /* bytes of the memory */
static uint64_t most;

static uint64_t share; /* of each lane */
static unsigned wanted;
static unsigned lane; /* that the next slots are for */

static struct rs_slots take(struct rs_rows *rows, uint64_t bytes)
{
    struct rs_pair_view view = {.words = words};
    uint64_t place = rs_rows_take(rows, lane, bytes, most, share, wanted);
    struct rs_slots slots;

    CHECK(place != 0 && rs_place_room(place) >= bytes);
    CHECK(rs_slots_init(&slots, &view, lane, place, most));
    CHECK(slots.room == rs_place_room(place));
    CHECK(rs_place_bytes(place) == slots.num * (sizeof(struct rs_slot) + slots.room));
    for (unsigned k = 0; k < slots.num; k++) {
        const struct rs_slot *slot = rs_slots_at(&slots, k);
        size_t at = (size_t)((const char *)slot - (const char *)words);
        size_t end = at + sizeof(*slot) + slots.room;

        CHECK(at >= sizeof(*words) && end <= rs_pair_bytes(most));
        CHECK(bytes < 256 || (uintptr_t)slot->data % RS_LANE_LINE == 0);
        for (; at < end; at++) {
            CHECK(!taken[at]);
            taken[at] = 1;
        }
    }
    return slots;
}

static void begin(uint64_t limit)
{
    size_t bytes = rs_pair_bytes(limit);

    most = limit;
    lane = 0;
    free(words);
    free(taken);
    words = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    taken = calloc(1, bytes);
    CHECK(words != NULL && taken != NULL);
}

static void check_growth(uint64_t limit)
{
    struct rs_rows rows = {0};

    begin(limit);
    for (uint64_t bytes = RS_LANE_LEAST_ROOM; bytes < 2 * limit; bytes *= 2) {
        for (lane = 0; lane < RS_BANK_LANES; lane++)
            take(&rows, bytes < limit ? bytes : limit);
    }
}

static void check_any(uint64_t limit)
{
    struct rs_rows rows = {0};
    uint64_t seed = 1;

    begin(limit);
    for (lane = 0; lane < RS_BANK_LANES; lane++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        take(&rows, (seed >> 33) % (limit + 1) >> (seed >> 20) % 12);
    }
    CHECK(rs_rows_take(&rows, 0, limit + 1, limit, 0, 0) == 0);
}

static void check_rows(void)
{
    struct rs_rows rows = {0};
    struct rs_slots one, other;

    begin(65536);
    one = take(&rows, 8);
    other = take(&rows, 64);
    CHECK(other.memory == one.memory + RS_LANE_LINE &&
          other.stride == one.stride && other.room == 64);
}

/* About as many bytes as the share has, or the least number; and what is taken beyond
 * that leaves enough for all other lanes: see check_growth(). */
static void check_shares(void)
{
    static const struct {
        uint64_t bytes, share;
        unsigned num;
    } cases[] = {{8, 1 << 20, 8},       {512, 1 << 20, 8},     {1024, 1 << 20, 256},
                 {1024, 1 << 17, 128},  {2000, 1 << 18, 128},  {4096, 0, 8},
                 {4096, 1 << 18, 64},   {4096, 200000, 64},    {4096, 180000, 32},
                 {16384, 0, 2},         {16384, 1 << 18, 16},  {65536, 1 << 20, 16},
                 {65536, 4 << 20, 64},  {65536, 64 << 20, 256}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rs_rows rows = {0};

        begin(65536);
        share = cases[i].share;
        CHECK(take(&rows, cases[i].bytes).num == cases[i].num);
    }
}

/* So many slots as are wanted, while there is memory for more than the least number. */
static void check_numbers(void)
{
    static const struct {
        uint64_t bytes;
        unsigned wanted, num;
    } cases[] = {{8, 9, 16},    {8, 200, 256},  {3000, 64, 64},
                 {9000, 3, 4},  {65536, 5, 8},  {65536, 128, 128}};
    struct rs_rows rows = {0};

    share = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(65536);
        rows = (struct rs_rows){0};
        wanted = cases[i].wanted;
        CHECK(take(&rows, cases[i].bytes).num == cases[i].num);
        wanted = 0;
        CHECK(take(&rows, 8).num == RS_LANE_FEW_SLOTS);
    }
    /* There are none rather than fewer, and what others need is left. */
    begin(65536);
    rows = (struct rs_rows){0};
    while (rs_rows_take(&rows, 0, 16384, most, 0, 64) != 0)
        ;
    CHECK(rs_rows_take(&rows, 0, 8, most, 0, RS_LANE_MOST_SLOTS) != 0);
    for (uint64_t bytes = RS_LANE_LEAST_ROOM; bytes <= most; bytes *= 2) {
        for (lane = 0; lane < RS_BANK_LANES; lane++)
            take(&rows, bytes);
    }
}

/* Those beyond a bank have fewer slots, but for the shortest messages, and there is memory
 * for all that there can be. */
static void check_many(void)
{
    struct rs_rows rows = {0};

    share = wanted = 0;
    begin(65536);
    for (lane = 0; lane < RS_LANES; lane++)
        CHECK(take(&rows, lane % 2 * 512).num == RS_LANE_FEW_SLOTS);
    begin(65536);
    rows = (struct rs_rows){0};
    for (lane = 0; lane < RS_LANES / 4; lane++)
        take(&rows, RS_LANE_FEW_BYTES);
    CHECK(rows.end < 16 << 20);
    CHECK(take(&rows, RS_LANE_FEW_BYTES).num == RS_LANE_LEAST_SLOTS);
    CHECK(take(&rows, 8).num == RS_LANE_FEW_SLOTS);
    lane = 0;
    CHECK(take(&rows, RS_LANE_FEW_BYTES).num == RS_LANE_FEW_SLOTS);
}

static void check_wrong_places(void)
{
    struct rs_pair_view view = {.words = words};
    struct rs_slots slots;

    CHECK(!rs_slots_init(&slots, &view, 0, 0, most));
    CHECK(!rs_slots_init(&slots, &view, 0, UINT64_MAX, most));
    CHECK(!rs_slots_init(&slots, &view, 0, 3, most)); /* in the words */
}

int main(void)
{
    for (share = 0; share <= 1 << 24; share = share * 16 + 4096) {
        for (uint64_t limit = 4096; limit <= 1 << 18; limit *= 8) {
            check_growth(limit);
            check_any(limit);
        }
    }
    CHECK(rs_pair_bytes(RS_LANE_MOST_BYTES) <= 1 << 29); /* a place has so many bits */
    check_shares();
    check_numbers();
    check_rows();
    check_many();
    check_wrong_places();
    free(words);
    free(taken);
    printf("places: ok\n");
    return 0;
}
