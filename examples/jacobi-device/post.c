/* SPDX-License-Identifier: BSD-3-Clause */
#include "post.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct letter {
    struct letter *next;
    int from, to;
    uint64_t tag;
    size_t length;
    char bytes[];
};

struct post {
    pthread_mutex_t lock;
    struct letter *letters; /* the oldest one first */
};

/* Of a receive; a send is done at once, and has no request. */
struct rsched_oob_request {
    int from, to;
    uint64_t tag;
    void *buffer;
    size_t length;
};

static struct rsched_oob_request sent;

struct post *post_create(void)
{
    struct post *post = calloc(1, sizeof(*post));

    if (post != NULL)
        pthread_mutex_init(&post->lock, NULL);
    return post;
}

void post_destroy(struct post *post)
{
    while (post->letters != NULL) {
        struct letter *l = post->letters;

        post->letters = l->next;
        free(l);
    }
    pthread_mutex_destroy(&post->lock);
    free(post);
}

static int isend(void *arg, int peer, uint64_t tag, const void *buffer,
                 size_t length, struct rsched_oob_request **request)
{
    const struct post_end *end = arg;
    struct letter *l = malloc(sizeof(*l) + length), **at;

    if (l == NULL)
        return RSCHED_ENOMEM;
    *l = (struct letter){
        .from = end->rank, .to = peer, .tag = tag, .length = length};
    memcpy(l->bytes, buffer, length);
    pthread_mutex_lock(&end->post->lock);
    for (at = &end->post->letters; *at != NULL; at = &(*at)->next)
        ;
    *at = l;
    pthread_mutex_unlock(&end->post->lock);
    *request = &sent;
    return 0;
}

static int irecv(void *arg, int peer, uint64_t tag, void *buffer, size_t length,
                 struct rsched_oob_request **request)
{
    const struct post_end *end = arg;
    struct rsched_oob_request *r = malloc(sizeof(*r));

    if (r == NULL)
        return RSCHED_ENOMEM;
    *r = (struct rsched_oob_request){.from = peer,
                                     .to = end->rank,
                                     .tag = tag,
                                     .buffer = buffer,
                                     .length = length};
    *request = r;
    return 0;
}

/* @return the oldest letter that a receive is for, which is taken, or NULL */
static struct letter *take(struct post *post,
                           const struct rsched_oob_request *r)
{
    struct letter **at = &post->letters, *l;

    pthread_mutex_lock(&post->lock);
    while (*at != NULL && ((*at)->from != r->from || (*at)->to != r->to ||
                           (*at)->tag != r->tag))
        at = &(*at)->next;
    l = *at;
    if (l != NULL)
        *at = l->next;
    pthread_mutex_unlock(&post->lock);
    return l;
}

static int test(void *arg, struct rsched_oob_request *request, bool *done)
{
    const struct post_end *end = arg;
    struct letter *l;
    int error = 0;

    *done = true;
    if (request == &sent)
        return 0;
    l = take(end->post, request);
    if (l == NULL) {
        *done = false;
        return 0;
    }
    if (l->length == request->length)
        memcpy(request->buffer, l->bytes, l->length);
    else
        error = RSCHED_ETRUNC;
    free(l);
    free(request);
    return error;
}

static void cancel(void *arg, struct rsched_oob_request *request)
{
    (void)arg;
    if (request != &sent)
        free(request);
}

struct rsched_oob post_oob(struct post_end *end)
{
    return (struct rsched_oob){.arg = end,
                               .isend = isend,
                               .irecv = irecv,
                               .test = test,
                               .cancel = cancel};
}
