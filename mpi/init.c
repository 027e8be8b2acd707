/* SPDX-License-Identifier: BSD-3-Clause */
/* The backend in this process, from MPI_Init to MPI_Finalize. */
#include "mpi/native.h"
#include "mpi/persistent.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "librsched/base/quota.h"

struct rs_process rs_process = {
    .reason = RS_REASON_NO_INIT,
    .comm_keyval = MPI_KEYVAL_INVALID,
    .type_keyval = MPI_KEYVAL_INVALID,
    .log_level = RS_LOG_WARN,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rsched_context *_Atomic context;
static bool context_tried;

/* ---- settings ---- */

const char *rs_setting(const char *name)
{
    const struct rsched_setting *s;

    for (size_t i = 0; (s = rsched_config_setting(i)) != NULL; i++) {
        if (strcmp(s->name, name) == 0)
            return s->value;
    }
    return "";
}

static int position(const char *word, const char *const *words, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(word, words[i]) == 0)
            return i;
    }
    return 0;
}

static bool read_settings(void)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    static const char *const reports[] = {"none", "summary", "full", "json"};
    static const char *const yes[] = {"no", "yes", "1", "on"};

    if (rsched_config_check() != 0)
        return false;
    rs_process.log_level = position(rs_setting("RSCHED_LOG_LEVEL"), levels, 4);
    rs_process.report =
        (enum rs_report_level)position(rs_setting("RSCHED_REPORT"), reports, 4);
    rs_process.report_file = rs_setting("RSCHED_REPORT_FILE");
    rs_process.reason = position(rs_setting("RSCHED_DISABLE"), yes, 4) > 0
                            ? RS_REASON_DISABLED
                            : RS_ACCELERATED;
    rs_process.persistent =
        position(rs_setting("RSCHED_PERSISTENT"), yes, 4) > 0;
    rs_process.gpu = position(rs_setting("RSCHED_GPU"), yes, 4) > 0;
    return true;
}

void rs_log(int level, const char *format, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char line[1200];
    int length;
    va_list args;

    if (level > rs_process.log_level)
        return;
    length = snprintf(line, sizeof(line), "rsched[%d] %s: ", rs_process.rank,
                      names[level]);
    va_start(args, format);
    vsnprintf(line + length, sizeof(line) - (size_t)length, format, args);
    va_end(args);
    /* One call, so that the lines of several processes do not mix. */
    fprintf(stderr, "%s\n", line);
}

/* ---- the context ---- */

RS_NATIVE(Iprobe)

/* Which no message has: notes.c and oob.c have others. A probe that finds one, a
 * note that nobody has read, say, returns without having done anything else. */
enum { NO_TAG = 9 };

static void native_progress(void *arg)
{
    int flag;

    (void)arg;
    rs_flights_progress();
    rs_incarnations_look();
    native_Iprobe(MPI_ANY_SOURCE, NO_TAG, rs_process.comm, &flag,
                  MPI_STATUS_IGNORE);
}

void rs_native_progress(void)
{
    native_progress(NULL);
}

_Atomic unsigned rs_num_quick;

/* It takes as long as some short exchanges, and a look at the time as long as a part
 * of one. What a program computes comes between some two of its calls, though. */
void rs_progress_at_times(void)
{
    enum { WHILE_NS = 20000, CALLS_OF_STEP = 8, QUICK_CALLS = 16 };
    static _Atomic uint64_t last;
    static _Atomic unsigned quick; /* calls since then that looked at the time */
    bool late = rs_process.reason == RS_ACCELERATED && /* and not before or after MPI */
                rs_now_ns() - atomic_load_explicit(&last, memory_order_relaxed) >= WHILE_NS;
    unsigned in_row = late ? 0 : atomic_load_explicit(&quick, memory_order_relaxed) + 1;

    if (late) {
        rs_native_progress();
        atomic_store_explicit(&last, rs_now_ns(), memory_order_relaxed);
    }
    atomic_store_explicit(&quick, in_row, memory_order_relaxed);
    atomic_store_explicit(&rs_num_quick, in_row < CALLS_OF_STEP ? 0 : QUICK_CALLS,
                          memory_order_relaxed);
}

struct rsched_context *rs_context(void)
{
    /* Acquire: the context must be seen with its address. */
    struct rsched_context *made =
        atomic_load_explicit(&context, memory_order_acquire);

