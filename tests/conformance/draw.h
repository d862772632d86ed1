/* A conformance case: an operator's call drawn from a seed, as data. */
#ifndef CONFORMANCE_DRAW_H
#define CONFORMANCE_DRAW_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/rill.h>

#include "buffer.h"
#include "operators.h"
#include "plausible.h"
#include "rng.h"

enum { CASE_OPTIONS = 8, CASE_SEQUENCES = 600 };

typedef struct case_tensor {
    bool given;
    rill_dtype dtype;
    int64_t shape[RILL_MAX_RANK];
    layout how;
    int alias;              /* the input whose very view this output is, or -1 */
    const value_rule *rule; /* NULL: plain normal values */
    int specials;           /* so many NaNs and infinities are put in */
    bool unread_first;      /* the first step of each sequence, which is not read, is NaN */
    uint64_t seed;          /* of its values */
} case_tensor;

typedef struct test_case {
    uint64_t seed, number;
    const op *op;
    const plausible *rules;
    rill_dtype activations;
    op_sizes sizes;
    bool packed;
    int64_t offsets[CASE_SEQUENCES + 1];
    regime decay;
    double options[CASE_OPTIONS]; /* in the operator's order; booleans as 0 and 1 */
    case_tensor tensors[OP_MAX_TENSORS];
    int threads;
    bool reproducible, time_last; /* plain tensors lie with time as their fastest axis */
} test_case;

/* How the tensors by time of an operator of cheap steps lie. */
typedef enum arrangement {
    ARRANGED_ANYHOW,
    ARRANGED_CHANNELS_LAST, /* these two: aligned, in rows of whole 16 elements, of one type where that may be */
    ARRANGED_TIME_LAST
} arrangement;

/*
 * Whose turn a number is.  Every third one is of the operators that came last, and the others count on among
 * themselves, again every third one of those that came before them, and so on: so a new operator leaves the cases of
 * the others what they were, and a seed that has been looked at stays so.
 */
typedef struct draw_turn {
    int later; /* plausible.later of the operators whose turn it is */
    uint64_t number;
} draw_turn;

draw_turn draw_turn_of(uint64_t number);

/* How many operators take such turns, and one of them: the i-th, counted round and round. */
int draw_op_count(int later);
const op *draw_op_at(int later, uint64_t i);

/* What to draw from. */
typedef struct draw_limits {
    double cost;            /* of the plain loop, in runs of its innermost lines */
    bool plain;             /* contiguous, no aliases, no specials: for the laws */
    int packed;             /* 1 always, 0 as it comes, -1 never */
    rill_dtype activations; /* RILL_ABSENT: any */
    bool complex;           /* complex activations instead, where the operator takes them */
    bool arranged;          /* tensors lie as said: */
    arrangement lie;
    op_sizes pinned; /* sizes given instead of drawn */
    const op *op;    /* NULL: any of those that came ... */
    int later;       /* ... with this plausible.later */
} draw_limits;

test_case case_draw(uint64_t seed, uint64_t number, const draw_limits *limits);

/* Gives a tensor, and what it is computed from. */
void case_give(test_case *c, int tensor);

/* Of OP_ACTIVATION or OP_GRADIENT and the like: the accumulation type beside the case's activations. */
rill_dtype case_wide(const test_case *c);

/* The index of a tensor of the case's operator. */
int case_tensor_index(const test_case *c, const char *name);

/* The whole case in one line, to stdout. */
void case_print(const test_case *c);

/* The values of an input in its storage type, contiguous.  The caller frees data. */
rill_tensor case_values(const test_case *c, int tensor);

/* Sets the options of an args struct. */
void case_set_options(const test_case *c, void *args);

#endif
