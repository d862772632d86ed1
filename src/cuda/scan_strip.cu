/*
 * The split scan of few channels of float32 that are neighbours in memory.  A block has one tile: 16 channels of
 * 32 sub-chunks.  A warp has a strip of it, four channels; a thread has a sub-chunk of these, which is 16 bytes a
 * step.
 *
 *     the block   asks for all of its tile (several blocks a multiprocessor: others compute meanwhile)
 *     each warp   sums up its strip, and tells: x -> P x + S for the state x that enters it
 *     each warp   waits for the state that enters the tile, walks the strip in the loop's own order
 *     the block   stores the results
 *
 * What a summary may stand for, and what is done where it may not, is as in scan_split.cuh.  The first blocks are no
 * tiles' but carriers: a warp of theirs folds, in order, the joined summaries of GROUP tiles of a strip, and tells
 * the state that enters each group; from that and what the tiles before it in its group have told, a tile finds its
 * own.  So a summary is read a few times, not once by every block, and each state is one value, whoever computes it.
 *
 * Blocks wait for those before them only, which the GPU starts first, and for the carriers, which are few.
 */
constexpr bool BY_ROWS = true;
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "scan_split_chain.cuh"
#include "scan_strip.h"

namespace
{

constexpr int STEPS = RL_STRIP_STEPS, TILE_STEPS = 32 * STEPS, THREADS = 32 * RL_STRIP_WARPS;
constexpr int TILES = RL_STRIP_GROUP, LANES = RL_STRIP_LANES,
              EACH = TILES / 8;                       /* summaries of a group a thread has */
constexpr int ROW = 64, SUB_CHUNK = STEPS * ROW + 16; /* bytes; 16 more, so that threads meet different banks */
constexpr int ROOM = 32 * SUB_CHUNK + ROW;            /* of a tensor's tile, and a row more */
typedef Summary<float> Sum;
typedef Told<double> Word;

__device__ inline float (&parts(float4 &v))[4]
{
    return (float(&)[4])v;
}

/* Where a thread's summaries of a group are: of the tiles EACH part on, and of one of the strip's four channels. */
__device__ inline int part_of(int lane)
{
    return lane / 4 * EACH;
}

/* All channels' sums of the strip up to and with each thread's own. */
__device__ __forceinline__ void sums_in_strip(Sum (&sum)[4], int lane)
{
    bool is_finite = true;
    unsigned resets[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        is_finite &= is_finite_sum(sum[j]);
        resets[j] = __ballot_sync(~0u, has_reset(sum[j])) & (0xffffffffu >> (31 - lane));
    }
    const auto up = [&](const Sum &value, int distance) {
        return Sum{{},
                   __shfl_up_sync(~0u, value.P, (unsigned)distance),
                   __shfl_up_sync(~0u, value.S, (unsigned)distance),
                   __shfl_up_sync(~0u, value.mass, (unsigned)distance)};
    };
    if (__all_sync(~0u, is_finite)) {
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const Sum both = joined_plainly(up(sum[j], distance), sum[j]);
                if (lane >= distance) sum[j] = both;
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++) mark(sum[j], resets[j]);
        return;
    }
#pragma unroll 1
    for (int distance = 1; distance < 32; distance *= 2) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const Sum both = joined(up(sum[j], distance), sum[j]);
            if (lane >= distance) sum[j] = both;
        }
    }
}

/* Of the strip's channel lane % 4, the joined sum of what all threads of that channel have, in the first of them. */
__device__ __forceinline__ Sum sum_of_group(Sum sum, int lane)
{
    const auto down = [&](int distance) {
        return Sum{{},
                   __shfl_down_sync(~0u, sum.P, (unsigned)distance),
                   __shfl_down_sync(~0u, sum.S, (unsigned)distance),
                   __shfl_down_sync(~0u, sum.mass, (unsigned)distance)};
    };
    if (__all_sync(~0u, is_finite_sum(sum))) {
        const unsigned resets = __ballot_sync(~0u, has_reset(sum)) & (0x11111111u << lane % 4);
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2) sum = joined_plainly(sum, down(distance));
        mark(sum, resets);
        return sum;
    }
#pragma unroll 1
    for (int distance = 4; distance < 32; distance *= 2) sum = joined(sum, down(distance));
    return sum;
}

/* A thread's summaries of a group, some of which are missing yet. */
struct Heard {
    unsigned long long P[EACH], S[EACH];

