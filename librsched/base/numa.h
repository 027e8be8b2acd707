/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * On which NUMA node a process runs, by hwloc, and so how far two processes of a
 * node are apart; and how much fits into its last cache. Numbers are the operating system's: they mean the same in all
 * containers of a machine.
 */
#ifndef RS_BASE_NUMA_H
#define RS_BASE_NUMA_H

#include <stddef.h>

#include "librsched/base/ways.h"

/* The cores belong to several NUMA nodes, or the library was built without
 * hwloc. */
enum { RS_NUMA_UNKNOWN = -1 };

/**
 * The NUMA node to which all cores belong that the calling thread may run on, as
 * of now: of several with the same cores the first. Memory beside the cores of
 * several nodes is nobody's node. Looks through the machine, which takes some
 * milliseconds on a large one. HWLOC_SYNTHETIC and HWLOC_XMLFILE put another
 * machine in its place; HWLOC_THISSYSTEM=1 has to say then that the numbers of its
 * cores are those that threads are bound to.
 *
 * @param nodes how many there are is stored here, 0 if that is not known;
 *              may be NULL
 */
int rs_numa_node(unsigned *nodes);

/** The same without the number of nodes, as of the first call in the process. */
int rs_numa_kept(void);

/**
 * The bytes of the last cache before memory, of one of the cores that the calling
 * thread may run on, as of the first call in the process. Other cores may share it.
 *
 * @return 0 if it is not known
 */
uint64_t rs_numa_kept_cache(void);

/* Two cores by the numbers of the operating system, and how far they are apart. */
struct rs_numa_pair {
    int cores[2];
    enum rs_distance distance;
};

/**
 * A pair of cores for each distance that there is between the cores that the
 * calling thread may run on, the nearest first. One on which nothing can be
 * known of the distance is far. Cores of one NUMA node are not hardware threads
 * of one core if there are others; of those of two the first and the last are
 * taken, which are the farthest by most numberings.
 *
 * @return how many; 0 if there are no two cores
 */
size_t rs_numa_pairs(struct rs_numa_pair pairs[RS_NUM_HOST_DISTANCES]);

/** Of processes on these nodes. What is not known counts as far. */
static inline enum rs_distance rs_numa_distance(int a, int b)
{
    return a == b && a != RS_NUMA_UNKNOWN ? RS_DISTANCE_SAME_NUMA
                                          : RS_DISTANCE_OTHER_NUMA;
}

#endif
