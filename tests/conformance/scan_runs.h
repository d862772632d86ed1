/*
 * Runs a hard row through scan, or the same recurrence through scan_backward's gradients, in one of the ways of
 * laying it out and of cutting time, and checks every value.
 */
#ifndef CONFORMANCE_SCAN_RUNS_H
#define CONFORMANCE_SCAN_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/rill.h>

#include "scan_rows.h"

typedef struct scan_way {
    rill_dtype dtype;
    int64_t length, channels; /* every other channel, from the second, is scan_row_plain */
    int64_t piece;            /* so many steps a call; 0: all */
    bool time_last;           /* [batch, channels, length] in memory */
    bool reverse;
    bool backward;
    bool in_place; /* forward: h over b */
} scan_way;

/* False, with a line on stdout, where the call is refused or a value is wrong. */
bool scan_way_run(rill_context *context, const scan_row *row, const scan_way *way);

#endif
