/* SPDX-License-Identifier: BSD-3-Clause */
/* The time that the two take for epochs. */
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/pair_inside.h"
#include "tools/tool.h"

enum {
    BLOCKS = 3,
    GPU_BLOCKS = 6, /* as it takes ten times as long to get ready for them */
    EPOCHS_MOST = 500, /* of a block */
    TRIES = 40,        /* of a block that should keep to the class */
    WARM_FROM = 64 << 10, /* bytes of all buffers of one kind */
    WARM_BLOCKS = 10,
};

/* A block takes about this long, if it has several epochs. Of GPU memory they are
 * longer, and differ more. */
static const double block_ns = 400000, gpu_block_ns = 1000000;

/* Each line of the send buffer is in this core's cache, and no other's. Also
 * where it is not sent, so that nobody waits for the other to write. */
static void rewrite(const struct station *s)
{
    for (uint64_t i = 0; i < s->bytes; i += LINE)
        ++*(volatile char *)&s->send[i];
}

/* One number of each line. */
static void read_all(const struct station *s)
{
    for (uint64_t i = 0; i < s->bytes; i += LINE)
        (void)*(const volatile uint64_t *)(const void *)&s->receive[i];
}

/* All are started and waited for, whichever fails: the other one is not told of those that
 * do not. */
static int run_epoch(const struct station *s)
{
    int first = 0;

    if (s->bare)
        memcpy(s->receive + s->from, s->send + s->from, s->part);
    for (unsigned i = 0; i < s->window; i++) {
        int error = rsched_exchange_start(s->exchanges[i]);

        first = first != 0 ? first : error;
    }
    for (unsigned i = 0; i < s->window; i++) {
        int error = rsched_exchange_wait(s->exchanges[i]);

        first = first != 0 ? first : error;
    }
    return first;
}

/* Buffers of so many bytes are not written in the same time by both. Who is ready
 * first would wait for the other, and that be taken for a part of the epoch. */
enum { UNEVEN_FROM = 4 << 10 };

/* Tell the other one the time that this side took, or that it has failed. One of the two
 * says why: one whose error is not that the other one has failed, if there is such.
 * @return ns of the slower side, or below 0, for both alike */
static double agree(struct pair *pair, double ns, int error)
{
    static const double failed = 1e18; /* no block takes so long */
    double own = error == 0 ? ns
                            : failed * ((error == RSCHED_EPEER ? 2 : 4) + pair->side);
    double most = pair_meet(pair, own);

    if (error != 0 && own == most)
        tool_library(error);
    return most < failed ? most : -1;
}

/* Both leave it at the same meeting.
 * @return ns of an epoch of the slower side, or below 0 after a line on standard error */
static double run_block(struct pair *pair, const struct station *s, unsigned epochs)
{
    double sum = 0;
    int error = 0;

    for (unsigned i = 0; i < epochs; i++) {
        double start, clock;

        if (i % 2 == 0 && !s->on_gpu && !(s->bare && pair->side == 1))
            rewrite(s);
        if (s->bytes >= UNEVEN_FROM && agree(pair, 0, error) < 0)
            return -1;
        if (error != 0)
            break; /* the exchange tells the other one, which may be done with the block */
        start = rs_line_now();
        clock = rs_line_now() - start; /* what reading the clock adds */
        start = rs_line_now();
        error = run_epoch(s);
        if (s->reads)
            read_all(s);
        sum += rs_line_now() - start - clock;
    }
    /* What takes no longer than to read a clock may seem to take nothing. */
    return agree(pair, sum > epochs ? sum / epochs : 1, error);
}

