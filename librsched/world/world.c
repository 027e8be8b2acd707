/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/world/world.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "librsched/base/error.h"
#include "models/machine.h"
#include "patterns/pattern.h"

void rs_world_destroy(struct rs_world *world)
{
    if (world == NULL)
        return;
    if (world->fluid.routes != NULL && world->num_puts > 0)
        free((void *)world->fluid.routes[0].resources);
    free((void *)world->fluid.routes);
    free((void *)world->fluid.capacity);
    free((void *)world->fluid.bytes);
    free((void *)world->fluid.route);
    free(world->engines);
    free(world->queue);
    free(world->starts);
    free(world->choices);
    free(world->nodes);
    free(world->puts);
    free(world->transits);
    free(world);
}

static int no_memory(const struct rs_world *world)
{
    return rs_fail(RSCHED_ENOMEM, "no memory for the puts of %u nodes",
                   (unsigned)world->topology.num_nodes);
}

/* ---- who sits where ---- */

static int check_mapping(const struct rs_world_params *params,
                         const struct rs_world *world, uint32_t *taken)
{
    if (params->num_mapping != world->grid.count)
        return rs_fail(RSCHED_EINVAL, "%s: the mapping has %zu nodes, but "
                       "there are %u processes", params->mapping_name,
                       params->num_mapping, (unsigned)world->grid.count);
    for (uint32_t i = 0; i < world->grid.count; i++) {
        const struct rs_world_seat *seat = &params->mapping[i];

        if (seat->node >= world->topology.num_nodes)
            return rs_fail(RSCHED_EINVAL, "%s:%u:%u: process %u on node %u, "
                           "but there are %u nodes", params->mapping_name,
                           (unsigned)seat->line, (unsigned)seat->column,
                           (unsigned)i, (unsigned)seat->node,
                           (unsigned)world->topology.num_nodes);
        if (taken[seat->node]++ == params->processes)
            return rs_fail(RSCHED_EINVAL, "%s:%u:%u: more than %u process%s on "
                           "node %u", params->mapping_name,
                           (unsigned)seat->line, (unsigned)seat->column,
                           (unsigned)params->processes,
                           params->processes == 1 ? "" : "es",
                           (unsigned)seat->node);
    }
    return 0;
}

static int map(struct rs_world *world, const struct rs_world_params *params,
               const struct rs_shape *block)
{
    uint32_t *taken;
    int error = 0;

    world->nodes = calloc(world->grid.count + 1u, sizeof(*world->nodes));
    taken = calloc(world->topology.num_nodes + 1u, sizeof(*taken));
    if (world->nodes == NULL || taken == NULL)
        error = no_memory(world);
    else if (params->mapping != NULL)
        error = check_mapping(params, world, taken);
    free(taken);
    if (error != 0)
        return error;
    for (uint32_t i = 0; i < world->grid.count; i++)
        world->nodes[i] = params->mapping != NULL
                              ? params->mapping[i].node
                              : rs_shape_node(&world->grid, block, i);
    if (params->mapping == NULL && params->shuffled)
        rs_shape_shuffle(world->nodes, world->grid.count,
                         params->mapping_seed);
    return 0;
}

/* ---- who sends what to whom ---- */

/* Where a put goes, and the checks that this takes. */
static int find_destination(const struct rs_world *world,
                            const struct rsched_pattern *pattern, size_t id,
                            uint32_t process, uint32_t *destination)
{
    const struct rsched_put *put = rsched_pattern_put(pattern, id);
    int32_t step[RS_DIMENSIONS_MOST];

    if (put->source == RSCHED_ANY_PROCESS) {
        if (!rs_shape_step(&world->grid, put->direction, step))
            return rs_pattern_fail(pattern, id, RSCHED_EINVAL,
                                   "direction '%s' is no step in a grid of %u "
                                   "dimensions, and the put has no source",
                                   put->direction,
                                   (unsigned)world->grid.num_dims);
        *destination = rs_shape_neighbor(&world->grid, process, step);
        return 0;
    }
    if (put->destination < 0 ||
        (uint32_t)put->destination >= world->grid.count)
        return rs_pattern_fail(pattern, id, RSCHED_EINVAL,
                               "destination %d, but there are %u processes",
                               put->destination, (unsigned)world->grid.count);
    *destination = (uint32_t)put->destination;
    return 0;
}

