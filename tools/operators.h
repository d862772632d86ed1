/*
 * The operators as data: what the command and the conformance tests need to know to run any of them.  A new operator
 * is one more row; nothing else in tools/ or tests/conformance/ names an operator.
 */
#ifndef TOOLS_OPERATORS_H
#define TOOLS_OPERATORS_H

#include <stdbool.h>
#include <stddef.h>

#include <rill/rill.h>

typedef enum op_role { OP_INPUT, OP_OPTIONAL_INPUT, OP_OUTPUT, OP_OPTIONAL_OUTPUT } op_role;

/* Which types a tensor may have, given the type of the activations (SPEC, "Types"). */
typedef enum op_kind {
    OP_ACTIVATION, /* the type of x */
    OP_WEIGHT,     /* the type of x, or f32 when that is 16-bit */
    OP_PARAMETER,  /* the accumulation type: f64 with f64, else f32 */
    OP_STATE,      /* the accumulation type or the type of x */
    OP_OFFSETS     /* i64 */
} op_kind;

typedef struct op_tensor {
    const char *name; /* as in SPEC, in files and in the args struct */
    size_t offset;    /* of the rill_tensor in the args struct */
    op_role role;
    op_kind kind;
    int rank;
    const char *axes[RILL_MAX_RANK]; /* "batch", "length", "channels", ...: equal names are equal sizes */
} op_tensor;

typedef enum op_option_type { OP_BOOL, OP_DOUBLE } op_option_type;

typedef struct op_option {
    const char *name;
    size_t offset; /* of the bool or double in the args struct */
    op_option_type type;
} op_option;

typedef struct op {
    const char *name;
    size_t args_size;
    const op_tensor *tensors;
    int tensor_count;
    const op_option *options;
    int option_count;
    rill_status (*run)(rill_context *context, const void *args);
} op;

extern const op *const op_table[]; /* ends in NULL */

const op *op_find(const char *name);
const op_tensor *op_tensor_find(const op *operator, const char * name);

/* The tensor inside an args struct. */
rill_tensor *op_args_tensor(const op_tensor *tensor, void *args);

#endif
