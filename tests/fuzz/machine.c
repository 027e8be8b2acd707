/* SPDX-License-Identifier: BSD-3-Clause */
#include <rsched/machine.h>

#include "tests/fuzz/roundtrip.h"

FUZZ_ROUNDTRIP(rsched_machine)
