/* What is done with the sums of a tile, which selective_scan_back_walk.cu includes in its namespace. */

template <typename Acc> struct Finisher {
    const rl_s6_back_args &args;
    const Block &block;
    const Preparer<Acc, true> &preparer; /* a thread finishes the quads that it has prepared */
    Tiles<Acc> &tiles;

    __device__ Finisher(const rl_s6_back_args &args, const Block &block, const Preparer<Acc, true> &preparer,
                        Tiles<Acc> &tiles)
        : args(args), block(block), preparer(preparer), tiles(tiles)
    {
    }

    __device__ Acc skip(int k) const
    {
        const rl_s6_vector &D = args.scan.D;
        if (!D.data || k >= preparer.count) return 0;
        return ((const Acc *)D.data)[(block.channel + preparer.column + k) * D.stride];
    }

    /* dz = dy u σ(z) (1 + z (1 - σ(z))), u being the sums that the gate multiplies. */
    __device__ void finish_gate(const Piece &piece, int64_t step, int at, const Acc (&x)[4]) const
    {
        Acc dz[4] = {};
        if (args.dy.data) {
            Acc z[4], dy[4];
            load_four(args.scan.z, preparer.place(args.scan.z, piece, step), preparer.count, z);
            load_four(args.dy, preparer.place(args.dy, piece, step), preparer.count, dy);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                Acc sum = tiles.outputs[at][preparer.column + k];
                if (args.scan.D.data) sum += skip(k) * x[k];
                dz[k] = dy[k] * sum * gate_slope(z[k]);
            }
        }
        store_four(args.dz, preparer.place(args.dz, piece, step), preparer.count, dz);
    }

    __device__ void finish_quad(const Piece &piece, int64_t step, int at)
    {
        Acc x[4], dx[4], ddelta[4];
        load_four(args.scan.x, preparer.place(args.scan.x, piece, step), preparer.count, x);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int column = preparer.column + k;
            const Step<Acc> own = tiles.step[at][column];
            const Acc along_B = tiles.sums[at][0][column], along_delta = tiles.sums[at][1][column];
            dx[k] = own.delta * along_B;
            ddelta[k] = own.slope < 0 ? Acc(0) : own.slope * (along_delta + x[k] * along_B);
            if (args.dy.data && args.scan.D.data) {
                dx[k] += own.du * skip(k);
                tiles.parameters[0][preparer.row][column] += own.du * x[k];
            }
            tiles.parameters[1][preparer.row][column] += ddelta[k];
        }
        if (args.dx.data) store_four(args.dx, preparer.place(args.dx, piece, step), preparer.count, dx);
        if (args.ddelta.data)
            store_four(args.ddelta, preparer.place(args.ddelta, piece, step), preparer.count, ddelta);
        if (args.dz.data) finish_gate(piece, step, at, x);
    }

    __device__ void finish_steps(const Piece &piece, int64_t first, int steps)
    {
        if (preparer.count == 0) return;
#pragma unroll 1
        for (int at = preparer.row; at < steps; at += ROWS) finish_quad(piece, first + at, at);
    }

    /* Adds the warps' dB and dC: where they belong, or as the block's share of them. */
    __device__ void finish_inputs(const Piece &piece, int64_t first, int panel, int steps) const
    {
        const int warps = blockDim.x / 32;
        for (int i = threadIdx.x; i < steps * 2 * PANEL; i += blockDim.x) {
            const int at = i / (2 * PANEL), number = i % (2 * PANEL), kind = number / PANEL;
            const int64_t state = (int64_t)panel * PANEL + number % PANEL;
            if (state >= args.scan.states) continue;
            Acc sum = tiles.bc[0][at][number];
            for (int warp = 1; warp < warps; warp++) sum += tiles.bc[warp][at][number];
            const rl_s6_view &view = kind ? args.dC : args.dB;
            if (!view.data) continue;
            if (args.add_groups) {
                store_any(view.data, view.dtype,
                          first_row(args.scan, view, piece) + (first + at) * view.step + block.group * view.group +
                              state * view.lane,
                          sum);
                continue;
            }
            const int64_t time = args.scan.reverse ? piece.row - first - at : piece.row + first + at;
            const int64_t row = (block.group * args.scan.blocks_per_group + block.index) * args.rows +
                                piece.batch * args.scan.length + time;
            ((Acc *)args.bc_parts)[(row * 2 + kind) * args.scan.states + state] = sum;
        }
    }
};

/* A task's dD and ddelta_bias. */
template <typename Acc>
__device__ void finish_parameters(const rl_s6_back_args &args, const Block &block, int64_t index,
                                  const Tiles<Acc> &tiles)
{
    for (int column = threadIdx.x; column < block.channels; column += blockDim.x) {
        Acc sum[2] = {};
        for (int row = 0; row < ROWS; row++)
            for (int kind = 0; kind < 2; kind++) sum[kind] += tiles.parameters[kind][row][column];
        const int64_t at = index * args.scan.channels + block.channel + column;
        ((Acc *)args.D_parts)[at] = sum[0];
        ((Acc *)args.bias_parts)[at] = sum[1];
    }
}
