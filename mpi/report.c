/* SPDX-License-Identifier: BSD-3-Clause */
/* The report in MPI_Finalize. */
#include "mpi/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_COUNTS = sizeof(struct rs_counts) / sizeof(uint64_t) };

static uint64_t native_calls(const struct rs_counts *counts, int call)
{
    uint64_t sum = 0;

    for (int reason = RS_ACCELERATED + 1; reason < RS_NUM_REASONS; reason++)
        sum += counts->calls[call][reason];
    return sum;
}

static bool write_file(const char *path, const char *text, size_t length)
{
    FILE *out = fopen(path, "w");
    bool written;

    if (out == NULL)
        return false;
    written = fwrite(text, 1, length, out) == length;
    return fclose(out) == 0 && written;
}

/* To RSCHED_REPORT_FILE; to standard error when there is none, or it cannot be written. */
static void write_report(const char *text, size_t length)
{
    const char *path = rs_process.report_file;

    if (*path != '\0' && write_file(path, text, length))
        return;
    if (*path != '\0')
        rs_log(RS_LOG_ERROR,
               "cannot write the report %s: %s; it is printed here", path,
               strerror(errno));
    fwrite(text, 1, length, stderr);
    fflush(stderr);
}

/* ---- as text ---- */

static void print_calls(FILE *out, const struct rs_counts *counts)
{
    bool none = true;

    for (int call = 0; call < RS_NUM_CALLS; call++) {
        uint64_t accelerated = counts->calls[call][RS_ACCELERATED];
        uint64_t native = native_calls(counts, call);

        if (accelerated + native == 0)
            continue;
        if (none)
            fprintf(out, "rsched:   %-28s %14s %14s\n", "call", "accelerated",
                    "native");
        none = false;
        fprintf(out, "rsched:   %-28s %14" PRIu64 " %14" PRIu64 "\n",
                rs_call_names[call], accelerated, native);
    }
    if (none)
        fprintf(out, "rsched:   no neighborhood collective and no persistent "
                     "request was seen\n");
}

static void print_lanes(FILE *out, const uint64_t *n)
{
    if (n[RS_NUMBER_LANE_SENDS] + n[RS_NUMBER_LANE_RECEIVES] +
            n[RS_NUMBER_LANE_NATIVE] ==
        0)
        return;
    fprintf(out,
            "rsched:   point-to-point: %" PRIu64 " sends and %" PRIu64
            " receives through lanes in %" PRIu64 " incarnations (%" PRIu64
            " stopped), %" PRIu64 " starts native\n",
            n[RS_NUMBER_LANE_SENDS], n[RS_NUMBER_LANE_RECEIVES],
            n[RS_NUMBER_INCARNATIONS], n[RS_NUMBER_STOPS],
            n[RS_NUMBER_LANE_NATIVE]);
}

/* Bytes by way or engine: those that carried any. */
static void print_parts(FILE *out, const uint64_t *bytes,
                        const char *(*name_of)(size_t index))
{
    const char *name, *before = " ";

    for (size_t i = 0; (name = name_of(i)) != NULL; i++) {
        if (bytes[i] == 0)
            continue;
        fprintf(out, "%s%" PRIu64 " %s", before, bytes[i], name);
        before = ", ";
    }
    if (name_of == rs_way_name)
        fprintf(out, ";");
}

static void print_adoptions(FILE *out, const uint64_t *bytes)
{
    uint64_t sum = 0;

    for (int i = 0; i < RSCHED_NUM_ADOPTIONS; i++)
        sum += bytes[i];
    if (sum == 0)
        return;
    fprintf(out, "rsched:   bytes of ordinary send buffers:");
    print_parts(out, bytes, rs_adoption_name);
    fprintf(out, "\n");
}

/* Channels that were made with a communicator, and perhaps never used, are none. */
static void print_exchanges(FILE *out, const uint64_t *n)
{
    if (n[RS_NUMBER_STARTS] + n[RS_NUMBER_PUTS] == 0)
        return;
    fprintf(out, "rsched:   ");
    if (n[RS_NUMBER_STARTS] > 0)
        fprintf(out, "%" PRIu64 " starts of persistent collectives, ",
                n[RS_NUMBER_STARTS]);
    fprintf(out, "%" PRIu64 " puts on %" PRIu64 " edges (%" PRIu64
            " to the process itself)\n",
            n[RS_NUMBER_PUTS], n[RS_NUMBER_EDGES_OUT], n[RS_NUMBER_EDGES_SELF]);
    if (n[RS_NUMBER_BYTES] > 0) {
        fprintf(out, "rsched:   %" PRIu64 " bytes:", n[RS_NUMBER_BYTES]);
        print_parts(out, n + RS_NUMBER_WAYS, rs_way_name);
        print_parts(out, n + RS_NUMBER_ENGINES, rs_engine_name);
        fprintf(out, "\n");
    }
    fprintf(out, "rsched:   %" PRIu64 " landing slots filled, %" PRIu64
            " waits for a free one\n",
            n[RS_NUMBER_CHUNKS], n[RS_NUMBER_STALLS]);
}

