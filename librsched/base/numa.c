/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/numa.h"

#include <stddef.h>

#ifdef RSCHED_HWLOC

#include <hwloc.h>

/* What tells where memory is, and no more: caches and devices take time to find.
 * (Without groups of cores hwloc may put all memory beside all of them.) */
static int open_topology(hwloc_topology_t *topology)
{
    if (hwloc_topology_init(topology) != 0)
        return -1;
    if (hwloc_topology_set_all_types_filter(
            *topology, HWLOC_TYPE_FILTER_KEEP_STRUCTURE) == 0 &&
        hwloc_topology_load(*topology) == 0)
        return 0;
    hwloc_topology_destroy(*topology);
    return -1;
}

static int find_node(hwloc_topology_t topology, hwloc_const_cpuset_t cores)
{
    hwloc_obj_t node = NULL;

    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE,
                                              node)) != NULL) {
        if (hwloc_bitmap_isincluded(cores, node->cpuset))
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
    if (open_topology(&topology) == 0) {
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

#else

int rs_numa_node(unsigned *nodes)
{
    if (nodes != NULL)
        *nodes = 0;
    return RS_NUMA_UNKNOWN;
}

#endif
