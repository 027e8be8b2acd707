/* SPDX-License-Identifier: BSD-3-Clause */
/* Between two looks at requests: spin, yield, sleep. What completes a request
 * may ring a bell, each pair its own and each exchange the context's; for all
 * bells that it may hear at once a process sleeps, else it naps. */
#include "mpi/request.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "librsched/base/clock.h"

/* How long a store may take to be seen; the shortest nap. */
#define LOOK_PS (3 * UINT64_C(1000000))
#define NAP_PS (20 * UINT64_C(1000000))

enum {
    NAP_PART = 64,  /* of the time waited so far: as much is lost at the end */
    SLACK_NS = 1000,
    MOST_BELLS = 128, /* FUTEX_WAITV_MAX */
};

struct bells {
    unsigned num;
    unsigned wanted; /* the first ones are of what is waited for */
    unsigned heard;  /* and all but these of stops */
    _Atomic uint32_t *asleep[MOST_BELLS];
};

/* What a sleeper looks at once more when others can see that he sleeps. */
struct look {
    int count;
    const MPI_Request *handles;
};

bool rs_has_rested;

/* ---- bells ---- */

/* The one that rings when something of the pair is complete, or can go on. */
static _Atomic uint32_t *bell_of(const struct rs_pair *pair)
{
    const struct rs_pair_view *view = &pair->view;

    return view->words == NULL ? NULL
                               : &view->words->bells[view->sends].asleep;
}

static bool has_bell(const struct bells *bells, const _Atomic uint32_t *asleep)
{
    for (unsigned i = 0; i < bells->num; i++) {
        if (bells->asleep[i] == asleep)
            return true;
    }
    return false;
}

static void add_pairs(struct bells *bells, bool (*has)(struct rs_pair *))
{
    for (struct rs_pair *p = rs_pairs_first();
         p != NULL && bells->num < MOST_BELLS; p = p->next_all) {
        if (has(p) && !has_bell(bells, bell_of(p)))
            bells->asleep[bells->num++] = bell_of(p);
    }
}

/* Whatever we wait for: a sender may wait for a message to be taken, and who stops
 * for what we do natively then. */
static void add_others(struct bells *bells)
{
    add_pairs(bells, rs_incarnation_takes);
    bells->heard = bells->num;
    add_pairs(bells, rs_incarnation_has_open);
}

/* False: something of the array rings no bell of a pair. */
static bool collect(struct bells *bells, int count, const MPI_Request *handles)
{
    bells->num = 0;
    if (rs_gpu_is_copying() || rs_num_alone > 0) /* what comes natively does not ring */
        return false;
    for (int i = 0; i < count; i++) {
        const struct rs_request *request = rs_request_find(handles[i]);
        _Atomic uint32_t *asleep;

        if (request == NULL ? handles[i] == MPI_REQUEST_NULL
                            : request->state == RS_INACTIVE)
            continue;
        if (request == NULL || request->message == NULL || request->state == RS_NATIVE)
            return false;
        asleep = bell_of(request->message->lane->pair);
        if (asleep == NULL || bells->num == MOST_BELLS)
            return false;
        if (bells->num == 0 || bells->asleep[bells->num - 1] != asleep)
            bells->asleep[bells->num++] = asleep;
    }
    bells->wanted = bells->num;
    if (bells->num == 0)
        return false;
    add_others(bells);
    return true;
}

static bool is_any_complete(const struct look *look)
{
    for (int i = 0; i < look->count; i++) {
        struct rs_request *request = rs_request_find(look->handles[i]);

        if (request != NULL && request->state != RS_INACTIVE &&
            rs_request_poll(request))
            return true;
    }
    return false;
}

static uint32_t sleep_at(const struct bells *bells, unsigned i)
{
    return i < bells->heard ? RS_ASLEEP : RS_ASLEEP_FOR_STOPS;
}

#ifdef SYS_futex_waitv /* Linux 5.16 */
static int wait_for_any(const struct bells *bells, uint64_t limit_ps)
{
    struct futex_waitv words[MOST_BELLS];
    struct timespec until = rs_clock_until(limit_ps);

    for (unsigned i = 0; i < bells->num; i++)
        words[i] = (struct futex_waitv){.val = sleep_at(bells, i),
                                        .uaddr = (uintptr_t)bells->asleep[i],
                                        .flags = FUTEX_32};
    return (int)syscall(SYS_futex_waitv, words, bells->num, 0, &until,
                        CLOCK_MONOTONIC);
}
#else
static int wait_for_any(const struct bells *bells, uint64_t limit_ps)
{
    (void)bells;
    (void)limit_ps;
    errno = ENOSYS;
    return -1;
}
#endif