    if (made != NULL)
        return made;
    pthread_mutex_lock(&context_lock);
    made = atomic_load_explicit(&context, memory_order_relaxed);
    if (!context_tried) {
        struct rsched_context_params params = {
            .process = rs_process.rank,
            .num_processes = rs_process.size,
            .num_local = rs_process.num_sharing,
            .num_cores = rs_process.num_cores,
            .job = rs_process.job,
            .oob = rs_oob(),
            .host_progress = native_progress,
        };

        context_tried = true;
        if (rsched_context_create(&params, &made) == 0)
            /* Release: pairs with the load above. */
            atomic_store_explicit(&context, made, memory_order_release);
        else
            rs_log(RS_LOG_WARN, "neighborhood collectives are native: %s",
                   rsched_last_error());
    }
    pthread_mutex_unlock(&context_lock);
    return made;
}

bool rs_is_crowded(void)
{
    struct rsched_context *made =
        atomic_load_explicit(&context, memory_order_acquire);
    struct rsched_context_stats stats = {0};

    if (made != NULL)
        rsched_context_get_stats(made, &stats);
    return stats.crowded;
}

/* ---- agreeing with the other processes ---- */

enum { NUM_AGREED = 5 };

/* Agree with all processes; complains when some do not come, which happens
 * when they run without the backend and nothing told us (presence.c). */
static void agree(int values[NUM_AGREED])
{
    MPI_Request request;
    struct timespec now, start;
    bool complained = false;
    int done = 0, mine[NUM_AGREED];

    memcpy(mine, values, sizeof(mine));
    PMPI_Iallreduce(mine, values, NUM_AGREED, MPI_INT, MPI_MAX, MPI_COMM_WORLD,
                    &request);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        PMPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done)
            return;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (!complained && now.tv_sec - start.tv_sec > 10) {
            complained = true;
            rs_log(RS_LOG_WARN,
                   "MPI_Init has waited 10 s for other processes; are all of "
                   "them started with the rsched backend?");
        }
        if (now.tv_sec != start.tv_sec)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* Whoever has the same key, out of a communicator; they stand in the order of ranks. */
static void split_by_key(MPI_Comm *comm, uint64_t key)
{
    MPI_Comm whole = *comm;
    int size, first = 0, num = 0, rank;
    uint64_t *keys;

    PMPI_Comm_rank(whole, &rank);
    PMPI_Comm_size(whole, &size);
    keys = malloc((size_t)size * sizeof(*keys));
    if (keys == NULL) {
        rs_log(RS_LOG_ERROR, "out of memory");
        PMPI_Abort(whole, 1);
        return;
    }
    PMPI_Allgather(&key, 1, MPI_UINT64_T, keys, 1, MPI_UINT64_T, whole);
    while (keys[first] != key)
        first++;
    for (int i = 0; i < size; i++)
        num += keys[i] == key;
    free(keys);
    if (num == size) /* which all see */
        return;
    PMPI_Comm_split(whole, first, rank, comm);
    PMPI_Comm_free(&whole);
}

/* What the kernel drew at random when the machine was booted, which all containers on it
 * see, whatever namespaces they have. NO_BOOT where it cannot be read. */
static const uint64_t NO_BOOT = UINT64_MAX;

static uint64_t boot_key(void)
{
    char id[64] = "";
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, id, sizeof(id));
    uint64_t key = length > 0 ? XXH64(id, (size_t)length, 0) : NO_BOOT;

    if (file >= 0)
        close(file);
    return key;
}

/* Processes of one kernel. A native MPI goes by names of hosts, or by what its launcher
 * was told, so it takes containers of one machine for several. Those that it finds to be
 * on one machine are, though: some containers are given a boot of their own. */
static void find_machine(MPI_Comm *machine)
{
    uint64_t key = boot_key(), least;
    MPI_Comm shared;

    PMPI_Comm_split_type(rs_process.comm, MPI_COMM_TYPE_SHARED, 0,
                         MPI_INFO_NULL, &shared);
    PMPI_Allreduce(&key, &least, 1, MPI_UINT64_T, MPI_MIN, shared);
    if (least == NO_BOOT) {
        key = (uint64_t)rs_process.rank;
        PMPI_Allreduce(&key, &least, 1, MPI_UINT64_T, MPI_MIN, shared);
    }
    PMPI_Comm_free(&shared);
    PMPI_Comm_dup(rs_process.comm, machine);
    split_by_key(machine, least);
}

/* How many may use these cores only. Those whose cores nobody knows are not
 * counted. */
static int count_within(const struct rs_cpus *cores, const struct rs_allowance *all)
{
    int count = 0;

    for (int i = 0; i < rs_process.num_local; i++)
        count += rs_cpus_count(&all[i].cpus) > 0 && rs_cpus_include(cores, &all[i].cpus);
    return count;
}

