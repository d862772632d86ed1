/*
 * The first kernel of the selective scan's gradients (selective_scan_back_summary.cu tells what it makes) for neat
 * tensors of types that are known, one panel of states, and softplus without limits.  A block takes a chunk of up to
 * 64 channels, a span of two tiles at a time, which the copy engine has brought: all threads prepare its steps, each
 * those of four channels and two steps, and then walk it:
 *
 *     warp   = 8 channels x 4 lanes with 4 states each
 *
 * What runs against time, Σ P_t du_t C_t, changes no more once P_t is small enough: a warp leaves out, for each of
 * its lanes' four states, the spans that could not change a bit of it.
 */
#include <machine/bulk.cuh>
#include <machine/kernel.cuh>

#include "s6_back_copies.h"
#include "s6_back_kernels.h"
#include "selective_scan_back.cuh"

using namespace selective_scan_back;

namespace
{

constexpr int SPAN = 2 * TILE, PAIRS = SPAN / 2, COLUMNS = RL_S6_BACK_CHANNELS, WARP_COLUMNS = 8;
constexpr int THREADS_OF_ALL = COLUMNS * RL_S6_BACK_SUMMARY_THREADS;
constexpr int PART = 4; /* steps whose δ and du are read at a time */
static_assert(RL_S6_BACK_SUMMARY_THREADS * 4 == PAIRS, "a thread prepares four channels of two steps");

struct alignas(16) TwoSteps {
    float delta[2], input[2];
};

/* A span as it lies in memory: rows of all of a block's channels, or of a panel's states. */
template <typename T, typename U> struct Raw {
    alignas(128) U delta[SPAN * COLUMNS];
    alignas(128) T x[SPAN * COLUMNS];
    alignas(128) T dy[SPAN * COLUMNS];
    alignas(128) T z[SPAN * COLUMNS];
    alignas(128) U B[SPAN * PANEL];
    alignas(128) U C[SPAN * PANEL];
};

template <typename T, typename U> struct Tiles {
    Raw<T, U> raw;
    TwoSteps step[PAIRS][COLUMNS];
    Four<float> du[SPAN / PART][COLUMNS];
    alignas(128) float B[2][SPAN * PANEL], C[2][SPAN * PANEL]; /* of a span and, as it is copied, the next */
    alignas(16) float bias[COLUMNS];
    int first[COLUMNS], wild[COLUMNS]; /* the first tile with a wild state; whether there are wild gradients */
    unsigned largest[2][2];            /* |du| and |C| of a span and the next, as bits */
    int seat[THREADS_OF_ALL];          /* the pair of steps and the first channel that a thread prepares */
    uint64_t copied;                   /* a barrier */
};

/* Where a step of a channel lies: so that neither fours of channels nor neighbours meet in a bank. */
__device__ inline int place_of_column(int column)
{
    return column ^ (column / 8 & 3);
}

template <typename T, typename U, bool gated> struct Summary {
    const rl_s6_back_args &args;
    const rl_s6_back_copies &copies;
    const Chunk &chunk;
    const Block &block;
    Tiles<T, U> &tiles;
    static constexpr bool IN_PLACE = sizeof(U) == sizeof(float); /* B and C are walked as they have come */
    bool split, backs;                                           /* there are chunks; this one's way back is wanted */

    /* Of the thread that prepares. */
    int pair, quad; /* its steps, its first channel */

    /* Of the thread that walks. */
    int lane, order, column;
    float rate[STATES], h[STATES], back[STATES], deltas;
    float *kept, *sums; /* of the tile that is walked */

    __device__ Summary(const rl_s6_back_summary_args &args, const Chunk &chunk, const Block &block,
                       Tiles<T, U> &tiles)
        : args(args.back), copies(args.copies), chunk(chunk), block(block), tiles(tiles),
          split(args.back.scan.chunks > 1), h{}, back{}, deltas(0)
    {
        backs = split && chunk.piece.chunk > 0; /* nobody asks for that of a sequence's first chunk */
        const int in_warp = threadIdx.x & 31;
        lane = in_warp / 2 % LANES;
        order = in_warp / 8;
        column = threadIdx.x / 32 * WARP_COLUMNS + in_warp % 2 + 2 * order;
    }

    /* What the compiler could work out ahead it would hold in registers, or spill. */
    __device__ void take_seat()
    {
        const int seat = tiles.seat[threadIdx.x];
        pair = seat >> 8;
        quad = seat & 0xff;
    }
    __device__ bool prepares() const
    {
        return quad < block.channels;
    }
    __device__ bool exists() const
    {
        return column < block.channels;
    }
    __device__ int64_t channel() const
    {
        return block.channel + column;
    }
    __device__ bool has_gradients() const
    {
        return backs && args.dy.data;
    }

    /* Where the numbers of B and C of a span stand. */
    __device__ static int stage_of(int64_t tile)
    {
        return IN_PLACE ? (int)(tile / 2 & 1) : 0;
    }

    /* One thread sends for a span; what of it lies beyond the tensors becomes zeros. */
    __device__ void copy(int64_t tile) const
    {
        Raw<T, U> &raw = tiles.raw;
        void *const B = IN_PLACE ? (void *)tiles.B[stage_of(tile)] : raw.B;
        void *const C = IN_PLACE ? (void *)tiles.C[stage_of(tile)] : raw.C;
        const int area = SPAN * args.scan.block_channels, row = (int)(chunk.piece.row + tile * TILE);
        const TileAt steps = {(int)block.channel, row, (int)chunk.piece.batch};
        const TileAt states = {(int)(block.group * args.scan.states), row, (int)chunk.piece.batch};
        int bytes = area * (int)(sizeof(U) + sizeof(T)) + (int)sizeof raw.B;
        if (has_gradients()) bytes += area * (int)(gated ? 2 * sizeof(T) : sizeof(T)) + (int)sizeof raw.C;
        barrier_expect(&tiles.copied, bytes);
        tile_load(raw.delta, copies.delta, steps, &tiles.copied);
        tile_load(raw.x, copies.x, steps, &tiles.copied);
        tile_load(B, copies.B, states, &tiles.copied);
        if (has_gradients()) tile_load(raw.dy, copies.dy, steps, &tiles.copied);
        if (has_gradients()) tile_load(C, copies.C, states, &tiles.copied);
        if (gated && has_gradients()) tile_load(raw.z, copies.z, steps, &tiles.copied);
    }

    /* The thread's four channels of its step i. */
    template <typename E> __device__ Quad<E> quad_of(const E *raw, int i) const
    {
        return *(const Quad<E> *)&raw[(2 * pair + i) * args.scan.block_channels + quad];
    }

    /* Whether the thread has all of its steps in a span, and its channels. */
    __device__ bool has_all(int steps) const
    {
        return steps == SPAN && prepares();
    }
    __device__ bool has(int k, int steps) const
    {
        return prepares() && 2 * pair + k / 4 < steps;
    }

    __device__ float load_du(int at) const
    {
        const float dy = widen(tiles.raw.dy[at]);
        return gated ? dy * gate(widen(tiles.raw.z[at])) : dy;
    }

    /* The thread's steps where there are unusual numbers: notes what the fast order cannot take. */
    __device__ void prepare_any(int64_t tile, int steps) const
    {
        const int own = (int)tile + pair / (TILE / 2);
#pragma unroll 1
        for (int k = 0; k < 8; k++) {
            if (!has(k, steps)) continue;
            const int channel = quad + k % 4, at = (2 * pair + k / 4) * args.scan.block_channels + channel;
            TwoSteps &step = tiles.step[pair][place_of_column(channel)];
            const float size = softplus_of_any(widen(tiles.raw.delta[at]) + tiles.bias[channel]);
            const float input = size * widen(tiles.raw.x[at]), du = has_gradients() ? load_du(at) : 0;
            step.delta[k / 4] = size;
            step.input[k / 4] = input;
            if (!is_tame(size, input)) atomicMin(&tiles.first[channel], own);
            if (!is_tame(size, du)) atomicOr(&tiles.wild[channel], RL_S6_BACK_WILD_GRADIENTS);
        }
    }

    /* Answers the sum of their sizes. */
    __device__ float prepare_gradients(int steps) const
    {
        float du[8], sum = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const Quad<T> raw = quad_of(tiles.raw.dy, i);
#pragma unroll
            for (int c = 0; c < 4; c++) du[i * 4 + c] = widen(raw.get(c));
            if (!gated) continue;
            const Quad<T> gates = quad_of(tiles.raw.z, i);
#pragma unroll
            for (int c = 0; c < 4; c++) du[i * 4 + c] *= gate(widen(gates.get(c)));
        }
        if (!has_all(steps)) {
#pragma unroll
            for (int k = 0; k < 8; k++) du[k] = has(k, steps) ? du[k] : 0;
        }
#pragma unroll
        for (int k = 0; k < 8; k++) sum += fabsf(du[k]);
        float2 *const to = (float2 *)tiles.du[pair / 2] + (pair & 1);
#pragma unroll
        for (int c = 0; c < 4; c++) to[2 * place_of_column(quad + c)] = make_float2(du[c], du[4 + c]);
        return sum;
    }