static void print_numbers(FILE *out, const struct rs_counts *counts)
{
    const uint64_t *n = counts->numbers;

    print_lanes(out, n);
    if (n[RS_NUMBER_CROWDED] > 0)
        fprintf(out,
                "rsched:   processes outnumber cores, or what a quota gives them: %" PRIu64
                " of them yield at once instead of polling\n",
                n[RS_NUMBER_CROWDED]);
    if (n[RS_NUMBER_TRIALS] > 0)
        fprintf(out,
                "rsched:   %" PRIu64 " trials of which way is faster, %" PRIu64
                " changed it\n",
                n[RS_NUMBER_TRIALS], n[RS_NUMBER_TRIAL_CHANGES]);
    if (n[RS_NUMBER_HUGE] > 0)
        fprintf(out,
                "rsched:   %" PRIu64 " bytes of send buffers put into huge "
                "pages\n",
                n[RS_NUMBER_HUGE]);
    print_exchanges(out, n);
    print_adoptions(out, n + RS_NUMBER_ADOPTIONS);
    if (n[RS_NUMBER_QUEUED] > 0)
        fprintf(out, "rsched:   %" PRIu64 " nonblocking calls queued\n",
                n[RS_NUMBER_QUEUED]);
    if (n[RS_NUMBER_PACKED] > 0)
        fprintf(out, "rsched:   %" PRIu64 " blocks packed by the native MPI\n",
                n[RS_NUMBER_PACKED]);
    if (n[RS_NUMBER_STAGED] > 0)
        fprintf(out, "rsched:   %" PRIu64 " bytes copied between GPU memory and "
                     "the host's\n",
                n[RS_NUMBER_STAGED]);
}

static void print_reasons(FILE *out, const struct rs_counts *counts)
{
    for (int reason = RS_ACCELERATED + 1; reason < RS_NUM_REASONS; reason++) {
        uint64_t sum = 0;

        for (int call = 0; call < RS_NUM_CALLS; call++)
            sum += counts->calls[call][reason];
        if (sum == 0)
            continue;
        fprintf(out, "rsched:   native because: %s: %" PRIu64 " (",
                rs_reason_texts[reason], sum);
        for (int call = 0, first = 1; call < RS_NUM_CALLS; call++) {
            if (counts->calls[call][reason] == 0)
                continue;
            fprintf(out, "%s%s %" PRIu64, first ? "" : ", ",
                    rs_call_names[call], counts->calls[call][reason]);
            first = 0;
        }
        fprintf(out, ")\n");
    }
}

static void print_text(FILE *out, const struct rs_counts *total,
                       const struct rs_counts *each)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;

    PMPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = '\0';
    for (char *c = library; *c != '\0'; c++)
        *c = *c == '\t' ? ' ' : *c;
    fprintf(out, "rsched: %d process%s, %s%s\n", rs_process.size,
            rs_process.size == 1 ? "" : "es", library,
            rs_process.reason == RS_REASON_DISABLED
                ? ", disabled by RSCHED_DISABLE"
                : "");
    print_calls(out, total);
    print_numbers(out, total);
    print_reasons(out, total);
    for (int rank = 0; each != NULL && rank < rs_process.size; rank++) {
        fprintf(out, "rsched: process %d\n", rank);
        print_calls(out, &each[rank]);
        print_numbers(out, &each[rank]);
        print_reasons(out, &each[rank]);
    }
}

/* ---- as JSON ---- */

static const char *const number_names[RS_NUMBER_WAYS] = {
    [RS_NUMBER_STARTS] = "starts",
    [RS_NUMBER_EDGES_OUT] = "edges_out",
    [RS_NUMBER_EDGES_IN] = "edges_in",
    [RS_NUMBER_EDGES_SELF] = "edges_self",
    [RS_NUMBER_PUTS] = "puts",
    [RS_NUMBER_BYTES] = "bytes",
    [RS_NUMBER_SELF_BYTES] = "self_bytes",
    [RS_NUMBER_CHUNKS] = "chunks",
    [RS_NUMBER_STALLS] = "credit_stalls",
    [RS_NUMBER_PACKED] = "packed",
    [RS_NUMBER_STAGED] = "staged",
    [RS_NUMBER_LOADS] = "loads",
    [RS_NUMBER_QUEUED] = "queued",
    [RS_NUMBER_LANE_SENDS] = "lane_sends",
    [RS_NUMBER_LANE_RECEIVES] = "lane_receives",
    [RS_NUMBER_LANE_NATIVE] = "lane_native",
    [RS_NUMBER_LANE_PULLS] = "lane_pulls",
    [RS_NUMBER_LANE_MAPPED] = "lane_mapped",
    [RS_NUMBER_LANE_PACKED] = "lane_packed",
    [RS_NUMBER_LANE_NONTEMPORAL] = "lane_nontemporal",
    [RS_NUMBER_LANE_PREFETCHED] = "lane_prefetched",
    [RS_NUMBER_TRIALS] = "trials",
    [RS_NUMBER_TRIAL_CHANGES] = "trial_changes",
    [RS_NUMBER_LANE_OPENED] = "lane_opened",
    [RS_NUMBER_LANE_WAKES] = "lane_wakes",
    [RS_NUMBER_HUGE] = "huge",
    [RS_NUMBER_INCARNATIONS] = "incarnations",
    [RS_NUMBER_STOPS] = "stops",
    [RS_NUMBER_WITHDRAWN] = "withdrawn",
    [RS_NUMBER_CROWDED] = "crowded",
};