    __device__ __forceinline__ void ask(const Word *from, int count)
    {
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (k < count) load_relaxed((const unsigned long long *)(from + k * LANES), P[k], S[k]);
    }
    __device__ __forceinline__ bool misses(int count) const
    {
        bool is_missing = false;
#pragma unroll
        for (int k = 0; k < EACH; k++) is_missing |= k < count && (P[k] == MISSING || S[k] == MISSING);
        return is_missing;
    }
    __device__ __forceinline__ Sum sum(int count) const
    {
        Sum all = no_steps<float>();
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const Sum one =
                from_told<float>({__longlong_as_double((long long)P[k]), __longlong_as_double((long long)S[k])});
            if (k < count) all = k == 0 ? one : joined(all, one);
        }
        return all;
    }
};

/*
 * The states that enter the groups of some chains' tiles, one after the other.  A warp has a strip of each chain; a
 * thread, of a channel, one of the next few groups' summaries, so that these are on their way before they are needed.
 */
struct Carrier {
    const rl_strip_args &args;
    int lane, window, mine; /* groups at a time, and which of them the thread's is */
    int chain;
    int64_t groups; /* but the last one, which nothing follows */
    bool has_any;
    const Word *joined;        /* of the thread's group */
    const double *end;         /* of the first group's last tile */
    unsigned long long *state; /* that leaves the thread's group */

    __device__ explicit Carrier(const rl_strip_args &args)
        : args(args), lane((int)threadIdx.x % 32), groups((args.tiles + TILES - 1) / TILES - 1)
    {
        const int count = (args.chains - (int)blockIdx.x + args.carriers - 1) / args.carriers;
        for (window = 8; window * count > 8;) window /= 2;
        mine = lane / 4 % window;
        chain = (int)blockIdx.x + lane / 4 / window * args.carriers;
        has_any = chain < args.chains && channel() < args.scan.channels;
        const int64_t own = (int)threadIdx.x / 32 * 4 + lane % 4;
        joined = (const Word *)args.joined + (chain * groups + mine) * LANES + own;
        end = (const double *)args.ends + (chain * args.tiles + TILES - 1) * LANES + own;
        state = (unsigned long long *)args.states + (chain * (groups + 1) + mine + 1) * LANES + own;
    }
    __device__ int each() const
    {
        return args.chains / (int)args.scan.sequences;
    }
    __device__ int channel() const
    {
        return chain % each() * LANES + (int)threadIdx.x / 32 * 4 + lane % 4;
    }
    __device__ bool is_there(int64_t group) const
    {
        return has_any && group + mine < groups;
    }

    __device__ void run()
    {
        double carried = has_any ? load_state<float>(args.scan.enter, chain / each(), channel()) : 0;
        if (has_any && mine == 0) put_word(state - LANES, carried);
        unsigned long long P = 0, S = 0, next_P = 0, next_S = 0;
        if (is_there(0)) load_relaxed((const unsigned long long *)joined, P, S);
        for (int64_t group = 0; group < groups; group += window) {
            const Word *const next = joined + window * LANES;
            if (is_there(group + window)) load_relaxed((const unsigned long long *)next, next_P, next_S);
#pragma unroll 1
            for (int k = 0; k < window && group + k < groups; k++, end += TILES * LANES) {
                for (;;) {
                    const bool misses = is_there(group) && (P == MISSING || S == MISSING);
                    if (!__any_sync(~0u, misses && mine == k)) break;
                    if (misses) load_relaxed((const unsigned long long *)joined, P, S);
                }
                const int from = (lane & ~(4 * window - 1)) + 4 * k + lane % 4;
                const Word told = {__longlong_as_double((long long)__shfl_sync(~0u, P, from)),
                                   __longlong_as_double((long long)__shfl_sync(~0u, S, from))};
                if (has_any && !fold<float>(from_told<float>(told), carried, carried))
                    carried = await_word((const unsigned long long *)end);
                if (has_any && mine == k) put_word(state, carried);
                __syncwarp();
            }
            P = next_P;
            S = next_S;
            joined = next;
            state += window * LANES;
        }
    }
};

struct Strip {
    const rl_strip_args &args;
    const rl_scan_args &scan;
    int64_t chain, tile, sequence, channel; /* the block's first */
    int warp, lane, count;                  /* of the tile's steps that the sequence has */
    bool is_last;

