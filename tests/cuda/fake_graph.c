/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver in software: what else streams do than copies and kernels, and their
 * capture into graphs. */
#include "tests/cuda/fake_inside.h"

#include <stdlib.h>
#include <string.h>

/* A graph is what one stream was told, in that order. */
struct CUgraph_st {
    struct fake_work *works;
    size_t number, room;
    struct CUuserObject_st *objects; /* that it keeps */
    unsigned users; /* its maker, and executable graphs */
};

struct CUgraphExec_st {
    struct CUgraph_st *graph;
};

struct CUuserObject_st {
    struct CUuserObject_st *next;
    CUhostFn destroy;
    void *arg;
};

void fake_graph_append(CUgraph graph, const struct fake_work *work)
{
    if (work->kind == FAKE_WORK_LAUNCH)
        fake_die("captures a kernel, which is not supported", graph);
    if (graph->number == graph->room) {
        graph->room = graph->room == 0 ? 16 : 2 * graph->room;
        graph->works = realloc(graph->works,
                               graph->room * sizeof(*graph->works));
        if (graph->works == NULL)
            abort();
    }
    graph->works[graph->number++] = *work;
}

CUgraph fake_graph_create(void)
{
    CUgraph graph = calloc(1, sizeof(*graph));

    if (graph == NULL)
        abort();
    graph->users = 1;
    fake_count(FAKE_GRAPHS, 1);
    return graph;
}

/* The destructors of what it keeps may not call the driver. */
static void release(CUgraph graph)
{
    unsigned users;

    pthread_mutex_lock(&fake_lock);
    users = --graph->users;
    pthread_mutex_unlock(&fake_lock);
    if (users > 0)
        return;
    while (graph->objects != NULL) {
        struct CUuserObject_st *object = graph->objects;

        graph->objects = object->next;
        fake_call_host(object->destroy, object->arg);
        free(object);
        fake_count(FAKE_GRAPHS, -1);
    }
    free(graph->works);
    free(graph);
    fake_count(FAKE_GRAPHS, -1);
}

API CUresult CUDAAPI cuGraphDestroy(CUgraph graph)
{
    release(graph);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuGraphInstantiate(CUgraphExec *exec, CUgraph graph,
                                        unsigned long long flags)
{
    CUresult result = fake_check(exec, 1);

    if (result != CUDA_SUCCESS)
        return result;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *exec = calloc(1, sizeof(**exec));
    if (*exec == NULL)
        abort();
    pthread_mutex_lock(&fake_lock);
    graph->users++;
    (*exec)->graph = graph;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec)
{
    release(exec->graph);
    free(exec);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    CUresult result = fake_check(stream, 1);

    for (size_t i = 0; i < exec->graph->number && result == CUDA_SUCCESS; i++)
        result = fake_enqueue(stream, &exec->graph->works[i]);
    return result;
}

API CUresult CUDAAPI cuUserObjectCreate(CUuserObject *object, void *arg,
                                        CUhostFn destroy, unsigned count,
                                        unsigned flags)
{
    INJECT(cuUserObjectCreate);
    if (count != 1 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    *object = calloc(1, sizeof(**object));
    if (*object == NULL)
        abort();
    **object = (struct CUuserObject_st){.destroy = destroy, .arg = arg};
    fake_count(FAKE_GRAPHS, 1);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned count)
{
    if (count != 1)
        return CUDA_ERROR_INVALID_VALUE;
    fake_call_host(object->destroy, object->arg);
    free(object);
    fake_count(FAKE_GRAPHS, -1);
    return CUDA_SUCCESS;
}

API CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object,
                                             unsigned count, unsigned flags)
{
    INJECT(cuGraphRetainUserObject);
    if (count != 1 || flags != CU_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    object->next = graph->objects;
    graph->objects = object;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

/* ---- host functions, and operations on words ---- */

API CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function,
                                      void *arg)
{
    const struct fake_work work = {.kind = FAKE_WORK_HOST,
                                   .function = function,
                                   .arg = arg};
    CUresult result = fake_check(stream, 1);

    INJECT(cuLaunchHostFunc);
    return result == CUDA_SUCCESS ? fake_enqueue(stream, &work) : result;
}

static CUresult enqueue_word(CUstream stream, CUdeviceptr address,
                             unsigned value, enum fake_work_kind kind)
{
    const struct fake_work work = {.kind = kind,
                                   .word = address,
                                   .value = value};
    CUresult result = fake_check(stream, 1);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&fake_lock);
    if (fake_word(address) == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&fake_lock);
    return result == CUDA_SUCCESS ? fake_enqueue(stream, &work) : result;
}

#ifndef FAKE_CUDA_EARLY /* the driver before the one that had this */
API CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address,
                                         cuuint32_t value, unsigned flags)
{
    INJECT(cuStreamWaitValue32);
    if (flags != CU_STREAM_WAIT_VALUE_EQ)
        return CUDA_ERROR_INVALID_VALUE;
    return enqueue_word(stream, address, value, FAKE_WORK_WAIT);
}
#endif

API CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address,
                                          cuuint32_t value, unsigned flags)
{
    INJECT(cuStreamWriteValue32);
    if (flags != CU_STREAM_WRITE_VALUE_DEFAULT)
        return CUDA_ERROR_INVALID_VALUE;
    return enqueue_word(stream, address, value, FAKE_WORK_WRITE);
}
