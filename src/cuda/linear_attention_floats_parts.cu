/*
 * Linear attention forward by chunks in float32, for 33 to 64 keys or values: the sums and the answers of
 * linear_attention_floats.cu on the units of warpgroups (linear_attention_floats_parts.cuh).
 *
 *     block = a chunk of a head, a warpgroup; all of its inputs are on their way at once
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_floats_parts.cuh"

namespace
{

using namespace attention_floats;

/* P times D_tj β_j for j <= t, else 0; rows are later steps. */
__device__ __forceinline__ void weigh_earlier_steps(float (&P)[32], const Decays &d, int warp)
{
    const int row = warp * STRIP + group_of_lane(), early = 2 * pair_of_lane();
    const float until[2] = {d.until[row], d.until[row + 8]};
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        const float2 worth = *(const float2 *)(d.worth + n * BLOCK + early);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int block = 2 * warp + half;
            const float since = n < block ? until[half] * d.between[n][block] : 0;
            float2 D = {since * worth.x, since * worth.y};
            if (n == block) {
                const float2 beta = *(const float2 *)(d.beta + n * BLOCK + early);
                D.x = d.within[n][early][group_of_lane()] * beta.x;
                D.y = d.within[n][early + 1][group_of_lane()] * beta.y;
            }
            float *const own = P + n * 4 + half * 2;
            own[0] = n <= block ? own[0] * D.x : 0;
            own[1] = n <= block ? own[1] * D.y : 0;
        }
    }
}

/* Shared memory of a block. */
struct SumPlanes {
    static constexpr int BYTES = 2 * OPERAND + (Size<SIDE>::DECAYS + STEPS) * 4;
    unsigned char *left, *right;
    float *weights;
    Decays &decays;

    __device__ explicit SumPlanes(unsigned char *shared)
        : left(shared), right(left + OPERAND), weights((float *)(right + OPERAND)),
          decays(*(Decays *)(weights + STEPS))
    {
    }
};
struct AnswerPlanes {
    static constexpr int BYTES = 4 * OPERAND + Size<SIDE>::DECAYS * 4;
    unsigned char *q, *k, *v, *S;
    Decays &decays;

    __device__ explicit AnswerPlanes(unsigned char *shared)
        : q(shared), k(q + OPERAND), v(k + OPERAND), S(v + OPERAND), decays(*(Decays *)(S + OPERAND))
    {
    }
    /* Whether products may be used, by the numbers that the thread has looked at. */
    __device__ __forceinline__ bool is_welcome(int thread) const
    {
        if (!decays.is_steady()) return false;
        if (!decays.fades()) return true;
        return !decays.heavy[0] && !decays.heavy[1] && planes_are_within(q, MODERATE_INPUT, thread) &&
               planes_are_within(k, MODERATE_INPUT, thread) && planes_are_within(v, MODERATE_INPUT, thread) &&
               planes_are_within(S, MODERATE_STATE, thread);
    }
};

__device__ __forceinline__ float look_at_all(const float (&sum)[32])
{
    float finite = 0;
#pragma unroll
    for (int i = 0; i < 32; i++) finite = fmaf(sum[i], 0.0f, finite);
    return finite;
}

/* As sum_kernel of linear_attention_floats.cu; once more from finite tiles where something that products gave is not. */
template <bool BACKWARD>
__global__ void __launch_bounds__(GROUP, 4) sum_parts_kernel(const __grid_constant__ rl_floats_args args)
{
    if constexpr (HAS_PRODUCTS) {
        let_later_start();
        await_earlier();
        const Task task(args, blockIdx.x / (unsigned)args.chunks, blockIdx.x % (unsigned)args.chunks, GROUP);
        const SumPlanes shared(dynamic_shared);
        Decays &d = shared.decays;
        const rl_attention_inputs &in = args.in;
        const bool later = BACKWARD && blockIdx.y == 1; /* what goes back in time */
        const rl_attention_view &left = later ? in.q : in.k, &right = later ? args.dy : in.v;
        float *const to = (later ? args.G : args.S) + task.place() * (SIDE * SIDE);
#pragma unroll 1
        for (int attempt = 0; attempt < 2; attempt++) {
            Tensor one, two;
            one.load(left, args.wide & (later ? RL_FLOATS_Q : RL_FLOATS_K), task, task.query_head(), in.keys);
            two.load(right, args.wide & (later ? RL_FLOATS_DY : RL_FLOATS_V), task, task.head(), in.values);
            if (attempt == 0) {
                if (task.thread < STEPS) start_decays(d, in, task.span(), task.head(), task.first(), task.thread);
                __syncthreads(); /* the blocks' decays are there */
                if (task.thread < STEPS) {
                    finish_decays(d, task.thread);
                    shared.weights[task.thread] = later ? d.from_begin[task.thread] * (float)in.scale
                                                        : d.to_end[task.thread] * d.beta[task.thread];
                }
                if (task.thread == 0 && !later) {
                    const double carry = d.product();
                    const float first = (float)carry;
                    *(float2 *)(args.decays + task.place() * 2) = float2{first, (float)(carry - first)};
                    if (task.chunk == 0) args.marks.all[task.walk] = args.marks.special[task.walk] = 0;
                }
            }
            one.store(shared.left, left, task, task.query_head(), in.keys, NULL, attempt > 0);
            __syncthreads(); /* the weights are there */
            two.store(shared.right, right, task, task.head(), in.values, shared.weights, attempt > 0);
            shared_publish();
            __syncthreads(); /* the planes are there */
            float sum[32];
            products_fence();
            multiply_planes<true, true>(sum, shared.left, shared.right);
            products_commit();
            products_wait<0>();
            hold(sum);
            float *const own = to + (task.thread / 32 * STRIP + group_of_lane()) * SIDE + 2 * pair_of_lane();
#pragma unroll
            for (int i = 0; i < 32; i += 2)
                *(float2 *)(own + i / 2 % 2 * 8 * SIDE + i / 4 * 8) = float2{sum[i], sum[i + 1]};
            if (!__syncthreads_or(look_at_all(sum) != 0)) return; /* and the planes are no longer needed */
        }
    }
}

