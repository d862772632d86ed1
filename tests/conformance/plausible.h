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
typedef enum decay_form {
    DECAY_NONE,
    DECAY_FACTOR, /* the decay is the exponential of a multiple of it */
    DECAY_LOG,    /* and this is the logarithm of such a factor */
    DECAY_ITSELF,
    DECAY_EXPONENT, /* the logarithm of the decay itself: a decay of 0 is -inf */
} decay_form;

/* What a case's decays are like. */
typedef enum regime {
    REGIME_ORDINARY,
    REGIME_SLOW,   /* decays a thousand times nearer to 1 */
    REGIME_STRONG, /* exponentials, or products of decays, that underflow */
    REGIME_STILL,  /* no decay at all */
    REGIME_GROWTH, /* states grow, within range */
    REGIME_RESETS, /* one in ten decays is 0 */
    REGIME_WAVES,  /* a dozen steps of growth, then a dozen of stronger decay, and so on */
    REGIME_COUNT,
    REGIMES_OF_EXPONENTIALS = REGIME_RESETS /* so many of them make sense for those */
} regime;

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
    int64_t choices[24];
    int count;
    const char *divides; /* the size drawn is a divisor of this axis */
} size_rule;

/* The output may be the very view of the input. */
typedef struct alias_rule {
    const char *output, *input;
} alias_rule;

/* A state's entry into a call and its exit, in the order in which the operator runs. */
typedef struct state_rule {
    const char *entry, *exit;
} state_rule;

/* When an input at one step reaches an output, in the order of the forward recurrence. */
typedef enum reach {
    REACH_ALWAYS,
    REACH_OWN,  /* at its own step alone */
    REACH_NEXT, /* at the one after it */
    REACH_LATER,
    REACH_FROM, /* from its own step on */
    REACH_EARLIER,
    REACH_UNTIL, /* up to its own step */
} reach;

/*
 * What an input reaches where that is not all outputs from its own step on: of an input that has a rule, the outputs
 * that rules name, and no others.
 */
typedef struct reach_rule {
    const char *input, *output;
    reach when; /* for an input without steps, at any */
} reach_rule;

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
    const char *mixed[6]; /* tensors by [.., channels] of which one channel reaches all others */
    state_rule states[2];
    int regimes; /* so many, from the first, are drawn from */
    /* A step costs no more than its tensors: also draws crowds of short sequences, tensors that all lie in one order
       of axes, and decays that are a broadcast. */
    bool cheap_steps;
    const char *unread;   /* the state without which a sequence's first decay is not read: it may then be NaN */
    const char *needs[2]; /* where the first, an output, is given, so must the second be */
    reach_rule reaches[64];
    /* Where the time of a backward call is cut, the first, a state, is the second at the step before; without a
       second it is what the forward operator makes of the steps before. */
    const char *resumes[2];
    int later;   /* 0 of the first operators, 1 of those that came then, and so on: see draw_turn */
    double ease; /* if not 0, so many times cheaper than its count of operations says */
} plausible;

const plausible *plausible_find(const char *op);

#endif
