/* The consumers of selective_scan.cuh, which includes this in its namespace: the recurrence itself, stage by stage.
 */

template <typename T, typename Acc, typename Shape, Pass pass, Work work>
struct Consumer : Walker<T, Acc, Shape, pass, work> {
    using Base = Walker<T, Acc, Shape, pass, work>;
    using Walk = typename Base::Walk;
    using Base::LANES, Base::OWN, Base::args, Base::task, Base::column, Base::lane, Base::exists, Base::own, Base::h;
    using Base::rate, Base::state_of, Base::tiles, Base::tame, Base::step_sum, Base::counts, Base::parity;

    bool wild;
    Acc greatest[OWN];

    __device__ Consumer(const rl_s6_args &args, const Task &task, Tiles<Acc, Shape> &tiles)
        : Base(args, task, tiles), wild(false), greatest{}
    {
    }

    /* The largest states of the chunk at tiles' ends, those that its summary may have left out among them. */
    __device__ void note_states()
    {
        if constexpr (pass == FULL && work == WHOLE) {
            if (!args.fades) return;
#pragma unroll
            for (int k = 0; k < OWN; k++) greatest[k] = fmax(greatest[k], fabs(h[k]));
        }
    }

    /* A tile's flags, without SLOW where its other steps make good what some of them leave. */
    __device__ int settle(const Stage &stage, int flags) const
    {
        if (pass == SUMMARY || !__any_sync(~0u, flags & SLOW)) return flags;
        const bool fades = this->add_deltas(stage) * tiles.slowest[column] <= -LASTING<T>;
        return fades ? flags & ~SLOW : flags;
    }

    __device__ void run_fast(const Stage &stage, int steps, int flags, bool fresh)
    {
        Walk walk;
        this->begin(walk);
        if (__all_sync(~0u, tame && !(flags & ~SLOW))) /* one order a warp */
            this->walk_tame(stage, steps, walk);
        else
            this->walk_mixed(stage, steps, flags & REPEATS, fresh, walk);
        this->anchor(stage, pass == SUMMARY || flags & SLOW, walk);
        note_states();
        this->look_again();
    }

    /* The flags of the tile after next are in nobody's hands. */
    __device__ void clear_flags(const Stage &stage)
    {
        if (lane == 0) tiles.flags[(stage.tile + 2) % 4][column] = 0;
    }

    /* Full tiles of whole work as long as nothing in them is unusual: the code that nearly all time is spent in. */
    __device__ void run_usual(Stage &stage)
    {
        const uint32_t full = task.tiles - 1;
        while (stage.tile < full) {
            const int flags = tiles.flags[stage.tile % 4][column];
            const typename Base::Lead lead = this->lead_of(stage.tile & 1);
            clear_flags(stage);
            this->look_again(); /* after the tile before */
            if (!__all_sync(~0u, tame && !flags)) {
                const int settled = settle(stage, flags); /* by the whole warp */
                if (!__all_sync(~0u, tame && !settled)) return;
            }
            this->walk_freely(stage.tile & 1, lead);
            note_states();
            block_barrier(Shape::THREADS); /* as behind run_stage */
            stage.advance(1);
            parity ^= 1;
        }
        this->look_again();
    }

    __device__ void run_stage(const Stage &stage)
    {
        const int steps = stage.steps(task);
        const bool no_state = pass == SUMMARY || (task.piece.starts && !args.h_init.data);
        const bool fresh = no_state && stage.tile == 0;
        counts = stage.panel == 0;
        const int flags = exists ? tiles.flags[stage.tile % 4][column] : 0;
        if (pass == SUMMARY && (flags & WILD)) wild = true;
        if constexpr (sizeof(Acc) == 4) {
            if (__builtin_expect(steps >= LEAST_FAST, true)) {
                run_fast(stage, steps, settle(stage, flags), fresh);
                return;
            }
        }
        this->run_plain(stage, steps, fresh);
        note_states();
    }

