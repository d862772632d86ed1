/* The launcher of the gradients of linear attention by spans: says which problems their kernel takes. */
#include "linear_attention_spans.h"

#include "counts.h"
#include "linear_attention_chunk_plan.h"

enum {
    LEAST_LANES = RL_SPANS_LANES / 2 + 1, /* keys, and values */
    LEAST_LENGTH = 512
};

static const int64_t MOST_KEPT = (int64_t)2 << 30; /* bytes of states */

/* Absent, or in pieces of 16 bytes. */
static bool is_storable(const rill_tensor *to)
{
    rl_attention_view view = rl_attention_view_of(to, false);
    return !to->data || rl_chunks_is_stageable(&view, to->shape[3]);
}

static bool is_welcome(const rill_context *context, const rl_linear_attention_backward_problem *p, int64_t places)
{
    return !p->reverse && !context->options.reproducible && !p->offsets.data && !p->dS_init.data &&
           p->heads == p->query_heads && p->length >= LEAST_LENGTH && p->keys >= LEAST_LANES &&
           p->values >= LEAST_LANES && p->keys <= RL_SPANS_LANES && p->values <= RL_SPANS_LANES &&
           places <= MOST_KEPT / (2 * RL_SPANS_STATE) && is_storable(&p->dq) && is_storable(&p->dk) &&
           is_storable(&p->dv);
}

/* The state, or gradient, that enters each span. */
static rill_status keep_states(rill_context *context, rl_chunks_args *walk, int64_t places, int32_t *bad)
{
    rill_status status = rl_workspace_take(context, (size_t)(places * RL_SPANS_STATE), (void **)&walk->states);
    walk->bad = bad;
    return status == RILL_OK ? rl_chunks_launch(context, walk, RL_CHUNKS_KEEP_STATES) : status;
}

static rill_status launch_spans(rill_context *context, const rl_linear_attention_backward_problem *p,
                                const rl_chunks_args *dq, const rl_chunks_args *dk, int64_t places)
{
    rl_spans_args args = {
        .walk = *dq,
        .dq = rl_attention_view_of(&p->dq, false),
        .dk = rl_attention_view_of(&p->dk, false),
        .dv = rl_attention_view_of(&p->dv, false),
        .dgate = rl_attention_view_of(&p->dgate, false),
        .dbeta = rl_attention_view_of(&p->dbeta, false),
        .S = (const char *)dq->states,
        .G = (const char *)dk->states,
        .spans = places / (p->sequences * p->heads),
        .scale = (float)p->scale,
        .has_state = p->S_init.data,
    };
    void *arguments[] = {&args};
    return rl_cuda_launch_early(context, rl_spans_kernel(p->dbeta.data), rl_least(places, rl_cuda_state_of(context)->sms), 1,
                                rl_spans_threads(), rl_spans_shared(), arguments,
                                "linear_attention_backward: launch of gradients");
}

rill_status rl_cuda_attention_spans(rill_context *context, const rl_linear_attention_backward_problem *p,
                                    rl_chunks_plan *dq, rl_chunks_plan *dk, bool *taken)
{
    int64_t heads = p->sequences * p->heads, places;
    int32_t *bad;
    *taken = !__builtin_mul_overflow(heads, rl_chunks_most(p->length, true) / RL_SPANS_CHUNKS, &places) &&
             is_welcome(context, p, places);
    if (!*taken) return RILL_OK;
    dq->args.k_factor = (rl_chunks_factor){.number = 1};
    dq->args.y_factor = (rl_chunks_factor){rl_attention_view_of(&p->beta, false), 1};
    dq->args.apart = dq->args.paired = true;
    rill_status status = rl_workspace_take(context, (size_t)heads * sizeof(int32_t), (void **)&bad);
    if (status == RILL_OK)
        status = rl_cuda_check(
            context, cudaMemsetAsync(bad, 0, (size_t)heads * sizeof(int32_t), rl_cuda_state_of(context)->stream),
            "linear_attention_backward: marks");
    if (status == RILL_OK) status = keep_states(context, &dq->args, places, bad);
    if (status == RILL_OK) status = keep_states(context, &dk->args, places, bad);
    if (status == RILL_OK) status = launch_spans(context, p, &dq->args, &dk->args, places);
    return status == RILL_OK ? rl_cuda_attention_marked_by_steps(context, p, bad) : status;
}

cudaError_t rl_cuda_prepare_attention_spans(rl_cuda_state *state)
{
    cudaError_t error = cudaSuccess;
    for (int betas = 0; betas < 2 && state->multiplies && error == cudaSuccess; betas++)
        error = rl_cuda_allow(state, rl_spans_kernel(betas), rl_spans_shared());
    return error;
}
