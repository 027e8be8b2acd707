/* SPDX-License-Identifier: BSD-3-Clause */
/* The settings in force, typed. The table is in config.c. */
#ifndef RS_BASE_CONFIG_H
#define RS_BASE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include <rsched/config.h>

enum rs_log_level { RS_LOG_ERROR, RS_LOG_WARN, RS_LOG_INFO, RS_LOG_DEBUG };

enum rs_config_notify {
    RS_CONFIG_NOTIFY_AUTO,
    RS_CONFIG_NOTIFY_FLAG,
    RS_CONFIG_NOTIFY_ADD,
    RS_CONFIG_NOTIFY_IMM,
};

enum rs_config_trials {
    RS_CONFIG_TRIALS_AUTO,
    RS_CONFIG_TRIALS_YES,
    RS_CONFIG_TRIALS_NO,
};

enum rs_config_stores {
    RS_CONFIG_STORES_AUTO,
    RS_CONFIG_STORES_ORDINARY,
    RS_CONFIG_STORES_NONTEMPORAL,
};

enum rs_config_prefetch {
    RS_CONFIG_PREFETCH_AUTO,
    RS_CONFIG_PREFETCH_YES,
    RS_CONFIG_PREFETCH_NO,
};

enum rs_config_gpu_way {
    RS_CONFIG_GPU_WAY_AUTO,
    RS_CONFIG_GPU_WAY_STAGED,
    RS_CONFIG_GPU_WAY_IPC,
    RS_CONFIG_GPU_WAY_GDRCOPY,
    RS_CONFIG_GPU_WAY_LOOPBACK,
};

enum { RS_GID_AUTO = 255 }; /* the engine chooses */

/* Of a limit: the costs of the ways decide. */
#define RS_LIMIT_AUTO UINT64_MAX

struct rs_config {
    bool disable;            /* RSCHED_DISABLE: the MPI backend passes on */
    uint64_t log_level;      /* RSCHED_LOG_LEVEL: enum rs_log_level */
    const char *node;        /* RSCHED_NODE */
    uint64_t chunk_bytes;    /* RSCHED_CHUNK: longest piece in one slot */
    uint64_t ring_bytes;     /* RSCHED_RING: slots of one edge together; or
                                RS_LIMIT_AUTO */
    uint64_t mapped_bytes;   /* RSCHED_MAPPED: 0: no mapped pages; or
                                RS_LIMIT_AUTO */
    uint64_t cma_bytes;      /* RSCHED_CMA: likewise */
    uint64_t nontemporal_bytes; /* RSCHED_NONTEMPORAL: likewise */
    uint64_t adopt;          /* RSCHED_ADOPT: 0 is never */
    bool huge;               /* RSCHED_HUGE */
    const char *ways;        /* RSCHED_WAYS */
    uint64_t trials;         /* RSCHED_TRIALS: enum rs_config_trials */
    uint64_t slot_stores;    /* RSCHED_SLOT_STORES: enum rs_config_stores */
    uint64_t prefetch;       /* RSCHED_PREFETCH: enum rs_config_prefetch */
    uint64_t gpu_way;        /* RSCHED_GPU_WAY: enum rs_config_gpu_way */
    bool gdrcopy;            /* RSCHED_GDRCOPY */
    bool gpu;                /* RSCHED_GPU: read by the MPI backend */
    bool direct;             /* RSCHED_DIRECT */
    uint64_t notify;         /* RSCHED_NOTIFY: enum rs_config_notify */
    uint64_t ack_timeout;    /* RSCHED_ACK_TIMEOUT: 4.096 us * 2^this */
    bool mlx5;               /* RSCHED_MLX5 */
    const char *devices;     /* RSCHED_DEVICES */
    uint64_t gid_index;      /* RSCHED_GID_INDEX, or RS_GID_AUTO */
    const char *machine;     /* RSCHED_MACHINE */
    const char *planner;     /* RSCHED_PLANNER */
    uint64_t spin_polls;     /* RSCHED_SPIN: polls before yielding */
    uint64_t yield_polls;    /* RSCHED_YIELD: yields before sleeping */
    uint64_t sleep_ps;       /* RSCHED_SLEEP: longest slice of a sleep */
    uint64_t progress_ps;    /* RSCHED_PROGRESS: tick of the safety net */
    uint64_t setup_timeout_ps; /* RSCHED_SETUP_TIMEOUT: 0 is for ever */
    uint64_t destroy_timeout_ps; /* RSCHED_DESTROY_TIMEOUT: likewise */
    uint64_t channels;       /* RSCHED_CHANNELS: read by the MPI backend */
    bool persistent;         /* RSCHED_PERSISTENT: likewise */
    uint64_t report;         /* RSCHED_REPORT: enum in config.c's words */
    const char *report_file; /* RSCHED_REPORT_FILE */
    const char *failpoints;  /* RSCHED_FAILPOINTS */
};

/** What can be said of the environment here: all of rsched_config_check(), but for
 * names of machines and planners. @return 0, RSCHED_EINVAL */
int rs_config_check(void);

/** The settings in force; a setting whose variable was refused by
 * rs_config_check() has its default. Never NULL. */
const struct rs_config *rs_config(void);

/** Whether it is tried out which way is faster (RSCHED_TRIALS), where the costs of
 * the ways are guessed or not. */
static inline bool rs_config_tries(bool guessed)
{
    uint64_t trials = rs_config()->trials;

    return trials == RS_CONFIG_TRIALS_YES ||
           (trials == RS_CONFIG_TRIALS_AUTO && guessed);
}

/** Read a time with its unit, as settings have them ("5ms").
 * @return whether it was one; *ps is written then only. */
bool rs_config_parse_time(const char *text, uint64_t *ps);

/** Have another value than the environment says, in a process that was forked to be
 * measured: before it makes a context, and while it has one thread.
 * @param value stays valid
 * @return whether there is such a setting, and it may be so */
bool rs_config_set(const char *name, const char *value);

/** A hash over the settings that both ends of an edge must agree on. */
uint64_t rs_config_agreement_hash(void);

#endif
