/* SPDX-License-Identifier: BSD-3-Clause */
/* rsched probe: what the ways within this node cost, of host memory and of GPUs', and
 * those over its RDMA devices. */
#include "tools/probe.h"

#include <stdlib.h>
#include <string.h>

#include "librsched/base/config.h"
#include "librsched/base/units.h"
#include "tools/probe_gpu.h"
#include "tools/probe_verbs.h"
#include "tools/progress.h"
#include "tools/tool.h"

enum { ROUNDS = 7, MEBI = 1 << 20 };

enum memory { MEMORY_HOST, MEMORY_GPU, MEMORY_VERBS, MEMORY_ALL };

/* Whether what is said is measured, by itself or with all. */
static bool is_asked(enum memory said, enum memory which)
{
    return said == which || said == MEMORY_ALL;
}

struct request {
    const char *output, *svg, *class, *compare;
    enum memory memory;
    struct rs_ways compared;
    unsigned rounds;
    uint64_t longest;
    struct rs_numa_pair pairs[RS_NUM_HOST_DISTANCES];
    struct probe *probes; /* of each pair */
    size_t num_pairs;
    struct gpus_pairs gpu_pairs;
    struct probe_gpu *gpu_probes; /* of each of them */
    struct probe_verbs *verbs;
};

void probe_show_round(const struct pair *pair, const char *what, unsigned round,
                      unsigned rounds)
{
    struct tool_progress progress;

    if (!pair_is_first(pair))
        return;
    tool_progress_begin(&progress, what);
    if (round < rounds)
        tool_progress_tell(&progress, "cores %d and %d: %s, round %u of %u",
                           pair_where(pair)->cores[0],
                           pair_where(pair)->cores[1], what, round + 1, rounds);
    else
        tool_progress_end(&progress);
}

static void print_switches(const struct rs_host_ways *ways,
                           enum rs_way_memory memory, FILE *out)
{
    struct rs_way_switch list[RS_WAY_SWITCHES];
    size_t count = rs_ways_switches(ways, memory, list);

    fprintf(out, "%s memory:", rs_way_memory_name(memory));
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%s from %llu B %s", i > 0 ? "," : "",
                (unsigned long long)list[i].bytes, rs_way_name(list[i].way));
    fputc('\n', out);
}

/* The same of bare copies. */
static void print_floor(struct probe_copies *copies, uint64_t bytes, FILE *out)
{
    for (size_t i = 0; i < copies->count; i++) {
        if ((uint64_t)PROBE_STORES_SHORTEST << i == bytes)
            fprintf(out, "; bare copies %.2f",
                    probe_quartile(&copies->times[1][i]) /
                        probe_quartile(&copies->times[0][i]));
    }
    fputc('\n', out);
}

/* How much of one core's time both need that copy a message in one direction
 * together, as measured. */
static void print_sharing(struct probe *probe, FILE *out)
{
    const struct probe_way *alone = &probe->of[RS_WAY_PULL];
    const struct probe_way *both = &probe->of[RS_WAY_SHARED];

    for (size_t i = 0; i < both->count; i++) {
        size_t k = 0;

        while (k < alone->count && alone->gap[k].bytes != both->gap[i].bytes)
            k++;
        if (k == alone->count || both->gap[i].bytes < MEBI)
            continue;
        fprintf(out, "shared, one way, %llu B: %.2f of the time of one core",
                (unsigned long long)both->gap[i].bytes,
                both->gap[i].ps / alone->gap[k].ps);
        print_floor(&probe->copies, both->gap[i].bytes, out);
    }
}

static void print_stores(const struct probe *probe, FILE *out)
{
    const struct probe_stores *s = &probe->stores;

    for (size_t i = 0; i < s->count; i++)
        fprintf(out, "non-temporal stores, pulled and read, %llu B: %.2f of the "
                     "time of others\n",
                (unsigned long long)PROBE_STORES_SHORTEST << i, s->share[i]);
    if (probe->ways.nontemporal > 0)
        fprintf(out, "non-temporal stores: from %llu B of an epoch on\n",
                (unsigned long long)probe->ways.nontemporal);
    else
        fputs("non-temporal stores: never\n", out);
}

