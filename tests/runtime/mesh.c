/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/runtime/mesh.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct mesh {
    int num_ranks;
    int *sockets; /* [from * num_ranks + to]: what `from` uses for `to` */
    uint64_t job;
};

struct packet {
    struct packet *next;
    uint64_t tag;
    size_t length;
    char data[];
};

struct rsched_oob_request {
    struct mesh_end *end;
    int peer;
    uint64_t tag;
    void *buffer;
    size_t length;
    int sent; /* -1: a receive */
};

struct mesh_end {
    struct mesh *mesh;
    int rank;
    struct packet **arrived; /* per peer, in order */
    bool *gone;              /* per peer: it has closed its end */
    bool blind;
    mesh_doctor *doctor;
    void *doctor_arg;
};

static void *must(void *p)
{
    if (p == NULL) {
        perror("mesh");
        abort();
    }
    return p;
}

struct mesh *mesh_create(int num_ranks)
{
    struct mesh *m = must(calloc(1, sizeof(*m)));

    m->num_ranks = num_ranks;
    m->job = (uint64_t)getpid() << 20 | (uint64_t)num_ranks;
    m->sockets = must(calloc((size_t)(num_ranks * num_ranks), sizeof(int)));
    for (int a = 0; a < num_ranks; a++) {
        for (int b = a; b < num_ranks; b++) {
            int pair[2];

            if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair)) {
                perror("socketpair");
                abort();
            }
            m->sockets[a * num_ranks + b] = pair[0];
            m->sockets[b * num_ranks + a] = pair[1];
        }
    }
    return m;
}

static void close_socket(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void mesh_keep(struct mesh *m, int rank)
{
    for (int i = 0; i < m->num_ranks * m->num_ranks; i++) {
        if (i / m->num_ranks != rank)
            close_socket(&m->sockets[i]);
    }
}

void mesh_destroy(struct mesh *m)
{
    mesh_keep(m, -1);
    free(m->sockets);
    free(m);
}

struct mesh_end *mesh_end_create(struct mesh *mesh, int rank)
{
    struct mesh_end *e = must(calloc(1, sizeof(*e)));

    e->mesh = mesh;
    e->rank = rank;
    e->arrived = must(calloc((size_t)mesh->num_ranks, sizeof(*e->arrived)));
    e->gone = must(calloc((size_t)mesh->num_ranks, sizeof(*e->gone)));
    return e;
}

void mesh_end_set_blind(struct mesh_end *end, bool blind)
{
    end->blind = blind;
}

void mesh_end_set_doctor(struct mesh_end *end, mesh_doctor *doctor, void *arg)
{
    end->doctor = doctor;
    end->doctor_arg = arg;
}

void mesh_forget(struct mesh_end *end)
{
    for (int i = 0; i < end->mesh->num_ranks; i++) {
        while (end->arrived[i] != NULL) {
            struct packet *p = end->arrived[i];

            end->arrived[i] = p->next;
            free(p);
        }
    }
}

void mesh_end_destroy(struct mesh_end *end)
{
    mesh_forget(end);
    free(end->arrived);
    free(end->gone);
    free(end);
}

static int end_socket(const struct mesh_end *end, int peer)
{
    return end->mesh->sockets[end->rank * end->mesh->num_ranks + peer];
}

static int try_send(struct rsched_oob_request *r)
{
    struct packet *p = must(calloc(1, sizeof(*p) + r->length));
    struct mesh_end *end = r->end;
    struct iovec iov[2] = {{&r->tag, sizeof(r->tag)}, {p->data, r->length}};
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2};
    int error = 0;

    memcpy(p->data, r->buffer, r->length);
    if (end->doctor != NULL)
        end->doctor(end->doctor_arg, r->peer, p->data, r->length);
    if (sendmsg(end_socket(end, r->peer), &message, MSG_NOSIGNAL) >= 0)
        r->sent = 1;
    else if (errno != EAGAIN && errno != ENOBUFS && !end->blind)
        error = RSCHED_EPEER;
    free(p);
    return error;
}

static int make(void *arg, int peer, uint64_t tag, void *buffer, size_t length,
                struct rsched_oob_request **request)
{
    struct rsched_oob_request *r = must(calloc(1, sizeof(*r)));

    r->end = arg;
    r->peer = peer;
    r->tag = tag;
    r->buffer = buffer;
    r->length = length;
    *request = r;
    return 0;
}