/* Bytes by way or engine. */
static void print_json_parts(FILE *out, const char *title,
                             const uint64_t *bytes,
                             const char *(*name_of)(size_t index))
{
    const char *name;

    fprintf(out, ", \"%s\": {", title);
    for (size_t i = 0; (name = name_of(i)) != NULL; i++)
        fprintf(out, "%s\"%s\": %" PRIu64, i == 0 ? "" : ", ", name, bytes[i]);
    fprintf(out, "}");
}

static void print_json_counts(FILE *out, const struct rs_counts *counts)
{
    fprintf(out, "\"calls\": {");
    for (int call = 0, first = 1; call < RS_NUM_CALLS; call++) {
        if (counts->calls[call][RS_ACCELERATED] + native_calls(counts, call) ==
            0)
            continue;
        fprintf(out, "%s\"%s\": {\"accelerated\": %" PRIu64 ", \"native\": {",
                first ? "" : ", ", rs_call_names[call],
                counts->calls[call][RS_ACCELERATED]);
        first = 0;
        for (int reason = 1, one = 1; reason < RS_NUM_REASONS; reason++) {
            if (counts->calls[call][reason] == 0)
                continue;
            fprintf(out, "%s\"%s\": %" PRIu64, one ? "" : ", ",
                    rs_reason_slugs[reason], counts->calls[call][reason]);
            one = 0;
        }
        fprintf(out, "}}");
    }
    fprintf(out, "}");
    for (int i = 0; i < RS_NUMBER_WAYS; i++)
        fprintf(out, ", \"%s\": %" PRIu64, number_names[i],
                counts->numbers[i]);
    print_json_parts(out, "ways", counts->numbers + RS_NUMBER_WAYS,
                     rs_way_name);
    print_json_parts(out, "engines", counts->numbers + RS_NUMBER_ENGINES,
                     rs_engine_name);
    print_json_parts(out, "adoptions", counts->numbers + RS_NUMBER_ADOPTIONS,
                     rs_adoption_name);
    fprintf(out, "}");
}

/* What the short names of reasons mean. */
static void print_json_reasons(FILE *out)
{
    fprintf(out, ",\n \"reasons\": {");
    for (int reason = RS_ACCELERATED + 1; reason < RS_NUM_REASONS; reason++)
        fprintf(out, "%s\n  \"%s\": \"%s\"",
                reason == RS_ACCELERATED + 1 ? "" : ",",
                rs_reason_slugs[reason], rs_reason_texts[reason]);
    fprintf(out, "}");
}

static void print_json(FILE *out, const struct rs_counts *total,
                       const struct rs_counts *each)
{
    fprintf(out, "{\"rsched\": \"%s\", \"processes\": %d,\n \"total\": {",
            rsched_version(), rs_process.size);
    print_json_counts(out, total);
    print_json_reasons(out);
    fprintf(out, ",\n \"each\": [");
    for (int rank = 0; each != NULL && rank < rs_process.size; rank++) {
        fprintf(out, "%s\n  {\"rank\": %d, ", rank == 0 ? "" : ",", rank);
        print_json_counts(out, &each[rank]);
    }
    fprintf(out, "]}\n");
}

/* In memory first: a file is only replaced by all of it, and what is lost there is not lost. */
static void report(const struct rs_counts *total, const struct rs_counts *each)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    if (out != NULL) {
        if (rs_process.report == RS_REPORT_JSON)
            print_json(out, total, each);
        else
            print_text(out, total, each);
    }
    if (out != NULL && fclose(out) == 0)
        write_report(text, length);
    else
        rs_log(RS_LOG_ERROR, "no memory for the report");
    free(text);
}

void rs_report(void)
{
    struct rs_counts mine, total = {0}, *each = NULL;

    if (rs_process.report == RS_REPORT_NONE)
        return;
    rs_count_collect(&mine);
    PMPI_Reduce(&mine, &total, NUM_COUNTS, MPI_UINT64_T, MPI_SUM, 0,
                rs_process.comm);
    if (rs_process.report != RS_REPORT_SUMMARY) {
        if (rs_process.rank == 0)
            each = calloc((size_t)rs_process.size, sizeof(*each));
        PMPI_Gather(&mine, NUM_COUNTS, MPI_UINT64_T, each, NUM_COUNTS,
                    MPI_UINT64_T, 0, rs_process.comm);
    }
    if (rs_process.rank == 0)
        report(&total, each);
    free(each);
}
