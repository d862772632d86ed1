/*
 * The split scan of a problem that the GPU holds at once: each block has one stretch of time, asks for all of it, and
 * keeps it in registers and shared memory from its summary to its walk.  Blocks tell each other one summary each;
 * what it may stand for, and what is done where it may not, is as in scan_split.cuh.
 *
 * A warp is a sub-chunk of RL_WAVE_STEPS steps of 32 neighbouring channels, one a thread.  Blocks wait for those
 * before them only, which the GPU starts first.
 */
constexpr bool BY_ROWS = true;
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "scan_split_sum.cuh"
#include "scan_wave.h"

namespace
{

constexpr int WARP_COUNT = RL_WAVE_THREADS / 32, PIECE = STEPS_OF<float>, PIECES = RL_WAVE_STEPS / PIECE;
typedef Chunk<float, PIECE> Piece;
typedef Told<double> Word;

struct Common {
    float input[RL_WAVE_STEPS * RL_WAVE_THREADS]; /* [step of a sub-chunk, thread] */
    Word told[RL_WAVE_MOST_PARTS * 32];
    Word groups[RL_WAVE_MOST_PARTS / GROUP<float> * 32];
    Word own[32];
    Summary<float> sums[WARP_COUNT * 32];
    double carry[32];
    float ends[RL_WAVE_THREADS];
    uint8_t walked[RL_WAVE_THREADS];
};

/* A thread's place: its channel, its first step in the order of running, and how many it has. */
struct Place {
    int64_t part, sequence, channel, first;
    int warp, lane, count;
    bool is_last; /* the part is its sequence's last */
    int last;     /* which of its steps is the sequence's last; -1: none */