    /* A quad of B or C.  Answers its largest number, as bits: a NaN is larger than all. */
    __device__ static unsigned put_states(const U *from, bool given, float *to)
    {
        const Quad<U> raw = IN_PLACE ? *(const Quad<U> *)to : *(const Quad<U> *)from;
        Four<float> four;
        unsigned largest = 0;
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            four.state[k] = given ? widen(raw.get(k)) : 0;
            const unsigned bits = __float_as_uint(four.state[k]) & 0x7fffffffu;
            largest = bits > largest ? bits : largest;
        }
        if (!IN_PLACE || !given) *(Four<float> *)to = four;
        if (IN_PLACE && !given) shared_publish(); /* the copy engine writes there next */
        return largest;
    }

    __device__ void prepare_states(int64_t tile, int steps) const
    {
        constexpr int QUADS = SPAN * LANES;
        const int stage = stage_of(tile);
        if (!IN_PLACE || steps < SPAN || args.scan.states < PANEL)
            for (int i = threadIdx.x; i < QUADS; i += blockDim.x)
                put_states(tiles.raw.B + i * STATES, is_given(i, steps), tiles.B[stage] + i * STATES);
        if (!has_gradients()) return;
        for (int i = (threadIdx.x + blockDim.x / 2) % blockDim.x; i < QUADS; i += blockDim.x) {
            const unsigned largest =
                put_states(tiles.raw.C + i * STATES, is_given(i, steps), tiles.C[stage] + i * STATES);
            note_largest(tile, 1, largest);
        }
    }
    __device__ bool is_given(int quad, int steps) const
    {
        return quad / LANES < steps && quad % LANES * STATES < args.scan.states;
    }
    /* Of a warp's numbers of du (0) or C. */
    __device__ void note_largest(int64_t tile, int which, unsigned bits) const
    {
        bits = __reduce_max_sync(~0u, bits);
        if (threadIdx.x % 32 == 0) atomicMax(&tiles.largest[tile / 2 & 1][which], bits);
    }

    /* What does not exist becomes zeros: it does nothing.  Answers the sum of the gradients' sizes. */
    __device__ float prepare_steps(int64_t tile, int steps)
    {
        const Four<float> bias = *(const Four<float> *)&tiles.bias[quad];
        float size[8], input[8], most = 0, sum = 0, sum_du = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const Quad<U> delta = quad_of(tiles.raw.delta, i);
            const Quad<T> x = quad_of(tiles.raw.x, i);
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const int k = i * 4 + c;
                const float raw = widen(delta.get(c)) + bias.state[c];
                most = fmaxf(most, fabsf(raw));
                size[k] = softplus_of_small(raw);
                input[k] = size[k] * widen(x.get(c));
            }
        }
        if (!has_all(steps)) {
#pragma unroll
            for (int k = 0; k < 8; k++)
                if (!has(k, steps)) size[k] = input[k] = 0;
        }
