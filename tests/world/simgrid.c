/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator against SimGrid, whose flow model is max-min fair as well and
 * which knows nothing of ours. Every engine is a host behind a link of its
 * rate; every put has a receiving host, and its route is the engine's link and
 * the resources that it uses. Times must agree to 1 ns.
 *
 * SimGrid can be set up once per process, so every case is a process.
 */
#include <stdio.h>
#ifndef HAVE_SIMGRID
int main(void)
{
    printf("SKIP: libsimgrid-dev is not installed, or this is a build with "
           "sanitizers\n");
    return 77;
}
#else
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>

#include "librsched/world/world.h"

#define NEAR_PS 1000.0

static const struct rs_world *world;
static double *ended; /* per put, s */

/* ---- the platform ---- */

static void write_route(FILE *out, size_t engine, uint32_t put)
{
    const struct rs_fluid_route *route =
        &world->fluid.routes[world->fluid.route[put]];

    fprintf(out, "<route src=\"e%zu\" dst=\"p%" PRIu32
            "\" symmetrical=\"NO\"><link_ctn id=\"c%zu\"/>", engine, put,
            engine);
    for (size_t k = 0; k < route->num_resources; k++)
        fprintf(out, "<link_ctn id=\"r%" PRIu32 "\"/>", route->resources[k]);
    fputs("</route>\n", out);
}

static void write_platform(FILE *out)
{
    const struct rs_fluid *fluid = &world->fluid;

    fputs("<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM "
          "\"https://simgrid.org/simgrid.dtd\">\n<platform version=\"4.1\">\n"
          "<zone id=\"world\" routing=\"Full\">\n", out);
    for (size_t e = 0; e < fluid->num_engines; e++)
        fprintf(out, "<host id=\"e%zu\" speed=\"1f\"/>\n", e);
    for (size_t i = 0; i < world->num_puts; i++)
        fprintf(out, "<host id=\"p%zu\" speed=\"1f\"/>\n", i);
    for (size_t r = 0; r < fluid->num_resources; r++)
        fprintf(out, "<link id=\"r%zu\" bandwidth=\"%" PRIu64
                "Bps\" latency=\"0s\"/>\n", r, fluid->capacity[r]);
    for (size_t e = 0; e < fluid->num_engines; e++)
        fprintf(out, "<link id=\"c%zu\" bandwidth=\"%" PRIu64
                "Bps\" latency=\"0s\"/>\n", e, fluid->engines[e].rate);
    for (size_t e = 0; e < fluid->num_engines; e++) {
        for (size_t i = 0; i < fluid->engines[e].num_queue; i++)
            write_route(out, e, fluid->engines[e].queue[i]);
    }
    fputs("</zone>\n</platform>\n", out);
}

/* ---- the actors ---- */

static void send_queue(int argc, char *argv[])
{
    const struct rs_fluid_engine *engine =
        &world->fluid.engines[atoi(argv[1])];

    (void)argc;
    sg_actor_sleep_for((double)engine->opens * 1e-12);
    for (size_t i = 0; i < engine->num_queue; i++) {
        uint32_t put = engine->queue[i];
        char name[32];

        snprintf(name, sizeof(name), "m%" PRIu32, put);
        sg_actor_sleep_for((double)engine->command * 1e-12);
        sg_mailbox_put(sg_mailbox_by_name(name), &ended[put],
                       (long)world->fluid.bytes[put]);
        ended[put] = simgrid_get_clock();
    }
}

static void receive_put(int argc, char *argv[])
{
    (void)argc;
    sg_mailbox_get(sg_mailbox_by_name(argv[1]));
}

static void create_actors(void)
{
    char name[32], number[32];

    for (size_t e = 0; e < world->fluid.num_engines; e++) {
        const char *args[] = {"send", number};

        snprintf(name, sizeof(name), "e%zu", e);
        snprintf(number, sizeof(number), "%zu", e);
        if (world->fluid.engines[e].num_queue > 0)
            sg_actor_create("send", sg_host_by_name(name), send_queue, 2,
                            (char *const *)args);
    }
    for (size_t i = 0; i < world->num_puts; i++) {
        const char *args[] = {"receive", number};

        snprintf(name, sizeof(name), "p%zu", i);
        snprintf(number, sizeof(number), "m%zu", i);
        sg_actor_create("receive", sg_host_by_name(name), receive_put, 2,
                        (char *const *)args);
    }
}

