/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/cuda/gdr.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <rsched/error.h>

#include "librsched/base/config.h"
#include "librsched/base/error.h"

#define LIBRARY "libgdrapi.so.2"

/* A pointer to an object as one to a function, as POSIX allows it. */
static bool look_up(void *library, const char *symbol, void *function)
{
    void *address = dlsym(library, symbol);

    memcpy(function, &address, sizeof(address));
    return address != NULL;
}

static int fill(struct rs_gdr *g)
{
    const struct {
        const char *symbol;
        void *function;
    } table[] = {
        {"gdr_open", &g->open},
        {"gdr_close", &g->close},
        {"gdr_unpin_buffer", &g->unpin},
        {"gdr_map", &g->map},
        {"gdr_unmap", &g->unmap},
        {"gdr_copy_to_mapping", &g->copy_to},
        {"gdr_copy_from_mapping", &g->copy_from},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (!look_up(g->library, table[i].symbol, table[i].function))
            return rs_fail(RSCHED_ENOTSUP, "%s has no %s", LIBRARY,
                           table[i].symbol);
    }
    if (!look_up(g->library, "gdr_get_info_v2", &g->get_info) &&
        !look_up(g->library, "gdr_get_info", &g->get_info))
        return rs_fail(RSCHED_ENOTSUP, "%s has no gdr_get_info", LIBRARY);
    look_up(g->library, "gdr_pin_buffer", &g->pin);
    look_up(g->library, "gdr_pin_buffer_v2", &g->pin_v2);
    if (g->pin == NULL && g->pin_v2 == NULL)
        return rs_fail(RSCHED_ENOTSUP, "%s has no gdr_pin_buffer", LIBRARY);
    return 0;
}

int rs_gdr_open(struct rs_gdr **gdr)
{
    struct rs_gdr *g;
    int error;

    if (!rs_config()->gdrcopy)
        return rs_fail(RSCHED_ENOTSUP, "RSCHED_GDRCOPY=no");
    g = calloc(1, sizeof(*g));
    if (g == NULL)
        return rs_fail(RSCHED_ENOMEM, "cuda: no memory");
    g->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (g->library == NULL) {
        error = rs_fail(RSCHED_ENOTSUP, "no GDRCopy: %s", dlerror());
        goto err_free;
    }
    error = fill(g);
    if (error != 0)
        goto err_close;
    g->state = g->open();
    if (g->state == NULL) {
        error = rs_fail(RSCHED_ENOTSUP,
                        "GDRCopy cannot be opened: its kernel module gdrdrv is "
                        "not loaded, not accessible or too old");
        goto err_close;
    }
    pthread_mutex_init(&g->lock, NULL);
    *gdr = g;
    return 0;

err_close:
    dlclose(g->library);
err_free:
    free(g);
    return error;
}

void rs_gdr_close(struct rs_gdr *gdr)
{
    if (gdr == NULL)
        return;
    gdr->close(gdr->state);
    pthread_mutex_destroy(&gdr->lock);
    dlclose(gdr->library);
    free(gdr);
}

/* Want of memory too: it is that of the GPU's window on the bus. */
static int refused(const char *what, int number)
{
    return rs_fail(RSCHED_ENOTSUP, "GDRCopy: %s: %s", what, strerror(number));
}

/* A kernel module that is older than the library does not know the newer one of
 * the two functions. */
static int pin(struct rs_gdr *g, uint64_t start, uint64_t bytes,
               struct rs_gdr_handle *handle)
{
    int number = ENOTTY;

    if (g->pin_v2 != NULL)
        number = g->pin_v2(g->state, start, bytes, 0, handle);
    if (g->pin != NULL && (number == ENOTTY || number == EINVAL))
        number = g->pin(g->state, start, bytes, 0, 0, handle);
    return number;
}

static int map(struct rs_gdr *g, uint64_t start, uint64_t bytes,
               struct rs_gdr_handle *handle, char **mapped,
               struct rs_gdr_info *info)
{
    const char *what = "pinning GPU memory";
    void *address = NULL;
    int number = pin(g, start, bytes, handle);

    if (number != 0)
        return refused(what, number);
    what = "mapping GPU memory";
    number = g->map(g->state, *handle, &address, bytes);
    if (number != 0)
        goto err_unpin;
    what = "asking where it is";
    number = g->get_info(g->state, *handle, info);
    if (number == 0 &&
        (info->start > start || info->bytes < bytes ||
         info->bytes - bytes < start - info->start))
        number = ERANGE;
    if (number != 0)
        goto err_unmap;
    *mapped = address;
    return 0;

err_unmap:
    g->unmap(g->state, *handle, address, bytes);
err_unpin:
    g->unpin(g->state, *handle);
    return refused(what, number);
}

int rs_gdr_map(struct rs_gdr *gdr, uint64_t start, uint64_t bytes,
               struct rs_gdr_handle *handle, char **mapped,
               struct rs_gdr_info *info)
{
    int error;

    memset(info, 0, sizeof(*info));
    pthread_mutex_lock(&gdr->lock);
    error = map(gdr, start, bytes, handle, mapped, info);
    pthread_mutex_unlock(&gdr->lock);
    return error;
}

void rs_gdr_unmap(struct rs_gdr *gdr, struct rs_gdr_handle handle, char *mapped,
                  uint64_t bytes)
{
    pthread_mutex_lock(&gdr->lock);
    gdr->unmap(gdr->state, handle, mapped, bytes);
    gdr->unpin(gdr->state, handle);
    pthread_mutex_unlock(&gdr->lock);
}
