/* SPDX-License-Identifier: BSD-3-Clause */
#include "heap/versions.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const ElfW(Dyn) *dynamic(const struct link_map *map, ElfW(Sxword) tag)
{
    const ElfW(Dyn) *d = map->l_ld;

    while (d->d_tag != DT_NULL && d->d_tag != tag)
        d++;
    return d->d_tag == tag ? d : NULL;
}

/* The dynamic linker has relocated some of these, and not others. */
static const char *pointed_at(const struct link_map *map, const ElfW(Dyn) *d)
{
    ElfW(Addr) at = d->d_un.d_ptr;

    return (const char *)(at < map->l_addr ? at + map->l_addr : at);
}

static bool is_version_known(const char *name, const char *prefix, unsigned newest,
                             const char *aside)
{
    size_t length = strlen(prefix);
    unsigned number;
    int end = 0;

    if (strncmp(name, aside, strlen(aside)) == 0)
        return true;
    return strncmp(name, prefix, length) == 0 &&
           sscanf(name + length, "%u%n", &number, &end) == 1 &&
           (name[length + (size_t)end] == '\0' || name[length + (size_t)end] == '.') &&
           number <= newest;
}

bool heap_versions_known(const void *function, const char *prefix, unsigned newest,
                         const char *aside)
{
    struct link_map *map = NULL;
    const ElfW(Dyn) *names, *versions, *number;
    const char *at;
    Dl_info info;

    if (dladdr1(function, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL)
        return false;
    names = dynamic(map, DT_STRTAB);
    versions = dynamic(map, DT_VERDEF);
    number = dynamic(map, DT_VERDEFNUM);
    if (names == NULL || versions == NULL || number == NULL)
        return false;
    at = pointed_at(map, versions);
    for (ElfW(Xword) i = 0; i < number->d_un.d_val; i++) {
        const ElfW(Verdef) *version = (const ElfW(Verdef) *)at;
        const ElfW(Verdaux) *aux = (const ElfW(Verdaux) *)(at + version->vd_aux);

        if (!(version->vd_flags & VER_FLG_BASE) &&
            !is_version_known(pointed_at(map, names) + aux->vda_name, prefix, newest,
                              aside))
            return false;
        at += version->vd_next;
    }
    return true;
}
