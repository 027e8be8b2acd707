/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether all processes of MPI_COMM_WORLD run the backend, found out without a
 * call of MPI, which would hang when some do not: through what started them.
 *
 * MPICH: each process puts a key into the process manager's key-value space
 * before MPI_Init, whose barrier makes it visible; a key that is not there
 * afterwards never will be. MPICH does not export its client, so this speaks
 * the PMI-1 wire protocol, lines of words, on the descriptor PMI_FD while the
 * library does not use it. Nobody asks for all keys, unless one is missing: groups of
 * which all processes are here share what they have found.
 *
 * Open MPI: PMIx, whose keys may be put at any time, without a barrier. What is
 * not there after LIMIT counts as missing, so the processes have to agree on
 * who was late (docs/presence.md). */
#include "mpi/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef MPICH_VERSION

#include <errno.h>
#include <poll.h>
#include <unistd.h>

enum { LINE = 1024, REPLY_MS = 5000 };

static bool is_managed;  /* the others will look for our key */
static int manager = -1; /* the descriptor; -1: there is none, or it failed */
static char space[LINE]; /* the name of the key-value space */
/* Until it has answered; MPICH waits for it without a limit, too. One that could not ask in
 * time would not know whether its group waits for it. */
static int reply_ms = REPLY_MS;

/* Read an answer, which is one line: nothing has been asked that another one could
 * come for. */
static bool read_answer(char *answer)
{
    size_t length = 0;

    answer[0] = '\0';
    do {
        struct pollfd wait = {.fd = manager, .events = POLLIN};
        int ready = poll(&wait, 1, reply_ms);
        ssize_t got;

        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return false;
        got = read(manager, answer + length, LINE - 1 - length);
        if (got <= 0)
            return false;
        length += (size_t)got;
        answer[length] = '\0';
    } while (strchr(answer, '\n') == NULL);
    return strchr(answer, '\n') == answer + length - 1;
}

/* Send a line and read the answer, which must begin with `expected`. Who does not get
 * one asks no more: the next one could be that of this line. */
static bool ask(const char *line, const char *expected, char *answer)
{
    size_t length = strlen(line);

    if (manager < 0)
        return false;
    if (write(manager, line, length) != (ssize_t)length || !read_answer(answer)) {
        manager = -1;
        return false;
    }
    return strncmp(answer, expected, strlen(expected)) == 0;
}

/* The value of a word KEY=VALUE of an answer. */
static bool value_of(const char *answer, const char *key, char *value)
{
    const char *at = strstr(answer, key);
    size_t length;

    if (at == NULL)
        return false;
    at += strlen(key);
    length = strcspn(at, " \n");
    memcpy(value, at, length);
    value[length] = '\0';
    return length > 0;
}

/* Only Hydra, MPICH's own process manager, is asked, which sets the third in
 * every process: others may speak another version on that descriptor. */
void rs_presence_announce(void)
{
    const char *descriptor = getenv("PMI_FD"), *rank = getenv("PMI_RANK");
    char line[2 * LINE], answer[LINE];

    if (descriptor == NULL || rank == NULL || getenv("MPI_LOCALNRANKS") == NULL)
        return;
    is_managed = true;
    manager = atoi(descriptor);
    /* The words of an answer come in any order: MPICH 4.2 begins with rc. */
    if (!ask("cmd=init pmi_version=1 pmi_subversion=1\n",
             "cmd=response_to_init ", answer) ||
        strstr(answer, " pmi_version=1 ") == NULL ||
        !ask("cmd=get_my_kvsname\n", "cmd=my_kvsname", answer) ||
        !value_of(answer, "kvsname=", space))
        goto err_no_manager;
    snprintf(line, sizeof(line), "cmd=put kvsname=%s key=rsched-%d value=%s\n",
             space, atoi(rank), rsched_version());
    if (ask(line, "cmd=put_result rc=0", answer)) {
        reply_ms = -1;
        return;
    }
err_no_manager:
    manager = -1;
}

