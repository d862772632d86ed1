/* The preparation of tiles, which selective_scan_back.cuh includes in its namespace: from memory to shared memory. */

/* Fours of neighbouring channels down the steps of a tile, in a tensor by channel. */
struct Column {
    char *data;
    int64_t stride; /* bytes from one of the thread's rows to the next */
    int64_t lane;
    int dtype;

    __device__ Column(const rl_s6_view &view, int64_t first)
    {
        const int bytes = view.dtype == RILL_F64 ? 8 : view.dtype == RILL_F32 ? 4 : 2;
        data = (char *)view.data + first * bytes;
        stride = view.step * ROWS * bytes;
        lane = view.lane;
        dtype = view.dtype;
    }
};

/*
 * A thread's share of a block's tiles: four neighbouring channels of every eighth step.  `back`: with slopes, which
 * only the walk back needs.
 */
template <typename Acc, bool back> struct Preparer {
    static constexpr int BATCH = back && sizeof(Acc) == 4 ? 2 : 1; /* quads whose loads are issued together */

    const rl_s6_back_args &args;
    const Block &block;
    int column, row, count; /* of its quads: the first channel and step; channels that exist */

    __device__ Preparer(const rl_s6_back_args &args, const Block &block) : args(args), block(block)
    {
        const int quads = args.scan.block_channels / 4, left = block.channels - (int)threadIdx.x % quads * 4;
        column = threadIdx.x % quads * 4;
        row = threadIdx.x / quads;
        count = left < 0 ? 0 : left < 4 ? left : 4;
    }

    /* The thread's quads from step `first` of a piece on. */
    __device__ Column column_of(const rl_s6_view &view, const Piece &piece, int64_t first) const
    {
        return Column(view, first_row(args.scan, view, piece) + (first + row) * view.step +
                                (block.channel + column) * view.lane);
    }

    __device__ void load(const Column &from, int quad, Acc (&to)[4]) const
    {
        load_four(from.data + quad * from.stride, from.dtype, from.lane, count, args.scan.wide, to);
    }
    __device__ void store(const Column &to, int quad, const Acc (&from)[4]) const
    {
        store_four(to.data + quad * to.stride, to.dtype, to.lane, count, args.scan.wide, from);
    }

    /* A parameter of the thread's channels. */
    __device__ void load_parameter(const rl_s6_vector &vector, Acc (&to)[4]) const
    {
        const Acc *from = (const Acc *)vector.data + (block.channel + column) * vector.stride;
#pragma unroll
        for (int k = 0; k < 4; k++) to[k] = vector.data && k < count ? from[k * vector.stride] : Acc(0);
    }

    /* δ and its slope from what is stored. */
    __device__ void size_steps(const Acc (&raw)[4], const Acc (&bias)[4], Step<Acc> (&step)[4]) const
    {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const Acc value = raw[k] + bias[k];
            step[k].delta = value;
            step[k].slope = 1;
            if (args.scan.softplus && back)
                soften(value, step[k].delta, step[k].slope);
            else if (args.scan.softplus)
                step[k].delta = softplus(value);
        }
        if (!args.clamps) return;
        const Acc low = (Acc)args.scan.delta_min, high = (Acc)args.scan.delta_max;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const Acc value = step[k].delta;
            if (value < low || value > high) step[k].slope = -1;
            step[k].delta = value < low ? low : value > high ? high : value;
        }
    }

    /* Channels that do not exist. */
    __device__ void drop(Step<Acc> (&step)[4]) const
    {
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (k >= count) step[k] = {};
    }

    /* Channels for the loop's own order. */
    __device__ void flag(const Step<Acc> (&step)[4], int *flags) const
    {
        Acc least = step[0].delta, size = 0; /* NaN and infinity stay in the sum */
#pragma unroll
        for (int k = 0; k < 4; k++) {
            least = step[k].delta < least ? step[k].delta : least;
            size += fabs(step[k].delta) + fabs(step[k].input) + fabs(step[k].du);
        }
        if (least >= 0 && size <= Limits<Acc>::tame) return;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int wild =
                (is_wild_state(step[k]) ? STATES_WILD : 0) | (is_wild_gradient(step[k]) ? GRADIENTS_WILD : 0);
            if (wild) atomicOr(&flags[column + k], wild);
        }
    }

    /* Steps first.. of a piece.  Steps and channels that do not exist become zeros: they do nothing. */
    __device__ void put_steps(const Piece &piece, int64_t first, Step<Acc> (*to)[CHANNELS<Acc>], int *flags) const
    {
        const int64_t left = piece.count - first;
        const Column x(column_of(args.scan.x, piece, first)), delta(column_of(args.scan.delta, piece, first));
        const Column dy(column_of(args.dy, piece, first)), z(column_of(args.scan.z, piece, first));
        const bool has_dy = args.dy.data, has_z = args.dy.data && args.scan.z.data;
        Acc bias[4];
        load_parameter(args.scan.bias, bias);
#pragma unroll 1
        for (int quad = 0; quad < QUADS; quad += BATCH) {
            Acc raw_x[BATCH][4], raw_delta[BATCH][4], raw_dy[BATCH][4], raw_z[BATCH][4];
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const bool exists = count > 0 && row + (quad + i) * ROWS < left;
#pragma unroll
                for (int k = 0; k < 4; k++) raw_x[i][k] = raw_delta[i][k] = raw_dy[i][k] = raw_z[i][k] = 0;
                if (!exists) continue;
                load(x, quad + i, raw_x[i]);
                load(delta, quad + i, raw_delta[i]);
                if (has_dy) load(dy, quad + i, raw_dy[i]);
                if (has_z) load(z, quad + i, raw_z[i]);
            }
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const int at = row + (quad + i) * ROWS;
                Step<Acc> step[4] = {};
                if (at < left) {
                    size_steps(raw_delta[i], bias, step);
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        step[k].input = step[k].delta * raw_x[i][k];
                        step[k].du = raw_dy[i][k];
                    }
                    if (has_z) {
#pragma unroll
                        for (int k = 0; k < 4; k++) step[k].du *= gate(raw_z[i][k]);
                    }
                    if (count < 4) drop(step);
                    flag(step, flags);
                }
