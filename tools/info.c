/* SPDX-License-Identifier: BSD-3-Clause */
/* rsched info: what there is. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/engine.h>

#include "librsched/base/config.h"
#include "librsched/base/coordinator.h"
#include "librsched/base/error.h"
#include "librsched/base/numa.h"
#include "librsched/base/processor.h"
#include "librsched/base/quota.h"
#include "librsched/base/sources.h"
#include "librsched/base/units.h"
#include "librsched/run/run.h"
#include "models/sources.h"
#include "tools/gpus.h"
#include "tools/tool.h"

#ifdef RSCHED_HWLOC
#define RSCHED_WITH_HWLOC ""
#else
#define RSCHED_WITH_HWLOC ": built without hwloc"
#endif

/* Of RDMA devices; each has a name of its own here, as engines are closed. */
struct ports {
    struct rsched_engine_port of[RSCHED_MAX_RAILS];
    char names[RSCHED_MAX_RAILS][96];
    uint32_t count;
};

static void keep_ports(const struct rsched_engine_ops *ops,
                       const struct rsched_engine *engine, struct ports *ports)
{
    if (ops->ports == NULL)
        return;
    ports->count = ops->ports(engine, ports->of);
    for (uint32_t i = 0; i < ports->count; i++) {
        snprintf(ports->names[i], sizeof(ports->names[i]), "%s",
                 ports->of[i].name);
        ports->of[i].name = ports->names[i];
    }
}

/* Each is opened, since nothing else tells whether it works here. */
static void print_engines(const struct rs_ways *ways, struct ports *ports)
{
    const struct rsched_engine_env env = {
        .chunk_bytes = 1 << 16, .ring_bytes = 1 << 19, .ways = ways};
    const struct rsched_engine_ops *ops;
    const struct rsched_engine_absence *absence;

    printf("\nengines\n");
    for (size_t i = 0; (ops = rsched_engine_at(i)) != NULL; i++) {
        struct rsched_engine *engine;
        int error = ops->open(&env, &engine);

        printf("  %-11s %s%s\n", ops->name, error == 0 ? "" : "not here: ",
               error == 0 ? ops->help : rsched_last_error());
        if (error == 0) {
            keep_ports(ops, engine, ports);
            ops->close(engine);
        }
    }
    for (size_t i = 0; (absence = rsched_engine_absence_at(i)) != NULL; i++)
        printf("  %-11s not here: %s\n", absence->name, absence->reason);
}

static void print_list(const struct rs_way_switch *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            printf(", from %" PRIu64 " B ", list[i].bytes);
        printf("%s", rs_way_name(list[i].way));
    }
    putchar('\n');
}

/* Of what: messages whose parts go their own ways, or those that go as a
 * whole. */
struct subject {
    size_t (*find)(const struct rs_host_ways *ways, enum rs_way_memory memory,
                   struct rs_way_switch *list);
    const char *memory[RS_NUM_WAY_MEMORIES]; /* NULL: there are no such */
};

static const struct subject exchanges = {
    rs_ways_switches, {"mapped memory", "other memory", "huge pages"}};
static const struct subject wholes = {
    rs_ways_switches_whole, {"from mapped memory", "from other memory", NULL}};

/* @param where after the kind of memory; empty: everywhere */
static void print_switches(const struct rs_host_ways *ways, const char *where,
                           const struct subject *subject)
{
    for (enum rs_way_memory m = 0; m < RS_NUM_WAY_MEMORIES; m++) {
        struct rs_way_switch list[RS_WAY_SWITCHES];

        if (subject->memory[m] == NULL || !rs_ways_tell(ways, m))
            continue;
        if (where[0] != '\0')
            printf("  %s, %-10s  ", subject->memory[m], where);
        else
            printf("  %-19s", subject->memory[m]);
        print_list(list, subject->find(ways, m, list));
    }
}

static void print_distances(const struct rs_ways *ways,
                            const struct subject *subject)
{
    if (rs_ways_host_is_even(ways)) {
        print_switches(&ways->host[0], "", subject);
        return;
    }
    for (enum rs_distance d = RS_FIRST_HOST_DISTANCE; d < RS_NUM_DISTANCES; d++)
        print_switches(rs_ways_host(ways, d), rs_distance_name(d), subject);
}

