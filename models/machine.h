/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's inside. */
#ifndef RS_MODELS_MACHINE_H
#define RS_MODELS_MACHINE_H

#include <stdatomic.h>

#include <rsched/machine.h>

#include "librsched/base/names.h"

enum { RS_ENGINES_MOST = 1024 };

struct rsched_machine {
    atomic_uint holders; /* the maker and every schedule; see destroy */
    char *name;
    char *description; /* "" when there is none */
    char *path;
    struct rsched_machine_costs costs;
    struct rs_names link_names;
    struct rsched_link *links; /* by number in link_names */
    size_t num_links;
    struct rs_names directions;
    struct rsched_route *routes; /* by number in directions */
    size_t num_routes;
};

/** Become another holder: every one calls rsched_machine_destroy(). */
struct rsched_machine *rs_machine_hold(struct rsched_machine *machine);

#endif
