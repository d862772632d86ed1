/*
 * The gradients of a chunk, in float32.  With S the state that enters, G the gradient that enters from behind, b and
 * e the products of gates from the chunk's begin and to its end, D those between two steps, and t <= s:
 *
 *     dq_s = scale (b_s S dy_s + Σ_t D_st β_t (v_t · dy_s) k_t)
 *     dv_t = β_t (e_t Gᵀ k_t + scale Σ_s D_st (q_s · k_t) dy_s)
 *     dk_t = β_t (e_t G v_t + scale Σ_s D_st (dy_s · v_t) q_s)
 *
 *     g_t dg_t = Σ_{j<t<=s} N_sj  +  Σ_{s>=t} u_s  +  Σ_{j<t} w_j  +  b_64 <G, S>
 *     N_sj = D_sj β_j scale (q_s · k_j) (dy_s · v_j)      u_s = b_s scale q_s · S dy_s      w_j = e_j β_j k_j · G v_j
 *
 * A warp has 16 steps of dq, of dv, or of dk.  No term of the gates is the small difference of large ones; a gate
 * that is a factor is divided out, and where it is too small for that the head is marked.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_BACK_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_BACK_CUH

#include "linear_attention_floats_chunk.cuh"

namespace attention_floats
{

constexpr float LEAST_GATE = 0x1p-60f; /* that is divided out */
constexpr int BACK_THREADS = RL_FLOATS_BACK_THREADS, WHOLE_BACK_THREADS = RL_FLOATS_WHOLE_BACK_THREADS,
              BACK_WARPS = WHOLE_BACK_THREADS / 32;

template <int WIDE> struct BackTiles {
    typedef attention_floats::Size<WIDE> Size;
    static constexpr int FLOATS = 4 * Size::TILE + 2 * Size::STATE + Size::DECAYS + (4 + STRIPS) * STEPS + BACK_WARPS;
    float *q, *k, *v, *dy, *S, *G;
    float *sum_weights, *back_weights; /* what a step's k, and q, is worth at the chunk's end, and begin */
    float *read, *given;               /* u, w */
    float *pairs;                      /* by strip: the sums over N */
    float *cross;                      /* by warp: <G, S> */
    Decays &decays;

    __device__ explicit BackTiles(float *shared)
        : q(shared), k(q + Size::TILE), v(k + Size::TILE), dy(v + Size::TILE), S(dy + Size::TILE), G(S + Size::STATE),
          sum_weights(G + Size::STATE), back_weights(sum_weights + STEPS), read(back_weights + STEPS),
          given(read + STEPS), pairs(given + STEPS), cross(pairs + STRIPS * STEPS),
          decays(*(Decays *)(cross + BACK_WARPS))
    {
    }
    __device__ void load(const Task &task) const
    {
        const rl_attention_inputs &in = task.args.in;
        const int wide = task.args.wide;
        load_rows<WIDE>(q, in.q, wide & RL_FLOATS_Q, task, task.query_head(), in.keys);
        load_rows<WIDE>(k, in.k, wide & RL_FLOATS_K, task, task.query_head(), in.keys);
        load_rows<WIDE>(v, in.v, wide & RL_FLOATS_V, task, task.head(), in.values);
        load_rows<WIDE>(dy, task.args.dy, wide & RL_FLOATS_DY, task, task.head(), in.values);
    }
    __device__ void make_all_finite(const Task &task) const
    {
        make_finite<WIDE>(q, STEPS, task);
        make_finite<WIDE>(k, STEPS, task);
        make_finite<WIDE>(v, STEPS, task);
        make_finite<WIDE>(dy, STEPS, task);
        make_finite<WIDE>(S, WIDE, task);
        make_finite<WIDE>(G, WIDE, task);
    }
    /* Whether products may be used, by the numbers that the thread has looked at. */
    __device__ bool is_welcome(const Task &task) const
    {
        if (!decays.is_steady()) return false;
        if (!decays.fades()) return true;
        return !decays.heavy[0] && !decays.heavy[1] && is_within<WIDE>(q, STEPS, MODERATE_INPUT, task) &&
               is_within<WIDE>(k, STEPS, MODERATE_INPUT, task) && is_within<WIDE>(v, STEPS, MODERATE_INPUT, task) &&
               is_within<WIDE>(dy, STEPS, MODERATE_INPUT, task) && is_within<WIDE>(S, WIDE, MODERATE_STATE, task) &&
               is_within<WIDE>(G, WIDE, MODERATE_STATE, task);
    }
    /* <G, S> of a thread's share, left by its warp. */
    __device__ void cross_states(const Task &task) const
    {
        float total = 0;
        for (int i = task.thread; i < WIDE * WIDE; i += task.threads) {
            const int at = i / WIDE * Size::PITCH + i % WIDE;
            total = fmaf(S[at], G[at], total);
        }
#pragma unroll
        for (int away = 16; away > 0; away /= 2) total += __shfl_xor_sync(ALL, total, away);
        if (task.thread % 32 == 0) cross[task.thread / 32] = total;
    }
};

