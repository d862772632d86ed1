/* The producers of selective_scan.cuh, which includes this in its namespace: all traffic with device memory. */

template <typename T, typename U, typename Acc, typename Shape, Pass pass> struct Producer {
    static constexpr int ACROSS = Shape::ACROSS, LANES = Shape::LANES;
    static constexpr int HELD = GROUP * ACROSS; /* elements of x, delta, z, y that a thread handles */

    const rl_s6_args &args;
    const Task &task;
    Tiles<Acc, Shape> &tiles;
    int column, first; /* the thread's first channel of the block, and its first step of a tile */
    int count;         /* of its channels that exist; 0 for a thread that has none */
    bool whole;        /* full tiles can be read and written whole */
    bool skips;
    Acc bias[ACROSS], skip[ACROSS];
    const T *x, *z; /* of the next tile to fetch, at the thread's first step */
    T *y;           /* of the next tile to write */
    const U *delta, *B, *C;
    StepSize<Acc> step_size;
    Few<T, ACROSS> raw_x[GROUP], raw_z[GROUP];
    Few<U, ACROSS> raw_delta[GROUP];
    Quad<U> raw_B, raw_C;

    /* The address of the first step's row. */
    template <typename E> __device__ E *start(const rl_s6_view &view) const
    {
        return (E *)view.data + first_row(args, view, task.piece);
    }

    __device__ Producer(const rl_s6_args &args, const Task &task, Tiles<Acc, Shape> &tiles)
        : args(args), task(task), tiles(tiles), step_size(args)
    {
        const int across = args.block_channels / ACROSS;
        column = threadIdx.x % across * ACROSS;
        first = threadIdx.x / across * GROUP;
        count = task.channels - column;
        if (first >= STEPS || count < 0) count = 0;
        whole = args.wide && task.channels == args.block_channels;
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
#pragma unroll
        for (int c = 0; c < ACROSS; c++) {
            const bool exists = c < count;
            bias[c] =
                exists && args.bias.data ? ((const Acc *)args.bias.data)[(channel + c) * args.bias.stride] : Acc(0);
            skip[c] = exists && args.D.data ? ((const Acc *)args.D.data)[(channel + c) * args.D.stride] : Acc(0);
        }
    }

    /* Four steps of a tensor, of which `left` exist. */
    template <typename E>
    __device__ void fetch_steps(Few<E, ACROSS> (&raw)[GROUP], const E *from, const rl_s6_view &view, int64_t left)
    {
        if (whole && left >= STEPS) {
            if (count == 0) return;
#pragma unroll
            for (int s = 0; s < GROUP; s++, from += view.step) raw[s] = *(const Few<E, ACROSS> *)from;
        } else {
#pragma unroll
            for (int s = 0; s < GROUP; s++, from += view.step)
                raw[s] = load_few<E, ACROSS>(from, view.lane, first + s < left ? count : 0, view.wide);
        }
    }

    /* Issues the loads of a stage; prepare is where they are first used.  Stages come in order. */
    __device__ void fetch(const Stage &stage)
    {
        const int64_t left = task.piece.count - stage.tile * STEPS;
        const int64_t panel = stage.panel * PANEL;
        const bool last = stage.panel + 1 == args.panels;
        if (stage.panel == 0) {
            fetch_steps(raw_x, x, args.x, left);
            fetch_steps(raw_delta, delta, args.delta, left);
            x += STEPS * args.x.step;
            delta += STEPS * args.delta.step;
        }
        if (whole && left >= STEPS && args.states - panel >= PANEL) {
            raw_B = *(const Quad<U> *)B;
            if (pass == FULL) raw_C = *(const Quad<U> *)C;
        } else {
            const int64_t states = args.states - panel - threadIdx.x % 4 * 4;
            const int64_t there = (int)threadIdx.x / 4 < left ? states : 0;
            raw_B = load_quad(B, args.B.lane, there, args.B.wide);
            if (pass == FULL) raw_C = load_quad(C, args.C.lane, there, args.C.wide);
        }
        B += last ? STEPS * args.B.step - panel * args.B.lane : PANEL * args.B.lane;
        if (pass == FULL) C += last ? STEPS * args.C.step - panel * args.C.lane : PANEL * args.C.lane;
    }

    /* The gate's loads for a finished tile.  Tiles come in order. */
    __device__ void fetch_gate(int64_t tile)
    {
        fetch_steps(raw_z, z, args.z, task.piece.count - tile * STEPS);
        z += STEPS * args.z.step;
    }

    /* Step sizes from what was loaded. */
    __device__ void size_steps(Acc (&step)[HELD]) const
    {
#pragma unroll
        for (int k = 0; k < HELD; k++) step[k] = (Acc)widen(raw_delta[k / ACROSS].get(k % ACROSS)) + bias[k % ACROSS];
    }

    /* δx, and whether all are of the usual size. */
    __device__ bool take_inputs(const Acc (&step)[HELD], Acc (&input)[HELD]) const
    {
        Acc size = 0; /* NaN and infinity stay in the sum */
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            input[k] = step[k] * (Acc)widen(raw_x[k / ACROSS].get(k % ACROSS));
            size += fabs(input[k]);
        }
        return size <= Limits<Acc>::tame;
    }

    /* Steps and channels that do not exist become δ = δx = 0: they do nothing. */
    __device__ void leave_out(Acc (&step)[HELD], int64_t left) const
    {
#pragma unroll
        for (int k = 0; k < HELD; k++)
            if (first + k / ACROSS >= left || k % ACROSS >= count) step[k] = 0;
    }

    /* δ and δx of the thread's steps.  Notes for the consumers which channels the fast order cannot take. */
    __device__ void work_out(const Stage &stage, Acc (&step)[HELD], Acc (&input)[HELD])
    {
        const int64_t left = task.piece.count - stage.tile * STEPS;
        const bool all = whole && left >= STEPS;
        if constexpr (sizeof(Acc) == 4) {
            size_steps(step);
            const bool usual = step_size.usual(step);
            if (!all) leave_out(step, left);
            if (take_inputs(step, input) && usual) return;
        }
        size_steps(step);
        step_size(step);
        if (!all) leave_out(step, left);
        take_inputs(step, input);
#pragma unroll
        for (int k = 0; k < HELD; k++)
            if (!is_tame(step[k], input[k])) atomicOr(&tiles.flags[stage.third][column + k % ACROSS], WILD);
    }

    /*
     * Notes for the consumers where a step size of float32 data equals that of the step before (16-bit results do not
     * show what comes of it).  A step is compared within the thread's four only.  Where it is 0 its decay is 1 in any
     * case.
     */
    __device__ void note_repeats(const Acc (&step)[HELD], int third)
    {
        bool any = false;
#pragma unroll
        for (int k = ACROSS; k < HELD; k++) any = any || step[k] == step[k - ACROSS];
        if (!any) return;
#pragma unroll
        for (int k = ACROSS; k < HELD; k++)
            if (step[k] == step[k - ACROSS] && step[k] != 0)
                atomicOr(&tiles.flags[third][column + k % ACROSS], REPEATS);
    }

    /* δ, δx and D x of the thread's steps of a tile. */
    __device__ void put_steps(const Stage &stage)
    {
        Acc step[HELD], input[HELD];
        work_out(stage, step, input);
        if (sizeof(T) == 4) note_repeats(step, stage.third);
#pragma unroll
        for (int s = 0; s < GROUP; s++) {
            Pairs<Acc, ACROSS> out;
#pragma unroll
            for (int c = 0; c < ACROSS; c++) out.pair[c] = {step[s * ACROSS + c], input[s * ACROSS + c]};
            *(Pairs<Acc, ACROSS> *)&tiles.step[stage.tile & 1][first + s][column] = out;
        }
        if (pass == SUMMARY || !skips) return;
#pragma unroll
        for (int c = 0; c < ACROSS; c++) {
            Quad<Acc> begun;
#pragma unroll
            for (int s = 0; s < GROUP; s++) begun.lane[s] = skip[c] * (Acc)widen(raw_x[s].get(c));
            tiles.y[stage.tile & 1][first / GROUP][LANES][slot_of(column + c)] = begun;
        }
    }

    /* Turns what fetch loaded into the shared tiles of the stage. */
    __device__ void prepare(const Stage &stage)
    {
        if (stage.panel == 0 && count > 0) put_steps(stage);
        Quad<Acc> wide_B, wide_C;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            wide_B.lane[k] = widen(raw_B.get(k));
            if (pass == FULL) wide_C.lane[k] = widen(raw_C.get(k));
        }
        Acc *to = tiles.bc[stage.parity][threadIdx.x / 4] + threadIdx.x % 4 * 4;
        *(Quad<Acc> *)to = wide_B;
        if (pass == FULL) *(Quad<Acc> *)(to + PANEL) = wide_C;
    }

    /* Four steps of a channel: what its lanes have of y, and D x. */
    __device__ Quad<Acc> add_lanes(int64_t tile, int c) const
    {
        const auto &part = tiles.y[tile & 1][first / GROUP];
        const int slot = slot_of(column + c);
        Quad<Acc> sum = part[0][slot];
#pragma unroll
        for (int lane = 1; lane <= LANES; lane++) {
            if (lane == LANES && !skips) break;
            const Quad<Acc> more = part[lane][slot];
#pragma unroll
            for (int s = 0; s < GROUP; s++) sum.lane[s] += more.lane[s];
        }
        return sum;
    }

    /* Writes a finished tile of y, gated by what fetch_gate loaded.  Tiles come in order. */
    __device__ void finish(int64_t tile)
    {
        const int64_t left = task.piece.count - tile * STEPS;
        Quad<Acc> sum[ACROSS];
        T *to = y;
        y += STEPS * args.y.step;
        if (count == 0) return;
#pragma unroll
        for (int c = 0; c < ACROSS; c++) sum[c] = add_lanes(tile, c);
        if (args.z.data) {
#pragma unroll
            for (int k = 0; k < HELD; k++)
                sum[k % ACROSS].lane[k / ACROSS] *= gate((Acc)widen(raw_z[k / ACROSS].get(k % ACROSS)));
        }
#pragma unroll
        for (int s = 0; s < GROUP; s++, to += args.y.step) {
            Acc row[ACROSS];
#pragma unroll
            for (int c = 0; c < ACROSS; c++) row[c] = sum[c].lane[s];
            Few<T, ACROSS> out;
            out.round(row);
            if (whole && left >= STEPS)
                *(Few<T, ACROSS> *)to = out;
            else if (first + s < left)
                store_few<T, ACROSS>(to, args.y.lane, count, args.y.wide, out);
        }
    }

    /*
     * Round k fetches stage k, prepares stage k - 1 and finishes what the consumers, then at stage k - 2, had of the
     * stage before.  Its first two rounds and the last are parts of the same loop, since a problem of a few stages
     * waits mostly for instructions that it has not yet met.
     */
    __device__ void run()
    {
        const int panels = args.panels, threads = blockDim.x;
        Stage now, next, after;
        int round = 0;     /* up to 2 */
        int64_t done = -1; /* the tile to write: its y is complete since the last barrier */
#pragma unroll 1
        while (true) {
            if (pass == FULL && done >= 0) finish(done); /* before its D x makes room for another */
            if (round > 0 && next.tile < task.tiles) {
                prepare(next);
                next.advance(panels);
            }
            if (after.tile < task.tiles) {
                fetch(after);
                after.advance(panels);
            }
            if (round < 2) {
                round++;
            } else {
                if (now.tile == task.tiles) return;
                done = now.panel + 1 == panels ? now.tile : -1;
                if (pass == FULL && done >= 0 && args.z.data) fetch_gate(done);
                now.advance(panels);
            }
            /* First: the flags are clear, and the task before has left the tiles.  Then: a stage is prepared.  From
             * then on also: the tiles of the one before are used up, and its y is complete. */
            block_barrier(threads);
        }
    }
};
