/* SPDX-License-Identifier: BSD-3-Clause */
/* What the ways within the node cost: a file's word, or the built-in one. */
#include "models/ways.h"

#include <pthread.h>
#include <string.h>

#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"
#include "librsched/run/run.h"

/* @return 0, or why there are none in it */
static int read_ways(const char *name, struct rs_ways *ways)
{
    struct rsched_machine *machine;
    int error = rsched_machine_open(name, &machine);

    if (error != 0)
        return error;
    if (rs_machine_ways(machine) != NULL)
        *ways = *rs_machine_ways(machine);
    else
        error = rs_fail(RSCHED_EINVAL, "%s: there is no key 'ways' in it",
                        name);
    rsched_machine_destroy(machine);
    return error;
}

static int find_ways(const struct rsched_machine *machine,
                     struct rs_ways *ways)
{
    const char *name = rs_config()->ways;

    if (name[0] != '\0') {
        if (read_ways(name, ways) == 0)
            return 0;
        rs_log(RS_LOG_WARN, "RSCHED_WAYS: %s; the built-in costs are used",
               rsched_last_error());
    } else if (machine != NULL && rs_machine_ways(machine) != NULL) {
        *ways = *rs_machine_ways(machine);
        return 0;
    }
    return read_ways("host", ways);
}

/* What lies in host memory moves wherever GPUs are. */
static int add_host_ways(struct rs_ways *ways)
{
    struct rs_ways host = {0};
    int error = read_ways("host", &host);

    if (error == 0)
        memcpy(ways->host, host.host, sizeof(ways->host));
    return error;
}

int rs_ways_open(const struct rsched_machine *machine, struct rs_ways *ways)
{
    int error = find_ways(machine, ways);

    if (error == 0 && !rs_ways_have_host(ways))
        error = add_host_ways(ways);
    for (int d = 0; d < RS_NUM_HOST_DISTANCES && error == 0; d++)
        ways->host[d].shortest_once = rs_ways_shortest_once(&ways->host[d]);
    return error;
}

/* ---- for others ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct rs_ways alone;
static bool have_alone;

static void open_alone(void)
{
    have_alone = rs_ways_open(NULL, &alone) == 0;
}

const struct rs_ways *
rsched_context_ways(const struct rsched_context *context)
{
    if (context != NULL)
        return &context->ways;
    pthread_once(&once, open_alone);
    return have_alone ? &alone : NULL;
}
