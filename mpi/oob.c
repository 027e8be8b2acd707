/* SPDX-License-Identifier: BSD-3-Clause */
/* The out-of-band messages of exchange creation, over our own duplicate of
 * MPI_COMM_WORLD. The runtime's tags have 64 bits and MPI's may have 15, so
 * every message carries its tag in a header and is matched here, whatever the
 * number of creations under way. The runtime makes one call at a time. */
#include "mpi/internal.h"

#include <stdlib.h>
#include <string.h>

enum { OOB_TAG = 7 };

struct header {
    uint64_t tag;
};

/* A message that has come, or is coming. */
struct message {
    struct message *next;
    MPI_Request request; /* null once it is complete */
    int peer, bytes;
    char data[]; /* header and payload */
};

struct rsched_oob_request {
    struct rsched_oob_request *next; /* of cancelled sends */
    bool send;
    int peer;
    uint64_t tag;
    void *buffer;
    size_t length;
    MPI_Request request; /* of a send */
    char *data;
};

static struct message *arrivals, **arrivals_end = &arrivals;
static struct rsched_oob_request *abandoned;

static void free_send(struct rsched_oob_request *request)
{
    free(request->data);
    free(request);
}

static int oob_isend(void *arg, int peer, uint64_t tag, const void *buffer,
                     size_t length, struct rsched_oob_request **request)
{
    struct rsched_oob_request *send = calloc(1, sizeof(*send));
    struct header header = {tag};

    (void)arg;
    if (send == NULL)
        return RSCHED_ENOMEM;
    send->data = malloc(sizeof(header) + length);
    if (send->data == NULL || length > INT32_MAX - sizeof(header)) {
        free_send(send);
        return RSCHED_ENOMEM;
    }
    send->send = true;
    memcpy(send->data, &header, sizeof(header));
    if (length > 0)
        memcpy(send->data + sizeof(header), buffer, length);
    if (PMPI_Isend(send->data, (int)(sizeof(header) + length), MPI_BYTE, peer,
                   OOB_TAG, rs_process.comm, &send->request) != MPI_SUCCESS) {
        free_send(send);
        return RSCHED_ESYS;
    }
    *request = send;
    return 0;
}

static int oob_irecv(void *arg, int peer, uint64_t tag, void *buffer,
                     size_t length, struct rsched_oob_request **request)
{
    struct rsched_oob_request *receive = calloc(1, sizeof(*receive));

    (void)arg;
    if (receive == NULL)
        return RSCHED_ENOMEM;
    receive->peer = peer;
    receive->tag = tag;
    receive->buffer = buffer;
    receive->length = length;
    *request = receive;
    return 0;
}

/* Begin to take whatever has come. */
static int accept_messages(void)
{
    for (;;) {
        struct message *message;
        MPI_Message handle;
        MPI_Status status;
        int flag, bytes;

        if (PMPI_Improbe(MPI_ANY_SOURCE, OOB_TAG, rs_process.comm, &flag,
                         &handle, &status) != MPI_SUCCESS)
            return RSCHED_ESYS;
        if (!flag)
            return 0;
        PMPI_Get_count(&status, MPI_BYTE, &bytes);
        message = malloc(sizeof(*message) + (size_t)bytes);
        if (message == NULL)
            return RSCHED_ENOMEM;
        message->next = NULL;
        message->peer = status.MPI_SOURCE;
        message->bytes = bytes;
        PMPI_Imrecv(message->data, bytes, MPI_BYTE, &handle,
                    &message->request);
        *arrivals_end = message;
        arrivals_end = &message->next;
    }
}

static bool is_complete(struct message *message)
{
    int flag = 1;

    if (message->request != MPI_REQUEST_NULL)
        PMPI_Test(&message->request, &flag, MPI_STATUS_IGNORE);
    return flag != 0;
}

/* Hand the first message that fits over; messages of one pair are matched in
 * the order in which they were sent, so none may be skipped while it comes. */
static int receive_test(struct rsched_oob_request *receive, bool *done)
{
    int error = accept_messages();

    if (error != 0)
        return error;
    for (struct message **at = &arrivals; *at != NULL; at = &(*at)->next) {
        struct message *message = *at;
        struct header header;

        if (message->peer != receive->peer)
            continue;
        if (!is_complete(message))
            return 0;
        memcpy(&header, message->data, sizeof(header));
        if (header.tag != receive->tag)
            continue;
        if ((size_t)message->bytes != sizeof(header) + receive->length) {
            rs_log(RS_LOG_ERROR,
                   "out-of-band message from rank %d has %zu bytes, not %zu",
                   message->peer, (size_t)message->bytes - sizeof(header),
                   receive->length);
            return RSCHED_EMISMATCH;
        }
        if (receive->length > 0)
            memcpy(receive->buffer, message->data + sizeof(header),
                   receive->length);
        *at = message->next;
        if (arrivals_end == &message->next)
            arrivals_end = at;
        free(message);
        free(receive);
        *done = true;
        return 0;
    }
    return 0;
}

static int oob_test(void *arg, struct rsched_oob_request *request, bool *done)
{
    int flag;

    (void)arg;
    *done = false;
    if (!request->send)
        return receive_test(request, done);
    if (PMPI_Test(&request->request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return RSCHED_ESYS;
    if (flag) {
        free_send(request);
        *done = true;
    }
    return 0;
}

static void oob_cancel(void *arg, struct rsched_oob_request *request)
{
    (void)arg;
    if (!request->send) {
        free(request);
        return;
    }
    /* The data is our own copy: it may stay until the peer has taken it. */
    request->next = abandoned;
    abandoned = request;
}

struct rsched_oob rs_oob(void)
{
    return (struct rsched_oob){.isend = oob_isend, .irecv = oob_irecv,
                               .test = oob_test, .cancel = oob_cancel};
}

void rs_oob_fini(void)
{
    struct rsched_oob_request *send;
    struct message *message;

    /* Peers that gave a creation up leave messages. */
    accept_messages();
    while ((message = arrivals) != NULL) {
        arrivals = message->next;
        if (message->request != MPI_REQUEST_NULL)
            PMPI_Wait(&message->request, MPI_STATUS_IGNORE);
        free(message);
    }
    arrivals_end = &arrivals;
    while ((send = abandoned) != NULL) {
        int flag = 0;

        abandoned = send->next;
        PMPI_Test(&send->request, &flag, MPI_STATUS_IGNORE);
        if (flag) {
            free_send(send);
        } else {
            PMPI_Request_free(&send->request); /* and its buffer stays */
            free(send);
        }
    }
}
