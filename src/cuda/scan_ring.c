/* The launcher of the scan's ring kernels: describes tensors to the copy engine, cuts the work, and launches. */
#include "scan_ring.h"

#include <cudaTypedefs.h>

#include "scan_kernels.h"
#include "scan_ring_args.h"

enum {
    ALIGNMENT = 16,      /* of the copy engine, in bytes */
    LEAST_STEPS = 16,    /* of a sequence, on the average: below it a thread a channel does as well */
    LEAST_CHANNELS = 16, /* of a tile: below it most of its threads would idle */
    LEAST_STAGES = 3,    /* of a ring: one is walked, the next is looked into, one is written */
    MOST_STAGES = 16,
    MOST_TOGETHER = 2,       /* blocks of a multiprocessor */
    SHARED_BYTES = 216 << 10 /* of a multiprocessor, for rings */
};

static const int64_t MOST_BLOCKS = INT32_MAX, MOST_INDEX = INT32_MAX;

/* Everything the choice depends on, and what comes of it. */
typedef struct plan {
    const rl_scan_args *args;
    bool backward, along;
    int64_t size;     /* bytes of an element */
    int32_t channels; /* of a tile */
} plan;

static int64_t in_time(const plan *p, const rl_scan_view *view)
{
    return p->args->down ? -view->step : view->step;
}

static bool is_copyable_stride(const plan *p, int64_t stride, int64_t size)
{
    return size == 1 || (stride >= 0 && stride * p->size % ALIGNMENT == 0);
}

/* Whether the copy engine can move tiles of the view. */
static bool is_copyable(const plan *p, const rl_scan_view *view)
{
    const rl_scan_args *args = p->args;
    int64_t rows = args->offsets ? 1 : args->sequences, step = in_time(p, view);
    int64_t inner = p->along ? step : view->channel, inner_size = p->along ? args->length : args->channels;
    int64_t middle = p->along ? view->channel : step, middle_size = p->along ? args->channels : args->length;
    return !view->data || (view->dtype == args->a.dtype && (uintptr_t)view->data % ALIGNMENT == 0 && inner == 1 &&
                           inner_size * p->size % ALIGNMENT == 0 && is_copyable_stride(p, middle, middle_size) &&
                           is_copyable_stride(p, view->batch, rows));
}

/* One decay for all steps of a channel of a sequence is read once, from wherever it lies. */
static bool streams_a(const plan *p)
{
    return p->args->a.step != 0;
}

static bool all_copyable(const plan *p)
{
    const rl_scan_args *args = p->args;
    return is_copyable(p, &args->input) && is_copyable(p, &args->output) && is_copyable(p, &args->before) &&
           is_copyable(p, &args->decay) && (!streams_a(p) || is_copyable(p, &args->a));
}

/* Rows of equal sequences that continue each other, channel after channel, are channels of one. */
static bool continues(const rl_scan_args *args, const void *data, int64_t sequence, int64_t channel)
{
    return !data || args->channels == 1 || sequence == args->channels * channel;
}

static bool view_continues(const rl_scan_args *args, const rl_scan_view *view)
{
    return continues(args, view->data, view->batch, view->channel);
}

static bool state_continues(const rl_scan_args *args, const rl_scan_state *state)
{
    return continues(args, state->data, state->sequence, state->channel);
}

static bool is_mergeable(const rl_scan_args *args)
{
    return !args->offsets && args->sequences > 1 && view_continues(args, &args->a) &&
           view_continues(args, &args->input) && view_continues(args, &args->output) &&
           view_continues(args, &args->before) && view_continues(args, &args->decay) &&
           state_continues(args, &args->enter) && state_continues(args, &args->leave) &&
           state_continues(args, &args->start);
}

static void merge_view(const rl_scan_args *args, rl_scan_view *view)
{
    if (args->channels == 1) view->channel = view->batch;
    view->batch = 0;
}

static void merge_state(const rl_scan_args *args, rl_scan_state *state)
{
    if (args->channels == 1) state->channel = state->sequence;
    state->sequence = 0;
}

/* Where time is contiguous, a tile may hold channels of several sequences. */
static rl_scan_args merged(const rl_scan_args *args)
{
    rl_scan_args whole = *args;
    if (!is_mergeable(args)) return whole;
    rl_scan_view *views[] = {&whole.a, &whole.input, &whole.output, &whole.before, &whole.decay};
    rl_scan_state *states[] = {&whole.enter, &whole.leave, &whole.start};
    for (int k = 0; k < 5; k++) merge_view(args, views[k]);
    for (int k = 0; k < 3; k++) merge_state(args, states[k]);
    whole.channels = args->sequences * args->channels;
    whole.sequences = 1;
    return whole;
}