template <int WIDE> struct Gradients {
    const Task &task;
    const rl_floats_args &args;
    const BackTiles<WIDE> &tiles;
    const Decays &d;
    const int strip;
    float finite;

    __device__ Gradients(const Task &task, const BackTiles<WIDE> &tiles, int strip)
        : task(task), args(task.args), tiles(tiles), d(tiles.decays), strip(strip), finite(0)
    {
    }
    __device__ __forceinline__ int row(int half) const
    {
        return strip * STRIP + group_of_lane() + half * 8;
    }
    /* Each row's product with a row of the tile, into `to`, times `factor` and number. */
    __device__ __forceinline__ void dot_rows(float *to, const float (&sums)[WIDE / 8][4], const float *tile,
                                             const float *factor, float number)
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float *const own = tile + row(half) * Size<WIDE>::PITCH + 2 * pair_of_lane();
            float total = 0;
#pragma unroll
            for (int n = 0; n < WIDE / 8; n++) {
                const float2 there = *(const float2 *)(own + n * 8);
                total = fmaf(sums[n][half * 2], there.x, total);
                total = fmaf(sums[n][half * 2 + 1], there.y, total);
            }
            total += __shfl_xor_sync(ALL, total, 1);
            total += __shfl_xor_sync(ALL, total, 2);
            if (pair_of_lane() == 0) to[row(half)] = total * factor[row(half)] * number;
        }
    }
    __device__ __forceinline__ void make_dq()
    {
        float sums[WIDE / 8][4];
        clear(sums);
        multiply_state<WIDE, true>(sums, tiles.dy, strip * STRIP, tiles.S, 0);
        if (args.dgate.data) dot_rows(tiles.read, sums, tiles.q, d.from_begin, (float)args.in.scale);
        if (!args.dq.data) return;
        scale_rows(sums, d.from_begin + strip * STRIP);
#pragma unroll 1
        for (int column = 0; column <= strip * STRIP; column += STRIP) {
            float M[2][4];
            multiply_rows<WIDE>(M, tiles.dy, strip * STRIP, tiles.v, column);
            weigh_earlier(M, d, strip, column);
            multiply_sums<WIDE, false>(sums, M[0], tiles.k, column, 0);
            multiply_sums<WIDE, false>(sums, M[1], tiles.k, column + 8, 0);
        }
        scale_all(sums, (float)args.in.scale);
        look_at(finite, sums);
        store_rows<false>(sums, args.dq, args.wide & RL_FLOATS_DQ, task,
                          args.in.share > 1 ? task.head() : task.query_head(), args.in.keys, strip, 0);
    }

    __device__ __forceinline__ void make_dv()
    {
        float sums[WIDE / 8][4];
        clear(sums);
        multiply_state<WIDE, false>(sums, tiles.k, strip * STRIP, tiles.G, 0);
        scale_rows(sums, d.to_end + strip * STRIP);
#pragma unroll 1
        for (int column = strip * STRIP; column < STEPS; column += STRIP) {
            float A[2][4];
            multiply_rows<WIDE>(A, tiles.k, strip * STRIP, tiles.q, column);
            weigh_later(A, d, strip, column, (float)args.in.scale);
            multiply_sums<WIDE, true>(sums, A[0], tiles.dy, column, 0);
            multiply_sums<WIDE, true>(sums, A[1], tiles.dy, column + 8, 0);
        }
        scale_rows(sums, d.beta + strip * STRIP);
        look_at(finite, sums);
        store_rows<true>(sums, args.dv, args.wide & RL_FLOATS_DV, task, task.head(), args.in.values, strip, 0);
    }

    /*
     * Sums over N of the strip's rows j: to the step t goes what lies at s >= t of the rows before it.  Columns come
     * by from the last to the first; `behind` is a row's sum over those that came.
     */
    __device__ __forceinline__ void add_pairs(const float (&M)[2][4], const float (&A)[2][4], float (&behind)[2],
                                              int column)
    {
#pragma unroll
        for (int n = 1; n >= 0; n--) {
            float first = 0, second = 0;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float beta = d.beta[row(half)];
                const float even = M[n][half * 2] * A[n][half * 2] * beta;
                const float odd = M[n][half * 2 + 1] * A[n][half * 2 + 1] * beta;
                float since = even + odd; /* over this pair of columns and those behind it */
                float other = __shfl_down_sync(ALL, since, 1, 4);
                if (pair_of_lane() < 3) since += other;
                other = __shfl_down_sync(ALL, since, 2, 4);
                if (pair_of_lane() < 2) since += other;
                other = __shfl_down_sync(ALL, since, 1, 4);
                const float later = behind[half] + (pair_of_lane() < 3 ? other : 0);
                const int step = column + n * 8 + 2 * pair_of_lane();
                first += row(half) < step ? later + odd + even : 0;
                second += row(half) < step + 1 ? later + odd : 0;
                behind[half] += __shfl_sync(ALL, since, 0, 4);
            }
#pragma unroll
            for (int away = 4; away < 32; away *= 2) {
                first += __shfl_xor_sync(ALL, first, away);
                second += __shfl_xor_sync(ALL, second, away);
            }
            if (group_of_lane() == 0)
                *(float2 *)(tiles.pairs + strip * STEPS + column + n * 8 + 2 * pair_of_lane()) =
                    float2{first, second};
        }
    }
    __device__ __forceinline__ void make_dk()
    {
        float sums[WIDE / 8][4], behind[2] = {0, 0};
        clear(sums);
        multiply_state<WIDE, true>(sums, tiles.v, strip * STRIP, tiles.G, 0);
        if (args.dgate.data) dot_rows(tiles.given, sums, tiles.k, tiles.sum_weights, 1);
        scale_rows(sums, d.to_end + strip * STRIP);
#pragma unroll 1
        for (int column = STEPS - STRIP; column >= strip * STRIP; column -= STRIP) {
            float M[2][4];
            multiply_rows<WIDE>(M, tiles.v, strip * STRIP, tiles.dy, column);
            weigh_later(M, d, strip, column, (float)args.in.scale);
            if (args.dgate.data) {
                float A[2][4];
                multiply_rows<WIDE>(A, tiles.k, strip * STRIP, tiles.q, column);
                add_pairs(M, A, behind, column);
            }
            multiply_sums<WIDE, false>(sums, M[0], tiles.q, column, 0);
            multiply_sums<WIDE, false>(sums, M[1], tiles.q, column + 8, 0);
        }
        look_at(finite, sums);
        if (args.dbeta.data) store_dbeta(sums);
        if (!args.dk.data) return;
        scale_rows(sums, d.beta + strip * STRIP);
        look_at(finite, sums);
        store_rows<false>(sums, args.dk, args.wide & RL_FLOATS_DK, task,
                          args.in.share > 1 ? task.head() : task.query_head(), args.in.keys, strip, 0);
    }
    __device__ __forceinline__ void store_dbeta(const float (&sums)[WIDE / 8][4])
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float *const own = tiles.k + row(half) * Size<WIDE>::PITCH + 2 * pair_of_lane();
            float total = 0;
