/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/numa.h"

#include <pthread.h>
#include <stdbool.h>

#include "librsched/base/cpus.h"

#ifdef RSCHED_HWLOC

#include <errno.h>
#include <hwloc.h>
#include <stdlib.h>

/* What tells where memory is, and no more: caches and devices take time to find.
 * (Without groups of cores hwloc may put all memory beside all of them.) Where threads
 * may not ask for their cores (seccomp) hwloc asks for ever.
 *
 * @param caches how caches are kept, where they are asked for */
static int open_topology(hwloc_topology_t *topology,
                         enum hwloc_type_filter_e caches)
{
    struct rs_cpus allowed;

    /* EINVAL: there are more cores than we have room for, hwloc makes some. */
    if (!rs_cpus_allowed(&allowed) && errno != EINVAL)
        return -1;
    if (hwloc_topology_init(topology) != 0)
        return -1;
    if (hwloc_topology_set_all_types_filter(
            *topology, HWLOC_TYPE_FILTER_KEEP_STRUCTURE) == 0 &&
        hwloc_topology_set_cache_types_filter(*topology, caches) == 0 &&
        hwloc_topology_load(*topology) == 0)
        return 0;
    hwloc_topology_destroy(*topology);
    return -1;
}

/* Memory beside the cores of several nodes, as that of expanders (CXL) often is, tells
 * nothing of which of these cores are near each other. */
static bool spans_nodes(hwloc_topology_t topology, hwloc_obj_t node)
{
    hwloc_obj_t other = NULL;

    while ((other = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE,
                                               other)) != NULL) {
        if (!hwloc_bitmap_iszero(other->cpuset) &&
            hwloc_bitmap_isincluded(other->cpuset, node->cpuset) &&
            !hwloc_bitmap_isequal(other->cpuset, node->cpuset))
            return true;
    }
    return false;
}

/* The node of a core or of several, which must all belong to it. */
static int find_node(hwloc_topology_t topology, hwloc_const_cpuset_t cores)
{
    hwloc_obj_t node = NULL;

    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE,
                                              node)) != NULL) {
        if (hwloc_bitmap_isincluded(cores, node->cpuset) &&
            !spans_nodes(topology, node))
            return (int)node->os_index;
    }
    return RS_NUMA_UNKNOWN;
}

int rs_numa_node(unsigned *nodes)
{
    hwloc_bitmap_t cores = hwloc_bitmap_alloc();
    hwloc_topology_t topology;
    int node = RS_NUMA_UNKNOWN;

    if (nodes != NULL)
        *nodes = 0;
    if (cores == NULL)
        return node;
    if (open_topology(&topology, HWLOC_TYPE_FILTER_KEEP_STRUCTURE) == 0) {
        int count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);

        if (nodes != NULL && count > 0)
            *nodes = (unsigned)count;
        if (hwloc_get_cpubind(topology, cores, HWLOC_CPUBIND_THREAD) == 0 &&
            !hwloc_bitmap_iszero(cores))
            node = find_node(topology, cores);
        hwloc_topology_destroy(topology);
    }
    hwloc_bitmap_free(cores);
    return node;
}

static uint64_t find_cache(void)
{
    hwloc_bitmap_t cores = hwloc_bitmap_alloc();
    hwloc_topology_t topology;
    uint64_t bytes = 0;

    if (cores == NULL)
        return 0;
    if (open_topology(&topology, HWLOC_TYPE_FILTER_KEEP_ALL) == 0) {
        hwloc_obj_t at = NULL;

        if (hwloc_get_cpubind(topology, cores, HWLOC_CPUBIND_THREAD) == 0 &&
            !hwloc_bitmap_iszero(cores))
            at = hwloc_get_pu_obj_by_os_index(
                topology, (unsigned)hwloc_bitmap_first(cores));
        for (; at != NULL; at = at->parent) {
            if (hwloc_obj_type_is_dcache(at->type))
                bytes = at->attr->cache.size;
        }
        hwloc_topology_destroy(topology);
    }
    hwloc_bitmap_free(cores);
    return bytes;
}

/* ---- pairs of cores ---- */

/* A core of the calling thread: where it is. */
struct place {
    int core, node;
    hwloc_obj_t physical; /* with its hardware threads */
};

