/* A chunk of a block that makes gradients: its memory, and the states that enter it from both ends. */
#ifndef RL_CUDA_LINEAR_ATTENTION_TILES_BACK_CHUNK_CUH
#define RL_CUDA_LINEAR_ATTENTION_TILES_BACK_CHUNK_CUH

#include <machine/barriers.cuh>

#include "linear_attention_chunk_gates.cuh"
#include "linear_attention_tiles_chunk.cuh"

namespace attention_tiles
{

/* What a chunk keeps besides its tiles. */
struct Notes {
    Gates gates;
    float read[STEPS], given[STEPS]; /* u, w */
    float cross[WARPS];              /* <G, S> */
    float within[STEPS * BLOCK];     /* from a step to those of its block, until the sums over N take its place */

    /* Sums over N, in place of what the warp alone reads. */
    __device__ __forceinline__ float *pairs(int warp)
    {
        return within + warp * (STEPS / WARPS * BLOCK);
    }
};

struct BackLayout {
    static constexpr int Q = 0, K = TILE, V = 2 * TILE, DY = 3 * TILE, S = 4 * TILE, G = 5 * TILE, CHUNK = 6 * TILE;
    static constexpr int NOTES = CHUNKS * CHUNK, FULL = NOTES + CHUNKS * (int)sizeof(Notes),
                         BYTES = FULL + CHUNKS * 8;
};

struct BackChunk {
    const Task &task;
    const rl_floats_args &args;
    char *const shared;
    const int chunk;
    const Place own;

    __device__ BackChunk(const Task &task, char *shared, int chunk)
        : task(task), args(task.args), shared(shared), chunk(chunk)
    {
    }
    __device__ __forceinline__ char *tile(int which, int of) const
    {
        return shared + of * BackLayout::CHUNK + which;
    }
    __device__ __forceinline__ char *tile(int which) const
    {
        return tile(which, chunk);
    }
    __device__ __forceinline__ Notes &notes(int of) const
    {
        return ((Notes *)(shared + BackLayout::NOTES))[of];
    }
    __device__ __forceinline__ Notes &notes() const
    {
        return notes(chunk);
    }
    /* From a step to two neighbours of its block. */
    __device__ __forceinline__ float2 within(int early, int late) const
    {
        return notes().gates.within(early / BLOCK, early % BLOCK, late);
    }
    /* The chunk's threads meet. */
    __device__ __forceinline__ void meet() const
    {
        barrier_meet_numbered(1 + chunk, THREADS);
    }

    __device__ __forceinline__ uint64_t *full(int of) const
    {
        return (uint64_t *)(shared + BackLayout::FULL) + of;
    }
    /* By one thread. */
    __device__ __forceinline__ void load() const
    {
        barrier_init(full(chunk), 1);
        barrier_publish();
        barrier_expect(full(chunk), 4 * TILE + sizeof(Gates));
        bytes_load(&notes().gates, task.gates(chunk), sizeof(Gates), full(chunk));
        task.load(tile(BackLayout::Q), task.tiles.q, task.query_head(), chunk, full(chunk));
        task.load(tile(BackLayout::K), task.tiles.k, task.query_head(), chunk, full(chunk));
        task.load(tile(BackLayout::V), task.tiles.v, task.head, chunk, full(chunk));
        task.load(tile(BackLayout::DY), task.tiles.dy, task.head, chunk, full(chunk));
    }

    /* States */

    /* The state, or gradient, passes another chunk of the block. */
    __device__ __forceinline__ void pass(float (&state)[32], int over, int left, int right,
                                         const float *weights) const
    {
        Addition<false> addition;
        barrier_wait(full(over), 0);
        addition.prepare(tile(left, over), weights, own);
        scale_all(state, notes(over).gates.carried[0]);
        addition.start(state, tile(right, over));
        products_wait<0>();
        addition.stay();
        hold(state);
    }
    __device__ __forceinline__ void keep(uint32_t (&words)[BLOCKS / 2][4], const float (&state)[32], int which) const
    {
#pragma unroll
        for (int block = 0; block < BLOCKS; block += 2) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int at = (block + k / 2) * 4 + k % 2 * 2;
                words[block / 2][k] = pack_bfloats(state[at], state[at + 1]);
            }
            matrices_store<4, false>(blocks_at(tile(which), own, block, false), words[block / 2]);
        }
    }
    /* <G, S> of a warp's share. */
    __device__ __forceinline__ void cross(const float (&G)[32], const uint32_t (&S)[BLOCKS / 2][4]) const
    {
        float total = 0;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int at = (i / 4 * 2 + i % 4 / 2) * 4 + i % 2 * 2;
            total = fmaf(low_of(S[i / 4][i % 4]), G[at], total);
            total = fmaf(high_of(S[i / 4][i % 4]), G[at + 1], total);
        }