/* Blocks of `channels` channels each. */
static int64_t tasks_of(const plan *p, int64_t channels)
{
    return p->args->sequences * ((p->args->channels - 1) / channels + 1);
}

static bool is_sized(const plan *p)
{
    const rl_scan_args *args = p->args;
    int64_t units = p->size == 16 ? 2 : 1, sequences = args->offsets ? args->sequences : 1;
    return args->channels >= LEAST_CHANNELS && args->length / sequences >= LEAST_STEPS &&
           args->length <= MOST_INDEX / units - 256 && args->channels <= MOST_INDEX / units - 256 &&
           args->sequences <= MOST_BLOCKS / ((args->channels - 1) / p->channels + 1);
}

static CUtensorMapDataType unit_of(int64_t size)
{
    return size == 2   ? CU_TENSOR_MAP_DATA_TYPE_UINT16
           : size == 4 ? CU_TENSOR_MAP_DATA_TYPE_UINT32
                       : CU_TENSOR_MAP_DATA_TYPE_UINT64; /* c128: two of them */
}

/* An axis of one element has no stride; the copy engine wants one that it could take. */
static cuuint64_t copyable_bytes(const plan *p, int64_t stride, int64_t size)
{
    return size == 1 ? ALIGNMENT : (cuuint64_t)(stride * p->size);
}

