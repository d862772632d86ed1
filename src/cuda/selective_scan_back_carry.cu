/*
 * The second kernel of the selective scan's gradients (selective_scan_back.cuh): carries states from chunk to chunk,
 * and gradients from chunk to chunk against time.  One thread a state (channel, state) and direction.
 *
 *     h before the next chunk = exp(A Σδ) h before + ends         G before = exp(A Σδ) G after + backs
 *
 * Each takes the place of the chunk's own summary.  Where decays may grow, or values are not finite, the product
 * could lose or spoil what the plain loop computes; such a chunk is run here again, step by step in the loop's own
 * order, and leaves the states before its tiles as they are.
 */
#include <machine/kernel.cuh>

#include "s6_back_kernels.h"
#include "selective_scan_back.cuh"

using namespace selective_scan_back;

namespace
{

constexpr int AHEAD = 8; /* chunks whose summaries are loaded together */

/* One state of one channel of a sequence. */
template <typename Acc> struct Carrier {
    const rl_s6_back_args &args;
    int64_t sequence, channel, state;
    int64_t at, stride; /* of its numbers in what threads lay out by chunk */
    Acc a, bias;

    __device__ Carrier(const rl_s6_back_args &args, int64_t sequence, int64_t channel, int64_t state)
        : args(args), sequence(sequence), channel(channel), state(state)
    {
        a = load_A<Acc>(args.scan, channel, state);
        at = place_of_state(args.scan, sequence * args.scan.chunks, channel, state);
        stride = place_of_state(args.scan, 1, 0, 0);
        bias = args.scan.bias.data ? ((const Acc *)args.scan.bias.data)[channel * args.scan.bias.stride] : Acc(0);
    }

    __device__ int64_t row(int64_t chunk) const
    {
        return (sequence * args.scan.chunks + chunk) * args.scan.channels + channel;
    }
    __device__ int64_t place(int64_t chunk) const
    {
        return row(chunk) * args.scan.states + state;
    }
    /* In what is laid out by threads. */
    __device__ Acc &kept(const Chunk &chunk, int64_t tile) const
    {
        return ((Acc *)args.kept)[place_of_state(args.scan, chunk.kept + tile, channel, state)];
    }
    __device__ Acc &end(int64_t chunk) const
    {
        return ((Acc *)args.ends)[at + chunk * stride];
    }
    __device__ Acc &back(int64_t chunk) const
    {
        return ((Acc *)args.backs)[at + chunk * stride];
    }
    __device__ Acc load_state(const rl_s6_state &view) const
    {
        const int64_t at = sequence * view.sequence + channel * view.channel + state * view.state;
        return view.data ? load_any<Acc>(view.data, view.dtype, at) : Acc(0);
    }
    __device__ Acc load(const rl_s6_view &view, const Piece &piece, int64_t step) const
    {
        return load_any<Acc>(view.data, view.dtype,
                             first_row(args.scan, view, piece) + step * view.step + channel * view.lane);
    }
    __device__ Acc load_input(const rl_s6_view &view, const Piece &piece, int64_t step) const
    {
        const int64_t group = channel / args.scan.group_channels;
        return load_any<Acc>(view.data, view.dtype,
                             first_row(args.scan, view, piece) + step * view.step + group * view.group +
                                 state * view.lane);
    }
    __device__ Acc load_size(const Piece &piece, int64_t step) const
    {
        const Acc low = (Acc)args.scan.delta_min, high = (Acc)args.scan.delta_max;
        Acc size = load(args.scan.delta, piece, step) + bias;
        if (args.scan.softplus) size = softplus_of_any(size);
        size = size < low ? low : size;
        return size > high ? high : size;
    }

    /* The state before a tile, of a chunk that starts from h, as the walk back takes it. */
    __device__ Acc before(const Chunk &chunk, int64_t tile, Acc h) const
    {
        if (tile == 0) return h;
        const Acc deltas = ((const Acc *)args.kept_sums)[(chunk.kept + tile) * args.scan.channels + channel];
        return fma(distant_decay(rate_of(a), deltas), h, kept(chunk, tile));
    }

    /* The first tile of a chunk that must be run in the loop's own order: those before it keep their bits. */
    __device__ int64_t first_wild(const Chunk &chunk, int wild, Acc h) const
    {
        const int64_t noted = wild & RL_S6_BACK_NONE;
        int64_t first = noted < chunk.tiles ? noted : chunk.tiles - 1;
        if (first > RL_S6_BACK_LAST_PLAIN - 1) first = RL_S6_BACK_LAST_PLAIN - 1;
        if (!(a <= 0) || !is_finite(h)) return 0;
        for (int64_t tile = 1; tile <= first; tile++)
            if (!is_finite(before(chunk, tile, h))) return tile - 1;
        return first;
    }

    /* A chunk forward, from a wild tile on in the loop's own order, which leaves the states before its tiles. */
    __device__ __attribute__((noinline)) Acc run_forward(int64_t index, int wild, Acc h) const
    {
        const Chunk chunk = locate_chunk(args.scan, sequence, index);
        const Piece &piece = chunk.piece;
        if (chunk.tiles == 0) return h;
        const int64_t first = first_wild(chunk, wild, h);
        bool fresh = first == 0 && piece.starts && !args.scan.h_init.data;
        h = before(chunk, first, h);
        args.plain[place(index)] = (uint16_t)(first + 1);
        atomicOr(&args.wild[row(index)], RL_S6_BACK_RUN_AGAIN);
        for (int64_t k = first * TILE; k < piece.count; k++) {
            if (k > first * TILE && k % TILE == 0) kept(chunk, k / TILE) = h;
            const Acc size = load_size(piece, k), x = load(args.scan.x, piece, k);
            const Acc input = size * x * load_input(args.scan.B, piece, k);
            h = fresh ? input : advance(exponential(size * a), h, input);
            fresh = false;
        }
        return h;
    }

    /* A chunk back in the loop's own order. */
    __device__ __attribute__((noinline)) Acc run_back(const Chunk &chunk, Acc G) const
    {
        const Piece &piece = chunk.piece;
        for (int64_t k = piece.count - 1; k >= 0; k--) {
            if (args.dy.data) {
                Acc du = load(args.dy, piece, k);
                if (args.scan.z.data) du *= gate(load(args.scan.z, piece, k));
                G = advance(du, load_input(args.scan.C, piece, k), G);
            }
            G *= exponential(load_size(piece, k) * a);
        }
        return G;
    }

    /* Without chunks: whether what is kept may be added to the state that the sequence starts from. */
    __device__ bool keeps_finite() const
    {
        const Chunk chunk = locate_chunk(args.scan, sequence, 0);
        if (chunk.tiles <= 1) return true;
        return is_finite(kept(chunk, chunk.tiles - 1));
    }

    __device__ void carry_whole() const
    {
        const Acc h = load_state(args.scan.h_init);
        const int wild = args.wild[row(0)];
        args.plain[place(0)] = RL_S6_BACK_LAST_PLAIN + 1;
        if (!has_none(wild) || !(a <= 0) || !is_finite(h) || !keeps_finite()) run_forward(0, wild, h);
    }

    __device__ static bool has_none(int wild)
    {
        return (wild & RL_S6_BACK_NONE) == RL_S6_BACK_NONE;
    }

    /* Of chunks first .. first + AHEAD - 1, in memory order. */
    struct Summaries {
        Acc local[AHEAD];
        double sum[AHEAD];
        int wild[AHEAD];
    };
    __device__ void load_summaries(Summaries &of, bool forward, int64_t first) const
    {
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int64_t chunk = first + k;
            if (chunk < 0 || chunk >= args.scan.chunks) continue;
            of.local[k] = forward ? end(chunk) : back(chunk);
            of.sum[k] = args.step_sums[row(chunk)];
            of.wild[k] = args.wild[row(chunk)];
        }
    }

