/* Linear attention's launcher: resolves a problem of either direction into linear_attention_args.h, cuts the states
 * into tiles, and launches. */
#include "counts.h"
#include "device.h"
#include "linear_attention_args.h"
#include "linear_attention_kernels.h"
#include "linear_attention_launch.h"
#include "linear_attention_views.h"

static const int64_t MOST_BLOCKS = 1 << 30;         /* of a launch; blocks stride over the work beyond */
static const int64_t MOST_SLOTS = (int64_t)2 << 30; /* bytes of kept states; at least one block has a slot */
static const int64_t FEW_SLOTS = 128 << 20;         /* where few heads, if any, are run */

enum {
    MOST_SHARED = 48 << 10,    /* what a kernel may have unasked */
    MOST_STEPS = 64,           /* of inputs in shared memory */
    COLUMN_THREADS = 8,        /* of a forward tile: rows of 128 bytes of a state */
    STEP_COLUMN_THREADS = 16,  /* of a step's where heads are many: rows of 256 bytes move faster */
    STEP_KEYS = 128,           /* of which such a tile has all */
    NARROW_KEYS = 128,         /* one panel of narrow tiles */
    NARROW_BACKWARD_KEYS = 64, /* one narrow tile of the backward kernel */
    NARROW_BACKWARD_VALUES = 32,
    MOST_ROWS = 65535, /* of blocks of a launch */
    WARP = 32
};

/* The smallest power of two that is enough, within [few, many]. */
static int32_t power_of_two(int64_t enough, int32_t few, int32_t many)
{
    int32_t power = few;
    while (power < many && power < enough) power *= 2;
    return power;
}

/* Cuts states into tiles of up to `threads` threads, each of rows x columns. */
static void cut(rl_attention_inputs *in, int rows, int columns, int32_t few, int32_t many, int threads)
{
    in->column_threads = power_of_two(rl_quotient_up(in->values, columns), few, many);
    in->row_groups = (int32_t)rl_least(rl_quotient_up(in->keys, rows), threads / in->column_threads);
    if (in->row_groups < 1) in->row_groups = 1;
    in->panels = rl_quotient_up(in->keys, (int64_t)in->row_groups * rows);
    in->slabs = rl_quotient_up(in->values, (int64_t)in->column_threads * columns);
    if (in->panels < 1) in->panels = 1; /* without keys or values there are sums still, of nothing */
    if (in->slabs < 1) in->slabs = 1;
}

static int threads_of(const rl_attention_inputs *in)
{
    return (int)rl_quotient_up((int64_t)in->row_groups * in->column_threads, WARP) * WARP;
}

/* Steps whose inputs and sums take what shared memory there is, at least one. */
static int32_t steps_of(const rl_attention_inputs *in, size_t room, size_t one, size_t two)
{
    size_t each = two - one, fixed = one - each;
    int64_t steps = (int64_t)((room - fixed) / each);
    steps = rl_least(rl_least(steps, MOST_STEPS), in->length);
    return (int32_t)(steps < 1 ? 1 : steps);
}

/* A block of a b c d bytes for sums that meet later. */
static rill_status take(rill_context *context, int64_t a, int64_t b, int64_t c, int64_t d, void **block)
{
    int64_t bytes;
    if (__builtin_mul_overflow(a, b, &bytes) || __builtin_mul_overflow(bytes, c, &bytes) ||
        __builtin_mul_overflow(bytes, d, &bytes))
        return rl_fail(context, RILL_OUT_OF_MEMORY, "memory: sums over heads take more than 2^63 bytes");
    return rl_workspace_take(context, (size_t)bytes, block);
}

/* clang-format off */
/* From a problem of either direction. */
#define INPUTS_OF(problem, down, is_double) \
    {.q = rl_attention_view_of(&(problem)->q, down), \
     .k = rl_attention_view_of(&(problem)->k, down), \
     .v = rl_attention_view_of(&(problem)->v, down), \
     .gate = rl_attention_view_of(&(problem)->gate, down), \
     .beta = rl_attention_view_of(&(problem)->beta, down), \
     .S_init = rl_attention_state_of(&(problem)->S_init, is_double), \
     .offsets = (problem)->offsets.data, \
     .offsets_stride = (problem)->offsets.data ? (problem)->offsets.stride[0] : 0, \
     .length = (problem)->length, \
     .heads = (problem)->heads, \
     .share = (problem)->heads / (problem)->query_heads, \
     .keys = (problem)->keys, \
     .values = (problem)->values, \
     .sequences = (problem)->sequences, \
     .scale = (problem)->scale, \
     .gate_is_log = (problem)->gate_is_log, \
     .down = down}
/* clang-format on */

/* Forward */

