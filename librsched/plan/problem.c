/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/plan/problem.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "models/bound.h"
#include "models/machine.h"
#include "models/ticks.h"
#include "patterns/pattern.h"

void rs_problem_fini(struct rs_problem *problem)
{
    free(problem->parts);
    free(problem->bytes);
    free(problem->direction);
    free(problem->by_bytes);
    free(problem->directions);
    free(problem->rates);
    free(problem->routes);
    free(problem->certain);
    free(problem->route_resources);
    free(problem->capacity);
    memset(problem, 0, sizeof(*problem));
}

/* The lengths of all routes together, with the node on each, and once more for
 * what the routes of a direction have in common. */
static size_t count_resources(const struct rs_problem *problem)
{
    size_t count = 0;

    for (size_t i = 0; i < problem->num_directions; i++) {
        for (uint32_t r = 0; r < problem->num_rails; r++) {
            const struct rsched_route *route =
                rsched_machine_find_engine_route(
                    problem->machine, problem->pattern->directions.text[i], r);

            count += route != NULL ? 2 * (route->num_links + 1) : 0;
        }
    }
    return count;
}

static int allocate(struct rs_problem *problem)
{
    size_t directions = problem->num_directions + 1;
    size_t resources = rsched_machine_num_links(problem->machine) + 1;

    problem->parts = calloc(problem->num_puts + 1, sizeof(*problem->parts));
    problem->bytes = calloc(problem->num_puts + 1, sizeof(uint64_t));
    problem->direction = calloc(problem->num_puts + 1, sizeof(uint32_t));
    problem->by_bytes = calloc(problem->num_puts + 1, sizeof(uint32_t));
    problem->directions = calloc(directions, sizeof(*problem->directions));
    problem->rates = calloc(problem->num_rails, sizeof(*problem->rates));
    problem->routes = calloc(directions * problem->num_rails,
                             sizeof(*problem->routes));
    problem->certain = calloc(directions, sizeof(*problem->certain));
    problem->route_resources = calloc(count_resources(problem) + 1,
                                      sizeof(uint32_t));
    problem->capacity = calloc(resources, sizeof(uint64_t));
    if (problem->parts == NULL || problem->bytes == NULL ||
        problem->direction == NULL || problem->by_bytes == NULL ||
        problem->directions == NULL ||
        problem->rates == NULL || problem->routes == NULL ||
        problem->certain == NULL || problem->route_resources == NULL ||
        problem->capacity == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to plan %zu puts",
                       problem->num_puts);
    return 0;
}

/* Links first, then the node. A node that sends what its neighbors send takes
 * in what it puts out, so both ceilings bind the same puts. */
static void fill_capacities(struct rs_problem *problem)
{
    const struct rsched_machine_costs *costs = &problem->costs;
    uint64_t node = costs->node_inject < costs->node_eject
                        ? costs->node_inject
                        : costs->node_eject;
    size_t links = rsched_machine_num_links(problem->machine);

    for (size_t i = 0; i < links; i++)
        problem->capacity[i] =
            rsched_machine_link(problem->machine, i)->capacity;
    problem->num_resources = links;
    problem->node = -1;
    if (node != RSCHED_UNLIMITED) {
        problem->node = (int64_t)links;
        problem->capacity[problem->num_resources++] = node;
    }
}

/* The first put of a direction, to name in an error. */
static size_t first_put(const struct rs_problem *problem, size_t direction)
{
    size_t put = 0;

    while (put < problem->num_puts && problem->direction[put] != direction)
        put++;
    return put;
}

static void fill_rates(struct rs_problem *problem)
{
    problem->slowest = UINT64_MAX;
    for (size_t r = 0; r < problem->num_rails; r++) {
        uint64_t rate = rsched_machine_rail(problem->machine, r)->rate;

        problem->rates[r] = rate;
        if (rate > problem->fastest)
            problem->fastest = rate;
        if (rate < problem->slowest)
            problem->slowest = rate;
    }
}

static void fill_route(const struct rs_problem *problem,
                       const struct rsched_route *route,
                       struct rs_fluid_route *filled, uint32_t **next)
{
    filled->resources = *next;
    for (size_t i = 0; i < route->num_links; i++) {
        if (problem->capacity[route->links[i]] != RSCHED_UNLIMITED)
            *(*next)++ = route->links[i];
    }
    if (problem->node >= 0)
        *(*next)++ = (uint32_t)problem->node;
    filled->num_resources = (size_t)(*next - filled->resources);
}

static bool uses(const struct rs_fluid_route *route, uint32_t resource)
{
    for (size_t k = 0; k < route->num_resources; k++) {
        if (route->resources[k] == resource)
            return true;
    }
    return false;
}