#pragma unroll
        for (int away = 16; away > 0; away /= 2) total += __shfl_xor_sync(ALL, total, away);
        if (own.thread % 32 == 0) notes().cross[own.warp()] = total;
    }
    /* Both to the chunk's tiles; whether numbers forbid products beside gates that fade. */
    __device__ __forceinline__ bool make_states(int chunks) const
    {
        const int64_t place = (int64_t)blockIdx.x * (WIDE * WIDE);
        uint32_t S_words[BLOCKS / 2][4], G_words[BLOCKS / 2][4];
        bool large = false;
        {
            float S[32];
            load_state(S, args.S + place, own);
#pragma unroll 1
            for (int n = 0; n < chunk; n++) pass(S, n, BackLayout::V, BackLayout::K, notes(n).gates.sum_weight);
            barrier_wait(full(chunk), 0);
            if (notes().gates.fades) large = exceeds(S);
            keep(S_words, S, BackLayout::S);
        }
        float G[32];
        load_state(G, args.G + place, own);
#pragma unroll 1
        for (int n = chunks - 1; n > chunk; n--)
            pass(G, n, BackLayout::DY, BackLayout::Q, notes(n).gates.back_weight);
        if (notes().gates.fades) large = large || exceeds(G);
        keep(G_words, G, BackLayout::G);
        if (args.dgate.data) cross(G, S_words);
        return large;
    }
    __device__ __forceinline__ bool is_unwelcome(bool large) const
    {
        const Gates &g = notes().gates;
        if (!g.steady) return true;
        if (!g.fades) return false;
        return large || g.heavy || exceeds(tile(BackLayout::Q)) || exceeds(tile(BackLayout::K)) ||
               exceeds(tile(BackLayout::V)) || exceeds(tile(BackLayout::DY));
    }
};

/* A chunk that a block has alone, with its states brought as tiles. */
struct LoneLayout {
    static constexpr int NOTES = BackLayout::CHUNK;
    static constexpr int FULL = NOTES + (int)sizeof(Notes), BYTES = FULL + 8;
};

struct LoneChunk {
    const Task &task;
    const rl_floats_args &args;
    char *const shared;
    const int chunk; /* of its segment */
    const Place own;

    __device__ LoneChunk(const Task &task, char *shared, int chunk)
        : task(task), args(task.args), shared(shared), chunk(chunk)
    {
    }
    __device__ __forceinline__ char *tile(int which) const
    {
        return shared + which;
    }
    __device__ __forceinline__ Notes &notes() const
    {
        return *(Notes *)(shared + LoneLayout::NOTES);
    }
    __device__ __forceinline__ void meet() const
    {
        __syncthreads();
    }
    __device__ __forceinline__ uint64_t *full() const
    {
        return (uint64_t *)(shared + LoneLayout::FULL);
    }
    /* By one thread. */
    __device__ __forceinline__ void load() const
    {
        const int64_t place = (task.walk * args.chunks + task.segment * CHUNKS + chunk) * TILE;
        barrier_expect(full(), 6 * TILE + sizeof(Gates));
        bytes_load(&notes().gates, (const char *)task.tiles.gates + place / TILE * (int)sizeof(Gates), sizeof(Gates),
                   full());
        task.load(tile(BackLayout::K), task.tiles.k, task.query_head(), chunk, full());
        task.load(tile(BackLayout::Q), task.tiles.q, task.query_head(), chunk, full());
        task.load(tile(BackLayout::V), task.tiles.v, task.head, chunk, full());
        task.load(tile(BackLayout::DY), task.tiles.dy, task.head, chunk, full());
        bytes_load(tile(BackLayout::G), (const char *)args.G + place, TILE, full());
        bytes_load(tile(BackLayout::S), (const char *)args.S + place, TILE, full());
    }
    __device__ __forceinline__ float2 within(int early, int late) const
    {
        return *(const float2 *)(notes().within + early * BLOCK + late);
    }
    /* From a step to those of its block: each warp makes what it reads. */
    __device__ __forceinline__ void fill_table() const
    {
        const int lane = own.thread % 32, step = own.warp() * (STEPS / WARPS) + lane;
        if (lane < STEPS / WARPS) {
            float run = 1;
#pragma unroll
            for (int late = 0; late < BLOCK; late++) {
                if (late > step % BLOCK) run *= notes().gates.gate[step / BLOCK * BLOCK + late];
                notes().within[step * BLOCK + late] = late < step % BLOCK ? 0 : run;
            }
        }
        __syncwarp(); /* the table is there */
    }
    /* <G, S> of a warp's share. */
    __device__ __forceinline__ void cross() const
    {
        float total = 0;
#pragma unroll
        for (int i = 0; i < TILE / (THREADS * 16); i++) {
            const uint4 S = ((const uint4 *)tile(BackLayout::S))[own.thread + i * THREADS];
            const uint4 G = ((const uint4 *)tile(BackLayout::G))[own.thread + i * THREADS];
            const uint32_t s[4] = {S.x, S.y, S.z, S.w}, g[4] = {G.x, G.y, G.z, G.w};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                total = fmaf(low_of(s[k]), low_of(g[k]), total);
                total = fmaf(high_of(s[k]), high_of(g[k]), total);
            }
        }
#pragma unroll
        for (int away = 16; away > 0; away /= 2) total += __shfl_xor_sync(ALL, total, away);
        if (own.thread % 32 == 0) notes().cross[own.warp()] = total;
    }
    __device__ __forceinline__ bool is_unwelcome() const
    {
        const Gates &g = notes().gates;
        if (!g.steady) return true;
        if (!g.fades) return false;
        return g.heavy || exceeds(tile(BackLayout::Q)) || exceeds(tile(BackLayout::K)) ||
               exceeds(tile(BackLayout::V)) || exceeds(tile(BackLayout::DY)) ||
               exceeds(tile(BackLayout::S), attention_floats::MODERATE_STATE) ||
               exceeds(tile(BackLayout::G), attention_floats::MODERATE_STATE);
    }
};

} // namespace attention_tiles

#endif