#pragma unroll
        for (int k = 0; k < 8; k++) sum += fabsf(input[k]);
#pragma unroll
        for (int c = 0; c < 4; c++)
            tiles.step[pair][place_of_column(quad + c)] = {{size[c], size[4 + c]}, {input[c], input[4 + c]}};
        if (has_gradients()) sum_du = prepare_gradients(steps);
        if (!(most <= SMALL && sum + sum_du <= Limits<float>::tame)) prepare_any(tile, steps);
        return sum_du;
    }

    /* Turns what has been copied into the stage. */
    __device__ void prepare(int64_t tile, int steps)
    {
        take_seat();
        const float sum = prepare_steps(tile, steps);
        prepare_states(tile, steps);
        if (has_gradients()) note_largest(tile, 0, __float_as_uint(sum));
    }

    /* What a span makes of zero. */
    struct Local {
        float h[STATES], product[STATES], gradient[STATES], sum;
    };

    /* A tile forward and, where it goes on, the way back. */
    template <bool going> __device__ void walk_tile(int stage, int half, Local &local) const
    {
        const TwoSteps *pairs = &tiles.step[half * TILE / 2][place_of_column(column)];
        const Four<float> *gradients = &tiles.du[half * TILE / PART][place_of_column(column)];
        const float *b_row = tiles.B[stage] + half * TILE * PANEL + lane * STATES;
        const float *c_row = tiles.C[stage] + half * TILE * PANEL + lane * STATES;
#pragma unroll 2
        for (int part = 0; part < TILE / PART; part++) {
            const TwoSteps two[2] = {pairs[0], pairs[COLUMNS]};
            Four<float> du = {};
            if (going) du = *gradients;
#pragma unroll
            for (int t = 0; t < PART; t++) {
                const float size = two[t / 2].delta[t % 2], input = two[t / 2].input[t % 2];
                const Four<float> b = *(const Four<float> *)(b_row + t * PANEL);
                Four<float> c = {};
                if (going) c = *(const Four<float> *)(c_row + t * PANEL);
                local.sum += size;
#pragma unroll
                for (int k = 0; k < STATES; k++) {
                    const float decay = rough_decay(size, rate[k]);
                    local.h[k] = fmaf(decay, local.h[k], input * b.state[k]);
                    if (!going) continue;
                    local.product[k] *= decay;
                    local.gradient[k] = fmaf(local.product[k], du.state[t] * c.state[k], local.gradient[k]);
                }
            }
            pairs += PART / 2 * COLUMNS;
            gradients += COLUMNS;
            b_row += PART * PANEL;
            c_row += PART * PANEL;
        }
    }

    /* States as the walk back holds them: slot i is state i ^ order. */
    __device__ void store_states(float *to, const float (&from)[STATES]) const
    {
        Four<float> four;
        float turned[STATES];
#pragma unroll
        for (int k = 0; k < STATES; k++) turned[k] = order & 1 ? from[k ^ 1] : from[k];
#pragma unroll
        for (int k = 0; k < STATES; k++) four.state[k] = order & 2 ? turned[k ^ 2] : turned[k];
        *(Four<float> *)to = four;
    }
    /* Numbers from row to row of such, and the thread's first. */
    __device__ int64_t row_size() const
    {
        return args.scan.blocks * blockDim.x * STATES;
    }
    __device__ int64_t place(int64_t row) const
    {
        const int own = (column / WARP_COLUMNS & 1) ^ lane / 2;
        const int thread = column / WARP * 32 + (int)(threadIdx.x & 31);
        return row * row_size() + ((block.number * OWN + own) * (int)(blockDim.x / OWN) + thread) * STATES;
    }

    /* Whether a span may change a bit of what runs against time, for any chain of the warp. */
    __device__ bool may_change(int parity, const float (&before)[STATES]) const
    {
        const unsigned *const bits = tiles.largest[parity]; /* of two steps' gradients together */
        const float largest = (float)PAIRS * __uint_as_float(bits[0]) * __uint_as_float(bits[1]);
        bool may = false;
#pragma unroll
        for (int k = 0; k < STATES; k++) may = may || !(before[k] * largest <= 0x1p-27f * fabsf(back[k]));
        return __any_sync(~0u, may && exists() && lane * STATES < args.scan.states);
    }

    __device__ void keep(int64_t tile, const float (&states)[STATES], float sum)
    {
        kept += row_size();
        sums += args.scan.channels;
        if (tile >= chunk.tiles) return;
        store_states(kept, states);
        if (lane == 0 && exists()) *sums = sum;
    }

    /* Answers its sum of step sizes. */
    __device__ float walk_span(int64_t tile)
    {
        Local local = {};
        float before[STATES];
        bool going = false;
        if (backs) {
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                local.product[k] = 1;
                before[k] = distant_decay(rate[k], deltas);
            }
            going = may_change(tile / 2 & 1, before);
        }
