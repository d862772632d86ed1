/*
 * The first kernel of the selective scan's gradients (selective_scan_back.cuh): what each chunk does to a state and
 * to a gradient that runs against time.  With P_t the product of the decays from the chunk's first step to t,
 *
 *     h after the chunk           = P_last h_before + local       local  = the recurrence from zero
 *     gradient before the chunk   = P_last G_after  + back        back   = Σ P_t du_t C_t
 *
 * so that one walk forward, with one exponential a step, gives both.  Tiles are walked from zero each and joined by
 * exp(A Σδ), with accurate exponentials: errors of the rough ones last no longer than a tile.
 */
#include <machine/kernel.cuh>

#include "s6_back_kernels.h"
#include "selective_scan_back.cuh"

using namespace selective_scan_back;

namespace
{

template <typename Acc> struct Tiles {
    Step<Acc> step[TILE][CHANNELS<Acc>];
    alignas(16) Acc B[TILE][1][PANEL], C[TILE][1][PANEL];
    int flags[CHANNELS<Acc>], first[CHANNELS<Acc>]; /* the first tile with a wild state */
};

/* `split`: there are chunks; else sequences are whole, and only the states before their tiles are wanted. */
template <typename Acc, bool split> struct Summary {
    const rl_s6_back_args &args;
    const Chunk &chunk;
    const Block &block;
    Tiles<Acc> &tiles;
    Lane lane;
    Acc rate[OWN][STATES], h[OWN][STATES], back[OWN][STATES], deltas[OWN];

    __device__ Summary(const rl_s6_back_args &args, const Chunk &chunk, const Block &block, Tiles<Acc> &tiles)
        : args(args), chunk(chunk), block(block), tiles(tiles)
    {
#pragma unroll
        for (int j = 0; j < OWN; j++) deltas[j] = 0;
    }
    __device__ int64_t channel(int own) const
    {
        return block.channel + lane.column_of(own);
    }
    __device__ int64_t state(int panel, int k) const
    {
        return (int64_t)panel * PANEL + lane.lane * STATES + k;
    }
    __device__ bool has(int own, int panel, int k) const
    {
        return lane.column_of(own) < block.channels && state(panel, k) < args.scan.states;
    }
    /* Where a state lies in an array by row, channel and state. */
    __device__ int64_t place(int64_t row, int own, int panel, int k) const
    {
        return (row * args.scan.channels + channel(own)) * args.scan.states + state(panel, k);
    }
    __device__ int64_t end_row() const
    {
        return chunk.piece.sequence * args.scan.chunks + chunk.piece.chunk;
    }

    __device__ void load_panel(int64_t tile, int panel)
    {
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                rate[j][k] = h[j][k] = back[j][k] = 0;
                if (!has(j, panel, k)) continue;
                rate[j][k] = rate_of(load_A<Acc>(args.scan, channel(j), state(panel, k)));
                if (tile == 0) continue;
                h[j][k] = ((const Acc *)args.kept)[place(chunk.kept + tile, j, panel, k)];
                if (split) back[j][k] = ((const Acc *)args.backs)[place(end_row(), j, panel, k)];
            }
    }

    __device__ void store_panel(int64_t tile, int panel, bool leave)
    {
        const bool last = tile + 1 == chunk.tiles;
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                if (!has(j, panel, k)) continue;
                if (!last) ((Acc *)args.kept)[place(chunk.kept + tile + 1, j, panel, k)] = h[j][k];
                if (split && last) ((Acc *)args.ends)[place(end_row(), j, panel, k)] = h[j][k];
                if (split && leave) ((Acc *)args.backs)[place(end_row(), j, panel, k)] = back[j][k];
            }
    }

    /* A tile from zero, then joined to what came before it; returns its sums of step sizes. */
    __device__ void walk(Acc (&sum)[OWN])
    {
        Acc local[OWN][STATES] = {}, product[OWN][STATES], gradient[OWN][STATES] = {};
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            sum[j] = 0;
#pragma unroll
            for (int k = 0; k < STATES; k++) product[j][k] = 1;
        }
