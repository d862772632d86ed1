/* The launcher of linear attention by chunks in float32: says which problems its kernels take, and launches them. */
#include "linear_attention_floats.h"

#include "counts.h"
#include "linear_attention_floats_heads.h"
#include "linear_attention_floats_strips.h"
#include "linear_attention_launch.h"

enum { LEAST_LENGTH = 32, LEAST_BACK_LENGTH = 8 }; /* steps: below, the loop's order is as fast */

static const int64_t MOST_KEPT = (int64_t)2 << 30; /* bytes of states; at least those of one sequence */
static const int64_t MOST_BLOCKS = INT32_MAX;

/* Whether the kernels take the problem.  The number of sequences has no say, so that it does not show in the
 * bits; packed sequences are walked, and where others must have their bits all are. */
static bool is_welcome(const rill_context *context, const rl_attention_inputs *in, int64_t least, int64_t states)
{
    int64_t chunks = rl_quotient_up(in->length, RL_FLOATS_STEPS), each = (int64_t)sizeof(float), blocks;
    int wide = rl_floats_wide(in->keys, in->values);
    return rl_cuda_state_of(context)->multiplies && in->q.dtype != RILL_F64 && !in->offsets &&
           !context->options.reproducible && in->length >= least && in->length < MOST_BLOCKS && in->sequences > 0 &&
           in->heads > 0 && in->keys > 0 && in->values > 0 && in->keys <= RL_FLOATS_MOST_WIDE &&
           in->values <= RL_FLOATS_MOST_WIDE && !__builtin_mul_overflow(in->heads, chunks, &blocks) &&
           !__builtin_mul_overflow(blocks, states * wide * wide * each, &each) && each <= MOST_KEPT;
}

static bool is_even(const rl_attention_view *view, int64_t lanes, int64_t numbers)
{
    return view->data && view->dtype == RILL_F32 && (view->lane == 1 || lanes == 1) &&
           (uintptr_t)view->data % ((size_t)numbers * sizeof(float)) == 0 && view->batch % numbers == 0 &&
           view->step % numbers == 0 && view->head % numbers == 0;
}

static int32_t inputs_bits(const rl_attention_inputs *in)
{
    return (is_even(&in->q, in->keys, 4) ? RL_FLOATS_Q : 0) | (is_even(&in->k, in->keys, 4) ? RL_FLOATS_K : 0) |
           (is_even(&in->v, in->values, 4) ? RL_FLOATS_V : 0);
}

static void move_view(rl_attention_view *view, int64_t sequences)
{
    if (view->data)
        view->data = (char *)view->data + sequences * view->batch * (int64_t)rill_dtype_size((rill_dtype)view->dtype);
}
static void move_state(rl_attention_state *state, int64_t sequences)
{
    if (state->data)
        state->data =
            (char *)state->data + sequences * state->sequence * (int64_t)rill_dtype_size((rill_dtype)state->dtype);
}
static void move_inputs(rl_attention_inputs *in, int64_t sequences)
{
    move_view(&in->q, sequences), move_view(&in->k, sequences), move_view(&in->v, sequences);
    move_view(&in->gate, sequences), move_view(&in->beta, sequences);
    move_state(&in->S_init, sequences);
}

/* Sequences whose states have room at a time. */
static int64_t sequences_of(const rl_floats_args *a, int64_t states)
{
    int64_t wide = rl_floats_wide(a->in.keys, a->in.values);
    int64_t each = a->in.heads * a->chunks * wide * wide * states * (int64_t)sizeof(float);
    int64_t most = rl_least(MOST_KEPT / each, MOST_BLOCKS / (a->in.heads * a->chunks));
    return rl_least(a->in.sequences, most < 1 ? 1 : most);
}