static void simulate(void)
{
    char program[] = "simgrid", log[] = "--log=root.thresh:error";
    char model[] = "--cfg=network/model:CM02";
    char gamma[] = "--cfg=network/TCP-gamma:0";
    char crosstraffic[] = "--cfg=network/crosstraffic:0";
    char precision[] = "--cfg=surf/precision:1e-12";
    char stack[] = "--cfg=contexts/stack-size:64";
    char *argv[] = {program, log,   model,        gamma, crosstraffic,
                    precision, stack, NULL};
    char path[] = "/tmp/rsched-simgrid-XXXXXX.xml";
    int argc = 7, file = mkstemps(path, 4);
    FILE *out = fdopen(file, "w");

    assert(out != NULL);
    write_platform(out);
    fclose(out);
    ended = calloc(world->num_puts, sizeof(*ended));
    simgrid_init(&argc, argv);
    simgrid_load_platform(path);
    unlink(path);
    create_actors();
    simgrid_run();
}

/* ---- the cases ---- */

/* In a process of its own; the exit status says how it went. */
static int run_case(const struct rs_world_params *params)
{
    struct rs_world *made;
    struct rs_world_result result;
    struct rs_fluid_times *times;
    double most = 0, makespan = 0;

    assert(rs_world_create(params, &made) == 0);
    times = calloc(made->num_puts, sizeof(*times));
    assert(rs_world_run(made, params->machine, times, NULL, &result) == 0);
    world = made;
    simulate();
    for (size_t i = 0; i < made->num_puts; i++) {
        double off = fabs(ended[i] * 1e12 - (double)times[i].finish);

        most = off > most ? off : most;
        makespan = ended[i] > makespan ? ended[i] : makespan;
    }
    printf("%-22s %-10s %s makespan %.6f us, SimGrid %.6f us; puts differ by "
           "at most %.3f ns\n", rsched_pattern_name(params->pattern),
           params->planner, params->shuffled ? "random   " : "row-major",
           (double)result.makespan / 1e6, makespan * 1e6, most / 1e3);
    fflush(stdout);
    return most > NEAR_PS;
}

static int fork_case(const struct rs_world_params *params)
{
    int status;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0)
        _exit(run_case(params));
    assert(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    printf("FAIL %s %s\n", rsched_pattern_name(params->pattern),
           params->planner);
    return 1;
}

static int run_pattern(struct rsched_machine *machine, const char *name,
                       const char *only, uint64_t placement)
{
    struct rsched_pattern *pattern;
    const struct rsched_planner *planner;
    int failed = 0;

    assert(rsched_pattern_builtin(name, &pattern) == 0);
    for (size_t i = 0; (planner = rsched_planner_at(i)) != NULL; i++) {
        struct rs_world_params params = {
            .pattern = pattern, .machine = machine, .planner = planner->name,
            .processes = 1, .shuffled = placement > 0,
            .mapping_seed = placement, .receive = RS_RECEIVE_PLANNED};

        if (only != NULL && strcmp(only, planner->name) != 0)
            continue;
        assert(rs_shape_parse("8x6", &params.nodes) == 0);
        failed += fork_case(&params);
    }
    rsched_pattern_destroy(pattern);
    return failed;
}

int main(void)
{
    struct rsched_machine *machine;
    int failed = 0;

    assert(rsched_machine_builtin("tofu-k", &machine) == 0);
    failed += run_pattern(machine, "scale-les3:872:ewns", NULL, 0);
    failed += run_pattern(machine, "scale-les3:60:diag", NULL, 0);
    failed += run_pattern(machine, "scale-les3:872:all", NULL, 0);
    for (uint64_t placement = 1; placement <= 2; placement++) {
        failed += run_pattern(machine, "scale-les3:872:ewns", "bl4", placement);
        failed += run_pattern(machine, "scale-les3:872:all", "rr4", placement);
    }
    rsched_machine_destroy(machine);
    return failed > 0;
}
#endif