static size_t find_places(hwloc_topology_t topology, hwloc_const_cpuset_t cores,
                          struct place *places)
{
    size_t count = 0;
    int core;

    hwloc_bitmap_foreach_begin(core, cores)
    {
        hwloc_obj_t unit =
            hwloc_get_pu_obj_by_os_index(topology, (unsigned)core);
        hwloc_obj_t physical;

        if (unit == NULL)
            continue;
        physical = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE,
                                                  unit);
        places[count++] = (struct place){
            .core = core,
            .node = find_node(topology, unit->cpuset),
            .physical = physical != NULL ? physical : unit,
        };
    }
    hwloc_bitmap_foreach_end();
    return count;
}

/* Of two that are as good the first with a, and of those the last with b. */
static bool find_pair(const struct place *places, size_t count,
                      enum rs_distance distance, bool apart,
                      struct rs_numa_pair *pair)
{
    for (size_t a = 0; a < count; a++) {
        for (size_t b = count - 1; b > a; b--) {
            if (rs_numa_distance(places[a].node, places[b].node) != distance ||
                (apart && places[a].physical == places[b].physical))
                continue;
            *pair = (struct rs_numa_pair){
                .cores = {places[a].core, places[b].core},
                .distance = distance};
            return true;
        }
    }
    return false;
}

static size_t find_pairs(hwloc_topology_t topology, hwloc_const_cpuset_t cores,
                         struct rs_numa_pair *pairs)
{
    int weight = hwloc_bitmap_weight(cores);
    struct place *places;
    size_t count, found = 0;

    if (weight < 2)
        return 0;
    places = malloc((size_t)weight * sizeof(*places));
    if (places == NULL)
        return 0;
    count = find_places(topology, cores, places);
    for (int d = RS_FIRST_HOST_DISTANCE; d < RS_NUM_DISTANCES && count > 0; d++)
        found += find_pair(places, count, d, true, &pairs[found]) ||
                 find_pair(places, count, d, false, &pairs[found]);
    free(places);
    return found;
}

static size_t known_pairs(struct rs_numa_pair *pairs)
{
    hwloc_bitmap_t cores = hwloc_bitmap_alloc();
    hwloc_topology_t topology;
    size_t found = 0;

    if (cores == NULL)
        return 0;
    if (open_topology(&topology, HWLOC_TYPE_FILTER_KEEP_STRUCTURE) == 0) {
        if (hwloc_get_cpubind(topology, cores, HWLOC_CPUBIND_THREAD) == 0)
            found = find_pairs(topology, cores, pairs);
        hwloc_topology_destroy(topology);
    }
    hwloc_bitmap_free(cores);
    return found;
}

#else

static uint64_t find_cache(void)
{
    return 0;
}

static size_t known_pairs(struct rs_numa_pair *pairs)
{
    (void)pairs;
    return 0;
}

int rs_numa_node(unsigned *nodes)
{
    if (nodes != NULL)
        *nodes = 0;
    return RS_NUMA_UNKNOWN;
}

#endif

size_t rs_numa_pairs(struct rs_numa_pair pairs[RS_NUM_HOST_DISTANCES])
{
    size_t found = known_pairs(pairs);
    struct rs_cpus allowed;

    if (found > 0)
        return found;
    if (!rs_cpus_allowed(&allowed) || rs_cpus_count(&allowed) < 2)
        return 0;
    *pairs = (struct rs_numa_pair){
        .cores = {rs_cpus_nth(&allowed, 0), rs_cpus_nth(&allowed, 1)},
        .distance = RS_DISTANCE_OTHER_NUMA};
    return 1;
}

/* ---- either way ---- */

static pthread_once_t node_once = PTHREAD_ONCE_INIT;
static pthread_once_t cache_once = PTHREAD_ONCE_INIT;
static int kept_node;
static uint64_t kept_cache;

static void keep_node(void)
{
    kept_node = rs_numa_node(NULL);
}

static void keep_cache(void)
{
    kept_cache = find_cache();
}

int rs_numa_kept(void)
{
    pthread_once(&node_once, keep_node);
    return kept_node;
}

uint64_t rs_numa_kept_cache(void)
{
    pthread_once(&cache_once, keep_cache);
    return kept_cache;
}