/* The puts of a process in order: those of everybody and its own. */
struct lists {
    uint32_t *first; /* per process, and one more */
    uint32_t *ids;   /* puts with a source, by source */
    uint32_t *common; /* puts without one */
    size_t num_common;
};

static int make_lists(const struct rs_world *world,
                      const struct rsched_pattern *pattern,
                      struct lists *lists)
{
    size_t puts = rsched_pattern_num_puts(pattern);

    lists->first = calloc(world->grid.count + 2u, sizeof(*lists->first));
    lists->ids = calloc(puts + 1, sizeof(*lists->ids));
    lists->common = calloc(puts + 1, sizeof(*lists->common));
    if (lists->first == NULL || lists->ids == NULL || lists->common == NULL)
        return no_memory(world);
    for (uint32_t i = 0; i < puts; i++) {
        int source = rsched_pattern_put(pattern, i)->source;

        if (source == RSCHED_ANY_PROCESS)
            lists->common[lists->num_common++] = i;
        else if ((uint32_t)source < world->grid.count)
            lists->first[source + 2]++;
        else
            return rs_pattern_fail(pattern, i, RSCHED_EINVAL, "source %d, but "
                                   "there are %u processes", source,
                                   (unsigned)world->grid.count);
    }
    for (uint32_t p = 0; p < world->grid.count; p++)
        lists->first[p + 2] += lists->first[p + 1];
    for (uint32_t i = 0; i < puts; i++) {
        int source = rsched_pattern_put(pattern, i)->source;

        if (source != RSCHED_ANY_PROCESS)
            lists->ids[lists->first[source + 1]++] = i;
    }
    return 0;
}

static void free_lists(struct lists *lists)
{
    free(lists->first);
    free(lists->ids);
    free(lists->common);
}

static int add_put(struct rs_world *world, const struct rs_world_params *params,
                   uint32_t process, uint32_t id)
{
    uint32_t destination = 0, from = world->nodes[process], to;
    int error = find_destination(world, params->pattern, id, process,
                                 &destination);

    if (error != 0)
        return error;
    to = world->nodes[destination];
    if (from == to) {
        world->num_local++;
        return 0;
    }
    world->transits[world->num_puts] = (struct rs_transit){
        from, to, 0, rsched_pattern_put(params->pattern, id)->bytes};
    world->puts[world->num_puts++] = (struct rs_world_put){
        .process = process, .destination = destination, .id = id,
        .group = params->together ? from : process};
    return 0;
}

static int add_process(struct rs_world *world,
                       const struct rs_world_params *params,
                       const struct lists *lists, uint32_t process)
{
    uint32_t own = lists->first[process], end = lists->first[process + 1];
    size_t common = 0;
    uint32_t count = end - own + (uint32_t)lists->num_common;
    int error = 0;

    if (count > world->most_puts)
        world->most_puts = count;
    while (error == 0 && (common < lists->num_common || own < end)) {
        bool shared = own == end || (common < lists->num_common &&
                                     lists->common[common] < lists->ids[own]);

        error = add_put(world, params, process,
                        shared ? lists->common[common++] : lists->ids[own++]);
    }
    return error;
}

static int compare_seats(const void *left, const void *right, void *arg)
{
    const uint32_t *nodes = arg, *a = left, *b = right;

    if (nodes[*a] != nodes[*b])
        return nodes[*a] < nodes[*b] ? -1 : 1;
    return *a < *b ? -1 : *a > *b;
}

/* All puts, by node, process and id. */
static int add_puts(struct rs_world *world,
                    const struct rs_world_params *params,
                    const struct lists *lists)
{
    size_t room = (size_t)world->grid.count * lists->num_common +
                  rsched_pattern_num_puts(params->pattern);
    uint32_t *seats = calloc(world->grid.count + 1u, sizeof(*seats));
    int error = 0;

    world->transits = calloc(room + 1, sizeof(*world->transits));
    world->puts = calloc(room + 1, sizeof(*world->puts));
    if (room > UINT32_MAX / 2)
        error = rs_fail(RSCHED_ELIMIT, "%zu puts are too many", room);
    else if (seats == NULL || world->transits == NULL || world->puts == NULL)
        error = no_memory(world);
    for (uint32_t i = 0; error == 0 && i < world->grid.count; i++)
        seats[i] = i;
    if (error == 0)
        qsort_r(seats, world->grid.count, sizeof(*seats), compare_seats,
                world->nodes);
    for (uint32_t i = 0; error == 0 && i < world->grid.count; i++)
        error = add_process(world, params, lists, seats[i]);
    free(seats);
    return error;
}

