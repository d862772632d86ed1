/* The third kernel of the selective scan's gradients: see selective_scan_back.cuh. */
#include <machine/kernel.cuh>

#include "s6_back_kernels.h"
#include "selective_scan_back.cuh"

using namespace selective_scan_back;

namespace
{

template <typename Acc> constexpr int PART = sizeof(Acc) == 4 ? 8 : 2; /* steps whose states registers hold */

template <typename Acc> struct Tiles {
    Step<Acc> step[TILE][CHANNELS<Acc>];
    alignas(16) Acc B[TILE][ORDERS][PANEL], C[TILE][ORDERS][PANEL];
    alignas(16) Acc sums[TILE][2][CHANNELS<Acc> + WARP];       /* Σ G B, Σ A G a h; apart so that banks differ */
    alignas(16) Acc outputs[TILE][CHANNELS<Acc>];              /* Σ C h */
    alignas(16) Acc bc[CHANNELS<Acc> / WARP][TILE][2 * PANEL]; /* each warp's dB and dC */
    alignas(16) Acc parameters[2][ROWS][CHANNELS<Acc>];        /* dD, ddelta_bias of every eighth step */
    Four<Acc> start[TILE / PART<Acc>][OWN][THREADS<Acc>], entering[OWN][THREADS<Acc>];
    int flags[2][CHANNELS<Acc>]; /* of a tile and the next */
    Block block;                 /* here, to leave registers to the walk */
};

#include "selective_scan_back_finish.cuh"
static_assert(sizeof(Tiles<float>) <= 227 * 1024 && sizeof(Tiles<double>) <= 227 * 1024,
              "more than a block may have");

#include "selective_scan_back_walk.cuh"

/* The chunks of one task. */
template <typename Acc> struct Task {
    const rl_s6_back_args &args;
    const Block &block;
    int64_t index;
    Tiles<Acc> &tiles;
    Walker<Acc> walker;
    Preparer<Acc, true> preparer;

    __device__ Task(const rl_s6_back_args &args, const Block &block, int64_t index, Tiles<Acc> &tiles)
        : args(args), block(block), index(index), tiles(tiles), walker(args, block, tiles), preparer(args, block)
    {
    }

    __device__ int64_t place(int64_t row, int own, int64_t state) const
    {
        return (row * args.scan.channels + walker.channel(own)) * args.scan.states + state;
    }
    __device__ int64_t place_in(const rl_s6_state &view, const Piece &piece, int own, int64_t state) const
    {
        return piece.sequence * view.sequence + walker.channel(own) * view.channel + state * view.state;
    }
    __device__ int64_t end_row(const Piece &piece) const
    {
        return piece.sequence * args.scan.chunks + piece.chunk;
    }

    /* The gradient that enters a chunk from the later ones. */
    __device__ Acc entering(const Piece &piece, int own, int64_t state) const
    {
        const rl_s6_state &final = args.dh_final;
        if (!piece.ends && args.scan.chunks > 1) return ((const Acc *)args.backs)[place(end_row(piece), own, state)];
        return final.data ? load_any<Acc>(final.data, final.dtype, place_in(final, piece, own, state)) : Acc(0);
    }

    /* The state that a chunk starts from. */
    __device__ Acc starting(const Piece &piece, int own, int64_t state) const
    {
        const rl_s6_state &init = args.scan.h_init;
        if (!piece.starts) return ((const Acc *)args.ends)[place(end_row(piece), own, state)];
        return init.data ? load_any<Acc>(init.data, init.dtype, place_in(init, piece, own, state)) : Acc(0);
    }

    /* The state before a tile. */
    __device__ Acc before(const Chunk &chunk, int64_t tile, int own, int64_t state, Acc rate) const
    {
        if (tile == 0) return starting(chunk.piece, own, state);
        const Acc kept = ((const Acc *)args.kept)[place(chunk.kept + tile, own, state)];
        if (tile >= args.plain[place(end_row(chunk.piece), own, state)]) return kept;
        const int64_t at = (chunk.kept + tile) * args.scan.channels + walker.channel(own);
        return fma(long_decay(rate, ((const Acc *)args.kept_sums)[at]), starting(chunk.piece, own, state), kept);
    }

    /* One panel of states stays in registers all along; many share them, and lie in memory between tiles. */
    __device__ bool is_resident() const
    {
        return args.scan.panels == 1;
    }

    /* Before the task's first tile. */
    __device__ void begin_panel(int panel)
    {
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                const int64_t state = walker.lane.state_of(panel, k);
                const bool has = walker.has(j, panel, k);
                walker.rate[j][k] = has ? rate_of(load_A<Acc>(args.scan, walker.channel(j), state)) : Acc(0);
                walker.dA[j][k] = 0;
            }
    }
    __device__ void store_dA(int panel) const
    {
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++)
                if (walker.has(j, panel, k))
                    ((Acc *)args.A_parts)[place(index, j, walker.lane.state_of(panel, k))] = walker.dA[j][k];
    }

    /* `enters`: at a chunk's last tile. */
    __device__ void load_panel(const Chunk &chunk, int64_t tile, int panel, bool enters, Acc (&h)[OWN][STATES])
    {
        if (!is_resident()) begin_panel(panel);
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                const int64_t state = walker.lane.state_of(panel, k);
                const bool has = walker.has(j, panel, k);
                if (!is_resident() && has) walker.dA[j][k] = ((const Acc *)args.A_parts)[place(index, j, state)];
                if (enters)
                    walker.G[j][k] = has ? entering(chunk.piece, j, state) : Acc(0);
                else if (!is_resident())
                    walker.G[j][k] = has ? ((const Acc *)args.backs)[place(end_row(chunk.piece), j, state)] : Acc(0);
                h[j][k] = has ? before(chunk, tile, j, state, walker.rate[j][k]) : Acc(0);
            }
    }

    __device__ void store_panel(const Chunk &chunk, int64_t tile, int panel)
    {
        const rl_s6_state &init = args.dh_init;
        const bool leaves = tile == 0 && chunk.piece.starts && init.data;
        if (!is_resident()) store_dA(panel);
        if (is_resident() && !leaves) return;
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                const int64_t state = walker.lane.state_of(panel, k);
                if (!walker.has(j, panel, k)) continue;
                if (!is_resident()) ((Acc *)args.backs)[place(end_row(chunk.piece), j, state)] = walker.G[j][k];
                if (leaves) store_any(init.data, init.dtype, place_in(init, chunk.piece, j, state), walker.G[j][k]);
            }
    }

    __device__ void run_tile(const Chunk &chunk, int64_t tile)
    {
        const Piece &piece = chunk.piece;
        const int64_t first = tile * TILE, left = piece.count - first;
        const int panels = args.scan.panels, parity = tile & 1;
        Finisher<Acc> finisher(args, block, preparer, tiles);
        walker.steps = left < TILE ? (int)left : TILE;
        walker.fresh = tile == 0 && piece.starts && !args.scan.h_init.data;
        for (int panel = 0; panel < panels; panel++) {
            Acc h[OWN][STATES];
            load_panel(chunk, tile, panel, tile + 1 == chunk.tiles, h);
            if (panel == 0) preparer.put_steps(piece, first, tiles.step, tiles.flags[parity]);
            preparer.template put_inputs<ORDERS>(piece, first, panel, tiles.B, tiles.C);
            if (panel == 0) preparer.look_ahead(piece, first - TILE);
            __syncthreads(); /* the stage is prepared, and sums of the one before have been read */
            walker.walk_tile(panel, chunk, first, h, tiles.flags[parity]);
            store_panel(chunk, tile, panel);
            if (panel == 0) clear_flags(parity ^ 1); /* of the tile before, in nobody's hands */
            __syncthreads();                         /* all sums are there, and all have left the stage */
            if (args.dB.data || args.dC.data) finisher.finish_inputs(piece, first, panel, walker.steps);
        }
        finisher.finish_steps(piece, first, walker.steps);
    }

    __device__ void clear_flags(int which)
    {
        for (int k = threadIdx.x; k < args.scan.block_channels; k += blockDim.x) tiles.flags[which][k] = 0;
    }

    /* A sequence without steps hands its gradient on, bit for bit where both have one type. */
    __device__ void hand_on(const Piece &piece) const
    {
        const rl_s6_state &to = args.dh_init, &from = args.dh_final;
        if (!to.data) return;
        for (int64_t k = threadIdx.x; k < block.channels * args.scan.states; k += blockDim.x) {
            const int64_t channel = block.channel + k / args.scan.states, state = k % args.scan.states;
            const int64_t at = piece.sequence * to.sequence + channel * to.channel + state * to.state;
            const int64_t source = piece.sequence * from.sequence + channel * from.channel + state * from.state;
            if (!from.data)
                store_any(to.data, to.dtype, at, Acc(0));
            else if (from.dtype != to.dtype)
                store_any(to.data, to.dtype, at, load_any<Acc>(from.data, from.dtype, source));
            else if (to.dtype == RILL_F64)
                ((uint64_t *)to.data)[at] = ((const uint64_t *)from.data)[source];
            else if (to.dtype == RILL_F32)
                ((uint32_t *)to.data)[at] = ((const uint32_t *)from.data)[source];
            else
                ((uint16_t *)to.data)[at] = ((const uint16_t *)from.data)[source];
        }
    }

    __device__ void run()
    {
        const bool split = args.scan.chunks > 1;
        const int64_t begin = split ? index / args.scan.chunks : index * args.run;
        int64_t end = split ? begin + 1 : begin + args.run;
        if (end > args.scan.sequences) end = args.scan.sequences;
        for (int k = threadIdx.x; k < 2 * ROWS * CHANNELS<Acc>; k += blockDim.x) (&tiles.parameters[0][0][0])[k] = 0;
        for (int panel = 0; panel < args.scan.panels; panel++) {
            begin_panel(panel);
            store_dA(panel); /* where there is no step, that is all */
        }
        for (int64_t sequence = begin; sequence < end; sequence++) {
            const Chunk chunk = locate_chunk(args.scan, sequence, split ? index % args.scan.chunks : 0);
            if (chunk.piece.empty && chunk.piece.starts) hand_on(chunk.piece);
            __syncthreads(); /* the sequence before has left the flags */
            clear_flags(0), clear_flags(1);
            __syncthreads(); /* before steps are flagged */
            for (int64_t tile = chunk.tiles; tile-- > 0;) run_tile(chunk, tile);
        }
        if (is_resident()) store_dA(0);
        __syncthreads(); /* parameters are complete */
        finish_parameters(args, block, index, tiles);
        __syncthreads(); /* before the next task takes their place */
    }
};

template <typename Acc>
__global__ void __launch_bounds__(THREADS<Acc>, 1) walk_kernel(const __grid_constant__ rl_s6_back_args args)
{
    Tiles<Acc> &tiles = *reinterpret_cast<Tiles<Acc> *>(dynamic_shared);
    for (int64_t task = blockIdx.x; task < args.pieces * args.scan.blocks; task += gridDim.x) {
        const int64_t index = task / args.scan.blocks;
        if (threadIdx.x == 0) tiles.block = locate_block(args.scan, task - index * args.scan.blocks);
        __syncthreads(); /* the block is known */
        Task<Acc>(args, tiles.block, index, tiles).run();
    }
}

} // namespace

const void *rl_s6_back_walk_kernel(bool f64)
{
    return f64 ? kernel_address<walk_kernel<double>>() : kernel_address<walk_kernel<float>>();
}

size_t rl_s6_back_walk_shared(bool f64)
{
    return f64 ? sizeof(Tiles<double>) : sizeof(Tiles<float>);
}
