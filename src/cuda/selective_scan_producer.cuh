/* The producers of selective_scan.cuh, which includes this in its namespace: all traffic with device memory. */

template <typename T, typename U, typename Acc, typename Shape, Pass pass> struct Producer {
    static constexpr int QUADS = Shape::QUADS;

    const rl_s6_args &args;
    const Task &task;
    Tiles<Acc> &tiles;
    int column;    /* the first of the thread's four channels */
    int count;     /* of the four that exist */
    int row, rows; /* its first step in a tile, and the distance to the next */
    int quads;     /* how many steps it has */
    bool whole;    /* all quads of a full tile can be read and written whole */
    Acc bias[4], skip[4];
    bool skips;
    const T *x, *z; /* of the next tile to fetch, at the thread's first step */
    T *y;           /* of the next tile to write */
    const U *delta, *B, *C;
    StepSize<Acc> step_size;
    Quad<T> raw_x[QUADS], raw_z[QUADS];
    Quad<U> raw_delta[QUADS], raw_B, raw_C;

    /* The address of the first step's row. */
    template <typename E> __device__ E *start(const rl_s6_view &view) const
    {
        return (E *)view.data + first_row(args, view, task.piece);
    }

    __device__ Producer(const rl_s6_args &args, const Task &task, Tiles<Acc> &tiles)
        : args(args), task(task), tiles(tiles), step_size(args)
    {
        const int across = args.block_channels / 4;
        column = threadIdx.x % across * 4;
        row = threadIdx.x / across;
        rows = PRODUCERS / across;
        quads = (STEPS - row + rows - 1) / rows; /* none where there are more producers than quads */
        count = task.channels - column;
        whole = args.wide && count >= 4;
        skips = args.D.data != nullptr;
        const int64_t channel = task.channel + column;
        x = start<T>(args.x) + channel * args.x.lane + row * args.x.step;
        delta = start<U>(args.delta) + channel * args.delta.lane + row * args.delta.step;
        const int step = threadIdx.x / 4, state = threadIdx.x % 4 * 4; /* of its quad of B and C in a panel */
        B = start<U>(args.B) + task.group * args.B.group + state * args.B.lane + step * args.B.step;
        if (pass == FULL) {
            C = start<U>(args.C) + task.group * args.C.group + state * args.C.lane + step * args.C.step;
            y = start<T>(args.y) + channel * args.y.lane + row * args.y.step;
            if (args.z.data) z = start<T>(args.z) + channel * args.z.lane + row * args.z.step;
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const bool exists = k < count;
            bias[k] =
                exists && args.bias.data ? ((const Acc *)args.bias.data)[(channel + k) * args.bias.stride] : Acc(0);
            skip[k] = exists && args.D.data ? ((const Acc *)args.D.data)[(channel + k) * args.D.stride] : Acc(0);
        }
    }

    /* The loads of a stage that is full in every way: nothing to ask, all in flight together. */
    __device__ void fetch_whole(bool first_panel)
    {
        if (first_panel) {
#pragma unroll
            for (int i = 0; i < QUADS; i++) {
                if (i >= quads) break;
                raw_x[i] = *(const Quad<T> *)(x + i * rows * args.x.step);
                raw_delta[i] = *(const Quad<U> *)(delta + i * rows * args.delta.step);
            }
        }
        raw_B = *(const Quad<U> *)B;
        if (pass == FULL) raw_C = *(const Quad<U> *)C;
    }

    __device__ void fetch_parts(const Stage &stage, int64_t left)
    {
        if (stage.panel == 0) {
#pragma unroll
            for (int i = 0; i < QUADS; i++) {
                if (i >= quads) break;
                const int there = row + i * rows < left ? count : 0;
                raw_x[i] = load_quad(x + i * rows * args.x.step, args.x.lane, there, args.x.wide);
                raw_delta[i] = load_quad(delta + i * rows * args.delta.step, args.delta.lane, there, args.delta.wide);
            }
        }
        const int64_t states = args.states - stage.panel * PANEL - threadIdx.x % 4 * 4;
        const int64_t there = (int)threadIdx.x / 4 < left ? states : 0;
        raw_B = load_quad(B, args.B.lane, there, args.B.wide);
        if (pass == FULL) raw_C = load_quad(C, args.C.lane, there, args.C.wide);
    }

    /* Issues the loads of a stage; prepare is where they are first used.  Stages come in order. */
    __device__ void fetch(const Stage &stage)
    {
        const int64_t left = task.piece.count - stage.tile * STEPS;
        const int64_t panel = stage.panel * PANEL;
        const bool last = stage.panel + 1 == args.panels;
        if (whole && left >= STEPS && args.states - panel >= PANEL)
            fetch_whole(stage.panel == 0);
        else
            fetch_parts(stage, left);
        if (stage.panel == 0) {
            x += STEPS * args.x.step;
            delta += STEPS * args.delta.step;
        }
        B += last ? STEPS * args.B.step - panel * args.B.lane : PANEL * args.B.lane;
        if (pass == FULL) C += last ? STEPS * args.C.step - panel * args.C.lane : PANEL * args.C.lane;
    }

    /* The gate's loads for a finished tile.  Tiles come in order. */
    __device__ void fetch_gate(int64_t tile)
    {
        const int64_t left = task.piece.count - tile * STEPS;
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            if (i >= quads) break;
            const T *from = z + i * rows * args.z.step;
            if (whole && left >= STEPS)
                raw_z[i] = *(const Quad<T> *)from;
            else
                raw_z[i] = load_quad(from, args.z.lane, row + i * rows < left ? count : 0, args.z.wide);
        }
        z += STEPS * args.z.step;
    }

    /* Notes for the consumers which of four neighbours the fast order cannot take. */
    __device__ void note_wild(const Pair<Acc> (&pair)[4], int third)
    {
        Acc least = pair[0].delta, size = 0; /* NaN and infinity stay in the sum */
#pragma unroll
        for (int k = 0; k < 4; k++) {
            least = pair[k].delta < least ? pair[k].delta : least;
            size += fabs(pair[k].input) + fabs(pair[k].delta);
        }
        if (least >= 0 && size <= Limits<Acc>::tame) return;
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (!is_tame(pair[k].delta, pair[k].input)) atomicOr(&tiles.flags[third][column + k], WILD);
    }

    /*
     * Notes for the consumers where a step size of float32 data equals that of the step before (16-bit results do not
     * show what comes of it).  A step is compared within its four only: a warp holds fours whole, however many
     * channels its block has, and a channel's flags must follow from its own steps.
     */
    __device__ void note_repeats(const Acc *delta, int step, bool in_time, int third)
    {
        bool equal[4], any = false;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            equal[k] = delta[k] == __shfl_up_sync(~0u, delta[k], args.block_channels / 4) && k < count;
            any = any || equal[k];
        }
        if (!any || !in_time || step % 4 == 0) return;
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (equal[k]) atomicOr(&tiles.flags[third][column + k], REPEATS);
    }

    /* δ, δx and D x of one quad of a tile.  Steps and channels that do not exist become δ = δx = 0: they do nothing.
     */
    __device__ void put_quad(const Stage &stage, int i, const Acc *delta_of)
    {
        const int step = row + i * rows;
        Pair<Acc> pair[4];
        Quad<Acc> begun = {};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const Acc value = widen(raw_x[i].get(k));
            pair[k] = {delta_of[k], delta_of[k] * value};
            begun.lane[k] = skips ? skip[k] * value : Acc(0);
        }
        const bool in_time = step < task.piece.count - stage.tile * STEPS;
        if (count < 4 || !in_time) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (!in_time || k >= count) pair[k] = {};
        }
        note_wild(pair, stage.third);
        if (sizeof(T) == 4) note_repeats(delta_of, step, in_time, stage.third);
        Pairs<Acc> *to = (Pairs<Acc> *)&tiles.step[stage.tile & 1][step][column];
        constexpr int together = 16 / sizeof(Pair<Acc>);