/* The first process without the backend, and the first one with it, of those that
 * have been asked for; the number of all: none. */
struct first {
    int missing, here;
};

static void take_first(struct first *first, struct first other)
{
    if (other.missing < first->missing)
        first->missing = other.missing;
    if (other.here < first->here)
        first->here = other.here;
}

static void ask_for(int begin, int end, struct first *first)
{
    char line[2 * LINE], answer[LINE];

    for (int rank = begin; rank < end; rank++) {
        struct first one = {rs_process.size, rs_process.size};

        snprintf(line, sizeof(line), "cmd=get kvsname=%s key=rsched-%d\n",
                 space, rank);
        if (ask(line, "cmd=get_result rc=0", answer))
            one.here = rank;
        else
            one.missing = rank;
        take_first(first, one);
    }
}

/* No more groups than the smallest of them has processes. */
static int count_groups(void)
{
    int num = 1;

    while ((num + 1) * (num + 1) <= rs_process.size)
        num++;
    return num;
}

/* Its first process; that of the one after the last is the number of all. */
static int begin_of(int group, int num_groups)
{
    return (int)((int64_t)group * rs_process.size / num_groups);
}

static int group_of(int rank, int num_groups)
{
    return (int)((((int64_t)rank + 1) * num_groups - 1) / rs_process.size);
}

/* Put together what the processes of a group have found, all of which have the
 * backend and are here. */
static void share(int begin, int end, struct first *first)
{
    enum { TAG = 0 };
    const int bytes = sizeof(*first);
    struct first other;

    if (rs_process.rank != begin) {
        PMPI_Send(first, bytes, MPI_BYTE, begin, TAG, MPI_COMM_WORLD);
        PMPI_Recv(first, bytes, MPI_BYTE, begin, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    }
    for (int rank = begin + 1; rank < end; rank++) {
        PMPI_Recv(&other, bytes, MPI_BYTE, rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        take_first(first, other);
    }
    for (int rank = begin + 1; rank < end; rank++)
        PMPI_Send(first, bytes, MPI_BYTE, rank, TAG, MPI_COMM_WORLD);
}

/* Who knows that its group is complete asks for one of the groups, and tells the others
 * of its own (docs/presence.md). */
static void ask_for_all(struct first *first)
{
    int num_groups = count_groups();
    int group = group_of(rs_process.rank, num_groups);
    int begin = begin_of(group, num_groups), end = begin_of(group + 1, num_groups);
    int mine = rs_process.rank - begin; /* groups have processes for all groups */

    ask_for(begin, end, first);
    if (first->missing < rs_process.size) {
        ask_for(0, rs_process.size, first);
        return;
    }
    if (mine < num_groups && mine != group)
        ask_for(begin_of(mine, num_groups), begin_of(mine + 1, num_groups), first);
    share(begin, end, first);
}

bool rs_presence_check(int *missing, bool *speaks)
{
    struct first first = {rs_process.size, rs_process.size};

    *missing = manager < 0 ? rs_process.rank : -1;
    *speaks = true;
    if (manager < 0)
        return is_managed;
    ask_for_all(&first);
    if (first.missing < rs_process.size)
        *missing = first.missing;
    *speaks = first.here == rs_process.rank;
    return true;
}

#elif defined(RS_HAVE_PMIX)

#include <dlfcn.h>
#include <pmix.h>
#include <time.h>

/* How long a process may be late in MPI_Init, which ends at about the same
 * time for all. */
enum { LIMIT = 5, POLL_NS = 1000000 };

static struct {
    pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t);
    pmix_status_t (*finalize)(const pmix_info_t *, size_t);
    pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *);
    pmix_status_t (*commit)(void);
    pmix_status_t (*get)(const pmix_proc_t *, const char *,
                         const pmix_info_t *, size_t, pmix_value_t **);
} pmix;

static pmix_proc_t self;