static void print_host_ways(const struct rs_ways *ways)
{
    print_distances(ways, &exchanges);
    printf("  %-19s", "past the caches");
    if (ways->host[0].nontemporal > 0)
        printf("epochs that bring %" PRIu64 " B or more to a process\n",
               ways->host[0].nontemporal);
    else
        printf("nothing\n");
}

/* Of MPI's requests, which go one way as a whole. */
static void print_whole_ways(const struct rs_ways *ways)
{
    printf("\nways of persistent point-to-point messages, by their costs\n");
    print_distances(ways, &wholes);
}

/* Which processes have that are started from here. */
static void print_cores(void)
{
    struct rs_allowance own;

    rs_allowance_find(&own);
    printf("\ncores\n");
    if (rs_cpus_count(&own.cpus) == 0)
        printf("  not known\n");
    else
        printf("  %d may be used here\n", rs_cpus_count(&own.cpus));
    for (int i = 0; i < RS_QUOTAS; i++) {
        if (own.quotas.of[i].group != 0)
            printf("  a quota of processor time, shared by all processes of a control group: "
                   "enough for %" PRIu64 " that poll\n",
                   own.quotas.of[i].cores);
    }
}

/* Where they are. */
static void print_numa(void)
{
    unsigned nodes;
    int node = rs_numa_node(&nodes);

    printf("\nNUMA nodes\n");
    if (nodes == 0)
        printf("  not known%s\n", RSCHED_WITH_HWLOC);
    else if (node == RS_NUMA_UNKNOWN)
        printf("  %u; the cores here belong to several, which counts as %s\n",
               nodes, rs_distance_name(RS_DISTANCE_OTHER_NUMA));
    else
        printf("  %u; the cores here belong to number %d\n", nodes, node);
}

static uint32_t known_ways(const struct rs_ways *ways,
                           enum rs_distance distance)
{
    uint32_t known = 0;

    for (enum rs_way way = RS_NUM_HOST_WAYS; way < RS_NUM_WAYS; way++) {
        if (rs_gpu_way_costs(ways, way, distance)->given)
            known |= RS_WAY_BIT(way);
    }
    return known;
}

/* As many puts in flight as bandwidth benchmarks have. */
enum { WINDOW = 64 };

static void print_gpu_switches(const struct rs_ways *ways, uint64_t in_flight)
{
    printf("\nways of GPU memory, by their costs, with %" PRIu64 " put%s in "
           "flight, where all are possible\n", in_flight,
           in_flight == 1 ? "" : "s");
    for (enum rs_distance d = 0; d < RS_NUM_DISTANCES; d++) {
        struct rs_way_switch list[RS_WAY_SWITCHES];
        uint32_t known = known_ways(ways, d);

        printf("  %-19s", rs_distance_name(d));
        if (known != 0)
            print_list(list, rs_gpu_way_switches(ways, d, known, in_flight,
                                                 list));
        else
            puts("costs are not known");
    }
}

static void print_built_in(void)
{
    const struct rs_built_in_ways *b = rs_ways_built_in();

    printf("  %-19s%s", "built-in costs", b->machine);
    if (b->read_tenths > 0)
        printf(", as the kernel takes %u.%u times as long to read 64 KiB as a "
               "copy does", b->read_tenths / 10, b->read_tenths % 10);
    putchar('\n');
}

static void print_stores(void)
{
    const struct rs_config *c = rs_config();
    const char *how = "ordinary";

    if (c->slot_stores == RS_CONFIG_STORES_NONTEMPORAL)
        how = "from 4096 B non-temporal";
    else if (c->slot_stores == RS_CONFIG_STORES_AUTO &&
             c->trials != RS_CONFIG_TRIALS_NO)
        how = "from 4096 B ordinary or non-temporal ones, whichever is faster, while "
              "messages are sent";
    printf("  %-19s%s\n", "stores into slots", how);
}

