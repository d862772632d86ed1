/*
 * Chunks of bfloat16 data that a state goes through, one after the other (linear_attention_tiles.h).
 *
 *     cluster   = a head, in one direction of time
 *     warpgroup = every so many-th chunk of it: the warpgroups of a block, and then those of the next, take turns
 *
 * The state that enters a chunk comes by a mailbox in shared memory, thread by thread from the warpgroup of the chunk
 * before, and is handed on at once; what the chunk adds is had by then.  All else of a chunk has the time of a whole
 * turn.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_TILES_CHAIN_CUH
#define RL_CUDA_LINEAR_ATTENTION_TILES_CHAIN_CUH

#include <machine/barriers.cuh>
#include <machine/cluster.cuh>

#include "linear_attention_floats_chunk.cuh"
#include "linear_attention_tiles_chunk.cuh"
#include "linear_attention_tiles_link.cuh"

namespace attention_tiles
{

constexpr int GROUPS = RL_TILES_CHAIN_GROUPS;
constexpr int MAIL_BYTES = WIDE * WIDE * (int)sizeof(float) / WARPS; /* of a warp */

/* A block's memory: tiles of all stages of its warpgroups, one after the other, first. */
template <int COUNT, int MOST, typename Products> struct ChainLayout {
    typedef Products Link; /* of gates */
    static constexpr int TILES = COUNT, STAGES = MOST, STAGE = TILES * TILE, MAIL = GROUPS * STAGES * STAGE;
    static constexpr int LINKS = MAIL + WIDE * WIDE * (int)sizeof(float);
    static constexpr int FULL = LINKS + GROUPS * 2 * (int)sizeof(Link), POSTED = FULL + GROUPS * STAGES * 8;
    static constexpr int TOLD = POSTED + GROUPS * WARPS * 8, MARKS = TOLD + 8;
    static constexpr int END = MARKS + RL_TILES_CHAIN_MOST_BLOCKS * (int)sizeof(int);
};

