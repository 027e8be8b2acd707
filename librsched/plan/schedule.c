/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/plan/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "librsched/plan/planners.h"
#include "models/machine.h"
#include "patterns/pattern.h"

enum { SIZES = 8 }; /* of puts that are tried as the least to halve */

void rsched_schedule_destroy(struct rsched_schedule *schedule)
{
    if (schedule == NULL)
        return;
    free(schedule->queues);
    free(schedule->order);
    free(schedule->placements);
    rs_problem_fini(&schedule->problem);
    free(schedule->planner);
    rsched_machine_destroy(schedule->machine);
    rsched_pattern_destroy(schedule->pattern);
    free(schedule);
}

static int allocate(struct rsched_schedule *schedule)
{
    size_t puts = schedule->problem.num_puts;

    schedule->placements = calloc(puts + 1, sizeof(*schedule->placements));
    schedule->order = calloc(puts + 1, sizeof(*schedule->order));
    schedule->queues = calloc(schedule->problem.costs.num_engines + 1u,
                              sizeof(*schedule->queues));
    if (schedule->placements == NULL || schedule->order == NULL ||
        schedule->queues == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a schedule of %zu puts",
                       puts);
    return 0;
}

/* A schedule without queues. */
static int begin(const struct rsched_pattern *pattern,
                 struct rsched_machine *machine, const char *planner,
                 const struct rs_cut *cuts, size_t num_cuts,
                 struct rsched_schedule **schedule)
{
    struct rsched_schedule *made = calloc(1, sizeof(*made));
    int error;

