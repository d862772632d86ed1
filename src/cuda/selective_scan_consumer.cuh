/* The consumers of selective_scan.cuh, which includes this in its namespace: the recurrence itself. */

template <typename T, typename Acc, typename Shape, Pass pass, Work work>
struct Consumer : OwnStates<Acc, Shape, pass, work> {
    using Base = OwnStates<Acc, Shape, pass, work>;
    using Base::LANES, Base::OWN, Base::args, Base::task, Base::column, Base::lane, Base::exists, Base::channel;
    using Base::own, Base::h, Base::rate, Base::decays, Base::state_of, Base::load_A;
    static constexpr int STORED = 8; /* steps between stores of y: loads cannot pass them, which saves registers */
    static constexpr int PART = LANES * (Shape::CHANNELS + 2); /* quads between the parts of y of four steps */

    Tiles<Acc, Shape> &tiles;
    bool tame; /* A and the states allow the fast order */
    double step_sum;
    bool wild;
    bool counts; /* the panel adds to step_sum */
    Acc greatest[OWN];
    int parity; /* of the stage */

    __device__ Consumer(const rl_s6_args &args, const Task &task, Tiles<Acc, Shape> &tiles)
        : Base(args, task), tiles(tiles), step_sum(0), wild(false), greatest{}
    {
    }

    /* Stores the lane's part of y of four steps. */
    __device__ static void put(Quad<Acc> *to, const Acc *sum)
    {
        Quad<Acc> part;
#pragma unroll
        for (int s = 0; s < GROUP; s++) part.lane[s] = sum[s];
        *to = part;
    }
    __device__ void put(int step, const Acc *sum)
    {
        put(&tiles.y[parity][step / GROUP][lane][slot_of(column)], sum);
    }

    /* What the fast order holds beside the states, over a tile. */
    struct Walk {
        Acc before[OWN], local[OWN];
    };

