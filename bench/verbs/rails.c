/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/verbs/rails.h"
#include "bench/verbs/start.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAP_US = 500 };

void die(const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

void *check_pointer(void *pointer, const char *what)
{
    if (pointer == NULL)
        die("%s: %s", what, strerror(errno));
    return pointer;
}

void check(int error, const char *what)
{
    if (error != 0)
        die("%s: %s", what, strerror(error > 0 ? error : errno));
}

uint64_t now_ns(void)
{
    return start_clock();
}

/* ---- rails ---- */

static void choose_gid(struct rail *rail, const struct ibv_port_attr *port)
{
    for (int i = 0; i < port->gid_tbl_len; i++) {
        struct ibv_gid_entry entry;
        static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

        if (ibv_query_gid_ex(rail->context, 1, (uint32_t)i, &entry, 0) == 0 &&
            entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
            memcmp(entry.gid.raw, mapped, sizeof(mapped)) == 0) {
            rail->gid = entry.gid;
            rail->gid_index = i;
            return;
        }
    }
    die("h%ur%u has no RoCE v2 GID over IPv4", rail->host, rail->number);
}

static void rail_open(struct rail *rail, struct ibv_device *device)
{
    struct ibv_port_attr port;

    rail->context = check_pointer(ibv_open_device(device), "ibv_open_device");
    rail->pd = check_pointer(ibv_alloc_pd(rail->context), "ibv_alloc_pd");
    check(ibv_query_port(rail->context, 1, &port), "ibv_query_port");
    rail->mtu = port.active_mtu;
    choose_gid(rail, &port);
}

static int compare_rails(const void *left, const void *right)
{
    const struct rail *a = left, *b = right;

    if (a->host != b->host)
        return a->host < b->host ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

bool fabric_open(struct fabric *fabric, uint8_t timeout)
{
    int count = 0;
    struct ibv_device **devices = ibv_get_device_list(&count);
    unsigned found = 0;

    *fabric = (struct fabric){0};
    if (devices == NULL)
        return false;
    fabric->rails = check_pointer(calloc((size_t)count + 1,
                                         sizeof(*fabric->rails)), "calloc");
    for (int i = 0; i < count; i++) {
        struct rail *rail = &fabric->rails[found];

        if (sscanf(ibv_get_device_name(devices[i]), "h%ur%u", &rail->host,
                   &rail->number) != 2)
            continue;
        rail_open(rail, devices[i]);
        rail->timeout = timeout;
        if (rail->host >= fabric->num_hosts)
            fabric->num_hosts = rail->host + 1;
        if (rail->number >= fabric->num_rails)
            fabric->num_rails = rail->number + 1;
        found++;
    }
    ibv_free_device_list(devices);
    qsort(fabric->rails, found, sizeof(*fabric->rails), compare_rails);
    if (found != fabric->num_hosts * fabric->num_rails)
        die("%u devices are not %u hosts with %u rails each", found,
            fabric->num_hosts, fabric->num_rails);
    return found > 0;
}

void fabric_close(struct fabric *fabric)
{
    for (unsigned i = 0; i < fabric->num_hosts * fabric->num_rails; i++) {
        ibv_dealloc_pd(fabric->rails[i].pd);
        ibv_close_device(fabric->rails[i].context);
    }
    free(fabric->rails);
}

struct rail *fabric_rail(const struct fabric *fabric, unsigned host,
                         unsigned number)
{
    if (host >= fabric->num_hosts || number >= fabric->num_rails)
        die("there is no rail h%ur%u", host, number);
    return &fabric->rails[host * fabric->num_rails + number];
}

static uint64_t read_counter(const struct rail *rail, const char *name)
{
    char path[128];
    uint64_t value = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/sys/class/infiniband/h%ur%u/ports/1/"
             "hw_counters/%s", rail->host, rail->number, name);
    file = check_pointer(fopen(path, "r"), path);
    if (fscanf(file, "%" SCNu64, &value) != 1)
        die("%s is not a number", path);
    fclose(file);
    return value;
}

uint64_t fabric_retransmissions(const struct fabric *fabric)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < fabric->num_hosts * fabric->num_rails; i++)
        sum += read_counter(&fabric->rails[i], "completer_retry_err") +
               read_counter(&fabric->rails[i], "send_rnr_err");
    return sum;
}