    __device__ explicit Strip(const rl_strip_args &args)
        : args(args), scan(args.scan), warp((int)threadIdx.x / 32), lane((int)threadIdx.x % 32)
    {
        const unsigned place = blockIdx.x - (unsigned)args.carriers, each = (unsigned)(args.chains / scan.sequences);
        tile = place / (unsigned)args.chains;
        chain = place % (unsigned)args.chains;
        sequence = chain / each;
        channel = chain % each * LANES;
        is_last = tile == args.tiles - 1;
        count = is_last ? (int)(scan.length - tile * TILE_STEPS) : TILE_STEPS;
    }
    __device__ float *at(const rl_scan_view &view) const
    {
        return (float *)view.data + Span(scan, sequence).at(view, channel, scan.down) + tile * TILE_STEPS * view.step;
    }
    __device__ bool has_channels() const
    {
        return channel + warp * 4 < scan.channels;
    }
    __device__ int64_t own_channel(int j) const
    {
        return channel + warp * 4 + j;
    }

    /* The block's threads take 16 bytes each, 32 rows at a time. */
    static constexpr int AT_ONCE = THREADS / 4, STRIDE = AT_ONCE / STEPS * SUB_CHUNK;
    __device__ static int place_of(int row)
    {
        return row * ROW + row / STEPS * 16;
    }
    __device__ int copy_row() const
    {
        return (int)threadIdx.x / 4;
    }
    __device__ int copy_lane() const
    {
        return (int)threadIdx.x % 4 * 4;
    }
    __device__ int copy_place() const
    {
        return place_of(copy_row()) + copy_lane() * 4;
    }

    /* Asks for a tile; where the sequence has no steps there is `beyond`. */
    __device__ __forceinline__ void ask(unsigned char *room, const rl_scan_view &view, float beyond) const
    {
        const bool has = view.data && channel + copy_lane() < scan.channels;
        const int left = has ? count - copy_row() : 0;
        const float *from = at(view) + copy_lane() + copy_row() * view.step;
        unsigned char *to = room + copy_place();
#pragma unroll
        for (int k = 0; k < STEPS; k++, from += AT_ONCE * view.step, to += STRIDE) {
            if (k * AT_ONCE < left)
                copy_async_16(to, from, 16);
            else
                *(float4 *)to = make_float4(beyond, beyond, beyond, beyond);
        }
    }
    /* The row after the tile's. */
    __device__ __forceinline__ void ask_row_beyond(unsigned char *room, const rl_scan_view &view) const
    {
        if (is_last || (int)threadIdx.x >= 4 || channel + copy_lane() >= scan.channels) return;
        copy_async_16(room + place_of(TILE_STEPS) + copy_lane() * 4, at(view) + copy_lane() + TILE_STEPS * view.step,
                      16);
    }
    __device__ __forceinline__ void give(const unsigned char *room, const rl_scan_view &view) const
    {
        const int left = channel + copy_lane() < scan.channels ? count - copy_row() : 0;
        float *to = at(view) + copy_lane() + copy_row() * view.step;
        const unsigned char *from = room + copy_place();
#pragma unroll
        for (int k = 0; k < STEPS; k++, to += AT_ONCE * view.step, from += STRIDE)
            if (k * AT_ONCE < left) *(float4 *)to = *(const float4 *)from;
    }
};

/* A sub-chunk's sum of one channel where a decay may be 0: `a` and `input` are its first step's. */
template <bool backward>
__device__ inline Sum sum_with_care(Sum sum, const unsigned char *a, const unsigned char *input)
{
    bool has_zero = false;
#pragma unroll 1
    for (int k = 0; k < STEPS; k++) has_zero |= is_zero(*(const float *)(a + k * ROW));
    if (!has_zero) {
        sum.P = unsigned_zero(sum.P);
        return sum;
    }
    sum.P = -0.0;
    if (size_of(sum.S) <= DBL_MAX) return sum;
    sum.S = 0;
    sum.mass = 0;
#pragma unroll 1
    for (int k = 0; k < STEPS; k++) { /* again, with what a reset drops dropped */
        const float decay = *(const float *)(a + k * ROW), value = *(const float *)(input + k * ROW);
        const bool drops = is_zero(decay);
        const double after = backward ? (sum.S + value) * decay : fma(sum.S, (double)decay, (double)value);
        sum.mass = stepped_mass<backward>(drops ? 0.0f : sum.mass, decay, value);
        sum.S = !drops ? after : backward ? 0.0 : (double)value;
    }
    return sum;
}

