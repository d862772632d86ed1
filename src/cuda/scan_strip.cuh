/*
 * The split scan of few channels of float32.  A tile is 32 sub-chunks of 16 channels; a warp has a strip of it, four
 * channels, and a thread a sub-chunk of these, which is 16 bytes a step (scan_strip_rows.cuh).
 *
 *     each block  asks for its tile (of several blocks a multiprocessor others compute meanwhile)
 *     each warp   sums up its strip, and tells: x -> P x + S for the state x that enters it
 *     each warp   waits for the state that enters the tile, walks the strip in the loop's own order
 *     each block  stores the results
 *
 * What a summary may stand for, and what is done where it may not, is as in scan_split.cuh.  The first blocks have no
 * tiles but are carriers: a warp of theirs joins and folds the summaries of groups of tiles in their order, and tells
 * the state that enters each group.  Every tile finds its own state from its group's and the summaries of the tiles
 * before it there.  So each is read a few times, not by every block, and each state is one value, whoever computes
 * it.
 *
 * Blocks wait for those before them only, which the GPU starts first; the carriers, which are few, wait for all.
 */
#ifndef RL_CUDA_SCAN_STRIP_CUH
#define RL_CUDA_SCAN_STRIP_CUH

#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "scan_strip_carrier.cuh"
#include "scan_strip_place.cuh"

namespace
{

/* x 2^-896 of a finite x, whose bits stand in a double's as they are: conversions are what summing up waits for. */
__device__ __forceinline__ double scaled(float x)
{
    const int bits = __float_as_int(x);
    return __hiloint2double((bits >> 3) & (int)0x8fffffff, (int)((unsigned)bits << 29));
}
constexpr double SCALE = 0x1p896;

/* A sub-chunk's S and mass of one channel, where a number may not be finite: what a reset drops is dropped. */
template <bool backward, typename L> __device__ inline void sum_with_care(const L &strip, Sum &sum, int j)
{
    sum.S = 0;
    sum.mass = 0;
#pragma unroll 1
    for (int k = 0; k < L::STEPS; k++) {
        const float decay = strip.element(DECAYS, k, j), value = strip.element(INPUTS, k, j);
        const bool drops = is_zero(decay);
        const double after = backward ? (sum.S + value) * decay : fma(sum.S, (double)decay, (double)value);
        sum.mass = stepped_mass<backward>(drops ? 0.0f : sum.mass, decay, value);
        sum.S = !drops ? after : backward ? 0.0 : (double)value;
    }
}

template <typename L, bool backward> struct Walker : L {
    static constexpr int CHANNELS = L::CHANNELS;
    static constexpr unsigned ALL = (1u << CHANNELS) - 1;
    typedef Group<CHANNELS, RL_STRIP_TILES> Tiles;
    using L::args;
    using L::lane;
    using L::scan;
    using L::tile;

    using L::L;

    /* A step that nothing precedes drops what would enter it. */
    __device__ __forceinline__ void trim()
    {
        if constexpr (backward) {
            const int last = this->last_step();
            if (last < 0 || last >= L::STEPS) return;
            float start[CHANNELS];
#pragma unroll
            for (int j = 0; j < CHANNELS; j++) /* infinity stands beside a decay of 0, and makes its gradient 0 */
                start[j] = scan.start.data ? load_state<float>(scan.start, this->sequence, own_channel(j)) : INFINITY;
            if (!scan.start.data) this->drop_at(last);
            if (scan.before.data) this->set_before(last, start);
        } else {
            if (!scan.enter.data && tile == 0 && lane == 0) this->drop_at(0);
        }
    }
    __device__ int64_t own_channel(int j) const
    {
        return this->channel + this->own_lane + j;
    }

    /*
     * S is kept times 1 / SCALE on the way, which takes bits below 2^-178 alone, and is left to sum_with_care where a
     * number is not finite: the mass knows.
     */
    __device__ __forceinline__ void sum_up(Sum (&sum)[CHANNELS]) const
    {
#pragma unroll
        for (int j = 0; j < CHANNELS; j++) sum[j] = no_steps<float>();
#pragma unroll
        for (int k = 0; k < L::STEPS; k += 4) {
            float4 a[4], input[4];
            this->get_four(DECAYS, k, a);
            this->get_four(INPUTS, k, input);
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < CHANNELS; j++) {
                    Sum &own = sum[j];
                    const float decay = L::part(a, i, j), its_input = L::part(input, i, j);
                    const double factor = decay, value = scaled(its_input);
                    own.P = own.P * factor;
                    own.S = backward ? (own.S + value) * factor : fma(own.S, factor, value);
                    own.mass = stepped_mass<backward>(own.mass, decay, its_input);
                }
            }
        }
        bool is_plain = true;
#pragma unroll
        for (int j = 0; j < CHANNELS; j++) {
            sum[j].S *= SCALE;
            is_plain &= (fabs(sum[j].P) > 0) & (sum[j].mass <= FLT_MAX);
        }
        if (!is_plain) look_again(sum);
    }

    /* Some decays may be 0, some numbers not finite. */
    __device__ __forceinline__ void look_again(Sum (&sum)[CHANNELS]) const
    {
        unsigned zeros = 0;
#pragma unroll
        for (int k = 0; k < L::STEPS; k += 4) {
            float4 a[4];
            this->get_four(DECAYS, k, a);
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < CHANNELS; j++) zeros |= is_zero(L::part(a, i, j)) ? 1u << j : 0;
            }
        }
