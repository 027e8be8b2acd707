/* SPDX-License-Identifier: BSD-3-Clause */
#include <rsched/pattern.h>

#include "tests/fuzz/roundtrip.h"

FUZZ_ROUNDTRIP(rsched_pattern)
