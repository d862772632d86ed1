/* The launcher of linear attention by chunks: says which problems the kernels take, makes walks of them, launches. */
#include "linear_attention_chunks.h"

#include "counts.h"
#include "linear_attention_copies.h"
#include "linear_attention_launch.h"
#include "linear_attention_views.h"

enum {
    ALIGNMENT = 16,  /* of the copy engine, and of y's rows, in bytes */
    WIDE = 64,       /* keys of the narrowest kernel, and numbers in a row of a tile */
    LEAST_CHUNKS = 4 /* of a segment of time: it is read twice */
};

static const int64_t MOST_INDEX = INT32_MAX;
static const int64_t MOST_KEPT = (int64_t)2 << 30; /* bytes of states and sums for the gates' gradients */

/* One walk, before it is known whether the kernels take it. */
typedef struct plan {
    const rill_tensor *q, *k, *v, *y;
    rl_chunks_args args;
} plan;

static bool is_copyable_stride(int64_t stride, int64_t size)
{
    return size == 1 || (stride >= 0 && stride * 2 % ALIGNMENT == 0);
}

/* Whether the copy engine can move tiles of the tensor [batch, length, heads, lanes]. */
static bool is_copyable(const rill_tensor *t)
{
    return t->data && t->dtype == RILL_BF16 && (uintptr_t)t->data % ALIGNMENT == 0 && t->shape[3] <= MOST_INDEX &&
           (t->stride[3] == 1 || t->shape[3] == 1) && is_copyable_stride(t->stride[0], t->shape[0]) &&
           is_copyable_stride(t->stride[1], t->shape[1]) && is_copyable_stride(t->stride[2], t->shape[2]);
}

static bool describe(rill_context *context, const rill_tensor *t, CUtensorMap *map)
{
    const rl_attention_view view = rl_attention_view_of(t, false);
    const rl_attention_copies copies = {.batch = t->shape[0],
                                        .length = t->shape[1],
                                        .heads = t->shape[2],
                                        .lanes = t->shape[3],
                                        .steps = RL_CHUNKS_STEPS};
    return rl_attention_describe(context, &view, &copies, map);
}

/* Whether 8 neighbours of y are one aligned access of bfloat16 numbers. */
static bool is_stageable(const rl_attention_view *y, int64_t values)
{
    return y->dtype == RILL_BF16 && (y->lane == 1 || values == 1) && values % 8 == 0 &&
           (uintptr_t)y->data % ALIGNMENT == 0 && y->batch % 8 == 0 && y->step % 8 == 0 && y->head % 8 == 0;
}

/*
 * Parts of time, so that all multiprocessors have work.  With packed sequences the host does not know where time
 * ends; and with `reproducible` the number of sequences must not show.
 */
static int64_t segments_of(const rill_context *context, const rl_chunks_args *a)
{
    int64_t blocks = a->sequences * a->heads * a->slabs;
    int64_t room = (int64_t)rl_cuda_state_of(context)->sms * RL_CHUNKS_TOGETHER;
    int64_t chunks = rl_quotient_up(a->length, RL_CHUNKS_STEPS);
    if (context->options.reproducible || a->offsets) return 1;
    int64_t segments = rl_least(rl_least(room / blocks, chunks / LEAST_CHUNKS), RL_CHUNKS_MOST_SEGMENTS);
    return segments < 1 ? 1 : segments;
}

static bool is_sized(const rl_chunks_args *a)
{
    int64_t blocks;
    return a->heads > 0 && a->keys > 0 && a->values > 0 && a->keys <= RL_CHUNKS_MOST_KEYS && a->length > 0 &&
           a->length <= MOST_INDEX - RL_CHUNKS_STEPS && a->heads <= MOST_INDEX && a->sequences <= MOST_INDEX &&
           a->values <= MOST_INDEX - RL_CHUNKS_VALUES && !__builtin_mul_overflow(a->sequences, a->heads, &blocks) &&
           !__builtin_mul_overflow(blocks, a->slabs * RL_CHUNKS_MOST_SEGMENTS, &blocks) && blocks <= MOST_INDEX;
}