/* @return whether this kernel, and what it allows, can do that */
static bool wait_for_all(const struct bells *bells, uint64_t limit_ps)
{
    static atomic_bool only_one; /* at a time */

    if (atomic_load_explicit(&only_one, memory_order_relaxed))
        return false;
    if (wait_for_any(bells, limit_ps) >= 0 || errno == EAGAIN ||
        errno == ETIMEDOUT || errno == EINTR)
        return true;
    atomic_store_explicit(&only_one, true, memory_order_relaxed);
    return false;
}

/* @return whether those of what is waited for are heard */
static bool wait_for_bells(const struct bells *bells, uint64_t limit_ps)
{
    struct timespec limit = rs_clock_timespec(limit_ps);

    if (bells->num > 1 && wait_for_all(bells, limit_ps))
        return true;
    if (bells->wanted == 1)
        syscall(SYS_futex, bells->asleep[0], FUTEX_WAIT, RS_ASLEEP, &limit, NULL, 0);
    return bells->wanted == 1;
}

/* Sleep until one of the other sides rings or the time is over. A ring can be
 * missed in a window of nanoseconds: the time bounds that.
 * @return false: not slept */
static bool sleep_for(const struct bells *bells, const struct look *look,
                      uint64_t limit_ps)
{
    bool is_ready, has_slept = true, rang = false;
    uint64_t begin = rs_clock_now();

    /* Who writes a word for us looks at `asleep` afterwards, without a fence,
     * and may miss it while his word is on its way: look again until that is
     * there. */
    for (unsigned i = 0; i < bells->num; i++)
        atomic_store(bells->asleep[i], sleep_at(bells, i));
    if (bells->num > bells->wanted)
        rs_incarnations_look();
    do
        is_ready = is_any_complete(look);
    while (!is_ready && rs_clock_now() - begin < LOOK_PS);
    if (!is_ready)
        has_slept = wait_for_bells(bells, limit_ps);
    for (unsigned i = 0; i < bells->num; i++) {
        rang |= atomic_load_explicit(bells->asleep[i], memory_order_relaxed) ==
                RS_AWAKE;
        atomic_store_explicit(bells->asleep[i], RS_AWAKE, memory_order_relaxed);
    }
    if (rang && !is_ready)
        rs_count_number(RS_NUMBER_LANE_WAKES, 1);
    return has_slept;
}

/* ---- rest ---- */

/* Nobody rings: the longer it has taken so far, the less it matters to be late
 * by a part of that. */
static void nap(const struct rs_rest *rest, uint64_t limit_ps)
{
    uint64_t ps = (rs_clock_now() - rest->since) / NAP_PART;
    int slack = prctl(PR_GET_TIMERSLACK);

    if (ps > limit_ps)
        ps = limit_ps;
    /* By default the kernel may wake a thread 50 us late, to wake others with it:
     * more than most naps are long. What the program has chosen is put back. */
    if (slack > SLACK_NS)
        prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS);
    rs_clock_sleep(ps > NAP_PS ? ps : NAP_PS);
    if (slack > SLACK_NS)
        prctl(PR_SET_TIMERSLACK, (unsigned long)slack);
}

static bool are_exchanges(int count, const MPI_Request *handles)
{
    for (int i = 0; i < count; i++) {
        const struct rs_request *request = rs_request_find(handles[i]);

        if (request != NULL ? request->message != NULL
                            : handles[i] != MPI_REQUEST_NULL)
            return false;
    }
    return true;
}

void rs_rest(struct rs_rest *rest, int count, const MPI_Request *handles)
{
    const struct look look = {count, handles};
    struct bells bells;
    uint64_t limit_ps;

    rs_set_rested(true);
    if (rest->pause.steps == 0)
        rest->for_exchanges = are_exchanges(count, handles);
    if (rest->for_exchanges) {
        rsched_context_pause(rs_context(), &rest->pause);
        return;
    }
    if (rs_num_alone > 0)
        rs_incarnations_look();
    limit_ps = rsched_context_rest(rs_context(), &rest->pause);
    if (limit_ps == 0)
        return;
    if (rest->since == 0)
        rest->since = rs_clock_now();
    if (!collect(&bells, count, handles) ||
        !sleep_for(&bells, &look, limit_ps))
        nap(rest, limit_ps);
}
