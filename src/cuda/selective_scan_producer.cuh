/* The producers of selective_scan.cuh, which includes this in its namespace: all traffic with device memory. */

template <typename T, typename U, typename Acc, typename Shape, Pass pass, Work work> struct Producer {
    static constexpr int ACROSS = Shape::ACROSS, LANES = Shape::LANES;
    static constexpr bool LOOKS = ACROSS == 1 || sizeof(T) == 2; /* ahead; wide items leave it no registers */
    static constexpr int HELD = GROUP * ACROSS; /* elements of x, delta, z, y that a thread handles */
    static constexpr bool BUSY = work == WHOLE && Shape::HELD > 0; /* every thread has channels */

    struct alignas(ACROSS * sizeof(Acc)) Sums {
        Acc sum[ACROSS];
    };

    const rl_s6_args &args;
    const Task &task;
    Tiles<Acc, Shape> &tiles;
    int column, first; /* the thread's first channel of the block, and its first step of a tile */
    int count;         /* of its channels that exist; 0 for a thread that has none */
    bool whole;        /* full tiles can be read and written whole */
    bool skips;
    Acc bias[ACROSS], skip[ACROSS];
    const T *x; /* of the next tile to fetch, at the thread's first step */
    const U *delta, *B, *C;
    const T *z; /* of the next tile to write */
    T *y;
    const char *ahead; /* where a later tile's row of x, delta, B or C begins, a row for each thread */
    int64_t ahead_step;
    StepSize<Acc> step_size;
    Few<T, ACROSS> raw_x[GROUP];
    Few<U, ACROSS> raw_delta[GROUP];
    Quad<U> raw_B, raw_C;

    /* The address of the first step's row. */
    template <typename E> __device__ E *start(const rl_s6_view &view) const
    {
        return (E *)view.data + first_row(args, view, task.piece);
    }

    __device__ Producer(const rl_s6_args &args, const Task &task, Tiles<Acc, Shape> &tiles)
        : args(args), task(task), tiles(tiles), step_size(args), raw_x{}, raw_delta{}, raw_B{}, raw_C{}
    {
        const int across = args.block_channels / ACROSS;
        column = threadIdx.x % across * ACROSS;
        first = threadIdx.x / across * GROUP;
        count = task.channels - column;
        if (first >= STEPS || count < 0) count = 0;
        whole = work == WHOLE || (args.wide && task.channels == args.block_channels);
        skips = args.D.data != nullptr;
        const int64_t channel = task.channel + column;
        x = start<T>(args.x) + channel * args.x.lane + first * args.x.step;
        delta = start<U>(args.delta) + channel * args.delta.lane + first * args.delta.step;
        const int step = threadIdx.x / 4, state = threadIdx.x % 4 * 4; /* of its quad of B and C in a panel */
        B = start<U>(args.B) + task.group * args.B.group + state * args.B.lane + step * args.B.step;
        if (pass == FULL) {
            C = start<U>(args.C) + task.group * args.C.group + state * args.C.lane + step * args.C.step;
            y = start<T>(args.y) + channel * args.y.lane + first * args.y.step;
            if (args.z.data) z = start<T>(args.z) + channel * args.z.lane + first * args.z.step;
        }
        if (LOOKS) look_ahead();
#pragma unroll
        for (int c = 0; c < ACROSS; c++) {
            const bool exists = c < count;
            bias[c] =
                exists && args.bias.data ? ((const Acc *)args.bias.data)[(channel + c) * args.bias.stride] : Acc(0);
            skip[c] = exists && args.D.data ? ((const Acc *)args.D.data)[(channel + c) * args.D.stride] : Acc(0);
        }
    }

    /* One warp for each of x, delta, B and C, one thread for each step of a tile. */
    __device__ void look_ahead()
    {
        const int tensor = threadIdx.x / STEPS, size = tensor == 0 ? sizeof(T) : sizeof(U);
        const rl_s6_view &view = tensor == 0                      ? args.x
                                 : tensor == 1                    ? args.delta
                                 : tensor == 2 || pass == SUMMARY ? args.B
                                                                  : args.C;
        const int64_t at = tensor < 2 ? task.channel * view.lane : task.group * view.group;
        ahead_step = view.step * size;
        ahead = (const char *)view.data + (first_row(args, view, task.piece) + at) * size +
                (threadIdx.x % STEPS + AHEAD * STEPS) * ahead_step;
    }

    template <typename E> __device__ static E *after_bytes(E *place, int64_t bytes)
    {
        return (E *)((char *)place + bytes);
    }

    /* Four steps of a tensor in a tile of `steps`, and on to the next tile. */
    template <typename E>
    __device__ void fetch_steps(Few<E, ACROSS> (&raw)[GROUP], const E *&from, const rl_s6_view &view, int steps)
    {
        if constexpr (work == WHOLE) {
            const E *at = from;
#pragma unroll
            for (int s = 0; s < GROUP; s++, at = after_bytes(at, view.step_bytes))
                if (has(s, steps)) raw[s] = *(const Few<E, ACROSS> *)at;
            from = after_bytes(from, view.tile_bytes);
        } else {
            const E *at = from;
            int64_t step = view.step, lane = view.lane;
            hide(step, lane);
            if (whole && steps == STEPS) {
                if (count > 0)
#pragma unroll
                    for (int s = 0; s < GROUP; s++, at += step) raw[s] = *(const Few<E, ACROSS> *)at;
            } else {
#pragma unroll
                for (int s = 0; s < GROUP; s++, at += step)
                    raw[s] = load_few<E, ACROSS>(at, lane, first + s < steps ? count : 0, view.wide);
            }
            from += STEPS * step;
        }
    }

    /* Whether the thread has step s of its four, of whole work. */
    __device__ bool has(int s, int steps) const
    {
        return (BUSY || count > 0) && first + s < steps;
    }

    /* Four states of B or C, and on to the next stage. */
    __device__ void fetch_states(Quad<U> &raw, const U *&from, const rl_s6_view &view, const Stage &stage, int steps)
    {
        const int step = threadIdx.x / 4;
        if constexpr (work == WHOLE) {
            if (step < steps) raw = *(const Quad<U> *)from;
            from = after_bytes(from, view.tile_bytes);
        } else {
            const int64_t panel = stage.panel * PANEL, states = args.states - panel;
            if (whole && steps == STEPS && states >= PANEL)
                raw = *(const Quad<U> *)from;
            else
                raw = load_quad(from, view.lane, step < steps ? states - threadIdx.x % 4 * 4 : 0, view.wide);
            const bool last = stage.panel + 1 == args.panels;
            from += last ? STEPS * view.step - panel * view.lane : PANEL * view.lane;
        }
    }

    /* Issues the loads of a stage; prepare is where they are first used.  Stages come in order. */
    __device__ void fetch(const Stage &stage)
    {
        const int steps = stage.steps(task);
        if (work == WHOLE || stage.panel == 0) {
            fetch_steps(raw_x, x, args.x, steps);
            fetch_steps(raw_delta, delta, args.delta, steps);
            if (LOOKS) {
                if (stage.tile + AHEAD + 1 < task.tiles) bring_near(ahead);
                ahead += STEPS * ahead_step;
            }
        }
        fetch_states(raw_B, B, args.B, stage, steps);
        if (pass == FULL) fetch_states(raw_C, C, args.C, stage, steps);
    }

    /* Step sizes as they were loaded, with their bias. */
    __device__ void size_steps(Acc (&step)[HELD]) const
    {
#pragma unroll
        for (int k = 0; k < HELD; k++) step[k] = (Acc)widen(raw_delta[k / ACROSS].get(k % ACROSS)) + bias[k % ACROSS];
    }

    __device__ Acc value_of(int k) const
    {
        return widen(raw_x[k / ACROSS].get(k % ACROSS));
    }

    /* Whether steps or channels of the thread may not exist. */
    __device__ bool is_part(const Stage &stage) const
    {
        return !whole || stage.steps(task) < STEPS;
    }

    /* Steps and channels that do not exist become δ = δx = 0: they do nothing. */
    __device__ void leave_out(const Stage &stage, Acc (&step)[HELD])
    {
        const int steps = stage.steps(task);
#pragma unroll
        for (int k = 0; k < HELD; k++)
            if (first + k / ACROSS >= steps || k % ACROSS >= count) step[k] = 0;
        if constexpr (work == WHOLE) {
#pragma unroll
            for (int s = 0; s < GROUP; s++)
                if (!has(s, steps)) raw_x[s] = {}; /* of an earlier tile */
        }
    }

    /* Their sums, channel by channel. */
    __device__ void put_sums(const Stage &stage, const Acc (&step)[HELD])
    {
        Sums sums;
#pragma unroll
        for (int c = 0; c < ACROSS; c++)
            sums.sum[c] = (step[c] + step[ACROSS + c]) + (step[2 * ACROSS + c] + step[3 * ACROSS + c]);
        *(Sums *)&tiles.deltas[stage.tile & 1][first / GROUP][column] = sums;
    }

    /* What the thread put down as the step size of one of its own. */
    __device__ Acc delta_of(const Stage &stage, int step, int c) const
    {
        return tiles.step[stage.tile & 1][(first + step) / 2][column + c].pair[step % 2].delta;
    }

    /* δ and δx of the thread's steps of a tile.  Whether all inputs are of the usual size. */
    __device__ bool put_pairs(const Stage &stage, const Acc (&step)[HELD])
    {
        Acc size = 0; /* NaN and infinity stay in the sum */
#pragma unroll
        for (int s = 0; s < GROUP; s += 2) {
#pragma unroll
            for (int c = 0; c < ACROSS; c++) {
                const int k = s * ACROSS + c, later = k + ACROSS;
                const TwoSteps<Acc> out = {
                    {{step[k], step[k] * value_of(k)}, {step[later], step[later] * value_of(later)}}};
                size += fabs(out.pair[0].input) + fabs(out.pair[1].input);
                tiles.step[stage.tile & 1][(first + s) / 2][column + c] = out;
            }
        }
        return size <= Limits<Acc>::tame;
    }

    /* Where a channel's four steps of y are begun.  Nobody else comes here. */
    __device__ Quad<Acc> &begun_of(const Stage &stage, int c) const
    {
        return tiles.begun[stage.tile & 1][first / GROUP][slot_of(column + c)];
    }

    __device__ void put_skips(const Stage &stage)
    {
#pragma unroll
        for (int c = 0; c < ACROSS; c++) {
            Quad<Acc> begun;
#pragma unroll
            for (int s = 0; s < GROUP; s++) begun.lane[s] = skip[c] * value_of(s * ACROSS + c);
            begun_of(stage, c) = begun;
        }
    }

    /*
     * Any step sizes and inputs, one by one and from memory again: nothing is kept for this.  Notes for the consumers
     * which channels the fast order cannot take.
     */
    __device__ void put_unusual(const Stage &stage)
    {
        const int steps = stage.steps(task);
#pragma unroll 1
        for (int k = 0; k < HELD; k++) {
            const int s = k / ACROSS, c = k % ACROSS;
            Acc step[1] = {0}, value = 0;
            if (first + s < steps && c < count) {
                const int64_t back = STEPS - s;
                const Acc raw = widen(delta[c * args.delta.lane - back * args.delta.step]);
                step[0] = raw + (c == 0 ? bias[0] : bias[ACROSS - 1]);
                value = widen(x[c * args.x.lane - back * args.x.step]);
                if constexpr (work == WHOLE)
                    step_size.any_soft(step[0]);
                else
                    step_size.any(step);
            }
            const Pair<Acc> pair = {step[0], step[0] * value};
            tiles.step[stage.tile & 1][(first + s) / 2][column + c].pair[s % 2] = pair;
            int flags = is_tame(pair.delta, pair.input) ? 0 : WILD;
            if (sizeof(T) == 4 && s > 0 && step[0] != 0 && delta_of(stage, s - 1, c) == step[0]) flags |= REPEATS;
            if (flags) atomicOr(&tiles.flags[stage.tile % 4][column + c], flags);
        }
        Acc step[HELD];
#pragma unroll
        for (int k = 0; k < HELD; k++) step[k] = delta_of(stage, k / ACROSS, k % ACROSS);
        put_sums(stage, step);
    }

    /*
     * Notes for the consumers where a step size of float32 data equals that of the step before (16-bit results do not
     * show what comes of it).  A step is compared within the thread's four only.  Where it is 0 its decay is 1 in any
     * case.
     */
    __device__ void note_repeats(const Stage &stage, const Acc (&step)[HELD])
    {
        bool any = false;
#pragma unroll
        for (int k = ACROSS; k < HELD; k++) any = any || step[k] == step[k - ACROSS];
        if (!any) return;
#pragma unroll 1
        for (int k = ACROSS; k < HELD; k++) {
            const Acc delta = delta_of(stage, k / ACROSS, k % ACROSS);
            if (delta != 0 && delta == delta_of(stage, k / ACROSS - 1, k % ACROSS))
                atomicOr(&tiles.flags[stage.tile % 4][column + k % ACROSS], REPEATS);
        }
    }

    /* δ, δx and D x of the thread's steps of a tile. */
    __device__ void put_steps(const Stage &stage)
    {
        bool usual = false;
        if constexpr (sizeof(Acc) == 4) {
            Acc step[HELD];
            size_steps(step);
            usual = work == WHOLE ? step_size.usual_soft(step) : step_size.usual(step);
            if (is_part(stage)) leave_out(stage, step);
            usual = put_pairs(stage, step) && usual;
            put_sums(stage, step);
            if (sizeof(T) == 4 && usual) note_repeats(stage, step);
        }
        if (pass == FULL && skips) put_skips(stage);
        if (!usual) put_unusual(stage);
    }

    /* Turns what fetch loaded into the shared tiles of the stage. */
    __device__ void prepare(const Stage &stage, int parity)
    {
        if (work == WHOLE && is_part(stage) && (int)threadIdx.x / 4 >= stage.steps(task)) raw_B = raw_C = {};
        put_bc(parity);
        if (BUSY || (stage.panel == 0 && count > 0)) put_steps(stage);
    }

    __device__ void put_bc(int parity)
    {
        Acc wide[8];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int at = k / Shape::OWN * 2 * Shape::OWN + k % Shape::OWN;
            wide[at] = widen(raw_B.get(k));
            wide[at + Shape::OWN] = pass == FULL ? widen(raw_C.get(k)) : Acc(0);
        }
        Quad<Acc> *to = (Quad<Acc> *)&tiles.bc[parity][threadIdx.x / 4][threadIdx.x % 4 * 8];
        to[0] = {{wide[0], wide[1], wide[2], wide[3]}};
        to[1] = {{wide[4], wide[5], wide[6], wide[7]}};
    }

    __device__ static void add_to(Quad<Acc> &sum, const Quad<Acc> &more)
    {
#pragma unroll
        for (int s = 0; s < GROUP; s++) sum.lane[s] += more.lane[s];
    }

    /* Four steps of a channel: what its lanes have of y at a stage, and what was begun. */
    __device__ Quad<Acc> add_up(const Stage &stage, int parity, int c) const
    {
        const auto &part = tiles.y[parity][first / GROUP];
        const int slot = slot_of(column + c);
        Quad<Acc> sum = part[0][slot];
#pragma unroll
        for (int lane = 1; lane < LANES; lane++) add_to(sum, part[lane][slot]);
        if (skips || (work != WHOLE && stage.panel > 0)) add_to(sum, begun_of(stage, c));
        return sum;
    }

    __device__ void pass_gate(int steps, Quad<Acc> (&sum)[ACROSS])
    {
        Few<T, ACROSS> gates[GROUP];
        fetch_steps(gates, z, args.z, steps);
        gate_sums(gates, sum);
    }

    __device__ static void gate_sums(const Few<T, ACROSS> (&gates)[GROUP], Quad<Acc> (&sum)[ACROSS])
    {
#pragma unroll
        for (int k = 0; k < HELD; k++)
            sum[k % ACROSS].lane[k / ACROSS] *= gate((Acc)widen(gates[k / ACROSS].get(k % ACROSS)));
    }

    __device__ static void round_sums(const Quad<Acc> (&sum)[ACROSS], Few<T, ACROSS> (&out)[GROUP])
    {
#pragma unroll
        for (int s = 0; s < GROUP; s++) {
            Acc row[ACROSS];
#pragma unroll
            for (int c = 0; c < ACROSS; c++) row[c] = sum[c].lane[s];
            out[s].round(row);
        }
    }

    /* Writes four steps of y.  Tiles come in order. */
    __device__ void write(int steps, const Quad<Acc> (&sum)[ACROSS])
    {
        Few<T, ACROSS> out[GROUP];
        round_sums(sum, out);
        if constexpr (work == WHOLE) {
            T *to = y;
#pragma unroll
            for (int s = 0; s < GROUP; s++, to = after_bytes(to, args.y.step_bytes))
                if (has(s, steps)) *(Few<T, ACROSS> *)to = out[s];
            y = after_bytes(y, args.y.tile_bytes);
        } else {
            T *to = y;
            int64_t step = args.y.step, lane = args.y.lane;
            hide(step, lane);
            y += STEPS * step;
            if (whole && steps == STEPS) {
#pragma unroll
                for (int s = 0; s < GROUP; s++, to += step) *(Few<T, ACROSS> *)to = out[s];
            } else {
#pragma unroll
                for (int s = 0; s < GROUP; s++, to += step)
                    store_few<T, ACROSS>(to, lane, first + s < steps ? count : 0, args.y.wide, out[s]);
            }
        }
    }

    /* What the consumers have of y at a stage; with the last panel the tile's y is complete. */
    __device__ void collect(const Stage &stage, int parity)
    {
        if (!BUSY && count == 0) return;
        const int steps = stage.steps(task);
        Quad<Acc> sum[ACROSS];
#pragma unroll
        for (int c = 0; c < ACROSS; c++) sum[c] = add_up(stage, parity, c);
        if (work != WHOLE && stage.panel + 1 < args.panels) {
#pragma unroll
            for (int c = 0; c < ACROSS; c++) begun_of(stage, c) = sum[c];
            return;
        }
        if (args.z.data) pass_gate(steps, sum);
        write(steps, sum);
    }

    /*
     * Round k fetches stage k, prepares stage k - 1 and collects y of stage k - 3, while the consumers are at stage
     * k - 2.  The first rounds and the last are parts of the same loop, since a problem of a few stages waits mostly
     * for instructions that it has not yet met.
     */
    __device__ void run()
    {
        const int panels = work == WHOLE ? 1 : args.panels, threads = blockDim.x;
        Stage behind, next, after;
        int parity = 1; /* of stages `next` and `behind` */
#pragma unroll 1
        for (int early = 3;; early -= early > 0, parity ^= 1) { /* rounds until there is a y to collect */
            if (early == 0) {
                if (pass == FULL) collect(behind, parity); /* before the next tile's D x takes its place */
                behind.advance(panels);
            }
            if (early < 3 && next.tile < task.tiles) {
                prepare(next, parity);
                next.advance(panels);
            }
            if (after.tile < task.tiles) {
                fetch(after);
                after.advance(panels);
            }
            if (early < 2 && behind.tile == task.tiles) return;
            /* First: the flags are clear, and the task before has left the tiles.  Then: a stage is prepared.  From
             * then on also: the tiles of the one before are used up, and its y is complete. */
            block_barrier(threads);
        }
    }
};
