/*
 * Scans of one channel on which products of decays overflow, vanish or cancel though every state is harmless, or meet
 * a NaN or infinity that a reset drops: the decays and inputs by step, of any length.
 */
#ifndef CONFORMANCE_SCAN_ROWS_H
#define CONFORMANCE_SCAN_ROWS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct scan_row {
    const char *name;
    /* Step k of length, from 0.  wide: of float64, whose range is larger. */
    void (*step)(int64_t k, int64_t length, bool wide, double *a, double *b);
    int64_t length; /* 0: any */
    bool has_init;
    double init;
    bool exact;                 /* no step of the plain loop rounds: nothing may */
    bool finite;                /* no input or state is a NaN or infinity, in float32 */
    double (*right)(int64_t k); /* the state after step k, where there is a formula for it */
    bool one_call; /* for float64: a state that leaves a call may be an ulp off, which grows in the next */
} scan_row;

extern const scan_row scan_rows[]; /* ends in one without a name */

/* a = .5, b = 1: what lies beside a hard channel. */
extern const scan_row scan_row_plain;

#endif
