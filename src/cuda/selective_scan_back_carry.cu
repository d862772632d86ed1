/*
 * The second kernel of the selective scan's gradients (selective_scan_back.cuh): carries states from chunk to chunk,
 * and gradients from chunk to chunk against time.  A thread takes the four states of a lane, as the walk back holds
 * them, in one direction.
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

constexpr int AHEAD = 4; /* chunks whose summaries are loaded together */

/* Numbers of a row of what threads lay out. */
__device__ inline int64_t row_size(const rl_s6_args &args)
{
    return args.blocks * args.panels * args.block_channels * PANEL;
}

/* One state of one channel of a sequence, where it cannot be carried over a chunk but must be run through it. */
template <typename Acc> struct Carrier {
    const rl_s6_back_args &args;
    int64_t sequence, channel, state;
    Acc a, bias;

    __device__ Carrier(const rl_s6_back_args &args, int64_t sequence, int64_t channel, int64_t state)
        : args(args), sequence(sequence), channel(channel), state(state)
    {
        a = load_A<Acc>(args.scan, channel, state);
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
    __device__ Acc run_forward(int64_t index, int wild, Acc h) const
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
    __device__ Acc run_back(const Chunk &chunk, Acc G) const
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

    __device__ Acc &summary(void *locals, int64_t chunk) const
    {
        return ((Acc *)locals)[place_of_state(args.scan, sequence * args.scan.chunks + chunk, channel, state)];
    }
    /* What a chunk makes of `value`, and whether that may be trusted. */
    __device__ bool pass(int64_t chunk, Acc local, Acc value, Acc &next) const
    {
        next = fma(exponential((Acc)(a * args.step_sums[row(chunk)])), value, local);
        return a <= 0 && is_finite(value) && is_finite(next);
    }
    __device__ void carry_state(int64_t chunk, Acc h) const
    {
        for (; chunk < args.scan.chunks; chunk++) {
            const Acc local = summary(args.ends, chunk);
            const int wild = args.wild[row(chunk)];
            Acc next;
            summary(args.ends, chunk) = h;
            args.plain[place(chunk)] = RL_S6_BACK_LAST_PLAIN + 1;
            const bool tame = pass(chunk, local, h, next) && has_none(wild);
            h = tame ? next : run_forward(chunk, wild, h);
        }
    }
    __device__ void carry_gradient(int64_t chunk, Acc G) const
    {
        for (; chunk >= 0; chunk--) {
            const Acc local = summary(args.backs, chunk);
            Acc next;
            summary(args.backs, chunk) = G;
            if (chunk == 0) continue;
            const bool tame = pass(chunk, local, G, next) && !(args.wild[row(chunk)] & RL_S6_BACK_WILD_GRADIENTS);
            G = tame ? next : run_back(locate_chunk(args.scan, sequence, chunk), G);
        }
    }
};

/* Four slots of a lane, by value. */
template <typename Acc> struct Way {
    int64_t sequence, channel, first, order, chunk;
    Four<Acc> value;
};

/* On from a chunk that a state cannot be carried over; the rest of the lane's way goes here too. */
template <typename Acc>
__device__ __attribute__((noinline)) void carry_states_on(const rl_s6_back_args &args, const Way<Acc> way)
{
    for (int k = 0; k < STATES; k++) {
        const int64_t state = way.first + (k ^ way.order);
        if (state < args.scan.states)
            Carrier<Acc>(args, way.sequence, way.channel, state).carry_state(way.chunk, way.value.state[k]);
    }
}
template <typename Acc>
__device__ __attribute__((noinline)) void carry_gradients_on(const rl_s6_back_args &args, const Way<Acc> way)
{
    for (int k = 0; k < STATES; k++) {
        const int64_t state = way.first + (k ^ way.order);
        if (state < args.scan.states)
            Carrier<Acc>(args, way.sequence, way.channel, state).carry_gradient(way.chunk, way.value.state[k]);
    }
}
template <typename Acc>
__device__ __attribute__((noinline)) void carry_whole(const rl_s6_back_args &args, int64_t sequence, int64_t channel,
                                                      int64_t first)
{
    for (int k = 0; k < STATES; k++)
        if (first + k < args.scan.states) Carrier<Acc>(args, sequence, channel, first + k).carry_whole();
}

/* The four states of a lane. */
template <typename Acc> struct Carriers {
    const rl_s6_back_args &args;
    int64_t sequence, channel, first; /* the lane's first state */
    int order;                        /* slot i holds state first + (i ^ order) */
    int64_t place, stride;            /* of its slots in what threads lay out by chunk */
    Acc a[STATES];

    /* Those at `number` of a row of what threads lay out; they may not exist. */
    __device__ Carriers(const rl_s6_back_args &args, int64_t sequence, unsigned number)
        : args(args), sequence(sequence)
    {
        const unsigned threads = args.scan.block_channels * RL_S6_BACK_CHANNEL_THREADS;
        const unsigned thread = number % threads, rest = number / threads, panels = args.scan.panels;
        const int own = rest % OWN, panel = rest / OWN % panels;
        const Lane lane(thread);
        const Block block = locate_block(args.scan, rest / OWN / panels);
        const int column = lane.column_of(own);
        channel = column < block.channels ? block.channel + column : -1;
        first = (int64_t)panel * PANEL + lane.lane * STATES;
        order = lane.order;
        stride = row_size(args.scan);
        place = sequence * args.scan.chunks * stride + (int64_t)number * STATES;
    }
    __device__ bool exist() const
    {
        return channel >= 0 && first < args.scan.states;
    }
    __device__ int64_t state(int slot) const
    {
        return first + (slot ^ order);
    }
    __device__ bool has(int slot) const
    {
        return state(slot) < args.scan.states;
    }
    __device__ int64_t row(int64_t chunk) const
    {
        return (sequence * args.scan.chunks + chunk) * args.scan.channels + channel;
    }

    __device__ void load(const rl_s6_state &view, Four<Acc> &to)
    {
        const int64_t at = sequence * view.sequence + channel * view.channel;
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            a[k] = has(k) ? load_A<Acc>(args.scan, channel, state(k)) : Acc(0);
            to.state[k] =
                view.data && has(k) ? load_any<Acc>(view.data, view.dtype, at + state(k) * view.state) : Acc(0);
        }
    }

    /* What a chunk does. */
    struct Summary {
        Four<Acc> local;
        double sum;
        int wild;
    };
    __device__ Summary load_summary(const void *locals, int64_t chunk) const
    {
        if (chunk < 0 || chunk >= args.scan.chunks) return {};
        return {*(const Four<Acc> *)((const Acc *)locals + place + chunk * stride), args.step_sums[row(chunk)],
                args.wild[row(chunk)]};
    }
    /* The next of those on their way, the last of which is then `further`. */
    __device__ static Summary take(Summary (&ahead)[AHEAD], const Summary &further)
    {
        const Summary of = ahead[0];
#pragma unroll
        for (int k = 0; k + 1 < AHEAD; k++) ahead[k] = ahead[k + 1];
        ahead[AHEAD - 1] = further;
        return of;
    }

    __device__ void store(void *locals, int64_t chunk, const Four<Acc> &from) const
    {
        *(Four<Acc> *)((Acc *)locals + place + chunk * stride) = from;
    }

    /* What a chunk makes of `value`; whether that may be trusted of all four. */
    __device__ bool pass(const Summary &of, const Four<Acc> &value, Four<Acc> &next) const
    {
        bool tame = true;
#pragma unroll
        for (int i = 0; i < STATES; i++) {
            next.state[i] = fma(exponential((Acc)(a[i] * of.sum)), value.state[i], of.local.state[i]);
            tame = tame && a[i] <= 0 && is_finite(value.state[i]) && is_finite(next.state[i]);
        }
        return tame;
    }

    __device__ void note_plain(int64_t chunk) const
    {
        uint16_t *const to = args.plain + row(chunk) * args.scan.states;
#pragma unroll
        for (int i = 0; i < STATES; i++)
            if (has(i)) to[state(i)] = RL_S6_BACK_LAST_PLAIN + 1;
    }

    __device__ void carry_states()
    {
        Four<Acc> h, next;
        Summary ahead[AHEAD];
        load(args.scan.h_init, h);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) ahead[k] = load_summary(args.ends, k);
#pragma unroll 1
        for (int64_t chunk = 0; chunk < args.scan.chunks; chunk++) {
            const Summary of = take(ahead, load_summary(args.ends, chunk + AHEAD));
            if (!pass(of, h, next) || !Carrier<Acc>::has_none(of.wild)) {
                carry_states_on(args, Way<Acc>{sequence, channel, first, order, chunk, h});
                return;
            }
            store(args.ends, chunk, h);
            note_plain(chunk);
            h = next;
        }
    }

    __device__ void carry_gradients()
    {
        Four<Acc> G, next;
        Summary ahead[AHEAD];
        load(args.dh_final, G);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) ahead[k] = load_summary(args.backs, args.scan.chunks - 1 - k);
