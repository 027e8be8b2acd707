/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Settings. Each is an environment variable RSCHED_*; `rsched info --config`
 * prints all of them with value, origin, default and help. A wrong value is an
 * error of the first call that needs the settings, never ignored; so is an
 * RSCHED_* variable that does not exist, but for those that module files of
 * clusters set: RSCHED_ followed by ROOT, HOME, DIR, BASE, PREFIX, PATH, BIN, LIB,
 * LIBRARY, INC, INCLUDE or VERSION, which mean nothing here. The file of
 * RSCHED_MACHINE is read; those of RSCHED_WAYS and RSCHED_REPORT_FILE and the devices
 * of RSCHED_DEVICES are looked for where they are used.
 */
#ifndef RSCHED_CONFIG_H
#define RSCHED_CONFIG_H

#include <stddef.h>

#include <rsched/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One setting, as text. All strings are static or live as long as the
 * process. */
struct rsched_setting {
    const char *name;    /**< "RSCHED_..." */
    const char *value;   /**< in force */
    const char *initial; /**< the default */
    const char *origin;  /**< "default" or "environment" */
    const char *type;    /**< "bytes", "count", "time", "yes/no", "text",
                              "devices", "points", or
                              the words allowed, as "a|b|c" */
    const char *help;
};

/**
 * Read the environment if that has not happened yet, and say what is wrong
 * with it.
 *
 * @return 0, or RSCHED_EINVAL with a text that names the variable, its value
 *         and what is allowed; RSCHED_ENOMEM: not enough to read the machine of
 *         RSCHED_MACHINE now. Thread-safe; the environment is read once.
 */
RSCHED_API int rsched_config_check(void);

/**
 * Look at the settings, in the order in which they are printed.
 *
 * @param index 0, 1, ...
 * @return the setting, or NULL when there are no more. Thread-safe.
 */
RSCHED_API const struct rsched_setting *rsched_config_setting(size_t index);

#ifdef __cplusplus
}
#endif

#endif