#pragma unroll 1
        for (int half = 0; half < 2; half++) {
            if (going)
                walk_tile<true>(stage_of(tile), half, local);
            else
                walk_tile<false>(stage_of(tile), half, local);
            if (half) break;
            float middle[STATES];
#pragma unroll
            for (int k = 0; k < STATES; k++) middle[k] = fmaf(distant_decay(rate[k], local.sum), h[k], local.h[k]);
            keep(tile + 1, middle, deltas + local.sum);
        }
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            h[k] = fmaf(long_decay(rate[k], local.sum), h[k], local.h[k]);
            if (going) back[k] = fmaf(before[k], local.gradient[k], back[k]);
        }
        deltas += local.sum;
        keep(tile + 2, h, deltas);
        return local.sum;
    }

    __device__ void begin()
    {
        const int64_t row = chunk.kept;
        const int quads = args.scan.block_channels / 4;
        tiles.seat[threadIdx.x] = (int)threadIdx.x / quads << 8 | (int)threadIdx.x % quads * 4;
        kept = (float *)args.kept + place(row);
        sums = (float *)args.kept_sums + row * args.scan.channels + channel();
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            const int64_t state = lane * STATES + k;
            rate[k] = exists() && state < args.scan.states ? rate_of(load_A<float>(args.scan, channel(), state)) : 0;
        }
        for (int k = threadIdx.x; k < args.scan.block_channels; k += blockDim.x) {
            const bool given = k < block.channels && args.scan.bias.data;
            tiles.bias[k] =
                given ? ((const float *)args.scan.bias.data)[(block.channel + k) * args.scan.bias.stride] : 0.0f;
            tiles.first[k] = RL_S6_BACK_NONE;
            tiles.wild[k] = 0;
        }
        if (threadIdx.x < 4) (&tiles.largest[0][0])[threadIdx.x] = 0;
    }

    /* `parity`: of the barrier's phase. */
    __device__ void run(uint32_t &parity)
    {
        double total = 0;
        begin();
        __syncthreads(); /* notes are clear */
        if (chunk.tiles > 0 && threadIdx.x == 0) copy(0);
        for (int64_t tile = 0; tile < chunk.tiles; tile += 2) {
            const int64_t left = chunk.piece.count - tile * TILE;
            barrier_wait(&tiles.copied, parity);
            parity ^= 1;
            __syncthreads(); /* all have left the stage before */
            prepare(tile, left < SPAN ? (int)left : SPAN);
            __syncthreads(); /* the stage is prepared, and what has been copied is used up */
            if (left > SPAN && threadIdx.x == 0) copy(tile + 2);
            if (threadIdx.x < 2) tiles.largest[(tile / 2 & 1) ^ 1][threadIdx.x] = 0;
            total += walk_span(tile);
        }
        __syncthreads(); /* notes are complete */
        finish(total);
    }

    __device__ void finish(double total) const
    {
        const int64_t row = chunk.piece.sequence * args.scan.chunks + chunk.piece.chunk;
        if (split) {
            store_states((float *)args.ends + place(row), h);
            store_states((float *)args.backs + place(row), back);
            if (lane == 0 && exists()) args.step_sums[row * args.scan.channels + channel()] = total;
        }
        for (int k = threadIdx.x; k < block.channels; k += blockDim.x)
            args.wild[row * args.scan.channels + block.channel + k] = tiles.first[k] | tiles.wild[k];
    }
};

