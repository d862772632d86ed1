/* Running a case: the judge's two results, and a target's, guarded. */
#ifndef CONFORMANCE_RUN_H
#define CONFORMANCE_RUN_H

#include <stdbool.h>

#include "draw.h"
#include "venues.h"

/* Contiguous values of a case: inputs, and what the judge makes of them. */
typedef struct judged {
    rill_tensor input[OP_MAX_TENSORS]; /* by tensor; outputs absent */
    rill_tensor ref[OP_MAX_TENSORS];   /* f64 or c128 */
    rill_tensor loop[OP_MAX_TENSORS];  /* storage type */
} judged;

/* Room for an args struct of any operator. */
typedef union args_room {
    long double align;
    char bytes[8192];
} args_room;

/* The two contexts of the judge; opened once. */
typedef struct judges {
    rill_context *reference, *loop;
} judges;

judges judges_open(void);
void judges_close(judges *j);

/* False, with a line on stdout, where the judge itself refuses the case. */
bool judge_case(const judges *j, const test_case *c, judged *out);
void judged_free(judged *result);

/* The reference or the loop on args as they are, for one output type: wide (f64 or c128) or as stored. */
bool run_plain(rill_context *context, const test_case *c, const rill_tensor *input, bool wide, rill_tensor *output);

/* The bound's factor for an output. */
double case_tolerance(const test_case *c, int output);

/* Puts the case on a target, with guards, and judges all of it.  A failure prints its reason. */
bool check_case(rill_context *context, const venue *on, const test_case *c, const judged *right);

/* The same on each target that `only` names or, NULL, on all, up to the first failure; counts them into *tested. */
bool check_everywhere(const judges *j, const char *only, const test_case *c, int *tested);

#endif