template <bool backward> struct Walker : Strip {
    unsigned char *rooms; /* of a, input, and back in time the states before */

    __device__ Walker(const rl_strip_args &args, unsigned char *rooms) : Strip(args), rooms(rooms)
    {
    }
    __device__ float4 &own(int room, int step) const
    {
        return *(float4 *)(rooms + room * ROOM + lane * SUB_CHUNK + step * ROW + step / STEPS * 16 + warp * 16);
    }

    __device__ __forceinline__ void ask_all() const
    {
        ask(rooms, scan.a, 1.0f);
        ask(rooms + ROOM, scan.input, 0.0f);
        if (backward && scan.before.data) {
            ask(rooms + 2 * ROOM, scan.before, 0.0f);
            ask_row_beyond(rooms + 2 * ROOM, scan.before);
        }
        close_copies();
    }

    /* A step that nothing precedes drops what would enter it. */
    __device__ __forceinline__ void trim() const
    {
        if (!has_channels()) return;
        if (!backward && tile == 0 && lane == 0 && !scan.enter.data) own(DECAYS, 0) = make_float4(0, 0, 0, 0);
        const int last = count - 1 - lane * STEPS;
        if (!backward || !is_last || last < 0 || last >= STEPS) return;
        float4 start =
            make_float4(INFINITY, INFINITY, INFINITY, INFINITY); /* beside a decay of 0, for a gradient 0 */
        for (int j = 0; j < 4 && scan.start.data; j++)
            parts(start)[j] = load_state<float>(scan.start, sequence, own_channel(j));
        if (!scan.start.data) own(DECAYS, last) = make_float4(0, 0, 0, 0);
        if (scan.before.data) own(2, last + 1) = start;
    }

    __device__ __forceinline__ void sum_up(Sum (&sum)[4]) const
    {
#pragma unroll
        for (int j = 0; j < 4; j++) sum[j] = no_steps<float>();
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            float4 a = own(DECAYS, k), input = own(INPUTS, k);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const double factor = parts(a)[j], value = parts(input)[j];
                sum[j].P = sum[j].P * factor;
                sum[j].S = backward ? (sum[j].S + value) * factor : fma(sum[j].S, factor, value);
                sum[j].mass = stepped_mass<backward>(sum[j].mass, parts(a)[j], parts(input)[j]);
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (!(fabs(sum[j].P) > 0))
                sum[j] = sum_with_care<backward>(sum[j], (const unsigned char *)&own(DECAYS, 0) + j * 4,
                                                 (const unsigned char *)&own(INPUTS, 0) + j * 4);
    }

    __device__ int64_t slot(int64_t its_tile) const
    {
        return (chain * args.tiles + its_tile) * LANES + warp * 4;
    }
    __device__ __forceinline__ void tell(const Sum (&sum)[4]) const
    {
        if (is_last || lane < 31) return;
#pragma unroll
        for (int j = 0; j < 4; j++) put((Word *)args.told + slot(tile) + j, as_told(sum[j]));
    }

    /* What lane 31 has of channel lane % 4. */
    __device__ __forceinline__ Sum whole_strip(const Sum (&sum)[4]) const
    {
        Sum own = {};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const Sum one = {{},
                             __shfl_sync(~0u, sum[j].P, 31),
                             __shfl_sync(~0u, sum[j].S, 31),
                             __shfl_sync(~0u, sum[j].mass, 31)};
            if (lane % 4 == j) own = one;
        }
        return own;
    }

    /* The state that enters the tile, of channel lane % 4.  A group's last tile tells the joined summary of all. */
    __device__ __forceinline__ double carry(const Sum (&sum)[4]) const
    {
        const int64_t group = tile / TILES, groups = (args.tiles + TILES - 1) / TILES;
        const int earlier = (int)(tile % TILES), count = min(EACH, earlier - part_of(lane));
        Sum before = no_steps<float>();
        if (earlier > 0) {
            const Word *told = (const Word *)args.told + slot(group * TILES + part_of(lane)) + lane % 4;
            Heard heard = {};
            do heard.ask(told, count);
            while (heard.misses(count));
            __syncwarp();
            before = sum_of_group(heard.sum(count), lane);
        }
        if (earlier == TILES - 1 && !is_last) {
            const Sum own = whole_strip(sum);
            if (lane < 4)
                put((Word *)args.joined + (chain * (groups - 1) + group) * LANES + warp * 4 + lane,
                    as_told(joined(before, own)));
        }
        double state = await_word((const unsigned long long *)args.states + (chain * groups + group) * LANES +
                                  warp * 4 + lane % 4);
        if (earlier == 0) return state;
        if (lane < 4 && !fold<float>(before, state, state))
            state = await_word((const unsigned long long *)args.ends + slot(tile - 1) + lane);
        __syncwarp();
        return __shfl_sync(~0u, state, lane % 4);
    }

    /* Those of the four channels that `which` names; results take the places of what they are made from. */
    template <bool all> __device__ __forceinline__ void walk(float (&state)[4], unsigned which) const
    {
        const bool wants_decay = backward && scan.before.data;
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            float4 a = own(DECAYS, k), input = own(INPUTS, k), before = {};
            if (wants_decay) before = own(2, k + 1);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (!all && !(which >> j & 1)) continue;
                const float decay = parts(a)[j];
                if (backward) {
                    const float g = add(parts(input)[j], state[j]);
                    parts(a)[j] = decay_gradient(decay, parts(before)[j], g);
                    parts(input)[j] = g;
                    state[j] = dropped(decay, g);
                } else {
                    parts(input)[j] = state[j] = advance(decay, state[j], parts(input)[j]);
                }
            }
            own(INPUTS, k) = input;
            if (wants_decay) own(DECAYS, k) = a;
        }
    }

    /* Where a fold may not decide, the state that enters a sub-chunk comes from the walk of the one before. */
    __device__ __forceinline__ void walk_in_turn(float (&state)[4], unsigned ready) const
    {
        unsigned done = 0;
        for (;;) {
            const unsigned now = ready & ~done;
            if (now) walk<false>(state, now);
            done |= now;
            if (__all_sync(~0u, done == 15)) return;
            const unsigned there = __shfl_up_sync(~0u, done, 1);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float end = __shfl_up_sync(~0u, state[j], 1);
                if (ready >> j & 1 || !(there >> j & 1)) continue;
                state[j] = end;
                ready |= 1u << j;
            }
        }
    }

    __device__ __forceinline__ void walk_all(const Sum (&before)[4], double carry, float (&state)[4]) const
    {
        unsigned ready = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            double entering = __shfl_sync(~0u, carry, j);
            if (lane == 0 || fold<float>(before[j], entering, entering)) ready |= 1u << j;
            state[j] = (float)entering;
        }
        if (__all_sync(~0u, ready == 15))
            walk<true>(state, 15);
        else
            walk_in_turn(state, ready);
    }

    __device__ __forceinline__ void end(const float (&state)[4]) const
    {
        if (lane < 31) return;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (is_last)
                store_state(scan.leave, sequence, own_channel(j), state[j]);
            else
                put_end((double *)args.ends + slot(tile) + j, (double)state[j]);
        }
    }

    __device__ __forceinline__ void run_strip() const
    {
        Sum sum[4], before[4];
        trim();
        __syncwarp();
        sum_up(sum);
        __syncwarp();
        sums_in_strip(sum, lane);
        tell(sum);
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 4; j++)
            before[j] = {{},
                         __shfl_up_sync(~0u, sum[j].P, 1),
                         __shfl_up_sync(~0u, sum[j].S, 1),
                         __shfl_up_sync(~0u, sum[j].mass, 1)};
        float state[4];
        walk_all(before, carry(sum), state);
        end(state);
    }
};