static bool make_plan(rill_context *context, plan *p)
{
    rl_chunks_args *a = &p->args;
    a->slabs = rl_quotient_up(a->values, RL_CHUNKS_VALUES);
    if (!is_sized(a) || !is_copyable(p->q) || !is_copyable(p->k) || !is_copyable(p->v)) return false;
    a->segments = segments_of(context, a);
    a->stages_y = a->y.data && is_stageable(&a->y, a->values);
    a->copies_y =
        a->stages_y && a->y.data == p->y->data && !a->offsets && is_copyable(p->y) && describe(context, p->y, &a->to);
    return describe(context, p->q, &a->q) && describe(context, p->k, &a->k) && describe(context, p->v, &a->v);
}

static rill_status take_parts(rill_context *context, rl_chunks_args *a)
{
    int64_t segments = a->sequences * a->heads * a->slabs * a->segments;
    size_t part = (size_t)rl_chunks_part(a->keys) * sizeof(float);
    if (a->segments == 1) return RILL_OK;
    rill_status status = rl_workspace_take(context, (size_t)segments * part, (void **)&a->parts);
    if (status == RILL_OK)
        status = rl_workspace_take(context, (size_t)segments * sizeof(double), (void **)&a->decays);
    if (status == RILL_OK)
        status = rl_workspace_take(context, (size_t)segments * sizeof(int32_t), (void **)&a->marks);
    return status;
}

static rill_status launch_kernel(rill_context *context, rl_chunks_args *a, rl_chunks_purpose purpose,
                                 int64_t segments, const char *what)
{
    int64_t groups = rl_chunks_groups(a->keys), lines = a->sequences * a->heads * rl_quotient_up(a->slabs, groups);
    void *arguments[] = {a};
    return rl_cuda_launch_early(context, rl_chunks_kernel(a->keys, purpose), lines * segments, 1,
                                rl_chunks_threads(a->keys, purpose), rl_chunks_shared(a->keys, purpose), arguments,
                                what);
}

/* Blocks of each line, all of which run at the same time: they begin with what chunks have in common. */
static int64_t rows_of(const rill_context *context, int64_t lines, int64_t together)
{
    return rl_quotient_up((int64_t)rl_cuda_state_of(context)->sms * together, lines);
}

/* The products of the gates of all chunks. */
static rill_status launch_decays(rill_context *context, rl_chunks_args *a)
{
    int64_t chunks = rl_quotient_up(a->length, RL_CHUNKS_STEPS), lines = a->sequences * a->heads, places, bytes;
    if (__builtin_mul_overflow(rl_chunks_places(a), a->heads, &places) ||
        __builtin_mul_overflow(places, (int64_t)rl_chunks_decays_bytes(), &bytes))
        return rl_fail(context, RILL_OUT_OF_MEMORY, "memory: products of gates take more than 2^63 bytes");
    void *arguments[] = {a};
    rill_status status = rl_workspace_take(context, (size_t)bytes, &a->gates);
    if (status != RILL_OK) return status;
    return rl_cuda_launch_early(context, rl_chunks_decays_kernel(), lines,
                                rl_least(chunks, rows_of(context, lines, RL_CHUNKS_DECAYS_TOGETHER)), RL_CHUNKS_STEPS,
                                rl_chunks_decays_bytes(), arguments, "linear_attention: launch of products of gates");
}

static rill_status launch(rill_context *context, rl_chunks_args *a, rl_chunks_purpose purpose)
{
    rill_status status = take_parts(context, a);
    if (status == RILL_OK) status = launch_decays(context, a);
    if (status == RILL_OK && a->segments > 1)
        status = launch_kernel(context, a, a->end.data ? RL_CHUNKS_SUM_OF_STATE : RL_CHUNKS_SUM, a->segments - 1,
                               "linear_attention: launch of sums");
    if (status != RILL_OK) return status;
    if (purpose == RL_CHUNKS_Y && a->end.data) purpose = RL_CHUNKS_Y_AND_STATE;
    return launch_kernel(context, a, purpose, a->segments, "linear_attention: launch of a walk by chunks");
}

/* Sequences of a few steps are left to the loop's order; with `reproducible` their number and length must not show.
 */
static bool is_welcome(const rill_context *context, int64_t length, int64_t sequences, const rill_tensor *offsets)
{
    if (!rl_cuda_state_of(context)->multiplies || sequences == 0) return false;
    return context->options.reproducible || length / (offsets->data ? sequences : 1) >= RL_CHUNKS_LEAST_LENGTH;
}

