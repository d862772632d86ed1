/* The preparation of tiles, which selective_scan_back.cuh includes in its namespace: from memory to shared memory. */

/*
 * A thread's share of a block's tiles: four neighbouring channels of every eighth step.  `back`: with slopes, which
 * only the walk back needs.
 */
template <typename Acc, bool back> struct Preparer {
    const rl_s6_back_args &args;
    const Block &block;
    int column, row, count; /* of its quads: the first channel and step; channels that exist */
    Acc bias[4];

    __device__ Preparer(const rl_s6_back_args &args, const Block &block) : args(args), block(block)
    {
        const int quads = args.scan.block_channels / 4, left = block.channels - (int)threadIdx.x % quads * 4;
        column = threadIdx.x % quads * 4;
        row = threadIdx.x / quads;
        count = left < 0 ? 0 : left < 4 ? left : 4;
        const rl_s6_vector &vector = args.scan.bias;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            bias[k] = 0;
            if (vector.data && k < count)
                bias[k] = ((const Acc *)vector.data)[(block.channel + column + k) * vector.stride];
        }
    }

    /* Where a step of the thread's quads lies in a tensor by channel. */
    __device__ int64_t place(const rl_s6_view &view, const Piece &piece, int64_t step) const
    {
        return first_row(args.scan, view, piece) + step * view.step + (block.channel + column) * view.lane;
    }

    /* δ and its slope from what is stored. */
    __device__ void size_steps(const Acc (&raw)[4], Step<Acc> (&step)[4]) const
    {
        const Acc low = (Acc)args.scan.delta_min, high = (Acc)args.scan.delta_max;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            Acc value = raw[k] + bias[k], slope = 1;
            if (args.scan.softplus && back)
                soften(value, value, slope);
            else if (args.scan.softplus)
                value = softplus(value);
            if (value < low || value > high) slope = -1;
            value = value < low ? low : value;
            step[k].delta = value > high ? high : value;
            step[k].slope = slope;
        }
    }

    /* The gradient of Σ C h + D x. */
    __device__ void load_du(const Piece &piece, int64_t at, Acc (&du)[4]) const
    {
        load_four(args.dy, place(args.dy, piece, at), count, du);
        if (!args.scan.z.data) return;
        Acc z[4];
        load_four(args.scan.z, place(args.scan.z, piece, at), count, z);
#pragma unroll
        for (int k = 0; k < 4; k++) du[k] *= gate(z[k]);
    }

    /* One quad.  Steps and channels that do not exist become zeros: they do nothing. */
    __device__ void put_quad(const Piece &piece, int64_t first, int at, Step<Acc> (*to)[CHANNELS<Acc>], int *flags)
    {
        Step<Acc> step[4] = {};
        if (count > 0 && first + at < piece.count) {
            Acc x[4], raw[4], du[4] = {};
            load_four(args.scan.x, place(args.scan.x, piece, first + at), count, x);
            load_four(args.scan.delta, place(args.scan.delta, piece, first + at), count, raw);
            if (args.dy.data) load_du(piece, first + at, du);
            size_steps(raw, step);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                step[k].input = step[k].delta * x[k];
                step[k].du = du[k];
                if (k >= count)
                    step[k] = {};
                else if (!is_tame(step[k].delta, step[k].input) || !is_finite(du[k]))
                    atomicOr(&flags[column + k], 1);
            }
        }
#pragma unroll
        for (int k = 0; k < 4; k++) to[at][column + k] = step[k];
    }

    /* Steps first.. of a piece. */
    __device__ void put_steps(const Piece &piece, int64_t first, Step<Acc> (*to)[CHANNELS<Acc>], int *flags)
    {
#pragma unroll 1
        for (int i = 0; i < QUADS; i++) put_quad(piece, first, row + i * ROWS, to, flags);
    }

    /* B and C of a panel, each lane's states in `orders` orders; a value that is not finite flags all channels. */
    template <int orders>
    __device__ void put_inputs(const Piece &piece, int64_t first, int panel, Acc (*B)[orders][PANEL],
                               Acc (*C)[orders][PANEL], int *flags)
    {
        for (int i = threadIdx.x; i < 2 * TILE * LANES; i += blockDim.x) {
            const int lane = i % LANES, at = i / LANES % TILE, kind = i / (LANES * TILE);
            const rl_s6_view &view = kind ? args.scan.C : args.scan.B;
            const int64_t state = (int64_t)panel * PANEL + lane * STATES, left = args.scan.states - state;
            const int there = left < 0 ? 0 : left < STATES ? (int)left : STATES;
            Acc value[STATES] = {};
            if (there > 0 && first + at < piece.count && (kind == 0 || args.dy.data))
                load_four(view,
                          first_row(args.scan, view, piece) + (first + at) * view.step + block.group * view.group +
                              state * view.lane,
                          there, value);
            bool finite = true;
#pragma unroll
            for (int k = 0; k < STATES; k++) finite = finite && is_finite(value[k]);
            for (int k = 0; k < block.channels && !finite; k++) atomicOr(&flags[k], 1);
            Acc(*to)[PANEL] = kind ? C[at] : B[at];
#pragma unroll
            for (int order = 0; order < orders; order++) {
                Four<Acc> four;
#pragma unroll
                for (int k = 0; k < STATES; k++) four.state[k] = value[k ^ order];
                *(Four<Acc> *)&to[order][lane * STATES] = four;
            }
        }
    }

    /* Rows of a tile that comes after the one at hand. */
    __device__ void look_ahead(const Piece &piece, int64_t first) const
    {
        if (count == 0) return;
        const rl_s6_view *views[] = {&args.scan.x, &args.scan.delta, &args.dy, &args.scan.z};
#pragma unroll
        for (int v = 0; v < 4; v++) {
            const rl_s6_view &view = *views[v];
            if (!view.data) continue;
            const int64_t size = view.dtype == RILL_F64 ? 8 : view.dtype == RILL_F32 ? 4 : 2;
#pragma unroll
            for (int i = 0; i < QUADS; i++) {
                const int64_t at = first + row + i * ROWS;
                if (at >= 0 && at < piece.count) fetch_ahead((const char *)view.data + place(view, piece, at) * size);
            }
        }
    }
};