/* States of `sequences`, and marks of all. */
static rill_status take_room(rill_context *context, rl_floats_args *a, int64_t sequences, bool backward)
{
    int64_t wide = rl_floats_wide(a->in.keys, a->in.values), places = sequences * a->in.heads * a->chunks;
    size_t states = (size_t)(places * wide * wide) * sizeof(float);
    rill_status status = rl_workspace_take(context, states, (void **)&a->S);
    if (status == RILL_OK && backward) status = rl_workspace_take(context, states, (void **)&a->G);
    if (status == RILL_OK)
        status = rl_workspace_take(context, (size_t)places * 2 * sizeof(float), (void **)&a->decays);
    return status;
}
static rill_status take_marks(rill_context *context, rl_floats_args *a)
{
    size_t heads = (size_t)(a->in.sequences * a->in.heads);
    rill_status status = rl_workspace_take(context, heads * sizeof(int32_t), (void **)&a->marks.all);
    if (status == RILL_OK) status = rl_workspace_take(context, heads * sizeof(int32_t), (void **)&a->marks.special);
    if (status == RILL_OK)
        status = rl_workspace_take(context, heads * (size_t)a->in.length, (void **)&a->marks.kinds);
    return status;
}
static void move_marks(rl_attention_marks *marks, const rl_attention_inputs *in, int64_t sequences)
{
    int64_t heads = sequences * in->heads;
    marks->all += heads, marks->special += heads, marks->kinds += heads * in->length;
}

/* Sums, and then states. */
static rill_status launch_states(rill_context *context, rl_floats_args *a, bool backward)
{
    int wide = rl_floats_wide(a->in.keys, a->in.values);
    int64_t walks = a->in.sequences * a->in.heads, rows = backward ? 2 : 1;
    void *arguments[] = {a};
    rill_status status = rl_cuda_launch_early(context, rl_floats_sum_kernel(wide, backward), walks * a->chunks, rows,
                                              RL_FLOATS_THREADS, rl_floats_sum_shared(wide), arguments,
                                              "linear_attention: launch of sums");
    if (status != RILL_OK) return status;
    return rl_cuda_launch_early(context, rl_floats_state_kernel(wide),
                                walks * wide * wide / (4 * RL_FLOATS_STATE_THREADS), rows, RL_FLOATS_STATE_THREADS, 0,
                                arguments, "linear_attention: launch of states");
}

/* Forward */

static rill_status launch_whole(rill_context *context, rl_floats_args *a, const rl_attention_args *walk)
{
    size_t shared = rl_floats_whole_shared(a->chunks);
    rl_attention_args steps = *walk;
    void *arguments[] = {a, &steps};
    steps.marks.kinds = a->marks.kinds;
    rl_cuda_attention_cut(&steps, shared);
    return rl_cuda_launch_early(context, rl_floats_whole_kernel(), a->in.sequences * a->in.heads, 1,
                                (int)a->chunks * RL_FLOATS_WHOLE_THREADS, shared, arguments,
                                "linear_attention: launch of whole heads");
}

/* Short heads by strips, where no state is given out either. */
static bool is_short(const rl_attention_inputs *in)
{
    int64_t strips = rl_quotient_up(in->length, RL_STRIPS_STEPS);
    return rl_floats_wide(in->keys, in->values) == RL_FLOATS_NARROW && in->length <= RL_STRIPS_MOST_STEPS &&
           !in->S_init.data && in->sequences <= MOST_BLOCKS / strips / in->heads;
}

static rill_status launch_strips(rill_context *context, const rl_floats_args *a, const rl_attention_args *walk)
{
    int64_t strips = rl_quotient_up(walk->in.length, RL_STRIPS_STEPS);
    int wide = a->wide;
    rl_attention_args steps = *walk;
    void *arguments[] = {&steps, &wide};
    rl_cuda_attention_cut(&steps, rl_strips_tiles());
    return rl_cuda_launch_early(context, rl_strips_kernel(), walk->in.sequences * walk->in.heads * strips, 1,
                                RL_STRIPS_THREADS, rl_strips_shared(), arguments,
                                "linear_attention: launch of strips");
}

