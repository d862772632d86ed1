/*
 * How to draw plausible values, sizes and options for each operator: the one place of the conformance tests that
 * names operators.  A tensor or axis without a rule gets a plain default.
 */
#ifndef CONFORMANCE_PLAUSIBLE_H
#define CONFORMANCE_PLAUSIBLE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum distribution {
    DRAW_NORMAL,   /* center + spread * normal */
    DRAW_UNIFORM,  /* center + spread * uniform in [-1, 1) */
    DRAW_MATRIX,   /* spread * normal / sqrt(last axis) */
    DRAW_NEGATIVE, /* -exp(center + spread * normal) */
} distribution;

/* What kind of decay a tensor holds, so that a case can make it slow, strong, absent or a growth. */
typedef enum decay_form { DECAY_NONE, DECAY_FACTOR, DECAY_LOG } decay_form;

typedef struct value_rule {
    const char *tensor;
    distribution how;
    double center, spread;
    decay_form decay;
    const char *option; /* the rule holds only where this boolean option ... */
    bool when;          /* ... has this value */
} value_rule;

typedef struct size_rule {
    const char *axis;
    int64_t choices[16];
    int count;
    const char *divides; /* the size drawn is a divisor of this axis */
} size_rule;

/* The output may be the very view of the input. */
typedef struct alias_rule {
    const char *output, *input;
} alias_rule;

/* Options drawn together: row i of all of them. */
typedef struct option_rule {
    const char *names[2];
    double rows[8][2];
    int count;
} option_rule;

typedef struct plausible {
    const char *op;
    value_rule values[24]; /* several for one tensor: one is drawn a case */
    size_rule sizes[8];
    alias_rule aliases[4];
    option_rule options[4];
    const char *mixed[4]; /* tensors by [.., channels] of which one channel reaches all others */
} plausible;

const plausible *plausible_find(const char *op);

#endif
