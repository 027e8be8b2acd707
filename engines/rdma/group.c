/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/rdma/group.h"

#include <stdlib.h>

#include "engines/rdma/lane.h"
#include "librsched/base/error.h"

struct rs_rdma_bundle *
rs_rdma_bundle_join(struct rs_rdma_bundle **list,
                    const struct rsched_connection *connection, uint32_t rail,
                    bool any)
{
    struct rs_rdma_bundle *b = *list;

    while (b != NULL &&
           (b->connection != connection || (!any && b->rail != rail)))
        b = b->next;
    if (b != NULL)
        return b;
    b = calloc(1, sizeof(*b));
    if (b == NULL)
        return NULL;
    *b = (struct rs_rdma_bundle){
        .next = *list, .connection = connection, .rail = rail};
    *list = b;
    return b;
}

uint64_t rs_rdma_bundle_advance(struct rs_rdma_bundle *bundle, uint64_t version)
{
    if (version == bundle->version)
        bundle->version++;
    return bundle->version;
}

int rs_rdma_group_create(struct rsched_engine *engine,
                         struct rsched_group **group)
{
    struct rsched_group *g = calloc(1, sizeof(*g));

    (void)engine;
    if (g == NULL)
        return rs_fail(RSCHED_ENOMEM, "no memory for a group of lanes");
    *group = g;
    return 0;
}

static void free_all(struct rs_rdma_bundle *list)
{
    for (struct rs_rdma_bundle *b = list, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
}

/* Destroyed lanes that have something left to say do not look at it. */
void rs_rdma_group_destroy(struct rsched_group *group)
{
    free_all(group->in);
    free_all(group->out);
    free(group);
}