void probe_print(struct probe *probe, FILE *out)
{
    fprintf(out, "cores %d and %d, %s\n", probe->where->cores[0],
            probe->where->cores[1], rs_distance_name(probe->where->distance));
    fprintf(out, "a line: %.0f ns there and back, class %s\n\n",
            2 * (double)probe->line / 1000, probe->class);
    probe_print_head(out);
    for (enum rs_way way = 0; way < RS_NUM_HOST_WAYS; way++) {
        const struct rs_way_costs *c = &probe->ways.of[way];

        if (!c->given) {
            fprintf(out, "%-8s not here\n", rs_way_name(way));
            continue;
        }
        fprintf(out, "%-8s L     %8.3f", rs_way_name(way),
                (double)c->latency / 1e6);
        probe_print_cost("o", "O", &c->work, probe->of[way].work_error, out);
        fprintf(out, "%-8s block %8.3f", "", (double)c->block / 1e6);
        probe_print_cost("g", "G", &c->gap, probe->of[way].gap_error, out);
    }
    fputc('\n', out);
    for (enum rs_way_memory memory = 0; memory < RS_NUM_WAY_MEMORIES; memory++) {
        if (rs_ways_tell(&probe->ways, memory))
            print_switches(&probe->ways, memory, out);
    }
    print_sharing(probe, out);
    print_stores(probe, out);
}

static int write_file(const char *path, const struct request *request,
                      void (*write)(const struct request *, FILE *))
{
    struct tool_output output;
    int status;

    if (path == NULL)
        return TOOL_OK;
    status = tool_output_open(&output, path);
    if (status != TOOL_OK)
        return status;
    write(request, output.file);
    return tool_output_close(&output, 0);
}

/* The caches are the receiver's, wherever the sender is. */
static uint64_t common_stores(const struct request *request)
{
    uint64_t common = 0;

    for (size_t i = 0; i < request->num_pairs; i++) {
        uint64_t from = request->probes[i].ways.nontemporal;

        if (from == 0)
            return 0;
        if (from > common)
            common = from;
    }
    return common;
}

/* What was measured at one distance only holds for all. */
static void gather_host(const struct request *request, struct rs_ways *ways,
                        FILE *out)
{
    const struct probe *probes = request->probes;

    rs_ways_set_host(ways, &probes[0].ways);
    for (size_t i = 0; i < request->num_pairs; i++) {
        enum rs_distance distance = probes[i].where->distance;

        fprintf(out, ", %s class %s", rs_distance_name(distance),
                probes[i].class);
        rs_ways_set_host_at(ways, distance, &probes[i].ways);
    }
    for (int d = 0; d < RS_NUM_HOST_DISTANCES; d++)
        ways->host[d].nontemporal = common_stores(request);
}

/* Of GPUs what was not measured is not known: they differ by much more. */
static void gather_gpus(const struct request *request, struct rs_ways *ways)
{
    for (size_t i = 0; i < request->gpu_pairs.num; i++) {
        const struct probe_gpu *probe = &request->gpu_probes[i];

        for (int way = 0; way < RS_NUM_GPU_WAYS; way++)
            ways->gpu[way][probe->where.distance] = probe->costs[way];
    }
}

static void write_machine(const struct request *request, FILE *out)
{
    struct rs_ways ways = {0};

    fputs("rsched: machine/1\n"
          "name: probed\n"
          "description: a host as rsched probe has measured it", out);
    if (is_asked(request->memory, MEMORY_HOST))
        gather_host(request, &ways, out);
    gather_gpus(request, &ways);
    memcpy(ways.verbs, request->verbs->costs, sizeof(ways.verbs));
    fputs("\nextends: host\n", out);
    rs_ways_write(&ways, out);
}

static void draw(const struct request *request, FILE *out)
{
    probe_draw(request->probes, request->num_pairs, out);
}

