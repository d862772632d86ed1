/*
 * The arguments of an operator as data, and the one check that walks them.  A row says where a tensor sits in the
 * caller's args struct and in the problem, what it is for, and which size each axis has.  The first given argument
 * with a size binds it; later ones must agree, and messages say who bound it ("128 (channels of x)").
 */
#ifndef RL_SIGNATURE_H
#define RL_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rill/context.h>

enum { RL_MAX_SIZES = 12, RL_RESERVED = 8 };

/* Sizes that every operator has come first; its own follow from RL_OWN_SIZE. */
enum { RL_BATCH, RL_LENGTH, RL_SEQUENCES, RL_OWN_SIZE };

typedef enum rl_role { RL_INPUT, RL_OPTIONAL_INPUT, RL_OUTPUT, RL_OPTIONAL_OUTPUT } rl_role;

/*
 * Which types a tensor may have, given the type of the activations, which the first row holds.  Wide is f64, or c128
 * beside complex activations, on backends with wide outputs.
 */
typedef enum rl_kind {
    RL_ACTIVATION, /* the type of the first row */
    RL_RESULT,     /* the same; wide too */
    RL_RESULT_F32, /* the same, or f32 when that is 16-bit; wide too */
    RL_GRADIENT,   /* of an activation: its type, or f32 where that is real; wide too */
    RL_WEIGHT,     /* the type of the first row, or f32 when that is 16-bit */
    RL_GATE,       /* the same */
    RL_PARAMETER,  /* the accumulation type: f64 with f64, f32 with smaller ones, else complex as the first row */
    RL_PARAMETER_GRADIENT, /* the same, or f32; wide too */
    RL_STATE,              /* the accumulation type or the type of the first row; wide too */
    RL_STATE_GRADIENT,     /* the same, or f32 where that is real; wide too */
    RL_OFFSETS             /* i64 [sequences + 1]: binds the sequences and forces a batch of 1 */
} rl_kind;

typedef struct rl_argument {
    const char *name;
    size_t in, out; /* offsets of the tensor in the args struct and in the problem */
    rl_role role;
    rl_kind kind;
    int rank;
    int axis[RILL_MAX_RANK]; /* the size of each axis */
    const char *alias;       /* of an output: the input whose very view it may be */
} rl_argument;

typedef struct rl_size {
    const char *name;
    size_t out;         /* offset of the int64_t in the problem */
    int fallback;       /* the size that it equals unless ...; itself when there is none */
    const char *unless; /* ... this argument is given, which then binds it */
} rl_size;

typedef struct rl_signature {
    const char *name;   /* of the operator: "scan", whose args struct is rill_scan_args */
    bool takes_complex; /* activations may be c64 or c128 */
    const rl_argument *arguments;
    int argument_count;
    const rl_size *sizes;
    int size_count;
    size_t reserved; /* offset of uint64_t reserved[RL_RESERVED] in the args struct */
} rl_signature;

/*
 * Checks every tensor of args and fills the tensors and sizes of the problem.  Tensors without elements get data
 * NULL. Order of checks: presence, then of each argument type, device, rank, sizes, strides; then overlaps; then
 * offsets; then gradients, each of which wants the input that it is of.
 */
rill_status rl_check(rill_context *context, const rl_signature *signature, const void *args, void *problem);

/* Calls the backend's function of an operator; the problem is that operator's. */
typedef rill_status rl_run(rill_context *context, const void *problem);

/*
 * The last part of every front: runs a checked problem on the context's backend, or answers RILL_UNSUPPORTED where
 * run is NULL.  Where no output is given, or none has an element, there is nothing to do.
 *
 * Where the backend computes elsewhere than on the host and the tensors are on the host, copies of them in the
 * workspace take their places in the problem, and the outputs are brought back and waited for.  A tensor with
 * stride 0 is copied once along that axis.
 */
rill_status rl_dispatch(rill_context *context, const rl_signature *signature, const void *args, void *problem,
                        rl_run *run);

#endif
