/*
 * The other answer of a walk by chunks, which the walk of dk gives as dv.  With K' the partner and M = V K'ᵀ · D w of
 * the mixer,
 *
 *     Z = K' S · b_t + Mᵀ K      [steps, keys]
 *
 * S is in shared memory as bfloat16 numbers, as those that hold it share it, by panels of its keys.  With one such
 * warpgroup it makes Z itself; with more, Z is made by one of its own, which waits for them.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_OTHER_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_OTHER_CUH

#include "linear_attention_chunk_ground.cuh"

namespace attention_chunks
{

/* 64 of its keys. */
template <int KEYS, Purpose PURPOSE> struct Other {
    typedef attention_chunks::Ground<KEYS, PURPOSE> Ground;
    typedef typename Ground::Layout Layout;
    const Ground &ground;
    const int panel;
    float Z[32];

    __device__ Other(const Ground &ground, int panel) : ground(ground), panel(panel)
    {
    }

    __device__ __forceinline__ void multiply_state(int chunk)
    {
        const char *const partner = ground.partner(chunk);
        const char *const state = ground.shared + Layout::STATE + panel * (Layout::GROUPS * TILE);
        hold(Z);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < Layout::GROUPS * TURNS; turn++)
            product_of_tiles<BF16, STEPS, false, true>(Z, keys_at(partner, turn), steps_at(state, turn), turn > 0);
        products_commit();
    }
    __device__ __forceinline__ void decay(const Decays &d)
    {
        hold(Z);
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            const int row = ground.value_row(upper);
            const float decay = d.until[row] * d.before[row / BLOCK];
#pragma unroll
            for (int block = 0; block < BLOCKS; block++) {
                Z[block * 4 + upper * 2] *= decay;
                Z[block * 4 + upper * 2 + 1] *= decay;
            }
        }
    }
    __device__ __forceinline__ void multiply_pairs(int chunk)
    {
        const char *const k = ground.stage(chunk) + Layout::K + panel * TILE, *const pairs = ground.mix(chunk) + TILE;
        hold(Z);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            product_of_tiles<BF16, STEPS, true, true>(Z, steps_at(pairs, turn), steps_at(k, turn), true);
        products_commit();
    }
    /* By way of shared memory; a warp's rows are its own steps. */
    __device__ __forceinline__ void store(const Decays &d, int chunk)
    {
        char *const rows = ground.shared + Layout::ROW;
        const float factors[2] = {d.factor[ground.value_row(0)], d.factor[ground.value_row(1)]};
        hold(Z);
#pragma unroll
        for (int column = 0; column < BLOCKS; column += 2) {
            uint32_t words[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int at = (column + k / 2) * 4 + k % 2 * 2;
                words[k] = pack_bfloats(Z[at] * factors[k % 2], Z[at + 1] * factors[k % 2]);
            }
            matrices_store<4, false>(ground.block_row(rows, column, false), words);
        }
        __syncwarp(); /* the rows are there */
        const int64_t step = ground.course.step(chunk);
        const int piece = ground.thread % 8, key = panel * WIDE + piece * 8, begin = ground.warp() * TURN;
        const rl_attention_view &to = ground.args.other;
#pragma unroll
        for (int row = begin + ground.thread % 32 / 8; row < begin + TURN; row += 4) {
            const int n = ground.course.turned(row);
            if (key < ground.args.keys && ground.course.has(step + n))
                *(uint4 *)((bf16 *)to.data + ground.course.at(to, ground.head, step + n) + key) =
                    *(const uint4 *)piece_of(rows, row, piece);
        }
        __syncwarp(); /* they may be written again */
    }
};

/* Of a warpgroup of its own. */
template <int KEYS, Purpose PURPOSE> struct Second : Ground<KEYS, PURPOSE> {
    typedef attention_chunks::Ground<KEYS, PURPOSE> Ground;
    typedef typename Ground::Layout Layout;
    using Ground::arrive;
    using Ground::decays;
    using Ground::first;
    using Ground::phase;
    using Ground::signals;

    __device__ Second(const rl_chunks_args &args, int sequence, int head, char *shared)
        : Ground(args, sequence, head, Layout::GROUPS, 0, shared)
    {
    }

    __device__ __forceinline__ void run_chunk(int chunk, bool wants)
    {
        this->forget_places();
        const Decays &d = decays(chunk);
        barrier_wait(&signals().ready[this->turn(chunk)], phase(chunk));
        barrier_wait(&signals().shared, (chunk - first) & 1);
        bool fits = wants;
#pragma unroll
        for (int group = 0; group < Layout::GROUPS; group++) fits = fits && signals().fits[group];
        if (__all_sync(ALL, fits)) {
#pragma unroll 1
            for (int panel = 0; panel < Layout::PANELS; panel++) {
                Other<KEYS, PURPOSE> other(*this, panel);
                other.multiply_state(chunk);
                products_wait<0>();
                if (panel == Layout::PANELS - 1) arrive(&signals().taken);
                other.decay(d);
                other.multiply_pairs(chunk);
                products_wait<0>();
                other.store(d, chunk);
            }
        } else {
            arrive(&signals().taken);
        }
        arrive(&signals().used[this->turn(chunk)]);
    }
    __device__ __forceinline__ void run(int from, int begin, int end)
    {
        first = from;
#pragma unroll 1
        for (int chunk = from; chunk < end; chunk++) run_chunk(chunk, chunk >= begin);
    }
};

} // namespace attention_chunks

#endif