/* The routes of a direction, and what is on all of them. */
static void fill_routes(struct rs_problem *problem, size_t direction,
                        uint32_t **next)
{
    struct rs_fluid_route *routes =
        &problem->routes[direction * problem->num_rails];
    struct rs_fluid_route *certain = &problem->certain[direction];

    for (uint32_t r = 0; r < problem->num_rails; r++)
        fill_route(problem,
                   rsched_machine_find_engine_route(
                       problem->machine, problem->directions[direction].name,
                       r),
                   &routes[r], next);
    certain->resources = *next;
    for (size_t k = 0; k < routes->num_resources; k++) {
        uint32_t resource = routes->resources[k];
        size_t rail = 1;

        while (rail < problem->num_rails && uses(&routes[rail], resource))
            rail++;
        if (rail == problem->num_rails)
            *(*next)++ = resource;
    }
    certain->num_resources = (size_t)(*next - certain->resources);
}

/* Whether a link is on the way of all puts of a direction, whichever rail they
 * take. */
static bool shares_a_link(const struct rs_problem *problem, size_t direction)
{
    const struct rs_fluid_route *certain = &problem->certain[direction];

    return certain->num_resources > (problem->node >= 0 ? 1 : 0);
}

static int fill_directions(struct rs_problem *problem)
{
    uint32_t *next = problem->route_resources;

    for (size_t i = 0; i < problem->num_directions; i++) {
        struct rs_direction *direction = &problem->directions[i];
        const char *name = problem->pattern->directions.text[i];
        const struct rsched_route *route =
            rsched_machine_find_route(problem->machine, name);

        direction->name = name;
        direction->crossings = 1;
        if (route == NULL) {
            size_t put = first_put(problem, i);

            if (put == problem->num_puts) /* only receives have it */
                continue;
            return rs_pattern_fail(problem->pattern, put, RSCHED_EINVAL,
                                   "direction '%s' has no route in machine %s",
                                   name,
                                   rs_machine_label(problem->machine));
        }
        direction->rank = route->rank;
        direction->crossings = route->crossings;
        direction->diagonal = route->num_links > 1;
        fill_routes(problem, i, &next);
        direction->colored = *name != '\0' && shares_a_link(problem, i);
    }
    return 0;
}

/* The first part of a put keeps what the others do not take. */
static int fill_parts(struct rs_problem *problem, const struct rs_cut *cuts,
                       size_t num_cuts)
{
    const struct rs_transfers *puts = &problem->pattern->puts;

    for (size_t i = 0; i < puts->count; i++)
        problem->parts[i] = (struct rsched_part){
            (uint32_t)i, 0, puts->items[i].put.bytes};
    for (size_t i = 0; i < num_cuts; i++) {
        if (cuts[i].put >= puts->count ||
            cuts[i].bytes > problem->parts[cuts[i].put].bytes)
            return rs_fail(RSCHED_EINVAL, "part %zu does not fit into put %u",
                           puts->count + i, (unsigned)cuts[i].put);
        problem->parts[cuts[i].put].bytes -= cuts[i].bytes;
    }
    /* From the last one on, which ends where the put ends. */
    for (size_t i = num_cuts; i-- > 0;) {
        struct rsched_part *first = &problem->parts[cuts[i].put];
        uint64_t after = first->offset; /* bytes behind this part */

        problem->parts[puts->count + i] = (struct rsched_part){
            cuts[i].put,
            puts->items[cuts[i].put].put.bytes - after - cuts[i].bytes,
            cuts[i].bytes};
        first->offset = after + cuts[i].bytes;
    }
    for (size_t i = 0; i < num_cuts; i++)
        problem->parts[cuts[i].put].offset = 0;
    for (size_t i = 0; i < problem->num_puts; i++)
        problem->direction[i] = puts->items[problem->parts[i].put].direction;
    return 0;
}

/* What crosses its engine and its links twice is twice as long to all that
 * plans and simulates. */
static int fill_bytes(struct rs_problem *problem)
{
    for (size_t i = 0; i < problem->num_puts; i++) {
        const struct rsched_part *part = &problem->parts[i];
        uint64_t crossings =
            problem->directions[problem->direction[i]].crossings;

        if (part->bytes > RS_BYTES_MOST / crossings)
            return rs_pattern_fail(problem->pattern, part->put, RSCHED_ELIMIT,
                                   "longer than 2^60 bytes%s",
                                   crossings > 1 ? ", which cross twice" : "");
        problem->bytes[i] = part->bytes * crossings;
    }
    return 0;
}

struct measured {
    uint64_t bytes;
    uint32_t put;
};

