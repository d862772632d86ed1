/*
 * The state that a warpgroup of a walk by chunks holds, Sᵀ [values, keys] as products give it: where it begins and
 * ends, its parts where time is cut, and how large it may be.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_STATE_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_STATE_CUH

#include "linear_attention_chunk_ground.cuh"

namespace attention_chunks
{

template <int KEYS, Purpose PURPOSE> struct State : Ground<KEYS, PURPOSE> {
    typedef attention_chunks::Ground<KEYS, PURPOSE> Ground;
    using Ground::args;
    using Ground::course;
    using Ground::first_value;
    using Ground::group;
    using Ground::head;
    using Ground::pair;
    using Ground::sequence;
    using Ground::thread;
    using Ground::value_row;
    float S[KEYS / 2];
    float bound; /* no number of S is larger; infinity where that is not known */

    __device__ State(const rl_chunks_args &args, int sequence, int head, int group, int first_value, char *shared)
        : Ground(args, sequence, head, group, first_value, shared), bound(INFINITY)
    {
    }

    __device__ __forceinline__ int64_t state_at(const rl_attention_state &state, int i) const
    {
        const int key = i / 4 * 8 + pair() * 2 + i % 2, value = value_row(i / 2 % 2);
        if (key >= args.keys || first_value + value >= args.values) return -1;
        return (int64_t)sequence * state.sequence + (int64_t)head * state.head + (int64_t)key * state.key +
               (int64_t)(first_value + value) * state.value;
    }
    __device__ __forceinline__ void load_state()
    {
        if (!args.start.data) {
            clear_state();
            return;
        }
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            const int64_t at = state_at(args.start, i);
            S[i] = at < 0 ? 0 : load_any<float>(args.start.data, args.start.dtype, at);
        }
    }
    __device__ __forceinline__ void clear_state()
    {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) S[i] = 0;
    }
    /* A backward walk hands on what passes the gate of its last step. */
    __device__ __forceinline__ void store_state() const
    {
        bool drops = false;
        float g = 1;
        if (args.backward && args.gate.data) {
            g = Raw::load(args.gate, course, head, course.count - 1);
            drops = is_reset(args, g);
            g = factor_of(args, g);
        }
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            const int64_t at = state_at(args.end, i);
            if (at >= 0) store_any(args.end.data, args.end.dtype, at, drops ? 0 : rounded_product(g, S[i]));
        }
    }
    /* Of an empty sequence, bit for bit where the types are the same. */
    __device__ __forceinline__ void pass_state_on() const
    {
        for (int i = 0; i < KEYS / 2; i++) {
            const int64_t at = state_at(args.end, i), from = args.start.data ? state_at(args.start, i) : -1;
            if (at < 0) continue;
            if (from >= 0 && args.start.dtype == args.end.dtype)
                attention::copy_bits(args.end.data, at, args.start.data, from, args.end.dtype);
            else
                store_any(args.end.data, args.end.dtype, at,
                          from < 0 ? 0 : load_any<float>(args.start.data, args.start.dtype, from));
        }
    }
    /* The block's parts, as threads hold them. */
    __device__ __forceinline__ void keep_state(float *part) const
    {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) part[i * THREADS + thread] = S[i];
    }
    __device__ __forceinline__ void recall_state(const float *part)
    {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) S[i] = part[i * THREADS + thread];
    }
    /* S = decay S + part, with the decay as the sum of two floats. */
    __device__ __forceinline__ void fold_state(double decay, bool resets, const float *part)
    {
        const float high = (float)decay, low = isfinite(high) ? (float)(decay - (double)high) : 0;
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            const float own = part[i * THREADS + thread];
            S[i] = resets ? own : fmaf(high, S[i], fmaf(low, S[i], own));
        }
    }

    /* Whether S may meet the products of a chunk; asked of all threads alike. */
    __device__ __forceinline__ bool is_small(float most)
    {
        if (bound <= most) return true;
        if (most < 0) return false;
        bool fits = true;
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) fits = fits && fabsf(S[i]) <= most;
        if (barrier_meet_any_numbered(1 + group, THREADS, !fits)) return false;
        bound = most;
        return true;
    }
};

} // namespace attention_chunks

#endif
