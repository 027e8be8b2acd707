/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/config.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "librsched/base/error.h"
#include "librsched/base/failpoint.h"

enum kind {
    KIND_BOOL,
    KIND_BYTES,
    KIND_LIMIT, /* bytes, or "auto" */
    KIND_COUNT,
    KIND_TIME,
    KIND_TEXT,
    KIND_DEVICES,
    KIND_POINTS,
    KIND_WORD
};

struct entry {
    struct rsched_setting shown; /* value and origin are filled in */
    enum kind kind;
    size_t offset;
    uint64_t least, most;
    bool agreed; /* both ends of an edge must have the same value; only for
                    kinds whose field is a uint64_t */
};

static struct rs_config config;

#define FIELD(f) offsetof(struct rs_config, f)

/* Types of KIND_WORD list their words; the value is the word's position. */
static struct entry table[] = {
    {{"RSCHED_DISABLE", 0, "no", 0, "yes/no",
      "pass every MPI call on to the native MPI"},
     KIND_BOOL, FIELD(disable), 0, 1, false},
    {{"RSCHED_LOG_LEVEL", 0, "warn", 0, "error|warn|info|debug",
      "which messages are printed on standard error"},
     KIND_WORD, FIELD(log_level), 0, 0, false},
    {{"RSCHED_NODE", 0, "", 0, "text",
      "name of a node of its own that the process pretends to be on: it shares "
      "nothing with processes that have another one"},
     KIND_TEXT, FIELD(node), 0, 0, false},
    {{"RSCHED_CHUNK", 0, "64k", 0, "bytes",
      "longest piece of an edge that one landing slot holds"},
     KIND_BYTES, FIELD(chunk_bytes), 64, 1 << 26, true},
    {{"RSCHED_RING", 0, "auto", 0, "bytes|auto",
      "landing slots of one edge together; longer epochs are pipelined; auto: 512k, or "
      "more while a process has less than twice a core's cache in all"},
     KIND_LIMIT, FIELD(ring_bytes), 128, 1 << 30, true},
    {{"RSCHED_MAPPED", 0, "auto", 0, "bytes|auto",
      "shortest edge that is copied once, straight out of the sender's memory "
      "where that can be mapped; auto: by the costs of the ways; 0: none is"},
     KIND_LIMIT, FIELD(mapped_bytes), 0, RS_LIMIT_AUTO - 1, true},
    {{"RSCHED_CMA", 0, "auto", 0, "bytes|auto",
      "shortest edge whose memory the kernel reads (cross-memory attach) where "
      "it cannot be mapped, blocks from 2 KiB on; auto: by the costs of the ways; 0: none"},
     KIND_LIMIT, FIELD(cma_bytes), 0, RS_LIMIT_AUTO - 1, true},
    {{"RSCHED_NONTEMPORAL", 0, "auto", 0, "bytes|auto",
      "from how many bytes on that an epoch brings to a process what is copied "
      "once is written by non-temporal stores, past the caches; auto: by the "
      "costs of the ways; 0: never"},
     KIND_LIMIT, FIELD(nontemporal_bytes), 0, RS_LIMIT_AUTO - 1, true},
    {{"RSCHED_ADOPT", 0, "4", 0, "count",
      "in which start of what is loaded whole pages of send buffers are moved "
      "in place to where neighbors can map them, if their owner has offered "
      "them, as librsched-heap.so does for malloc; 0: in none. Who sets it, to 4 "
      "too, promises that the program maps nothing over its send buffers "
      "(docs/adopted.md), and nobody looks"},
     KIND_COUNT, FIELD(adopt), 0, UINT32_MAX, false},
    {{"RSCHED_HUGE", 0, "yes", 0, "yes/no",
      "put ordinary send buffers into huge pages, out of which the kernel reads "
      "them faster, once that would have saved what it costs, by the costs of "
      "the ways"},
     KIND_BOOL, FIELD(huge), 0, 1, false},
    {{"RSCHED_WAYS", 0, "", 0, "text",
      "machine file with what the ways within a node cost (rsched probe writes "
      "one); empty is RSCHED_MACHINE if it says so, else built in"},
     KIND_TEXT, FIELD(ways), 0, 0, false},
    {{"RSCHED_TRIALS", 0, "auto", 0, "auto|yes|no",
      "try out now and then whether a message of ordinary memory, or of short "
      "blocks, is copied faster in one copy or in two, and take that way; auto: where "
      "the costs of the ways are built in"},
     KIND_WORD, FIELD(trials), 0, 0, false},
    {{"RSCHED_SLOT_STORES", 0, "auto", 0, "auto|ordinary|nontemporal",
      "how a sender writes 4 KiB or more into slots, or into memory out of which the "
      "receiver copies what is packed: non-temporal stores are faster between cores "
      "that share no cache, and slower between others; auto: what is found by trying "
      "(unless RSCHED_TRIALS is no)"},
     KIND_WORD, FIELD(slot_stores), 0, 0, false},
    {{"RSCHED_PREFETCH", 0, "auto", 0, "auto|yes|no",
      "have more lines of a message under way at a time that is copied once, out of the "
      "sender's memory, where all its blocks have 2 KiB or more: on processors of Intel "
      "(AVX-512 and FSRM) lines are asked for in advance, on those of AMD (AVX2) lines of "
      "three parts are copied in turn, also within a process and past the caches; auto: where "
      "that is found to be faster by trying, from 16 KiB on (on Intel to 1 MiB; unless "
      "RSCHED_TRIALS is no), and on AMD untried where both processes copy a message"},
     KIND_WORD, FIELD(prefetch), 0, 0, false},
    {{"RSCHED_GPU_WAY", 0, "auto", 0,
     "auto|staged|cuda-ipc|gdrcopy|gdr-loopback",
      "the way of messages with an end in GPU memory within a node, and an error "
      "where it is not possible; auto: the cheapest one that is; between nodes "
      "staged keeps devices away from GPU memory"},
     KIND_WORD, FIELD(gpu_way), 0, 0, false},
    {{"RSCHED_GDRCOPY", 0, "yes", 0, "yes/no",
      "let processors copy out of and into GPU memory with GDRCopy, where its "
      "library and kernel module are and the costs of the ways say so"},
     KIND_BOOL, FIELD(gdrcopy), 0, 1, false},
    {{"RSCHED_GPU", 0, "yes", 0, "yes/no",
      "carry neighborhood collectives with buffers in GPU memory, if it is yes "
      "in all processes; else they are the native MPI's"},
     KIND_BOOL, FIELD(gpu), 0, 1, false},
    {{"RSCHED_DIRECT", 0, "yes", 0, "yes/no",
      "let messages longer than a chunk go straight into receive buffers, "
      "where an engine between nodes can"},
     KIND_BOOL, FIELD(direct), 0, 1, false},
    {{"RSCHED_NOTIFY", 0, "auto", 0, "auto|flag|add|imm",
      "how a sender over RDMA says that data is there: it writes a flag, adds "
      "atomically to a counter, or sends an immediate; auto: by what the "
      "receiver's device can do"},
     KIND_WORD, FIELD(notify), 0, 0, false},
    {{"RSCHED_ACK_TIMEOUT", 0, "18", 0, "exponent",
      "how long a queue pair waits for an acknowledgment before it sends again: "
      "4.096 us times 2 to the power of this; six retries make a dead peer. More "
      "where rails are slow: what is in flight both ways must fit"},
     KIND_COUNT, FIELD(ack_timeout), 1, 31, false},
    {{"RSCHED_MLX5", 0, "no", 0, "yes/no",
      "drive the queue pairs of mlx5 devices by ready-made commands in place of "
      "libibverbs (compiled and tested without such a device, not run on one)"},
     KIND_BOOL, FIELD(mlx5), 0, 1, false},
    {{"RSCHED_DEVICES", 0, "", 0, "devices",
      "RDMA devices that are used as rails, in this order: DEVICE[:PORT],...; "
      "process p takes group p of several, separated by slashes; empty is all"},
     KIND_DEVICES, FIELD(devices), 0, 0, false},
    {{"RSCHED_GID_INDEX", 0, "255", 0, "count",
      "GID of RoCE ports; 255 chooses: RoCE v2 and IPv4 first"},
     KIND_COUNT, FIELD(gid_index), 0, RS_GID_AUTO, false},
    {{"RSCHED_MACHINE", 0, "", 0, "text",
      "machine, a file or a built-in name, that exchanges without a schedule "
      "are planned for; empty is a host, with an engine for each rail"},
     KIND_TEXT, FIELD(machine), 0, 0, false},
    {{"RSCHED_PLANNER", 0, "", 0, "text",
      "planner of exchanges without a schedule; empty is bl4 for a host of one "
      "engine, else fllf"},
     KIND_TEXT, FIELD(planner), 0, 0, false},
    {{"RSCHED_SPIN", 0, "2000", 0, "count",
      "polls in a wait before it yields the core (fewer when processes "
      "outnumber cores, or what a quota gives them)"},
     KIND_COUNT, FIELD(spin_polls), 0, UINT32_MAX, false},
    {{"RSCHED_YIELD", 0, "2000", 0, "count",
      "yields in a wait before it sleeps (fewer when processes outnumber "
      "cores, or what a quota gives them)"},
     KIND_COUNT, FIELD(yield_polls), 0, UINT32_MAX, false},
    {{"RSCHED_SLEEP", 0, "4ms", 0, "time",
      "longest slice of a sleep, after which failures and native progress are "
      "looked at"},
     KIND_TIME, FIELD(sleep_ps), 1000000, 1000000000000, false},
    {{"RSCHED_PROGRESS", 0, "1ms", 0, "time",
      "tick of the thread that moves what start could not, four times as long while it finds nothing to "
      "move; 0 for no thread, then only calls of rsched do"},
     KIND_TIME, FIELD(progress_ps), 0, 1000000000000, false},
    {{"RSCHED_SETUP_TIMEOUT", 0, "60s", 0, "time",
      "longest wait for a neighbor in a round of making an exchange, which gives each later round up to a "
      "second more, 0 for ever"},
     KIND_TIME, FIELD(setup_timeout_ps), 0, UINT64_MAX, false},
    {{"RSCHED_DESTROY_TIMEOUT", 0, "60s", 0, "time",
      "how long who destroys an exchange or a context waits for a neighbor that takes "
      "none of the immediates (RSCHED_NOTIFY) that tell it what was sent, 0 for ever; a "
      "process that has stopped while it writes receive buffers is waited for in any case, "
      "with a warning then"},
     KIND_TIME, FIELD(destroy_timeout_ps), 0, UINT64_MAX, false},
    {{"RSCHED_CHANNELS", 0, "2", 0, "count",
      "nonblocking neighborhood collectives of a communicator that move at "
      "once, each needs landing slots; 0 passes them on to the native MPI"},
     KIND_COUNT, FIELD(channels), 0, 64, false},
    {{"RSCHED_PERSISTENT", 0, "yes", 0, "yes/no",
      "carry persistent point-to-point requests within a node through shared "
      "memory, if it is yes in all processes"},
     KIND_BOOL, FIELD(persistent), 0, 1, false},
    {{"RSCHED_REPORT", 0, "none", 0, "none|summary|full|json",
      "what the MPI backend prints in MPI_Finalize"},
     KIND_WORD, FIELD(report), 0, 0, false},
    {{"RSCHED_REPORT_FILE", 0, "", 0, "text",
      "where the report goes; empty is standard error"},
     KIND_TEXT, FIELD(report_file), 0, 0, false},
    {{"RSCHED_FAILPOINTS", 0, "", 0, "points",
      "for tests: POINT[@PROCESS][#HIT]=kill|stop|delay:TIME, separated by "
      "commas"},
     KIND_POINTS, FIELD(failpoints), 0, 0, false},
};

