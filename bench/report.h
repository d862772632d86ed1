/* What a run of rill bench found, as text and as JSON. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench.h"
#include "output.h"

typedef struct bench_report {
    char backend[32], device[128], processor[128], commit[64], date[32];
    int threads, processors;
    bench_ceilings ceilings;
    bench_result *results;
    int count;
} bench_report;

/* Fills in the machine, the date and the commit that the command was built from (or was told: commit not NULL). */
void bench_report_begin(bench_report *report, rill_context *context, const char *backend, const char *commit);

void bench_report_print_head(const bench_report *report);
void bench_report_print(const bench_report *report, const bench_result *result);
bool bench_report_write(const bench_report *report, output *to, failure *why);

#endif
