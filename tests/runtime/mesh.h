/* SPDX-License-Identifier: BSD-3-Clause */
/* Out-of-band transport for tests: a socket pair between every two ranks,
 * which are threads or forked processes of one test program. */
#ifndef TESTS_MESH_H
#define TESTS_MESH_H

#include <rsched/context.h>

struct mesh;

/** Make all the sockets; before the ranks come to be. Aborts on failure. */
struct mesh *mesh_create(int num_ranks);
void mesh_destroy(struct mesh *mesh);

/** Close all sockets but a rank's own (-1: all): in a forked rank, so that the
 * others see when it is gone. */
void mesh_keep(struct mesh *mesh, int rank);

/** One rank's end. Destroy it with mesh_end_destroy(). */
struct mesh_end;
struct mesh_end *mesh_end_create(struct mesh *mesh, int rank);
void mesh_end_destroy(struct mesh_end *end);

/** Throw away what has arrived and nobody wanted. */
void mesh_forget(struct mesh_end *end);

/** Whether it does not notice that peers are gone, as some transports do not. */
void mesh_end_set_blind(struct mesh_end *end, bool blind);

/** May change each packet that is sent; the length stays. */
typedef void mesh_doctor(void *arg, int peer, char *data, size_t length);
void mesh_end_set_doctor(struct mesh_end *end, mesh_doctor *doctor, void *arg);

/** Send or receive exactly `length` bytes. @return 0, -1: the peer is gone */
int mesh_send(struct mesh_end *end, int peer, uint64_t tag, const void *data,
              size_t length);
int mesh_receive(struct mesh_end *end, int peer, uint64_t tag, void *data,
                 size_t length);

/** Context parameters for a rank. */
struct rsched_context_params mesh_params(struct mesh_end *end);

/** All ranks meet. */
void mesh_barrier(struct mesh_end *end);

#endif