static rill_status launch_answers(rill_context *context, rl_floats_args *a)
{
    int wide = rl_floats_wide(a->in.keys, a->in.values);
    void *arguments[] = {a};
    return rl_cuda_launch_early(context, rl_floats_answer_kernel(wide), a->in.sequences * a->in.heads * a->chunks, 1,
                                RL_FLOATS_THREADS, rl_floats_answer_shared(wide), arguments,
                                "linear_attention: launch of answers");
}

/* Marked heads in the loop's order; where states were handed on in place, what entered is among those kept. */
static rill_status run_marked(rill_context *context, const rl_floats_args *a, const rl_attention_args *walk)
{
    rl_attention_args steps = *walk;
    int64_t wide = rl_floats_wide(a->in.keys, a->in.values);
    int64_t each = (a->marks.parts ? 1 : a->chunks) * wide * wide;
    steps.in = a->in;
    steps.y = a->y;
    steps.S_final = a->S_final;
    steps.marks = a->marks;
    if (steps.in.S_init.data)
        steps.in.S_init = (rl_attention_state){.data = a->S,
                                               .sequence = a->in.heads * each,
                                               .head = each,
                                               .key = wide,
                                               .value = 1,
                                               .dtype = RILL_F32,
                                               .wide = true};
    return rl_cuda_attention_by_steps(context, &steps);
}

rill_status rl_cuda_attention_floats(rill_context *context, const rl_attention_args *walk, bool *taken)
{
    rl_floats_args a = {.in = walk->in, .y = walk->y, .S_final = walk->S_final};
    *taken = is_welcome(context, &a.in, LEAST_LENGTH, 1);
    if (!*taken) return RILL_OK;
    a.chunks = rl_quotient_up(a.in.length, RL_FLOATS_STEPS);
    a.wide = inputs_bits(&a.in) | (is_even(&a.y, a.in.values, 4) ? RL_FLOATS_Y : 0);
    if (is_short(&a.in) && !a.S_final.data) return launch_strips(context, &a, walk);
    rl_heads_args heads;
    if (rl_heads_plan(context, &a, &heads)) {
        rill_status done = rl_heads_run(context, &heads);
        return done == RILL_OK ? run_marked(context, &heads.all, walk) : done;
    }
    rill_status status = take_marks(context, &a);
    if (status == RILL_OK && rl_floats_wide(a.in.keys, a.in.values) == RL_FLOATS_NARROW &&
        a.chunks <= RL_FLOATS_MOST_WHOLE && a.in.sequences * a.in.heads <= MOST_BLOCKS)
        return launch_whole(context, &a, walk);
    int64_t left = a.in.sequences, most = sequences_of(&a, 1);
    if (status == RILL_OK) status = take_room(context, &a, most, false);
    for (; left > 0 && status == RILL_OK; left -= most) {
        int64_t now = a.in.sequences = rl_least(left, most);
        status = launch_states(context, &a, false);
        if (status == RILL_OK) status = launch_answers(context, &a);
        if (status == RILL_OK) status = run_marked(context, &a, walk);
        move_inputs(&a.in, now);
        move_view(&a.y, now);
        move_state(&a.S_final, now);
        move_marks(&a.marks, &a.in, now);
    }
    return status;
}

/* Backward */

/* Of dq and dk: to the tensor, or by head where heads of a query head are summed later. */
static rill_status take_rows(rill_context *context, const rl_attention_inputs *in, rl_attention_view *to, void **sums)
{
    int64_t step = in->heads * in->keys, bytes;
    if (!to->data || in->share == 1) return RILL_OK;
    if (__builtin_mul_overflow(in->sequences * in->length, step * (int64_t)sizeof(float), &bytes))
        return rl_fail(context, RILL_OUT_OF_MEMORY, "memory: sums over heads take more than 2^63 bytes");
    rill_status status = rl_workspace_take(context, (size_t)bytes, sums);
    *to = (rl_attention_view){.data = *sums,
                              .batch = in->length * step,
                              .step = in->down ? -step : step,
                              .head = in->keys,
                              .lane = 1,
                              .dtype = RILL_F32};
    return status;
}

