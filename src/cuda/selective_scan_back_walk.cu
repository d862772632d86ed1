/* The third kernel of the selective scan's gradients: see selective_scan_back.cuh. */
#include <machine/kernel.cuh>

#include "s6_back_kernels.h"
#include "selective_scan_back.cuh"

using namespace selective_scan_back;

namespace
{

template <typename Acc> constexpr int PART = sizeof(Acc) == 4 ? 4 : 2; /* steps whose states registers hold */

#include "selective_scan_back_tiles.cuh"

#include "selective_scan_back_finish.cuh"
static_assert(RL_S6_BACK_BLOCKS * (sizeof(Tiles<float>) + 1024) <= 228 * 1024 && sizeof(Tiles<double>) <= 227 * 1024,
              "more than a block may have");

template <typename Acc> struct Chains;
template <typename Acc>
__device__ __attribute__((noinline)) void walk_plainly(const rl_s6_back_args &args, const Block &block,
                                                       Tiles<Acc> &tiles, Chains<Acc> &chains, int steps, bool fresh,
                                                       int panel, const Chunk &chunk, int64_t first,
                                                       Acc (&h)[OWN][STATES], const int *flags, int begin);

#include "selective_scan_back_walk.cuh"

#include "selective_scan_back_plain.cuh"

/* The chunks of one task. */
template <typename Acc, int form> struct Task {
    using Prepares = Preparer<Acc, TILE, true, form>;

    const rl_s6_back_args &args;
    const Block &block;
    int64_t index;
    Tiles<Acc> &tiles;
    Walker<Acc> walker;

    __device__ Task(const rl_s6_back_args &args, const Block &block, int64_t index, Tiles<Acc> &tiles)
        : args(args), block(block), index(index), tiles(tiles), walker(args, block, tiles)
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

    __device__ void load_four(const void *from, int64_t at, int j, Acc (&to)[STATES]) const
    {
        const Four<Acc> four = *(const Four<Acc> *)((const Acc *)from + at + j * place_step());
#pragma unroll
        for (int k = 0; k < STATES; k++) to[k] = four.state[k];
    }

    __device__ void store_four_each(void *to, int64_t at, const Acc (&from)[OWN][STATES]) const
    {
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            Four<Acc> four;
#pragma unroll
            for (int k = 0; k < STATES; k++) four.state[k] = from[j][k];
            *(Four<Acc> *)((Acc *)to + at + j * place_step()) = four;
        }
    }

    /* What is kept before a tile, on its way. */
    struct Kept {
        Four<Acc> state[OWN];
        Four<Acc> start[OWN];       /* the chunk's first */
        Acc deltas[OWN], fade[OWN]; /* Σδ up to the tile; of its own steps, where there is another behind it */
    };

    /* The states that a chunk starts from; of a whole sequence only h_init tells them. */
    __device__ void load_starting(const Piece &piece, int panel, int j, const Kept &kept, Acc (&h)[STATES]) const
    {
        const rl_s6_state &init = args.scan.h_init;
        if (args.scan.chunks > 1) {
#pragma unroll
            for (int k = 0; k < STATES; k++) h[k] = kept.start[j].state[k];
            return;
        }
#pragma unroll
        for (int k = 0; k < STATES; k++)
            h[k] = walker.has(j, panel, k) ? load_one<Acc>(init.data, init.dtype,
                                                           place_in(init, piece, j, walker.lane.state_of(panel, k)))
                                           : Acc(0);
    }

    /* Whether what is kept before a tile is the state, and not what the chunk makes of zero. */
    __device__ bool is_whole(const Piece &piece, int64_t tile, int panel, int j, int k) const
    {
        if (!walker.has(j, panel, k)) return false;
        return tile >= args.plain[place(end_row(piece), j, walker.lane.state_of(panel, k))];
    }

