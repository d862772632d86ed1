/* The preparation of tiles, which selective_scan_back.cuh includes in its namespace: from memory to shared memory. */

/* What the preparation of a tile reads besides its rows, of the block's channels. */
template <typename Acc> struct Parameters {
    alignas(16) Acc bias[CHANNELS<Acc>], skip[CHANNELS<Acc>];

    __device__ void load(const rl_s6_args &args, const Block &block)
    {
        for (int k = threadIdx.x; k < args.block_channels; k += blockDim.x) {
            const bool exists = k < block.channels;
            const int64_t channel = block.channel + k;
            bias[k] = exists && args.bias.data ? ((const Acc *)args.bias.data)[channel * args.bias.stride] : Acc(0);
            skip[k] = exists && args.D.data ? ((const Acc *)args.D.data)[channel * args.D.stride] : Acc(0);
        }
    }
};

/*
 * A thread's place among the quads of a tile, packed: its number, the first step, the first channel.  It lies in
 * shared memory, for what the compiler can work out ahead it would hold in registers, or spill.
 */
__device__ inline int find_seat(const rl_s6_args &args)
{
    const int quads = args.block_channels / 4;
    return (int)threadIdx.x << 16 | (int)threadIdx.x / quads << 8 | (int)threadIdx.x % quads * 4;
}

/*
 * A thread's share of a block's tiles, which have `size` steps: four neighbouring channels of one step of
 * every `count`.
 * `back`: with slopes, which only the walk back needs; of neighbouring steps, which is the order of its sums.
 */
