/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/plan/planners.h"

#include <stdio.h>
#include <string.h>

#include "librsched/base/error.h"

/* In the order of tables. One line per planner. */
static const struct rs_planner table[] = {
    {{"rr1", "rr%1", "round-robin over 1 engine, in request order", false},
     rs_plan_round_robin, 1, false},
    {{"rr2", "rr%2", "round-robin over 2 engines, in request order", false},
     rs_plan_round_robin, 2, false},
    {{"rr4", "rr%4", "round-robin over 4 engines, in request order", false},
     rs_plan_round_robin, 4, false},
    {{"bl1", "rs%1", "bottom-left, diagonals on 1 engine", false},
     rs_plan_bottom_left, 1, false},
    {{"bl2", "rs%2", "bottom-left, diagonals on 2 engines", false},
     rs_plan_bottom_left, 2, false},
    {{"bl4", "rs%4", "bottom-left, diagonals on 4 engines", false},
     rs_plan_bottom_left, 4, false},
    {{"bl1-seeded", "rs%1+", "bl1, engines seeded with their opening", false},
     rs_plan_bottom_left, 1, true},
    {{"bl2-seeded", "rs%2+", "bl2, engines seeded with their opening", false},
     rs_plan_bottom_left, 2, true},
    {{"bl4-seeded", "rs%4+", "bl4, engines seeded with their opening", false},
     rs_plan_bottom_left, 4, true},
    {{"fllf", "fllf", "the best of many, improved; never worse than those "
                      "above", false},
     rs_plan_fllf, 0, false},
    {{"exact", "exact", "branch and bound from fllf; proves small patterns",
      true},
     rs_plan_exact, 0, false},
};

enum { NUM_PLANNERS = sizeof(table) / sizeof(table[0]) };

const struct rsched_planner *rsched_planner_at(size_t index)
{
    return index < NUM_PLANNERS ? &table[index].shown : NULL;
}

const struct rs_planner *rs_planner_at(size_t index)
{
    return index < NUM_PLANNERS ? &table[index] : NULL;
}

int rs_planner_find(const char *name, const struct rs_planner **planner)
{
    char names[512] = "";
    size_t length = 0;

    for (size_t i = 0; i < NUM_PLANNERS; i++) {
        if (strcmp(table[i].shown.name, name) == 0) {
            *planner = &table[i];
            return 0;
        }
        if (length < sizeof(names))
            length += (size_t)snprintf(names + length, sizeof(names) - length,
                                       "%s%s", i ? " " : "",
                                       table[i].shown.name);
    }
    return rs_fail(RSCHED_ENAME, "no scheduler '%.64s' (there are: %s)", name,
                   names);
}