    __device__ Kept fetch_kept(int64_t tile, int panel) const
    {
        const Keeping<Acc> &keeping = tiles.keeping;
        const int64_t offset = panel * (OWN * place_step());
        const Acc *const from = keeping.state + tile * keeping.stride + offset + threadIdx.x * STATES;
        const Acc *const ends = keeping.ends + offset + threadIdx.x * STATES;
        Kept to = {};
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            const int column = walker.lane.column_of(j);
            const bool known = tile >= 0 && column < block.channels;
            const Acc *const sum = &keeping.sums[tile * args.scan.channels + column];
            if (tiles.moves && args.scan.chunks > 1) to.start[j] = *(const Four<Acc> *)(ends + j * place_step());
            if (tile > 0) to.state[j] = *(const Four<Acc> *)(from + j * place_step());
            if (tile > 0 && known) to.deltas[j] = sum[0];
            if (known && tile + 1 < tiles.chunk.tiles) to.fade[j] = sum[args.scan.channels] - to.deltas[j];
        }
        return to;
    }

    /* What the chunk makes of the state that it starts from, where that is not in what is kept. */
    __device__ void add_start(const Piece &piece, int64_t tile, int panel, int j, Acc deltas,
                              const Acc (&start)[STATES], Acc (&h)[STATES]) const
    {
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            const Acc whole = fma(distant_decay(walker.own.rate[j][k], deltas), start[k], h[k]);
            if (!is_whole(piece, tile, panel, j, k)) h[k] = whole;
        }
    }

    /* The states before a tile. */
    __device__ void load_before(const Chunk &chunk, int64_t tile, int panel, const Kept &kept,
                                Acc (&h)[OWN][STATES]) const
    {
        const Piece &piece = chunk.piece;
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            Acc start[STATES] = {};
            if (tiles.moves) load_starting(piece, panel, j, kept, start);
            if (tile == 0) {
#pragma unroll
                for (int k = 0; k < STATES; k++) h[j][k] = start[k];
                continue;
            }
#pragma unroll
            for (int k = 0; k < STATES; k++) h[j][k] = kept.state[j].state[k];
            if (!tiles.moves) continue;
            if (tiles.again) {
                add_start(piece, tile, panel, j, kept.deltas[j], start, h[j]);
                continue;
            }
#pragma unroll
            for (int k = 0; k < STATES; k++)
                h[j][k] = fma(distant_decay(walker.own.rate[j][k], kept.deltas[j]), start[k], h[j][k]);
        }
    }

    /* One panel of states stays in registers all along; many share them, and lie in memory between tiles. */
    __device__ bool is_resident() const
    {
        return panels() == 1;
    }
    __device__ int panels() const
    {
        return has_one_panel(form) ? 1 : args.scan.panels;
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
                walker.own.rate[j][k] = has ? rate_of(load_A<Acc>(args.scan, walker.channel(j), state)) : Acc(0);
                walker.own.dA[j][k] = 0;
            }
    }
    __device__ void store_dA(int panel) const
    {
        store_four_each(args.A_parts, place_of(args.scan, block, index, panel), walker.own.dA);
    }

    /* The gradients that enter a sequence's last chunk. */
    __device__ void load_final(const Piece &piece, int panel)
    {
        const rl_s6_state &final = args.dh_final;
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                walker.own.G[j][k] = 0;
                if (final.data && walker.has(j, panel, k))
                    walker.own.G[j][k] = load_one<Acc>(final.data, final.dtype,
                                                       place_in(final, piece, j, walker.lane.state_of(panel, k)));
            }
    }

    /* `enters`: at a chunk's last tile. */
    __device__ void load_panel(const Piece &piece, int panel, bool enters)
    {
        const int64_t row = end_row(piece);
        if (!is_resident()) begin_panel(panel);
        if (enters && (piece.ends || args.scan.chunks == 1)) load_final(piece, panel);
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            if (!is_resident())
                load_four(args.A_parts, place_of(args.scan, block, index, panel), j, walker.own.dA[j]);
            if (enters ? !piece.ends && args.scan.chunks > 1 : !is_resident())
                load_four(args.backs, place_of(args.scan, block, row, panel), j, walker.own.G[j]);
        }
    }

    __device__ void store_panel(const Piece &piece, int panel, bool leaves) const
    {
        const rl_s6_state &init = args.dh_init;
        if (!is_resident()) {
            store_dA(panel);
            store_four_each(args.backs, place_of(args.scan, block, end_row(piece), panel), walker.own.G);
        }
        if (!leaves || !init.data) return;
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++)
                if (walker.has(j, panel, k))
                    store_one(init.data, init.dtype, place_in(init, piece, j, walker.lane.state_of(panel, k)),
                              walker.own.G[j][k]);
    }

    /* What of a tile is on its way while the one after it is finished. */
    struct Ahead {
        typename Prepares::Fetched steps;
        Raw<Acc> input;
        Kept kept;
    };
    __device__ Ahead fetch_tile(const Chunk &chunk, int64_t tile) const
    {
        const Rows &rows = tiles.rows[tile & 1];
        const int64_t left = chunk.piece.count - tile * TILE;
        const int steps = tile < 0 ? 0 : left < TILE ? (int)left : TILE;
        const Prepares preparer = prepares();
        Ahead ahead;
        ahead.kept = fetch_kept(tile, 0);
        preparer.fetch_steps(rows, steps, ahead.steps);
        ahead.input = preparer.fetch_input(rows, steps, 0, preparer.thread);
        return ahead;
    }

    __device__ Prepares prepares() const
    {
        return Prepares(args, block, tiles.seat[threadIdx.x]);
    }
    __device__ Finisher<Acc, form> finish(const Rows &rows, int steps) const
    {
        return Finisher<Acc, form>(args, block, prepares(), tiles, rows, steps);
    }

    __device__ void run_tile(const Chunk &chunk, int64_t tile, Ahead &ahead)
    {
        const Piece &piece = chunk.piece;
        const int64_t first = tile * TILE, left = piece.count - first;
        const int count = panels(), parity = tile & 1, steps = left < TILE ? (int)left : TILE;
        const bool last = tile + 1 == chunk.tiles;
        const Rows &rows = tiles.rows[parity];
        walker.steps = steps;
        walker.fresh = tile == 0 && piece.starts && !args.scan.h_init.data;
        typename Finisher<Acc, form>::Fetched finishing;
        prepares().put_steps(ahead.steps, tiles.vectors, steps, tiles.step, tiles.flags[parity]);
        for (int panel = 0; panel < count; panel++) {
            Acc h[OWN][STATES];
            if (last || !is_resident()) load_panel(piece, panel, last);
            load_before(chunk, tile, panel, ahead.kept, h);
            const Acc fade[OWN] = {ahead.kept.fade[0], ahead.kept.fade[1]};
            prepares().template put_inputs<ORDERS>(ahead.input, rows, steps, panel, tiles.B, tiles.C);
            __syncthreads(); /* the stage is prepared, and sums of the one before have been read */
            walker.enter_tile();
            walker.walk_tile(panel, chunk, first, h, tiles.flags[parity]);
            walker.anchor(fade);
            if (tile == 0 || !is_resident()) store_panel(piece, panel, tile == 0 && piece.starts);
            if (panel == 0) { /* of the tile before, in nobody's hands */
                clear_flags(parity ^ 1);
                tiles.rows[parity ^ 1].move(rows, tiles.stride, -TILE);
            }
            if (panel + 1 == count) finishing = finish(rows, steps).fetch();
            __syncthreads(); /* all sums are there, and all have left the stage */
            if (args.dB.data || args.dC.data) finish(rows, steps).finish_inputs(piece, first, panel);
            if (panel + 1 == count) continue;
            ahead.kept = fetch_kept(tile, panel + 1);
            ahead.input = prepares().fetch_input(rows, steps, panel + 1, threadIdx.x);
        }
        ahead = fetch_tile(chunk, tile - 1);
        finish(rows, steps).finish_steps(finishing);
    }

    __device__ void clear_flags(int which)
    {
        for (int k = threadIdx.x; k < args.scan.block_channels; k += blockDim.x) tiles.flags[which][k] = 0;
    }

    __device__ void begin_chunk(const Chunk &chunk)
    {
        const Piece &piece = chunk.piece;
        if (threadIdx.x == 0) {
            tiles.moves = !piece.starts || args.scan.h_init.data;
            tiles.keeping.find(args, block, chunk);
        }
        if (chunk.tiles == 0) return;
        tiles.rows[(chunk.tiles - 1) & 1].find(args, block, piece, (chunk.tiles - 1) * TILE);
        if (args.whole) return;
        for (int j = 0; j < OWN; j++)
            if (walker.lane.column_of(j) < block.channels &&
                args.wild[end_row(piece) * args.scan.channels + walker.channel(j)] & RL_S6_BACK_RUN_AGAIN)
                tiles.again = 1;
    }

    __device__ void run()
    {
        const bool split = args.scan.chunks > 1;
        const int64_t begin = split ? index / args.scan.chunks : index * args.run;
        int64_t end = split ? begin + 1 : begin + args.run;
        if (end > args.scan.sequences) end = args.scan.sequences;
        for (int k = threadIdx.x; k < 2 * ROWS * CHANNELS<Acc>; k += blockDim.x) (&tiles.shares[0][0][0])[k] = 0;
        tiles.vectors.load(args.scan, block);
        find_strides(args, tiles.stride);
        tiles.seat[threadIdx.x] = find_seat(args.scan);
        for (int panel = 0; panel < panels(); panel++) {
            begin_panel(panel);
            store_dA(panel); /* where there is no step, that is all */
        }
        if (!args.whole) await_earlier();
        for (int64_t sequence = begin; sequence < end; sequence++) {
            const Chunk &chunk = tiles.chunk;
            __syncthreads(); /* the sequence before has left its place, and the flags */
            if (threadIdx.x == 0)
                tiles.chunk = locate_chunk(args.scan, sequence, split ? index % args.scan.chunks : 0),
                tiles.again = 0;
            clear_flags(0), clear_flags(1);
            __syncthreads(); /* the chunk is known */
            if (chunk.piece.empty && chunk.piece.starts) hand_on<Acc>(args, block, chunk.piece);
            begin_chunk(chunk);
            __syncthreads(); /* before steps are flagged */
            Ahead ahead = fetch_tile(chunk, chunk.tiles - 1);
            for (int64_t tile = chunk.tiles; tile-- > 0;) run_tile(chunk, tile, ahead);
        }
        if (is_resident()) store_dA(0);
        __syncthreads(); /* parameters are complete */
        finish_parameters(args, block, index, tiles);
        __syncthreads(); /* before the next task takes their place */
    }
};

