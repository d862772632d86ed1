/* The launcher of linear attention in float32 of many heads. */
#include "linear_attention_floats_heads.h"

#include "counts.h"
#include "linear_attention_copies.h"

static bool is_copyable(const rl_attention_view *view)
{
    return view->step >= 0 && view->head >= 0 && view->batch >= 0;
}

static bool describe(const rill_context *context, const rl_attention_inputs *in, const rl_attention_view *view,
                     int64_t heads, int64_t lanes, CUtensorMap *map)
{
    const rl_attention_copies copies = {
        .batch = in->sequences, .length = in->length, .heads = heads, .lanes = lanes, .steps = RL_FLOATS_STEPS};
    return rl_attention_describe(context, view, &copies, map);
}

/* So many heads that blocks which go through one each keep the device busy. */
static bool are_many(const rill_context *context, const rl_floats_args *a)
{
    int64_t heads = a->in.sequences * a->in.heads;
    return rl_floats_wide(a->in.keys, a->in.values) == RL_FLOATS_MOST_WIDE && a->chunks > 1 &&
           heads < INT32_MAX / 4 / a->chunks && 4 * heads >= rl_cuda_state_of(context)->sms;
}

bool rl_heads_plan(const rill_context *context, const rl_floats_args *a, rl_heads_args *to)
{
    const rl_attention_inputs *in = &a->in;
    int32_t needs = RL_FLOATS_Q | RL_FLOATS_K | RL_FLOATS_V | (a->dy.data ? RL_FLOATS_DY : 0);
    to->all = *a;
    return are_many(context, a) && (a->wide & needs) == needs && is_copyable(&in->q) && is_copyable(&in->k) &&
           is_copyable(&in->v) && (!a->dy.data || is_copyable(&a->dy)) &&
           describe(context, in, &in->q, in->heads / in->share, in->keys, &to->tiles[RL_HEADS_Q]) &&
           describe(context, in, &in->k, in->heads / in->share, in->keys, &to->tiles[RL_HEADS_K]) &&
           describe(context, in, &in->v, in->heads, in->values, &to->tiles[RL_HEADS_V]) &&
           describe(context, in, a->dy.data ? &a->dy : &in->v, in->heads, in->values, &to->tiles[RL_HEADS_TO_Y]);
}

/* A mark for each block, and the products of gates. */
static rill_status start(rill_context *context, rl_heads_args *whole, int64_t each)
{
    rl_floats_args *a = &whole->all;
    int64_t heads = a->in.sequences * a->in.heads;
    void *arguments[] = {whole};
    a->part = 0;
    a->marks.each = (int32_t)each;
    rill_status status = rl_workspace_take(context, (size_t)(heads * each), (void **)&a->marks.parts);
    if (status == RILL_OK)
        status = rl_workspace_take(context, (size_t)(heads * a->in.length), (void **)&a->marks.kinds);
    if (status == RILL_OK)
        status = rl_workspace_take(context, (size_t)(heads * a->chunks * (a->dy.data ? 2 : 1)) * rl_heads_record(),
                                   &a->records);
    if (status != RILL_OK) return status;
    return rl_cuda_launch_early(context, rl_heads_records_kernel(), heads * a->chunks, 1, RL_FLOATS_STEPS,
                                rl_heads_records_shared(), arguments,
                                "linear_attention: launch of products of gates");
}

static rill_status launch(rill_context *context, rl_heads_args *whole, const void *kernel, size_t shared,
                          int64_t lanes)
{
    rl_floats_args *a = &whole->all;
    int64_t slabs = rl_quotient_up(lanes, RL_HEADS_LANES);
    void *arguments[] = {whole};
    rill_status status =
        rl_cuda_launch_early(context, kernel, a->in.sequences * a->in.heads * slabs, 1, RL_HEADS_THREADS, shared,
                             arguments, "linear_attention: launch of heads");
    a->part += (int32_t)slabs;
    return status;
}

rill_status rl_heads_run(rill_context *context, rl_heads_args *whole)
{
    rl_floats_args *a = &whole->all;
    size_t states =
        (size_t)(a->in.sequences * a->in.heads * RL_FLOATS_MOST_WIDE * RL_FLOATS_MOST_WIDE) * sizeof(float);
    rill_status status = start(context, whole, rl_quotient_up(a->in.values, RL_HEADS_LANES));
    if (status == RILL_OK && a->in.S_init.data) status = rl_workspace_take(context, states, (void **)&a->S);
    return status == RILL_OK ? launch(context, whole, rl_heads_kernel(), rl_heads_shared(), a->in.values) : status;
}

/* Backward */

/* What the gates' gradients need: by slab of keys, chunk and step; and states. */
static rill_status take_gates(rill_context *context, rl_floats_args *a)
{
    int64_t slabs = rl_quotient_up(a->in.keys, RL_HEADS_LANES);
    size_t steps = (size_t)(a->in.sequences * a->in.heads * slabs * a->chunks * RL_FLOATS_STEPS) * sizeof(float);
    rill_status status = RILL_OK;
    if (a->dbeta.data) status = rl_workspace_take(context, steps, (void **)&a->worth);
    if (!a->dgate.data || status != RILL_OK) return status;
    status = rl_workspace_take(context, steps, (void **)&a->read);
    if (status == RILL_OK) status = rl_workspace_take(context, steps, (void **)&a->flow);
    if (status == RILL_OK)
        status = rl_workspace_take(context, steps / RL_FLOATS_STEPS * RL_HEADS_LANES * RL_FLOATS_MOST_WIDE,
                                   (void **)&a->kept);
    return status;
}

static rill_status launch_gates(rill_context *context, rl_heads_args *whole)
{
    void *arguments[] = {whole};
    return rl_cuda_launch_early(context, rl_heads_gates_kernel(), whole->all.in.sequences * whole->all.in.heads, 1,
                                RL_HEADS_GATES_THREADS, 0, arguments, "linear_attention_backward: launch of gates");
}

rill_status rl_heads_run_back(rill_context *context, rl_heads_args *whole)
{
    rl_floats_args *a = &whole->all;
    bool gates = a->dgate.data || a->dbeta.data;
    bool wants[] = {a->dq.data || a->dgate.data, a->dv.data || a->dS_init.data, a->dk.data || gates};
    int64_t keys = a->in.keys, values = a->in.values;
    int64_t of_keys = rl_quotient_up(keys, RL_HEADS_LANES), of_values = rl_quotient_up(values, RL_HEADS_LANES);
    rill_status status =
        start(context, whole, (wants[0] + wants[2]) * of_keys + wants[1] * of_values + (gates ? 1 : 0));
    if (status == RILL_OK) status = take_gates(context, a);
    for (int what = RL_HEADS_DQ; what <= RL_HEADS_DK && status == RILL_OK; what++)
        if (wants[what - RL_HEADS_DQ])
            status = launch(context, whole, rl_heads_back_kernel(what), rl_heads_back_shared(what),
                            what == RL_HEADS_DV ? values : keys);
    return status == RILL_OK && gates ? launch_gates(context, whole) : status;
}

/* Once for the device */

cudaError_t rl_heads_prepare(rl_cuda_state *state)
{
    cudaError_t error = rl_cuda_allow(state, rl_heads_kernel(), rl_heads_shared());
    for (int what = RL_HEADS_DQ; what <= RL_HEADS_DK && error == cudaSuccess; what++)
        error = rl_cuda_allow(state, rl_heads_back_kernel(what), rl_heads_back_shared(what));
    return error;
}