static int measure(struct pair *pair, void *arg)
{
    struct request *request = arg;
    struct probe *probe = &request->probes[pair_where(pair) - request->pairs];
    unsigned all, mixed;
    int status;

    pair_choose_class(pair, request->class);
    status = probe_measure(pair, probe);
    if (status != TOOL_OK || !pair_is_first(pair))
        return status;
    probe_print(probe, stdout);
    pair_blocks(pair, &all, &mixed);
    printf("%u of %u blocks were within one class\n", all - mixed, all);
    return status;
}

static int compare(struct pair *pair, void *arg)
{
    const struct request *request = arg;

    pair_choose_class(pair, request->class);
    return probe_compare(
        pair, rs_ways_host(&request->compared, pair_where(pair)->distance),
        request->rounds);
}

/* Between each pair of cores, one after the other. */
static int run_host(struct request *request)
{
    int status = TOOL_OK;

    for (size_t i = 0; i < request->num_pairs && status == TOOL_OK; i++) {
        request->probes[i].rounds = request->rounds;
        request->probes[i].longest = request->longest;
        if (i > 0)
            putchar('\n');
        status = pair_run(&request->pairs[i],
                          request->compare != NULL ? compare : measure, request);
    }
    return status;
}

static int run_gpu(struct request *request, struct probe_gpu *probe)
{
    int status;

    if (request->compare != NULL)
        return probe_gpu_compare(probe, &request->compared, stdout);
    status = probe_gpu_measure(probe);
    if (status == TOOL_OK)
        probe_gpu_print(probe, stdout);
    return status;
}

/* The same between GPUs. Those that are not there are no failure, unless there is
 * nothing else to do. */
static int run_gpus(struct request *request)
{
    int status = TOOL_OK;

    gpus_find_pairs(&request->gpu_pairs);
    if (request->gpu_pairs.num == 0 && request->memory == MEMORY_ALL) {
        printf("\nGPU memory: not here: %s\n", request->gpu_pairs.reason);
        return TOOL_OK;
    }
    if (request->gpu_pairs.num == 0) {
        tool_bad("GPU memory: not here: %s", request->gpu_pairs.reason);
        return TOOL_FAILED;
    }
    for (size_t i = 0; i < request->gpu_pairs.num && status == TOOL_OK; i++) {
        request->gpu_probes[i] =
            (struct probe_gpu){.cores = request->pairs[0],
                               .where = request->gpu_pairs.of[i],
                               .class = request->class,
                               .rounds = request->rounds,
                               .longest = request->longest};
        if (i > 0 || request->memory == MEMORY_ALL)
            putchar('\n');
        status = run_gpu(request, &request->gpu_probes[i]);
    }
    return status;
}

/* The same over RDMA devices. */
static int run_verbs(struct request *request)
{
    struct probe_verbs *probe = request->verbs;
    int status;

    probe->cores = request->pairs[0];
    probe->rounds = request->rounds;
    probe->longest = request->longest;
    if (!probe_verbs_find(probe) && request->memory == MEMORY_ALL) {
        printf("\nRDMA devices: not here: %s\n", probe->reason);
        return TOOL_OK;
    }
    if (probe->rail[0] == '\0') {
        tool_bad("RDMA devices: not here: %s", probe->reason);
        return TOOL_FAILED;
    }
    if (request->memory == MEMORY_ALL)
        putchar('\n');
    status = probe_verbs_measure(probe);
    if (status == TOOL_OK) {
        probe_verbs_print(probe, stdout);
        return TOOL_OK;
    }
    if (request->memory != MEMORY_ALL)
        return status;
    /* A device that does not work is no reason to lose all others. */
    memset(probe->costs, 0, sizeof(probe->costs));
    printf("RDMA devices: %s cannot be measured\n", probe->rail);
    return TOOL_OK;
}

