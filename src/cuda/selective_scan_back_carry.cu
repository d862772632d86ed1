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

#include "selective_scan_back_carrier.cuh"

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
    Acc rate[STATES];

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
            rate[k] = has(k) ? rate_of(load_A<Acc>(args.scan, channel, state(k))) : Acc(0);
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
    /* Of the chunk `number` chunks on from the one at `at`, along the way or against time. */
    struct Places {
        Four<Acc> *local; /* of the lane's slots by chunk */
        int64_t row;      /* of the channel by chunk */
    };
    template <bool forward> __device__ Places places() const
    {
        const int64_t first = forward ? 0 : args.scan.chunks - 1;
        Acc *const locals = (Acc *)(forward ? args.ends : args.backs);
        return {(Four<Acc> *)(locals + place + first * stride), row(first)};
    }
    template <bool forward> __device__ Places moved(const Places &at, int64_t chunks) const
    {
        const int64_t number = forward ? chunks : -chunks;
        return {at.local + number * (stride / STATES), at.row + number * args.scan.channels};
    }
    __device__ Summary load_summary(const Places &at) const
    {
        return {*at.local, args.step_sums[at.row], args.wild[at.row]};
    }

    /* What a chunk makes of a `value` that may be trusted; whether that may be, of all four. */
    __device__ bool pass(const Summary &of, const Four<Acc> &value, Four<Acc> &next) const
    {
        bool tame = true;
#pragma unroll
        for (int i = 0; i < STATES; i++) {
            next.state[i] = fma(chunk_decay(rate[i], of.sum), value.state[i], of.local.state[i]);
            tame = tame && is_finite(next.state[i]);
        }
        return tame;
    }
    __device__ bool may_start(const Four<Acc> &value) const
    {
        bool tame = true;
#pragma unroll
        for (int i = 0; i < STATES; i++) tame = tame && rate[i] <= 0 && is_finite(value.state[i]);
        return tame;
    }

    __device__ void note_plain(int64_t row) const
    {
        uint16_t *const to = args.plain + row * args.scan.states + first;
        const uint16_t last = RL_S6_BACK_LAST_PLAIN + 1;
        if (args.scan.states % STATES == 0) {
            *(ushort4 *)to = make_ushort4(last, last, last, last);
            return;
        }
#pragma unroll
        for (int i = 0; i < STATES; i++)
            if (first + i < args.scan.states) to[i] = last;
    }

    /* Over a chunk, where that may be trusted. */
    template <bool forward> __device__ bool carry_over(const Summary &of, const Places &at, Four<Acc> &value) const
    {
        Four<Acc> next;
        const bool tame = forward ? Carrier<Acc>::has_none(of.wild) : !(of.wild & RL_S6_BACK_WILD_GRADIENTS);
        if (!pass(of, value, next) || !tame) return false;
        *at.local = value;
        if (forward) note_plain(at.row);
        value = next;
        return true;
    }

    /* Answers how many chunks `value` has been carried over; the summaries of the next ones are on their way. */
    template <bool forward> __device__ int64_t carry_far(Four<Acc> &value) const
    {
        const int64_t chunks = args.scan.chunks;
        Summary ahead[AHEAD];
        Places at = places<forward>(), further = at;
        if (!may_start(value)) return 0;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (k < chunks) ahead[k] = load_summary(further);
            further = moved<forward>(further, 1);
        }
#pragma unroll 1
        for (int64_t done = 0;; done += AHEAD) {
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                if (done + k >= chunks) return chunks;
                const Summary of = ahead[k];
                if (done + k + AHEAD < chunks) ahead[k] = load_summary(further);
                if (!carry_over<forward>(of, at, value)) return done + k;
                at = moved<forward>(at, 1);
                further = moved<forward>(further, 1);
            }
        }
    }

    /* From chunk to chunk. */
    template <bool forward> __device__ void carry()
    {
        Four<Acc> value;
        load(forward ? args.scan.h_init : args.dh_final, value);
        const int64_t chunks = args.scan.chunks, done = carry_far<forward>(value);
        if (done == chunks) return;
        const Way<Acc> way = {sequence, channel, first, order, forward ? done : chunks - 1 - done, value};
        if (forward)
            carry_states_on(args, way);
        else
            carry_gradients_on(args, way);
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
        const int64_t which = k < count ? k : k - count;
        const int64_t sequence = all <= UINT32_MAX ? (unsigned)which / (unsigned)lanes : which / lanes;
        Carriers<Acc> carriers(args, sequence, (unsigned)(which - sequence * lanes));
        if (!carriers.exist()) continue;
        if (args.scan.chunks == 1)
            carry_whole<Acc>(args, sequence, carriers.channel, carriers.first);
        else if (k < count)
            carriers.template carry<true>();
        else
            carriers.template carry<false>();
    }
}

} // namespace

const void *rl_s6_back_carry_kernel(bool f64)
{
    return f64 ? kernel_address<carry_kernel<double>>() : kernel_address<carry_kernel<float>>();
}
