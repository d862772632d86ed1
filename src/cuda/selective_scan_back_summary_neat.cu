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
constexpr float HIDDEN = 0x1.fp-26f; /* what is no more of a number rounds away when it is added */
constexpr int PART = 4;              /* steps whose δ and du are read at a time */
static_assert(RL_S6_BACK_SUMMARY_THREADS * 4 == PAIRS, "a thread prepares four channels of two steps");

#include "selective_scan_back_summary_stage.cuh"

template <typename T, typename U, bool gated> struct Summary : Stager<T, U, gated> {
    using Base = Stager<T, U, gated>;
    using Base::args, Base::chunk, Base::block, Base::tiles, Base::split, Base::backs, Base::stage_of;

    int lane, order, column;
    float rate[STATES], h[STATES], back[STATES], deltas;
    float *kept, *sums; /* of the tile that is walked */

    __device__ Summary(const rl_s6_back_summary_args &args, const Chunk &chunk, const Block &block,
                       Tiles<T, U> &tiles)
        : Base(args, chunk, block, tiles), h{}, back{}, deltas(0)
    {
        const int in_warp = threadIdx.x & 31;
        lane = in_warp / 2 % LANES;
        order = in_warp / 8;
        column = threadIdx.x / 32 * WARP_COLUMNS + in_warp % 2 + 2 * order;
    }

    __device__ bool exists() const
    {
        return column < block.channels;
    }
    __device__ int64_t channel() const
    {
        return block.channel + column;
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
        const int own = (column / WARP_COLUMNS & 1) ^ lane / 2, threads = (int)blockDim.x / OWN;
        const int thread = column / WARP * 32 + (int)(threadIdx.x & 31);
        return row * row_size() + ((block.number * OWN + own) * threads + thread) * STATES;
    }

    /* Whether a span may change a bit of what runs against time, for any chain of the warp. */
    __device__ bool may_change(int parity, const float (&decay)[STATES]) const
    {
        const unsigned *const bits = tiles.largest[parity]; /* of two steps' gradients together */
        const float largest = (float)PAIRS * __uint_as_float(bits[0]) * __uint_as_float(bits[1]);
        bool may = false;
#pragma unroll
        for (int k = 0; k < STATES; k++) may = may || !(decay[k] * largest <= HIDDEN * fabsf(back[k]));
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
        float decay[STATES];
        bool going = false;
        if (backs) {
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                local.product[k] = 1;
                decay[k] = distant_decay(rate[k], deltas);
            }
            going = may_change(tile / 2 & 1, decay);
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
            if (going) back[k] = fmaf(decay[k], local.gradient[k], back[k]);
        }
        deltas += local.sum;
        keep(tile + 2, h, deltas);
        return local.sum;
    }

    __device__ void begin()
    {
        const int64_t row = chunk.kept;
        kept = (float *)args.kept + place(row);
        sums = (float *)args.kept_sums + row * args.scan.channels + channel();
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            const int64_t state = lane * STATES + k;
            rate[k] = exists() && state < args.scan.states ? rate_of(load_A<float>(args.scan, channel(), state)) : 0;
        }
        this->begin_stage();
    }

    /* `parity`: of the barrier's phase. */
    __device__ void run(uint32_t &parity)
    {
        double total = 0;
        begin();
        __syncthreads(); /* notes are clear */
        if (chunk.tiles > 0 && threadIdx.x == 0) this->copy(0);
        for (int64_t tile = 0; tile < chunk.tiles; tile += 2) {
            const int64_t left = chunk.piece.count - tile * TILE;
            barrier_wait(&tiles.copied, parity);
            parity ^= 1;
            __syncthreads(); /* all have left the stage before */
            this->prepare(tile, left < SPAN ? (int)left : SPAN);
            __syncthreads(); /* the stage is prepared, and what has been copied is used up */
            if (left > SPAN && threadIdx.x == 0) this->copy(tile + 2);
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
