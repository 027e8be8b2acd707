/* SPDX-License-Identifier: BSD-3-Clause */
/* All engines of this library, one line each, in the order in which they are
 * tried. NAME stands for the table rs_NAME_ops in engines/NAME/. */
#include <rsched/engine.h>

#if RSCHED_VERBS
#define VERBS(XX) XX(verbs)
#else
#define VERBS(XX)
#endif

#if RSCHED_CUDA
#define CUDA(XX) XX(cuda)
#else
#define CUDA(XX)
#endif

#define ENGINES(XX) XX(loopback) CUDA(XX) VERBS(XX)

#define XX(name) extern const struct rsched_engine_ops rs_##name##_ops;
ENGINES(XX)
#undef XX

static const struct rsched_engine_ops *const engines[] = {
#define XX(name) &rs_##name##_ops,
    ENGINES(XX)
#undef XX
};

const struct rsched_engine_ops *rsched_engine_at(size_t index)
{
    return index < sizeof(engines) / sizeof(engines[0]) ? engines[index] : NULL;
}

static const struct rsched_engine_absence absences[] = {
#if !RSCHED_VERBS
    {"verbs", "built without libibverbs"},
#endif
#if !RSCHED_CUDA
    {"cuda", "built without cuda.h"},
#endif
    {NULL, NULL},
};

const struct rsched_engine_absence *rsched_engine_absence_at(size_t index)
{
    for (size_t i = 0; absences[i].name != NULL; i++) {
        if (i == index)
            return &absences[i];
    }
    return NULL;
}

#if RSCHED_CUDA
extern const struct rsched_gpu_ops rs_cuda_gpu_ops;

const struct rsched_gpu_ops *rsched_gpus(void)
{
    return &rs_cuda_gpu_ops;
}
#else
const struct rsched_gpu_ops *rsched_gpus(void)
{
    return NULL;
}
#endif