    __device__ void begin(Walk &walk) const
    {
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            walk.before[k] = h[k];
            walk.local[k] = 0;
        }
    }

    /* One step of a tame lane. */
    __device__ void step_fast(Walk &walk, int k, Acc decay, Acc input)
    {
        walk.local[k] = fma(decay, walk.local[k], input);
        if (pass == FULL) h[k] = fma(decay, h[k], input);
    }

    /* One step of one state in the loop's own order. */
    __device__ void step_plainly(int k, Acc decay, Acc input, bool fresh)
    {
        h[k] = fresh ? input : advance(decay, h[k], input);
    }

    /* Σδ of a tile, from the sums of four steps that the producers left; the same in all lanes of a channel. */
    __device__ Acc add_deltas(const Stage &stage) const
    {
        constexpr int SUMS = STEPS / GROUP, SHARES = LANES < SUMS ? LANES : SUMS;
        Acc sum = 0;
#pragma unroll
        for (int k = 0; k < SUMS; k += SHARES) sum += tiles.deltas[stage.tile & 1][k + lane % SHARES][column];
#pragma unroll
        for (int other = 1; other < SHARES; other *= 2) sum += __shfl_xor_sync(~0u, sum, 2 * other);
        return sum;
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

    /* h = exp(A Σδ) h_before + local, of slow channels.  What has overflowed stays as the loop's own order has it. */
    __device__ void anchor(const Stage &stage, bool slow, const Walk &walk)
    {
        const Acc deltas = add_deltas(stage);
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            const Acc anchored = fma(power_of_two(rate[k] * deltas), walk.before[k], walk.local[k]);
            if (tame && slow && (pass == SUMMARY || is_finite(h[k]))) h[k] = anchored;
        }
        if (pass == SUMMARY && counts) step_sum += deltas;
    }

    template <bool anchored> __device__ void step_tame(const Pair<Acc> &pair, const Acc *row, Walk &walk, Acc &sum)
    {
        const States<Acc, pass == FULL ? 2 *OWN : OWN> bc = *(const decltype(bc) *)row;
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            const Acc decay = rough_decay(pair.delta, rate[k]), input = pair.input * bc.state[k];
            if (anchored)
                step_fast(walk, k, decay, input);
            else
                h[k] = fma(decay, h[k], input);
            if (pass == FULL) sum = fma(bc.state[OWN + k], h[k], sum);
        }
    }

    /*
     * A tile in the fast order, for a warp whose lanes are all tame: every decay is in [0, 1], states and
     * inputs are finite.  The decays are rough (rough_decay), and their error would add up over a sequence.  So
     * beside the states a second recurrence runs from 0, and at the end the states become exp(A Σδ) h_before + local,
     * with one accurate exponential: an error lasts no longer than that.
     *
     * It would also add up where the same step size comes again and again, since the same decay then has the same
     * error.  So walk_mixed takes the tiles of which the producers note that (note_repeats).
     *
     * Where states soon fade, their errors do.  The second recurrence is left out of tiles of which the producers do
     * not say that a channel is slow (put_sums), and a channel that is not keeps its states in the tiles of others
     * that are.
     */
    template <bool anchored> __device__ void walk_tame(const Stage &stage, int steps, Walk &walk)
    {
        const TwoSteps<Acc> *pairs = &tiles.step[stage.tile & 1][0][column];
        const Acc *row = tiles.bc[parity][0] + lane * 2 * OWN;
        Quad<Acc> *to = &tiles.y[parity][0][lane][slot_of(column)];
#pragma unroll 1
        for (int part = 0; part < steps; part += STORED) {
            Acc sum[STORED] = {};
#pragma unroll
            for (int s = 0; s < STORED; s += 2) {
                const TwoSteps<Acc> two = pairs[s / 2 * Shape::CHANNELS];
                step_tame<anchored>(two.pair[0], row + s * 2 * PANEL, walk, sum[s]);
                step_tame<anchored>(two.pair[1], row + (s + 1) * 2 * PANEL, walk, sum[s + 1]);
            }
#pragma unroll
            for (int s = 0; s < STORED && pass == FULL; s += GROUP) put(to + s / GROUP * PART, sum + s);
            pairs += STORED / 2 * Shape::CHANNELS;
            row += STORED * 2 * PANEL;
            to += STORED / GROUP * PART;
        }
    }

    /*
     * The same, up to step `end`, for a warp with lanes that are not tame, or with step sizes that repeat.  From the
     * first step on that is not tame (growing decays, special values) a lane takes the loop's own order with accurate
     * exponentials, in the same walk; a lane with `repeats` takes accurate decays where a step size equals the one
     * before.  What comes before, and lanes of other channels, have the same bits as in walk_tame.
     */
    __device__ void walk_mixed(const Stage &stage, int end, bool repeats, bool fresh, Walk &walk)
    {
        Acc a[OWN], last = -1; /* no tame step size is negative */
#pragma unroll
        for (int k = 0; k < OWN; k++) a[k] = load_A(stage.panel, k);
        for (int part = 0; part < end; part += GROUP) {
            Acc sum[GROUP] = {};
#pragma unroll
            for (int s = 0; s < GROUP; s++) {
                if (part + s >= end) continue; /* a step that does nothing to the tame */
                const Pair<Acc> pair = tiles.step[stage.tile & 1][(part + s) / 2][column].pair[s % 2];
                const Acc *row = tiles.bc[parity][part + s] + lane * 2 * OWN;
                tame = tame && is_tame(pair.delta, pair.input);
                const bool accurate = !tame || (repeats && pair.delta == last);
                last = pair.delta;
#pragma unroll
                for (int k = 0; k < OWN; k++) {
                    const Acc input = pair.input * row[k];
                    if (!tame && k >= own) continue; /* no state: infinities must not meet its zeros */
                    const Acc decay = accurate ? exponential(pair.delta * a[k]) : rough_decay(pair.delta, rate[k]);
                    if (tame)
                        step_fast(walk, k, decay, input);
                    else
                        step_plainly(k, decay, input, fresh);
                    if (pass == FULL) sum[s] = fma(row[OWN + k], h[k], sum[s]);
                }
                fresh = false; /* nothing multiplies a state that is not there */
            }
            if (pass == FULL) put(part, sum);
        }
    }

    __device__ void run_fast(const Stage &stage, int steps, int flags, bool fresh)
    {
        Walk walk;
        if (pass == FULL && __all_sync(~0u, tame && !flags)) { /* one order a warp */
            walk_tame<false>(stage, steps, walk);
        } else {
            begin(walk);
            if (__all_sync(~0u, tame && !(flags & ~SLOW)))
                walk_tame<true>(stage, steps, walk);
            else
                walk_mixed(stage, steps, flags & REPEATS, fresh, walk);
            anchor(stage, pass == SUMMARY || flags & SLOW, walk);
        }
        note_states();
        Acc size = 0; /* NaN and infinity stay in the sum */
#pragma unroll
        for (int k = 0; k < OWN; k++) size += fabs(h[k]);
        if (!tame || !is_finite(size)) look_at_states();
    }

    /* Whether A and the states allow the fast order. */
    __device__ void look_at_states()
    {
        tame = decays;
#pragma unroll
        for (int k = 0; k < OWN; k++) tame = tame && is_finite(h[k]);
    }

    /* The loop's own order with accurate exponentials, for double and for a few steps. */
    __device__ void run_plain(const Stage &stage, int steps, bool fresh)
    {
        Acc a[OWN];
#pragma unroll
        for (int k = 0; k < OWN; k++) a[k] = load_A(stage.panel, k);
        for (int first = 0; first < steps; first += GROUP) {
            Acc sum[GROUP] = {};
#pragma unroll
            for (int s = 0; s < GROUP; s++) {
                if (first + s >= steps) continue;
                const Pair<Acc> pair = tiles.step[stage.tile & 1][(first + s) / 2][column].pair[s % 2];
                const Acc *row = tiles.bc[parity][first + s] + lane * 2 * OWN;
                if (pass == SUMMARY && counts) step_sum += pair.delta;
#pragma unroll
                for (int k = 0; k < OWN; k++) {
                    if (k >= own) continue;
                    step_plainly(k, exponential(pair.delta * a[k]), pair.input * row[k], fresh);
                    if (pass == FULL) sum[s] = fma(row[OWN + k], h[k], sum[s]);
                }
                fresh = false;
            }
            if (pass == FULL) put(first, sum);
        }
        note_states();
        look_at_states();
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
            if (steps >= LEAST_FAST) {
                run_fast(stage, steps, flags, fresh);
                return;
            }
        }
        run_plain(stage, steps, fresh);
    }

    __device__ void summarise(bool is_tail)
    {
        if (!exists || lane != 0) return;
        int64_t at = carry_index(args, task.piece, channel);
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
        const int64_t at = carry_index(args, task.piece, channel);
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
            look_at_states();
        }
        if (pass == FULL) put_slowest(resident && task.tiles > 0);
        block_barrier(threads); /* flags are clear, and the task before has left the tiles */
        block_barrier(threads); /* stage 0 is prepared */
        parity = 0;
        Stage stage;
        for (; stage.tile < task.tiles; stage.advance(panels), parity ^= 1) {
            const bool first = stage.tile == 0, last = stage.tile + 1 == task.tiles;
            if (!resident) {
                this->load_rates(stage.panel);
                this->load_states(stage.panel, first);
                look_at_states();
            }
            /* The flags of the tile after next are in nobody's hands. */
            if (lane == 0) tiles.flags[(stage.tile + 2) % 4][column] = 0;
            run_stage(stage);
            if (last || !resident) this->store_states(stage.panel, last);
            block_barrier(
                threads); /* the stage's tiles are used up, the next one's are prepared, its y is complete */
        }
        if (pass == SUMMARY) summarise(is_tail);
        if constexpr (pass == FULL && work == WHOLE) {
            if (args.fades && task.piece.chunk + 1 < args.chunks) vouch();
        }
    }
};