/* clang-format off */
/* What the walks of a problem of either direction have in common. */
#define COMMON_OF(p, runs_down) \
    .gate = rl_attention_view_of(&(p)->gate, runs_down), \
    .offsets = (p)->offsets.data, \
    .offsets_stride = (p)->offsets.data ? (p)->offsets.stride[0] : 0, \
    .length = (p)->length, \
    .heads = (p)->heads, \
    .sequences = (p)->sequences, \
    .q_share = 1, \
    .k_share = 1, \
    .v_share = 1, \
    .gate_is_log = (p)->gate_is_log, \
    .down = runs_down
/* clang-format on */

/* Forward */

rill_status rl_cuda_attention_chunks(rill_context *context, const rl_linear_attention_problem *p, bool *taken)
{
    plan walk = {.q = &p->q, .k = &p->k, .v = &p->v, .y = &p->y, .args = {COMMON_OF(p, p->reverse)}};
    rl_chunks_args *a = &walk.args;
    a->keys = p->keys, a->values = p->values;
    a->q_share = a->k_share = p->heads / p->query_heads;
    a->y = rl_attention_view_of(&p->y, p->reverse);
    a->k_factor = (rl_chunks_factor){rl_attention_view_of(&p->beta, p->reverse), 1};
    a->y_factor.number = (float)p->scale;
    a->start = rl_attention_state_of(&p->S_init, false);
    a->end = rl_attention_state_of(&p->S_final, false);
    *taken = is_welcome(context, p->length, p->sequences, &p->offsets) && make_plan(context, &walk);
    return *taken ? launch(context, a, RL_CHUNKS_Y) : RILL_OK;
}

/* Backward */

static rl_attention_state transposed(rl_attention_state state)
{
    int64_t key = state.key;
    state.key = state.value;
    state.value = key;
    state.wide = false;
    return state;
}

/* Of dq and dk: to the tensor, or by head where heads of a query head are summed later. */
static rill_status take_rows(rill_context *context, const rl_linear_attention_backward_problem *p,
                             const rill_tensor *to, bool down, rl_attention_view *y, void **sums)
{
    int64_t rows = p->offsets.data ? 1 : p->sequences, step = p->heads * p->keys, bytes;
    *y = rl_attention_view_of(to, down);
    if (!to->data || p->heads == p->query_heads) return RILL_OK;
    if (__builtin_mul_overflow(rows * p->length, step * (int64_t)sizeof(float), &bytes))
        return rl_fail(context, RILL_OUT_OF_MEMORY, "memory: sums over heads take more than 2^63 bytes");
    *y = (rl_attention_view){
        .batch = p->length * step, .step = down ? -step : step, .head = p->keys, .lane = 1, .dtype = RILL_F32};
    rill_status status = rl_workspace_take(context, (size_t)bytes, sums);
    y->data = *sums;
    return status;
}

static plan dq_plan(const rl_linear_attention_backward_problem *p, const rl_attention_view *y)
{
    plan walk = {.q = &p->dy, .k = &p->v, .v = &p->k, .y = &p->dq, .args = {COMMON_OF(p, p->reverse)}};
    rl_chunks_args *a = &walk.args;
    a->keys = p->values, a->values = p->keys;
    a->v_share = a->partner_share = p->heads / p->query_heads;
    a->y = *y;
    a->k_factor = (rl_chunks_factor){rl_attention_view_of(&p->beta, p->reverse), 1};
    a->weighs_values = true;
    a->y_factor.number = (float)p->scale;
    a->start = transposed(rl_attention_state_of(&p->S_init, false));
    return walk;
}

static plan dk_plan(const rl_linear_attention_backward_problem *p, const rl_attention_view *y)
{
    plan walk = {.q = &p->v, .k = &p->dy, .v = &p->q, .y = &p->dk, .args = {COMMON_OF(p, !p->reverse)}};
    rl_chunks_args *a = &walk.args;
    a->keys = p->values, a->values = p->keys;
    a->v_share = a->partner_share = p->heads / p->query_heads;
    a->y = *y;
    a->k_factor.number = (float)p->scale;
    a->weighs_values = true;
    a->y_factor = (rl_chunks_factor){rl_attention_view_of(&p->beta, !p->reverse), 1};
    a->start = transposed(rl_attention_state_of(&p->dS_final, false));
    a->backward = true;
    a->wants_whole = p->dbeta.data;
    return walk;
}

