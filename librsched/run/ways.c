/* SPDX-License-Identifier: BSD-3-Clause */
/* What the ways within the node cost: a file's word, or the built-in one. */
#include "models/ways.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"
#include "librsched/base/numa.h"
#include "librsched/run/run.h"

/* ---- which of the built-in ones ---- */

/* What differs most from machine to machine is how the kernel's reading
 * compares with a copy, as it pins each page: 9 times as long on the machine of
 * `host-epyc`, 2.5 times on one like that of `host`. */
enum { READ_BYTES = 1 << 16, READ_ROUNDS = 5, SLOW_TENTHS = 65 };

static pthread_once_t built_in_once = PTHREAD_ONCE_INIT;
static struct rs_built_in_ways built_in = {.machine = "host"};

/* The least time of a few rounds, since other work only ever adds to it; all of
 * it in a cache. @return whether the kernel reads at all */
static bool time_reading(char *to, char *from, uint64_t *copy, uint64_t *read)
{
    const struct iovec here = {to, READ_BYTES}, there = {from, READ_BYTES};

    *copy = *read = UINT64_MAX;
    for (int i = 0; i < READ_ROUNDS; i++) {
        uint64_t begin = rs_clock_now(), middle, end;

        memcpy(to, from, READ_BYTES);
        atomic_signal_fence(memory_order_seq_cst); /* nobody reads it */
        middle = rs_clock_now();
        if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != READ_BYTES)
            return false;
        end = rs_clock_now();
        *copy = middle - begin < *copy ? middle - begin : *copy;
        *read = end - middle < *read ? end - middle : *read;
    }
    return true;
}

static void find_built_in(void)
{
    char *memory = mmap(NULL, 2 * READ_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    uint64_t copy, read;

    if (memory == MAP_FAILED)
        return;
    if (time_reading(memory, memory + READ_BYTES, &copy, &read))
        built_in.read_tenths = (unsigned)(10 * read / (copy + 1));
    if (built_in.read_tenths >= SLOW_TENTHS)
        built_in.machine = "host-epyc";
    munmap(memory, 2 * READ_BYTES);
}

const struct rs_built_in_ways *rs_ways_built_in(void)
{
    pthread_once(&built_in_once, find_built_in);
    return &built_in;
}

/* ---- a file's word, or these ---- */

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

/* Those of a built-in machine, which has ways: a file of that name in the
 * working directory is something else. */
static int read_built_in_ways(struct rs_ways *ways)
{
    struct rsched_machine *machine;
    int error = rsched_machine_builtin(rs_ways_built_in()->machine, &machine);

    if (error != 0)
        return error;
    *ways = *rs_machine_ways(machine);
    rsched_machine_destroy(machine);
    return 0;
}

static int find_ways(const struct rsched_machine *machine,
                     struct rs_ways *ways)
{
    const char *name = rs_config()->ways;
    struct rs_error_text kept;
    int error;

    if (name[0] != '\0') {
        rs_error_save(&kept);
        if (read_ways(name, ways) == 0)
            return 0;
        rs_log(RS_LOG_WARN, "RSCHED_WAYS: %s; the built-in costs are used",
               rsched_last_error());
        rs_error_restore(&kept);
    } else if (machine != NULL && rs_machine_ways(machine) != NULL) {
        *ways = *rs_machine_ways(machine);
        return 0;
    }
    error = read_built_in_ways(ways);
    ways->host_guessed = true;
    return error;
}

static void set_nontemporal(struct rs_ways *ways, uint64_t bytes)
{
    for (int d = 0; d < RS_NUM_HOST_DISTANCES; d++)
        ways->host[d].nontemporal = bytes;
}

/* What lies in host memory moves wherever GPUs are. */
static int add_host_ways(struct rs_ways *ways)
{
    uint64_t nontemporal = ways->host[0].nontemporal;
    struct rs_ways host = {0};
    int error = read_built_in_ways(&host);

    if (error == 0)
        memcpy(ways->host, host.host, sizeof(ways->host));
    set_nontemporal(ways, nontemporal);
    ways->host_guessed = true;
    return error;
}

int rs_ways_open(const struct rsched_machine *machine, struct rs_ways *ways)
{
    int error = find_ways(machine, ways);

    if (error == 0 && !rs_ways_have_host(ways))
        error = add_host_ways(ways);
    /* Nobody has measured from where on non-temporal stores gain. What brings as
     * much as the last cache holds is not in it any more when the application
     * reads it. */
    if (error == 0 && ways->host_guessed && !ways->nontemporal_given)
        set_nontemporal(ways, rs_numa_kept_cache());
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
