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
    int sent;
};

struct mesh_end {
    struct mesh *mesh;
    int rank;
    struct packet **arrived; /* per peer, in order */
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

void mesh_destroy(struct mesh *m)
{
    for (int i = 0; i < m->num_ranks * m->num_ranks; i++)
        close(m->sockets[i]);
    free(m->sockets);
    free(m);
}

struct mesh_end *mesh_end_create(struct mesh *mesh, int rank)
{
    struct mesh_end *e = must(calloc(1, sizeof(*e)));

    e->mesh = mesh;
    e->rank = rank;
    e->arrived = must(calloc((size_t)mesh->num_ranks, sizeof(*e->arrived)));
    return e;
}

void mesh_end_destroy(struct mesh_end *end)
{
    for (int i = 0; i < end->mesh->num_ranks; i++) {
        while (end->arrived[i] != NULL) {
            struct packet *p = end->arrived[i];

            end->arrived[i] = p->next;
            free(p);
        }
    }
    free(end->arrived);
    free(end);
}

static int end_socket(const struct mesh_end *end, int peer)
{
    return end->mesh->sockets[end->rank * end->mesh->num_ranks + peer];
}

static int try_send(struct rsched_oob_request *r)
{
    uint64_t head = r->tag;
    struct iovec iov[2] = {{&head, sizeof(head)}, {r->buffer, r->length}};
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2};

    if (r->sent)
        return 0;
    if (sendmsg(end_socket(r->end, r->peer), &message, MSG_NOSIGNAL) >= 0) {
        r->sent = 1;
        return 0;
    }
    return errno == EAGAIN || errno == ENOBUFS ? 0 : RSCHED_EPEER;
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
    make(arg, peer, tag, (void *)(uintptr_t)buffer, length, request);
    return try_send(*request);
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
        int error = try_send(r);

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
    return 0;
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

static void meet(struct mesh_end *end, int peer, uint64_t tag, bool send)
{
    struct rsched_oob_request *r;
    char byte = 0;
    bool done = false;

    if (send)
        mesh_isend(end, peer, tag, &byte, 1, &r);
    else
        mesh_irecv(end, peer, tag, &byte, 1, &r);
    while (mesh_test(end, r, &done) == 0 && !done)
        usleep(50);
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