/* ---- lanes ---- */

static void end_create(struct lane_end *end, struct rail *rail, uint64_t bytes,
                       unsigned depth)
{
    const int depth_cq = (int)depth + 1;
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = depth, .max_recv_wr = depth,
                .max_send_sge = LANE_PIECES, .max_recv_sge = 1,
                .max_inline_data = LANE_INLINE},
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
    };

    end->rail = rail;
    end->send_cq = check_pointer(
        ibv_create_cq(rail->context, depth_cq, NULL, NULL, 0), "ibv_create_cq");
    end->receive_cq = check_pointer(
        ibv_create_cq(rail->context, depth_cq, NULL, NULL, 0), "ibv_create_cq");
    init.send_cq = end->send_cq;
    init.recv_cq = end->receive_cq;
    end->qp = check_pointer(ibv_create_qp(rail->pd, &init), "ibv_create_qp");
    check(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
                        IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
    if (posix_memalign((void **)&end->buffer, 4096, bytes) != 0)
        die("no memory");
    memset(end->buffer, 0, bytes);
    end->mr = check_pointer(
        ibv_reg_mr(rail->pd, end->buffer, bytes, IBV_ACCESS_LOCAL_WRITE |
                   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC),
        "ibv_reg_mr");
}

static void end_connect(struct lane_end *end, const struct lane_end *peer)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = end->rail->mtu,
        .dest_qp_num = peer->qp->qp_num,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1,
                    .grh = {.dgid = peer->rail->gid, .hop_limit = 64,
                            .sgid_index = (uint8_t)end->rail->gid_index}},
    };

    check(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV |
                        IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          "RTR");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .timeout = end->rail->timeout,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .max_rd_atomic = 1,
    };
    check(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT |
                        IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                        IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

void lane_create(struct lane *lane, struct rail *from, struct rail *to,
                 uint64_t bytes, unsigned depth)
{
    *lane = (struct lane){.bytes = bytes, .depth = depth};
    end_create(&lane->from, from, bytes, depth);
    end_create(&lane->to, to, bytes, depth);
    end_connect(&lane->from, &lane->to);
    end_connect(&lane->to, &lane->from);
}

static void end_destroy(struct lane_end *end)
{
    check(ibv_destroy_qp(end->qp), "ibv_destroy_qp");
    check(ibv_dereg_mr(end->mr), "ibv_dereg_mr");
    check(ibv_destroy_cq(end->send_cq), "ibv_destroy_cq");
    check(ibv_destroy_cq(end->receive_cq), "ibv_destroy_cq");
    free(end->buffer);
}

void lane_destroy(struct lane *lane)
{
    end_destroy(&lane->from);
    end_destroy(&lane->to);
}

void lane_post_receives(struct lane *lane, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct ibv_recv_wr wr = {0}, *bad;

        check(ibv_post_recv(lane->to.qp, &wr, &bad), "ibv_post_recv");
    }
}

size_t lane_poll(struct ibv_cq *cq, struct ibv_wc *wcs, size_t most)
{
    const int got = ibv_poll_cq(cq, (int)most, wcs);

    if (got < 0)
        die("ibv_poll_cq failed");
    for (int i = 0; i < got; i++) {
        if (wcs[i].status != IBV_WC_SUCCESS)
            die("QP 0x%x: work request %" PRIu64 ": %s", wcs[i].qp_num,
                wcs[i].wr_id, ibv_wc_status_str(wcs[i].status));
    }
    return (size_t)got;
}

void lane_nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = NAP_US * 1000}, NULL);
}

struct ibv_wc lane_wait(struct ibv_cq *cq)
{
    const uint64_t limit = now_ns() + UINT64_C(60000000000);
    struct ibv_wc wc;

    while (lane_poll(cq, &wc, 1) == 0) {
        if (now_ns() > limit)
            die("no completion after 60 s");
        lane_nap();
    }
    return wc;
}