static int mesh_isend(void *arg, int peer, uint64_t tag, const void *buffer,
                      size_t length, struct rsched_oob_request **request)
{
    int error;

    make(arg, peer, tag, (void *)(uintptr_t)buffer, length, request);
    error = try_send(*request);
    if (error != 0)
        free(*request);
    return error;
}

static int mesh_irecv(void *arg, int peer, uint64_t tag, void *buffer,
                      size_t length, struct rsched_oob_request **request)
{
    make(arg, peer, tag, buffer, length, request);
    (*request)->sent = -1;
    return 0;
}

/* Move what has arrived from a peer into its list. */
static void drain(struct mesh_end *end, int peer)
{
    struct packet **last = &end->arrived[peer];

    while (*last != NULL)
        last = &(*last)->next;
    for (;;) {
        static _Thread_local char buffer[200000];
        ssize_t n = recv(end_socket(end, peer), buffer, sizeof(buffer), 0);

        if (n == 0)
            end->gone[peer] = !end->blind;
        if (n < (ssize_t)sizeof(uint64_t))
            return;
        *last = must(calloc(1, sizeof(struct packet) + (size_t)n));
        memcpy(&(*last)->tag, buffer, sizeof(uint64_t));
        (*last)->length = (size_t)n - sizeof(uint64_t);
        memcpy((*last)->data, buffer + sizeof(uint64_t), (*last)->length);
        last = &(*last)->next;
    }
}

static int mesh_test(void *arg, struct rsched_oob_request *r, bool *done)
{
    struct mesh_end *end = arg;

    *done = false;
    if (r->sent >= 0) {
        int error = r->sent ? 0 : try_send(r);

        *done = r->sent;
        if (r->sent)
            free(r);
        return error;
    }
    drain(end, r->peer);
    for (struct packet **p = &end->arrived[r->peer]; *p; p = &(*p)->next) {
        struct packet *found = *p;

        if (found->tag != r->tag)
            continue;
        if (found->length != r->length)
            return RSCHED_EMISMATCH;
        memcpy(r->buffer, found->data, r->length);
        *p = found->next;
        free(found);
        free(r);
        *done = true;
        return 0;
    }
    return end->gone[r->peer] ? RSCHED_EPEER : 0;
}

static void mesh_cancel(void *arg, struct rsched_oob_request *r)
{
    (void)arg;
    free(r);
}

struct rsched_context_params mesh_params(struct mesh_end *end)
{
    return (struct rsched_context_params){
        .process = end->rank,
        .num_processes = end->mesh->num_ranks,
        .num_local = end->mesh->num_ranks,
        .job = end->mesh->job,
        .oob = {.arg = end,
                .isend = mesh_isend,
                .irecv = mesh_irecv,
                .test = mesh_test,
                .cancel = mesh_cancel},
    };
}

/* @return 0, or -1 when the peer is gone */
static int complete(struct mesh_end *end, struct rsched_oob_request *r)
{
    bool done = false;

    while (!done) {
        if (mesh_test(end, r, &done) != 0) {
            if (!done)
                mesh_cancel(end, r);
            return -1;
        }
        if (!done)
            usleep(50);
    }
    return 0;
}

int mesh_send(struct mesh_end *end, int peer, uint64_t tag, const void *data,
              size_t length)
{
    struct rsched_oob_request *r;

    return mesh_isend(end, peer, tag, data, length, &r) != 0
               ? -1
               : complete(end, r);
}

int mesh_receive(struct mesh_end *end, int peer, uint64_t tag, void *data,
                 size_t length)
{
    struct rsched_oob_request *r;

    mesh_irecv(end, peer, tag, data, length, &r);
    return complete(end, r);
}

static void meet(struct mesh_end *end, int peer, uint64_t tag, bool send)
{
    char byte = 0;

    if (send)
        mesh_send(end, peer, tag, &byte, 1);
    else
        mesh_receive(end, peer, tag, &byte, 1);
}

void mesh_barrier(struct mesh_end *end)
{
    const uint64_t tag = UINT64_MAX;

    for (int i = 1; i < end->mesh->num_ranks; i++) {
        if (end->rank == 0)
            meet(end, i, tag, false);
        else if (end->rank == i)
            meet(end, 0, tag, true);
    }
    for (int i = 1; i < end->mesh->num_ranks; i++) {
        if (end->rank == 0)
            meet(end, i, tag - 1, true);
        else if (end->rank == i)
            meet(end, 0, tag - 1, false);
    }
}