/* ---- routes ---- */

static int largest_load(const struct rs_world *world, const uint32_t *choices,
                        uint64_t *largest, uint32_t *link)
{
    const struct rs_topology *topology = &world->topology;
    uint64_t *loads = calloc(topology->num_links + 1u, sizeof(*loads));
    int error = loads == NULL ? no_memory(world)
                              : rs_routing_loads(topology, world->transits,
                                                 world->num_puts, choices,
                                                 loads);

    *largest = 0;
    *link = 0;
    for (uint32_t l = 0; error == 0 && l < topology->num_links; l++) {
        uint64_t time = rs_routing_time(topology, l, loads[l]);

        if (time > *largest) {
            *largest = time;
            *link = l;
        }
    }
    free(loads);
    return error;
}

static int choose_routes(struct rs_world *world, bool balanced)
{
    int error;

    world->balanced = balanced;
    world->choices = calloc(world->num_puts + 1, sizeof(*world->choices));
    if (world->choices == NULL)
        return no_memory(world);
    error = largest_load(world, NULL, &world->first_load, &world->loaded_link);
    if (error == 0 && balanced)
        error = rs_routing_balance(&world->topology, world->transits,
                                   world->num_puts, world->choices);
    if (error == 0)
        error = largest_load(world, world->choices, &world->load,
                             &world->loaded_link);
    return error;
}

/* ---- the simulator's input ---- */

/* Resources beside the links; UINT64_MAX when there is none. */
struct extras {
    uint64_t inject, eject, receive; /* numbers for node or engine 0 */
    uint64_t count;                  /* all resources */
};

static struct extras place_extras(const struct rs_world *world,
                                  const struct rsched_machine_costs *costs)
{
    uint64_t nodes = world->topology.num_nodes;
    struct extras e = {UINT64_MAX, UINT64_MAX, 0, world->topology.num_links};

    if (costs->node_inject != RSCHED_UNLIMITED) {
        e.inject = e.count;
        e.count += nodes;
    }
    if (costs->node_eject != RSCHED_UNLIMITED) {
        e.eject = e.count;
        e.count += nodes;
    }
    e.receive = e.count;
    e.count += nodes * world->num_engines;
    return e;
}

/* The rate of an engine; they are numbered node by node. */
static uint64_t rate_of(const struct rsched_machine *machine, uint64_t engine,
                        uint32_t num_engines)
{
    size_t rail = engine % num_engines % rsched_machine_num_rails(machine);

    return rsched_machine_rail(machine, rail)->rate;
}

static int fill_capacities(struct rs_world *world,
                           const struct rsched_machine *machine,
                           const struct extras *e)
{
    const struct rsched_machine_costs *costs =
        rsched_machine_get_costs(machine);
    uint64_t *capacity = calloc(e->count + 1, sizeof(*capacity));

    if (e->count > UINT32_MAX || capacity == NULL) {
        free(capacity);
        return no_memory(world);
    }
    for (uint32_t l = 0; l < world->topology.num_links; l++)
        capacity[l] = rs_topology_capacity(&world->topology, l);
    for (uint32_t n = 0; n < world->topology.num_nodes; n++) {
        if (e->inject != UINT64_MAX)
            capacity[e->inject + n] = costs->node_inject;
        if (e->eject != UINT64_MAX)
            capacity[e->eject + n] = costs->node_eject;
    }
    for (uint64_t r = e->receive; r < e->count; r++)
        capacity[r] = rate_of(machine, r - e->receive, world->num_engines);
    world->fluid.capacity = capacity;
    world->fluid.num_resources = e->count;
    return 0;
}

/* The resources of a put; `links` has room. Returns their number. */
static size_t trace(const struct rs_world *world, const struct extras *e,
                    size_t put, uint32_t *links)
{
    const struct rs_transit *t = &world->transits[put];
    size_t hops = rs_topology_route(&world->topology, t->source,
                                    t->destination, t->engine,
                                    world->choices[put], links), used = 0;

    for (size_t k = 0; k < hops; k++) {
        if (world->fluid.capacity[links[k]] != RSCHED_UNLIMITED)
            links[used++] = links[k];
    }
    if (e->inject != UINT64_MAX)
        links[used++] = (uint32_t)e->inject + t->source;
    if (e->eject != UINT64_MAX)
        links[used++] = (uint32_t)e->eject + t->destination;
    links[used++] = (uint32_t)e->receive +
                    t->destination * world->num_engines +
                    world->puts[put].receive_engine;
    return used;
}

