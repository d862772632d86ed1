/* Walks of linear attention by chunks: which tensors their kernels take, how time is cut, and their launches. */
#include "linear_attention_chunk_plan.h"

#include <cudaTypedefs.h>

#include "counts.h"

enum {
    ALIGNMENT = 16,  /* of the copy engine, and of y's rows, in bytes */
    WIDE = 64,       /* numbers in a row of a tile */
    LEAST_CHUNKS = 4 /* of a segment of time: it is read twice */
};

static const int64_t MOST_INDEX = INT32_MAX;

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

/* An axis of one element has no stride; the copy engine wants one that it could take. */
static cuuint64_t copyable_bytes(const rill_tensor *t, int axis)
{
    return t->shape[axis] == 1 ? ALIGNMENT : (cuuint64_t)(t->stride[axis] * 2);
}

bool rl_chunks_describe(rill_context *context, const rill_tensor *t, CUtensorMap *map)
{
    cuuint64_t sizes[] = {(cuuint64_t)t->shape[3], (cuuint64_t)t->shape[1], (cuuint64_t)t->shape[2],
                          (cuuint64_t)t->shape[0]};
    cuuint64_t strides[] = {copyable_bytes(t, 1), copyable_bytes(t, 2), copyable_bytes(t, 0)};
    cuuint32_t box[] = {WIDE, RL_CHUNKS_STEPS, 1, 1}, each[] = {1, 1, 1, 1};
    PFN_cuTensorMapEncodeTiled_v12000 encode =
        (PFN_cuTensorMapEncodeTiled_v12000)rl_cuda_state_of(context)->encode_tiles;
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, t->data, sizes, strides, box, each,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool rl_chunks_is_stageable(const rl_attention_view *y, int64_t values)
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

bool rl_chunks_make_plan(rill_context *context, rl_chunks_plan *p)
{
    rl_chunks_args *a = &p->args;
    a->slabs = rl_quotient_up(a->values, RL_CHUNKS_VALUES);
    if (!is_sized(a) || !is_copyable(p->q) || !is_copyable(p->k) || !is_copyable(p->v)) return false;
    a->segments = segments_of(context, a);
    a->stages_y = a->y.data && rl_chunks_is_stageable(&a->y, a->values);
    a->copies_y = a->stages_y && a->y.data == p->y->data && !a->offsets && is_copyable(p->y) &&
                  rl_chunks_describe(context, p->y, &a->to);
    return rl_chunks_describe(context, p->q, &a->q) && rl_chunks_describe(context, p->k, &a->k) &&
           rl_chunks_describe(context, p->v, &a->v);
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

/* The products of the gates of all chunks. */
static rill_status launch_decays(rill_context *context, rl_chunks_args *a)
{
    const int64_t most = 65535;
    int64_t places, bytes;
    if (__builtin_mul_overflow(rl_chunks_places(a), a->heads, &places) ||
        __builtin_mul_overflow(places, (int64_t)rl_chunks_decays_bytes(), &bytes))
        return rl_fail(context, RILL_OUT_OF_MEMORY, "memory: products of gates take more than 2^63 bytes");
    void *arguments[] = {a};
    rill_status status = rl_workspace_take(context, (size_t)bytes, &a->gates);
    if (status != RILL_OK) return status;
    return rl_cuda_launch_early(context, rl_chunks_decays_kernel(), a->sequences * a->heads,
                                rl_least(rl_quotient_up(a->length, RL_CHUNKS_STEPS), most), RL_CHUNKS_STEPS,
                                rl_chunks_decays_bytes(), arguments, "linear_attention: launch of products of gates");
}

rill_status rl_chunks_launch(rill_context *context, rl_chunks_args *a, rl_chunks_purpose purpose)
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