template <bool backward>
__global__ void __launch_bounds__(THREADS, backward ? 4 : 6) strip_kernel(const __grid_constant__ rl_strip_args args)
{
    if ((int)blockIdx.x < args.carriers) {
        let_later_start();
        await_earlier(); /* the common memory's reset, and all before it */
        Carrier carrier(args);
        carrier.run();
        return;
    }
    const Walker<backward> walker(args, dynamic_shared);
    /* Inputs may be looked at already: the reset, launched as any kernel is, has begun after all that is ahead. */
    walker.ask_all();
    let_later_start();
    wait_copies<0>();
    __syncthreads(); /* the tile has landed */
    await_earlier(); /* the common memory's reset */
    if (walker.has_channels()) walker.run_strip();
    __syncthreads(); /* the results are complete */
    if (args.scan.output.data) walker.give(dynamic_shared + ROOM, args.scan.output);
    if (backward && args.scan.before.data) walker.give(dynamic_shared, args.scan.decay);
}

} // namespace

const void *rl_scan_strip_kernel(bool backward)
{
    return backward ? kernel_address<strip_kernel<true>>() : kernel_address<strip_kernel<false>>();
}

size_t rl_scan_strip_shared(bool backward)
{
    return (size_t)(backward ? 3 : 2) * ROOM;
}
