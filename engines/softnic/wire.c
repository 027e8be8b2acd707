/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between softnics of different processes: datagrams over Unix sockets, one
 * request and one answer for each packet. Who waits for an answer gives answers
 * to others meanwhile, so that two can wait for each other.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engines/softnic/nic.h"
#include "librsched/base/descriptor.h"
#include "librsched/base/error.h"

enum { REQUEST = 1, ANSWER, NUDGE };

enum { NUDGE_MS = 20 }; /* without an answer: does the peer's socket exist? */

struct message {
    uint32_t kind, serial;
    struct softnic_request request;
    struct softnic_answer answer;
    char payload[SOFTNIC_MAX_MTU];
};

static const size_t head_bytes = offsetof(struct message, payload);

int rs_softnic_listen(struct rs_softnic *nic,
                      struct rs_softnic_address *address)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof(name);
    int fd = rs_descriptor_keep(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));

    if (fd < 0)
        return rs_fail(RSCHED_ESYS, "softnic: socket: %m");
    /* Without a name of ours the kernel finds one, outside the file system. */
    if (bind(fd, (struct sockaddr *)&name, sizeof(name.sun_family)) != 0 ||
        getsockname(fd, (struct sockaddr *)&name, &bytes) != 0 ||
        bytes - sizeof(name.sun_family) > sizeof(address->name)) {
        close(fd);
        return rs_fail(RSCHED_ESYS, "softnic: naming its socket: %m");
    }
    pthread_mutex_lock(&nic->lock);
    nic->wire = fd;
    pthread_mutex_unlock(&nic->lock);
    *address = (struct rs_softnic_address){
        .bytes = (uint8_t)(bytes - sizeof(name.sun_family))};
    memcpy(address->name, name.sun_path, address->bytes);
    return 0;
}

void rs_softnic_connect_far(struct rs_softnic_qp *qp,
                            const struct rs_softnic_address *address,
                            uint32_t qpn)
{
    pthread_mutex_lock(&qp->nic->lock);
    qp->is_far = true;
    qp->far = *address;
    qp->far_qpn = qpn;
    pthread_mutex_unlock(&qp->nic->lock);
}

static socklen_t far_name(const struct rs_softnic_qp *qp,
                          struct sockaddr_un *name)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(name->sun_path, qp->far.name, qp->far.bytes);
    return (socklen_t)(sizeof(name->sun_family) + qp->far.bytes);
}

static struct rs_softnic_qp *find_qp(struct rs_softnic *nic, uint32_t qpn)
{
    struct rs_softnic_qp *qp = nic->qps;

    while (qp != NULL && qp->qpn != qpn)
        qp = qp->next;
    return qp;
}

static bool is_well_formed(const struct message *m, ssize_t bytes)
{
    return bytes >= (ssize_t)head_bytes &&
           (m->kind != REQUEST ||
            m->request.payload_bytes == (size_t)bytes - head_bytes);
}

/* Take a message; requests are answered. @return its kind, 0: there is none */
static uint32_t receive(struct rs_softnic *nic, struct message *m)
{
    struct sockaddr_un from;
    socklen_t from_bytes = sizeof(from);
    ssize_t bytes = recvfrom(nic->wire, m, sizeof(*m), MSG_DONTWAIT,
                             (struct sockaddr *)&from, &from_bytes);

    if (bytes < 0)
        return 0;
    if (!is_well_formed(m, bytes))
        return NUDGE;
    if (m->kind == REQUEST) {
        m->answer = softnic_answer(find_qp(nic, m->request.qpn), &m->request,
                                   m->payload);
        m->kind = ANSWER;
        /* Waits while the peer's queue is full. It waits for this answer, so it
         * empties it. */
        sendto(nic->wire, m, head_bytes, MSG_NOSIGNAL,
               (struct sockaddr *)&from, from_bytes);
        return REQUEST;
    }
    return m->kind;
}

bool softnic_serve(struct rs_softnic *nic)
{
    struct message m;

    return nic->wire >= 0 && receive(nic, &m) != 0;
}

/* @return whether the peer is there to get it */
static bool send_far(struct rs_softnic_qp *qp, const struct message *m,
                     size_t bytes)
{
    struct sockaddr_un name;
    socklen_t name_bytes = far_name(qp, &name);

    while (sendto(qp->nic->wire, m, bytes, MSG_DONTWAIT | MSG_NOSIGNAL,
                  (struct sockaddr *)&name, name_bytes) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            return false;
        if (m->kind == NUDGE || atomic_load(&qp->nic->stop))
            return m->kind == NUDGE;
        if (!softnic_serve(qp->nic))
            sched_yield();
    }
    return true;
}

static bool await_answer(struct rs_softnic_qp *qp, uint32_t serial,
                         struct softnic_answer *answer)
{
    struct pollfd wire = {.fd = qp->nic->wire, .events = POLLIN};
    const struct message nudge = {.kind = NUDGE};

    bool gone = false;

    while (!atomic_load(&qp->nic->stop)) {
        struct message m;
        uint32_t kind = receive(qp->nic, &m);

        if (kind == ANSWER && m.serial == serial) {
            *answer = m.answer;
            return true;
        }
        if (kind != 0)
            continue;
        if (gone)
            return false;
        /* It may have answered before it left: look once more. */
        gone = poll(&wire, 1, NUDGE_MS) == 0 &&
               !send_far(qp, &nudge, head_bytes);
    }
    return false;
}

static bool ask_far(struct rs_softnic_qp *qp,
                    const struct softnic_request *request, const char *payload,
                    struct softnic_answer *answer)
{
    struct message m = {
        .kind = REQUEST, .serial = ++qp->nic->serial, .request = *request};

    m.request.qpn = qp->far_qpn;
    if (request->payload_bytes > 0)
        memcpy(m.payload, payload, request->payload_bytes);
    return send_far(qp, &m, head_bytes + request->payload_bytes) &&
           await_answer(qp, m.serial, answer);
}

void softnic_ask(struct rs_softnic_qp *qp, const struct softnic_request *request,
                 const char *payload, struct softnic_answer *answer)
{
    if (!qp->is_far)
        *answer = softnic_answer(qp->peer, request, payload);
    else if (!ask_far(qp, request, payload, answer))
        *answer = (struct softnic_answer){.syndrome = SOFTNIC_NO_ANSWER};
}
