/*
 * A walk of linear attention through chunks of 64 steps, by products of matrices on the tensor cores.
 *
 *     block  = one warpgroup: 64 values of one head, all keys, some chunks one after the other
 *     thread = the 2 x KEYS / 4 numbers of Sᵀ [values, keys] that the layout of products gives it
 * (machine/wgmma.cuh)
 *
 * With S the state that enters, D the products of the gates between two steps, b and e those from the chunk's begin
 * and to its end, w the factor of k and f that of y:
 *
 *     Yᵀ = Sᵀ Qᵀ · b_t + Vᵀ Pᵀ      Pᵀ = K Qᵀ · D_tj w_j       y = f Yᵀ
 *     Sᵀ = Sᵀ · b_last + (Vᵀ · e_j w_j) K
 *
 * Q and K are operands as they lie in shared memory.  Sᵀ and Vᵀ are operands from registers, where S stays; only Pᵀ
 * goes through shared memory, since every warp makes rows of it and needs all.  What is rounded on the way (S, P and
 * Vᵀ e w) is two bfloat16 numbers, whose products are added: 16 bits of each, beside the 8 of the inputs.
 *
 * Where products may not be used (linear_attention_chunk_decays.cuh), or what they give is not finite, the chunk is
 * run step by step in the loop's own order, from the state that entered it.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_WALK_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_WALK_CUH

#include <machine/barriers.cuh>
#include <machine/bulk_heads.cuh>
#include <machine/held.cuh>
#include <machine/mma.cuh>
#include <machine/wgmma.cuh>

#include "linear_attention_chunk_gates.cuh"
#include "linear_attention_walk.cuh"

namespace attention_chunks
{

constexpr int VALUES = RL_CHUNKS_VALUES, THREADS = RL_CHUNKS_THREADS, WIDE = 64, TILE = STEPS * WIDE * 2;
constexpr int ROW = WIDE * 2, PIECE = 16, TURN = 16, TURNS = STEPS / TURN; /* a product takes 16 steps, or keys */
constexpr int STAGES = 2;
constexpr int READY = 1; /* the barrier of the block's threads */

/* What a walk is for: y; the state that leaves; y of dq, or of dk, and what the gates' gradients need of it. */
enum Purpose { ANSWER, SUM, READ_STATES, READ_GRADIENTS };

/* Shared memory, in bytes from its begin; the partner's tile is there for gates' gradients only. */
template <int KEYS> struct Layout {
    static constexpr int PANELS = KEYS / WIDE, K = PANELS * TILE, V = 2 * PANELS * TILE, STAGE = V + TILE;
    static constexpr int MIX = STAGES * STAGE, DECAYS = MIX + 2 * TILE, BARRIERS = DECAYS + 2 * (int)sizeof(Decays);
    static constexpr int PARTNER = (BARRIERS + (STAGES + 1) * (int)sizeof(uint64_t) + 1023) / 1024 * 1024;
    static constexpr int BYTES = PARTNER, BYTES_OF_GATES = PARTNER + TILE;
};

__device__ inline float low_of(uint32_t word)
{
    return __uint_as_float(word << 16);
}
__device__ inline float high_of(uint32_t word)
{
    return __uint_as_float(word & 0xffff0000u);
}

/* Two numbers as sums of two bfloat16 numbers each. */
__device__ inline void split(float first, float second, uint32_t &high, uint32_t &low)
{
    high = pack_bfloats(first, second);
    low = pack_bfloats(first - low_of(high), second - high_of(high));
}

/* Numbers split so, as operands of products from registers. */
template <int COUNT> struct Split {
    uint32_t high[COUNT][4], low[COUNT][4];

    __device__ __forceinline__ void stay()
    {
        hold(high);
        hold(low);
    }
};

/* Stays 0 while all numbers it meets are finite. */
__device__ inline void look_at(float &finite, float number)
{
    finite = fmaf(number, 0.0f, finite);
}

__device__ inline char *piece_of(char *tile, int row, int piece)
{
    return tile + row * ROW + ((piece ^ (row & 7)) * PIECE);
}
__device__ inline float number_of(const char *tile, int row, int lane)
{
    const int panel = lane / WIDE, within = lane % WIDE;
    return widen(((const bf16 *)piece_of((char *)tile + panel * TILE, row, within / 8))[within % 8]);
}

