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
    using Base::Base;
    using Base::chunks;
    using Base::lane;
    using Base::signals;
    using Base::stage;
    using Base::whole;
    typedef typename Base::Room Room;

    __device__ __forceinline__ bool is_of_keys(int side) const
    {
        return side == RL_HEADS_Q || side == RL_HEADS_K;
    }
    __device__ __forceinline__ void load(char *to, int side, int from, int turn, int head, int row) const
    {
        const int of_keys = head / (int)args.in.share;
        tile_load(to, whole.tiles[side],
                  HeadTileAt{from, (int)this->first(turn), is_of_keys(side) ? of_keys : head, row},
                  &signals().full[turn % Room::TURNS]);
    }
    /* Those against time lie behind all others. */
    __device__ __forceinline__ int64_t record_place(int turn) const
    {
        const int64_t heads = args.in.sequences * args.in.heads;
        return ((int64_t)this->walk + (Base::LATER ? heads : 0)) * chunks + this->chunk(turn);
    }
    __device__ __forceinline__ void fill(int turn, int head, int row) const
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
        barrier_expect(&signals().full[turn % Room::TURNS], Room::RECORD + (uint32_t)sizeof(Record));
        load(to, A, 0, turn, head, row);
        load(to + PANEL, A, LANES, turn, head, row);
        load(to + Room::B, B, 0, turn, head, row);
        load(to + Room::B + PANEL, B, LANES, turn, head, row);
        load(to + Room::C, C, lane, turn, head, row);
        if (Room::PAIRS) load(to + Room::E, E, lane, turn, head, row);
        bytes_load(to + Room::RECORD, (const char *)args.records + this->record_place(turn) * RECORD_BYTES,
                   (uint32_t)sizeof(Record), &signals().full[turn % Room::TURNS]);
    }
    __device__ __forceinline__ void run() const
    {
        const int head = this->head(), row = (int)((unsigned)this->walk / (unsigned)args.in.heads);
#pragma unroll 1
        for (int turn = 0; turn < chunks; turn++) {
            if (turn >= Room::TURNS)
                barrier_wait(&signals().empty[turn % Room::TURNS], (uint32_t)(turn / Room::TURNS - 1) & 1);
            fill(turn, head, row);
        }
    }
};

/* The second part of COUNT threads' tile as it lies; what is not finite becomes 0, and then the answer is true. */
template <int BYTES, int COUNT> __device__ __forceinline__ bool split(char *tile, char *second, int thread)
{
    char *const from = tile + thread * 16, *const to = second + thread * 16;
    float finite[4] = {0, 0, 0, 0};
#pragma unroll 4
    for (int at = 0; at < BYTES; at += COUNT * 16) {
        const float4 own = *(const float4 *)(from + at);
        const float4 small = {small_part(own.x), small_part(own.y), small_part(own.z), small_part(own.w)};
        *(float4 *)(to + at) = small;
        finite[0] = fmaf(small.x, 0.0f, finite[0]), finite[1] = fmaf(small.y, 0.0f, finite[1]);
        finite[2] = fmaf(small.z, 0.0f, finite[2]), finite[3] = fmaf(small.w, 0.0f, finite[3]);
    }
    if (finite[0] + finite[1] + finite[2] + finite[3] == 0) return false;
#pragma unroll 1
    for (int at = 0; at < BYTES; at += COUNT * 16)
#pragma unroll 1
        for (int e = at; e < at + 16; e += 4) {
            clean(*(float *)(from + e));
            *(float *)(to + e) = small_part(*(float *)(from + e));
        }
    return true;
}

/* Two warps that make second parts of tiles as they lie. */
template <int WHAT> struct Splitters : Head<WHAT> {
    typedef Head<WHAT> Base;
    using Base::args;
    using Base::Base;
    using Base::chunks;
    using Base::shared;
    using Base::signals;
    using Base::stage;
    using Base::thread;
    typedef typename Base::Room Room;

    /* Whether a number was not finite. */
    __device__ __forceinline__ bool run() const
    {
        bool special = false;
#pragma unroll 1
        for (int turn = 0; turn < chunks; turn++) {
            this->await_stage(turn);
            this->await_second(signals().asked, turn - 2);
            this->await_second(signals().turned, turn - 2); /* the keepers know of the split before */
            special = split<2 * PANEL, HALF>(stage(turn) + Room::B, this->second_of_b(turn), thread) || special;
            shared_publish();
            this->arrive(signals().split[turn % 2]);
            if (WHAT != RL_HEADS_DK) continue;
            if (turn > 0) barrier_wait(&signals().answered, (uint32_t)(turn - 1) & 1);
            if (this->wants_gates())
                special = split<PANEL, HALF>(stage(turn) + Room::C, shared + Room::C_PLAIN, thread) || special;
            shared_publish();
            this->arrive(signals().turned[turn % 2]);
        }
        return special;
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
            barrier_wait(&signals().summed, (uint32_t)turn & 1);
            finish(turn);
            this->arrive(signals().taken[turn % 2]);
        }
    }
};

} // namespace attention_heads

#endif
