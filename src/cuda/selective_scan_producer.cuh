/* The producers of selective_scan.cuh, which includes this in its namespace: all traffic with device memory. */

template <typename T, typename U, typename Acc, Pass pass> struct Producer {
    const rl_scan_args &args;
    const Task &task;
    Tiles<Acc> &tiles;
    int column;    /* the first of the thread's four channels */
    int count;     /* of the four that exist */
    int row, rows; /* its first step in a tile, and the distance to the next */
    int quads;     /* how many steps it has */
    Acc bias[4], skip[4];
    const T *x, *z;
    T *y;
    const U *delta, *B, *C;
    int64_t x_step, z_step, y_step, delta_step, B_step, C_step; /* in the order of running */
    Quad<T> raw_x[QUADS], raw_z[QUADS];
    Quad<U> raw_delta[QUADS], raw_B, raw_C;

    /* The address of the first step's row, at the block's first channel. */
    template <typename E> __device__ E *start(const rl_scan_view &view, int64_t &step) const
    {
        step = args.reverse ? -view.step : view.step;
        return (E *)view.data + task.piece.batch * view.batch + task.piece.row * view.step;
    }

    __device__ Producer(const rl_scan_args &args, const Task &task, Tiles<Acc> &tiles)
        : args(args), task(task), tiles(tiles)
    {
        const int across = args.block_channels / 4;
        column = threadIdx.x % across * 4;
        row = threadIdx.x / across;
        rows = PRODUCERS / across;
        quads = STEPS / rows;
        count = task.channels - column;
        const int64_t channel = task.channel + column;
        x = start<T>(args.x, x_step) + channel * args.x.lane;
        delta = start<U>(args.delta, delta_step) + channel * args.delta.lane;
        B = start<U>(args.B, B_step) + task.group * args.B.group;
        if (pass == FULL) {
            C = start<U>(args.C, C_step) + task.group * args.C.group;
            y = start<T>(args.y, y_step) + channel * args.y.lane;
            if (args.z.data) z = start<T>(args.z, z_step) + channel * args.z.lane;
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const bool exists = k < count;
            bias[k] =
                exists && args.bias.data ? ((const Acc *)args.bias.data)[(channel + k) * args.bias.stride] : Acc(0);
            skip[k] = exists && args.D.data ? ((const Acc *)args.D.data)[(channel + k) * args.D.stride] : Acc(0);
        }
    }

    /* Issues the loads of a stage; prepare is where they are first used. */
    __device__ void fetch(const Stage &stage)
    {
        const int64_t base = stage.tile * STEPS, left = task.piece.count - base;
        if (stage.panel == 0) {
#pragma unroll
            for (int i = 0; i < QUADS; i++) {
                if (i >= quads) break;
                const int64_t step = base + row + i * rows;
                const int there = row + i * rows < left ? count : 0;
                raw_x[i] = load_quad(x + step * x_step, args.x.lane, there, args.x.wide);
                raw_delta[i] = load_quad(delta + step * delta_step, args.delta.lane, there, args.delta.wide);
            }
        }
        const int step = threadIdx.x / 4;
        const int64_t state = stage.panel * PANEL + threadIdx.x % 4 * 4;
        const int64_t there = step < left ? args.states - state : 0;
        raw_B = load_quad(B + (base + step) * B_step + state * args.B.lane, args.B.lane, there, args.B.wide);
        if (pass == FULL)
            raw_C = load_quad(C + (base + step) * C_step + state * args.C.lane, args.C.lane, there, args.C.wide);
    }

    __device__ void fetch_gate(int64_t tile)
    {
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            if (i >= quads) break;
            const int64_t step = tile * STEPS + row + i * rows;
            raw_z[i] = load_quad(z + step * z_step, args.z.lane, step < task.piece.count ? count : 0, args.z.wide);
        }
    }

    /* δ, δx and D x of one quad of a tile.  Steps and channels that do not exist become δ = δx = 0, which do nothing.
     */
    __device__ void prepare_quad(const Stage &stage, int i)
    {
        const int step_row = row + i * rows;
        const bool in_time = step_row < task.piece.count - stage.tile * STEPS;
        constexpr int together = 16 / sizeof(Pair<Acc>);
        Pairs<Acc> pairs[4 / together];
        Quad<Acc> begun;
        bool wild[4], any_wild = false;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const Acc value = widen(raw_x[i].lane[k]),
                      step = step_size(args, (Acc)widen(raw_delta[i].lane[k]), bias[k]);
            const bool there = in_time && k < count;
            const Pair<Acc> pair = {there ? step : Acc(0), there ? step * value : Acc(0)};
            wild[k] = !is_tame(pair.delta, pair.input);
            any_wild = any_wild || wild[k];
            pairs[k / together].pair[k % together] = pair;
            begun.lane[k] = args.D.data ? skip[k] * value : Acc(0);
        }
        if (any_wild) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (wild[k]) atomicOr(&tiles.wild[stage.third][column + k], 1);
        }
        Pairs<Acc> *to = (Pairs<Acc> *)&tiles.step[stage.tile & 1][step_row][column];