enum { NUM_SETTINGS = sizeof(table) / sizeof(table[0]) };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char complaint[512];

/* The first thing that is wrong is the one that is told. */
__attribute__((format(printf, 1, 2))) static void complain(const char *format,
                                                           ...)
{
    va_list args;

    if (complaint[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(complaint, sizeof(complaint), format, args);
    va_end(args);
}

static bool parse_word(const char *words, const char *text, uint64_t *value)
{
    size_t length = strlen(text);
    uint64_t position = 0;

    for (const char *word = words;; position++) {
        size_t n = strcspn(word, "|");
        if (n == length && memcmp(word, text, n) == 0) {
            *value = position;
            return true;
        }
        if (word[n] == '\0')
            return false;
        word += n + 1;
    }
}

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit byte_units[] = {
    {"", 1}, {"k", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {NULL, 0}};
static const struct unit count_units[] = {{"", 1}, {NULL, 0}};
static const struct unit time_units[] = {{"ps", 1},
                                         {"ns", 1000},
                                         {"us", 1000000},
                                         {"ms", 1000000000},
                                         {"s", 1000000000000},
                                         {NULL, 0}};

static bool parse_number(const char *text, const struct unit *units,
                         uint64_t *value)
{
    unsigned long long number;
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    number = strtoull(text, &end, 10);
    if (errno != 0)
        return false;
    if (number == 0 && *end == '\0') {
        *value = 0;
        return true;
    }
    for (; units->name != NULL; units++) {
        if (strcmp(units->name, end) == 0)
            return !__builtin_mul_overflow((uint64_t)number, units->factor,
                                           value);
    }
    return false;
}

bool rs_config_parse_time(const char *text, uint64_t *ps)
{
    uint64_t value;

    if (!parse_number(text, time_units, &value))
        return false;
    *ps = value;
    return true;
}

static bool parse_bool(const char *text, bool *value)
{
    static const char *const words[] = {"no", "yes", "0", "1", "off", "on"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(words[i], text) == 0) {
            *value = i % 2 != 0;
            return true;
        }
    }
    return false;
}

/* DEVICE[:PORT] */
static bool is_device(const char *text, size_t length)
{
    const char *colon = memchr(text, ':', length);
    size_t name = colon == NULL ? length : (size_t)(colon - text);

    return name > 0 && (colon == NULL || (name + 1 < length &&
                                          strspn(colon + 1, "0123456789") ==
                                              length - name - 1));
}

/* Of a group that is empty all devices are meant. */
static bool are_devices(const char *text)
{
    for (bool begins = true;;) {
        size_t length = strcspn(text, ",/");
        char end = text[length];

        if (!is_device(text, length) && !(length == 0 && begins && end != ','))
            return false;
        if (end == '\0')
            return true;
        begins = end == '/';
        text += length + 1;
    }
}

static bool set_value(const struct entry *entry, const char *text)
{
    char *field = (char *)&config + entry->offset;
    uint64_t number = 0;
    bool good;

    switch (entry->kind) {
    case KIND_BOOL:
        return parse_bool(text, (bool *)field);
    case KIND_TEXT:
    case KIND_DEVICES:
    case KIND_POINTS:
        if ((entry->kind == KIND_DEVICES && !are_devices(text)) ||
            (entry->kind == KIND_POINTS && rs_failpoints_check(text) != 0))
            return false;
        *(const char **)field = text;
        return true;
    case KIND_WORD:
        good = parse_word(entry->shown.type, text, &number);
        break;
    case KIND_LIMIT:
        if (strcmp(text, "auto") == 0) {
            *(uint64_t *)field = RS_LIMIT_AUTO;
            return true;
        }
        /* fall through */
    case KIND_BYTES:
        good = parse_number(text, byte_units, &number);
        break;
    case KIND_COUNT:
        good = parse_number(text, count_units, &number);
        break;
    default:
        good = parse_number(text, time_units, &number);
        break;
    }
    if (entry->kind != KIND_WORD)
        good = good && number >= entry->least && number <= entry->most;
    if (good)
        *(uint64_t *)field = number;
    return good;
}

/* In the largest unit in which it is whole. */
static size_t write_number(uint64_t value, const struct unit *units, char *text,
                           size_t size)
{
    const char *name = "";
    uint64_t factor = 1;

    for (; units->name != NULL && value > 0; units++) {
        if (value % units->factor == 0) {
            name = units->name;
            factor = units->factor;
        }
    }
    return (size_t)snprintf(text, size, "%llu%s",
                            (unsigned long long)(value / factor), name);
}

/* What a user may write instead of a value that was refused. */
static void describe_allowed(const struct entry *entry, char *text, size_t size)
{
    const char *type = entry->shown.type;
    const struct unit *units = byte_units;
    size_t n;

    switch (entry->kind) {
    case KIND_BYTES:
        type = "whole bytes, with k, M or G for powers of 1024";
        break;
    case KIND_LIMIT:
        type = "auto, or whole bytes, with k, M or G for powers of 1024";
        break;
    case KIND_COUNT:
        type = "a whole number";
        units = count_units;
        break;
    case KIND_TIME:
        type = "a whole number with a unit (ps, ns, us, ms, s)";
        units = time_units;
        break;
    default:
        snprintf(text, size, "%s", type);
        return;
    }
    n = (size_t)snprintf(text, size, "%s", type);
    if (entry->most >= RS_LIMIT_AUTO - 1) /* nobody reaches it */
        return;
    n += (size_t)snprintf(text + n, size - n, ", from ");
    n += write_number(entry->least, units, text + n, size - n);
    n += (size_t)snprintf(text + n, size - n, " to ");
    write_number(entry->most, units, text + n, size - n);
}

/* The program may change its environment later; the copy stays if *used says so. Not by
 * malloc(): the environment is read once, and that would have failed for good.
 * @return NULL: too long */
static const char *copy_text(const char *text, size_t *used)
{
    enum { MOST = 64 << 10 };
    static char texts[MOST];
    const size_t bytes = strlen(text) + 1;

    return bytes > MOST - *used ? NULL : memcpy(texts + *used, text, bytes);
}

static void read_entry(struct entry *entry, size_t *used)
{
    const char *variable = getenv(entry->shown.name), *text;
    char allowed[128];

    set_value(entry, entry->shown.initial);
    entry->shown.value = entry->shown.initial;
    entry->shown.origin = "default";
    if (variable == NULL)
        return;
    text = copy_text(variable, used);
    if (text == NULL) {
        complain("%s=%.100s: too long", entry->shown.name, variable);
    } else if (set_value(entry, text)) {
        *used += strlen(text) + 1;
        entry->shown.value = text;
        entry->shown.origin = "environment";
    } else {
        describe_allowed(entry, allowed, sizeof(allowed));
        complain("%s=%.100s: not a valid value (%s): %s", entry->shown.name,
                 text, allowed, entry->shown.help);
    }
}

static bool is_setting(const char *variable, size_t length)
{
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        if (strlen(table[i].shown.name) == length &&
            memcmp(table[i].shown.name, variable, length) == 0)
            return true;
    }
    return false;
}

/* What module files of clusters set for a package that is called so. */
static bool is_of_a_module(const char *variable, size_t length)
{
    static const char *const names[] = {
        "ROOT", "HOME", "DIR", "BASE", "PREFIX", "PATH", "BIN", "LIB", "LIBRARY",
        "INC",  "INCLUDE", "VERSION"};
    const size_t prefix = strlen("RSCHED_");

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (prefix + strlen(names[i]) == length &&
            memcmp(names[i], variable + prefix, length - prefix) == 0)
            return true;
    }
    return false;
}

