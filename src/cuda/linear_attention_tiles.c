/* The launcher of linear attention of bfloat16 data by chunks, all at once: says which problems its kernels take. */
#include "linear_attention_tiles.h"

#include "counts.h"
#include "linear_attention_copies.h"
#include "linear_attention_launch.h"

enum {
    SEGMENT = RL_TILES_STEPS * RL_TILES_CHUNKS,
    LEAST_LENGTH = 2 * SEGMENT /* steps: a segment is read twice */
};

static const int64_t STATE = RL_TILES_WIDE * RL_TILES_WIDE; /* numbers */
static const int64_t MOST_KEPT = (int64_t)2 << 30;          /* bytes of states */
static const int64_t MOST_BLOCKS = INT32_MAX;

/* Whether rows can be moved in pieces of 16 bytes. */
static bool is_movable(const rl_attention_view *view, int64_t lanes)
{
    return view->data && view->dtype == RILL_BF16 && (view->lane == 1 || lanes == 1) &&
           (uintptr_t)view->data % 16 == 0 && view->batch % 8 == 0 && view->step % 8 == 0 && view->head % 8 == 0;
}
/* Whether the copy engine can bring tiles. */
static bool is_copyable(const rl_attention_view *view, int64_t lanes)
{
    return is_movable(view, lanes) && view->batch >= 0 && view->step >= 0 && view->head >= 0;
}
static bool is_storable(const rl_attention_view *view, int64_t lanes)
{
    return is_movable(view, lanes) && lanes % 8 == 0;
}

static bool describe(rill_context *context, const rl_attention_inputs *in, const rl_attention_view *view,
                     int64_t heads, int64_t lanes, CUtensorMap *map)
{
    const rl_attention_copies copies = {
        .batch = in->sequences, .length = in->length, .heads = heads, .lanes = lanes, .steps = RL_TILES_STEPS};
    return rl_attention_describe(context, view, &copies, map);
}

static bool is_welcome(const rill_context *context, const rl_attention_inputs *in)
{
    int64_t segments = rl_quotient_up(in->length, SEGMENT), blocks;
    return rl_cuda_state_of(context)->multiplies && !in->offsets && !context->options.reproducible && !in->down &&
           in->length >= LEAST_LENGTH && in->length < MOST_BLOCKS - SEGMENT && in->sequences > 0 && in->heads > 0 &&
           in->keys > 0 && in->values > 0 && in->keys <= RL_TILES_WIDE && in->values <= RL_TILES_WIDE &&
           !__builtin_mul_overflow(in->heads, segments, &blocks) &&
           !__builtin_mul_overflow(blocks, in->sequences, &blocks) &&
           in->sequences * in->heads <= rl_cuda_state_of(context)->sms && /* else heads alone fill the device */
           blocks <= MOST_KEPT / (RL_TILES_WIDE * RL_TILES_WIDE * (int64_t)sizeof(float)) &&
           is_copyable(&in->q, in->keys) && is_copyable(&in->k, in->keys) && is_copyable(&in->v, in->values);
}

static bool describe_inputs(rill_context *context, rl_tiles_args *a)
{
    const rl_attention_inputs *in = &a->all.in;
    return describe(context, in, &in->q, in->heads / in->share, in->keys, &a->q) &&
           describe(context, in, &in->k, in->heads / in->share, in->keys, &a->k) &&
           describe(context, in, &in->v, in->heads, in->values, &a->v);
}

/* States of all segments, and marks of all heads. */
static rill_status take_room(rill_context *context, rl_tiles_args *args, bool backward)
{
    rl_floats_args *a = &args->all;
    size_t heads = (size_t)(a->in.sequences * a->in.heads), places = heads * (size_t)a->chunks;
    size_t states = places * RL_TILES_WIDE * RL_TILES_WIDE * sizeof(float);
    rill_status status = rl_workspace_take(context, states, (void **)&a->S);
    if (status == RILL_OK && backward) status = rl_workspace_take(context, states, (void **)&a->G);
    if (status == RILL_OK) status = rl_workspace_take(context, places * 2 * sizeof(float), (void **)&a->decays);
    if (status == RILL_OK) status = rl_workspace_take(context, heads * sizeof(int32_t), (void **)&a->marks.all);
    if (status == RILL_OK)
        status = rl_workspace_take(context, places * RL_TILES_CHUNKS * rl_tiles_gates_bytes(), &args->gates);
    a->marks.special = a->marks.all; /* of the kernel of states: either way all of the head is run */
    return status;
}

