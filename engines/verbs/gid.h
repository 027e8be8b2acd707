/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of a port's GIDs to use. */
#ifndef RS_VERBS_GID_H
#define RS_VERBS_GID_H

#include <infiniband/verbs.h>

/**
 * The best of a RoCE port's GIDs: RoCE v2 before v1, which routers do not
 * forward; IPv4 before IPv6 before link-local IPv6, which does not leave the
 * link; among equals the lowest index. (The order that UCX uses, too.)
 *
 * @return the entry, or NULL if there is none for the port
 */
const struct ibv_gid_entry *rs_gid_choose(const struct ibv_gid_entry *entries,
                                          size_t num_entries, uint32_t port);

/** The entry of a port with this index, or NULL. */
const struct ibv_gid_entry *rs_gid_find(const struct ibv_gid_entry *entries,
                                        size_t num_entries, uint32_t port,
                                        uint32_t index);

#endif