    __device__ explicit Place(const rl_split_args &args) : warp((int)threadIdx.x / 32), lane((int)threadIdx.x % 32)
    {
        const int64_t groups = args.groups / args.scan.sequences, chain = blockIdx.x % (unsigned)args.groups;
        part = blockIdx.x / (unsigned)args.groups;
        sequence = chain / groups;
        channel = chain % groups * 32 + lane;
        first = (part * WARP_COUNT + warp) * RL_WAVE_STEPS;
        is_last = part == args.most_tiles - 1;
        const int64_t left = channel < args.scan.channels ? args.scan.length - first : 0;
        count = (int)max((int64_t)0, min(left, (int64_t)RL_WAVE_STEPS));
        last = count > 0 && first + count == args.scan.length ? count - 1 : -1;
    }
    __device__ const float *at(const rl_split_args &args, const rl_scan_view &view) const
    {
        const Span span(args.scan, sequence);
        return (const float *)view.data + span.at(view, count > 0 ? channel : 0, args.scan.down) + first * view.step;
    }
    __device__ int64_t slot(const rl_split_args &args, int64_t part) const
    {
        return (blockIdx.x % (unsigned)args.groups * args.most_tiles + part) * 32;
    }
};

template <bool backward> struct Wave {
    const rl_split_args &args;
    const rl_scan_args &scan;
    const Place &place;
    Common &common;

    __device__ float *input(int step) const
    {
        return &common.input[step * RL_WAVE_THREADS + (int)threadIdx.x];
    }

    /* Asks for everything; the inputs come a piece after the other. */
    __device__ __forceinline__ void ask(Piece (&a)[PIECES]) const
    {
        const float *from = place.at(args, scan.input);
#pragma unroll 1
        for (int piece = 0; piece < PIECES; piece++) {
#pragma unroll
            for (int k = piece * PIECE; k < (piece + 1) * PIECE; k++, from += scan.input.step) {
                const bool given = k < place.count && scan.input.data;
                copy_async(input(k), given ? from : (const float *)scan.a.data, given);
            }
            close_copies();
        }
        from = place.at(args, scan.a);
#pragma unroll
        for (int k = 0; k < RL_WAVE_STEPS; k++)
            a[k / PIECE].set(k % PIECE, k < place.count ? from[k * scan.a.step] : 1.0f);
        if constexpr (backward) fetch_before();
    }

    /* The states before each step are read by the walk alone: a line of them by each thread. */
    __device__ __forceinline__ void fetch_before() const
    {
        const float *from = place.at(args, scan.before) - place.lane;
        for (int k = place.lane; k < place.count && scan.before.data; k += 32)
            fetch_ahead(from + k * scan.before.step);
    }

    /* A step that nothing precedes drops what would enter it. */
    __device__ __forceinline__ void trim(Piece (&a)[PIECES]) const
    {
        if (!backward && !scan.enter.data && place.first == 0) a[0].set(0, 0.0f);
        if constexpr (backward) {
            if (scan.start.data || place.last < 0) return;
#pragma unroll
            for (int k = 0; k < RL_WAVE_STEPS; k++)
                if (k == place.last) a[k / PIECE].set(k % PIECE, 0.0f);
        }
    }

    template <int piece>
    __device__ __forceinline__ Summary<float> add_piece(const Summary<float> &sum, const Piece &a) const
    {
        wait_copies<PIECES - 1 - piece>();
        Piece its_input;
#pragma unroll
        for (int k = 0; k < PIECE; k++) its_input.set(k, *input(piece * PIECE + k));
        return joined(sum, summed_up<backward>(a, its_input));
    }
    __device__ __forceinline__ Summary<float> sum_up(const Piece (&a)[PIECES]) const
    {
        static_assert(PIECES == 4, "the pieces are named one by one");
        Summary<float> sum = no_steps<float>();
        sum = add_piece<0>(sum, a[0]);
        sum = add_piece<1>(sum, a[1]);
        sum = add_piece<2>(sum, a[2]);
        return add_piece<3>(sum, a[3]);
    }

    /* What precedes the sub-chunk in its block; the last one tells the block's whole. */
    __device__ __forceinline__ Summary<float> tell(const Summary<float> &sum) const
    {
        common.sums[threadIdx.x] = sum;
        __syncthreads();
        Summary<float> before = no_steps<float>();
#pragma unroll 1
        for (int k = 0; k < place.warp; k++) before = joined(before, common.sums[k * 32 + place.lane]);
        if (place.warp == WARP_COUNT - 1) {
            const Word told = as_told(joined(before, sum));
            common.own[place.lane] = told;
            __threadfence(); /* the entering state, which h_final may overwrite, has been read */
            if (!place.is_last) put((Word *)args.summaries + place.slot(args, place.part) + place.lane, told);
        }
        return before;
    }

    /* The state that enters the block, from what the blocks before it have told. */
    __device__ __forceinline__ void find_carry(float enter, const Summary<float> &before) const
    {
        const int count = (int)place.part, groups = count / GROUP<float>;
        const int64_t slot = place.slot(args, 0);
        await_all<RL_WAVE_THREADS>(common.told, (const Word *)args.summaries + slot, count * 32, (int)threadIdx.x);
        __syncthreads();
        common.sums[threadIdx.x] = before; /* all have read what was there; registers are dear */
        if (place.warp < groups)
            common.groups[threadIdx.x] =
                as_told(joined_told<float>(common.told + place.warp * GROUP<float> * 32 + place.lane, 32));
        __syncthreads();
        if (place.warp == 0) {
            const int done = groups * GROUP<float> * 32 + place.lane;
            const double *ends = (const double *)args.ends + slot;
            const double state = after_groups<float>(common.groups + place.lane, common.told + place.lane,
                                                     ends + place.lane, 32, groups, Wide<float>::open(enter));
            common.carry[place.lane] =
                after_tiles<float>(common.told + done, ends + done, 32, count - groups * GROUP<float>, state);
        }
        __syncthreads();
    }

    /* The loop's own order.  A decay's gradient needs the state before its step, which the next step run holds. */
    __device__ __forceinline__ float walk(const Piece (&a)[PIECES], float state) const
    {
        float *to = (float *)place.at(args, scan.output), *decay = (float *)place.at(args, scan.decay);
        const float *states = place.at(args, scan.before);
        float start = INFINITY; /* beside a decay of 0, whose gradient it makes 0 */
        if (backward && place.last >= 0 && scan.start.data)
            start = load_state<float>(scan.start, place.sequence, place.channel);
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
            float before[PIECE] = {};
            if (backward && scan.before.data) {
#pragma unroll
                for (int k = 0; k < PIECE; k++) {
                    const int step = piece * PIECE + k;
                    before[k] = step == place.last   ? start
                                : step < place.count ? states[(step + 1) * scan.before.step]
                                                     : 0;
                }
            }
#pragma unroll
            for (int k = 0; k < PIECE; k++) {
                const int step = piece * PIECE + k;
                const float its_a = a[piece].get(k), its_input = *input(step);
                const bool given = step < place.count;
                if constexpr (backward) {
                    const float g = add(its_input, state);
                    if (given && scan.output.data) to[step * scan.output.step] = g;
                    if (given && scan.before.data)
                        decay[step * scan.decay.step] = decay_gradient(its_a, before[k], g);
                    state = dropped(its_a, g);
                } else {
                    state = advance(its_a, state, its_input);
                    if (given) to[step * scan.output.step] = state;
                }
            }
        }
        return state;
    }