static plan dv_plan(const rl_linear_attention_backward_problem *p)
{
    plan walk = {.q = &p->k, .k = &p->q, .v = &p->dy, .y = &p->dv, .args = {COMMON_OF(p, !p->reverse)}};
    rl_chunks_args *a = &walk.args;
    a->keys = p->keys, a->values = p->values;
    a->q_share = a->k_share = p->heads / p->query_heads;
    a->y = rl_attention_view_of(&p->dv, !p->reverse);
    a->k_factor.number = (float)p->scale;
    a->y_factor = (rl_chunks_factor){rl_attention_view_of(&p->beta, !p->reverse), 1};
    a->start = rl_attention_state_of(&p->dS_final, false);
    a->end = rl_attention_state_of(&p->dS_init, false);
    a->backward = true;
    return walk;
}

/*
 * Room for what the walks of dq and dk leave for the gates; none where it would take too much.  That depends on the
 * batch, which must not show with `reproducible`: then the loop's order it is.
 */
static rill_status take_gates(rill_context *context, const rl_linear_attention_backward_problem *p,
                              rl_chunks_args *dq, rl_chunks_args *dk, bool *fits)
{
    int64_t places = rl_chunks_places(dq) * dq->slabs * dq->heads;
    int64_t state = rl_chunks_part(dq->keys) * 2, sums = RL_CHUNKS_STEPS * (int64_t)sizeof(float), bytes;
    size_t heads = (size_t)(p->sequences * p->heads) * sizeof(int32_t);
    *fits = !p->reverse && !context->options.reproducible &&
            !__builtin_mul_overflow(places, state + 4 * sums, &bytes) && bytes <= MOST_KEPT;
    if (!*fits) return RILL_OK;
    rill_status status = rl_workspace_take(context, (size_t)(places * state), (void **)&dq->states);
    if (status == RILL_OK) status = rl_workspace_take(context, (size_t)(places * sums), (void **)&dq->sums);
    if (status == RILL_OK) status = rl_workspace_take(context, (size_t)(places * 3 * sums), (void **)&dk->sums);
    if (status == RILL_OK)
        status = rl_workspace_take(context, (size_t)places * RL_CHUNKS_WARPS * sizeof(float), (void **)&dk->cross);
    if (status == RILL_OK) status = rl_workspace_take(context, heads, (void **)&dq->bad);
    if (status != RILL_OK) return status;
    dk->states = dq->states;
    dk->bad = dq->bad;
    return rl_cuda_check(context, cudaMemsetAsync(dq->bad, 0, heads, rl_cuda_state_of(context)->stream),
                         "linear_attention_backward: marks");
}

static rill_status launch_gates(rill_context *context, const rl_linear_attention_backward_problem *p,
                                const rl_chunks_args *dq, const rl_chunks_args *dk)
{
    const int64_t threads = 128, chunks = rl_quotient_up(p->length, RL_CHUNKS_STEPS);
    const int64_t lines = p->sequences * p->heads;
    rl_chunks_gates_args args = {
        .walk = *dk,
        .read = dq->sums,
        .gate = rl_attention_view_of(&p->gate, p->reverse),
        .dgate = rl_attention_view_of(&p->dgate, p->reverse),
        .dbeta = rl_attention_view_of(&p->dbeta, p->reverse),
        .has_state = p->S_init.data,
    };
    void *arguments[] = {&args};
    return rl_cuda_launch_early(
        context, rl_chunks_gates_kernel(), lines,
        rl_least(rl_quotient_up(chunks, threads / 32), rows_of(context, lines, RL_CHUNKS_GATES_TOGETHER)),
        (int)threads, 0, arguments, "linear_attention_backward: launch of gates' gradients");
}

/* Whether the walk of dk can make dv, too: a block has all of the keys, and no gradient of a state is wanted. */
static bool makes_both(const rl_linear_attention_backward_problem *p, rl_chunks_args *dk)
{
    dk->other = rl_attention_view_of(&p->dv, !p->reverse);
    return p->dv.data && p->dk.data && !p->dS_init.data && dk->slabs == rl_chunks_groups(dk->keys) &&
           is_stageable(&dk->other, dk->keys);
}