/* The fullest counts. */
static void note_share(int sharing, int cores)
{
    if (rs_process.num_cores == 0 ||
        sharing * rs_process.num_cores > rs_process.num_sharing * cores) {
        rs_process.num_sharing = sharing;
        rs_process.num_cores = cores;
    }
}

/* Of the sets of cores in which this process's lie the one counts that is shared by
 * most for its size: processes may outnumber one core while others are idle. */
static void find_fullest(const struct rs_cpus *own, const struct rs_allowance *all)
{
    for (int i = 0; i < rs_process.num_local; i++) {
        const struct rs_cpus *cores = &all[i].cpus;

        /* Where nobody is bound all are the same. */
        if (rs_cpus_include(cores, own) &&
            (i == 0 || memcmp(cores, &all[i - 1].cpus, sizeof(*cores)) != 0))
            note_share(count_within(cores, all), rs_cpus_count(cores));
    }
}

/* The same of what a quota gives. (Who has less than one core's time is crowded by
 * himself, and librsched knows that.) */
static void find_least_quota(const struct rs_quotas *own, const struct rs_allowance *all)
{
    for (int i = 0; i < RS_QUOTAS; i++) {
        const struct rs_quota *q = &own->of[i];
        int sharing = 0;

        if (q->group == 0 || q->cores == 0 || q->cores >= RS_MAX_CPUS)
            continue;
        for (int k = 0; k < rs_process.num_local; k++)
            sharing += rs_quotas_include(&all[k].quotas, q->group);
        note_share(sharing, (int)q->cores);
    }
}

/* Launchers bind processes to cores, to one each or to those of a socket, and
 * nothing that a process can look at by itself tells that from a machine, or a part
 * of one, that has no more cores for all of them; and containers may have quotas. So all say
 * what they have. */
static void find_cores(MPI_Comm machine)
{
    enum { WORDS = sizeof(struct rs_allowance) / sizeof(uint64_t) };
    struct rs_allowance own, *all;

    all = calloc((size_t)rs_process.num_local, sizeof(*all));
    if (all == NULL) {
        rs_log(RS_LOG_ERROR, "out of memory");
        PMPI_Abort(machine, 1);
        return;
    }
    rs_process.num_sharing = rs_process.num_local;
    rs_allowance_find(&own);
    PMPI_Allgather(&own, WORDS, MPI_UINT64_T, all, WORDS, MPI_UINT64_T, machine);
    if (rs_cpus_count(&own.cpus) > 0) {
        find_fullest(&own.cpus, all);
        find_least_quota(&own.quotas, all);
    }
    free(all);
}

/* Whom the engines may try to share memory with: those of this machine that RSCHED_NODE
 * does not keep apart. Whether they can is found by trying. */
static void find_node(void)
{
    const char *name = rs_setting("RSCHED_NODE");
    MPI_Comm node;

    find_machine(&node);
    PMPI_Comm_size(node, &rs_process.num_local);
    find_cores(node);
    split_by_key(&node, XXH64(name, strlen(name), 0));
    PMPI_Comm_group(node, &rs_process.local);
    PMPI_Allreduce(&rs_process.rank, &rs_process.node, 1, MPI_INT, MPI_MIN,
                   node);
    PMPI_Comm_free(&node);
}

static void share_job(void)
{
    uint64_t job = 0;

    if (rs_process.rank == 0 &&
        getrandom(&job, sizeof(job), 0) != (ssize_t)sizeof(job))
        job = (uint64_t)time(NULL);
    PMPI_Bcast(&job, 1, MPI_UINT64_T, 0, rs_process.comm);
    rs_process.job = job;
}

/* ---- finalize ---- */

static void backend_fini(void)
{
    enum rs_reason reason = rs_process.reason;

    rs_report();
    rs_process.reason = RS_REASON_NO_INIT;
    if (reason == RS_ACCELERATED) {
        rs_flights_fini();
        rs_request_sweep();
        if (rs_process.persistent) {
            rs_pairs_fini();
            rs_notes_fini();
            rs_names_fini();
        }
        rs_comm_sweep();
        rsched_context_destroy(atomic_load(&context));
        rs_oob_fini();
        rs_flats_fini();
        PMPI_Type_free_keyval(&rs_process.type_keyval);
        PMPI_Comm_free_keyval(&rs_process.comm_keyval);
        rs_topology_fini();
        PMPI_Group_free(&rs_process.world);
        PMPI_Group_free(&rs_process.local);
        PMPI_Comm_free(&rs_process.errors);
    }
    PMPI_Comm_free(&rs_process.comm);
}

/* MPI_Finalize first deletes the attributes of MPI_COMM_SELF, the last one
 * that was set first. Programs clean up in such callbacks, and may use their
 * requests there; ours was set before any of theirs. */