/* A mark for each block. */
static rill_status take_parts(rill_context *context, rl_floats_args *a)
{
    int64_t heads = a->in.sequences * a->in.heads;
    a->marks.each = (int32_t)rl_quotient_up(a->in.length, RL_STRIPS_STEPS) * RL_STRIPS_ROLES;
    rill_status status = rl_workspace_take(context, (size_t)(heads * a->marks.each), (void **)&a->marks.parts);
    if (status == RILL_OK)
        status = rl_workspace_take(context, (size_t)(heads * a->in.length), (void **)&a->marks.kinds);
    return status;
}

/* dq and dk as `a` has them. */
static rill_status launch_strips_back(rill_context *context, const rl_attention_backward_args *walk,
                                      const rl_floats_args *a)
{
    int wide = a->wide;
    rl_attention_backward_args strips = *walk;
    strips.dq = a->dq, strips.dk = a->dk;
    void *arguments[] = {&strips, &wide};
    int64_t blocks = walk->in.sequences * walk->in.heads * rl_quotient_up(walk->in.length, RL_STRIPS_STEPS);
    return rl_cuda_launch_early(context, rl_strips_back_kernel(), blocks, RL_STRIPS_ROLES, RL_STRIPS_THREADS,
                                rl_strips_back_shared(), arguments, "linear_attention_backward: launch of strips");
}

static rill_status launch_gradients(rill_context *context, rl_floats_args *a, bool whole)
{
    int wide = rl_floats_wide(a->in.keys, a->in.values);
    int64_t walks = a->in.sequences * a->in.heads;
    void *arguments[] = {a};
    if (whole)
        return rl_cuda_launch_early(
            context, rl_floats_whole_back_kernel(), walks, 1, (int)a->chunks * RL_FLOATS_WHOLE_BACK_THREADS,
            rl_floats_whole_back_shared(a->chunks), arguments, "linear_attention_backward: launch of whole heads");
    rill_status status = launch_states(context, a, true);
    if (status != RILL_OK) return status;
    return rl_cuda_launch_early(context, rl_floats_back_kernel(wide), walks * a->chunks, 1, RL_FLOATS_BACK_THREADS,
                                rl_floats_back_shared(wide), arguments,
                                "linear_attention_backward: launch of gradients");
}

static void move_gradients(rl_floats_args *a, int64_t sequences)
{
    rl_attention_view *views[] = {&a->dy, &a->dq, &a->dk, &a->dv, &a->dgate, &a->dbeta};
    for (int i = 0; i < 6; i++) move_view(views[i], sequences);
    move_state(&a->dS_final, sequences);
    move_state(&a->dS_init, sequences);
    move_inputs(&a->in, sequences);
    move_marks(&a->marks, &a->in, sequences);
}

