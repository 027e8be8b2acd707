/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/failpoint.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "librsched/base/clock.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"

enum action { ACTION_KILL, ACTION_STOP, ACTION_DELAY };

enum { POINT_SIZE = 32, MAX_POINTS = 16 };
#define EACH ULONG_MAX

struct failpoint {
    char point[POINT_SIZE];
    unsigned long hit; /* acts at this one, counted from 1, or EACH */
    enum action action;
    uint64_t delay_ps;
    atomic_ulong hits;
};

bool rs_failpoints_armed;

static struct failpoint failpoints[MAX_POINTS];
static size_t num_failpoints;
static pthread_mutex_t arm_lock = PTHREAD_MUTEX_INITIALIZER;

static bool parse_action(const char *text, struct failpoint *f)
{
    if (strcmp(text, "kill") == 0) {
        f->action = ACTION_KILL;
        return true;
    }
    if (strcmp(text, "stop") == 0) {
        f->action = ACTION_STOP;
        return true;
    }
    f->action = ACTION_DELAY;
    return strncmp(text, "delay:", 6) == 0 &&
           rs_config_parse_time(text + 6, &f->delay_ps);
}

static bool parse_number(const char *text, unsigned long *number)
{
    char *end;

    *number = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

/* POINT[@PROCESS][#HIT|#each]=ACTION; `text` is cut up.
 * @param process where it acts, if that is said */
static int parse_failpoint(char *text, struct failpoint *f,
                           unsigned long *process)
{
    char *action = strchr(text, '=');
    char *hit, *at;
    bool good = true;

    if (action == NULL)
        return rs_fail(RSCHED_EINVAL, "RSCHED_FAILPOINTS: %s: no '='", text);
    *action++ = '\0';
    f->hit = 1;
    if ((hit = strchr(text, '#')) != NULL) {
        *hit++ = '\0';
        if (strcmp(hit, "each") == 0)
            f->hit = EACH;
        else
            good = parse_number(hit, &f->hit);
    }
    if ((at = strchr(text, '@')) != NULL) {
        *at++ = '\0';
        good = parse_number(at, process) && good;
    }
    if (!good || *text == '\0' || strlen(text) >= POINT_SIZE || f->hit == 0)
        return rs_fail(RSCHED_EINVAL, "RSCHED_FAILPOINTS: '%s' is not a point",
                       text);
    if (!parse_action(action, f))
        return rs_fail(RSCHED_EINVAL,
                       "RSCHED_FAILPOINTS: %s=%s: not kill, stop or delay:TIME",
                       text, action);
    strcpy(f->point, text);
    return 0;
}

/* @param process whose points become those that are armed, or NULL: none do */
static int read_setting(const char *setting, const unsigned long *process)
{
    struct failpoint one;
    char *copy, *rest;
    int error = 0;

    if (*setting == '\0')
        return 0;
    copy = strdup(setting);
    if (copy == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for failpoints");
    rest = copy;
    for (char *part; error == 0 && (part = strsep(&rest, ",")) != NULL;) {
        struct failpoint *f =
            process == NULL ? &one : &failpoints[num_failpoints];
        unsigned long wanted = process == NULL ? 0 : *process;

        if (num_failpoints == MAX_POINTS)
            error = rs_fail(RSCHED_EINVAL,
                            "RSCHED_FAILPOINTS: more than %d points",
                            MAX_POINTS);
        else
            error = parse_failpoint(part, f, &wanted);
        if (error == 0 && process != NULL && wanted == *process)
            num_failpoints++;
    }
    free(copy);
    return error;
}

int rs_failpoints_check(const char *setting)
{
    return read_setting(setting, NULL);
}

int rs_failpoints_arm(int process)
{
    const char *setting = rs_config()->failpoints;
    unsigned long number = (unsigned long)process;
    int error;

    if (*setting == '\0')
        return 0;
    pthread_mutex_lock(&arm_lock);
    num_failpoints = 0;
    error = read_setting(setting, &number);
    rs_failpoints_armed = error == 0 && num_failpoints > 0;
    pthread_mutex_unlock(&arm_lock);
    return error;
}

void rs_failpoint_hit(const char *point)
{
    for (size_t i = 0; i < num_failpoints; i++) {
        struct failpoint *f = &failpoints[i];
        unsigned long hits;

        if (strcmp(f->point, point) != 0)
            continue;
        hits = atomic_fetch_add(&f->hits, 1) + 1;
        if (f->hit != EACH && f->hit != hits)
            continue;
        if (f->action == ACTION_DELAY)
            rs_clock_sleep(f->delay_ps);
        else
            raise(f->action == ACTION_KILL ? SIGKILL : SIGSTOP);
    }
}
