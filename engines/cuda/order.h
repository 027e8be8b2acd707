/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ORDER: joins the epochs of an exchange with streams of the program.
 *
 * A start is a host function in the stream: it counts, and wakes the thread
 * that begins the epoch. A host function may not call the driver, nor wait for
 * what needs it, and does neither. A wait is two operations on a word in
 * pinned host memory: the stream waits until it is 1, and makes it 0. The
 * host makes it 1 when the epoch is complete.
 *
 * Both are the same in each epoch, so a captured graph has no number in it that
 * would have to change from launch to launch. They need no counter on the GPU
 * since starts and waits of an exchange take turns: the word is 0 when a start
 * is reached, as the wait before it has made it 0, and nobody makes it 1 before
 * the epoch of that start is complete.
 *
 * An order lives until its exchange has gone, no captured graph has it any more
 * (a user object of the driver's says so), and the stream has passed the last
 * operation that was enqueued (an event says so). Without an exchange a start
 * counts as complete at once, so no stream waits for ever.
 */
#ifndef RS_CUDA_ORDER_H
#define RS_CUDA_ORDER_H

#include <rsched/engine.h>

int rs_cuda_order_create(void (*reached)(void *arg), void *arg,
                         struct rsched_order **order);
int rs_cuda_order_start(struct rsched_order *order, void *stream);
int rs_cuda_order_wait(struct rsched_order *order, void *stream);
uint64_t rs_cuda_order_reached(const struct rsched_order *order);
void rs_cuda_order_complete(struct rsched_order *order);
void rs_cuda_order_destroy(struct rsched_order *order);

/** An instance is closed: free what no stream needs any more. The driver may
 * wait for streams. */
void rs_cuda_orders_close(void);

#endif