/* Of what is copied once: engines/common/prefetch.h. */
static void print_prefetch(void)
{
    static const char *const hows[] = {
        [RS_PREFETCH_NONE] = "one line after the other, as this processor has no other way",
        [RS_PREFETCH_AHEAD] = "lines are asked for in advance",
        [RS_PREFETCH_IN_TURN] = "lines of three parts in turn"};
    const struct rs_config *c = rs_config();
    struct rs_processor p;
    const char *how;
    bool tried;

    rs_processor_find(&p);
    how = hows[p.prefetch];
    tried = c->prefetch == RS_CONFIG_PREFETCH_AUTO && c->trials != RS_CONFIG_TRIALS_NO && p.gains;
    if (p.prefetch != RS_PREFETCH_NONE && !tried && c->prefetch != RS_CONFIG_PREFETCH_YES)
        how = "one line after the other";
    printf("  %-19s%s%s\n", "one copy", how,
           tried ? ", where that is faster, while messages are sent" : "");
}

/* Whose costs they are. */
static void print_source(const struct rs_ways *ways)
{
    const struct rs_config *c = rs_config();
    bool named = c->ways[0] != '\0';

    if (ways->host_guessed)
        print_built_in();
    if (!ways->host_guessed || rs_ways_have_gpu(ways))
        printf("  %-19s%s, which is RSCHED_%s\n",
               ways->host_guessed ? "GPU memory's costs" : "costs",
               named ? c->ways : c->machine, named ? "WAYS" : "MACHINE");
}

/* RSCHED_MAPPED and RSCHED_CMA may say otherwise. */
static void print_ways(const struct rs_ways *ways)
{
    printf("\nways within a node, by their costs\n");
    print_source(ways);
    if (rs_config_tries(ways->host_guessed))
        printf("  %-19s%s\n", "trials", "of other memory, and of short blocks, "
               "while messages are sent: slots or one copy, whichever is faster");
    print_stores();
    print_prefetch();
    print_host_ways(ways);
    if (!rs_ways_have_gpu(ways)) {
        printf("  %-19s%s\n", "GPU memory", "costs are not known");
        return;
    }
    print_gpu_switches(ways, 1);
    print_gpu_switches(ways, WINDOW);
}

/* ---- over RDMA devices (engines/rdma) ---- */

static void print_inline(const struct rsched_engine_port *port)
{
    const uint32_t meta = 8; /* of a slot, which travels too */

    printf("  %-19s", port->name);
    if (port->max_inline <= meta || port->max_pieces < 2)
        printf("nothing travels inline");
    else
        printf("up to %" PRIu32 " B in less than %" PRIu32 " blocks travel inline",
               port->max_inline - meta, port->max_pieces);
    printf(port->max_pieces > 1 ? "\n" : "; all is packed, as a request has one piece\n");
}

static void print_blocks(const char *what, unsigned blocks, const char *below,
                         uint64_t from, const char *above)
{
    char text[32];

    snprintf(text, sizeof(text), "%s %u block%s", what, blocks,
             blocks == 1 ? "" : "s");
    printf("  %-19s", text);
    if (from > 1)
        printf("%s", below);
    if (from > 1 && from != UINT64_MAX)
        printf(", from %" PRIu64 " B ", from);
    puts(from != UINT64_MAX ? above : "");
}

/* What is not longer than a chunk lands, whatever it costs. */
static uint64_t direct_from(const struct rs_sources *sources, unsigned blocks)
{
    uint64_t from = rs_sources_scatter_from(sources, blocks);
    uint64_t chunk = rs_config()->chunk_bytes;

    if (!rs_config()->direct)
        return UINT64_MAX;
    return from > chunk ? from : chunk + 1;
}

static enum rs_way verbs_way_at(const void *arg, uint64_t bytes)
{
    const struct rs_ways *ways = arg;

    return (enum rs_way)(rs_way_time(&ways->verbs[RS_VERBS_DIRECT], bytes) <
                                 rs_way_time(&ways->verbs[RS_VERBS_LANDING], bytes)
                             ? RS_VERBS_DIRECT
                             : RS_VERBS_LANDING);
}