/* Stable, by one digit of the bytes, from the longest to the shortest. */
static void sort_by_digit(const struct measured *from, struct measured *to,
                          size_t count, unsigned shift)
{
    enum { DIGITS = 256 };
    size_t first[DIGITS] = {0}, sum = 0;

    for (size_t i = 0; i < count; i++)
        first[~from[i].bytes >> shift & (DIGITS - 1)]++;
    for (size_t d = 0; d < DIGITS; d++) {
        size_t of_digit = first[d];

        first[d] = sum;
        sum += of_digit;
    }
    for (size_t i = 0; i < count; i++)
        to[first[~from[i].bytes >> shift & (DIGITS - 1)]++] = from[i];
}

/* Planners sort by bytes first; this is in linear time. */
static int sort_by_bytes(struct rs_problem *problem)
{
    size_t puts = problem->num_puts;
    struct measured *sorted = calloc(2 * puts + 1, sizeof(*sorted));
    struct measured *from = sorted, *to = sorted + puts;
    uint64_t longest = 0;

    if (sorted == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory to plan %zu puts", puts);
    for (uint32_t i = 0; i < puts; i++) {
        from[i] = (struct measured){problem->bytes[i], i};
        if (problem->bytes[i] > longest)
            longest = problem->bytes[i];
    }
    for (unsigned shift = 0; shift < 64 && longest >> shift != 0; shift += 8) {
        struct measured *sorted_so_far = to;

        sort_by_digit(from, to, puts, shift);
        to = from;
        from = sorted_so_far;
    }
    for (size_t i = 0; i < puts; i++)
        problem->by_bytes[i] = from[i].put;
    free(sorted);
    return 0;
}

int rs_problem_init(struct rs_problem *problem,
                    const struct rsched_pattern *pattern,
                    const struct rsched_machine *machine,
                    const struct rs_cut *cuts, size_t num_cuts)
{
    int error;

    memset(problem, 0, sizeof(*problem));
    problem->pattern = pattern;
    problem->machine = machine;
    problem->costs = *rsched_machine_get_costs(machine);
    problem->most_nodes = RS_NODES_MOST;
    problem->num_puts = pattern->puts.count + num_cuts;
    problem->num_directions = pattern->directions.count;
    problem->num_rails = rsched_machine_num_rails(machine);
    error = allocate(problem);
    if (error == 0)
        error = fill_parts(problem, cuts, num_cuts);
    if (error != 0)
        goto err_fini;
    fill_capacities(problem);
    fill_rates(problem);
    error = fill_directions(problem);
    if (error != 0)
        goto err_fini;
    error = fill_bytes(problem);
    if (error == 0)
        error = sort_by_bytes(problem);
    if (error != 0)
        goto err_fini;
    return 0;

err_fini:
    rs_problem_fini(problem);
    return error;
}

static int compare_rates(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;

    return (*a < *b) - (*a > *b);
}

/* An engine's step is its own rate, or what the links of its rail leave of
 * it. */
void rs_problem_steps(const struct rs_problem *problem, uint64_t *steps)
{
    uint32_t engines = problem->costs.num_engines;

    for (uint32_t e = 0; e < engines; e++) {
        size_t number = e % problem->num_rails;
        const struct rsched_rail *rail =
            rsched_machine_rail(problem->machine, number);
        uint64_t before = e / problem->num_rails, rate = problem->rates[number];

        steps[e] = rate;
        for (size_t k = 0; k < rail->num_links; k++) {
            uint64_t capacity = problem->capacity[rail->links[k]];
            uint64_t left = capacity / rate >= before
                                ? capacity - before * rate
                                : 0;

            steps[e] = left < steps[e] ? left : steps[e];
        }
    }
    qsort(steps, engines, sizeof(*steps), compare_rates);
}

int rs_problem_bound(const struct rs_problem *problem, uint64_t *bound)
{
    uint64_t *steps = calloc(problem->costs.num_engines, sizeof(*steps));
    struct rs_bound input = {
        .bytes = problem->bytes,
        .route = problem->direction,
        .num_puts = problem->num_puts,
        .routes = problem->certain,
        .num_routes = problem->num_directions,
        .capacity = problem->capacity,
        .num_resources = problem->num_resources,
        .ceiling = problem->node >= 0 ? problem->capacity[problem->node]
                                      : RSCHED_UNLIMITED,
        .num_engines = problem->costs.num_engines,
        .steps = steps,
        .open = problem->costs.engine_open,
        .command = problem->costs.command,
    };
    int error;

    if (steps == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a lower bound");
    rs_problem_steps(problem, steps);
    error = rs_bound_compute(&input, bound);
    free(steps);
    return error;
}

/* The route that each put takes on its engine; NULL without memory. */
static uint32_t *choose_routes(const struct rs_problem *problem,
                               const size_t *queues, const uint32_t *order)
{
    uint32_t rails = (uint32_t)problem->num_rails;
    uint32_t *routes = calloc(problem->num_puts + 1, sizeof(*routes));

    for (uint32_t e = 0; routes && e < problem->costs.num_engines; e++) {
        for (size_t i = queues[e]; i < queues[e + 1]; i++)
            routes[order[i]] = problem->direction[order[i]] * rails +
                               e % rails;
    }
    return routes;
}

int rs_problem_simulate(const struct rs_problem *problem, const size_t *queues,
                        const uint32_t *order, rs_fluid_observe *observe,
                        void *arg, struct rs_fluid_times *times,
                        uint64_t *makespan)
{
    uint32_t num_engines = problem->costs.num_engines;
    struct rs_fluid_engine *engines = calloc(num_engines, sizeof(*engines));
    uint32_t *routes = choose_routes(problem, queues, order);
    struct rs_fluid fluid = {
        .capacity = problem->capacity,
        .num_resources = problem->num_resources,
        .routes = problem->routes,
        .bytes = problem->bytes,
        .route = routes,
        .engines = engines,
        .num_engines = num_engines,
        .observe = observe,
        .arg = arg,
    };
    uint64_t opened = 0;
    int error = 0;

    if (engines == NULL || routes == NULL)
        error = rs_fail(RSCHED_ENOMEM, "no memory for %u engines",
                        (unsigned)num_engines);
    for (uint32_t i = 0; error == 0 && i < num_engines; i++) {
        engines[i].rate = rs_problem_rate(problem, i);
        engines[i].command = problem->costs.command;
        engines[i].queue = order + queues[i];
        engines[i].num_queue = queues[i + 1] - queues[i];
        /* The k-th engine that has anything to do starts at k * open. */
        if (engines[i].num_queue > 0)
            engines[i].opens = opened++ * problem->costs.engine_open;
    }
    if (error == 0)
        error = rs_fluid_run(&fluid, times, makespan);
    free(engines);
    free(routes);
    return error;
}

/* A put on its way into a queue. */
struct entry {
    uint64_t order;
    uint32_t put;
};

static int compare_entries(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;

    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    return (a->put > b->put) - (a->put < b->put);
}

/* Some planners give places in order already. */
static void sort_queue(struct entry *entries, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (compare_entries(&entries[i - 1], &entries[i]) > 0) {
            qsort(entries, count, sizeof(*entries), compare_entries);
            return;
        }
    }
}

/* Put ids by the order of their places, where that counts them from 0, as it
 * does for most planners. Returns whether it does. */
static bool count_places(const struct rs_place *places, size_t puts,
                         uint32_t *counted)
{
    memset(counted, 0xff, puts * sizeof(*counted));
    for (uint32_t i = 0; i < puts; i++) {
        if (places[i].order >= puts || counted[places[i].order] != UINT32_MAX)
            return false;
        counted[places[i].order] = i;
    }
    return true;
}

int rs_problem_queue(const struct rs_problem *problem,
                     const struct rs_place *places, size_t *queues,
                     uint32_t *order)
{
    size_t engines = problem->costs.num_engines, puts = problem->num_puts;
    struct entry *entries = calloc(puts + 1, sizeof(*entries));
    uint32_t *counted = calloc(puts + 1, sizeof(*counted));
    bool sorted;

    if (entries == NULL || counted == NULL) {
        free(entries);
        free(counted);
        return rs_fail(RSCHED_ENOMEM, "no memory for a schedule of %zu puts",
                       puts);
    }
    memset(queues, 0, (engines + 1) * sizeof(*queues));
    for (size_t i = 0; i < puts; i++)
        queues[places[i].engine + 1]++;
    for (size_t e = 0; e < engines; e++)
        queues[e + 1] += queues[e];
    /* Filling a queue moves its beginning to its end, which is where the next
     * one begins: moved back below. */
    sorted = count_places(places, puts, counted);
    for (uint32_t i = 0; i < puts; i++) {
        uint32_t put = sorted ? counted[i] : i;

        entries[queues[places[put].engine]++] =
            (struct entry){places[put].order, put};
    }
    memmove(queues + 1, queues, engines * sizeof(*queues));
    queues[0] = 0;
    for (size_t e = 0; !sorted && e < engines; e++)
        sort_queue(entries + queues[e], queues[e + 1] - queues[e]);
    for (size_t i = 0; i < puts; i++)
        order[i] = entries[i].put;
    free(counted);
    free(entries);
    return 0;
}
