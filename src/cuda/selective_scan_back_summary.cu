/*
 * The first kernel of the selective scan's gradients (selective_scan_back.cuh): what each chunk does to a state and
 * to a gradient that runs against time.  With P_t the product of the decays from the chunk's first step to t,
 *
 *     h after the chunk           = P_last h_before + local       local  = the recurrence from zero
 *     gradient before the chunk   = P_last G_after  + back        back   = Σ P_t du_t C_t
 *
 * so that one walk forward, with one exponential a step, gives both.  Tiles are walked from zero each and joined by
 * exp(A Σδ), with accurate exponentials: errors of the rough ones last no longer than a tile.
 *
 * What most calls bring has a kernel of its own, which does the same: selective_scan_back_summary_neat.cu.
 */
#include <machine/kernel.cuh>

#include "s6_back_kernels.h"
#include "selective_scan_back.cuh"

using namespace selective_scan_back;

namespace
{

constexpr int SPAN = 2 * TILE;   /* steps that are walked from zero: two tiles of the walk back */
constexpr int SUMMARY_ROWS = 16; /* of a span that a block prepares at a time */
template <typename Acc> constexpr int SUMMARY_THREADS = CHANNELS<Acc> *RL_S6_BACK_SUMMARY_THREADS;
static_assert(RL_S6_BACK_SUMMARY_THREADS == OWN * RL_S6_BACK_CHANNEL_THREADS, "one channel a thread");

template <typename Acc> struct Tiles {
    Step<Acc> step[SPAN][CHANNELS<Acc>];
    alignas(16) Acc B[SPAN][ORDERS][PANEL], C[SPAN][ORDERS][PANEL];
    Parameters<Acc> vectors;
    int flags[CHANNELS<Acc>], first[CHANNELS<Acc>]; /* the first tile with a wild state */
    RowsOf<SUMMARY_ROWS> rows[2];                   /* of a span and the next */
    int64_t stride[TENSORS];
    int seat[SUMMARY_THREADS<Acc>];
};

/* `split`: there are chunks; else sequences are whole, and only the states before their tiles are wanted. */
template <typename Acc, bool split, int form> struct Summary {
    using Prepares = Preparer<Acc, SPAN, false, form, SUMMARY_ROWS>;

    const rl_s6_back_args &args;
    const Chunk &chunk;
    const Block &block;
    Tiles<Acc> &tiles;
    int own, thread; /* the walk's thread whose channel `own` this one takes */
    Lane lane;
    Acc rate[STATES], h[STATES], back[STATES], deltas;

    __device__ Summary(const rl_s6_back_args &args, const Chunk &chunk, const Block &block, Tiles<Acc> &tiles)
        : args(args), chunk(chunk), block(block), tiles(tiles), own(threadIdx.x / (blockDim.x / OWN)),
          thread(threadIdx.x - own * (blockDim.x / OWN)), lane(thread), deltas(0)
    {
    }
    __device__ int column() const
    {
        return lane.column_of(own);
    }
    __device__ int64_t channel() const
    {
        return block.channel + column();
    }
    __device__ int64_t state(int panel, int k) const
    {
        return lane.state_of(panel, k);
    }
    __device__ bool has(int panel, int k) const
    {
        return column() < block.channels && state(panel, k) < args.scan.states;
    }
    __device__ int64_t end_row() const
    {
        return chunk.piece.sequence * args.scan.chunks + chunk.piece.chunk;
    }
    __device__ int64_t place(int64_t row, int panel) const
    {
        const int64_t threads = blockDim.x / OWN;
        return (((row * args.scan.blocks + block.number) * args.scan.panels + panel) * OWN + own) * threads * STATES +
               thread * STATES;
    }
    __device__ void store_states(void *to, int64_t row, int panel, const Acc (&from)[STATES]) const
    {
        Four<Acc> four;
#pragma unroll
        for (int k = 0; k < STATES; k++) four.state[k] = from[k];
        *(Four<Acc> *)((Acc *)to + place(row, panel)) = four;
    }

    __device__ void load_panel(int64_t tile, int panel)
    {
        const Acc *const kept = (const Acc *)args.kept + place(chunk.kept + tile, panel);
        const Acc *const backs = (const Acc *)args.backs + place(end_row(), panel);
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            rate[k] = h[k] = back[k] = 0;
            if (!has(panel, k)) continue;
            rate[k] = rate_of(load_A<Acc>(args.scan, channel(), state(panel, k)));
            if (tile == 0) continue;
            h[k] = kept[k];
            if (split) back[k] = backs[k];
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
        Acc h[STATES], product[STATES], gradient[STATES], sum;
    };

    template <bool backs> __device__ void walk_tile(int first, Local &local) const
    {
#pragma unroll 4
        for (int t = first; t < first + TILE; t++) {
            const Four<Acc> b = *(const Four<Acc> *)&tiles.B[t][lane.order][lane.lane * STATES];
            Four<Acc> c = {};
            if (backs) c = *(const Four<Acc> *)&tiles.C[t][lane.order][lane.lane * STATES];
            const Step<Acc> step = tiles.step[t][slot_of(column())];
            local.sum += step.delta;
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                const Acc decay = decay_of(step.delta, rate[k]);
                local.h[k] = fma(decay, local.h[k], step.input * b.state[k]);
                if (!backs) continue;
                local.product[k] *= decay;
                local.gradient[k] = fma(local.product[k], step.du * c.state[k], local.gradient[k]);
            }
        }
    }

