/* SPDX-License-Identifier: BSD-3-Clause */
/* What `rsched probe` has measured, and what is shown of it. */
#ifndef RS_TOOLS_PROBE_H
#define RS_TOOLS_PROBE_H

#include <stdio.h>

#include "models/ways.h"
#include "tools/pair.h"

enum {
    PROBE_ROUNDS_MOST = 64,
    PROBE_STORES = 8, /* sizes at which both kinds of stores, and bare copies,
                         are measured */
    PROBE_STORES_SHORTEST = 1 << 20 /* bytes; each has twice as many */
};

/* Times that were measured, one in each round. */
struct probe_times {
    double ps[PROBE_ROUNDS_MOST];
    unsigned count;
};

/** The lower quartile: other work on the machine only adds to times. */
double probe_quartile(struct probe_times *times);

/* A way's measurements, and how far the fit is from them (0.05: 5 %). */
struct probe_way {
    uint64_t shortest; /* bytes; each sample has twice as many as the last */
    size_t count;
    struct probe_times work_times[RS_WAY_SAMPLES], gap_times[RS_WAY_SAMPLES];
    struct probe_times whole, cut; /* in one block, and in several */
    struct rs_way_sample work[RS_WAY_SAMPLES], gap[RS_WAY_SAMPLES];
    double work_error, gap_error;
};

/* Epochs that are pulled and read, written through the caches and past them. */
struct probe_stores {
    size_t count;
    struct probe_times times[2][PROBE_STORES]; /* [nontemporal] */
    double share[PROBE_STORES]; /* of the time without them */
};

/* Bare copies of what goes in one direction: by one core, and halves by both. */
struct probe_copies {
    size_t count;
    struct probe_times times[2][PROBE_STORES]; /* [halves] */
};

struct probe {
    const char *class; /* of a line's round trip */
    const struct rs_numa_pair *where; /* the two cores */
    uint64_t line;     /* one way, ps */
    uint64_t longest;  /* bytes */
    unsigned rounds;
    struct probe_stores stores;
    struct probe_copies copies;
    struct probe_way of[RS_NUM_HOST_WAYS];
    struct rs_host_ways ways; /* fitted */
};

/** Measure all ways and fit them. @return TOOL_OK or a status */
int probe_measure(struct pair *pair, struct probe *probe);

/** The samples of what was measured, and the costs that meet them; c->latency says
 * what is waited for, and is less if measured so. @return TOOL_OK or a status */
int probe_fit(struct probe_way *w, struct rs_way_costs *c);

/** On a terminal, how far it is; nothing behind the last round. */
void probe_show_round(const struct pair *pair, const char *what, unsigned round,
                      unsigned rounds);

/** What the numbers of a table of the parameters are. */
void probe_print_head(FILE *out);

/** What o and O, or g and G, are, to the end of the line. */
void probe_print_cost(const char *name, const char *bytes_name,
                      const struct rs_way_cost *cost, double error, FILE *out);

/** A table of the parameters, and one of the sizes at which the way changes. */
void probe_print(struct probe *probe, FILE *out);

/** Times by size with what was fitted, and where the way changes: a drawing for
 * each, one below the other. */
void probe_draw(const struct probe *probes, size_t count, FILE *out);

/** Measure whole exchanges and print them beside what `ways` says. */
int probe_compare(struct pair *pair, const struct rs_host_ways *ways,
                  unsigned rounds);

#endif