#pragma unroll 4
        for (int t = 0; t < TILE; t++) {
            const Four<Acc> b = *(const Four<Acc> *)&tiles.B[t][0][lane.lane * STATES];
            Four<Acc> c = {};
            if (split) c = *(const Four<Acc> *)&tiles.C[t][0][lane.lane * STATES];
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                const Step<Acc> step = tiles.step[t][lane.column_of(j)];
                sum[j] += step.delta;
#pragma unroll
                for (int k = 0; k < STATES; k++) {
                    const Acc decay = decay_of(step.delta, rate[j][k]);
                    local[j][k] = fma(decay, local[j][k], step.input * b.state[k]);
                    if (!split) continue;
                    product[j][k] *= decay;
                    gradient[j][k] = fma(product[j][k], step.du * c.state[k], gradient[j][k]);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                h[j][k] = fma(long_decay(rate[j][k], sum[j]), h[j][k], local[j][k]);
                if (split) back[j][k] = fma(long_decay(rate[j][k], deltas[j]), gradient[j][k], back[j][k]);
            }
    }

    __device__ void run()
    {
        const int panels = args.scan.panels;
        const bool resident = panels == 1; /* states stay in registers from tile to tile */
        Preparer<Acc, false> preparer(args, block);
        double total[OWN] = {};
        for (int k = threadIdx.x; k < args.scan.block_channels; k += blockDim.x) {
            tiles.flags[k] = 0;
            tiles.first[k] = RL_S6_BACK_NONE;
        }
        if (chunk.tiles == 0) leave_nothing();
        for (int64_t tile = 0; tile < chunk.tiles; tile++) {
            Acc sum[OWN];
            for (int panel = 0; panel < panels; panel++) {
                __syncthreads(); /* flags are clear, and all have left the tiles of the stage before */
                if (panel == 0) preparer.put_steps(chunk.piece, tile * TILE, tiles.step, tiles.flags);
                preparer.template put_inputs<1>(chunk.piece, tile * TILE, panel, tiles.B, tiles.C);
                if (panel == 0) preparer.look_ahead(chunk.piece, (tile + 1) * TILE);
                __syncthreads(); /* the stage is prepared */
                if (panel == 0) note_wild(tile);
                if (!resident || tile == 0) load_panel(tile, panel);
                walk(sum);
                store_panel(tile, panel, !resident || tile + 1 == chunk.tiles);
            }
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                deltas[j] += sum[j];
                total[j] += sum[j];
                if (tile + 1 < chunk.tiles && lane.lane == 0 && lane.column_of(j) < block.channels)
                    ((Acc *)args.kept_sums)[(chunk.kept + tile + 1) * args.scan.channels + channel(j)] = deltas[j];
            }
        }
        note(total);
    }

    /* A thread notes its own channel alone: it meets its note again. */
    __device__ void note_wild(int64_t tile)
    {
        const int k = threadIdx.x;
        if (k >= block.channels || !(tiles.flags[k] & STATES_WILD) || tiles.first[k] != RL_S6_BACK_NONE) return;
        tiles.first[k] = tile < RL_S6_BACK_NONE ? (int)tile : RL_S6_BACK_NONE - 1;
    }

    __device__ void leave_nothing()
    {
        __syncthreads(); /* flags are clear */
        for (int panel = 0; panel < args.scan.panels && split; panel++) {
            load_panel(0, panel);
            store_panel(-1, panel, true);
        }
    }

    __device__ void note(const double (&total)[OWN])
    {
        const int64_t at = end_row() * args.scan.channels;
        for (int j = 0; j < OWN && split; j++)
            if (lane.lane == 0 && lane.column_of(j) < block.channels) args.step_sums[at + channel(j)] = total[j];
        const int k = threadIdx.x;
        if (k >= block.channels) return;
        args.wild[at + block.channel + k] =
            tiles.first[k] | (tiles.flags[k] & GRADIENTS_WILD ? RL_S6_BACK_WILD_GRADIENTS : 0);
    }
};

template <typename Acc, bool split>
__global__ void __launch_bounds__(THREADS<Acc>, 2) summary_kernel(const __grid_constant__ rl_s6_back_args args)
{
    Tiles<Acc> &tiles = *reinterpret_cast<Tiles<Acc> *>(dynamic_shared);
    for (int64_t task = blockIdx.x; task < args.scan.tasks; task += gridDim.x) {
        const int64_t piece = task / args.scan.blocks, sequence = piece / args.scan.chunks;
        const Block block = locate_block(args.scan, task - piece * args.scan.blocks);
        const Chunk chunk = locate_chunk(args.scan, sequence, piece - sequence * args.scan.chunks);
        Summary<Acc, split>(args, chunk, block, tiles).run();
        __syncthreads(); /* before the next task clears the flags */
    }
}

} // namespace

const void *rl_s6_back_summary_kernel(bool f64, bool split)
{
    if (f64)
        return split ? kernel_address<summary_kernel<double, true>>()
                     : kernel_address<summary_kernel<double, false>>();
    return split ? kernel_address<summary_kernel<float, true>>() : kernel_address<summary_kernel<float, false>>();
}

size_t rl_s6_back_summary_shared(bool f64)
{
    return f64 ? sizeof(Tiles<double>) : sizeof(Tiles<float>);
}