    __device__ void summarise(bool is_tail)
    {
        if (!exists || lane != 0) return;
        int64_t at = carry_index(args, task.piece, this->channel());
        args.step_sums[at] = is_tail ? -step_sum : step_sum;
        args.wild[at] = wild ? RL_S6_WILD : 0;
    }

    /* Whether the steps of a summary let through less than 2^-FADED of what came before. */
    __device__ bool has_faded() const
    {
        bool faded = !wild;
#pragma unroll
        for (int k = 0; k < OWN; k++) faded = faded && rate[k] * (Acc)step_sum <= -FADED;
        return faded;
    }

    /* At a chunk's end: whether what its summary left out is nothing beside its last states. */
    __device__ void vouch()
    {
        const int64_t at = carry_index(args, task.piece, this->channel());
        const double sum = args.step_sums[at];
        if (sum >= 0) return;
        bool right = true;
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            const Acc left_out = power_of_two(rate[k] * (Acc)-sum) * greatest[k];
            right = right && is_finite(h[k]) && left_out <= Acc(0x1p-24) * fabs(h[k]);
            ((Acc *)args.local)[at * args.states + state_of(0, k)] = h[k];
        }
        if (!right) args.wild[at] = RL_S6_UNFADED;
    }

    /* For the producers: the channel's slowest rate, or 0, where errors of rough decays last in any case. */
    __device__ void put_slowest(bool resident)
    {
        Acc slowest = resident ? -Limits<Acc>::top : Acc(0);
#pragma unroll
        for (int k = 0; k < OWN; k++)
            if (resident && k < own) slowest = fmax(slowest, rate[k]);
#pragma unroll
        for (int other = 1; other < LANES; other *= 2)
            slowest = fmax(slowest, __shfl_xor_sync(~0u, slowest, 2 * other));
        if (lane == 0) tiles.slowest[column] = slowest;
    }

    __device__ void run(bool is_tail)
    {
        const int panels = work == WHOLE ? 1 : args.panels, threads = work == WHOLE ? Shape::THREADS : blockDim.x;
        const bool resident = panels == 1; /* all states stay in registers from tile to tile */
        if (task.tiles == 0 && task.piece.empty && task.piece.starts && pass == FULL) this->hand_on();
        if (task.tiles == 0 && pass == SUMMARY) {
            for (int panel = 0; panel < panels; panel++) {
                this->load_states(panel, true);
                this->store_states(panel, true);
            }
        }
        for (int k = column; lane == 0 && k < 4 * Shape::CHANNELS; k += args.block_channels)
            (&tiles.flags[0][0])[k] = 0;
        if (resident && task.tiles > 0) {
            this->load_rates(0);
            this->load_states(0, true);
            this->look_at_states();
        }
        if (pass == FULL) put_slowest(resident && task.tiles > 0);
        block_barrier(threads); /* flags are clear, and the task before has left the tiles */
        block_barrier(threads); /* stage 0 is prepared */
        parity = 0;
        Stage stage;
        for (; stage.tile < task.tiles; stage.advance(panels), parity ^= 1) {
            if constexpr (pass == FULL && work == WHOLE) run_usual(stage);
            const bool first = stage.tile == 0, last = stage.tile + 1 == task.tiles;
            if (!resident) {
                this->load_rates(stage.panel);
                this->load_states(stage.panel, first);
                this->look_at_states();
            }
            clear_flags(stage);
            run_stage(stage);
            if (!resident) this->store_states(stage.panel, last);
            block_barrier(
                threads); /* the stage's tiles are used up, the next one's are prepared, its y is complete */
        }
        if (resident && task.tiles > 0) this->store_states(0, true);
        if (pass == SUMMARY) summarise(is_tail);
        if constexpr (pass == FULL && work == WHOLE) {
            if (args.fades && task.piece.chunk + 1 < args.chunks) vouch();
        }
    }
};