/* Both decide alike, since both know the larger of each value. */
static double run_in_class(struct pair *pair, const struct station *s,
                           unsigned epochs)
{
    double ns = 0, before, after;
    int tries = 0;

    pair->blocks++;
    do {
        before = pair_measure_line(pair);
        ns = run_block(pair, s, epochs);
        if (ns < 0)
            return -1;
        after = pair_measure_line(pair);
        if (pair->any ||
            (pair_is_near(before) == pair->near && pair_is_near(after) == pair->near)) {
            if (pair->num_lines + 2 <= PAIR_LINES) {
                pair->lines[pair->num_lines++] = before;
                pair->lines[pair->num_lines++] = after;
            }
            return ns;
        }
        if (tries > 0)
            usleep(20000);
    } while (++tries < TRIES);
    pair->mixed++;
    return ns;
}

static unsigned choose_epochs(const struct station *s, double ns)
{
    double epochs = (s->on_gpu ? gpu_block_ns : block_ns) / (ns > 1 ? ns : 1);

    if (epochs > EPOCHS_MOST)
        return EPOCHS_MOST;
    return epochs < 2 ? 2 : (unsigned)epochs / 2 * 2;
}

/* The first trial of stores is over after so many epochs (engines/common/trial.h): it
 * begins when all slots have been used, of which there are many for short messages. So is the
 * first one of asking for lines in advance (engines/common/prefetch.h). */
static unsigned settled_after(uint64_t bytes)
{
    return bytes > 64 << 10 ? 64 : 300;
}

/* Epochs before those that are measured: where ways are updated, as many starts
 * as it takes to know how many are in flight (rsched_exchange_update()). */
static unsigned warm_up(const struct station *s)
{
    enum { FEW = 4, STARTS = 16 };
    unsigned starts = s->updates ? (STARTS + s->window - 1) / s->window : 0;

    if (s->settles)
        return settled_after(s->bytes);
    return starts > FEW ? starts : FEW;
}

/* As a program would that has all of the window in flight. */
static int update_ways(const struct station *s)
{
    int error = 0;

    for (unsigned i = 0; i < s->window && error == 0; i++)
        error = rsched_exchange_update(s->exchanges[i], NULL);
    return error == 0 ? 0 : tool_library(error);
}

/* Whether it takes many epochs until times stay as they are: what does not stay in the second
 * cache comes to stay in the last one late, where others use that, too. Emulated machines, of
 * strangers, have no such caches, and GPU memory is in none of these. */
static bool warms_late(const struct pair *pair, const struct station *s)
{
    return s->bytes >= WARM_FROM && !s->on_gpu && pair->settings == NULL;
}

/* @param[out] before what had been sent when the ways of GPU memory were updated
 * @return ns of an epoch, the least of the blocks, or below 0 */
static double run_blocks(struct pair *pair, const struct station *s,
                         struct rsched_stats *before)
{
    double least = HUGE_VAL, ns;
    unsigned epochs;

    *before = (struct rsched_stats){0};
    /* What was in flight before counts no more. */
    if (s->updates && pair_meet(pair, update_ways(s)) > 0)
        return -1;
    ns = run_in_class(pair, s, warm_up(s));
    if (ns >= 0 && s->updates) {
        if (pair_meet(pair, update_ways(s)) > 0)
            return -1;
        rsched_exchange_get_stats(s->exchanges[0], before);
    }
    if (ns >= 0)
        ns = run_in_class(pair, s, 2); /* the first ones warm up */
    epochs = choose_epochs(s, ns);
    if (ns >= 0 && warms_late(pair, s) &&
        run_block(pair, s, epochs * WARM_BLOCKS) < 0)
        ns = -1;
    for (unsigned i = 0; i < (s->on_gpu ? GPU_BLOCKS : BLOCKS) && ns >= 0; i++) {
        ns = run_in_class(pair, s, epochs);
        if (ns < least)
            least = ns;
    }
    return ns < 0 ? -1 : least;
}

