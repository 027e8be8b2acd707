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

/** One rank's end. Destroy it with mesh_end_destroy(). */
struct mesh_end;
struct mesh_end *mesh_end_create(struct mesh *mesh, int rank);
void mesh_end_destroy(struct mesh_end *end);

/** Context parameters for a rank. */
struct rsched_context_params mesh_params(struct mesh_end *end);

/** All ranks meet. */
void mesh_barrier(struct mesh_end *end);

#endif
