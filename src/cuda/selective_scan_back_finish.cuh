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

    /* dz = dy u σ(z) (1 + z (1 - σ(z))), u being the sums that the gate multiplies. */
    __device__ void finish_gate(const Piece &piece, int64_t first, int quad, const Acc (&x)[4],
                                const Acc (&skip)[4]) const
    {
        Acc dz[4] = {};
        if (args.dy.data) {
            Acc z[4], dy[4];
            preparer.load(preparer.column_of(args.scan.z, piece, first), quad, z);
            preparer.load(preparer.column_of(args.dy, piece, first), quad, dy);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                Acc sum = tiles.outputs[preparer.row + quad * ROWS][preparer.column + k];
                if (args.scan.D.data) sum += skip[k] * x[k];
                dz[k] = dy[k] * sum * gate_slope(z[k]);
            }
        }
        preparer.store(preparer.column_of(args.dz, piece, first), quad, dz);
    }

    /* dx, ddelta of a quad, and its part of ddelta_bias.  Without states there is nothing for x to multiply. */
    __device__ void finish_quad(int at, const Acc (&x)[4], Acc (&dx)[4], Acc (&ddelta)[4]) const
    {
        const int column = preparer.column;
        const Four<Acc> along_B = *(const Four<Acc> *)&tiles.sums[at][0][column];
        const Four<Acc> along_delta = *(const Four<Acc> *)&tiles.sums[at][1][column];
        Four<Acc> &bias = *(Four<Acc> *)&tiles.parameters[1][preparer.row][column];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const Step<Acc> own = tiles.step[at][column + k];
            const Acc along_x = args.scan.states > 0 ? x[k] * along_B.state[k] : Acc(0);
            const Acc whole = along_delta.state[k] + along_x;
            dx[k] = own.delta * along_B.state[k];
            ddelta[k] = own.slope < 0 ? Acc(0) : own.slope * whole;
            bias.state[k] += ddelta[k];
        }
    }
    __device__ void finish_skip(int at, const Acc (&x)[4], const Acc (&skip)[4], Acc (&dx)[4]) const
    {
        Four<Acc> &dD = *(Four<Acc> *)&tiles.parameters[0][preparer.row][preparer.column];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const Acc du = tiles.step[at][preparer.column + k].du;
            dx[k] += du * skip[k];
            dD.state[k] += du * x[k];
        }
    }

    __device__ void finish_steps(const Piece &piece, int64_t first, int steps) const
    {
        const Column x_column(preparer.column_of(args.scan.x, piece, first));
        const Column dx_column(preparer.column_of(args.dx, piece, first));
        const Column ddelta_column(preparer.column_of(args.ddelta, piece, first));
        Acc skip[4], x[QUADS][4];
        if (preparer.count == 0) return;
        preparer.load_parameter(args.scan.D, skip);
#pragma unroll
        for (int quad = 0; quad < QUADS; quad++) {
#pragma unroll
            for (int k = 0; k < 4; k++) x[quad][k] = 0;
            if (preparer.row + quad * ROWS < steps) preparer.load(x_column, quad, x[quad]);
        }
#pragma unroll
        for (int quad = 0; quad < QUADS; quad++) {
            const int at = preparer.row + quad * ROWS;
            Acc dx[4], ddelta[4];
            if (at >= steps) continue;
            finish_quad(at, x[quad], dx, ddelta);
            if (args.dy.data && args.scan.D.data) finish_skip(at, x[quad], skip, dx);
            if (args.dx.data) preparer.store(dx_column, quad, dx);
            if (args.ddelta.data) preparer.store(ddelta_column, quad, ddelta);
            if (args.dz.data) finish_gate(piece, first, quad, x[quad], skip);
        }
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
            if (kind && !args.dy.data) sum = 0; /* also of an infinite state */
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