#pragma unroll
            for (int n = 0; n < WIDE / 8; n++) {
                total = fmaf(sums[n][half * 2], own[n * 8], total);
                total = fmaf(sums[n][half * 2 + 1], own[n * 8 + 1], total);
            }
            total += __shfl_xor_sync(ALL, total, 1);
            total += __shfl_xor_sync(ALL, total, 2);
            finite = fmaf(total, 0.0f, finite);
            if (pair_of_lane() == 0 && row(half) < task.steps())
                store_any(args.dbeta.data, args.dbeta.dtype,
                          task.at(args.dbeta, task.head()) + row(half) * args.dbeta.step, total);
        }
    }

    /* A warp's share of the chunk: of three parts of them one makes dq, one dv, one dk; of two the first both. */
    __device__ __forceinline__ void run()
    {
        const int part = task.thread / RL_FLOATS_THREADS, last = task.threads / RL_FLOATS_THREADS - 1;
        if (part == 0 && (args.dq.data || args.dgate.data)) make_dq();
        if (part == last - 1 && args.dv.data) make_dv();
        if (part == last && (args.dk.data || args.dbeta.data || args.dgate.data)) make_dk();
    }
};

/* The gates' gradients, by one warp with two steps a lane; false where not all is finite.  `tiny`: a gate was too
 * small. */
template <int WIDE>
__device__ __forceinline__ bool finish_gates(const Task &task, const BackTiles<WIDE> &tiles, bool &tiny)
{
    const rl_floats_args &args = task.args;
    const int lane = task.thread, first = 2 * lane;
    const Decays &d = tiles.decays;
    float across = 0, pairs[2] = {0, 0};
    for (int warp = 0; warp < task.threads / 32; warp++) across += tiles.cross[warp];
    across *= (float)d.product();
    for (int strip = 0; strip * STRIP <= first; strip++) {
        pairs[0] += tiles.pairs[strip * STEPS + first];
        pairs[1] += tiles.pairs[strip * STEPS + first + 1];
    }
    const float read[2] = {tiles.read[first], tiles.read[first + 1]};
    const float given[2] = {tiles.given[first], tiles.given[first + 1]};
    const auto [earlier, later] = attention::sums_around(given[0] + given[1], read[0] + read[1], lane);
    const float flow[2] = {pairs[0] + (read[0] + (read[1] + later)) + earlier + across,
                           pairs[1] + (read[1] + later) + (earlier + given[0]) + across};
    bool good = true;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t step = task.first() + first + i;
        if (first + i >= task.steps()) continue;
        const float gate = d.gate[first + i];
        const bool is_read = step > 0 || args.in.S_init.data, divides = is_read && !args.in.gate_is_log;
        const float own = args.in.gate_is_log && gate == 0 ? 0 : flow[i];
        good = good && is_finite(own);
        tiny = tiny || (divides && fabsf(gate) < LEAST_GATE);
        store_any(args.dgate.data, args.dgate.dtype, task.at(args.dgate, task.head()) + (first + i) * args.dgate.step,
                  !is_read  ? 0
                  : divides ? own / gate
                            : own);
    }
    return good;
}

} // namespace attention_floats

#endif