#pragma unroll
        for (int k = 0; k < 4; k += together) {
            Pairs<Acc> out;
#pragma unroll
            for (int j = 0; j < together; j++) out.pair[j] = pair[k + j];
            to[k / together] = out;
        }
        if (pass == FULL) *(Quad<Acc> *)&tiles.y[stage.third][step][column] = begun;
    }

    __device__ void put_steps(const Stage &stage)
    {
        if (quads == 0) return;
        Acc step[4 * QUADS]; /* all together, so that their long chains overlap */
#pragma unroll
        for (int k = 0; k < 4 * QUADS; k++) step[k] = (Acc)widen(raw_delta[k / 4].get(k % 4)) + bias[k % 4];
        step_size(step);
#pragma unroll
        for (int i = 0; i < QUADS; i++)
            if (i < quads) put_quad(stage, i, step + 4 * i);
    }

    /* Turns what fetch loaded into the shared tiles of the stage. */
    __device__ void prepare(const Stage &stage)
    {
        if (stage.panel == 0) put_steps(stage);
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

    /* Writes a finished tile of y, gated by what fetch_gate loaded.  Tiles come in order. */
    __device__ void finish(int64_t tile, int third)
    {
        const int64_t left = task.piece.count - tile * STEPS;
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            if (i >= quads || row + i * rows >= left) break;
            Quad<Acc> sum = *(const Quad<Acc> *)&tiles.y[third][row + i * rows][column];
            if (args.z.data) {
#pragma unroll
                for (int k = 0; k < 4; k++) sum.lane[k] *= gate((Acc)widen(raw_z[i].get(k)));
            }
            Quad<T> out = {};
#pragma unroll
            for (int k = 0; k < 4; k++) out.set(k, narrow<T>(sum.lane[k]));
            if (whole)
                *(Quad<T> *)(y + i * rows * args.y.step) = out;
            else
                store_quad(y + i * rows * args.y.step, args.y.lane, count, args.y.wide, out);
        }
        y += STEPS * args.y.step;
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
        int done_third = 0;
#pragma unroll 1
        while (true) {
            if (round > 0 && next.tile < task.tiles) {
                prepare(next);
                next.advance(panels);
            }
            if (after.tile < task.tiles) {
                fetch(after);
                after.advance(panels);
            }
            if (pass == FULL && done >= 0) finish(done, done_third);
            if (round < 2) {
                round++;
            } else {
                if (now.tile == task.tiles) return;
                done = now.panel + 1 == panels ? now.tile : -1;
                done_third = now.third;
                if (pass == FULL && done >= 0 && args.z.data) fetch_gate(done);
                now.advance(panels);
            }
            /* First: the flags are clear, and the task before has left the tiles.  Then: a stage is prepared.  From
             * then on also: the tiles of the one before are used up, and its y is complete. */
            block_barrier(threads);
        }
    }
};