template <typename T, typename U, bool gated>
__global__ void __launch_bounds__(THREADS_OF_ALL, 3)
    summary_kernel(const __grid_constant__ rl_s6_back_summary_args args)
{
    Tiles<T, U> &tiles = *reinterpret_cast<Tiles<T, U> *>(dynamic_shared);
    if (threadIdx.x == 0) {
        barrier_init(&tiles.copied, 1);
        barrier_publish();
    }
    uint32_t parity = 0;
    await_earlier();
    let_later_start();
    const int64_t pieces = args.back.scan.sequences * args.back.scan.blocks;
    for (int64_t task = blockIdx.x; task < args.back.scan.tasks; task += gridDim.x) {
        /* The first chunks, which are less work, come last. */
        const int64_t chunks_before = task / pieces, piece = task - chunks_before * pieces;
        const int64_t sequence = piece / args.back.scan.blocks;
        const Block block = locate_block(args.back.scan, piece - sequence * args.back.scan.blocks);
        const Chunk chunk = locate_chunk(args.back.scan, sequence, args.back.scan.chunks - 1 - chunks_before);
        Summary<T, U, gated>(args, chunk, block, tiles).run(parity);
        __syncthreads(); /* before the next task clears the notes */
    }
}

} // namespace

const void *rl_s6_back_summary_neat_kernel(rl_s6_back_form form, bool gated)
{
    if (form == RL_S6_BACK_NEAT_BF16)
        return gated ? kernel_address<summary_kernel<bf16, bf16, true>>()
                     : kernel_address<summary_kernel<bf16, bf16, false>>();
    if (form == RL_S6_BACK_NEAT_MIXED)
        return gated ? kernel_address<summary_kernel<bf16, float, true>>()
                     : kernel_address<summary_kernel<bf16, float, false>>();
    return gated ? kernel_address<summary_kernel<float, float, true>>()
                 : kernel_address<summary_kernel<float, float, false>>();
}

size_t rl_s6_back_summary_neat_shared(rl_s6_back_form form)
{
    return form == RL_S6_BACK_NEAT_BF16    ? sizeof(Tiles<bf16, bf16>)
           : form == RL_S6_BACK_NEAT_MIXED ? sizeof(Tiles<bf16, float>)
                                           : sizeof(Tiles<float, float>);
}