    /* The state that enters a sub-chunk comes from the fold; where that may not decide, from the walk before it. */
    __device__ __forceinline__ float walk_all(const Piece (&a)[PIECES]) const
    {
        const int thread = (int)threadIdx.x;
        double entering = common.carry[place.lane];
        bool is_ready = place.warp == 0 || fold<float>(common.sums[thread], entering, entering), is_walked = false;
        float state = Wide<float>::close(entering);
        for (;;) {
            if (is_ready && !is_walked) {
                state = walk(a, state);
                common.ends[thread] = state;
                common.walked[thread] = is_walked = true;
            }
            if (!__syncthreads_or(!is_walked)) return state;
            if (!is_walked && common.walked[thread - 32]) {
                state = common.ends[thread - 32];
                is_ready = true;
            }
            __syncthreads(); /* they have been read */
        }
    }

    /* Where the block's summary is not accepted the others wait for the state after it. */
    __device__ __forceinline__ void tell_end() const
    {
        double leaving;
        if (place.is_last || place.warp > 0) return;
        if (fold<float>(from_told<float>(common.own[place.lane]), common.carry[place.lane], leaving)) return;
        put_end((double *)args.ends + place.slot(args, place.part) + place.lane,
                (double)common.ends[RL_WAVE_THREADS - 32 + place.lane]);
    }
};

template <bool backward>
__global__ void __launch_bounds__(RL_WAVE_THREADS, 1) wave_kernel(const __grid_constant__ rl_split_args args)
{
    Common &common = *(Common *)dynamic_shared;
    const Place place(args);
    const Wave<backward> wave = {args, args.scan, place, common};
    let_later_start();
    await_earlier(); /* the common memory's reset, and all before it */
    Piece a[PIECES];
    wave.ask(a);
    const bool has_channel = place.channel < args.scan.channels;
    const float enter = has_channel ? load_state<float>(args.scan.enter, place.sequence, place.channel) : 0;
    common.walked[threadIdx.x] = false;
    wave.trim(a);
    wave.find_carry(enter, wave.tell(wave.sum_up(a)));
    const float state = wave.walk_all(a);
    wave.tell_end();
    if (place.last >= 0) {
        __threadfence(); /* every block has read the entering state, which this may overwrite */
        store_state(args.scan.leave, place.sequence, place.channel, state);
    }
}

template <bool backward> rl_split_kernel instance()
{
    return {kernel_address<wave_kernel<backward>>(),
            sizeof(Common),
            RL_WAVE_THREADS,
            RL_WAVE_THREADS,
            1,
            RL_WAVE_STEPS,
            (int32_t)sizeof(Word),
            (int32_t)sizeof(double)};
}

} // namespace

rl_split_kernel rl_scan_wave(bool backward)
{
    return backward ? instance<true>() : instance<false>();
}