/* dq, dk, and the gates' gradients; dv with them, where `both` comes back true. */
static rill_status run_keys(rill_context *context, const rl_linear_attention_backward_problem *p, plan *dq, plan *dk,
                            bool gates, bool *both)
{
    bool fits = false;
    rill_status status = gates ? take_gates(context, p, &dq->args, &dk->args, &fits) : RILL_OK;
    *both = fits && makes_both(p, &dk->args);
    if (status == RILL_OK && (fits || p->dq.data))
        status = launch(context, &dq->args, fits ? RL_CHUNKS_DQ : RL_CHUNKS_Y);
    if (status == RILL_OK && (fits || p->dk.data))
        status = launch(context, &dk->args, *both ? RL_CHUNKS_DK_AND_DV : fits ? RL_CHUNKS_DK : RL_CHUNKS_Y);
    if (status == RILL_OK && fits) status = launch_gates(context, p, &dq->args, &dk->args);
    if (status == RILL_OK && gates) status = rl_cuda_attention_gates_by_steps(context, p, dq->args.bad, *both);
    return status;
}

rill_status rl_cuda_attention_chunks_backward(rill_context *context, const rl_linear_attention_backward_problem *p,
                                              bool *taken)
{
    const int64_t share = p->query_heads > 0 ? p->heads / p->query_heads : 1;
    const bool gates = p->dgate.data || p->dbeta.data;
    bool both = false;
    rl_attention_view dq_view, dk_view;
    void *dq_sums = NULL, *dk_sums = NULL;
    *taken = false;
    if (!is_welcome(context, p->length, p->sequences, &p->offsets) || !p->dy.data) return RILL_OK;
    plan dv = dv_plan(p);
    if (!make_plan(context, &dv) || dv.args.values > RL_CHUNKS_MOST_KEYS) return RILL_OK;
    *taken = true;
    rill_status status = take_rows(context, p, &p->dq, p->reverse, &dq_view, &dq_sums);
    if (status == RILL_OK) status = take_rows(context, p, &p->dk, !p->reverse, &dk_view, &dk_sums);
    if (status != RILL_OK) return status;
    plan dq = dq_plan(p, &dq_view), dk = dk_plan(p, &dk_view);
    bool made = make_plan(context, &dq) && make_plan(context, &dk) && describe(context, &p->q, &dq.args.partner) &&
                describe(context, &p->k, &dk.args.partner);
    if (!made) return rl_fail(context, RILL_DEVICE_ERROR, "linear_attention_backward: tensors cannot be described");
    if (p->dq.data || p->dk.data || gates) status = run_keys(context, p, &dq, &dk, gates, &both);
    if (status == RILL_OK && !both && (p->dv.data || p->dS_init.data))
        status = launch(context, &dv.args, RL_CHUNKS_Y);
    if (status == RILL_OK && dq_sums) status = rl_cuda_attention_sum_heads(context, &p->dq, dq_sums, share, false);
    if (status == RILL_OK && dk_sums) status = rl_cuda_attention_sum_heads(context, &p->dk, dk_sums, share, false);
    return status;
}

/* Once for the device */

cudaError_t rl_cuda_prepare_attention(rl_cuda_state *state)
{
    struct cudaFuncAttributes attributes;
    cudaError_t error = cudaSuccess;
    state->multiplies = state->multiplies && state->encode_tiles && rl_chunks_has_products() &&
                        cudaFuncGetAttributes(&attributes, rl_chunks_kernel(WIDE, RL_CHUNKS_SUM)) == cudaSuccess &&
                        attributes.binaryVersion == 90;
    for (int keys = WIDE; keys <= RL_CHUNKS_MOST_KEYS && state->multiplies; keys += WIDE)
        for (rl_chunks_purpose purpose = RL_CHUNKS_Y; purpose <= RL_CHUNKS_SUM_OF_STATE && error == cudaSuccess;
             purpose++)
            error = rl_cuda_allow(state, rl_chunks_kernel(keys, purpose), rl_chunks_shared(keys, purpose));
    return error;
}