#pragma unroll 1
        for (int64_t chunk = args.scan.chunks - 1; chunk >= 0; chunk--) {
            const Summary of = take(ahead, load_summary(args.backs, chunk - AHEAD));
            if (!pass(of, G, next) || of.wild & RL_S6_BACK_WILD_GRADIENTS) {
                carry_gradients_on(args, Way<Acc>{sequence, channel, first, order, chunk, G});
                return;
            }
            store(args.backs, chunk, G);
            G = next;
        }
    }
};

template <typename Acc>
__global__ void __launch_bounds__(128, sizeof(Acc) == 4 ? 4 : 2)
    carry_kernel(const __grid_constant__ rl_s6_back_args args)
{
    const int64_t lanes = row_size(args.scan) / STATES, count = args.scan.sequences * lanes;
    const int64_t stride = (int64_t)gridDim.x * blockDim.x, all = args.scan.chunks > 1 ? 2 * count : count;
    let_later_start();
    await_earlier();
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < all; k += stride) {
        const int64_t which = k < count ? k : k - count, sequence = which / lanes;
        Carriers<Acc> carriers(args, sequence, (unsigned)(which - sequence * lanes));
        if (!carriers.exist()) continue;
        if (args.scan.chunks == 1)
            carry_whole<Acc>(args, sequence, carriers.channel, carriers.first);
        else if (k < count)
            carriers.carry_states();
        else
            carriers.carry_gradients();
    }
}

} // namespace

const void *rl_s6_back_carry_kernel(bool f64)
{
    return f64 ? kernel_address<carry_kernel<double>>() : kernel_address<carry_kernel<float>>();
}