    /* What a chunk makes of `value`, and whether that may be trusted. */
    __device__ bool pass(const Summaries &of, int k, Acc value, Acc &next) const
    {
        next = fma(exponential((Acc)(a * of.sum[k])), value, of.local[k]);
        return a <= 0 && is_finite(value) && is_finite(next);
    }

    __device__ void carry_states() const
    {
        Acc h = load_state(args.scan.h_init), next;
        for (int64_t first = 0; first < args.scan.chunks; first += AHEAD) {
            Summaries of;
            load_summaries(of, true, first);
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                if (first + k >= args.scan.chunks) continue;
                end(first + k) = h;
                args.plain[place(first + k)] = RL_S6_BACK_LAST_PLAIN + 1;
                const bool tame = pass(of, k, h, next) && has_none(of.wild[k]);
                h = tame ? next : run_forward(first + k, of.wild[k], h);
            }
        }
    }

    __device__ void carry_gradients() const
    {
        Acc G = load_state(args.dh_final), next;
        for (int64_t last = args.scan.chunks - 1; last >= 0; last -= AHEAD) {
            Summaries of;
            load_summaries(of, false, last - (AHEAD - 1));
#pragma unroll
            for (int k = AHEAD - 1; k >= 0; k--) {
                const int64_t chunk = last - (AHEAD - 1) + k;
                if (chunk < 0) continue;
                back(chunk) = G;
                if (chunk == 0) continue;
                const bool tame = pass(of, k, G, next) && !(of.wild[k] & RL_S6_BACK_WILD_GRADIENTS);
                G = tame ? next : run_back(locate_chunk(args.scan, sequence, chunk), G);
            }
        }
    }
};

template <typename Acc>
__global__ void __launch_bounds__(128, 4) carry_kernel(const __grid_constant__ rl_s6_back_args args)
{
    const int64_t per_sequence = args.scan.channels * args.scan.states, count = args.scan.sequences * per_sequence;
    const int64_t stride = (int64_t)gridDim.x * blockDim.x, all = args.scan.chunks > 1 ? 2 * count : count;
    let_later_start();
    await_earlier();
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < all; k += stride) {
        const int64_t which = k < count ? k : k - count, sequence = which / per_sequence;
        const int64_t rest = which - sequence * per_sequence;
        const Carrier<Acc> carrier(args, sequence, rest / args.scan.states, rest % args.scan.states);
        if (args.scan.chunks == 1)
            carrier.carry_whole();
        else if (k < count)
            carrier.carry_states();
        else
            carrier.carry_gradients();
    }
}

} // namespace

const void *rl_s6_back_carry_kernel(bool f64)
{
    return f64 ? kernel_address<carry_kernel<double>>() : kernel_address<carry_kernel<float>>();
}