static int run(struct request *request)
{
    int status = TOOL_OK;

    if (is_asked(request->memory, MEMORY_HOST))
        status = run_host(request);
    if (status == TOOL_OK && is_asked(request->memory, MEMORY_GPU))
        status = run_gpus(request);
    if (status == TOOL_OK && request->compare == NULL &&
        is_asked(request->memory, MEMORY_VERBS))
        status = run_verbs(request);
    if (status == TOOL_OK && request->compare == NULL)
        status = write_file(request->output, request, write_machine);
    if (status == TOOL_OK && request->compare == NULL)
        status = write_file(request->svg, request, draw);
    return status;
}

static int read_ways(const char *name, enum memory memory, struct rs_ways *ways)
{
    struct rsched_machine *machine;
    int error = rsched_machine_open(name, &machine);

    if (error != 0)
        return tool_library(error);
    if (rs_machine_ways(machine) == NULL)
        error = tool_bad("%s: there is no key 'ways' in it", name);
    else if (memory == MEMORY_GPU && !rs_ways_have_gpu(rs_machine_ways(machine)))
        error = tool_bad("%s: its ways say nothing of GPU memory", name);
    else if (memory != MEMORY_GPU && !rs_ways_have_host(rs_machine_ways(machine)))
        error = tool_bad("%s: its ways say nothing of host memory", name);
    else
        *ways = *rs_machine_ways(machine);
    rsched_machine_destroy(machine);
    return error;
}

static int read_number(const char *option, const char *text, uint64_t least,
                       uint64_t most, uint64_t *value)
{
    const char *wrong;

    if (text == NULL)
        return TOOL_OK;
    wrong = rs_parse_whole(text, value);
    if (wrong != NULL)
        return tool_bad("probe: --%s %s: %s", option, text, wrong);
    if (*value < least || *value > most)
        return tool_bad("probe: --%s is from %llu to %llu", option,
                        (unsigned long long)least, (unsigned long long)most);
    return TOOL_OK;
}

/* What says how messages go, whatever the ways cost, would be measured in
 * place of the machine. @return its name, or NULL */
static const char *find_forcing(enum memory memory)
{
    const struct rs_config *c = rs_config();
    bool host = is_asked(memory, MEMORY_HOST), gpu = is_asked(memory, MEMORY_GPU);

    if (host && c->mapped_bytes != RS_LIMIT_AUTO)
        return "RSCHED_MAPPED";
    if (host && c->cma_bytes != RS_LIMIT_AUTO)
        return "RSCHED_CMA";
    if (host && c->nontemporal_bytes != RS_LIMIT_AUTO)
        return "RSCHED_NONTEMPORAL";
    if (host && c->slot_stores != RS_CONFIG_STORES_AUTO)
        return "RSCHED_SLOT_STORES";
    if (host && c->prefetch != RS_CONFIG_PREFETCH_AUTO)
        return "RSCHED_PREFETCH";
    if (host && c->trials == RS_CONFIG_TRIALS_YES)
        return "RSCHED_TRIALS";
    if (gpu && c->gpu_way != RS_CONFIG_GPU_WAY_AUTO)
        return "RSCHED_GPU_WAY";
    if (gpu && !c->gdrcopy)
        return "RSCHED_GDRCOPY";
    if (is_asked(memory, MEMORY_VERBS) && !c->direct)
        return "RSCHED_DIRECT";
    return NULL;
}

static int check_settings(enum memory memory)
{
    const char *name = find_forcing(memory);

    if (name == NULL)
        return TOOL_OK;
    return tool_bad("probe: %s=%s says how messages go; the machine is "
                    "measured without it", name, getenv(name));
}