/* As the kernel of states takes it: states lie [values, keys] in the workspace. */
static rl_attention_state turned(rl_attention_state state)
{
    int64_t key = state.key;
    state.key = state.value;
    state.value = key;
    return state;
}
static rl_floats_args of_states(const rl_floats_args *a)
{
    rl_floats_args states = *a;
    states.in.keys = a->in.values, states.in.values = a->in.keys;
    states.in.S_init = turned(a->in.S_init), states.S_final = turned(a->S_final);
    states.dS_init = turned(a->dS_init), states.dS_final = turned(a->dS_final);
    return states;
}

/* Sums, and then states. */
static rill_status launch_states(rill_context *context, rl_tiles_args *args, bool backward)
{
    rl_floats_args *a = &args->all, states = of_states(a);
    int64_t walks = a->in.sequences * a->in.heads, rows = backward ? 2 : 1;
    void *arguments[] = {args}, *turned_arguments[] = {&states};
    rill_status status =
        rl_cuda_launch_early(context, rl_tiles_sum_kernel(backward), walks * a->chunks, rows, RL_TILES_THREADS,
                             rl_tiles_sum_shared(), arguments, "linear_attention: launch of sums");
    if (status != RILL_OK) return status;
    return rl_cuda_launch_early(context, rl_floats_state_kernel(RL_TILES_WIDE),
                                walks * RL_TILES_WIDE * RL_TILES_WIDE / (4 * RL_FLOATS_STATE_THREADS), rows,
                                RL_FLOATS_STATE_THREADS, 0, turned_arguments, "linear_attention: launch of states");
}

/* Chains */

/* Whether heads alone keep the device busy, going from chunk to chunk. */
static bool is_chain(const rill_context *context, const rl_attention_inputs *in)
{
    return in->sequences * in->heads * RL_TILES_CHAIN_MOST_BLOCKS >= rl_cuda_state_of(context)->sms;
}

/* Blocks of a head's cluster: as many as run at the same time, and none without a chunk. */
static unsigned chain_blocks(const rill_context *context, const rl_attention_inputs *in, int64_t walks)
{
    int64_t steps = RL_TILES_STEPS * RL_TILES_CHAIN_GROUPS;
    unsigned blocks = RL_TILES_CHAIN_MOST_BLOCKS;
    while (blocks > 1 && (walks > rl_cuda_state_of(context)->chains[blocks] || (blocks - 1) * steps >= in->length))
        blocks--;
    return blocks;
}

/* Forward */

/* What entered each head, where states are handed on in place: the first of `each` that are kept of a head. */
static rl_attention_state kept_states(const rl_floats_args *a, int64_t each)
{
    return (rl_attention_state){.data = a->S,
                                .sequence = a->in.heads * each * STATE,
                                .head = each * STATE,
                                .key = 1,
                                .value = RL_TILES_WIDE,
                                .dtype = RILL_F32};
}

/* Marked heads in the loop's order. */
static rill_status run_marked(rill_context *context, const rl_floats_args *a, const rl_attention_args *walk)
{
    rl_attention_args steps = *walk;
    steps.marks.all = a->marks.all;
    if (steps.in.S_init.data) steps.in.S_init = kept_states(a, a->chunks);
    return rl_cuda_attention_by_steps(context, &steps);
}

/* In one kernel, from chunk to chunk; it runs marked heads in the loop's order, too. */
static rill_status run_chain(rill_context *context, rl_tiles_args *args, const rl_attention_args *walk)
{
    rl_floats_args *a = &args->all;
    rl_attention_args steps = *walk;
    int64_t walks = a->in.sequences * a->in.heads;
    void *arguments[] = {args, &steps};
    bool pieces =
        is_copyable(&a->y, a->in.values) && describe(context, &a->in, &a->y, a->in.heads, a->in.values, &args->y);
    rill_status status = RILL_OK;
    if (a->in.S_init.data)
        status = rl_workspace_take(context, (size_t)(walks * STATE) * sizeof(float), (void **)&a->S);
    if (status != RILL_OK) return status;
    if (a->in.S_init.data) steps.in.S_init = kept_states(a, 1);
    rl_cuda_attention_cut(&steps, rl_tiles_chain_shared());
    return rl_cuda_launch_clusters(context, rl_tiles_chain_kernel(pieces, a->S_final.data != NULL), walks,
                                   chain_blocks(context, &a->in, walks), RL_TILES_CHAIN_GROUPS * RL_TILES_THREADS,
                                   rl_tiles_chain_shared(), arguments, "linear_attention: launch of chains");
}