static int fill_routes(struct rs_world *world, const struct extras *e)
{
    struct rs_fluid_route *routes = calloc(world->num_puts + 1,
                                           sizeof(*routes));
    uint32_t *numbers = calloc(world->num_puts + 1, sizeof(*numbers));
    uint64_t *bytes = calloc(world->num_puts + 1, sizeof(*bytes));
    uint32_t *room = calloc(world->topology.longest + 3, sizeof(*room));
    uint32_t *resources = NULL;
    size_t used = 0;

    world->fluid.routes = routes;
    world->fluid.route = numbers;
    world->fluid.bytes = bytes;
    if (routes == NULL || numbers == NULL || bytes == NULL || room == NULL) {
        free(room);
        return no_memory(world);
    }
    for (size_t i = 0; i < world->num_puts; i++) {
        routes[i].num_resources = trace(world, e, i, room);
        used += routes[i].num_resources;
    }
    resources = calloc(used + world->topology.longest + 3,
                       sizeof(*resources));
    free(room);
    if (resources == NULL)
        return no_memory(world);
    used = 0;
    for (size_t i = 0; i < world->num_puts; i++) {
        routes[i].resources = resources + used;
        trace(world, e, i, resources + used);
        used += routes[i].num_resources;
        numbers[i] = (uint32_t)i;
        bytes[i] = world->transits[i].bytes;
    }
    if (world->num_puts == 0)
        free(resources);
    return 0;
}

void rs_world_start(struct rs_world *world, uint64_t jitter, uint64_t seed)
{
    uint64_t state = rs_shape_seed(seed);

    for (uint32_t n = 0; n < world->topology.num_nodes; n++) {
        uint64_t before = world->starts[n];
        size_t first = (size_t)n * world->num_engines;

        world->starts[n] =
            jitter > 0 ? rs_shape_random(&state) % (jitter + 1) : 0;
        for (size_t e = first; e < first + world->num_engines; e++)
            world->engines[e].opens += world->starts[n] - before;
    }
}

