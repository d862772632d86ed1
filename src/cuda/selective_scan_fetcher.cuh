/*
 * What the producers of selective_scan.cuh, which includes this in its namespace, read from device memory, tile by
 * tile and ahead of its use.
 */

template <typename T, typename U, typename Acc, typename Shape, Pass pass, Work work> struct Fetcher {
    static constexpr int ACROSS = Shape::ACROSS, LANES = Shape::LANES;
    static constexpr bool LOOKS = ACROSS == 1 || sizeof(T) == 2; /* ahead; wide items leave it no registers */
    static constexpr int HELD = GROUP * ACROSS; /* elements of x, delta, z, y that a thread handles */
    static constexpr bool BUSY = work == WHOLE && Shape::HELD > 0; /* every thread has channels */

    const rl_s6_args &args;
    const rl_s6_paces &paces;
    const Task &task;
    int column, first; /* the thread's first channel of the block, and its first step of a tile */
    int count;         /* of its channels that exist; 0 for a thread that has none */
    bool whole;        /* full tiles can be read and written whole */
    bool skips;
    const T *x; /* of the next tile to fetch, at the thread's first step */
    const U *delta, *B, *C;
    T *y;
    const char *ahead;  /* where a later tile's row of x, delta, B or C begins, a row for each thread */
    int32_t ahead_pace; /* bytes from tile to tile */
    StepSize<Acc> step_size;
    Few<T, ACROSS> raw_x[GROUP];
    Few<U, ACROSS> raw_delta[GROUP];
    Quad<U> raw_B, raw_C;

    /* The address of the first step's row. */
    template <typename E> __device__ E *start(const rl_s6_view &view) const
    {
        return (E *)view.data + first_row(args, view, task.piece);
    }

    __device__ Fetcher(const rl_s6_walk_args &walk, const Task &task)
        : args(walk.scan), paces(walk.paces), task(task), step_size(args), raw_x{}, raw_delta{}, raw_B{}, raw_C{}
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
        }
        if (LOOKS) look_ahead();
    }

    /* The channels' own numbers, for all threads that have them, and where the thread's gates begin. */
    __device__ void put_constants(Tiles<Acc, Shape> &tiles) const
    {
        const int64_t channel = task.channel + column;
        if (pass == FULL && args.z.data)
            tiles.gates[threadIdx.x] = start<T>(args.z) + channel * args.z.lane + first * args.z.step;
#pragma unroll
        for (int c = 0; c < ACROSS; c++) {
            const bool exists = c < count;
            if (first != 0 || column + c >= Shape::CHANNELS) continue;
            tiles.bias[column + c] =
                exists && args.bias.data ? ((const Acc *)args.bias.data)[(channel + c) * args.bias.stride] : Acc(0);
            tiles.skip[column + c] =
                exists && args.D.data ? ((const Acc *)args.D.data)[(channel + c) * args.D.stride] : Acc(0);
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
        const int64_t row = view.step * size, pace = STEPS * row;
        ahead_pace = pace == (int32_t)pace ? (int32_t)pace : 0; /* from afar nothing is brought near */
        ahead = (const char *)view.data + (first_row(args, view, task.piece) + at) * size;
        if (ahead_pace != 0) ahead += (threadIdx.x % STEPS + AHEAD * STEPS) * row;
    }

    template <typename E> __device__ static E *after_bytes(E *place, int64_t bytes)
    {
        return (E *)((char *)place + bytes);
    }

    /* Four steps of a tensor in a tile of `steps`, and on to the next tile. */
    template <typename E>
    __device__ void fetch_steps(Few<E, ACROSS> (&raw)[GROUP], const E *&from, const rl_s6_view &view,
                                const rl_s6_pace &pace, int steps)
    {
        if constexpr (work == WHOLE) {
            const E *at = from;
            const int there = steps_there(steps);
#pragma unroll
            for (int s = 0; s < GROUP; s++, at = after_bytes(at, pace.step))
                if (s < there) raw[s] = *(const Few<E, ACROSS> *)at;
            from = after_bytes(from, pace.tile);
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

    /* Steps of the thread in a tile of whole work. */
    __device__ int steps_there(int steps) const
    {
        if (BUSY && steps == STEPS) return GROUP;
        return BUSY || count > 0 ? steps - hidden(first) : 0;
    }

    /* Four states of B or C, and on to the next stage. */
    __device__ void fetch_states(Quad<U> &raw, const U *&from, const rl_s6_view &view, const rl_s6_pace &pace,
                                 const Stage &stage, int steps)
    {
        const int step = threadIdx.x / 4;
        if constexpr (work == WHOLE) {
            if (step < steps) raw = *(const Quad<U> *)from;
            from = after_bytes(from, pace.tile);
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
        if (BUSY && stage.tile + 1 < task.tiles)
            fetch_of(stage, STEPS); /* no step is asked whether it exists */
        else
            fetch_of(stage, stage.steps(task));
    }
    __device__ void fetch_of(const Stage &stage, int steps)
    {
        if (work == WHOLE || stage.panel == 0) {
            fetch_steps(raw_x, x, args.x, paces.x, steps);
            fetch_steps(raw_delta, delta, args.delta, paces.delta, steps);
            if (LOOKS) {
                if (stage.tile + AHEAD + 1 < task.tiles) bring_near(ahead);
                ahead += ahead_pace;
            }
        }
        fetch_states(raw_B, B, args.B, paces.B, stage, steps);
        if (pass == FULL) fetch_states(raw_C, C, args.C, paces.C, stage, steps);
    }
};
