/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/verbs/gid.h"

#include <stdbool.h>
#include <string.h>

static bool is_ipv4(const union ibv_gid *gid)
{
    static const unsigned char prefix[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

static bool is_link_local(const union ibv_gid *gid)
{
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

/* Lower is better. */
static int rank_of(const struct ibv_gid_entry *entry)
{
    int rank = entry->gid_type == IBV_GID_TYPE_ROCE_V2 ? 0 : 3;

    if (is_ipv4(&entry->gid))
        return rank;
    return is_link_local(&entry->gid) ? rank + 2 : rank + 1;
}

const struct ibv_gid_entry *rs_gid_choose(const struct ibv_gid_entry *entries,
                                          size_t num_entries, uint32_t port)
{
    const struct ibv_gid_entry *best = NULL;

    for (size_t i = 0; i < num_entries; i++) {
        const struct ibv_gid_entry *e = &entries[i];

        if (e->port_num != port)
            continue;
        if (best == NULL || rank_of(e) < rank_of(best) ||
            (rank_of(e) == rank_of(best) && e->gid_index < best->gid_index))
            best = e;
    }
    return best;
}

const struct ibv_gid_entry *rs_gid_find(const struct ibv_gid_entry *entries,
                                        size_t num_entries, uint32_t port,
                                        uint32_t index)
{
    for (size_t i = 0; i < num_entries; i++) {
        if (entries[i].port_num == port && entries[i].gid_index == index)
            return &entries[i];
    }
    return NULL;
}