/* Costs do not choose between them; they say what RSCHED_CHUNK would be good. */
static void print_verbs_ways(const struct rs_ways *ways)
{
    struct rs_way_switch list[RS_WAY_SWITCHES];
    size_t count;

    for (int way = 0; way < RS_NUM_VERBS_WAYS; way++) {
        const struct rs_way_costs *c = &ways->verbs[way];

        if (c->given)
            printf("  %-19sL %.3f us, o %.3f us, g %.3f us; 64 KiB in %.3f us\n",
                   rs_verbs_way_name((enum rs_verbs_way)way),
                   (double)c->latency / 1e6, (double)c->work.message / 1e6,
                   (double)c->gap.message / 1e6,
                   (double)rs_way_time(c, UINT64_C(64) << 10) / 1e6);
    }
    if (!ways->verbs[RS_VERBS_LANDING].given || !ways->verbs[RS_VERBS_DIRECT].given)
        return;
    count = rs_way_switches(verbs_way_at, ways, list);
    printf("  %-19s", "the cheaper one");
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            printf(", from %" PRIu64 " B ", list[i].bytes);
        printf("%s", rs_verbs_way_name((enum rs_verbs_way)list[i].way));
    }
    printf("; RSCHED_CHUNK, %" PRIu64 " B, decides\n", rs_config()->chunk_bytes);
}

static void print_rdma(const struct rs_ways *ways, const struct rs_sources *sources,
                       const struct ports *ports)
{
    static const unsigned blocks[] = {1, 4, 16, 64};
    bool usual = memcmp(sources, &rs_sources_usual, sizeof(*sources)) == 0;

    printf("\nmessages over RDMA devices, by the costs of strided memory\n");
    printf("  %-19s%s%s\n", "costs", usual ? "the usual ones" : rs_config()->machine,
           usual ? "" : ", which is RSCHED_MACHINE");
    for (uint32_t i = 0; i < ports->count; i++)
        print_inline(&ports->of[i]);
    if (ports->count == 0) /* the engines say why */
        printf("  %-19s%s\n", "inline", "not known without a device");
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
        print_blocks("of", blocks[i], "packed",
                     rs_sources_gather_from(sources, blocks[i]), "gathered");
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
        print_blocks("into", blocks[i], "through slots",
                     direct_from(sources, blocks[i]), "written directly");
    print_verbs_ways(ways);
}

/* As exchanges find them. */
static int find_ways(struct rs_ways *ways, struct rs_sources *sources)
{
    const char *name = rs_config()->machine;
    struct rsched_machine *machine = NULL;
    int error = 0;

    if (name[0] != '\0')
        error = rsched_machine_open(name, &machine);
    if (error == 0)
        error = rs_ways_open(machine, ways);
    *sources = machine != NULL ? *rs_machine_sources(machine) : rs_sources_usual;
    rsched_machine_destroy(machine);
    return error;
}

static void print_gpu(int number, const struct rsched_gpu *gpu)
{
    printf("  %-4d %s, %" PRIu64 " MiB, %s, NUMA node ", number, gpu->name,
           gpu->bytes >> 20, gpu->bus);
    if (gpu->numa_node >= 0)
        printf("%d", gpu->numa_node);
    else
        fputs(gpu->numa_node == RSCHED_NUMA_NONE ? "-" : "not known", stdout);
    fputs(", GPU-", stdout);
    for (size_t i = 0; i < sizeof(gpu->id); i++)
        printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
               gpu->id[i]);
    putchar('\n');
}

/* Whether an engine drives a NIC that might take GPU memory. @return 0, or an
 * error: why none does */
static int check_nic(void)
{
    const struct rsched_engine_env env = {.chunk_bytes = 1 << 16,
                                          .ring_bytes = 1 << 19};
    const struct rsched_engine_ops *ops;
    struct rsched_engine *engine;
    int error = rs_fail(RSCHED_ENOTSUP, "built without an engine for NICs");

    for (size_t i = 0; (ops = rsched_engine_at(i)) != NULL; i++) {
        if (ops->also_gpus && !ops->within_node)
            error = ops->open(&env, &engine);
        if (error == 0) {
            ops->close(engine);
            return 0;
        }
    }
    return error;
}

/* One line of what is possible, and one for each way that is not. */
static void print_pair(const struct rsched_gpu_ops *gpus, int from, int to,
                       enum rs_distance distance)
{
    char text[16];

    snprintf(text, sizeof(text), "%d - %d", from, to);
    printf("  %-9s %s\n", text, rs_distance_name(distance));
    for (enum rs_way way = RS_NUM_HOST_WAYS; way < RS_NUM_WAYS; way++) {
        int error = gpus->check_way(from, to, way);

        if (error == 0 && way == RS_WAY_GDR_LOOPBACK)
            error = check_nic();
        printf("      %-13s %s%s\n", rs_way_name(way),
               error == 0 ? "possible" : "not here: ",
               error == 0 ? "" : rsched_last_error());
    }
}