static int self_deleted(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    backend_fini();
    return MPI_SUCCESS;
}

static void call_at_finalize(void)
{
    int keyval;

    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, self_deleted, &keyval,
                            NULL);
    PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
    PMPI_Comm_free_keyval(&keyval); /* when the attribute is gone */
}

/* ---- init ---- */

/* Whether some process runs without the backend: then nothing collective may
 * be called, and everything stays native. */
static bool somebody_missing(void)
{
    bool speaks;
    int missing;

    if (rs_process.size == 1 || !rs_presence_check(&missing, &speaks) ||
        missing < 0)
        return false;
    rs_process.reason = RS_REASON_RANKS;
    if (speaks)
        rs_log(RS_LOG_WARN,
               "process %d of MPI_COMM_WORLD runs without the rsched backend, "
               "so nothing is accelerated (start all of them with `rsched "
               "run`)", missing);
    return true;
}

/* Why point-to-point requests are left to the native MPI. */
static enum rs_reason why_native(bool wanted)
{
    const char *unseen = rs_stacking_unseen();

    if (!wanted)
        return RS_REASON_OFF;
    if (unseen == NULL)
        return RS_ACCELERATED;
    rs_log(RS_LOG_INFO,
           "this MPI library has %s, the one that the backend was built with has "
           "not, so persistent point-to-point requests are native", unseen);
    return RS_REASON_UNSEEN;
}

static void backend_init(void)
{
    MPI_Request nothing = MPI_REQUEST_NULL;
    const char *passed_by = rs_stacking_passed_by();
    int values[NUM_AGREED], level;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rs_process.rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &rs_process.size);
    if (!read_settings()) {
        fprintf(stderr, "rsched: %s\n", rsched_last_error());
        PMPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (somebody_missing())
        return;
    values[0] = rs_process.reason == RS_REASON_DISABLED;
    values[1] = (int)rs_process.report;
    values[2] = passed_by != NULL;
    values[3] = (int)why_native(rs_process.persistent);
    values[4] = !rs_process.gpu;
    agree(values);
    rs_process.report = (enum rs_report_level)values[1];
    PMPI_Comm_dup(MPI_COMM_WORLD, &rs_process.comm);
    call_at_finalize();
    if (values[0]) {
        rs_process.reason = RS_REASON_DISABLED;
        return;
    }
    if (values[2])
        rs_process.requests = RS_REASON_TOOL;
    if (passed_by != NULL)
        rs_log(RS_LOG_WARN,
               "another tool's %s comes before the backend's, so persistent "
               "and nonblocking calls are native: preload the backend first",
               passed_by);
    /* Failures of ours are reported, not fatal. */
    PMPI_Comm_set_errhandler(rs_process.comm, MPI_ERRORS_RETURN);
    PMPI_Comm_dup(MPI_COMM_SELF, &rs_process.errors);
    PMPI_Comm_group(MPI_COMM_WORLD, &rs_process.world);
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, rs_comm_deleted,
                            &rs_process.comm_keyval, NULL);
    rs_topology_init();
    PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, rs_type_deleted,
                            &rs_process.type_keyval, NULL);
    PMPI_Wait(&nothing, &rs_process.empty);
    find_node();
    share_job();
    PMPI_Query_thread(&level);
    rs_process.threads = level == MPI_THREAD_MULTIPLE;
    rs_process.off = (enum rs_reason)values[3];
    rs_process.persistent = rs_process.off == RS_ACCELERATED;
    rs_process.gpu = values[4] == 0;
    if (rs_process.persistent)
        rs_names_init();
}

/* A tool behind us comes here twice, by our MPI_ and our PMPI_ name; what asks whether
 * a process has the backend may be told once only. */
static void before_init(void)
{
    static bool announced;

    if (!announced)
        rs_presence_announce();
    announced = true;
}

static int after_init(int error)
{
    if (error == MPI_SUCCESS && rs_process.reason == RS_REASON_NO_INIT)
        backend_init();
    return error;
}

#define INIT(Name, params, args)                                             \
    RS_NATIVE(Name)                                                          \
    int PMPI_##Name params                                                   \
    {                                                                        \
        before_init();                                                       \
        return after_init(native_##Name args);                               \
    }                                                                        \
    RS_BEHIND(Name)                                                          \
    int MPI_##Name params                                                    \
    {                                                                        \
        before_init();                                                       \
        return after_init(behind_##Name args);                               \
    }

INIT(Init, (int *argc, char ***argv), (argc, argv))
INIT(Init_thread, (int *argc, char ***argv, int required, int *provided),
     (argc, argv, required, provided))
