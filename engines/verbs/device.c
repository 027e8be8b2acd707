/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding devices, and the ports of them to use. */
#include "engines/verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engines/verbs/gid.h"
#include "engines/verbs/mlx5.h"
#include "engines/verbs/names.h"
#include "engines/verbs/queue.h"
#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/log.h"

enum {
    MAX_DEPTH = 256,
    /* Immediates that may arrive before they are looked for; the peer's device
     * tries again after that. */
    MAX_RECEIVES = 256,
    MAX_PIECES = 16,
    MAX_GIDS = 256,
    SOFT_ROCE = 0xffffff, /* the vendor that it says */
    /* Some ms of 20 Mbit/s, of which as many rails as there may be have begun by
     * the end of that: to post them takes an emulated processor less. */
    HEAD_BYTES = 8192,
};

/* How far the search has come. */
struct search {
    const char *names; /* comma-separated; empty: all */
    struct rs_rdma_port **ports;
    int num_ports;
    char why[256]; /* the first port that could not be used, and why */
};

static void __attribute__((format(printf, 2, 3)))
unusable(struct search *s, const char *format, ...)
{
    va_list args;

    if (s->why[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(s->why, sizeof(s->why), format, args);
    va_end(args);
}

static struct rs_verbs_port *port_of(struct rs_rdma_port *port)
{
    return (struct rs_verbs_port *)port;
}

static void port_close(struct rs_rdma_port *port)
{
    struct rs_verbs_port *p = port_of(port);

    ibv_dealloc_pd(p->pd);
    ibv_close_device(p->context);
    free(p);
}

static void port_address(const struct rs_rdma_port *port,
                         unsigned char *address)
{
    memcpy(address, &((const struct rs_verbs_port *)port)->address,
           sizeof(struct rs_verbs_address));
}

/* The kernel tells those who have a device open when it goes away: by an event,
 * or, once nothing is left to read events from, by an error. Completions of what
 * is under way may never come then. */
static int port_check(struct rs_rdma_port *port)
{
    struct rs_verbs_port *p = port_of(port);
    struct ibv_async_event event;
    int error = 0;

    while (!atomic_load(&p->gone) && error == 0) {
        error = ibv_get_async_event(p->context, &event);
        if (error != 0 && errno != EAGAIN && errno != EINTR)
            atomic_store(&p->gone, true);
        if (error != 0)
            break;
        if (event.event_type == IBV_EVENT_DEVICE_FATAL)
            atomic_store(&p->gone, true);
        ibv_ack_async_event(&event);
    }
    if (!atomic_load(&p->gone))
        return 0;
    return rs_fail(RSCHED_EPEER, "the device has been removed");
}

static bool port_is_active(struct rs_rdma_port *port)
{
    struct rs_verbs_port *p = port_of(port);
    struct ibv_port_attr attr;

    return ibv_query_port(p->context, p->number, &attr) == 0 &&
           attr.state == IBV_PORT_ACTIVE;
}

static int explain_registration(const struct rs_verbs_port *p, uint64_t bytes)
{
    struct rlimit limit = {0};
    int why = errno;

    getrlimit(RLIMIT_MEMLOCK, &limit);
    errno = why;
    if (why != ENOMEM && why != EAGAIN)
        return rs_fail(RSCHED_ESYS, "verbs %s: registering %llu bytes: %m",
                       p->port.name, (unsigned long long)bytes);
    return rs_fail(RSCHED_ELIMIT,
                   "verbs %s: registering %llu bytes: %m; the limit on locked "
                   "memory (ulimit -l) is %lld KiB",
                   p->port.name, (unsigned long long)bytes,
                   limit.rlim_cur == RLIM_INFINITY
                       ? -1
                       : (long long)(limit.rlim_cur / 1024));
}

static int flags_of(const struct rs_rdma_port *port, enum rs_rdma_access access)
{
    return access == RS_RDMA_LOCAL
               ? 0
               : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                     (port->fetch_add ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

static int memory_register(struct rs_rdma_port *port, void *address,
                           uint64_t bytes, enum rs_rdma_access access,
                           struct rs_rdma_keys *keys)
{
    struct rs_verbs_port *p = port_of(port);
    struct ibv_mr *mr = ibv_reg_mr(p->pd, address, bytes,
                                   flags_of(port, access));

    if (mr == NULL)
        return explain_registration(p, bytes);
    *keys = (struct rs_rdma_keys){
        .lkey = mr->lkey, .rkey = mr->rkey, .device = mr};
    return 0;
}

/* Only what is written needs no fetch-and-add: words are the host's. */
static int dmabuf_register(struct rs_rdma_port *port, int fd, uintptr_t address,
                           uint64_t bytes, enum rs_rdma_access access,
                           struct rs_rdma_keys *keys)
{
    struct rs_verbs_port *p = port_of(port);
    int flags = flags_of(port, access) & ~IBV_ACCESS_REMOTE_ATOMIC;
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(p->pd, 0, bytes, address, fd, flags);

    if (mr == NULL)
        return rs_fail(RSCHED_ENOTSUP,
                       "verbs %s: registering a dma-buf of %llu bytes: %m",
                       p->port.name, (unsigned long long)bytes);
    *keys = (struct rs_rdma_keys){
        .lkey = mr->lkey, .rkey = mr->rkey, .device = mr};
    return 0;
}

static void memory_release(struct rs_rdma_port *port, struct rs_rdma_keys *keys)
{
    (void)port;
    ibv_dereg_mr(keys->device);
}

static const struct rs_rdma_port_ops port_ops = {
    .address = port_address,
    .check = port_check,
    .close = port_close,
    .dmabuf_register = dmabuf_register,
    .is_active = port_is_active,
    .memory_register = memory_register,
    .memory_release = memory_release,
    .queue_connect = rs_verbs_queue_connect,
    .queue_create = rs_verbs_queue_create,
    .queue_destroy = rs_verbs_queue_destroy,
};

/* @return whether the port has an address that it can be reached by */
static bool find_gid(struct rs_verbs_port *p, struct search *s)
{
    struct ibv_gid_entry entries[MAX_GIDS];
    ssize_t found = ibv_query_gid_table(p->context, entries, MAX_GIDS, 0);
    uint64_t wanted = rs_config()->gid_index;
    const struct ibv_gid_entry *chosen;

    if (found < 0)
        found = 0;
    chosen = wanted == RS_GID_AUTO
                 ? rs_gid_choose(entries, (size_t)found, p->number)
                 : rs_gid_find(entries, (size_t)found, p->number,
                               (uint32_t)wanted);
    if (chosen == NULL) {
        if (wanted == RS_GID_AUTO)
            unusable(s, "%s has no GID", p->port.name);
        else
            unusable(s, "%s has no GID of index %llu (RSCHED_GID_INDEX)",
                     p->port.name, (unsigned long long)wanted);
        return false;
    }
    memcpy(p->address.gid, chosen->gid.raw, sizeof(p->address.gid));
    p->gid_index = (uint8_t)chosen->gid_index;
    return true;
}

static bool is_usable(struct rs_verbs_port *p, struct search *s)
{
    struct ibv_port_attr attr;

    if (ibv_query_port(p->context, p->number, &attr) != 0) {
        unusable(s, "%s cannot be queried", p->port.name);
        return false;
    }
    if (attr.state != IBV_PORT_ACTIVE) {
        unusable(s, "%s is not active (%s)", p->port.name,
                 ibv_port_state_str(attr.state));
        return false;
    }
    p->address.lid = attr.lid;
    p->address.mtu = (uint8_t)attr.active_mtu;
    p->address.roce = attr.link_layer == IBV_LINK_LAYER_ETHERNET ||
                      (attr.flags & IBV_QPF_GRH_REQUIRED) != 0;
    return !p->address.roce || find_gid(p, s);
}

static uint32_t limit(int says, int most)
{
    return (uint32_t)(says < most ? says : most);
}

static bool set_limits(struct rs_verbs_port *p,
                       const struct ibv_device_attr *attr, struct search *s)
{
    int error;

    if (attr->max_qp_wr < RS_VERBS_LEAST_DEPTH || attr->max_sge < 1) {
        unusable(s, "%s has queue pairs of at most %d requests (max_qp_wr) "
                    "with %d pieces (max_sge), and %d with 1 are needed",
                 p->port.name, attr->max_qp_wr, attr->max_sge,
                 RS_VERBS_LEAST_DEPTH);
        return false;
    }
    p->port.max_ops = limit(attr->max_qp_wr, MAX_DEPTH);
    p->port.max_pieces = limit(attr->max_sge, MAX_PIECES);
    /* By default no port takes immediates: where writes are out of order here,
     * there are none. */
    p->receives = rs_config()->notify == RS_CONFIG_NOTIFY_IMM
                      ? limit(attr->max_qp_wr, MAX_RECEIVES)
                      : 1;
    p->port.head_bytes = attr->vendor_id == SOFT_ROCE ? HEAD_BYTES : 0;
    p->port.fetch_add = attr->atomic_cap != IBV_ATOMIC_NONE;
    /* iWARP places data in any order, and had no immediates for long. */
    p->port.in_order = p->context->device->transport_type == IBV_TRANSPORT_IB;
    p->port.immediates = p->port.in_order;
    error = rs_verbs_find_limits(p);
    if (error != 0) {
        unusable(s, "%s cannot make a queue pair, even of %d requests with 1 "
                    "piece or %d bytes inline: %s",
                 p->port.name, RS_VERBS_LEAST_DEPTH, RS_VERBS_LEAST_INLINE,
                 strerror(error));
        return false;
    }
    if (p->port.max_ops < limit(attr->max_qp_wr, MAX_DEPTH) ||
        p->port.max_pieces < limit(attr->max_sge, MAX_PIECES))
        rs_log(RS_LOG_INFO, "verbs %s: queue pairs have %u requests with %u "
                            "pieces: the device refuses more, although its "
                            "limits are %d (max_qp_wr) and %d (max_sge)",
               p->port.name, p->port.max_ops, p->port.max_pieces,
               attr->max_qp_wr, attr->max_sge);
    if (p->receives > 1 && p->receives < MAX_RECEIVES)
        rs_log(RS_LOG_INFO, "verbs %s: queue pairs take %u immediates before "
                            "somebody looks: the device has no more receives",
               p->port.name, p->receives);
    return true;
}

/* A port has a context and a protection domain of its own. */
static struct rs_verbs_port *open_port(struct ibv_device *device,
                                       uint8_t number, struct search *s)
{
    struct rs_verbs_port *p = calloc(1, sizeof(*p));
    struct ibv_device_attr attr;

    if (p == NULL)
        return NULL;
    p->port.ops = &port_ops;
    p->number = number;
    snprintf(p->port.name, sizeof(p->port.name), "%s/%u",
             ibv_get_device_name(device), number);
    p->context = ibv_open_device(device);
    if (p->context == NULL) {
        unusable(s, "%s cannot be opened: %s", p->port.name, strerror(errno));
        goto err_free;
    }
    fcntl(p->context->async_fd, F_SETFL, O_NONBLOCK);
    p->pd = ibv_alloc_pd(p->context);
    if (p->pd == NULL) {
        unusable(s, "%s has no protection domain: %s", p->port.name,
                 strerror(errno));
        goto err_close;
    }
    if (ibv_query_device(p->context, &attr) != 0 || !is_usable(p, s) ||
        !set_limits(p, &attr, s))
        goto err_dealloc;
#ifdef RSCHED_HAVE_MLX5
    rs_verbs_mlx5_adopt(p);
#endif
    return p;

err_dealloc:
    ibv_dealloc_pd(p->pd);
err_close:
    ibv_close_device(p->context);
err_free:
    free(p);
    return NULL;
}

static uint8_t count_ports(struct ibv_device *device)
{
    struct ibv_context *context = ibv_open_device(device);
    struct ibv_device_attr attr = {0};

    if (context == NULL)
        return 1; /* open_port() tells why */
    if (ibv_query_device(context, &attr) != 0)
        attr.phys_port_cnt = 1;
    ibv_close_device(context);
    return attr.phys_port_cnt;
}

static void open_ports(struct ibv_device *device, uint32_t only,
                       struct search *s)
{
    uint8_t ports = count_ports(device);

    for (uint8_t number = 1; number <= ports; number++) {
        struct rs_verbs_port *p;

        if ((only != 0 && only != number) || s->num_ports == RSCHED_MAX_RAILS)
            continue;
        p = open_port(device, number, s);
        if (p != NULL)
            s->ports[s->num_ports++] = &p->port;
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(ibv_get_device_name(*(struct ibv_device *const *)a),
                  ibv_get_device_name(*(struct ibv_device *const *)b));
}

/* All devices by name, so that rails meet their like at the peer; or those that
 * are named, in that order. */
static int open_named(struct ibv_device **devices, int num_devices,
                      struct search *s)
{
    struct rs_verbs_name name;

    for (const char *rest = s->names; rs_verbs_name_next(&rest, &name);) {
        int d = 0;

        while (d < num_devices &&
               !rs_verbs_name_is(&name, ibv_get_device_name(devices[d])))
            d++;
        if (d == num_devices)
            return rs_fail(RSCHED_EINVAL,
                           "RSCHED_DEVICES=%s: there is no device %.*s",
                           rs_config()->devices, (int)name.length, name.text);
        open_ports(devices[d], name.port, s);
    }
    return 0;
}

static void open_all(struct ibv_device **devices, int num_devices,
                     struct search *s)
{
    qsort(devices, (size_t)num_devices, sizeof(*devices), by_name);
    for (int d = 0; d < num_devices; d++)
        open_ports(devices[d], 0, s);
}

static int found_nothing(const struct search *s)
{
    return rs_fail(RSCHED_ENOTSUP, "verbs: no usable port: %s",
                   s->why[0] != '\0' ? s->why : "no device");
}

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* Where a fork does not copy registered pages the library must know of them
 * before the first registration. It is not made for two threads at once. */
static void prepare_for_fork(void)
{
    if (ibv_is_fork_initialized() == IBV_FORK_DISABLED)
        ibv_fork_init();
}

int rs_verbs_ports_open(const struct rsched_engine_env *env,
                        struct rs_rdma_port **ports)
{
    struct search s = {.ports = ports};
    char group[256];
    struct ibv_device **devices;
    int num_devices, error = 0;

    if (!rs_verbs_names_group(rs_config()->devices, env->process, group,
                              sizeof(group)))
        return rs_fail(RSCHED_EINVAL, "RSCHED_DEVICES=%s: too long",
                       rs_config()->devices);
    s.names = group;
    pthread_once(&fork_once, prepare_for_fork);
    devices = ibv_get_device_list(&num_devices);
    if (devices == NULL)
        return rs_fail(RSCHED_ENOTSUP, "verbs: no devices: %m");
    if (s.names[0] == '\0')
        open_all(devices, num_devices, &s);
    else
        error = open_named(devices, num_devices, &s);
    ibv_free_device_list(devices);
    if (error == 0 && s.num_ports == 0)
        error = found_nothing(&s);
    if (error == 0)
        return s.num_ports;
    for (int i = 0; i < s.num_ports; i++)
        port_close(ports[i]);
    return error;
}
