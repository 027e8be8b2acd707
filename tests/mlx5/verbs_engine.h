/* SPDX-License-Identifier: BSD-3-Clause */
/* What a test sees of the devices that verbs_engine.c makes. */
#ifndef TESTS_VERBS_ENGINE_H
#define TESTS_VERBS_ENGINE_H

/** Queue pairs that were brought to the error state. */
unsigned verbs_engine_stopped(void);

#endif