static rl_attention_args resolve(const rl_linear_attention_problem *problem, bool is_double)
{
    bool down = problem->reverse;
    return (rl_attention_args){
        .in = INPUTS_OF(problem, down, is_double),
        .y = rl_attention_view_of(&problem->y, down),
        .S_final = rl_attention_state_of(&problem->S_final, is_double),
    };
}

/* Narrow tiles for problems that would leave most of the device idle; the sums come out the same. */
static bool is_small(const rill_context *context, const rl_attention_inputs *in, int columns)
{
    int64_t slabs = rl_quotient_up(in->values, (int64_t)COLUMN_THREADS * columns);
    return in->keys <= NARROW_KEYS && in->sequences * in->heads < rl_cuda_state_of(context)->sms / slabs;
}

static bool is_step(const rl_attention_args *args, int columns)
{
    return args->in.length == 1 && !args->in.offsets && args->in.values % columns == 0 &&
           (args->in.S_init.wide || !args->in.S_init.data) && (args->S_final.wide || !args->S_final.data);
}

/* Whether each head's row begins at a multiple of `bytes`, and its lanes are neighbours. */
static bool is_aligned(const rl_attention_view *view, int64_t lanes, int64_t bytes)
{
    int64_t each = (int64_t)rill_dtype_size((rill_dtype)view->dtype);
    return (view->lane == 1 || lanes == 1) && (uintptr_t)view->data % (size_t)bytes == 0 &&
           view->batch * each % bytes == 0 && view->head * each % bytes == 0;
}

/* The type of q, k and v where threads find their lanes in pieces. */
static rill_dtype packed_type(const rl_attention_inputs *in)
{
    int64_t each = (int64_t)rill_dtype_size((rill_dtype)in->q.dtype);
    bool packed = in->q.dtype == in->k.dtype && in->q.dtype == in->v.dtype && in->keys % RL_ATTENTION_ROWS == 0 &&
                  is_aligned(&in->q, in->keys, 16) && is_aligned(&in->k, in->keys, 16) &&
                  is_aligned(&in->v, in->values, rl_least(16, each * rl_attention_columns(false, false)));
    return packed ? (rill_dtype)in->q.dtype : RILL_ABSENT;
}

/* A step that only moves states: all of a block's loads are issued at once. */
static rill_status launch_step(rill_context *context, rl_attention_args *args, bool is_double)
{
    const rl_attention_inputs *in = &args->in;
    int wide = in->column_threads * rl_attention_columns(is_double, false);
    size_t shared = rl_attention_step_shared(is_double ? sizeof(double) : sizeof(float), wide, in->row_groups);
    int64_t rows = in->sequences <= MOST_ROWS ? in->sequences : 1;
    void *arguments[] = {args};
    return rl_cuda_launch_early(context, rl_attention_step_kernel(is_double, packed_type(in)),
                                rl_least(in->heads * in->slabs * (rows > 1 ? 1 : in->sequences), MOST_BLOCKS), rows,
                                threads_of(in), shared, arguments, "linear_attention: launch of a step");
}

static rill_status launch(rill_context *context, rl_attention_args *args, bool is_double)
{
    rl_attention_inputs *in = &args->in;
    if (is_step(args, rl_attention_columns(is_double, false))) {
        bool crowd = in->sequences * in->heads >= rl_cuda_state_of(context)->sms;
        int32_t most = crowd && in->keys <= STEP_KEYS ? STEP_COLUMN_THREADS : COLUMN_THREADS;
        cut(in, RL_ATTENTION_ROWS, rl_attention_columns(is_double, false), 1, most, RL_ATTENTION_THREADS);
        if (in->panels == 1) return launch_step(context, args, is_double);
    }
    bool narrow = is_small(context, in, rl_attention_columns(is_double, false));
    int rows = narrow ? RL_ATTENTION_NARROW_ROWS : RL_ATTENTION_ROWS;
    int columns = rl_attention_columns(is_double, narrow);
    size_t number = is_double ? sizeof(double) : sizeof(float);
    cut(in, rows, columns, 1, COLUMN_THREADS, RL_ATTENTION_THREADS);
    int high = in->row_groups * rows, wide = in->column_threads * columns, groups = in->row_groups;
    in->steps = steps_of(in, MOST_SHARED, rl_attention_shared(number, high, wide, groups, 1),
                         rl_attention_shared(number, high, wide, groups, 2));
    size_t shared = rl_attention_shared(number, high, wide, groups, in->steps);
    int64_t batch = in->offsets ? 1 : in->sequences;
    rill_status status = RILL_OK;
    if (in->panels > 1)
        status = take(context, batch * in->length, in->heads, in->values, (int64_t)number, &args->sums);
    if (status != RILL_OK) return status;
    int64_t blocks = rl_least(in->sequences * in->heads * in->slabs, MOST_BLOCKS);
    if (args->marks.all || args->marks.parts)
        blocks = rl_least(blocks, rl_cuda_state_of(context)->sms); /* few heads, if any, are run */
    void *arguments[] = {args};
    int threads = narrow ? RL_ATTENTION_THREADS : threads_of(in); /* a few blocks: more of them bring the inputs */
    return rl_cuda_launch_early(context, rl_attention_kernel(is_double, narrow), blocks, 1, threads, shared,
                                arguments, "linear_attention: launch");
}