static int measure(struct pair *pair, const struct station *s, struct pair_time *time)
{
    struct rsched_stats stats, before;
    double least = run_blocks(pair, s, &before);

    if (least < 0)
        return TOOL_FAILED;
    *time = (struct pair_time){.ps = least * 1000};
    rsched_exchange_get_stats(s->exchanges[0], &stats);
    /* To meet takes an emulated machine some ms. */
    if (pair->settings != NULL) {
        memcpy(time->way_bytes, stats.way_bytes, sizeof(time->way_bytes));
        return TOOL_OK;
    }
    time->huge = pair_meet(pair, s->huge ? 0 : 1) < 1;
    for (int way = 0; way < RSCHED_NUM_WAYS; way++)
        time->way_bytes[way] = (uint64_t)pair_meet(
            pair, pair->side == 0 ? (double)(stats.way_bytes[way] -
                                             before.way_bytes[way])
                                  : 0);
    return TOOL_OK;
}

int pair_measure(struct pair *pair, const struct pair_work *work,
                 const struct rs_host_ways *ways, struct pair_time *time)
{
    struct station s;
    int status = station_open(pair, work, ways, &s);

    if (status != TOOL_OK)
        return status;
    status = measure(pair, &s, time);
    pair_meet(pair, 0); /* nobody copies any more */
    station_close_exchanges(&s);
    pair_meet(pair, 0); /* nor has memory open that is freed */
    station_close(&s);
    return status;
}

/* Who comes late waits for as much less as the other one does for more.
 * @return ns, or below 0 after a line on standard error */
static double run_waits(struct pair *pair, const struct station *s, unsigned epochs)
{
    double sum = 0, most;
    int error = 0;

    for (unsigned i = 0; i < epochs; i++) {
        double start;

        if (agree(pair, 0, error) < 0)
            return -1;
        error = rsched_exchange_start(s->exchanges[0]);
        start = rs_line_now();
        if (error == 0)
            error = rsched_exchange_wait(s->exchanges[0]);
        sum += rs_line_now() - start;
    }
    most = agree(pair, sum / epochs, error);
    if (most < 0)
        return -1;
    return (most - pair_meet(pair, -sum / epochs)) / 2;
}

int pair_measure_wait(struct pair *pair, const struct pair_work *work, double *ps)
{
    enum { EPOCHS = 8 };
    double least = HUGE_VAL, ns = 0;
    struct station s;
    int status = station_open(pair, work, NULL, &s);

    if (status != TOOL_OK)
        return status;
    for (unsigned i = 0; i <= BLOCKS && ns >= 0; i++) {
        ns = run_waits(pair, &s, EPOCHS);
        if (i > 0 && ns < least) /* the first ones warm up */
            least = ns;
    }
    pair_meet(pair, 0);
    station_close_exchanges(&s);
    pair_meet(pair, 0);
    station_close(&s);
    *ps = least * 1000;
    return ns < 0 ? TOOL_FAILED : TOOL_OK;
}

int pair_measure_copies(struct pair *pair, uint64_t bytes, bool halves, double *ps)
{
    struct station s = {.bytes = bytes, .bare = true};
    bool fits = pair->side == 1 ||
                ftruncate(pair->copied, (off_t)(2 * bytes)) == 0;
    struct rsched_stats unused;
    double least;

    if (pair_meet(pair, fits ? 0 : 1) > 0)
        return station_no_buffers(&s);
    s.send = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                  pair->copied, 0);
    if (pair_meet(pair, s.send == MAP_FAILED ? 1 : 0) > 0)
        return station_no_buffers(&s);
    s.receive = s.send + bytes;
    s.from = halves && pair->side == 0 ? bytes / 2 : 0;
    s.part = halves ? bytes / 2 : pair->side == 0 ? 0 : bytes;
    memset(pair->side == 0 ? s.send : s.receive, 1, bytes);
    pair_meet(pair, 0);
    least = run_blocks(pair, &s, &unused);
    munmap(s.send, 2 * bytes);
    pair_meet(pair, 0); /* the next one may be shorter */
    if (least < 0)
        return TOOL_FAILED;
    *ps = least * 1000;
    return TOOL_OK;
}