template <int KEYS, Purpose PURPOSE> struct Walk {
    typedef attention_chunks::Layout<KEYS> Layout;
    static constexpr int KEY_TURNS = KEYS / TURN, HALF = KEY_TURNS / 2;
    static constexpr bool SUMS = PURPOSE == SUM, GATES = PURPOSE == READ_STATES || PURPOSE == READ_GRADIENTS;
    static constexpr int READ = SUMS ? Layout::K : 0; /* what is read of a stage, from there */
    const rl_chunks_args &args;
    const Course course;
    const int sequence, head, first_value;
    char *const shared;
    int thread;
    int first, end; /* chunks */
    Raw raw;        /* of the chunk after the next, by the first STEPS threads */
    float S[KEYS / 2];

    __device__ Walk(const rl_chunks_args &args, int sequence, int head, int slab, char *shared)
        : args(args), course(args, sequence), sequence(sequence), head(head), first_value(slab * VALUES),
          shared(shared), thread((int)threadIdx.x), first(0), end(0), raw(args, course, head, -STEPS)
    {
    }

    /* Where things are */

    /* What follows is worked out anew: held for the next chunk, it would take the registers of products. */
    __device__ __forceinline__ void forget_places()
    {
        thread = hidden((int)threadIdx.x);
    }
    /* The thread's rows are group and group + 8 of its warp's 16, its columns 2 pair and the next of each 8. */
    __device__ __forceinline__ int warp() const
    {
        return thread / 32;
    }
    __device__ __forceinline__ int group() const
    {
        return thread % 32 / 4;
    }
    __device__ __forceinline__ int pair() const
    {
        return thread % 4;
    }

    __device__ __forceinline__ char *stage(int chunk) const
    {
        return shared + (chunk - first) % STAGES * Layout::STAGE;
    }
    __device__ __forceinline__ char *mix() const
    {
        return shared + Layout::MIX;
    }
    __device__ __forceinline__ Decays &decays(int chunk) const
    {
        return ((Decays *)(shared + Layout::DECAYS))[chunk & 1];
    }
    __device__ __forceinline__ uint64_t *barrier(int chunk) const
    {
        return (uint64_t *)(shared + Layout::BARRIERS) + (chunk - first) % STAGES;
    }
    __device__ __forceinline__ char *partner() const
    {
        return shared + Layout::PARTNER;
    }
    __device__ __forceinline__ uint64_t *partner_barrier() const
    {
        return (uint64_t *)(shared + Layout::BARRIERS) + STAGES;
    }
    __device__ __forceinline__ int value_row(int upper) const
    {
        return warp() * 16 + group() + upper * 8;
    }

    /* States in memory */

    __device__ __forceinline__ int64_t state_at(const rl_attention_state &state, int i) const
    {
        const int key = i / 4 * 8 + pair() * 2 + i % 2, value = value_row(i / 2 % 2);
        if (key >= args.keys || first_value + value >= args.values) return -1;
        return (int64_t)sequence * state.sequence + (int64_t)head * state.head + (int64_t)key * state.key +
               (int64_t)(first_value + value) * state.value;
    }
    __device__ __forceinline__ void load_state()
    {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            const int64_t at = args.start.data ? state_at(args.start, i) : -1;
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
    /* S = decay S + part */
    __device__ __forceinline__ void fold_state(double decay, bool resets, const float *part)
    {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            const float own = part[i * THREADS + thread];
            S[i] = resets ? own : (float)(decay * (double)S[i] + (double)own);
        }
    }

    /* Inputs */

    __device__ __forceinline__ void fill(int chunk) const
    {
        char *to = stage(chunk);
        const int time = (int)course.time(chunk), row = (int)course.row;
        const int q_head = head / (int)args.q_share, k_head = head / (int)args.k_share;
        barrier_expect(barrier(chunk), Layout::STAGE - READ);
#pragma unroll
        for (int panel = 0; panel < Layout::PANELS; panel++) {
            tile_load(to + Layout::K + panel * TILE, args.k, HeadTileAt{panel * WIDE, time, k_head, row},
                      barrier(chunk));
            if (!SUMS)
                tile_load(to + panel * TILE, args.q, HeadTileAt{panel * WIDE, time, q_head, row}, barrier(chunk));
        }
        tile_load(to + Layout::V, args.v, HeadTileAt{first_value, time, head / (int)args.v_share, row},
                  barrier(chunk));
    }
    /* The partner is k or q, whose lanes are the walk's values; it has one tile, for it is not needed early. */
    __device__ __forceinline__ void fill_partner(int chunk) const
    {
        if (!GATES || thread > 0 || chunk >= end) return;
        barrier_expect(partner_barrier(), TILE);
        tile_load(partner(), args.partner,
                  HeadTileAt{first_value, (int)course.time(chunk), head / (int)args.partner_share, (int)course.row},
                  partner_barrier());
    }
    __device__ __forceinline__ void await_partner(int chunk) const
    {
        barrier_wait(partner_barrier(), (uint32_t)(chunk - first) & 1);
    }
    __device__ __forceinline__ Raw raw_of(int chunk) const
    {
        return Raw(args, course, head, course.step(chunk) + thread);
    }
    __device__ __forceinline__ void prepare(int chunk)
    {
        if (thread >= STEPS || chunk >= end) return;
        start_decays(decays(chunk), args, course, course.step(chunk) + thread, raw);
        if (chunk + 1 < end) raw = raw_of(chunk + 1);
    }
    /* Rows of a packed tile that are another sequence's. */
    __device__ __forceinline__ void clear_rows(int chunk) const
    {
        const int64_t step = course.step(chunk);
        if (!args.offsets || (course.has(step) && course.has(step + STEPS - 1))) return;
        for (int at = READ / PIECE + thread; at < Layout::STAGE / PIECE; at += THREADS)
            if (!course.has(step + course.turned(at / (ROW / PIECE) % STEPS)))
                ((uint4 *)stage(chunk))[at] = uint4{0, 0, 0, 0};
        shared_publish();
        barrier_meet<READY, THREADS>(); /* the rows are clear */
    }
    /* All of the walk's chunks from `begin` on up to `stop`. */
    __device__ __forceinline__ void start(int begin, int stop)
    {
        first = begin;
        end = stop;
        if (thread == 0) {
            for (int s = 0; s <= STAGES; s++) barrier_init((uint64_t *)(shared + Layout::BARRIERS) + s, 1);
            barrier_publish();
            fill_partner(first);
            for (int chunk = first; chunk < end && chunk < first + STAGES; chunk++) fill(chunk);
        }
        if (thread < STEPS) raw = raw_of(first);
        prepare(first);
        __syncthreads(); /* the barriers and the first chunk's decays are there */
    }
    __device__ __forceinline__ void await(int chunk) const
    {
        barrier_wait(barrier(chunk), (uint32_t)((chunk - first) / STAGES) & 1);
        clear_rows(chunk);
    }
    /* Before a block leaves early: copies that are on their way. */
    __device__ __forceinline__ void drain(int chunk) const
    {
        for (int next = chunk + 1; next < end && next < chunk + STAGES; next++)
            barrier_wait(barrier(next), (uint32_t)((next - first) / STAGES) & 1);
    }
    /* Behind a barrier after the last use of the chunk. */
    __device__ __forceinline__ void refill(int chunk) const
    {
        if (thread == 0 && chunk + STAGES < end) fill(chunk + STAGES);
        fill_partner(chunk + 1);
    }

    /* Whether products may be used, by the gates and, where these fade, all numbers that meet them. */
    __device__ __forceinline__ bool is_steady(const Decays &d) const
    {
        return d.growth[0] * d.growth[1] <= GROWTH_MOST && !isnan(d.carry[0] * d.carry[1]);
    }
    __device__ __forceinline__ bool fades(const Decays &d) const
    {
        return d.fade[0] * d.fade[1] < FADED;
    }
    __device__ __forceinline__ bool is_moderate(const Decays &d, int chunk) const
    {
        float state = 0;
        uint32_t most = 0;
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) state = fmaxf(state, fabsf(S[i]));
        for (int at = READ / 4 + thread; at < Layout::STAGE / 4; at += THREADS) {
            const uint32_t word = ((const uint32_t *)stage(chunk))[at];
            const uint32_t low = word << 16 & 0x7fffffffu, high = word & 0x7fff0000u;
            most = most > low ? most : low;
            most = most > high ? most : high;
        }
        return state <= MODERATE_STATE && __uint_as_float(most) <= MODERATE_INPUT && !(d.heavy[0] || d.heavy[1]);
    }

    /* Products */

    __device__ __forceinline__ uint64_t keys_at(const char *tiles, int turn) const
    {
        return tile_descriptor(tiles + turn / 4 * TILE + turn % 4 * (TURN * 2), 0, BLOCK * ROW, SWIZZLE_128);
    }
    __device__ __forceinline__ uint64_t steps_at(const char *tiles, int turn) const
    {
        return tile_descriptor(tiles + turn * (TURN * ROW), TILE, BLOCK * ROW, SWIZZLE_128);
    }
    __device__ __forceinline__ void multiply_steps(float (&P)[32], const char *q, const char *k) const
    {
        hold(P);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < KEY_TURNS; turn++)
            product_of_tiles<BF16, STEPS, false, false>(P, keys_at(k, turn), keys_at(q, turn), turn > 0);
        products_commit();
    }
    /* A half of the keys, which takes registers only while its products are at work. */
    __device__ __forceinline__ void split_state(Split<HALF> &to, int half) const
    {
#pragma unroll
        for (int i = 0; i < HALF * 4; i++) {
            const int at = half * HALF * 8 + 2 * i;
            split(S[at], S[at + 1], to.high[i / 4][i % 4], to.low[i / 4][i % 4]);
        }
        to.stay();
    }
    __device__ __forceinline__ void multiply_state(float (&Y)[32], const Split<HALF> &by, const char *q,
                                                   int half) const
    {
        products_fence();
#pragma unroll
        for (int turn = 0; turn < HALF; turn++) {
            product_of_registers<BF16, STEPS, false>(Y, by.high[turn], keys_at(q, half * HALF + turn),
                                                     half + turn > 0);
            product_of_registers<BF16, STEPS, false>(Y, by.low[turn], keys_at(q, half * HALF + turn), true);
        }
        products_commit();
    }
    /* P with its decays, to shared memory: the high parts, and the low ones in the tile behind. */
    __device__ __forceinline__ void weigh_steps(const float (&P)[32], const Decays &d, const float (&own_pairs)[32],
                                                Pairs &pairs) const
    {
        const float2 *until = (const float2 *)d.until + pair();
        float after[2];
#pragma unroll
        for (int upper = 0; upper < 2; upper++) after[upper] = d.after[value_row(upper)];
#pragma unroll
        for (int column = 0; column < BLOCKS; column += 2) {
            uint32_t high[4], low[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int block = column + k / 2, upper = k % 2, own = warp() * 2 + upper;
                float2 decay = until[block * 4];
                const float between = after[upper] * d.between[own][block];
                decay.x *= between;
                decay.y *= between;
                if (block == own) decay = *(const float2 *)&d.within[own][group()][pair() * 2];
                const int at = block * 4 + upper * 2;
                const float first = P[at] * decay.x, second = P[at + 1] * decay.y;
                split(first, second, high[k], low[k]);
                if (PURPOSE != READ_GRADIENTS) continue;
                const float2 factor = ((const float2 *)d.factor)[block * 4 + pair()];
                pairs.take(first * own_pairs[at] * factor.x, second * own_pairs[at + 1] * factor.y, block, upper,
                           value_row(upper), pair());
            }
            char *to = block_row(column, false);
            matrices_store<4, false>(to, high);
            matrices_store<4, false>(to + TILE, low);
        }
    }
    /* The thread's row for a store of four blocks, of the warp()'s 16 rows or, turned, of its 16 columns. */
    __device__ __forceinline__ char *block_row(int column, bool turned) const
    {
        const int lane = thread % 32, block = lane / 8, row = lane % 8;
        if (turned) return piece_of(mix(), (column + block / 2) * 8 + row, warp() * 2 + block % 2);
        return piece_of(mix(), warp() * 16 + block % 2 * 8 + row, column + block / 2);
    }
    __device__ __forceinline__ void decay_state(float (&Y)[32], const Decays &d) const
    {
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            float2 decay = ((const float2 *)d.until)[block * 4 + pair()];
            decay.x *= d.before[block];
            decay.y *= d.before[block];
#pragma unroll
            for (int k = 0; k < 4; k++) Y[block * 4 + k] *= k % 2 ? decay.y : decay.x;
        }
    }
    /* Vᵀ of the steps from a turn on. */
    template <int COUNT> __device__ __forceinline__ void load_values(uint32_t (&V)[COUNT][4], char *v, int from) const
    {
        const int lane = thread % 32, block = lane / 8, row = lane % 8;
#pragma unroll
        for (int turn = 0; turn < COUNT; turn++)
            matrices_load<4, true>(V[turn],
                                   piece_of(v, (from + turn) * TURN + block / 2 * 8 + row, warp() * 2 + block % 2));
    }
    __device__ __forceinline__ void multiply_mix(float (&Y)[32], const uint32_t (&V)[TURNS][4]) const
    {
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            product_of_registers<BF16, STEPS, true>(Y, V[turn], steps_at(mix(), turn), true);
            product_of_registers<BF16, STEPS, true>(Y, V[turn], steps_at(mix() + TILE, turn), true);
        }
        products_commit();
    }
    /* A half of the steps. */
    __device__ __forceinline__ void weigh_values(Split<TURNS / 2> &to, char *v, const Decays &d, int half) const
    {
        uint32_t V[TURNS / 2][4];
        load_values(V, v, half * (TURNS / 2));
#pragma unroll
        for (int i = 0; i < BLOCKS / 2; i++) {
            const int block = half * (BLOCKS / 2) + i;
            float2 decay = ((const float2 *)d.after)[block * 4 + pair()];
            decay.x *= d.behind[block];
            decay.y *= d.behind[block];
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
                const int k = i % 2 * 2 + upper;
                const uint32_t word = V[i / 2][k];
                split(low_of(word) * decay.x, high_of(word) * decay.y, to.high[i / 2][k], to.low[i / 2][k]);
            }
        }
        to.stay();
    }
    __device__ __forceinline__ void multiply_inputs(float (&U)[KEYS / 2], const Split<TURNS / 2> &by, const char *k,
                                                    int half) const
    {
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS / 2; turn++) {
            const uint64_t steps = steps_at(k, half * (TURNS / 2) + turn);
            product_of_registers<BF16, KEYS, true>(U, by.high[turn], steps, half + turn > 0);
            product_of_registers<BF16, KEYS, true>(U, by.low[turn], steps, true);
        }
        products_commit();
    }
    /* The state that leaves is made twice, to be looked at and, behind a vote, to stay: so S needs no second place.
     */
    __device__ __forceinline__ void look_at_state(float &finite, const float (&U)[KEYS / 2], float carry) const
    {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) look_at(finite, fmaf(carry, S[i], U[i]));
    }
    __device__ __forceinline__ void take_state(const float (&U)[KEYS / 2], float carry)
    {
        const float again = __int_as_float(hidden(__float_as_int(carry))); /* or the compiler would keep the first */
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) S[i] = fmaf(again, S[i], U[i]);
    }

    /* For the gates' gradients */

    /* The chunk's, by the order of the recurrence itself. */
    __device__ __forceinline__ int64_t place(int chunk) const
    {
        const int64_t line = (int64_t)head * args.slabs + first_value / VALUES;
        return place_of(args, course, sequence, line, args.backward ? course.chunks - 1 - chunk : chunk);
    }
    __device__ __forceinline__ float *sums_at(int chunk, Kind kind) const
    {
        const int kinds = PURPOSE == READ_STATES ? 1 : KINDS;
        return args.sums + (place(chunk) * kinds + kind) * KIND + warp() * STEPS;
    }
    __device__ __forceinline__ uint32_t *kept_state(int chunk) const
    {
        return args.states + place(chunk) * (KEYS / 4 * THREADS) + thread;
    }
    __device__ __forceinline__ void keep_half(const Split<HALF> &state, int chunk, int half) const
    {
        uint32_t *to = kept_state(chunk) + half * HALF * 4 * THREADS;
#pragma unroll
        for (int i = 0; i < HALF * 4; i++) to[i * THREADS] = state.high[i / 4][i % 4];
    }
    /* <G, S>, by warp. */
    __device__ __forceinline__ void cross_states(const Decays &d, int chunk) const
    {
        const uint32_t *from = kept_state(chunk);
        float sum = 0;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            const uint32_t word = from[i * THREADS];
            sum = fmaf(low_of(word), S[2 * i], fmaf(high_of(word), S[2 * i + 1], sum));
        }
