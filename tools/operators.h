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
    OP_ACTIVATION, /* the type of the first tensor */
    OP_GRADIENT,   /* of an activation: its type, or f32 where that is real */
    OP_WEIGHT,     /* the type of the first tensor, or f32 when that is 16-bit */
    OP_GATE,       /* the same; so is the next */
    OP_RESULT_F32, /* an output */
    OP_PARAMETER,  /* the accumulation type: f64 with f64, f32 with smaller ones, else complex as the first tensor */
    OP_PARAMETER_GRADIENT, /* the same, or f32 */
    OP_STATE,              /* the accumulation type or the type of the first tensor */
    OP_STATE_GRADIENT,     /* the same, or f32 where that is real */
    OP_OFFSETS             /* i64 */
} op_kind;

/* A normal value of this mean and deviation (weights are also scaled by 1/sqrt(last axis)), or what is made of it. */
typedef enum op_draw_form {
    OP_NORMAL,
    OP_MINUS_EXP, /* -exp of it */
    OP_FRACTION   /* held within 0.01 and 0.99, so that long sequences stay in range */
} op_draw_form;

typedef struct op_draw {
    double mean, deviation;
    op_draw_form form;
} op_draw;

typedef struct op_tensor {
    const char *name; /* as in SPEC, in files and in the args struct */
    size_t offset;    /* of the rill_tensor in the args struct */
    op_role role;
    op_kind kind;
    int rank;
    const char *axes[RILL_MAX_RANK]; /* "batch", "length", "channels", ...: equal names are equal sizes */
    op_draw draw;                    /* inputs: what random values make sense */
} op_tensor;

typedef enum op_option_type { OP_BOOL, OP_DOUBLE } op_option_type;

typedef struct op_option {
    const char *name;
    size_t offset; /* of the bool or double in the args struct */
    op_option_type type;
} op_option;

/* `axis` has the size of `same_as` unless the tensor `unless` is given. */
typedef struct op_axis_rule {
    const char *axis, *unless, *same_as;
} op_axis_rule;

/* What a call must do at least: factor times the product of the axes, if the tensor `needs` (where named) is given.
 */
typedef enum op_cost_kind { OP_STATE_STEPS, OP_PRODUCT_FLOPS } op_cost_kind;

typedef struct op_cost {
    op_cost_kind kind;
    double factor;
    const char *axes[RILL_MAX_RANK];
    const char *needs;
} op_cost;

/* An output that may lie over an input. */
typedef struct op_overlay {
    const char *output, *input;
} op_overlay;

/* A tensor that holds the logarithm of the values drawn for it where a boolean option is set. */
typedef struct op_logarithm {
    const char *tensor, *option;
} op_logarithm;

typedef struct op {
    const char *name;
    bool takes_complex; /* activations may be c64 or c128 */
    const struct op
        *backward; /* the operator of its gradients; NULL: there is none.  Its tensors are, by name, the
                      forward's inputs and outputs, dOUTPUT for upstream gradients, dINPUT for its own outputs */
    size_t args_size;
    const op_tensor *tensors;
    int tensor_count;
    const op_option *options;
    int option_count;
    rill_status (*run)(rill_context *context, const void *args);
    const op_axis_rule *rules;
    int rule_count;
    const op_cost *costs;
    int cost_count;
    op_overlay overlay; /* where there is one, states apart */
    op_overlay state;   /* the state that a step-by-step call carries, where there is one */
    op_logarithm logarithm;
    const char *problem_axes[RILL_MAX_RANK]; /* the order in which a problem's text lists its sizes */
} op;

/* The sizes of a call's axes by name.  "NAME+1" is one more than NAME. */
enum { OP_MAX_AXES = 16, OP_MAX_TENSORS = 32 };

typedef struct op_sizes {
    int count;
    const char *axis[OP_MAX_AXES];
    int64_t size[OP_MAX_AXES];
} op_sizes;

extern const op *const op_table[]; /* ends in NULL */

const op *op_find(const char *name);
const op_tensor *op_tensor_find(const op *row, const char *name);
/* Which of its axes has this name; -1: none. */
int op_tensor_axis(const op_tensor *tensor, const char *axis);
const op_option *op_option_find(const op *row, const char *name);
bool op_is_output(const op_tensor *tensor);

/* Whether its outputs are the gradients of another operator. */
bool op_is_backward(const op *row);

/* Whether a call with these inputs can have an output: the gradient dX of an input X is there only with X. */
bool op_output_possible(const op *row, const op_tensor *output, const void *args);

/* The tensor inside an args struct, and whether it is given there. */
rill_tensor *op_args_tensor(const op_tensor *tensor, void *args);
bool op_args_given(const op *row, const char *name, const void *args);

/* An axis' size, or -1 where it has none yet. */
int64_t op_size(const op_sizes *sizes, const char *axis);
void op_size_set(op_sizes *sizes, const char *axis, int64_t size);

/* Gives every axis of the operator that has no size yet the size that the rules say, or else 1. */
void op_sizes_complete(op_sizes *sizes, const op *row, const void *args);

/* The type in which a tensor is kept by default beside activations of this type. */
rill_dtype op_default_type(op_kind kind, rill_dtype activations);

bool op_type_is_complex(rill_dtype dtype);

/* What the reference stores results in beside these activations: f64, or c128. */
rill_dtype op_wide_type(rill_dtype activations);

#endif
