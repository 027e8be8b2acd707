/* SPDX-License-Identifier: BSD-3-Clause */
/* Two processes that take times (tools/pair.h), of which one fails in an epoch that is none
 * for the other: both end, at the same meeting, and one says why. If they do not, this hangs or
 * exits. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "librsched/base/cpus.h"
#include "librsched/base/error.h"
#include "librsched/run/run.h"
#include "tests/runtime/ranks.h"
#include "tools/pair.h"
#include "tools/tool.h"

/* As many epochs as the first two blocks have, and some of the next one. */
enum { EPOCHS = 8, SKIP = 77 };

struct failure {
    struct pair_work work;
    bool waits;   /* it is waits that are measured */
    int side, at; /* which fails, in which wait of its own */
};

/* Of this process, in whose copy it is counted. */
static int left;

int __real_rsched_exchange_wait(struct rsched_exchange *x);
int __wrap_rsched_exchange_wait(struct rsched_exchange *x);

/* As an exchange fails that can go no further: its peer learns of it. */
int __wrap_rsched_exchange_wait(struct rsched_exchange *x)
{
    int error = __real_rsched_exchange_wait(x);

    if (error != 0 || left == 0 || --left > 0)
        return error;
    return rs_exchange_fail(x, rs_fail(RSCHED_ENOMEM, "as the test has it"));
}

static int measure(struct pair *pair, void *arg)
{
    const struct failure *f = arg;
    struct pair_time time;
    double ps;

    left = pair_is_first(pair) == (f->side == 0) ? f->at : 0;
    pair_choose_class(pair, "any");
    return f->waits ? pair_measure_wait(pair, &f->work, &ps)
                    : pair_measure(pair, &f->work, NULL, &time);
}

/* @param[out] said what both have printed on standard error */
static int run(const struct rs_numa_pair *where, struct failure *f, char *said, size_t room)
{
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO), status;

    if (file == NULL || kept < 0 || dup2(fileno(file), STDERR_FILENO) < 0)
        return TOOL_BAD_INPUT;
    status = pair_run(where, measure, f);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    said[fread(said, 1, room - 1, file)] = '\0';
    fclose(file);
    return status;
}

static int check(const struct rs_numa_pair *where, struct failure *f)
{
    char said[1024] = "";
    int failed = 0;

    for (f->side = 0; f->side < 2; f->side++) {
        for (f->at = 1; f->at <= EPOCHS; f->at++) {
            int status = run(where, f, said, sizeof(said));

            if (status == TOOL_FAILED && strcmp(said, "rsched: as the test has it\n") == 0)
                continue;
            failed |= RANK_FAIL("%d B%s%s: side %d fails in wait %d: status %d, and: %s",
                                (int)f->work.bytes[0], f->work.one_way ? ", one way" : "",
                                f->waits ? ", waits" : "", f->side, f->at, status, said);
        }
    }
    return failed;
}

int main(void)
{
    /* Below and above what both begin together. */
    static const uint64_t bytes[] = {64, 4096};
    struct rs_numa_pair where = {.distance = RS_DISTANCE_SAME_NUMA};
    struct rs_cpus allowed;
    int failed = 0;

    if (!rs_cpus_allowed(&allowed) || rs_cpus_count(&allowed) < 2) {
        puts("SKIP: needs two cores");
        return SKIP;
    }
    for (int i = 0; i < 2; i++)
        where.cores[i] = rs_cpus_nth(&allowed, i);
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        for (int kind = 0; kind < 4; kind++) {
            struct failure f = {.work = {.bytes = {bytes[i]}, .messages = 1, .one_way = kind % 2},
                                .waits = kind / 2};

            failed |= check(&where, &f);
        }
    }
    return failed;
}
