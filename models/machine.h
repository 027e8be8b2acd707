/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's inside. */
#ifndef RS_MODELS_MACHINE_H
#define RS_MODELS_MACHINE_H

#include <stdatomic.h>

#include <rsched/machine.h>

#include "librsched/base/names.h"
#include "librsched/base/sources.h"
#include "librsched/base/ways.h"
#include "librsched/base/yaml.h"
#include "models/topology.h"

enum { RS_ENGINES_MOST = 1024 };

struct rsched_machine {
    atomic_uint holders; /* the maker and every schedule; see destroy */
    char *name;
    char *label; /* see rs_machine_label() */
    char *description; /* "" when there is none */
    char *path;
    struct rsched_machine_costs costs;
    struct rs_names link_names;
    struct rsched_link *links; /* by number in link_names */
    size_t num_links;
    struct rs_names directions;
    struct rsched_route *routes; /* by number in directions */
    size_t num_routes;
    struct rsched_rail *rails; /* with routes and links of their own */
    size_t num_rails;
    bool has_rails; /* they were given, or are those of the topology */
    bool generated; /* links, routes and rails are those of the topology */
    struct rs_topology_spec topology;
    struct rs_ways ways; /* none given: the file says nothing of them */
    bool has_sources;
    struct rs_sources sources;
};

/** What errors and pictures call it: the file that it was read from, or the name
 * of a built-in machine. Its own name may be that of the machine it extends. */
const char *rs_machine_label(const struct rsched_machine *machine);

/** The topology; of type RS_TOPOLOGY_NONE when there is none. */
const struct rs_topology_spec *
rs_machine_topology(const struct rsched_machine *machine);

/** Read a rate, or the word "unlimited". An absent key (NULL) leaves the value
 * alone. @return 0, RSCHED_EPARSE */
int rs_machine_read_capacity(const struct rs_yaml *yaml,
                             const struct rs_yaml_node *node,
                             const char *what, uint64_t *capacity);

/** Read a time of at most 1 s. An absent key (NULL) leaves the value alone.
 * @return 0, RSCHED_EPARSE */
int rs_machine_read_time(const struct rs_yaml *yaml,
                         const struct rs_yaml_node *node, const char *what,
                         uint64_t *ps);

/** Read the value of `topology`. @return 0, RSCHED_EPARSE */
int rs_machine_read_topology(const struct rs_yaml *yaml,
                             const struct rs_yaml_node *node,
                             struct rs_topology_spec *spec);

/** Fill in the link classes and routes of one node of the machine's topology.
 * @return 0, RSCHED_ENOMEM */
int rs_machine_generate(struct rsched_machine *machine);

/** Read the value of `rails`, or, when that is NULL, make the one rail of all
 * engines. Links, routes and costs are there already.
 * @return 0, RSCHED_EPARSE, RSCHED_ENOMEM */
int rs_machine_read_rails(const struct rs_yaml *yaml,
                          const struct rs_yaml_node *node,
                          struct rsched_machine *machine);

/** Make rails, each with its own link only: rail k has link k.
 * @return 0, RSCHED_ENOMEM */
int rs_machine_make_rails(struct rsched_machine *machine, size_t count);

/** Write what rs_machine_read_rails() reads. */
void rs_machine_write_rails(const struct rsched_machine *machine, FILE *out);

/** Read a list of links of which each stands there once.
 * @param links filled; has room for all of them
 * @return 0, RSCHED_EPARSE */
int rs_machine_read_way(const struct rs_yaml *yaml,
                        const struct rs_yaml_node *node,
                        const struct rsched_machine *machine,
                        const char *what, uint32_t *links, size_t *num_links);

/** Write names of links: "[a, b]". */
void rs_machine_write_way(const struct rsched_machine *machine,
                          const uint32_t *links, size_t num_links, FILE *out);

/** Write what rs_machine_read_topology() reads, as one line. */
void rs_machine_write_topology(const struct rs_topology_spec *spec, FILE *out);

/** Become another holder: every one calls rsched_machine_destroy(). */
struct rsched_machine *rs_machine_hold(struct rsched_machine *machine);

#endif