__global__ void __launch_bounds__(GROUP, 2) answer_parts_kernel(const __grid_constant__ rl_floats_args args)
{
    if constexpr (HAS_PRODUCTS) {
        let_later_start();
        await_earlier();
        const Task task(args, blockIdx.x / (unsigned)args.chunks, blockIdx.x % (unsigned)args.chunks, GROUP);
        const AnswerPlanes shared(dynamic_shared);
        Decays &d = shared.decays;
        const rl_attention_inputs &in = args.in;
        const int warp = task.thread / 32;
        bool special = false, all = false;
#pragma unroll 1
        for (int attempt = 0; attempt < 2; attempt++) {
            Tensor q, k, v, S;
            q.load(in.q, args.wide & RL_FLOATS_Q, task, task.query_head(), in.keys);
            k.load(in.k, args.wide & RL_FLOATS_K, task, task.query_head(), in.keys);
            S.wide = true;
            S.raw.load(args.S + task.place() * (SIDE * SIDE), SIDE, SIDE, SIDE, task.thread);
            v.load(in.v, args.wide & RL_FLOATS_V, task, task.head(), in.values);
            if (attempt == 0 && task.thread < STEPS)
                start_decays(d, in, task.span(), task.head(), task.first(), task.thread);
            q.store(shared.q, in.q, task, task.query_head(), in.keys, NULL, attempt > 0);
            k.store(shared.k, in.k, task, task.query_head(), in.keys, NULL, attempt > 0);
            if (attempt > 0) S.raw.make_finite();
            S.raw.store(shared.S, task.thread);
            v.store(shared.v, in.v, task, task.head(), in.values, NULL, attempt > 0);
            shared_publish();
            __syncthreads(); /* the planes and the blocks' decays are there */
            float P[32], y[32];
            products_fence();
            multiply_planes<false, false>(P, shared.q, shared.k);
            products_commit();
            multiply_planes<false, true>(y, shared.q, shared.S);
            products_commit();
            if (attempt == 0) {
                if (task.thread < STEPS) finish_decays(d, task.thread);
                special = d.is_special(), all = !shared.is_welcome(task.thread);
            }
            __syncthreads(); /* all decays are there */
            products_wait<1>();
            hold(P);
            weigh_earlier_steps(P, d, warp);
            uint32_t parts[4][PARTS][4];
            split_sums(parts, P);
            products_wait<0>();
            hold(y);
            products_fence();
            multiply_parts(P, parts, shared.v);
            products_commit();
            const float upper = d.from_begin[warp * STRIP + group_of_lane()],
                        lower = d.from_begin[warp * STRIP + group_of_lane() + 8], scale = (float)in.scale;
#pragma unroll
            for (int i = 0; i < 32; i++) y[i] *= i / 2 % 2 ? lower : upper;
            products_wait<0>();
            hold(P);
#pragma unroll
            for (int i = 0; i < 32; i++) y[i] = (y[i] + P[i]) * scale;
            store_rows<false>(reinterpret_cast<float(&)[8][4]>(y), args.y, args.wide & RL_FLOATS_Y, task, task.head(),
                              in.values, warp, 0);
            const bool spoiled = look_at_all(y) != 0;
            if (attempt == 0 && !__syncthreads_or(spoiled || special || all)) return;
            if (!__syncthreads_or(spoiled)) break; /* and the planes are no longer needed */
            (attempt == 0 ? special : all) = true;
        }
        if (special) args.marks.special[task.walk] = 1;
        if (all) args.marks.all[task.walk] = 1;
    }
}

} // namespace

const void *rl_floats_sum_parts_kernel(bool backward)
{
    return backward ? kernel_address<sum_parts_kernel<true>>() : kernel_address<sum_parts_kernel<false>>();
}

const void *rl_floats_answer_parts_kernel(void)
{
    return kernel_address<answer_parts_kernel>();
}

size_t rl_floats_sum_parts_shared(void)
{
    return SumPlanes::BYTES;
}

size_t rl_floats_answer_parts_shared(void)
{
    return AnswerPlanes::BYTES;
}