rill_status rl_cuda_attention_tiles(rill_context *context, const rl_attention_args *walk, bool *taken)
{
    rl_tiles_args args = {.all = {.in = walk->in, .y = walk->y, .S_final = walk->S_final}};
    rl_floats_args *a = &args.all;
    void *arguments[] = {&args};
    *taken = is_welcome(context, &a->in) && describe_inputs(context, &args);
    if (!*taken) return RILL_OK;
    if (is_chain(context, &a->in)) return run_chain(context, &args, walk);
    a->chunks = rl_quotient_up(a->in.length, SEGMENT);
    rill_status status = take_room(context, &args, false);
    if (status == RILL_OK) status = launch_states(context, &args, false);
    if (status == RILL_OK)
        status = rl_cuda_launch_early(context, rl_tiles_answer_kernel(is_storable(&a->y, a->in.values)),
                                      a->in.sequences * a->in.heads * a->chunks, 1, RL_TILES_THREADS,
                                      rl_tiles_answer_shared(), arguments, "linear_attention: launch of answers");
    return status == RILL_OK ? run_marked(context, a, walk) : status;
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
    *to = (rl_attention_view){
        .data = *sums, .batch = in->length * step, .step = step, .head = in->keys, .lane = 1, .dtype = RILL_F32};
    return status;
}

/* Whether the copy engine can store all gradients, to where they are made. */
static bool are_storable(rill_context *context, rl_tiles_args *args)
{
    const rl_floats_args *a = &args->all;
    const rl_attention_inputs *in = &a->in;
    int64_t heads = in->heads;
    return (!a->dq.data || (is_copyable(&a->dq, in->keys) &&
                            describe(context, in, &a->dq, heads / in->share, in->keys, &args->dq))) &&
           (!a->dk.data || (is_copyable(&a->dk, in->keys) &&
                            describe(context, in, &a->dk, heads / in->share, in->keys, &args->dk))) &&
           (!a->dv.data ||
            (is_copyable(&a->dv, in->values) && describe(context, in, &a->dv, heads, in->values, &args->dv)));
}

/* Of the states of all chunks, in one direction of time. */
static int64_t chain_bytes(const rl_attention_inputs *in)
{
    return in->sequences * in->heads * rl_quotient_up(in->length, RL_TILES_STEPS) * STATE * (int64_t)sizeof(uint16_t);
}

/* States of all chunks in one kernel, from chunk to chunk, and then the gradients of each chunk. */
static rill_status run_chain_backward(rill_context *context, rl_tiles_args *args, rl_attention_backward_args *walk)
{
    rl_floats_args *a = &args->all;
    int64_t walks = a->in.sequences * a->in.heads;
    void *arguments[] = {args};
    a->chunks = rl_quotient_up(a->in.length, RL_TILES_STEPS);
    size_t bytes = (size_t)chain_bytes(&a->in), marks = (size_t)walks * sizeof(int32_t);
    rill_status status = rl_workspace_take(context, bytes, (void **)&a->S);
    if (status == RILL_OK) status = rl_workspace_take(context, bytes, (void **)&a->G);
    if (status == RILL_OK) status = rl_workspace_take(context, marks, (void **)&a->marks.all);
    if (status == RILL_OK) status = rl_workspace_take(context, marks, (void **)&a->marks.special);
    if (status == RILL_OK)
        status = rl_workspace_take(context, (size_t)(walks * a->chunks) * rl_tiles_gates_bytes(), &args->gates);
    if (status == RILL_OK) status = take_rows(context, &a->in, &a->dq, &walk->q_sums);
    if (status == RILL_OK) status = take_rows(context, &a->in, &a->dk, &walk->k_sums);
    walk->marks.all = a->marks.all;
    if (status == RILL_OK)
        status = rl_cuda_launch_clusters(context, rl_tiles_states_kernel(a->dS_init.data != NULL), 2 * walks,
                                         chain_blocks(context, &a->in, 2 * walks),
                                         (RL_TILES_CHAIN_GROUPS + 1) * RL_TILES_THREADS, rl_tiles_states_shared(),
                                         arguments, "linear_attention_backward: launch of states");
    if (status == RILL_OK)
        status = rl_cuda_launch_early(context, rl_tiles_lone_kernel(are_storable(context, args)), walks * a->chunks,
                                      1, RL_TILES_THREADS, rl_tiles_lone_shared(), arguments,
                                      "linear_attention_backward: launch of gradients");
    return status == RILL_OK ? rl_cuda_attention_backward_by_steps(context, walk) : status;
}

