/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device that is none: it executes chains of ibv_send_wr by copying within
 * this process, so that lanes and chains are tested where there is no device.
 * Each step checks what a device checks: keys, bounds, limits, alignment.
 */
#ifndef TESTS_VERBS_INTERPRETER_H
#define TESTS_VERBS_INTERPRETER_H

#include <infiniband/verbs.h>

#include "engines/rdma/port.h"

/** Ports of devices that all instances of this process share. In the environment:
 * INTERPRETER_RAILS, how many there are, 2 or up to 4; INTERPRETER_HEAD, their `head_bytes`; INTERPRETER_DEPTH and INTERPRETER_PIECES,
 * less than the usual `max_ops` and `max_pieces`; INTERPRETER_DMABUF=0,
 * INTERPRETER_PEER=0, they do not take GPU memory that way. */
int interpreter_ports(const struct rsched_engine_env *env,
                      struct rs_rdma_port **ports);

/** Register memory; released when the process ends. For chains without a
 * queue. */
void interpreter_register(void *address, uint64_t bytes,
                          enum rs_rdma_access access,
                          struct rs_rdma_keys *keys);

/** Execute a chain. @return the number of requests, or -1: one of them is
 * wrong, and a line on standard error says how */
int interpreter_execute(const struct ibv_send_wr *chain, uint32_t max_inline,
                        uint32_t max_pieces);

/* Functions of a port, for ports with other queues. A port is freed when it is
 * closed; memory_register() does not look at it, nor does memory_release(). */
void interpreter_port_close(struct rs_rdma_port *port);
void interpreter_port_address(const struct rs_rdma_port *port,
                              unsigned char *address);
int interpreter_port_check(struct rs_rdma_port *port);
int interpreter_memory_register(struct rs_rdma_port *port, void *address,
                                uint64_t bytes, enum rs_rdma_access access,
                                struct rs_rdma_keys *keys);
void interpreter_memory_release(struct rs_rdma_port *port,
                                struct rs_rdma_keys *keys);

/** Whether devices get at any of these bytes. */
bool interpreter_reaches(const void *address, uint64_t bytes);

enum { INTERPRETER_ALL_RAILS = 15 };

/** While the wires of rails (bit i: rail i) are cut no request over them is
 * answered: its queue pair fails. */
void interpreter_cut(unsigned rails);

/** This thread can connect no queue pairs of these rails from now on, ... */
void interpreter_refuse(unsigned rails);
/** ... and not of these, whose ports are down as it sees them. */
void interpreter_put_down(unsigned rails);

/** The devices of these rails are gone, in all processes, and say so; what is
 * posted to them is never complete. */
void interpreter_remove(unsigned rails);

/** From now on a request of at least so many bytes, and what is posted to its
 * queue pair after it, is under way for long. 0: no others than those that are
 * already, and what is posted after them. */
void interpreter_hold(uint64_t bytes);
/** The same, of some rails only. */
void interpreter_hold_on(unsigned rails, uint64_t bytes);

/** From now on a request of at least so many bytes, and what is posted to its queue
 * pair after it, is executed, but not acknowledged. 0: as interpreter_hold(). */
void interpreter_lose_acknowledgments(uint64_t bytes);

/** From now on each queue pair takes so many immediates before somebody looks; what is
 * posted after those waits until then. 0: as many as at first. */
void interpreter_receives(uint32_t count);

/** All of it arrives and is acknowledged, and nothing is held up any more. (Whatever writes what it is
 * not allowed to by then breaks both queue pairs, of which that of the receiver
 * says so only to those who post to it.) */
void interpreter_deliver(void);

/** What the queues have done so far, all together. */
struct interpreter_counts {
    uint64_t rings, requests, signals;
    uint64_t queues; /* that were made, whatever became of them */
    uint64_t dmabufs, peers; /* registrations of GPU memory that were taken */
};
struct interpreter_counts interpreter_counts(void);

/** Called for each write to a peer, in the order in which the devices execute them,
 * one after the other. NULL: nobody looks. */
typedef void interpreter_watcher(unsigned rail, uint64_t remote);
void interpreter_watch(interpreter_watcher *watcher);

#endif