static void print_pairs(const struct rsched_gpu_ops *gpus,
                        const struct rsched_gpu *list, int count)
{
    printf("\nways between processes with GPU memory\n");
    for (int from = 0; from < count; from++) {
        for (int to = from; to < count; to++)
            print_pair(gpus, from, to, gpus_distance(&list[from], &list[to]));
    }
}

static void print_gpus(void)
{
    const struct rsched_gpu_ops *gpus = rsched_gpus();
    struct rsched_gpu *list = NULL;
    int count, error;

    printf("\nGPUs\n");
    if (gpus == NULL) {
        printf("  not here: built without cuda.h\n");
        return;
    }
    error = gpus_describe(&list, &count);
    if (error != 0) {
        printf("  not here: %s\n", rsched_last_error());
    } else {
        for (int i = 0; i < count; i++)
            print_gpu(i, &list[i]);
        print_pairs(gpus, list, count);
    }
    if (gpus->no_kernels == NULL)
        printf("  blocks in GPU memory are packed by kernels\n");
    else
        printf("  blocks in GPU memory are copied one by one: %s\n",
               gpus->no_kernels);
    free(list);
}

static void print_planners(void)
{
    const struct rsched_planner *p;

    printf("\nschedulers\n");
    for (size_t i = 0; (p = rsched_planner_at(i)) != NULL; i++)
        printf("  %-11s %-6s %s\n", p->name, p->label, p->help);
}

static void print_patterns(void)
{
    const char *help;

    printf("\nbuilt-in patterns\n");
    for (size_t i = 0; (help = rsched_pattern_builtin_help(i)) != NULL; i++) {
        int syntax = (int)strcspn(help, "\t");

        printf("  %.*s\n      %s\n", syntax, help, help + syntax + 1);
    }
}

static int print_machines(void)
{
    const char *name;

    printf("\nbuilt-in machines\n");
    for (size_t i = 0; (name = rsched_machine_builtin_name(i)) != NULL; i++) {
        const struct rsched_machine_costs *costs;
        struct rsched_machine *machine;
        char rate[RS_UNITS_TEXT];
        int error = rsched_machine_builtin(name, &machine);

        if (error != 0)
            return tool_library(error);
        costs = rsched_machine_get_costs(machine);
        printf("  %-13s %" PRIu32 " engine%s of %s, %s\n", name,
               costs->num_engines, costs->num_engines == 1 ? "" : "s",
               rs_format_rate(costs->engine_rate, rate),
               rsched_machine_description(machine));
        rsched_machine_destroy(machine);
    }
    return TOOL_OK;
}

static void print_settings(void)
{
    const struct rsched_setting *s;

    printf("%-22s %-12s %-12s %-12s %-24s %s\n", "name", "value", "default",
           "origin", "type", "help");
    for (size_t i = 0; (s = rsched_config_setting(i)) != NULL; i++)
        printf("%-22s %-12s %-12s %-12s %-24s %s\n", s->name,
               *s->value ? s->value : "\"\"",
               *s->initial ? s->initial : "\"\"", s->origin, s->type, s->help);
}

int tool_info(const struct tool_command *command, int argc, char **argv)
{
    bool config = false;
    const struct tool_option options[] = {
        {"config", 0, NULL, "every setting: value, default, origin, help",
         NULL, &config},
        {0}};
    struct rs_sources sources;
    struct ports ports = {.count = 0};
    struct rs_ways ways;
    int first, error;
    int status = tool_parse_only(command, argc, argv, options, &first, 0, 0);

    if (status != TOOL_GO_ON)
        return status;
    /* The list of settings is there for those who have a wrong one, too. */
    error = rsched_config_check();
    if (error == 0)
        error = find_ways(&ways, &sources);
    status = error != 0 ? tool_library(error) : TOOL_OK;
    if (status != TOOL_OK && !config)
        return status;
    if (config) {
        print_settings();
        return status;
    }
    printf("rsched %s\n", rsched_version());
    print_engines(&ways, &ports);
    print_cores();
    print_numa();
    print_ways(&ways);
    print_whole_ways(&ways);
    print_rdma(&ways, &sources, &ports);
    print_gpus();
    print_planners();
    print_patterns();
    status = print_machines();
    printf("\nrsched info --config prints the settings.\n");
    return status;
}
