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

constexpr int SPAN = 2 * TILE; /* steps that are walked from zero: two tiles of the walk back */

template <typename Acc> struct Tiles {
    Step<Acc> step[SPAN][CHANNELS<Acc>];
    alignas(16) Acc B[SPAN][ORDERS][PANEL], C[SPAN][ORDERS][PANEL];
    Parameters<Acc> vectors;
    int flags[CHANNELS<Acc>], first[CHANNELS<Acc>]; /* the first tile with a wild state */
    Rows rows[2];                                   /* of a span and the next */
    int64_t stride[TENSORS];
    int seat[THREADS<Acc>];
};

/* `split`: there are chunks; else sequences are whole, and only the states before their tiles are wanted. */
template <typename Acc, bool split, int form> struct Summary {
    using Prepares = Preparer<Acc, SPAN, false, form>;

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
        return lane.state_of(panel, k);
    }
    __device__ bool has(int own, int panel, int k) const
    {
        return lane.column_of(own) < block.channels && state(panel, k) < args.scan.states;
    }
    __device__ int64_t end_row() const
    {
        return chunk.piece.sequence * args.scan.chunks + chunk.piece.chunk;
    }
    __device__ void store_states(void *to, int64_t row, int panel, const Acc (&from)[OWN][STATES]) const
    {
        Acc *const first = (Acc *)to + place_of(args.scan, block, row, panel);
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            Four<Acc> four;
#pragma unroll
            for (int k = 0; k < STATES; k++) four.state[k] = from[j][k];
            *(Four<Acc> *)(first + j * place_step()) = four;
        }
    }

    __device__ void load_panel(int64_t tile, int panel)
    {
        const Acc *const kept = (const Acc *)args.kept + place_of(args.scan, block, chunk.kept + tile, panel);
        const Acc *const backs = (const Acc *)args.backs + place_of(args.scan, block, end_row(), panel);
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                rate[j][k] = h[j][k] = back[j][k] = 0;
                if (!has(j, panel, k)) continue;
                rate[j][k] = rate_of(load_A<Acc>(args.scan, channel(j), state(panel, k)));
                if (tile == 0) continue;
                h[j][k] = kept[j * place_step() + k];
                if (split) back[j][k] = backs[j * place_step() + k];
            }
    }

    /* After a span; `leave`: what runs against time is in memory from here on. */
    __device__ void store_panel(int64_t next, int panel, bool leave) const
    {
        if (next < chunk.tiles) store_states(args.kept, chunk.kept + next, panel, h);
        if (split && next >= chunk.tiles) store_states(args.ends, end_row(), panel, h);
        if (split && leave) store_states(args.backs, end_row(), panel, back);
    }

    /* What a span has made of zero. */
    struct Local {
        Acc h[OWN][STATES], product[OWN][STATES], gradient[OWN][STATES], sum[OWN];
    };

    template <bool backs> __device__ void walk_tile(int first, Local &local) const
    {
#pragma unroll 4
        for (int t = first; t < first + TILE; t++) {
            const Four<Acc> b = *(const Four<Acc> *)&tiles.B[t][lane.order][lane.lane * STATES];
            Four<Acc> c = {};
            if (backs) c = *(const Four<Acc> *)&tiles.C[t][lane.order][lane.lane * STATES];
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                const Step<Acc> step = tiles.step[t][slot_of(lane.column_of(j))];
                local.sum[j] += step.delta;
#pragma unroll
                for (int k = 0; k < STATES; k++) {
                    const Acc decay = decay_of(step.delta, rate[j][k]);
                    local.h[j][k] = fma(decay, local.h[j][k], step.input * b.state[k]);
                    if (!backs) continue;
                    local.product[j][k] *= decay;
                    local.gradient[j][k] = fma(local.product[j][k], step.du * c.state[k], local.gradient[j][k]);
                }
            }
        }
    }

    __device__ void store_sums(int64_t tile, const Acc (&sum)[OWN]) const
    {
#pragma unroll
        for (int j = 0; j < OWN; j++)
            if (lane.lane == 0 && lane.column_of(j) < block.channels)
                ((Acc *)args.kept_sums)[(chunk.kept + tile) * args.scan.channels + channel(j)] = deltas[j] + sum[j];
    }

    /* The states between the span's two tiles, which begins at `tile`. */
    __device__ void store_middle(int64_t tile, int panel, const Local &local) const
    {
        Acc middle[OWN][STATES];
        if (tile + 1 >= chunk.tiles) return;
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++)
                middle[j][k] = fma(distant_decay(rate[j][k], local.sum[j]), h[j][k], local.h[j][k]);
        store_states(args.kept, chunk.kept + tile + 1, panel, middle);
        if (panel == 0) store_sums(tile + 1, local.sum);
    }

    /* A span from zero, then joined to what came before it; leaves its sums of step sizes. */
    template <bool backs> __device__ void walk(int64_t tile, int panel, Acc (&sum)[OWN])
    {
        Local local = {};
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) local.product[j][k] = 1;
        walk_tile<backs>(0, local);
        store_middle(tile, panel, local);
        if (tile + 1 < chunk.tiles) walk_tile<backs>(TILE, local);
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            sum[j] = local.sum[j];
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                h[j][k] = fma(long_decay(rate[j][k], sum[j]), h[j][k], local.h[j][k]);
                if (backs) back[j][k] = fma(distant_decay(rate[j][k], deltas[j]), local.gradient[j][k], back[j][k]);
            }
        }
    }

    /* Two tiles of the walk back, the first of which is `tile`. */
    __device__ void run_span(int64_t tile, double (&total)[OWN])
    {
        const bool backs = split && chunk.piece.chunk > 0; /* nobody asks for that of a sequence's first chunk */
        const Prepares preparer(args, block, tiles.seat[threadIdx.x], backs);
        const int64_t left = chunk.piece.count - tile * TILE;
        const int steps = left < SPAN ? (int)left : SPAN, parity = tile / 2 & 1;
        const int panels = has_one_panel(form) ? 1 : args.scan.panels;
        const bool resident = panels == 1, last = left <= SPAN; /* states stay in registers from span to span */
        const Rows &rows = tiles.rows[parity];
        Acc sum[OWN];
        for (int panel = 0; panel < panels; panel++) {
            const Raw<Acc> input = preparer.fetch_input(rows, steps, panel, preparer.thread);
            if (panel == 0) {
                typename Prepares::Fetched fetched;
                preparer.fetch_steps(rows, steps, fetched);
                preparer.put_steps(fetched, tiles.vectors, steps, tiles.step, tiles.flags);
            }
            preparer.template put_inputs<ORDERS>(input, rows, steps, panel, tiles.B, tiles.C);
            if (panel == 0) preparer.look_ahead(rows, SPAN, left - SPAN);
            __syncthreads(); /* the stage is prepared */
            if (panel == 0) note_wild(tile);
            if (panel == 0) tiles.rows[parity ^ 1].move(rows, tiles.stride, SPAN);
            if (!resident || tile == 0) load_panel(tile, panel);
            if (backs)
                walk<true>(tile, panel, sum);
            else
                walk<false>(tile, panel, sum);
            store_panel(tile + 2, panel, !resident || last);
            __syncthreads(); /* all have left the stage */
        }
        if (!last) store_sums(tile + 2, sum);
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            deltas[j] += sum[j];
            total[j] += sum[j];
        }
    }

    __device__ void run()
    {
        double total[OWN] = {};
        tiles.vectors.load(args.scan, block);
        find_strides(args, tiles.stride);
        tiles.seat[threadIdx.x] = find_seat(args.scan);
        tiles.rows[0].find(args, block, chunk.piece, 0);
        for (int k = threadIdx.x; k < args.scan.block_channels; k += blockDim.x) {
            tiles.flags[k] = 0;
            tiles.first[k] = RL_S6_BACK_NONE;
        }
        __syncthreads(); /* flags are clear, and the first rows are known */
        for (int panel = 0; panel < args.scan.panels && split && chunk.tiles == 0; panel++) {
            load_panel(0, panel);
            store_panel(0, panel, true);
        }
        for (int64_t tile = 0; tile < chunk.tiles; tile += 2) run_span(tile, total);
        note(total);
    }

    /* A thread notes its own channel alone: it meets its note again. */
    __device__ void note_wild(int64_t tile)
    {
        const int k = threadIdx.x;
        if (k >= block.channels || tiles.first[k] != RL_S6_BACK_NONE) return;
        const int flags = tiles.flags[k];
        if (!(flags & (STATES_WILD | STATES_WILD << 2))) return;
        if (!(flags & STATES_WILD)) tile++;
        tiles.first[k] = tile < RL_S6_BACK_NONE ? (int)tile : RL_S6_BACK_NONE - 1;
    }

    __device__ void note(const double (&total)[OWN])
    {
        const int64_t at = end_row() * args.scan.channels;
        for (int j = 0; j < OWN && split; j++)
            if (lane.lane == 0 && lane.column_of(j) < block.channels) args.step_sums[at + channel(j)] = total[j];
        const int k = threadIdx.x;
        if (k >= block.channels) return;
        args.wild[at + block.channel + k] =
            tiles.first[k] |
            (tiles.flags[k] & (GRADIENTS_WILD | GRADIENTS_WILD << 2) ? RL_S6_BACK_WILD_GRADIENTS : 0);
    }
};