/* The client that Open MPI has loaded, and no other: two clients of different
 * versions in a process would be two processes to the server. */
static bool find_client(void)
{
    void *library = dlopen("libpmix.so.2", RTLD_NOLOAD | RTLD_NOW);
    int (*initialized)(void);

    if (library == NULL)
        return false;
    initialized = (int (*)(void))dlsym(library, "PMIx_Initialized");
    *(void **)&pmix.init = dlsym(library, "PMIx_Init");
    *(void **)&pmix.finalize = dlsym(library, "PMIx_Finalize");
    *(void **)&pmix.put = dlsym(library, "PMIx_Put");
    *(void **)&pmix.commit = dlsym(library, "PMIx_Commit");
    *(void **)&pmix.get = dlsym(library, "PMIx_Get");
    dlclose(library); /* Open MPI keeps it */
    return initialized != NULL && pmix.init != NULL && pmix.finalize != NULL &&
           pmix.put != NULL && pmix.commit != NULL && pmix.get != NULL &&
           initialized() && pmix.init(&self, NULL, 0) == PMIX_SUCCESS;
}

static bool tell(const char *key, int number)
{
    pmix_value_t value = {.type = PMIX_INT};

    value.data.integer = number;
    return pmix.put(PMIX_GLOBAL, key, &value) == PMIX_SUCCESS &&
           pmix.commit() == PMIX_SUCCESS;
}

/* What process `rank` told under a key; false when it has not within `limit`
 * seconds, 0: as long as it takes. */
static bool hear(int rank, const char *key, int limit, int *number)
{
    pmix_proc_t peer = self;
    pmix_info_t timeout = {.value = {.type = PMIX_INT}};
    struct timespec start, now;

    peer.rank = (pmix_rank_t)rank;
    snprintf(timeout.key, sizeof(timeout.key), "%s", PMIX_TIMEOUT);
    timeout.value.data.integer = 1;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        pmix_value_t *value = NULL;

        if (pmix.get(&peer, key, &timeout, 1, &value) == PMIX_SUCCESS &&
            value != NULL && value->type == PMIX_INT) {
            *number = value->data.integer;
            free(value);
            return true;
        }
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (limit == 0 || now.tv_sec - start.tv_sec < limit);
    return false;
}

void rs_presence_announce(void)
{
}

/* The first of two missing processes; -1 is none. */
static int first_of(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* What this process and those below it in a binary tree know: the first process
 * that is missing, or -1. */
static int gather(void)
{
    int missing = -1;

    for (int child = 2 * rs_process.rank + 1;
         child <= 2 * rs_process.rank + 2 && child < rs_process.size; child++) {
        int here, below;

        if (!hear(child, "rsched.here", LIMIT, &here))
            missing = first_of(missing, child);
        else if (hear(child, "rsched.below", 0, &below))
            missing = first_of(missing, below);
    }
    return missing;
}

bool rs_presence_check(int *missing, bool *speaks)
{
    int here, mine;
    bool root;

    *missing = -1;
    *speaks = rs_process.rank == 0;
    if (!find_client())
        return false;
    if (!tell("rsched.here", 1)) {
        pmix.finalize(NULL, 0);
        return false;
    }
    root = hear(0, "rsched.here", LIMIT, &here);
    mine = gather();
    tell("rsched.below", root || mine >= 0 ? mine : 0);
    if (!root) {
        *missing = 0;
        *speaks = !hear((rs_process.rank - 1) / 2, "rsched.here", 1, &here);
    } else if (rs_process.rank == 0) {
        *missing = mine;
        tell("rsched.verdict", mine);
    } else {
        hear(0, "rsched.verdict", 0, missing);
    }
    pmix.finalize(NULL, 0);
    return true;
}

#else /* an MPI that we know no such way of */

void rs_presence_announce(void)
{
}

bool rs_presence_check(int *missing, bool *speaks)
{
    *missing = -1;
    *speaks = false;
    return false;
}

#endif