#pragma unroll
                for (int k = 0; k < 4; k++) to[at][column + k] = step[k];
            }
        }
    }

    /* B and C of a panel, each lane's states in `orders` orders. */
    template <int orders>
    __device__ void put_inputs(const Piece &piece, int64_t first, int panel, Acc (*B)[orders][PANEL],
                               Acc (*C)[orders][PANEL]) const
    {
        for (int i = threadIdx.x; i < 2 * TILE * LANES; i += blockDim.x) {
            const int lane = i % LANES, at = i / LANES % TILE, kind = i / (LANES * TILE);
            const rl_s6_view &view = kind ? args.scan.C : args.scan.B;
            const int64_t state = (int64_t)panel * PANEL + lane * STATES, left = args.scan.states - state;
            const int there = left < 0 ? 0 : left < STATES ? (int)left : STATES;
            Acc value[STATES] = {};
            if (there > 0 && first + at < piece.count && (kind == 0 || args.dy.data)) {
                const int64_t from = first_row(args.scan, view, piece) + (first + at) * view.step +
                                     block.group * view.group + state * view.lane;
                load_four(Column(view, from).data, view.dtype, view.lane, there, view.wide, value);
            }
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
        const rl_s6_view *views[] = {&args.scan.x, &args.scan.delta, &args.dy, &args.scan.z};
        if (count == 0 || first < 0) return;
#pragma unroll
        for (int v = 0; v < 4; v++) {
            if (!views[v]->data) continue;
            const Column column(column_of(*views[v], piece, first));
#pragma unroll
            for (int i = 0; i < QUADS; i++)
                if (first + row + i * ROWS < piece.count) fetch_ahead(column.data + i * column.stride);
        }
    }
};