#pragma unroll
        for (int k = 0; k < 4 / together; k++) to[k] = pairs[k];
        if (pass == FULL) *(Quad<Acc> *)&tiles.y[stage.third][step_row][column] = begun;
    }

    /* Turns what fetch loaded into the shared tiles of the stage. */
    __device__ void prepare(const Stage &stage)
    {
        if (stage.panel == 0) {
#pragma unroll
            for (int i = 0; i < QUADS; i++)
                if (i < quads) prepare_quad(stage, i);
        }
        Quad<Acc> wide_B, wide_C;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            wide_B.lane[k] = widen(raw_B.lane[k]);
            if (pass == FULL) wide_C.lane[k] = widen(raw_C.lane[k]);
        }
        Acc *to = tiles.bc[stage.parity][threadIdx.x / 4] + threadIdx.x % 4 * 4;
        *(Quad<Acc> *)to = wide_B;
        if (pass == FULL) *(Quad<Acc> *)(to + PANEL) = wide_C;
    }

    /* Writes a finished tile of y, gated by what fetch_gate loaded. */
    __device__ void finish(int64_t tile, int third)
    {
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            const int64_t step = tile * STEPS + row + i * rows;
            if (i >= quads || step >= task.piece.count) break;
            const Quad<Acc> sum = *(const Quad<Acc> *)&tiles.y[third][row + i * rows][column];
            Quad<T> out;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                Acc value = sum.lane[k];
                if (args.z.data) value *= gate((Acc)widen(raw_z[i].lane[k]));
                out.lane[k] = narrow<T>(value);
            }
            store_quad(y + step * y_step, args.y.lane, count, args.y.wide, out);
        }
    }

    __device__ void run()
    {
        const int panels = args.panels;
        Stage now, next, after;
        next.advance(panels);
        after = next;
        after.advance(panels);
        if (task.tiles > 0) {
            fetch(now);
            prepare(now);
            if (next.tile < task.tiles) fetch(next);
        }
        block_barrier();   /* stage 0 is prepared */
        int64_t done = -1; /* the tile to write: its y is complete since the last barrier */
        int done_third = 0;
        for (; now.tile < task.tiles; now.advance(panels), next.advance(panels), after.advance(panels)) {
            if (next.tile < task.tiles) prepare(next);
            if (after.tile < task.tiles) fetch(after);
            if (pass == FULL && done >= 0) finish(done, done_third);
            done = now.panel + 1 == panels ? now.tile : -1;
            done_third = now.third;
            if (pass == FULL && done >= 0 && args.z.data) fetch_gate(done);
            block_barrier(); /* the stage's tiles are used up, the next one's are prepared, its y is complete */
        }
        if (pass == FULL && task.tiles > 0) finish(task.tiles - 1, done_third);
    }
};