static void read_environment(void)
{
    size_t used = 0;

    for (size_t i = 0; i < NUM_SETTINGS; i++)
        read_entry(&table[i], &used);
    for (char **v = environ; v != NULL && *v != NULL; v++) {
        size_t length = strcspn(*v, "=");

        if (strncmp(*v, "RSCHED_", 7) == 0 && !is_setting(*v, length) &&
            !is_of_a_module(*v, length))
            complain("%.*s: there is no such setting (rsched info --config "
                     "lists them)",
                     length < 100 ? (int)length : 100, *v);
    }
}

int rs_config_check(void)
{
    pthread_once(&once, read_environment);
    if (complaint[0] != '\0')
        return rs_fail(RSCHED_EINVAL, "%s", complaint);
    return 0;
}

const struct rsched_setting *rsched_config_setting(size_t index)
{
    pthread_once(&once, read_environment);
    return index < NUM_SETTINGS ? &table[index].shown : NULL;
}

const struct rs_config *rs_config(void)
{
    pthread_once(&once, read_environment);
    return &config;
}

bool rs_config_set(const char *name, const char *value)
{
    pthread_once(&once, read_environment);
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        if (strcmp(table[i].shown.name, name) != 0)
            continue;
        if (!set_value(&table[i], value))
            return false;
        table[i].shown.value = value;
        table[i].shown.origin = "program";
        return true;
    }
    return false;
}

uint64_t rs_config_agreement_hash(void)
{
    uint64_t hash = 0;

    pthread_once(&once, read_environment);
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        const struct entry *entry = &table[i];

        /* The value, not its text: 32k and 32768 agree. */
        if (entry->agreed)
            hash = XXH64((const char *)&config + entry->offset,
                         sizeof(uint64_t), hash);
    }
    return hash;
}