static int compare_queued(const void *left, const void *right, void *arg)
{
    const struct rs_world *world = arg;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    const struct rs_transit *x = &world->transits[a], *y = &world->transits[b];

    if (x->source != y->source)
        return x->source < y->source ? -1 : 1;
    if (x->engine != y->engine)
        return x->engine < y->engine ? -1 : 1;
    if (world->puts[a].position != world->puts[b].position)
        return world->puts[a].position < world->puts[b].position ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Engines serve the processes that share them in turn, a put at a time. */
static int fill_engines(struct rs_world *world,
                        const struct rsched_machine *machine)
{
    const struct rsched_machine_costs *costs =
        rsched_machine_get_costs(machine);
    size_t count = (size_t)world->topology.num_nodes * world->num_engines;
    struct rs_fluid_engine *engines = calloc(count + 1, sizeof(*engines));
    uint64_t opened = 0;
    size_t next = 0;

    world->queue = calloc(world->num_puts + 1, sizeof(*world->queue));
    world->starts = calloc(world->topology.num_nodes + 1u,
                           sizeof(*world->starts));
    world->engines = engines;
    world->fluid.engines = engines;
    world->fluid.num_engines = count;
    if (world->queue == NULL || world->starts == NULL || engines == NULL)
        return no_memory(world);
    for (uint32_t i = 0; i < world->num_puts; i++)
        world->queue[i] = i;
    qsort_r(world->queue, world->num_puts, sizeof(*world->queue),
            compare_queued, world);
    for (size_t e = 0; e < count; e++) {
        size_t node = e / world->num_engines, first = next;

        if (e % world->num_engines == 0)
            opened = 0;
        while (next < world->num_puts &&
               world->transits[world->queue[next]].source == node &&
               world->transits[world->queue[next]].engine ==
                   e % world->num_engines)
            next++;
        engines[e] = (struct rs_fluid_engine){
            rate_of(machine, e, world->num_engines), 0, costs->command,
            world->queue + first, next - first};
        if (next > first)
            engines[e].opens = opened++ * costs->engine_open;
    }
    return 0;
}

static int assemble(struct rs_world *world,
                    const struct rs_world_params *params)
{
    const struct rsched_machine_costs *costs =
        rsched_machine_get_costs(params->machine);
    struct extras extras = place_extras(world, costs);
    int error = fill_capacities(world, params->machine, &extras);

    if (error == 0)
        error = fill_routes(world, &extras);
    if (error == 0)
        error = fill_engines(world, params->machine);
    if (error == 0)
        rs_world_start(world, params->jitter, params->seed);
    return error;
}

/* ---- all ---- */

static int fill(struct rs_world *world, const struct rs_world_params *params,
                bool balanced, const struct rs_topology_spec *spec)
{
    struct rs_shape block;
    struct lists lists = {0};
    int error = rs_topology_make(spec, params->nodes.dims,
                                 params->nodes.num_dims, &world->topology);

    if (error != 0)
        return rs_fail_within(error, "machine %s",
                              rs_machine_label(params->machine));
    if ((uint64_t)params->nodes.count * params->processes > RS_TOPOLOGY_MOST)
        return rs_fail(RSCHED_ELIMIT, "more than %d processes",
                       RS_TOPOLOGY_MOST);
    rs_shape_block(&params->nodes, params->processes, &block);
    rs_shape_grid(&params->nodes, &block, &world->grid);
    error = map(world, params, &block);
    if (error == 0)
        error = make_lists(world, params->pattern, &lists);
    if (error == 0)
        error = add_puts(world, params, &lists);
    free_lists(&lists);
    if (error == 0)
        error = rs_world_queue(world, params);
    if (error == 0)
        error = rs_world_receive(world, params->receive);
    if (error == 0)
        error = choose_routes(world, balanced);
    if (error == 0)
        error = assemble(world, params);
    return error;
}

static int create(const struct rs_world_params *params, bool balanced,
                  struct rs_world **world)
{
    struct rs_world *made = calloc(1, sizeof(*made));
    int error;

    if (made == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a world");
    made->shape = params->nodes;
    made->num_engines = rsched_machine_get_costs(params->machine)->num_engines;
    error = fill(made, params, balanced, rs_machine_topology(params->machine));
    if (error != 0) {
        rs_world_destroy(made);
        return error;
    }
    *world = made;
    return 0;
}

/* Balanced routes, unless first ones take less: where not the links bind but
 * the nodes, another route for each put only disturbs the plan. */
static int create_balanced(const struct rs_world_params *params,
                           struct rs_world **world)
{
    struct rs_world *balanced, *first;
    struct rs_world_result new = {0}, old = {0};
    int error = create(params, true, &balanced);

    if (error != 0)
        return error;
    error = create(params, false, &first);
    if (error != 0)
        goto err_balanced;
    error = rs_world_run(balanced, params->machine, NULL, params->watch, &new);
    if (error == 0)
        error = rs_world_run(first, params->machine, NULL, params->watch,
                             &old);
    if (error != 0)
        goto err_first;
    *world = new.makespan < old.makespan ? balanced : first;
    rs_world_destroy(new.makespan < old.makespan ? first : balanced);
    return 0;

err_first:
    rs_world_destroy(first);
err_balanced:
    rs_world_destroy(balanced);
    return error;
}

int rs_world_create(const struct rs_world_params *params,
                    struct rs_world **world)
{
    return params->balanced ? create_balanced(params, world)
                            : create(params, false, world);
}

int rs_world_run(const struct rs_world *world,
                 const struct rsched_machine *machine,
                 struct rs_fluid_times *times,
                 const struct rs_world_watch *watch,
                 struct rs_world_result *result)
{
    const struct rsched_machine_costs *costs = rsched_machine_get_costs(machine);
    struct rs_world_result run = {0};
    uint64_t overhead;
    int error = rs_network_run(&world->fluid, times, &run.makespan,
                               &run.effort,
                               watch != NULL ? watch->simulated : NULL,
                               watch != NULL ? watch->arg : NULL);

    if (error != 0)
        return error;
    if (__builtin_mul_overflow(costs->exchange_per_put,
                               (uint64_t)world->most_puts, &overhead) ||
        __builtin_add_overflow(overhead, costs->exchange_base, &overhead) ||
        __builtin_add_overflow(overhead, run.makespan, &run.total))
        return rs_fail(RSCHED_ELIMIT, "the total time does not fit in 64 bits");
    *result = run;
    return 0;
}