template <typename Layout> struct Chain {
    static constexpr int STAGES = Layout::STAGES;
    const rl_tiles_args &tiles;
    const rl_floats_args &args;
    char *const shared;
    const int rank, blocks, walk;
    const bool back; /* against time */
    const int sequence, head, group;
    const Place own;
    const Span span;
    const int chunks;
    float finite;

    __device__ Chain(const rl_tiles_args &tiles, char *shared, int walk, bool back)
        : tiles(tiles), args(tiles.all), shared(shared), rank(cluster_rank()), blocks(cluster_blocks()), walk(walk),
          back(back), sequence((unsigned)walk / (unsigned)args.in.heads),
          head((unsigned)walk - (unsigned)sequence * (unsigned)args.in.heads),
          group(__shfl_sync(ALL, (int)threadIdx.x / THREADS, 0)), span(args.in, sequence),
          chunks((int)((args.in.length + STEPS - 1) / STEPS)), finite(0)
    {
    }
    /* In the order of the chain. */
    __device__ __forceinline__ int place(int turn) const
    {
        return (turn * blocks + rank) * GROUPS + group;
    }
    __device__ __forceinline__ bool has(int turn) const
    {
        return place(turn) < chunks;
    }
    __device__ __forceinline__ int first(int turn) const
    {
        return (back ? chunks - 1 - place(turn) : place(turn)) * STEPS;
    }
    __device__ __forceinline__ int query_head() const
    {
        return (unsigned)head / (unsigned)args.in.share;
    }

    __device__ __forceinline__ char *stage(int turn) const
    {
        return shared + (group * STAGES + turn % STAGES) * Layout::STAGE;
    }
    __device__ __forceinline__ uint64_t *full(int turn) const
    {
        return (uint64_t *)(shared + Layout::FULL) + group * STAGES + turn % STAGES;
    }
    __device__ __forceinline__ uint64_t *posted(int group) const
    {
        return (uint64_t *)(shared + Layout::POSTED) + group * WARPS + own.warp();
    }
    __device__ __forceinline__ typename Layout::Link &link(int turn) const
    {
        return ((typename Layout::Link *)(shared + Layout::LINKS))[group * 2 + turn % 2];
    }
    __device__ __forceinline__ void meet() const
    {
        barrier_meet_numbered(1 + group, THREADS);
    }
    __device__ __forceinline__ bool brings() const
    {
        return own.thread == 0;
    }
    __device__ __forceinline__ void load(char *to, const CUtensorMap &map, int head, int turn) const
    {
        tile_load(to, map, HeadTileAt{0, first(turn), head, sequence}, full(turn));
    }

    /* By one thread of the block; the cluster meets behind it. */
    __device__ static void make_barriers(char *shared)
    {
        for (int i = 0; i < GROUPS * STAGES; i++) barrier_init((uint64_t *)(shared + Layout::FULL) + i, 1);
        for (int i = 0; i < GROUPS * WARPS; i++) barrier_init((uint64_t *)(shared + Layout::POSTED) + i, 1);
        barrier_init((uint64_t *)(shared + Layout::TOLD), 1);
        barrier_publish();
    }

    /* Gates are made by the threads of the last steps, which mix least. */
    __device__ __forceinline__ bool has_step() const
    {
        return own.thread >= THREADS - STEPS;
    }
    __device__ __forceinline__ int step() const
    {
        return own.thread - (THREADS - STEPS);
    }
    __device__ __forceinline__ void load_gates(int turn, Coming &coming) const
    {
        coming.load(args.in, span, head, has(turn) ? (int64_t)first(turn) + step() : span.count);
    }
    template <bool MIXES> __device__ __forceinline__ void start_gates(int turn, Within *within, Coming coming) const
    {
        const int64_t step = (int64_t)first(turn) + this->step();
        start_link<MIXES>(link(turn), within, args.in, coming, step < span.count, step, this->step());
    }
    __device__ __forceinline__ void finish_gates(int turn) const
    {
        finish_link(link(turn), (float)args.in.scale, step());
    }
    /* Of the first turn, and the next one's on their way. */
    template <bool MIXES> __device__ __forceinline__ void begin_gates(Within *within, Coming &coming) const
    {
        if (has_step()) {
            load_gates(0, coming);
            if (has(0)) start_gates<MIXES>(0, within, coming);
            load_gates(1, coming);
        }
        meet(); /* what the blocks multiply to is there */
        if (has_step() && has(0)) finish_gates(0);
        meet(); /* the gates are there */
    }

    /* States */

    /* Where the thread's first number lies, and whether the i-th one exists. */
    __device__ __forceinline__ int64_t state_at(const rl_attention_state &state) const
    {
        return sequence * state.sequence + head * state.head + own.pair() * 2 * state.key + own.row(0) * state.value;
    }
    __device__ __forceinline__ bool has_number(int i) const
    {
        return i / 4 * 8 + own.pair() * 2 + i % 2 < args.in.keys && own.row(i / 2 % 2) < args.in.values;
    }
    __device__ __forceinline__ void begin_state(float (&S)[32], const rl_attention_state &start) const
    {
        clear(S);
        if (!start.data) return;
        const int64_t base = state_at(start);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            if (!has_number(i)) continue;
            const int64_t at = base + (i / 4 * 8 + i % 2) * start.key + i / 2 % 2 * 8 * start.value;
            S[i] = start.dtype == RILL_F32 ? ((const float *)start.data)[at] : widen(((const bf16 *)start.data)[at]);
        }
    }
    /* Before take_state, some time: a state from another block is announced by the warps that wait for it. */
    __device__ __forceinline__ void expect_state(int turn) const
    {
        if (group == 0 && blocks > 1 && place(turn) > 0 && own.thread % 32 == 0)
            barrier_expect(posted(0), MAIL_BYTES);
    }
    __device__ __forceinline__ void take_state(float (&S)[32], int turn) const
    {
        barrier_wait(posted(group), (turn - (rank == 0 && group == 0)) & 1);
        const float4 *const mail = (const float4 *)(shared + Layout::MAIL) + own.thread;
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            const float4 four = mail[i / 4 * THREADS];
            S[i] = four.x, S[i + 1] = four.y, S[i + 2] = four.z, S[i + 3] = four.w;
        }
    }
    /* T: what the chunk adds. */
    __device__ __forceinline__ void hand_on(const float (&S)[32], const float (&T)[32],
                                            const typename Layout::Link &g) const
    {
        const float first = g.carried[0], second = g.carried[1];
        const int next = group + 1 < GROUPS ? group + 1 : 0, mate = rank + 1 < blocks ? rank + 1 : 0;
        const bool leaves = next == 0 && blocks > 1;
        float4 *const mail = (float4 *)(shared + Layout::MAIL) + own.thread;
        const MateAddress away = mate_address(mail, mate), told = mate_address(posted(0), mate);
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            const float4 four = {attention_floats::passed(first, second, S[i], T[i]),
                                 attention_floats::passed(first, second, S[i + 1], T[i + 1]),
                                 attention_floats::passed(first, second, S[i + 2], T[i + 2]),
                                 attention_floats::passed(first, second, S[i + 3], T[i + 3])};
            if (leaves)
                mate_send(away, i / 4 * THREADS * (int)sizeof(float4), four, told);
            else
                mail[i / 4 * THREADS] = four;
        }
        if (leaves) return;
        __syncwarp(); /* all of the warp's part is there */
        if (own.thread % 32 == 0) barrier_arrive(posted(next));
    }
    __device__ __forceinline__ void end_state(const float (&S)[32], const float (&T)[32],
                                              const typename Layout::Link &g, const rl_attention_state &end)
    {
        if (!end.data) return;
        const int64_t base = state_at(end);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int64_t at = base + (i / 4 * 8 + i % 2) * end.key + i / 2 % 2 * 8 * end.value;
            const float last = attention_floats::passed(g.carried[0], g.carried[1], S[i], T[i]);
            finite = fmaf(last, 0.0f, finite);
            if (!has_number(i)) continue;
            if (end.dtype == RILL_F32)
                ((float *)end.data)[at] = last;
            else
                ((bf16 *)end.data)[at] = narrow<bf16>(last);
        }
    }
    /* From every block to the first one's first thread; 0 elsewhere. */
    __device__ __forceinline__ int gather_marks(int bad) const
    {
        int *const marks = (int *)(shared + Layout::MARKS);
        uint64_t *const told = (uint64_t *)(shared + Layout::TOLD);
        if (rank > 0) {
            mate_send(mate_address(marks + rank, 0), bad, mate_address(told, 0));
            return 0;
        }
        barrier_expect(told, (blocks - 1) * (int)sizeof(int));
        barrier_wait(told, 0);
        for (int i = 1; i < blocks; i++) bad |= marks[i];
        return bad;
    }
};

} // namespace attention_tiles

#endif