template <typename Acc, int form>
__global__ void __launch_bounds__(THREADS<Acc>, sizeof(Acc) == 4 ? RL_S6_BACK_BLOCKS : 2)
    walk_kernel(const __grid_constant__ rl_s6_back_args args)
{
    Tiles<Acc> &tiles = *reinterpret_cast<Tiles<Acc> *>(dynamic_shared);
    let_later_start();
    if (args.whole || args.again) await_earlier(); /* else the summary has done so for the inputs */
    for (int64_t task = blockIdx.x; task < args.pieces * args.scan.blocks; task += gridDim.x) {
        const int64_t index = task / args.scan.blocks;
        if (args.again && !args.again[task]) continue;
        if (threadIdx.x == 0) tiles.block = locate_block(args.scan, task - index * args.scan.blocks);
        __syncthreads(); /* the block is known */
        Task<Acc, form>(args, tiles.block, index, tiles).run();
    }
}

} // namespace

const void *rl_s6_back_walk_kernel(bool f64, rl_s6_back_form form)
{
    if (f64) return kernel_address<walk_kernel<double, RL_S6_BACK_ANY>>();
    switch (form) {
    case RL_S6_BACK_NEAT_F32:
        return kernel_address<walk_kernel<float, RL_S6_BACK_NEAT_F32>>();
    case RL_S6_BACK_NEAT_BF16:
        return kernel_address<walk_kernel<float, RL_S6_BACK_NEAT_BF16>>();
    case RL_S6_BACK_NEAT_MIXED:
        return kernel_address<walk_kernel<float, RL_S6_BACK_NEAT_MIXED>>();
    case RL_S6_BACK_NEAT:
        return kernel_address<walk_kernel<float, RL_S6_BACK_NEAT>>();
    default:
        return kernel_address<walk_kernel<float, RL_S6_BACK_ANY>>();
    }
}

size_t rl_s6_back_walk_shared(bool f64)
{
    return f64 ? sizeof(Tiles<double>) : sizeof(Tiles<float>);
}