void rl_cuda_attention_cut(rl_attention_args *args, size_t room)
{
    rl_attention_inputs *in = &args->in;
    const int rows = RL_ATTENTION_NARROW_ROWS;
    cut(in, rows, 1, 1, COLUMN_THREADS, RL_ATTENTION_THREADS);
    in->steps = steps_of(
        in, room, rl_attention_shared(sizeof(float), in->row_groups * rows, in->column_threads, in->row_groups, 1),
        rl_attention_shared(sizeof(float), in->row_groups * rows, in->column_threads, in->row_groups, 2));
}

rill_status rl_cuda_attention_by_steps(rill_context *context, rl_attention_args *args)
{
    return launch(context, args, false);
}

/* By chunks of bfloat16 data, by chunks in float32, or in the loop's order: the first that takes the problem. */
rill_status rl_cuda_linear_attention(rill_context *context, const rl_linear_attention_problem *problem)
{
    if (problem->sequences == 0 || problem->heads == 0 || problem->values == 0) return RILL_OK;
    bool is_double = problem->q.dtype == RILL_F64;
    rl_attention_args args = resolve(problem, is_double);
    rl_cuda_scope scope = rl_cuda_enter(context);
    bool taken;
    rill_status status = rl_cuda_attention_tiles(context, &args, &taken);
    if (!taken) status = rl_cuda_attention_chunks(context, problem, &taken);
    if (!taken) status = rl_cuda_attention_floats(context, &args, &taken);
    if (!taken) status = launch(context, &args, is_double);
    rl_cuda_leave(context, &scope);
    return status;
}

/* Backward */

static rl_attention_backward_args resolve_backward(const rl_linear_attention_backward_problem *problem,
                                                   bool is_double)
{
    bool down = problem->reverse;
    return (rl_attention_backward_args){
        .in = INPUTS_OF(problem, down, is_double),
        .dy = rl_attention_view_of(&problem->dy, down),
        .dq = rl_attention_view_of(&problem->dq, down),
        .dk = rl_attention_view_of(&problem->dk, down),
        .dv = rl_attention_view_of(&problem->dv, down),
        .dgate = rl_attention_view_of(&problem->dgate, down),
        .dbeta = rl_attention_view_of(&problem->dbeta, down),
        .dS_final = rl_attention_state_of(&problem->dS_final, is_double),
        .dS_init = rl_attention_state_of(&problem->dS_init, is_double),
    };
}

/* Room for the sums that do not end in one tile of one head. */
static rill_status take_sums(rill_context *context, rl_attention_backward_args *args, int64_t number)
{
    const rl_attention_inputs *in = &args->in;
    int64_t rows = (in->offsets ? 1 : in->sequences) * in->length;
    bool crowd = in->share > 1, slabs = in->slabs > 1, panels = in->panels > 1;
    rill_status status = RILL_OK;
    if (args->dq.data && (slabs || crowd) && !args->q_sums)
        status = take(context, rows, in->heads, in->keys, number, &args->q_sums);
    if (status == RILL_OK && !args->k_sums && ((args->dk.data && (slabs || crowd)) || (args->dbeta.data && slabs)))
        status = take(context, rows, in->heads, in->keys, number, &args->k_sums);
    if (status == RILL_OK && args->dv.data && panels)
        status = take(context, rows, in->heads, in->values, number, &args->v_sums);
    if (status == RILL_OK && args->dgate.data && (slabs || panels))
        status = take(context, rows, in->heads, 1, number, &args->gate_sums);
    if (status == RILL_OK && args->dbeta.data && panels)
        status = take(context, rows, in->heads, 1, number, &args->beta_sums);
    return status;
}

/* A slot of states for each block: one of a stretch of about √length steps, all of a stretch, and G. */
static rill_status take_slots(rill_context *context, rl_attention_backward_args *args, int64_t tile_bytes,
                              int threads, int64_t *blocks)
{
    args->stretch = 1;
    while (args->stretch * args->stretch < args->in.length) args->stretch++;
    args->slot = rl_quotient_up(args->in.length, args->stretch) + args->stretch + 1;
    int64_t most = (int64_t)rl_cuda_state_of(context)->sms * (2 * RL_ATTENTION_BACKWARD_THREADS / threads);
    *blocks = rl_least(rl_least(*blocks, most),
                       (args->marks.all || args->marks.parts ? FEW_SLOTS : MOST_SLOTS) / (args->slot * tile_bytes));
    if (*blocks < 1) *blocks = 1;
    return take(context, *blocks, args->slot, tile_bytes, 1, &args->states);
}