/* Options of which one would make another one useless. */
static int check_options(const struct request *request, const char *longest)
{
    const char *output = request->output, *svg = request->svg;

    if (request->compare != NULL && (output != NULL || svg != NULL))
        return tool_bad("probe: --compare writes no machine and draws nothing");
    if (request->memory == MEMORY_VERBS && request->compare != NULL)
        return tool_bad("probe: --compare is about ways within a node");
    if (request->compare != NULL && longest != NULL &&
        is_asked(request->memory, MEMORY_HOST))
        return tool_bad("probe: of host memory --compare has messages of its "
                        "own, whatever --longest says");
    if (svg != NULL && !is_asked(request->memory, MEMORY_HOST))
        return tool_bad("probe: --svg draws host memory only");
    if ((output != NULL && strcmp(output, "-") == 0) ||
        (svg != NULL && strcmp(svg, "-") == 0))
        return tool_bad("probe: standard output has the table; --output and "
                        "--svg want files");
    if (svg != NULL && !tool_ends_in(svg, ".svg"))
        return tool_bad("probe: --svg %s: expected a name that ends in .svg",
                        svg);
    if (output != NULL && svg != NULL && strcmp(output, svg) == 0)
        return tool_bad("probe: --output and --svg are both %s", svg);
    return TOOL_OK;
}

int tool_probe(const struct tool_command *command, int argc, char **argv)
{
    struct request request = {0};
    const char *rounds = NULL, *longest = NULL, *memory = "all";
    const struct tool_option options[] = {
        {"output", 'o', "FILE", "write a machine file for RSCHED_WAYS",
         &request.output, NULL},
        {"svg", 0, "FILE", "draw times by size, with the switch points",
         &request.svg, NULL},
        {"class", 0, "CLASS",
         "of a line's round trip to keep to: near, far, any (that of the start)",
         &request.class, NULL},
        {"rounds", 0, "N", "of which the lower quartile counts (7)", &rounds, NULL},
        {"longest", 0, "BYTES", "longest message (33554432)", &longest, NULL},
        {"memory", 0, "KIND", "host, gpu, verbs (over RDMA devices) or all: what is measured (all)",
         &memory, NULL},
        {"compare", 0, "MACHINE",
         "measure whole exchanges and set them beside what it says",
         &request.compare, NULL},
        {0}};
    uint64_t number = ROUNDS;
    int first, kind;
    int status = tool_parse(command, argc, argv, options, &first, 0, 0);

    if (status != TOOL_GO_ON)
        return status;
    request.longest = UINT64_C(32) << 20;
    if (request.class != NULL &&
        tool_word("class", request.class, "near|far|any") < 0)
        return TOOL_BAD_INPUT;
    kind = tool_word("memory", memory, "host|gpu|verbs|all");
    if (kind < 0)
        return TOOL_BAD_INPUT;
    request.memory = (enum memory)kind;
    status = check_options(&request, longest);
    if (status == TOOL_OK)
        status = check_settings(request.memory);
    if (status == TOOL_OK)
        status = read_number("rounds", rounds, 1, PROBE_ROUNDS_MOST, &number);
    if (status == TOOL_OK)
        /* Of a device in software much less is enough, and all that there is time for. */
        status = read_number("longest", longest,
                             request.memory == MEMORY_VERBS ? 4096 : 65536, UINT64_C(1) << 30,
                             &request.longest);
    if (status == TOOL_OK && request.compare != NULL)
        status = read_ways(request.compare, request.memory, &request.compared);
    /* Measuring takes minutes, which should not be for nothing. */
    if (status == TOOL_OK)
        status = tool_output_check(request.output);
    if (status == TOOL_OK)
        status = tool_output_check(request.svg);
    if (status != TOOL_OK)
        return status;
    request.rounds = (unsigned)number;
    request.num_pairs = rs_numa_pairs(request.pairs);
    if (request.num_pairs == 0) {
        tool_bad("two cores are needed to measure between them");
        return TOOL_FAILED;
    }
    request.probes = calloc(request.num_pairs, sizeof(*request.probes));
    request.gpu_probes = calloc(RS_NUM_DISTANCES, sizeof(*request.gpu_probes));
    request.verbs = calloc(1, sizeof(*request.verbs));
    status = request.probes == NULL || request.gpu_probes == NULL ||
                     request.verbs == NULL
                 ? tool_bad("no memory")
                 : run(&request);
    free(request.probes);
    free(request.gpu_probes);
    free(request.verbs);
    return status;
}