template <typename Acc, int size, bool back, int form, int count = ROWS> struct Preparer {
    static constexpr bool neat = is_neat(form);
    static constexpr int QUADS = size / count;                              /* of every tensor */
    static constexpr int APART = back ? QUADS : 1, NEXT = back ? 1 : count; /* first steps of rows, steps of a row */
    using Rows = RowsOf<count, APART>;

    const rl_s6_back_args &args;
    const Block &block;
    int thread, column, row, left; /* of its quads: the first channel and step; channels from there on that exist */
    bool full;                     /* its quads are whole, and one access in memory */
    bool flows;                    /* a gradient is wanted: without, dy counts as zero */

    __device__ Preparer(const rl_s6_back_args &args, const Block &block, int seat, bool wanted = true)
        : args(args), block(block), flows(wanted && args.dy.data)
    {
        thread = seat >> 16;
        row = seat >> 8 & 0xff;
        column = seat & 0xff;
        left = block.channels - column;
        full = neat || (args.scan.wide && left >= 4);
    }

    /* The step of its quad i. */
    __device__ int step_of(int i) const
    {
        return row * APART + i * NEXT;
    }
    /* The thread's first quad, and the bytes from one to the next. */
    __device__ char *quad_of(const Rows &rows, int tensor) const
    {
        const rl_s6_view &view = view_of(args, tensor);
        const int64_t lane = neat ? (int64_t)column : column * view.lane;
        return rows.row[tensor][row] + lane * bytes_in<form>(view);
    }
    __device__ int64_t stride(const rl_s6_view &view) const
    {
        return view.step * NEXT * bytes_in<form>(view);
    }

    /* The quads of steps below `steps`; of the others nothing is read. */
    __device__ void load(const Rows &rows, int tensor, int steps, Raw<Acc> (&raw)[QUADS]) const
    {
        const rl_s6_view &view = view_of(args, tensor);
        const char *from = quad_of(rows, tensor);
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            raw[i] = {};
            if (left > 0 && step_of(i) < steps)
                raw[i] = load_raw<form>(Acc(), from + i * stride(view), view, neat || full, left);
        }
    }
    __device__ void unpack_quad(const Raw<Acc> &raw, int tensor, Acc (&to)[4]) const
    {
        unpack<form>(raw, view_of(args, tensor), neat || full, to);
    }
    __device__ void store(const Rows &rows, int tensor, int i, const Acc (&from)[4]) const
    {
        const rl_s6_view &view = view_of(args, tensor);
        store_four<form>(quad_of(rows, tensor) + i * stride(view), view, neat || full, left, from);
    }

    /* δ and its slope from what is stored. */
    __device__ void size_steps(const Acc (&raw)[4], const Four<Acc> &bias, Step<Acc> (&step)[4]) const
    {
        Acc value[4], slope[4] = {1, 1, 1, 1};
#pragma unroll
        for (int k = 0; k < 4; k++) value[k] = raw[k] + bias.state[k];
        if (args.scan.softplus) soften_four<back>(value, slope);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            step[k].delta = value[k];
            step[k].slope = slope[k];
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

    /* Channels for the loop's own order: of each of the walk's tiles a pair of bits. */
    __device__ void flag(const Step<Acc> (&step)[4], int at, int *flags) const
    {
        Acc least = step[0].delta, sum = 0; /* NaN and infinity stay in the sum */
#pragma unroll
        for (int k = 0; k < 4; k++) {
            least = step[k].delta < least ? step[k].delta : least;
            sum += fabs(step[k].delta) + fabs(step[k].input) + fabs(step[k].du);
        }
        if (least >= 0 && sum <= Limits<Acc>::tame) return;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int wild =
                (is_wild_state(step[k]) ? STATES_WILD : 0) | (is_wild_gradient(step[k]) ? GRADIENTS_WILD : 0);
            if (wild) atomicOr(&flags[column + k], wild << at / TILE * 2);
        }
    }

    /* A tile's steps on their way. */
    struct Fetched {
        Raw<Acc> x[QUADS], delta[QUADS], dy[QUADS], z[QUADS];
    };
    __device__ void fetch_steps(const Rows &rows, int steps, Fetched &to) const
    {
        load(rows, OF_DELTA, steps, to.delta);
        load(rows, OF_X, steps, to.x);
        load(rows, OF_DY, flows ? steps : 0, to.dy);
        load(rows, OF_Z, flows && args.scan.z.data ? steps : 0, to.z);
    }

    /* Prepares them.  Steps and channels that do not exist become zeros: they do nothing. */
    __device__ void put_steps(const Fetched &from, const Parameters<Acc> &parameters, int steps,
                              Step<Acc> (*to)[CHANNELS<Acc>], int *flags) const
    {
        const bool has_z = flows && args.scan.z.data;
        const Four<Acc> bias = *(const Four<Acc> *)&parameters.bias[column];
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            const int at = step_of(i);
            Step<Acc> step[4] = {};
            if (left > 0 && at < steps) {
                Acc value[4];
                unpack_quad(from.delta[i], OF_DELTA, value);
                size_steps(value, bias, step);
                unpack_quad(from.x[i], OF_X, value);
#pragma unroll
                for (int k = 0; k < 4; k++) step[k].input = step[k].delta * value[k];
                if (flows) {
                    unpack_quad(from.dy[i], OF_DY, value);
#pragma unroll
                    for (int k = 0; k < 4; k++) step[k].du = value[k];
                }
                if (has_z) {
                    unpack_quad(from.z[i], OF_Z, value);
#pragma unroll
                    for (int k = 0; k < 4; k++) step[k].du *= gate(value[k]);
                }
                if (!neat && left < 4) {
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        if (k >= left) step[k] = {};
                }
                flag(step, at, flags);
            }
#pragma unroll
            for (int k = 0; k < 4; k++) to[at][slot_of(column) ^ k] = step[k]; /* columns of quads are in fours */
        }
    }

    /* Fours of a panel's B and C, of which there are INPUTS: each lane's states of a step. */
    static constexpr int INPUTS = 2 * size * LANES;

    __device__ bool is_whole_input(const rl_s6_view &view, int64_t there) const
    {
        return neat || (view.wide && there >= STATES);
    }
    __device__ int64_t states_from(int panel, int i) const
    {
        return args.scan.states - (int64_t)panel * PANEL - i % LANES * STATES;
    }
    __device__ Raw<Acc> fetch_input(const Rows &rows, int steps, int panel, int i) const
    {
        const int at = i / LANES % size, kind = i / (LANES * size);
        const rl_s6_view &view = kind ? args.scan.C : args.scan.B;
        const int64_t there = states_from(panel, i), state = args.scan.states - there;
        if (there <= 0 || at >= steps || (kind && !flows)) return {};
        const int which = back ? at / QUADS : at % count, next = back ? at % QUADS : at / count;
        const char *from = rows.row[OF_B + kind][which] + next * stride(view);
        return load_raw<form>(Acc(), from + (neat ? state : state * view.lane) * bytes_in<form>(view), view,
                              is_whole_input(view, there), there < STATES ? (int)there : STATES);
    }
    /* Each lane's states in `orders` orders. */
    template <int orders>
    __device__ void put_input(const Raw<Acc> &raw, int panel, int i, Acc (*B)[orders][PANEL],
                              Acc (*C)[orders][PANEL]) const
    {
        const int at = i / LANES % size, kind = i / (LANES * size);
        const rl_s6_view &view = kind ? args.scan.C : args.scan.B;
        Acc value[STATES];
        unpack<form>(raw, view, is_whole_input(view, states_from(panel, i)), value);
        Acc(*to)[PANEL] = kind ? C[at] : B[at];
#pragma unroll
        for (int order = 0; order < orders; order++) {
            Four<Acc> four;
#pragma unroll
            for (int k = 0; k < STATES; k++) four.state[k] = value[k ^ order];
            *(Four<Acc> *)&to[order][i % LANES * STATES] = four;
        }
    }
    /* All of them; the thread's first is on its way already. */
    template <int orders>
    __device__ void put_inputs(Raw<Acc> raw, const Rows &rows, int steps, int panel, Acc (*B)[orders][PANEL],
                               Acc (*C)[orders][PANEL]) const
    {
        for (int i = thread; i < INPUTS; i += blockDim.x) {
            if (i >= (int)blockDim.x) raw = fetch_input(rows, steps, panel, i);
            put_input<orders>(raw, panel, i, B, C);
        }
    }

    /* Brings rows `ahead` steps on into the L2 cache: `steps` of them there are. */
    __device__ void look_ahead(const Rows &rows, int64_t ahead, int64_t steps) const
    {
#pragma unroll
        for (int tensor = OF_X; tensor <= OF_Z; tensor++) {
            const rl_s6_view &view = view_of(args, tensor);
            if (left <= 0 || !view.data || (tensor >= OF_DY && !flows)) continue;
            const char *from = quad_of(rows, tensor) + ahead * view.step * bytes_in<form>(view);
#pragma unroll
            for (int i = 0; i < QUADS; i++)
                if (step_of(i) < steps) fetch_ahead(from + i * stride(view));
        }
    }
};