#pragma unroll
        for (int j = 0; j < CHANNELS; j++) {
            sum[j].P = zeros >> j & 1 ? -0.0 : unsigned_zero(sum[j].P);
            if (!(sum[j].mass <= FLT_MAX) || !(size_of(sum[j].S) <= DBL_MAX))
                sum_with_care<backward, L>(*this, sum[j], j);
        }
    }

    __device__ int64_t slot(int64_t its_tile) const
    {
        return (this->chain * args.tiles + its_tile) * LANES + this->own_lane;
    }
    __device__ __forceinline__ void tell(const Sum &own) const /* of channel lane % CHANNELS */
    {
        if (!this->is_last && lane < CHANNELS) put((Word *)args.told + slot(tile) + lane, as_told(own));
    }

    /* The state that enters the tile, of channel lane % CHANNELS. */
    __device__ __forceinline__ double carry() const
    {
        const int64_t group = tile / RL_STRIP_TILES;
        const int earlier = (int)(tile % RL_STRIP_TILES), share = lane % CHANNELS, first = Tiles::first_tile(lane);
        Sum before = no_steps<float>();
        if (earlier > 0) {
            const Word *from = (const Word *)args.told + slot(group * RL_STRIP_TILES + first) + share;
            before = Tiles::heard(from, min(Tiles::EACH, earlier - first));
            __syncwarp();
            before = Tiles::whole(before, lane);
        }
        double state = await_word((const unsigned long long *)args.states +
                                  (this->chain * args.groups + group) * LANES + this->own_lane + share);
        if (earlier == 0) return state;
        if (lane < CHANNELS && !fold<float>(before, state, state))
            state = await_word((const unsigned long long *)args.ends + slot(tile - 1) + share);
        __syncwarp();
        return __shfl_sync(~0u, state, share);
    }

    /* Those of the channels that `which` names; results take the places of what they are made from. */
    template <bool all> __device__ __forceinline__ void walk(float (&state)[CHANNELS], unsigned which)
    {
        const bool wants_decay = backward && scan.before.data;
#pragma unroll
        for (int k = 0; k < L::STEPS; k += 4) {
            float4 a[4], input[4];
            this->get_four(DECAYS, k, a);
            this->get_four(INPUTS, k, input);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float4 before = {};
                if (wants_decay) before = this->before(k + i);
#pragma unroll
                for (int j = 0; j < CHANNELS; j++) {
                    if (!all && !(which >> j & 1)) continue;
                    float &its = state[j], &decay = L::part(a, i, j), &input_or_result = L::part(input, i, j);
                    if (backward) {
                        const float g = add(input_or_result, its), u = dropped(decay, g);
                        decay = decay_gradient(decay, ((float(&)[4])before)[j], g);
                        input_or_result = g;
                        its = u;
                    } else {
                        input_or_result = its = advance(decay, its, input_or_result);
                    }
                }
            }
            this->set_four(INPUTS, k, input);
            if (wants_decay) this->set_four(DECAYS, k, a);
        }
    }

    /* Where a fold may not decide, the state that enters a sub-chunk comes from the walk of the one before. */
    __device__ __forceinline__ void walk_in_turn(float (&state)[CHANNELS], unsigned ready)
    {
        unsigned done = 0;
        for (;;) {
            const unsigned now = ready & ~done;
            if (now) walk<false>(state, now);
            done |= now;
            if (__all_sync(~0u, done == ALL)) return;
            const unsigned there = __shfl_up_sync(~0u, done, 1);
#pragma unroll
            for (int j = 0; j < CHANNELS; j++) {
                const float end = __shfl_up_sync(~0u, state[j], 1);
                if (ready >> j & 1 || !(there >> j & 1)) continue;
                state[j] = end;
                ready |= 1u << j;
            }
        }
    }

    __device__ __forceinline__ void walk_all(const Sum (&before)[CHANNELS], double carry, float (&state)[CHANNELS])
    {
        unsigned ready = 0;
#pragma unroll
        for (int j = 0; j < CHANNELS; j++) {
            double entering = __shfl_sync(~0u, carry, j);
            if (lane == 0 || fold<float>(before[j], entering, entering)) ready |= 1u << j;
            state[j] = (float)entering;
        }
        if (__all_sync(~0u, ready == ALL))
            walk<true>(state, ALL);
        else
            walk_in_turn(state, ready);
    }

    __device__ __forceinline__ void end(const float (&state)[CHANNELS]) const
    {
        if (lane < 31) return;
#pragma unroll
        for (int j = 0; j < CHANNELS; j++) {
            if (this->is_last)
                store_state(scan.leave, this->sequence, own_channel(j), state[j]);
            else
                put_end((double *)args.ends + slot(tile) + j, (double)state[j]);
        }
    }

    __device__ __forceinline__ void run()
    {
        Sum sum[CHANNELS], before[CHANNELS];
        float state[CHANNELS];
        trim();
        sum_up(sum);
        __syncwarp();
        tell(whole_strip(sum, lane));
        __syncwarp();
        sums_in_strip<CHANNELS>(sum, lane); /* while others hear of it */
#pragma unroll
        for (int j = 0; j < CHANNELS; j++)
            before[j] = moved(sum[j], [](auto x) { return __shfl_up_sync(~0u, x, 1); });
        walk_all(before, carry(), state);
        this->lay_held();
        end(state);
    }
};

template <typename L, bool backward>
__global__ void __launch_bounds__(THREADS, L::BLOCKS) strip_kernel(const __grid_constant__ rl_strip_args args)
{
    if ((int)blockIdx.x < args.chains) {
        let_later_start();
        await_earlier(); /* the common memory's reset, and all before it */
        Carrier carrier(args);
        carrier.run();
        return;
    }
    Walker<L, backward> walker(args, dynamic_shared);
    /* Inputs may be looked at already: the reset, launched as any kernel is, has begun after all that is ahead. */
    walker.ask_all();
    let_later_start();
    wait_copies<0>();
    __syncthreads(); /* all have landed */
    await_earlier(); /* the common memory's reset */
    if (walker.has_channels()) walker.run();
    __syncthreads(); /* the results are complete */
    if (args.scan.output.data) walker.give(INPUTS, args.scan.output);
    if (backward && args.scan.before.data) walker.give(DECAYS, args.scan.decay);
}

} // namespace

#endif
