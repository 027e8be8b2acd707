/* SPDX-License-Identifier: BSD-3-Clause */
#include "mailbox.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_MESSAGES = 64, MAX_BYTES = 4096 };

struct letter {
    uint64_t tag;
    size_t length;
    bool taken; /* only the receiver looks at it */
    char bytes[MAX_BYTES];
};

/* From one process to another. */
struct channel {
    _Atomic int count; /* letters written; only the sender writes it */
    struct letter letters[MAX_MESSAGES];
};

struct mailbox {
    int processes;
    int self; /* differs in each process: this struct is not shared */
    struct channel *channels; /* shared: [from * processes + to] */
};

struct rsched_oob_request {
    struct channel *channel; /* NULL: a send, done already */
    uint64_t tag;
    void *buffer;
    size_t length;
};

static size_t channels_size(int processes)
{
    return (size_t)(processes * processes) * sizeof(struct channel);
}

struct mailbox *mailbox_create(int processes)
{
    struct mailbox *box = calloc(1, sizeof(*box));
    void *shared;

    if (box == NULL)
        return NULL;
    shared = mmap(NULL, channels_size(processes), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        free(box);
        return NULL;
    }
    box->processes = processes;
    box->channels = shared;
    return box;
}

void mailbox_destroy(struct mailbox *box)
{
    munmap(box->channels, channels_size(box->processes));
    free(box);
}

void mailbox_become(struct mailbox *box, int process)
{
    box->self = process;
}

static struct channel *channel_of(const struct mailbox *box, int from, int to)
{
    return &box->channels[from * box->processes + to];
}

static int new_request(struct channel *channel, uint64_t tag, void *buffer,
                       size_t length, struct rsched_oob_request **request)
{
    struct rsched_oob_request *r = malloc(sizeof(*r));

    if (r == NULL)
        return RSCHED_ENOMEM;
    *r = (struct rsched_oob_request){channel, tag, buffer, length};
    *request = r;
    return 0;
}

static int box_isend(void *arg, int peer, uint64_t tag, const void *buffer,
                     size_t length, struct rsched_oob_request **request)
{
    struct mailbox *box = arg;
    struct channel *channel = channel_of(box, box->self, peer);
    int n = atomic_load_explicit(&channel->count, memory_order_relaxed);
    struct letter *letter = &channel->letters[n];

    if (n == MAX_MESSAGES || length > MAX_BYTES)
        return RSCHED_ELIMIT;
    letter->tag = tag;
    letter->length = length;
    memcpy(letter->bytes, buffer, length);
    /* Release: who sees the count sees the letter. */
    atomic_store_explicit(&channel->count, n + 1, memory_order_release);
    return new_request(NULL, 0, NULL, 0, request);
}

static int box_irecv(void *arg, int peer, uint64_t tag, void *buffer,
                     size_t length, struct rsched_oob_request **request)
{
    struct mailbox *box = arg;

    return new_request(channel_of(box, peer, box->self), tag, buffer, length,
                       request);
}

/* The first letter with that tag which has not been taken. */
static struct letter *find(struct channel *channel, uint64_t tag)
{
    int n = atomic_load_explicit(&channel->count, memory_order_acquire);

    for (int i = 0; i < n; i++)
        if (!channel->letters[i].taken && channel->letters[i].tag == tag)
            return &channel->letters[i];
    return NULL;
}

static int box_test(void *arg, struct rsched_oob_request *r, bool *done)
{
    struct letter *letter;

    (void)arg;
    *done = r->channel == NULL;
    if (!*done && (letter = find(r->channel, r->tag)) != NULL) {
        if (letter->length != r->length)
            return RSCHED_EMISMATCH;
        memcpy(r->buffer, letter->bytes, r->length);
        letter->taken = true;
        *done = true;
    }
    if (*done)
        free(r);
    return 0;
}

static void box_cancel(void *arg, struct rsched_oob_request *r)
{
    (void)arg;
    free(r);
}

struct rsched_oob mailbox_oob(struct mailbox *box)
{
    return (struct rsched_oob){.arg = box, .isend = box_isend,
                               .irecv = box_irecv, .test = box_test,
                               .cancel = box_cancel};
}
