/* What goes beside the warpgroups of a head's block: tiles to come, and sums to go. */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_MOVERS_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_MOVERS_CUH

#include <machine/bulk_heads.cuh>

#include "linear_attention_floats_heads.cuh"

namespace attention_heads
{

/* A thread that has tiles brought. */
template <int WHAT> struct Loader : Head<WHAT> {
    typedef Head<WHAT> Base;
    using Base::args;
    using Base::chunks;
    using Base::lane;
    using Base::signals;
    using Base::stage;
    using Base::whole;
    typedef typename Base::Room Room;
    const int own, of_keys, row; /* the head, and that of queries and keys; the sequence */
    const char *const records;   /* those against time lie behind all others */

    __device__ Loader(const rl_heads_args &whole, char *shared, int walk, int lane)
        : Base(whole, shared, walk, lane, 0), own(Base::head()), of_keys(own / (int)args.in.share),
          row((int)((unsigned)walk / (unsigned)args.in.heads)),
          records((const char *)args.records +
                  (walk + (Base::LATER ? args.in.sequences * args.in.heads : 0)) * chunks * RECORD_BYTES)
    {
    }
    __device__ __forceinline__ bool is_of_keys(int side) const
    {
        return side == RL_HEADS_Q || side == RL_HEADS_K;
    }
    __device__ __forceinline__ void load(char *to, int side, int from, int turn, HeadTileAt at) const
    {
        at.lane = from;
        if (is_of_keys(side)) at.head = of_keys;
        tile_load(to, whole.tiles[side], at, &signals().full[turn % STAGES]);
    }
    __device__ __forceinline__ void fill(int turn) const
    {
        constexpr int A = WHAT == RL_HEADS_Y    ? RL_HEADS_Q
                          : WHAT == RL_HEADS_DQ ? RL_HEADS_TO_Y
                          : WHAT == RL_HEADS_DV ? RL_HEADS_K
                                                : RL_HEADS_V;
        constexpr int B = WHAT == RL_HEADS_Y    ? RL_HEADS_K
                          : WHAT == RL_HEADS_DQ ? RL_HEADS_V
                          : WHAT == RL_HEADS_DV ? RL_HEADS_Q
                                                : RL_HEADS_TO_Y;
        constexpr int C = WHAT == RL_HEADS_Y    ? RL_HEADS_V
                          : WHAT == RL_HEADS_DQ ? RL_HEADS_K
                          : WHAT == RL_HEADS_DV ? RL_HEADS_TO_Y
                                                : RL_HEADS_Q;
        constexpr int E = WHAT == RL_HEADS_DQ ? RL_HEADS_Q : RL_HEADS_K;
        char *const to = stage(turn);
        barrier_expect(&signals().full[turn % STAGES], Room::STAGE + (uint32_t)sizeof(Record));
        const HeadTileAt at = {0, (int)this->first(turn), own, row};
        load(to + Room::B, B, 0, turn, at);
        load(to + Room::B + PANEL, B, LANES, turn, at);
        load(to + Room::C, C, lane, turn, at);
        load(to, A, 0, turn, at);
        load(to + PANEL, A, LANES, turn, at);
        if (Room::PAIRS) load(to + Room::E, E, lane, turn, at);
        bytes_load((void *)&this->record(turn), records + (int64_t)this->chunk(turn) * RECORD_BYTES,
                   (uint32_t)sizeof(Record), &signals().full[turn % STAGES]);
    }
    __device__ __forceinline__ void run() const
    {
#pragma unroll 1
        for (int turn = 0; turn < chunks; turn++) {
            this->await(signals().empty, turn - STAGES);
            fill(turn);
        }
    }
};

/* The warpgroup that makes parts of b and c: a thread has half a step of each. */
template <int WHAT> struct Splitters : Head<WHAT> {
    typedef Head<WHAT> Base;
    using Base::args;
    using Base::chunks;
    using Base::signals;
    using Base::stage;
    using Base::thread;
    typedef typename Base::Room Room;
    const int row, half;
    bool special, all;

    __device__ Splitters(const rl_heads_args &whole, char *shared, int walk, int lane, int thread)
        : Base(whole, shared, walk, lane, thread), row(thread % STEPS), half(thread / STEPS), special(false),
          all(false)
    {
    }
    /* Eight neighbours of b, in their order, or of c; what is added is 0 if they are finite. */
    template <bool ORDERED>
    static __device__ __forceinline__ float split(const float4 &a, const float4 &b, char *to, int part, float finite)
    {
        const float even[4] = {a.x, ORDERED ? a.z : a.y, ORDERED ? b.x : a.z, ORDERED ? b.z : a.w};
        const float odd[4] = {ORDERED ? a.y : b.x, ORDERED ? a.w : b.y, ORDERED ? b.y : b.z, b.w};
        uint32_t word[PARTS][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float rests[2] = {rest(even[i]), rest(odd[i])};
            word[0][i] = cut(even[i], odd[i]);
            word[1][i] = cut(rests[0], rests[1]);
            word[2][i] = cut(rest(rests[0]), rest(rests[1]));
            finite = fmaf(rests[0], 0.0f, finite);
            finite = fmaf(rests[1], 0.0f, finite);
        }
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            *(uint4 *)(to + i * part) = uint4{word[i][0], word[i][1], word[i][2], word[i][3]};
        return finite;
    }
    __device__ __forceinline__ float split_b(int turn) const
    {
        char *const from = stage(turn) + Room::B + half * PANEL, *const to = this->parts_of_b(turn);
        float finite = 0;
#pragma unroll 1
        for (int unit = 0; unit < 4; unit++)
            finite = split<false>(*(const float4 *)piece_at(from, row, 2 * unit),
                                  *(const float4 *)piece_at(from, row, 2 * unit + 1),
                                  piece_at(to, row, half * 4 + unit), PART, finite);
        return finite;
    }
    __device__ __forceinline__ float split_c(int turn) const
    {
        const float w = this->record(turn).weight[row];
        const bool mild = this->record(turn).mild;
        char *const from = stage(turn) + Room::C;
        float finite = 0;
#pragma unroll 1
        for (int i = 0; i < 4; i += 2) {
            const float4 a = *(const float4 *)piece_at(from, row, half * 4 + i),
                         b = *(const float4 *)piece_at(from, row, half * 4 + i + 1);
            const float4 x = {a.x * w, a.y * w, a.z * w, a.w * w}, y = {b.x * w, b.y * w, b.z * w, b.w * w};
            char *const to = short_piece_at(this->parts_of_c(turn), row, half * 2 + i / 2);
            if (mild) {
                finite = split<true>(x, y, to, SHORT_PART, finite);
            } else {
                finite = split<true>(a, b, to, SHORT_PART, finite);
                split<true>(x, y, to + (Room::WEIGHED - Room::C_PARTS), SHORT_PART, 0);
            }
        }
        return finite;
    }
    /* What is not finite becomes 0 among the thread's numbers. */
    template <int COUNT> __device__ __forceinline__ void clean_own(char *tile, int first) const
    {
#pragma unroll 1
        for (int i = 0; i < COUNT; i++) clean(((float *)piece_at(tile, row, first + i / 4))[i % 4]);
    }
    __device__ __forceinline__ bool has_large(int turn) const
    {
        bool large = false;
#pragma unroll 1
        for (int i = thread; i < 3 * PANEL / 4; i += GROUP)
            large = large || is_large(((const float *)(stage(turn) + Room::B))[i], MODERATE_INPUT);
        return large;
    }
    __device__ __forceinline__ void make_b(int turn)
    {
        this->await(signals().full, turn);
        this->await(signals().used_b, turn - 2);
        if (split_b(turn) != 0) {
            special = true;
            clean_own<WIDE / 2>(stage(turn) + Room::B + half * PANEL, 0);
            split_b(turn);
        }
        shared_publish();
        this->arrive(signals().split_b[turn % 2]);
    }
    __device__ __forceinline__ void make_c(int turn)
    {
        this->await(signals().used_c, turn - 2);
        if (split_c(turn) != 0) {
            special = true; /* or a product became infinite, which shows where it goes */
            clean_own<LANES / 2>(stage(turn) + Room::C, half * 4);
            split_c(turn);
        }
        shared_publish();
        this->arrive(signals().split_c[turn % 2]);
    }
    /* Parts of b are wanted, and those before them free, sooner than those of c. */
    __device__ __forceinline__ void run()
    {
        make_b(0);
#pragma unroll 1
        for (int turn = 0; turn < chunks; turn++) {
            make_c(turn);
            if (this->record(turn).fades) all = all || has_large(turn);
            this->arrive(signals().empty[turn % STAGES]);
            if (turn + 1 < chunks) make_b(turn + 1);
        }
    }
};

/* A warp that adds up what the gates' gradients are made of. */
template <int WHAT> struct Finisher : Head<WHAT> {
    typedef Head<WHAT> Base;
    using Base::args;
    using Base::Base;
    using Base::chunks;
    using Base::signals;
    using Base::thread;

    /*
     * A warp, with two steps a lane: to a step go the sums over N of steps before it with it and those behind it, of
     * u from it on, of w before it, and what both states have.
     */
    __device__ __forceinline__ void finish(int turn) const
    {
        const Sums &sums = this->sums(turn);
        const int block = thread / 4;
        const float2 read = ((const float2 *)(args.read + this->place(turn) * STEPS))[thread];
        const float2 given = ((const float2 *)sums.given)[thread], own = ((const float2 *)sums.own)[thread];
        const float2 row = ((const float2 *)sums.rows)[thread];
        float2 column = {0, 0};
        for (int warp = 0; warp < 4; warp++) {
            const float2 more = ((const float2 *)sums.columns[warp])[thread];
            column.x += more.x, column.y += more.y;
        }
        float around = 0;
        for (int before = 0; before < block; before++)
            for (int behind = block + 1; behind < BLOCKS; behind++) around += sums.blocks[before][behind];
        float since = column.x + column.y, until = row.x + row.y; /* within the block */
#pragma unroll
        for (int away = 1; away < 4; away *= 2) {
            const float later = __shfl_down_sync(ALL, since, away, 4), earlier = __shfl_up_sync(ALL, until, away, 4);
            if (thread % 4 + away < 4) since += later;
            if (thread % 4 >= away) until += earlier;
        }
        const float later_columns = __shfl_down_sync(ALL, since, 1, 4),
                    earlier_rows = __shfl_up_sync(ALL, until, 1, 4);
        const float behind = thread % 4 < 3 ? later_columns : 0, before = thread % 4 > 0 ? earlier_rows : 0;
        const auto [earlier, later] = attention::sums_around(given.x + given.y, read.x + read.y, thread);
        const float cross = sums.carry * ((sums.cross[0] + sums.cross[1]) + (sums.cross[2] + sums.cross[3]));
        const float both = around + cross;
        ((float2 *)(args.flow + this->place(turn) * STEPS))[thread] =
            float2{own.x + (column.x + (column.y + behind)) + before + (read.x + (read.y + later)) + earlier + both,
                   own.y + (column.y + behind) + (before + row.x) + (read.y + later) + (earlier + given.x) + both};
    }
    __device__ __forceinline__ void run() const
    {
#pragma unroll 1
        for (int turn = 0; turn < chunks; turn++) {
            this->await(signals().summed, turn);
            finish(turn);
            this->arrive(signals().taken[turn % 2]);
        }
    }
};

} // namespace attention_heads

#endif