static bool describe(rill_context *context, const plan *p, const rl_scan_view *view, CUtensorMap *map)
{
    if (!view->data) return true;
    const rl_scan_args *args = p->args;
    int64_t units = p->size == 16 ? 2 : 1, rows = args->offsets ? 1 : args->sequences, step = in_time(p, view);
    int64_t inner = p->along ? args->length : args->channels, middle = p->along ? args->channels : args->length;
    int64_t stride = p->along ? view->channel : step, steps = rl_scan_ring_steps((int)p->size, p->along);
    cuuint64_t sizes[] = {(cuuint64_t)(inner * units), (cuuint64_t)middle, (cuuint64_t)rows};
    cuuint64_t strides[] = {copyable_bytes(p, stride, middle), copyable_bytes(p, view->batch, rows)};
    cuuint32_t box[] = {(cuuint32_t)((p->along ? steps : p->channels) * units),
                        (cuuint32_t)(p->along ? p->channels : steps), 1};
    cuuint32_t each[] = {1, 1, 1};
    PFN_cuTensorMapEncodeTiled_v12000 encode =
        (PFN_cuTensorMapEncodeTiled_v12000)rl_cuda_state_of(context)->encode_tiles;
    return encode(map, unit_of(p->size), 3, view->data, sizes, strides, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  p->along ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static int64_t tile_steps(const plan *p)
{
    return rl_scan_ring_lines(p->along, p->backward) * rl_scan_ring_steps((int)p->size, p->along);
}

static int64_t tile_bytes(const plan *p)
{
    return tile_steps(p) * p->channels * p->size;
}

static const void *pick_kernel(rill_dtype dtype, bool along, bool backward, int32_t channels)
{
    switch (dtype) {
    case RILL_F64:
        return rl_scan_ring_kernel_f64(along, backward, channels);
    case RILL_F32:
        return rl_scan_ring_kernel_f32(along, backward, channels);
    case RILL_BF16:
        return rl_scan_ring_kernel_bf16(along, backward, channels);
    case RILL_F16:
        return rl_scan_ring_kernel_f16(along, backward, channels);
    case RILL_C64:
        return rl_scan_ring_kernel_c64(along, backward, channels);
    default:
        return rl_scan_ring_kernel_c128(along, backward, channels);
    }
}

/* A block's slots with their barriers; behind them a tile of decays, where these are not streamed. */
static int64_t ring_bytes(const plan *p, int32_t stages)
{
    int64_t tile = tile_bytes(p), tiles = 1 + p->backward + streams_a(p);
    return stages * (tiles * tile + 2 * (int64_t)sizeof(uint64_t)) + (streams_a(p) ? 0 : tile);
}

/* As many as the blocks of a multiprocessor may have beside each other, and as a task has tiles. */
static int32_t stages_of(const plan *p, int64_t together)
{
    int64_t tiles = (p->args->length - 1) / tile_steps(p) + 2; /* one more where the first is begun within */
    int32_t stages = MOST_STAGES;
    while (stages > LEAST_STAGES && (stages > tiles || ring_bytes(p, stages) > SHARED_BYTES / together)) stages--;
    return stages;
}

static rill_status launch(rill_context *context, const plan *p, rl_scan_ring_args *ring)
{
    const rl_scan_args *args = p->args;
    int64_t tasks = tasks_of(p, p->channels);
    ring->scan = *args;
    ring->blocks = (int32_t)(tasks / args->sequences);
    ring->stages = stages_of(p, tasks > rl_cuda_state_of(context)->sms ? MOST_TOGETHER : 1);
    const void *kernel = pick_kernel((rill_dtype)args->a.dtype, p->along, p->backward, p->channels);
    void *arguments[] = {ring};
    return rl_cuda_launch_early(context, kernel, tasks, 1, p->channels + 32, (size_t)ring_bytes(p, ring->stages),
                                arguments, "scan: launch of rings");
}

/* The most channels, but where these would leave half of the multiprocessors, or of the threads, without work. */
static int32_t tile_channels(const rill_context *context, const plan *p)
{
    int32_t most = rl_scan_ring_most((int)p->size, p->along), least = rl_scan_ring_least((int)p->size, p->along);
    bool few = p->args->channels <= least || tasks_of(p, most) <= rl_cuda_state_of(context)->sms / 2;
    return few ? least : most;
}

/* Which axis is contiguous, if either is in all tensors; time only where channels are not. */
static bool find_layout(const rill_context *context, plan *p, rl_scan_args *whole)
{
    p->along = false;
    p->channels = tile_channels(context, p);
    if (is_sized(p) && all_copyable(p)) return true;
    *whole = merged(p->args);
    p->args = whole;
    p->along = true;
    p->channels = tile_channels(context, p);
    return is_sized(p) && all_copyable(p);
}

rill_status rl_cuda_scan_ring(rill_context *context, const rl_scan_args *args, bool backward, bool *taken)
{
    rl_scan_args whole;
    plan p = {.args = args, .backward = backward, .size = (int64_t)rill_dtype_size((rill_dtype)args->a.dtype)};
    *taken = false;
    if (!rl_cuda_state_of(context)->encode_tiles || !args->input.data || !find_layout(context, &p, &whole))
        return RILL_OK;
    rl_scan_ring_args ring = {.streams_a = streams_a(&p)};
    *taken =
        (!ring.streams_a || describe(context, &p, &p.args->a, &ring.a)) &&
        describe(context, &p, &p.args->input, &ring.input) && describe(context, &p, &p.args->before, &ring.before) &&
        describe(context, &p, &p.args->output, &ring.output) && describe(context, &p, &p.args->decay, &ring.decay);
    return *taken ? launch(context, &p, &ring) : RILL_OK;
}

/* The driver's function that describes tensors, where this build has code for a device that copies tiles. */
static void (*find_encode(void))(void)
{
    void (*encode)(void) = NULL;
    struct cudaFuncAttributes attributes;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const void *kernel = rl_scan_ring_kernel_f32(false, false, rl_scan_ring_most(4, false));
    if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess || attributes.ptxVersion < 90) return NULL;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000,
                                                         cudaEnableDefault, &found);
#else
    cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", (void **)&encode, cudaEnableDefault, &found);
#endif
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? encode : NULL;
}

cudaError_t rl_cuda_prepare_scan(rl_cuda_state *state)
{
    static const rill_dtype dtypes[] = {RILL_F64, RILL_F32, RILL_BF16, RILL_F16, RILL_C64, RILL_C128};
    cudaError_t error = cudaSuccess;
    state->encode_tiles = state->most_shared >= SHARED_BYTES ? find_encode() : NULL;
    if (!state->encode_tiles) return cudaSuccess;
    for (int k = 0; k < 6 * 8 && error == cudaSuccess; k++) {
        int size = (int)rill_dtype_size(dtypes[k / 8]);
        int32_t channels = k & 4 ? rl_scan_ring_least(size, k & 1) : rl_scan_ring_most(size, k & 1);
        const void *kernel = pick_kernel(dtypes[k / 8], k & 1, k & 2, channels);
        error = rl_cuda_allow(state, kernel, SHARED_BYTES);
    }
    return error;
}
