/* SPDX-License-Identifier: BSD-3-Clause */
/* What is wrong with the settings: base knows their table, and nothing of machines
 * and planners. */
#include <rsched/config.h>

#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/plan/planners.h"

static int check_machine(const char *name)
{
    struct rsched_machine *machine;
    int error;

    if (name[0] == '\0')
        return 0;
    error = rsched_machine_open(name, &machine);
    if (error != 0)
        return rs_fail(error == RSCHED_ENOMEM ? error : RSCHED_EINVAL,
                       "RSCHED_MACHINE=%s: %s", name, rsched_last_error());
    rsched_machine_destroy(machine);
    return 0;
}

static int check_planner(const char *name)
{
    const struct rs_planner *planner;

    if (name[0] == '\0' || rs_planner_find(name, &planner) == 0)
        return 0;
    return rs_fail(RSCHED_EINVAL, "RSCHED_PLANNER=%s: %s", name,
                   rsched_last_error());
}

int rsched_config_check(void)
{
    int error = rs_config_check();

    if (error == 0)
        error = check_machine(rs_config()->machine);
    if (error == 0)
        error = check_planner(rs_config()->planner);
    return error;
}
