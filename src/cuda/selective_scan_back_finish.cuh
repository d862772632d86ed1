/* What is done with the sums of a tile, which selective_scan_back_walk.cu includes in its namespace. */

template <typename Acc, int form> struct Finisher {
    using Prepares = Preparer<Acc, TILE, true, form>;
    static constexpr bool neat = is_neat(form);
    static constexpr int QUADS = Prepares::QUADS;

    const rl_s6_back_args &args;
    const Block &block;
    const Prepares preparer; /* a thread finishes the quads that it has prepared */
    Tiles<Acc> &tiles;
    const Rows &rows;
    int steps; /* of the tile */

    __device__ Finisher(const rl_s6_back_args &args, const Block &block, const Prepares &preparer, Tiles<Acc> &tiles,
                        const Rows &rows, int steps)
        : args(args), block(block), preparer(preparer), tiles(tiles), rows(rows), steps(steps)
    {
    }

    /* dz = dy u σ(z) (1 + z (1 - σ(z))), u being the sums that the gate multiplies. */
    __device__ void finish_gate(int i, const Raw<Acc> &raw_z, const Raw<Acc> &raw_dy, const Acc (&x)[4],
                                const Four<Acc> &skip) const
    {
        Acc dz[4] = {};
        if (args.dy.data) {
            const Four<Acc> sums = *(const Four<Acc> *)&tiles.outputs[preparer.step_of(i)][preparer.column];
            Acc z[4], dy[4];
            preparer.unpack_quad(raw_z, OF_Z, z);
            preparer.unpack_quad(raw_dy, OF_DY, dy);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                Acc sum = sums.state[k];
                if (args.scan.D.data) sum += skip.state[k] * x[k];
                dz[k] = dy[k] * sum * gate_slope(z[k]);
            }
        }
        preparer.store(rows, OF_DZ, i, dz);
    }

    /* What the thread's quads add to dD and ddelta_bias. */
    struct Shares {
        Four<Acc> D, bias;
    };

    /* x on its way. */
    struct Fetched {
        Raw<Acc> x[QUADS];
    };
    __device__ Fetched fetch() const
    {
        Fetched to;
        preparer.load(rows, OF_X, steps, to.x);
        return to;
    }

    /* dx, ddelta of a quad, and its part of ddelta_bias.  Without states there is nothing for x to multiply. */
    __device__ void finish_quad(int at, bool exists, const Acc (&x)[4], const Acc (&skip)[4], Acc (&dx)[4],
                                Acc (&ddelta)[4], Shares &shares) const
    {
        const int column = preparer.column;
        const bool skips = args.dy.data && args.scan.D.data;
        const Four<Acc> along_B = *(const Four<Acc> *)&tiles.sums[at][0][column];
        const Four<Acc> along_delta = *(const Four<Acc> *)&tiles.sums[at][1][column];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const Step<Acc> own = tiles.step[at][slot_of(column) ^ k];
            Acc whole = along_delta.state[k];
            if (has_one_panel(form) || args.scan.states > 0) whole = fma(x[k], along_B.state[k], whole);
            dx[k] = product(own.delta, along_B.state[k]);
            ddelta[k] = own.slope < 0 || !exists ? Acc(0) : product(own.slope, whole);
            shares.bias.state[k] += ddelta[k];
            if (!skips || !exists) continue;
            dx[k] = fma(own.du, skip[k], dx[k]);
            shares.D.state[k] = fma(own.du, x[k], shares.D.state[k]);
        }
    }

    __device__ void finish_steps(const Fetched &fetched) const
    {
        const bool gates = args.dz.data && args.dy.data;
        if (preparer.left <= 0) return;
        const Four<Acc> skip = *(const Four<Acc> *)&tiles.vectors.skip[preparer.column];
        Four<Acc> &dD = *(Four<Acc> *)&tiles.shares[0][preparer.row][preparer.column];
        Four<Acc> &bias = *(Four<Acc> *)&tiles.shares[1][preparer.row][preparer.column];
        Shares shares = {dD, bias};
        Raw<Acc> raw_z[QUADS], raw_dy[QUADS];
        preparer.load(rows, OF_Z, gates ? steps : 0, raw_z);
        preparer.load(rows, OF_DY, gates ? steps : 0, raw_dy);
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            const int at = preparer.step_of(i);
            const bool exists = at < steps; /* no branch, so that quads overlap */
            Acc x[4], dx[4], ddelta[4];
            preparer.unpack_quad(fetched.x[i], OF_X, x);
            finish_quad(at, exists, x, skip.state, dx, ddelta, shares);
            if (exists && args.dx.data) preparer.store(rows, OF_DX, i, dx);
            if (exists && args.ddelta.data) preparer.store(rows, OF_DDELTA, i, ddelta);
            if (exists && args.dz.data) finish_gate(i, raw_z[i], raw_dy[i], x, skip);
        }
        dD = shares.D;
        bias = shares.bias;
    }

    /* Four numbers of dB or dC where they belong. */
    __device__ void store_inputs(const Piece &piece, int64_t step, int kind, int64_t state, const Acc (&sum)[4]) const
    {
        const rl_s6_view &view = kind ? args.dC : args.dB;
        const int64_t left = args.scan.states - state;
        if (!view.data) return;
        const int64_t to =
            first_row(args.scan, view, piece) + step * view.step + block.group * view.group + state * view.lane;
        store_four<form>((char *)view.data + to * bytes_in<form>(view, OF_B), view, OF_B,
                         neat || (view.wide && left >= 4), left < 4 ? (int)left : 4, sum);
    }

    /* The same as the block's share of them. */
    __device__ void share_inputs(int64_t step, int kind, int64_t state, const Acc (&sum)[4]) const
    {
        Acc *const to = tiles.keeping.shares + step * tiles.keeping.share_step + kind * args.scan.states + state;
        const bool whole = neat || args.scan.states % STATES == 0;
        Four<Acc> four;
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            four.state[k] = sum[k];
            if (!whole && state + k < args.scan.states) to[k] = sum[k];
        }
        if (whole) *(Four<Acc> *)to = four;
    }

    /* Adds the warps' dB and dC. */
    __device__ void finish_inputs(const Piece &piece, int64_t first, int panel) const
    {
        constexpr int FOURS = 2 * PANEL / STATES, WARPS = CHANNELS<Acc> / WARP;
        const int warps = blockDim.x / 32;
        for (int i = threadIdx.x; i < steps * FOURS; i += blockDim.x) {
            const int at = i / FOURS, number = i % FOURS * STATES, kind = number / PANEL;
            const int64_t state = (int64_t)panel * PANEL + number % PANEL;
            const int from = number ^ (at & 1) * PANEL;
            if (state >= args.scan.states) continue;
            Four<Acc> sum = *(const Four<Acc> *)&tiles.bc[0][at][from];
#pragma unroll
            for (int warp = 1; warp < WARPS; warp++) {
                if (warp >= warps) continue;
                const Four<Acc> more = *(const Four<Acc> *)&tiles.bc[warp][at][from];
#pragma unroll
                for (int k = 0; k < STATES; k++) sum.state[k] += more.state[k];
            }
            if (kind && !args.dy.data) sum = {}; /* also of an infinite state */
            if (args.add_groups)
                store_inputs(piece, first + at, kind, state, sum.state);
            else
                share_inputs(first + at, kind, state, sum.state);
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
            for (int kind = 0; kind < 2; kind++) sum[kind] += tiles.shares[kind][row][column];
        const int64_t at = index * args.scan.channels + block.channel + column;
        ((Acc *)args.D_parts)[at] = sum[0];
        ((Acc *)args.bias_parts)[at] = sum[1];
    }
}

/* A sequence without steps hands its gradient on, bit for bit where both have one type. */
template <typename Acc> __device__ void hand_on(const rl_s6_back_args &args, const Block &block, const Piece &piece)
{
    const rl_s6_state &to = args.dh_init, &from = args.dh_final;
    if (!to.data) return;
    for (int64_t k = threadIdx.x; k < block.channels * args.scan.states; k += blockDim.x) {
        const int64_t channel = block.channel + k / args.scan.states, state = k % args.scan.states;
        const int64_t at = piece.sequence * to.sequence + channel * to.channel + state * to.state;
        const int64_t source = piece.sequence * from.sequence + channel * from.channel + state * from.state;
        hand_on_gradient<Acc>(args, at, source);
    }
}