static rill_status launch_backward(rill_context *context, rl_attention_backward_args *args, bool is_double)
{
    rl_attention_inputs *in = &args->in;
    bool narrow = in->keys <= NARROW_BACKWARD_KEYS && in->values <= NARROW_BACKWARD_VALUES;
    int rows = narrow ? RL_ATTENTION_NARROW_ROWS : RL_ATTENTION_ROWS;
    int columns = rl_attention_columns(is_double, narrow);
    size_t number = is_double ? sizeof(double) : sizeof(float);
    cut(in, rows, columns, rows, WARP, RL_ATTENTION_BACKWARD_THREADS);
    int high = in->row_groups * rows, wide = in->column_threads * columns, groups = in->row_groups;
    int threads = threads_of(in), warps = threads / WARP;
    in->steps = steps_of(in, MOST_SHARED, rl_attention_backward_shared(number, high, wide, groups, warps, 1),
                         rl_attention_backward_shared(number, high, wide, groups, warps, 2));
    size_t shared = rl_attention_backward_shared(number, high, wide, groups, warps, in->steps);
    int64_t blocks = rl_least(in->sequences * in->heads, MOST_BLOCKS), tile = (int64_t)threads * rows * columns;
    rill_status status = take_sums(context, args, (int64_t)number);
    if (status == RILL_OK && args->dgate.data)
        status = take_slots(context, args, tile * (int64_t)number, threads, &blocks);
    if (status != RILL_OK) return status;
    void *arguments[] = {args};
    return rl_cuda_launch_early(context, rl_attention_backward_kernel(is_double, narrow), blocks, 1, threads, shared,
                                arguments, "linear_attention_backward: launch");
}

rill_status rl_cuda_attention_sum_heads(rill_context *context, const rill_tensor *to, const void *sums, int64_t share,
                                        bool is_double)
{
    const int threads = 256;
    rl_attention_sum_args args = {
        .from = sums,
        .to = rl_attention_view_of(to, false),
        .count = to->shape[0] * to->shape[1] * to->shape[2] * to->shape[3],
        .length = to->shape[1],
        .query_heads = to->shape[2],
        .share = share,
        .keys = to->shape[3],
    };
    if (args.count == 0) return RILL_OK;
    void *arguments[] = {&args};
    return rl_cuda_launch_early(context, rl_attention_sum_kernel(is_double),
                                rl_least(rl_quotient_up(args.count, threads), MOST_BLOCKS), 1, threads, 0, arguments,
                                "linear_attention_backward: launch of sums over heads");
}

rill_status rl_cuda_attention_gates_by_steps(rill_context *context, const rl_linear_attention_backward_problem *p,
                                             int32_t *marks, bool values)
{
    rl_linear_attention_backward_problem gates = *p;
    gates.dq = gates.dk = gates.dS_init = (rill_tensor){0};
    if (!values) gates.dv = (rill_tensor){0};
    rl_attention_backward_args args = resolve_backward(&gates, false);
    args.marks.all = marks;
    return launch_backward(context, &args, false);
}

rill_status rl_cuda_attention_backward_by_steps(rill_context *context, rl_attention_backward_args *args)
{
    return launch_backward(context, args, false);
}

/* By chunks of bfloat16 data, by chunks in float32, or in the loop's order: the first that takes the problem. */
static rill_status run(rill_context *context, const rl_linear_attention_backward_problem *problem)
{
    bool is_double = problem->q.dtype == RILL_F64, taken;
    rl_attention_backward_args args = resolve_backward(problem, is_double);
    rill_status status = rl_cuda_attention_tiles_backward(context, &args, &taken);
    if (!taken) {
        status = rl_cuda_attention_chunks_backward(context, problem, &taken);
        if (taken) return status;
    }
    if (!taken) status = rl_cuda_attention_floats_backward(context, &args, &taken);
    if (!taken && problem->heads > 0) status = launch_backward(context, &args, is_double);
    bool sums = args.in.share != 1; /* without heads they are 0 */
    if (status == RILL_OK && sums && problem->dq.data)
        status = rl_cuda_attention_sum_heads(context, &problem->dq, args.q_sums, args.in.share, is_double);
    if (status == RILL_OK && sums && problem->dk.data)
        status = rl_cuda_attention_sum_heads(context, &problem->dk, args.k_sums, args.in.share, is_double);
    return status;
}

rill_status rl_cuda_linear_attention_backward(rill_context *context,
                                              const rl_linear_attention_backward_problem *problem)
{
    if (problem->sequences == 0) return RILL_OK;
    rl_cuda_scope scope = rl_cuda_enter(context);
    rill_status status = run(context, problem);
    rl_cuda_leave(context, &scope);
    return status;
}