rill_status rl_cuda_attention_tiles_backward(rill_context *context, rl_attention_backward_args *walk, bool *taken)
{
    rl_tiles_args args = {.all = {.in = walk->in,
                                  .dy = walk->dy,
                                  .dq = walk->dq,
                                  .dk = walk->dk,
                                  .dv = walk->dv,
                                  .dgate = walk->dgate,
                                  .dbeta = walk->dbeta,
                                  .dS_final = walk->dS_final,
                                  .dS_init = walk->dS_init}};
    rl_floats_args *a = &args.all;
    void *arguments[] = {&args};
    *taken = is_welcome(context, &a->in) && is_copyable(&a->dy, a->in.values) && describe_inputs(context, &args) &&
             describe(context, &a->in, &a->dy, a->in.heads, a->in.values, &args.dy);
    if (!*taken) return RILL_OK;
    if (is_chain(context, &a->in) && chain_bytes(&a->in) <= MOST_KEPT / 2)
        return run_chain_backward(context, &args, walk);
    a->chunks = rl_quotient_up(a->in.length, SEGMENT);
    rill_status status = take_room(context, &args, true);
    if (status == RILL_OK) status = take_rows(context, &a->in, &a->dq, &walk->q_sums);
    if (status == RILL_OK) status = take_rows(context, &a->in, &a->dk, &walk->k_sums);
    walk->marks.all = a->marks.all;
    if (status == RILL_OK) status = launch_states(context, &args, true);
    if (status == RILL_OK)
        status =
            rl_cuda_launch_early(context, rl_tiles_back_kernel(are_storable(context, &args)),
                                 a->in.sequences * a->in.heads * a->chunks, 1, RL_TILES_CHUNKS * RL_TILES_THREADS,
                                 rl_tiles_back_shared(), arguments, "linear_attention_backward: launch of gradients");
    return status == RILL_OK ? rl_cuda_attention_backward_by_steps(context, walk) : status;
}

/* Once for the device */

/* How many clusters of each size the device holds: its multiprocessors come in groups, which none of them leaves. */
static cudaError_t count_chains(rl_cuda_state *state)
{
    cudaError_t error = cudaSuccess;
    for (unsigned blocks = 1; blocks <= RL_TILES_CHAIN_MOST_BLOCKS && error == cudaSuccess; blocks++) {
        cudaLaunchAttribute cluster = {.id = cudaLaunchAttributeClusterDimension, .val.clusterDim = {blocks, 1, 1}};
        cudaLaunchConfig_t launch = {.gridDim = {blocks, 1, 1},
                                     .blockDim = {RL_TILES_CHAIN_GROUPS * RL_TILES_THREADS, 1, 1},
                                     .dynamicSmemBytes = rl_tiles_chain_shared(),
                                     .attrs = &cluster,
                                     .numAttrs = 1};
        error = cudaOccupancyMaxActiveClusters(&state->chains[blocks], rl_tiles_chain_kernel(true, true), &launch);
    }
    return error;
}

cudaError_t rl_cuda_prepare_attention_tiles(rl_cuda_state *state)
{
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < 4 && state->multiplies && error == cudaSuccess; i++)
        error = rl_cuda_allow(state, rl_tiles_chain_kernel(i % 2, i / 2), rl_tiles_chain_shared());
    for (int i = 0; i < 2 && state->multiplies && error == cudaSuccess; i++) {
        error = rl_cuda_allow(state, rl_tiles_states_kernel(i), rl_tiles_states_shared());
        if (error == cudaSuccess) error = rl_cuda_allow(state, rl_tiles_lone_kernel(i), rl_tiles_lone_shared());
        if (error != cudaSuccess) break;
        error = rl_cuda_allow(state, rl_tiles_sum_kernel(i), rl_tiles_sum_shared());
        if (error == cudaSuccess) error = rl_cuda_allow(state, rl_tiles_answer_kernel(i), rl_tiles_answer_shared());
        if (error == cudaSuccess) error = rl_cuda_allow(state, rl_tiles_back_kernel(i), rl_tiles_back_shared());
    }
    return error == cudaSuccess && state->multiplies ? count_chains(state) : error;
}
