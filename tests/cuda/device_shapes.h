/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory for the conformance cases. */
#ifndef TESTS_CUDA_DEVICE_SHAPES_H
#define TESTS_CUDA_DEVICE_SHAPES_H

#include "tests/conformance/shape.h"

/** Have messages lie in it: each rank has its GPU, in threads of one process
 * too. */
void device_shapes(bool pulled);

#endif