rill_status rl_cuda_attention_floats_backward(rill_context *context, rl_attention_backward_args *walk, bool *taken)
{
    rl_floats_args a = {.in = walk->in,
                        .dy = walk->dy,
                        .dq = walk->dq,
                        .dk = walk->dk,
                        .dv = walk->dv,
                        .dgate = walk->dgate,
                        .dbeta = walk->dbeta,
                        .dS_final = walk->dS_final,
                        .dS_init = walk->dS_init};
    *taken = a.dy.data && is_welcome(context, &a.in, LEAST_BACK_LENGTH, 2);
    if (!*taken) return RILL_OK;
    a.chunks = rl_quotient_up(a.in.length, RL_FLOATS_STEPS);
    bool whole = rl_floats_wide(a.in.keys, a.in.values) == RL_FLOATS_NARROW && a.chunks <= RL_FLOATS_MOST_WHOLE_BACK;
    bool strips = is_short(&a.in) && !a.dS_final.data && !a.dS_init.data;
    int64_t left = a.in.sequences, most = sequences_of(&a, 2);
    a.wide = inputs_bits(&a.in) | (is_even(&a.dy, a.in.values, 4) ? RL_FLOATS_DY : 0) |
             (is_even(&a.dq, a.in.keys, 2) ? RL_FLOATS_DQ : 0) | (is_even(&a.dk, a.in.keys, 2) ? RL_FLOATS_DK : 0) |
             (is_even(&a.dv, a.in.values, 4) ? RL_FLOATS_DV : 0);
    rl_heads_args whole_heads;
    bool heads = !strips && rl_heads_plan(context, &a, &whole_heads);
    rill_status status = strips ? take_parts(context, &a) : heads ? RILL_OK : take_marks(context, &a);
    if (status == RILL_OK) status = take_rows(context, &a.in, &a.dq, &walk->q_sums);
    if (status == RILL_OK) status = take_rows(context, &a.in, &a.dk, &walk->k_sums);
    if (status == RILL_OK && !whole && !strips && !heads) status = take_room(context, &a, most, true);
    a.wide = inputs_bits(&a.in) | (is_even(&a.dy, a.in.values, 4) ? RL_FLOATS_DY : 0) |
             (is_even(&a.dq, a.in.keys, 2) ? RL_FLOATS_DQ : 0) | (is_even(&a.dk, a.in.keys, 2) ? RL_FLOATS_DK : 0) |
             (is_even(&a.dv, a.in.values, 4) ? RL_FLOATS_DV : 0);
    if (status == RILL_OK && heads) {
        whole_heads.all.dq = a.dq, whole_heads.all.dk = a.dk;
        whole_heads.all.wide = a.wide;
        status = rl_heads_run_back(context, &whole_heads);
        a.marks = whole_heads.all.marks;
        left = 0;
    }
    walk->marks = a.marks;
    if (status == RILL_OK && strips) {
        status = launch_strips_back(context, walk, &a);
        left = 0;
    }
    for (; left > 0 && status == RILL_OK; left -= most) {
        int64_t now = a.in.sequences = rl_least(left, most);
        status = launch_gradients(context, &a, whole);
        move_gradients(&a, now);
    }
    if (status == RILL_OK) status = rl_cuda_attention_backward_by_steps(context, walk);
    return status;
}

/* Once for the device */

cudaError_t rl_cuda_prepare_attention_floats(rl_cuda_state *state)
{
    cudaError_t error = cudaSuccess;
    if (!state->multiplies) return error;
    for (int wide = RL_FLOATS_NARROW; wide <= RL_FLOATS_MOST_WIDE && error == cudaSuccess; wide *= 2) {
        error = rl_cuda_allow(state, rl_floats_sum_kernel(wide, false), rl_floats_sum_shared(wide));
        if (error == cudaSuccess)
            error = rl_cuda_allow(state, rl_floats_sum_kernel(wide, true), rl_floats_sum_shared(wide));
        if (error == cudaSuccess)
            error = rl_cuda_allow(state, rl_floats_answer_kernel(wide), rl_floats_answer_shared(wide));
        if (error == cudaSuccess)
            error = rl_cuda_allow(state, rl_floats_back_kernel(wide), rl_floats_back_shared(wide));
    }
    if (error == cudaSuccess) error = rl_heads_prepare(state);
    if (error == cudaSuccess)
        error = rl_cuda_allow(state, rl_floats_whole_kernel(), rl_floats_whole_shared(RL_FLOATS_MOST_WHOLE));
    if (error == cudaSuccess) error = rl_cuda_allow(state, rl_strips_kernel(), rl_strips_shared());
    if (error == cudaSuccess) error = rl_cuda_allow(state, rl_strips_back_kernel(), rl_strips_back_shared());
    if (error == cudaSuccess)
        error = rl_cuda_allow(state, rl_floats_whole_back_kernel(),
                              rl_floats_whole_back_shared(RL_FLOATS_MOST_WHOLE_BACK));
    return error;
}