    if (made == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a schedule");
    made->machine = rs_machine_hold(machine);
    made->planner = strdup(planner);
    if (made->planner == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory for a schedule");
    else
        error = rs_pattern_copy(pattern, &made->pattern);
    if (error == 0)
        error = rs_problem_init(&made->problem, made->pattern, machine, cuts,
                                num_cuts);
    if (error == 0)
        error = allocate(made);
    if (error != 0) {
        rsched_schedule_destroy(made);
        return error;
    }
    *schedule = made;
    return 0;
}

static int fill_queues(struct rsched_schedule *schedule,
                       const struct rs_place *places)
{
    int error = rs_problem_queue(&schedule->problem, places, schedule->queues,
                                 schedule->order);

    if (error != 0)
        return error;
    for (uint32_t e = 0; e < schedule->problem.costs.num_engines; e++) {
        for (size_t i = schedule->queues[e]; i < schedule->queues[e + 1]; i++) {
            struct rsched_placement *p =
                &schedule->placements[schedule->order[i]];

            p->engine = e;
            p->receive_engine = e;
            p->position = (uint32_t)(i - schedule->queues[e]);
        }
    }
    return 0;
}

static int add_overhead(struct rsched_schedule *schedule)
{
    const struct rsched_machine_costs *costs = &schedule->problem.costs;
    uint64_t sum;

    if (__builtin_mul_overflow(costs->exchange_per_put,
                               schedule->problem.num_puts, &sum) ||
        __builtin_add_overflow(sum, costs->exchange_base, &sum) ||
        __builtin_add_overflow(sum, schedule->makespan, &schedule->total))
        return rs_fail(RSCHED_ELIMIT, "the total time does not fit in 64 bits");
    return 0;
}

/* Simulate the queues and fill in all times. */
static int score(struct rsched_schedule *schedule)
{
    size_t puts = schedule->problem.num_puts;
    struct rs_fluid_times *times = calloc(puts + 1, sizeof(*times));
    int error;

    if (times == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a schedule of %zu puts",
                       puts);
    error = rs_problem_simulate(&schedule->problem, schedule->queues,
                                schedule->order, NULL, NULL, times,
                                &schedule->makespan);
    if (error == 0)
        error = rs_problem_bound(&schedule->problem, &schedule->lower_bound);
    if (error == 0)
        error = add_overhead(schedule);
    for (size_t i = 0; error == 0 && i < puts; i++) {
        schedule->placements[i].start = times[i].start;
        schedule->placements[i].data = times[i].data;
        schedule->placements[i].finish = times[i].finish;
    }
    free(times);
    return error;
}

/* Queue and score, unless `error` says that the plan has failed already. */
static int finish(struct rsched_schedule *made, int error,
                  const struct rs_place *places,
                  struct rsched_schedule **schedule)
{
    const struct rsched_pattern *pattern = made->pattern;

    if (error == 0)
        error = fill_queues(made, places);
    if (error == 0)
        error = score(made);
    if (error == 0) {
        *schedule = made;
        return 0;
    }
    if (error == RSCHED_ELIMIT)
        rs_fail_within(error, "%s", pattern->source ? pattern->source
                                                    : pattern->name);
    rsched_schedule_destroy(made);
    return error;
}

/* Plan the parts that the cuts make of the puts. */
static int create(const struct rsched_pattern *pattern,
                  struct rsched_machine *machine,
                  const struct rs_planner *planner,
                  const struct rsched_plan_options *options,
                  const struct rs_cut *cuts, size_t num_cuts,
                  struct rsched_schedule **schedule)
{
    struct rsched_schedule *made;
    struct rs_place *places;
    int error = begin(pattern, machine, planner->shown.name, cuts, num_cuts,
                      &made);

    if (error != 0)
        return error;
    if (options->nodes != 0)
        made->problem.most_nodes = options->nodes;
    made->problem.progress = options->progress;
    made->problem.progress_arg = options->progress_arg;
    places = calloc(made->problem.num_puts + 1, sizeof(*places));
    if (places == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory to plan");
    else
        error = planner->plan(&made->problem, planner, places,
                              &made->findings);
    error = finish(made, error, places, schedule);
    free(places);
    return error;
}

static int compare_bytes(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;

    return (*a < *b) - (*a > *b);
}

/* The largest different sizes of puts. Returns their number, or RSCHED_ENOMEM.
 * What is not at least 2 bytes cannot be halved. */
static int find_sizes(const struct rsched_pattern *pattern, uint64_t *sizes)
{
    size_t puts = pattern->puts.count, count = 0;
    uint64_t *all = calloc(puts + 1, sizeof(*all));

    if (all == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to plan");
    for (size_t i = 0; i < puts; i++)
        all[i] = pattern->puts.items[i].put.bytes;
    qsort(all, puts, sizeof(*all), compare_bytes);
    for (size_t i = 0; i < puts && count < SIZES && all[i] > 1; i++) {
        if (count == 0 || all[i] != sizes[count - 1])
            sizes[count++] = all[i];
    }
    free(all);
    return (int)count;
}

/* Halve the puts of at least `least` bytes, and see whether that is better. */
static int try_halves(const struct rsched_pattern *pattern,
                      struct rsched_machine *machine,
                      const struct rs_planner *planner,
                      const struct rsched_plan_options *options,
                      uint64_t least, struct rsched_schedule **best)
{
    struct rs_cut *cuts = calloc(pattern->puts.count + 1, sizeof(*cuts));
    struct rsched_schedule *made;
    size_t count = 0;
    int error;

    if (cuts == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to plan");
    for (size_t i = 0; i < pattern->puts.count; i++) {
        uint64_t bytes = pattern->puts.items[i].put.bytes;

        if (bytes >= least)
            cuts[count++] = (struct rs_cut){(uint32_t)i, bytes / 2};
    }
    error = create(pattern, machine, planner, options, cuts, count, &made);
    free(cuts);
    if (error != 0)
        return error;
    if (made->total < (*best)->total) {
        struct rsched_schedule *worse = *best;

        *best = made;
        made = worse;
    }
    rsched_schedule_destroy(made);
    return 0;
}

static int split(const struct rsched_pattern *pattern,
                 struct rsched_machine *machine,
                 const struct rs_planner *planner,
                 const struct rsched_plan_options *options,
                 struct rsched_schedule **best)
{
    uint64_t sizes[SIZES];
    int count = find_sizes(pattern, sizes), error = count < 0 ? count : 0;

    for (int i = 0; error == 0 && i < count; i++)
        error = try_halves(pattern, machine, planner, options, sizes[i], best);
    return error;
}

int rsched_schedule_create_options(const struct rsched_pattern *pattern,
                                   struct rsched_machine *machine,
                                   const struct rsched_plan_options *options,
                                   struct rsched_schedule **schedule)
{
    const struct rs_planner *planner;
    struct rsched_schedule *made;
    int error = rs_planner_find(options->planner, &planner);

    if (error == 0)
        error = create(pattern, machine, planner, options, NULL, 0, &made);
    if (error != 0)
        return error;
    if (options->split)
        error = split(pattern, machine, planner, options, &made);
    if (error != 0) {
        rsched_schedule_destroy(made);
        return error;
    }
    *schedule = made;
    return 0;
}

int rsched_schedule_create(const struct rsched_pattern *pattern,
                           struct rsched_machine *machine, const char *planner,
                           struct rsched_schedule **schedule)
{
    const struct rsched_plan_options options = {.planner = planner};

    return rsched_schedule_create_options(pattern, machine, &options,
                                          schedule);
}

/* Each queue's positions must be 0, 1, ... once each. `seen` has a zero for
 * every put. */
static int check_queues(const struct rsched_schedule *made,
                        const struct rs_place *places, size_t *first,
                        bool *seen)
{
    size_t engines = made->problem.costs.num_engines;
    size_t puts = made->problem.num_puts;

    for (size_t i = 0; i < puts; i++) {
        if (places[i].engine >= engines)
            return rs_fail(RSCHED_EINVAL, "put %zu: engine %u, but machine %s "
                           "has %zu", i, (unsigned)places[i].engine,
                           made->machine->label, engines);
        first[places[i].engine + 1]++;
    }
    for (size_t e = 0; e < engines; e++)
        first[e + 1] += first[e];
    for (size_t i = 0; i < puts; i++) {
        size_t begin = first[places[i].engine];
        size_t count = first[places[i].engine + 1] - begin;

        if (places[i].order >= count || seen[begin + places[i].order])
            return rs_fail(RSCHED_EINVAL, "put %zu: position %u in the queue "
                           "of engine %u is taken, or behind its end", i,
                           (unsigned)places[i].order,
                           (unsigned)places[i].engine);
        seen[begin + places[i].order] = true;
    }
    return 0;
}

int rs_schedule_create_parts(const struct rsched_pattern *pattern,
                              struct rsched_machine *machine,
                              const char *planner, const struct rs_cut *cuts,
                              size_t num_cuts, const uint32_t *engines,
                              const uint32_t *positions,
                              struct rsched_schedule **schedule)
{
    struct rsched_schedule *made;
    struct rs_place *places;
    size_t *first;
    bool *seen;
    int error = begin(pattern, machine, planner, cuts, num_cuts, &made);

    if (error != 0)
        return error;
    places = calloc(made->problem.num_puts + 1, sizeof(*places));
    seen = calloc(made->problem.num_puts + 1, sizeof(*seen));
    first = calloc(made->problem.costs.num_engines + 1u, sizeof(*first));
    if (places == NULL || seen == NULL || first == NULL) {
        error = rs_fail(RSCHED_ENOMEM, "no memory for a schedule");
    } else {
        for (size_t i = 0; i < made->problem.num_puts; i++)
            places[i] = (struct rs_place){engines[i], positions[i]};
        error = check_queues(made, places, first, seen);
    }
    error = finish(made, error, places, schedule);
    free(first);
    free(seen);
    free(places);
    return error;
}

int rsched_schedule_create_queues(const struct rsched_pattern *pattern,
                                  struct rsched_machine *machine,
                                  const char *planner, const uint32_t *engines,
                                  const uint32_t *positions,
                                  struct rsched_schedule **schedule)
{
    return rs_schedule_create_parts(pattern, machine, planner, NULL, 0,
                                     engines, positions, schedule);
}

const struct rsched_pattern *
rsched_schedule_pattern(const struct rsched_schedule *schedule)
{
    return schedule->pattern;
}

struct rsched_machine *
rsched_schedule_machine(const struct rsched_schedule *schedule)
{
    return schedule->machine;
}

const char *rsched_schedule_planner(const struct rsched_schedule *schedule)
{
    return schedule->planner;
}

size_t rsched_schedule_num_puts(const struct rsched_schedule *schedule)
{
    return schedule->pattern->puts.count;
}

size_t rsched_schedule_num_parts(const struct rsched_schedule *schedule)
{
    return schedule->problem.num_puts;
}

const struct rsched_part *
rsched_schedule_part(const struct rsched_schedule *schedule, size_t part)
{
    return &schedule->problem.parts[part];
}

size_t rsched_schedule_num_engines(const struct rsched_schedule *schedule)
{
    return schedule->problem.costs.num_engines;
}

const struct rsched_placement *
rsched_schedule_placement(const struct rsched_schedule *schedule,
                          size_t part)
{
    return &schedule->placements[part];
}

size_t rsched_schedule_queue(const struct rsched_schedule *schedule,
                             size_t engine, const uint32_t **parts)
{
    *parts = schedule->order + schedule->queues[engine];
    return schedule->queues[engine + 1] - schedule->queues[engine];
}

uint64_t rsched_schedule_makespan(const struct rsched_schedule *schedule)
{
    return schedule->makespan;
}

uint64_t rsched_schedule_total(const struct rsched_schedule *schedule)
{
    return schedule->total;
}

uint64_t rsched_schedule_lower_bound(const struct rsched_schedule *schedule)
{
    return schedule->lower_bound;
}

uint64_t rsched_schedule_gap_ppm(const struct rsched_schedule *schedule)
{
    unsigned __int128 bound = schedule->lower_bound;
    unsigned __int128 above = schedule->makespan - schedule->lower_bound;

    if (bound == 0)
        return above == 0 ? 0 : UINT64_MAX;
    above = (above * 1000000 + bound / 2) / bound;
    return above > UINT64_MAX ? UINT64_MAX : (uint64_t)above;
}

uint64_t rsched_schedule_nodes(const struct rsched_schedule *schedule)
{
    return schedule->findings.nodes;
}

const char *rs_schedule_search(const struct rsched_schedule *schedule)
{
    /* What a search has found before it ended may be as short as the bound. */
    return rsched_schedule_is_proven(schedule)
               ? NULL
               : rs_proof_end_text(schedule->findings.search);
}

bool rsched_schedule_is_proven(const struct rsched_schedule *schedule)
{
    return schedule->findings.proven ||
           schedule->makespan == schedule->lower_bound;
}

uint64_t rsched_schedule_box_makespan(const struct rsched_schedule *schedule)
{
    return schedule->findings.box_makespan;
}

uint64_t rsched_schedule_box_bound(const struct rsched_schedule *schedule)
{
    return schedule->findings.box_bound;
}

void rs_schedule_note_boxes(struct rsched_schedule *schedule, uint64_t height,
                            uint64_t bound)
{
    schedule->findings.box_makespan = height;
    schedule->findings.box_bound = bound;
}

/* The loads of a stretch are those of the puts in flight. */
struct occupancy {
    const struct rsched_schedule *schedule;
    rsched_occupancy *visit;
    void *arg;
    uint64_t *loads;
};

static void visit_stretch(void *arg, uint64_t from, uint64_t to,
                          const uint32_t *puts, const uint64_t *rates)
{
    struct occupancy *walk = arg;
    const struct rsched_schedule *schedule = walk->schedule;
    const struct rsched_machine *machine = schedule->machine;

    memset(walk->loads, 0, machine->num_links * sizeof(*walk->loads));
    for (size_t e = 0; e < schedule->problem.costs.num_engines; e++) {
        const struct rsched_route *route;

        if (puts[e] == UINT32_MAX)
            continue;
        route = rsched_machine_find_engine_route(
            machine, rsched_pattern_put(schedule->pattern,
                                        schedule->problem.parts[puts[e]].put)
                         ->direction, (uint32_t)e);
        for (size_t k = 0; k < route->num_links; k++)
            walk->loads[route->links[k]] += rates[e];
    }
    walk->visit(walk->arg, from, to, walk->loads);
}

int rsched_schedule_occupancy(const struct rsched_schedule *schedule,
                              rsched_occupancy *visit, void *arg)
{
    struct occupancy walk = {schedule, visit, arg, NULL};
    uint64_t makespan;
    int error;

    walk.loads = calloc(schedule->machine->num_links + 1, sizeof(uint64_t));
    if (walk.loads == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for the loads of %zu links",
                       schedule->machine->num_links);
    error = rs_problem_simulate(&schedule->problem, schedule->queues,
                                schedule->order, visit_stretch, &walk, NULL,
                                &makespan);
    free(walk.loads);
    return error;
}