#pragma unroll
        for (int away = 16; away > 0; away /= 2) sum += __shfl_xor_sync(ALL, sum, away);
        if (thread % 32 == 0) args.cross[place(chunk) * WALK_WARPS + warp()] = sum * (float)(d.carry[0] * d.carry[1]);
    }
    /* The partner's rows times Y, summed over the warp's values. */
    __device__ __forceinline__ void sum_with_partner(const float (&Y)[32], float *to, const Decays &d,
                                                     bool weighs) const
    {
        Columns sums;
        sums.clear();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            uint32_t words[1][4];
            load_values(words, partner(), turn);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int block = turn * 2 + k / 2, at = block * 4 + k % 2 * 2;
                sums.at[2 * block] = fmaf(low_of(words[0][k]), Y[at], sums.at[2 * block]);
                sums.at[2 * block + 1] = fmaf(high_of(words[0][k]), Y[at + 1], sums.at[2 * block + 1]);
            }
        }
#pragma unroll
        for (int block = 0; block < BLOCKS && weighs; block++) {
            const float2 factor = ((const float2 *)d.factor)[block * 4 + pair()];
            sums.at[2 * block] *= factor.x;
            sums.at[2 * block + 1] *= factor.y;
        }
        sums.store(to, thread);
    }
    /* q_s · k_j of the slab's keys. */
    __device__ __forceinline__ void multiply_pairs(float (&M)[32], const char *v) const
    {
        hold(M);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            product_of_tiles<BF16, STEPS, false, false>(M, keys_at(v, turn), keys_at(partner(), turn), turn > 0);
        products_commit();
    }
    /* Then the loop's order is taken for all of the head's gates. */
    __device__ __forceinline__ void mark_head() const
    {
        if (GATES && thread == 0) args.bad[(int64_t)sequence * args.heads + head] = 1;
    }

    /* Results */

    __device__ __forceinline__ void store_number(int64_t at, float number) const
    {
        if (args.y.dtype == RILL_BF16)
            ((bf16 *)args.y.data)[at] = narrow<bf16>(number);
        else
            ((float *)args.y.data)[at] = number;
    }
    __device__ __forceinline__ void store_plain(const float (&Y)[32], const Decays &d, int chunk) const
    {
        const int64_t step = course.step(chunk);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int row = i / 4 * 8 + pair() * 2 + i % 2, n = course.turned(row);
            const int64_t value = first_value + value_row(i / 2 % 2);
            if (course.has(step + n) && value < args.values)
                store_number(course.at(args.y, head, step + n) + value * args.y.lane, Y[i] * d.factor[row]);
        }
    }
    /* By way of shared memory, where P was, into rows as they lie; 16 bytes a thread. */
    __device__ __forceinline__ void store_staged(const float (&Y)[32], const Decays &d, int chunk) const
    {
        const int64_t step = course.step(chunk);
#pragma unroll
        for (int column = 0; column < BLOCKS; column += 2) {
            uint32_t words[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int block = column + k / 2, at = block * 4 + k % 2 * 2;
                const float2 factor = ((const float2 *)d.factor)[block * 4 + pair()];
                words[k] = pack_bfloats(Y[at] * factor.x, Y[at + 1] * factor.y);
            }
            matrices_store<4, true>(block_row(column, true), words);
        }
        barrier_meet<READY, THREADS>(); /* the rows are there */
        const int piece = thread % 8;
        const bool exists = first_value + piece * 8 < args.values;
#pragma unroll
        for (int row = thread / 8; row < STEPS; row += THREADS / 8) {
            const int n = course.turned(row);
            if (exists && course.has(step + n))
                *(uint4 *)((bf16 *)args.y.data + course.at(args.y, head, step + n) + first_value + piece * 8) =
                    *(const uint4 *)piece_of(mix(), row, piece);
        }
    }

    /*
     * Of what products gave, while those of the state are at work; 0 if all is finite, or else nothing is stored.
     */
    __device__ __forceinline__ float store(const float (&Y)[32], const Decays &d, int chunk, bool wants_y) const
    {
        float finite = 0;
#pragma unroll
        for (int i = 0; i < 32; i++) look_at(finite, Y[i]);
        if (PURPOSE == READ_GRADIENTS && args.wants_whole) sum_with_partner(Y, sums_at(chunk, WHOLE), d, false);
        const bool loops = barrier_meet_any<READY, THREADS>(finite != 0); /* and P is no longer needed */
        if (loops) {
            mark_head();
            return 1;
        }
        if (wants_y && args.stages_y)
            store_staged(Y, d, chunk);
        else if (wants_y)
            store_plain(Y, d, chunk);
        return 0;
    }

    /*
     * In the loop's own order, each product and sum rounded by itself; a row's keys are added up by four threads. The
     * state goes through memory: this is to take no registers from the products.
     */
    __device__ __forceinline__ void run_steps(int chunk, bool wants_y)
    {
        const Decays &d = decays(chunk);
        const char *q = stage(chunk), *k = q + Layout::K, *v = q + Layout::V;
        float own[KEYS / 2];
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) own[i] = S[i];
#pragma unroll 1
        for (int n = 0; n < STEPS; n++) {
            if (!course.has(course.step(chunk) + n)) continue;
            const int row = course.turned(n);
            float total[2] = {0, 0};
#pragma unroll 1
            for (int i = 0; i < KEYS / 2; i++) {
                const int key = i / 4 * 8 + pair() * 2 + i % 2, upper = i / 2 % 2;
                const float value = number_of(v, row, value_row(upper)), weight = d.weight[row];
                const float left =
                    args.weighs_values ? number_of(k, row, key) : rounded_product(weight, number_of(k, row, key));
                const float input =
                    rounded_product(left, args.weighs_values ? rounded_product(weight, value) : value);
                const float now = d.reset[row] ? input : rounded_sum(rounded_product(d.gate[row], own[i]), input);
                own[i] = now;
                if (SUMS || key >= args.keys) continue;
                const float read = rounded_product(now, number_of(q, row, key));
                total[0] = upper ? total[0] : rounded_sum(total[0], read);
                total[1] = upper ? rounded_sum(total[1], read) : total[1];
            }
            if (wants_y) store_step(total, d.factor[row], course.step(chunk) + n);
        }
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) S[i] = own[i];
        barrier_meet<READY, THREADS>(); /* inputs and decays are no longer needed */
    }
    __device__ __forceinline__ void store_step(float (&total)[2], float factor, int64_t step) const
    {
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            total[upper] += __shfl_xor_sync(ALL, total[upper], 1);
            total[upper] += __shfl_xor_sync(ALL, total[upper], 2);
            const int64_t value = first_value + value_row(upper);
            if (pair() == 0 && value < args.values)
                store_number(course.at(args.y, head, step) + value * args.y.lane, total[upper] * factor);
        }
    }

    /* Chunks */

    /* Waits for the inputs and makes the decays; whether products may be used. */
    __device__ __forceinline__ bool is_welcome(int chunk) const
    {
        Decays &d = decays(chunk);
        await(chunk);
        if (thread < STEPS) finish_decays(d, course);
        const bool asks = is_steady(d) && fades(d), moderate = !asks || is_moderate(d, chunk);
        return !barrier_meet_any<READY, THREADS>(!is_steady(d) || !moderate); /* and decays are there */
    }
    __device__ __forceinline__ void run_products(int chunk, bool wants_y)
    {
        const Decays &d = decays(chunk);
        char *const q = stage(chunk), *const k = q + Layout::K, *const v = q + Layout::V;
        float Y[32], U[KEYS / 2], finite;
        uint32_t V[TURNS][4];
        if (PURPOSE == READ_GRADIENTS) cross_states(d, chunk);
        {
            float P[32], M[32];
            Pairs pairs;
            Split<HALF> low, high; /* of the keys */
            multiply_steps(P, q, k);
            if (PURPOSE == READ_GRADIENTS) { /* not beside those of the state: registers would not do */
                await_partner(chunk);
                multiply_pairs(M, v);
                products_wait<0>();
                hold(P);
                hold(M);
                pairs.clear();
                weigh_steps(P, d, M, pairs);
                pairs.sums.store(sums_at(chunk, PAIRS), thread);
            }
            split_state(low, 0);
            if (PURPOSE == READ_STATES) keep_half(low, chunk, 0);
            hold(Y);
            multiply_state(Y, low, q, 0);
            if (PURPOSE != READ_GRADIENTS) {
                products_wait<1>();
                hold(P);
                weigh_steps(P, d, M, pairs);
            }
            shared_publish();
            split_state(high, 1);
            if (PURPOSE == READ_STATES) keep_half(high, chunk, 1);
            multiply_state(Y, high, q, 1);
            load_values(V, v, 0);
            products_wait<0>();
            low.stay();
            high.stay();
            hold(Y);
        }
        decay_state(Y, d);
        if (PURPOSE == READ_STATES) await_partner(chunk);
        if (GATES) sum_with_partner(Y, sums_at(chunk, INNER), d, true);
        barrier_meet<READY, THREADS>(); /* all of P is there */
        forget_places();
        hold(V);
        hold(Y);
        multiply_mix(Y, V);
        {
            Split<TURNS / 2> early, late; /* of the steps */
            weigh_values(early, v, d, 0);
            hold(U);
            multiply_inputs(U, early, k, 0);
            products_wait<1>();
            hold(V);
            hold(Y);
            finite = store(Y, d, chunk, wants_y);
            weigh_values(late, v, d, 1);
            multiply_inputs(U, late, k, 1);
            prepare(chunk + 1);
            products_wait<0>();
            early.stay();
            late.stay();
        }
        hold(U);
        const float carry = (float)(d.carry[0] * d.carry[1]);
        look_at_state(finite, U, carry);
        if (barrier_meet_any<READY, THREADS>(finite != 0)) { /* NaN, too; else inputs are no longer needed */
            mark_head();
            run_steps(chunk, wants_y);
        } else {
            take_state(U, carry);
        }
    }
    __device__ __forceinline__ void run(int chunk, bool wants_y)
    {
        forget_places();
        if (is_welcome(chunk)) {
            run_products(chunk, wants_y);
        } else {
            if (GATES) await_partner(chunk);
            mark_head();
            prepare(chunk + 1);
            run_steps(chunk, wants_y);
        }
        refill(chunk);
    }

    /* The sum alone: what the chunk adds to the state that enters; false where products may not be used. */
    __device__ __forceinline__ bool add(int chunk)
    {
        const Decays &d = decays(chunk);
        char *const k = stage(chunk) + Layout::K, *const v = stage(chunk) + Layout::V;
        float U[KEYS / 2], finite = 0;
        Split<TURNS / 2> early, late;
        forget_places();
        if (!is_welcome(chunk)) return false;
        weigh_values(early, v, d, 0);
        hold(U);
        multiply_inputs(U, early, k, 0);
        weigh_values(late, v, d, 1);
        multiply_inputs(U, late, k, 1);
        prepare(chunk + 1);
        products_wait<0>();
        early.stay();
        late.stay();
        hold(U);
        const float carry = (float)(d.carry[0] * d.carry[1]);
        look_at_state(finite, U, carry);
        if (barrier_meet_any<READY, THREADS>(finite != 0)) return false; /* inputs are no longer needed */
        take_state(U, carry);
        refill(chunk);
        return true;
    }
};

} // namespace attention_chunks

#endif