template <typename Acc, bool split, int form>
__global__ void __launch_bounds__(THREADS<Acc>, sizeof(Acc) == 4 ? 4 : 2)
    summary_kernel(const __grid_constant__ rl_s6_back_args args)
{
    Tiles<Acc> &tiles = *reinterpret_cast<Tiles<Acc> *>(dynamic_shared);
    await_earlier();
    let_later_start();
    for (int64_t task = blockIdx.x; task < args.scan.tasks; task += gridDim.x) {
        const int64_t piece = task / args.scan.blocks, sequence = piece / args.scan.chunks;
        const Block block = locate_block(args.scan, task - piece * args.scan.blocks);
        const Chunk chunk = locate_chunk(args.scan, sequence, piece - sequence * args.scan.chunks);
        Summary<Acc, split, form>(args, chunk, block, tiles).run();
        __syncthreads(); /* before the next task clears the flags */
    }
}

template <bool split> const void *kernel_of(bool f64, rl_s6_back_form form)
{
    if (f64) return kernel_address<summary_kernel<double, split, RL_S6_BACK_ANY>>();
    switch (form) {
    case RL_S6_BACK_NEAT_F32:
        return kernel_address<summary_kernel<float, split, RL_S6_BACK_NEAT_F32>>();
    case RL_S6_BACK_NEAT_BF16:
        return kernel_address<summary_kernel<float, split, RL_S6_BACK_NEAT_BF16>>();
    case RL_S6_BACK_NEAT:
        return kernel_address<summary_kernel<float, split, RL_S6_BACK_NEAT>>();
    default:
        return kernel_address<summary_kernel<float, split, RL_S6_BACK_ANY>>();
    }
}

} // namespace

const void *rl_s6_back_summary_kernel(bool f64, bool split, rl_s6_back_form form)
{
    return split ? kernel_of<true>(f64, form) : kernel_of<false>(f64, form);
}

size_t rl_s6_back_summary_shared(bool f64)
{
    return f64 ? sizeof(Tiles<double>) : sizeof(Tiles<float>);
}
