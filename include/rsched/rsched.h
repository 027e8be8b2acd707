/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Everything but the MPI interface, which is in rsched/mpi.h. */
#ifndef RSCHED_RSCHED_H
#define RSCHED_RSCHED_H

#include <rsched/config.h>
#include <rsched/context.h>
#include <rsched/device_open.h>
#include <rsched/error.h>
#include <rsched/exchange.h>
#include <rsched/machine.h>
#include <rsched/memory.h>
#include <rsched/pattern.h>
#include <rsched/schedule.h>
#include <rsched/version.h>

#endif
