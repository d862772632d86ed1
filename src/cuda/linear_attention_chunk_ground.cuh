/*
 * What a block of a walk by chunks stands on (linear_attention_chunk_walk.cuh): its shared memory, which numbers are
 * a thread's, the state that it begins and ends with, inputs on their way, and whether products may meet them.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_GROUND_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_GROUND_CUH

#include <machine/arithmetic.cuh>
#include <machine/barriers.cuh>
#include <machine/bulk_heads.cuh>
#include <machine/held.cuh>

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

template <int KEYS, Purpose PURPOSE> struct Ground {
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

    __device__ Ground(const rl_chunks_args &args, int sequence, int head, int slab, char *shared)
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
};

} // namespace attention_chunks

#endif