    __device__ void store_sum(int64_t tile, Acc sum) const
    {
        if (lane.lane == 0 && column() < block.channels)
            ((Acc *)args.kept_sums)[(chunk.kept + tile) * args.scan.channels + channel()] = deltas + sum;
    }

    /* The states between the span's two tiles, which begins at `tile`. */
    __device__ void store_middle(int64_t tile, int panel, const Local &local) const
    {
        Acc middle[STATES];
        if (tile + 1 >= chunk.tiles) return;
#pragma unroll
        for (int k = 0; k < STATES; k++) middle[k] = fma(distant_decay(rate[k], local.sum), h[k], local.h[k]);
        store_states(args.kept, chunk.kept + tile + 1, panel, middle);
        if (panel == 0) store_sum(tile + 1, local.sum);
    }

    /* A span from zero, then joined to what came before it; answers its sum of step sizes. */
    template <bool backs> __device__ Acc walk(int64_t tile, int panel)
    {
        Local local = {};
#pragma unroll
        for (int k = 0; k < STATES; k++) local.product[k] = 1;
        walk_tile<backs>(0, local);
        store_middle(tile, panel, local);
        if (tile + 1 < chunk.tiles) walk_tile<backs>(TILE, local);
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            h[k] = fma(long_decay(rate[k], local.sum), h[k], local.h[k]);
            if (backs) back[k] = fma(distant_decay(rate[k], deltas), local.gradient[k], back[k]);
        }
        return local.sum;
    }

    /* Two tiles of the walk back, the first of which is `tile`. */
    __device__ void run_span(int64_t tile, double &total)
    {
        const bool backs = split && chunk.piece.chunk > 0; /* nobody asks for that of a sequence's first chunk */
        const Prepares preparer(args, block, tiles.seat[threadIdx.x], backs);
        const int64_t left = chunk.piece.count - tile * TILE;
        const int steps = left < SPAN ? (int)left : SPAN, parity = tile / 2 & 1;
        const int panels = has_one_panel(form) ? 1 : args.scan.panels;
        const bool resident = panels == 1, last = left <= SPAN; /* states stay in registers from span to span */
        const typename Prepares::Rows &rows = tiles.rows[parity];
        Acc sum = 0;
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
            sum = backs ? walk<true>(tile, panel) : walk<false>(tile, panel);
            store_panel(tile + 2, panel, !resident || last);
            __syncthreads(); /* all have left the stage */
        }
        if (!last) store_sum(tile + 2, sum);
        deltas += sum;
        total += sum;
    }

    __device__ void run()
    {
        double total = 0;
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

    __device__ void note(double total)
    {
        const int64_t at = end_row() * args.scan.channels;
        if (split && lane.lane == 0 && column() < block.channels) args.step_sums[at + channel()] = total;
        const int k = threadIdx.x;
        if (k >= block.channels) return;
        args.wild[at + block.channel + k] =
            tiles.first[k] |
            (tiles.flags[k] & (GRADIENTS_WILD | GRADIENTS_WILD << 2) ? RL_S6_BACK_WILD_GRADIENTS : 0);
    }
};

template <typename Acc, bool split, int form>
__global__ void __launch_bounds__(SUMMARY_THREADS<Acc>, sizeof(Acc) == 4 ? 3 : 2)
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
    case RL_S6_BACK_NEAT_MIXED:
        return kernel_address<summary_kernel<float, split, RL_S6_BACK_NEAT_MIXED>>();
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
