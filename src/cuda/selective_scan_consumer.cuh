/* The consumers of selective_scan.cuh, which includes this in its namespace: the recurrence itself. */

/*
 * Lane bits of a warp, low to high: channel 0, state lane 0 and 1, channel 1 and 2.  So neighbouring threads read the
 * same B and C, and threads two apart the same δ: shared memory serves such pairs in one access.
 */
template <typename T, typename Acc, Pass pass> struct Consumer {
    const rl_scan_args &args;
    const Task &task;
    Tiles<Acc> &tiles;
    int column;  /* channel of the block */
    int lane;    /* 0..3: states 4 lane .. 4 lane + 3 of a panel */
    bool exists; /* the channel does */
    int64_t channel;
    int own;   /* states of the panel that exist */
    bool tame; /* A and the states allow the fast order */
    Acc h[OWN], a[OWN];
    Acc rate[OWN]; /* A log2(e), for rough_decay */
    double step_sum;
    bool wild;

    __device__ Consumer(const rl_scan_args &args, const Task &task, Tiles<Acc> &tiles)
        : args(args), task(task), tiles(tiles), step_sum(0), wild(false)
    {
        int thread = threadIdx.x - PRODUCERS, in_warp = thread & 31;
        column = (thread >> 5) * WARP_CHANNELS + (in_warp & 1) + ((in_warp >> 3) << 1);
        lane = (in_warp >> 1) & 3;
        exists = column < task.channels;
        channel = task.channel + column;
    }

    __device__ int64_t state_of(int panel, int k) const
    {
        return (int64_t)panel * PANEL + lane * OWN + k;
    }

    __device__ bool has(int panel, int k) const
    {
        return exists && state_of(panel, k) < args.states;
    }

    __device__ void load_A(int panel)
    {
        const int64_t left = args.states - state_of(panel, 0);
        own = !exists || left < 0 ? 0 : left < OWN ? (int)left : OWN;
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            int64_t at = channel * args.A_channel + state_of(panel, k) * args.A_state;
            a[k] = has(panel, k) ? finite_range(((const Acc *)args.A)[at]) : Acc(0);
            rate[k] = fmax(a[k] * Acc(1.44269504088896341), -Limits<Acc>::top);
        }
    }

    /* The block's own memory of states: between tiles, and at the ends of chunks. */
    __device__ Acc *kept(int panel) const
    {
        Acc *base = (Acc *)(pass == SUMMARY ? args.local : args.carry);
        return base + carry_index(args, task.piece, channel) * args.states + state_of(panel, 0);
    }

    __device__ void load_states(int panel, bool first_tile)
    {
        const bool begins = first_tile && (pass == SUMMARY || args.chunks == 1);
        const rl_scan_state &init = args.h_init;
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            h[k] = 0;
            if (!has(panel, k)) continue;
            if (!begins) {
                h[k] = kept(panel)[k];
            } else if (pass == FULL && init.data) {
                int64_t at =
                    task.piece.sequence * init.sequence + channel * init.channel + state_of(panel, k) * init.state;
                h[k] = load_any<Acc>(init.data, init.dtype, at);
            }
        }
    }

    __device__ void store_states(int panel, bool last_tile)
    {
        const bool keep = pass == SUMMARY || !last_tile, finish = pass == FULL && last_tile && task.piece.ends;
        const rl_scan_state &final = args.h_final;
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            if (!has(panel, k)) continue;
            if (keep) kept(panel)[k] = h[k];
            if (finish && final.data) {
                int64_t at =
                    task.piece.sequence * final.sequence + channel * final.channel + state_of(panel, k) * final.state;
                store_any(final.data, final.dtype, at, h[k]);
            }
        }
    }

    /* A sequence without steps hands its states on. */
    __device__ void hand_on()
    {
        for (int panel = 0; panel < args.panels; panel++) {
            load_states(panel, true);
            store_states(panel, true);
        }
    }

    /* Adds the four lanes' sums of y for four steps; lane k ends with step k's.  3 shuffles instead of 8. */
    __device__ Acc add_up(const Acc (&sum)[REDUCED]) const
    {
        const bool upper = lane & 1, odd = lane & 2;
        Acc keep0 = upper ? sum[2] : sum[0], give0 = upper ? sum[0] : sum[2];
        Acc keep1 = upper ? sum[3] : sum[1], give1 = upper ? sum[1] : sum[3];
        keep0 += __shfl_xor_sync(~0u, give0, 2);
        keep1 += __shfl_xor_sync(~0u, give1, 2);
        Acc keep = odd ? keep1 : keep0, give = odd ? keep0 : keep1;
        return keep + __shfl_xor_sync(~0u, give, 4);
    }

    __device__ int step_of_lane() const
    {
        return (lane & 1) * 2 + (lane >> 1);
    }

    /* What a tile's walk holds beside the states. */
    struct Walk {
        Acc before[OWN], local[OWN], deltas;
    };

    __device__ Walk begin_walk() const
    {
        Walk walk = {};
#pragma unroll
        for (int k = 0; k < OWN; k++) walk.before[k] = h[k];
        return walk;
    }

    /*
     * Four steps of the fast order, for a warp whose lanes are all tame: every decay is in [0, 1], states and inputs
     * are finite.  The decays are rough (rough_decay), and their error would add up over thousands of steps.  So
     * beside the states a second recurrence runs from 0, and at the tile's end the states become
     * exp(A Σδ) h_before + local, with one accurate exponential: an error lasts no longer than a tile.
     */
    __device__ Acc walk_tame(const Stage &stage, int first, Walk &walk)
    {
        Acc sum[REDUCED] = {};
#pragma unroll
        for (int s = 0; s < REDUCED; s++) {
            const Pair<Acc> pair = tiles.step[stage.tile & 1][first + s][column];
            const Acc *row = tiles.bc[stage.parity][first + s] + lane * OWN;
            const Quad<Acc> b = *(const Quad<Acc> *)row;
            Quad<Acc> c = {};
            if (pass == FULL) c = *(const Quad<Acc> *)(row + PANEL);
            walk.deltas += pair.delta;
#pragma unroll
            for (int k = 0; k < OWN; k++) {
                const Acc decay = rough_decay(pair.delta, rate[k]), input = pair.input * b.lane[k];
                walk.local[k] = fma(decay, walk.local[k], input);
                if (pass == SUMMARY) continue;
                h[k] = fma(decay, h[k], input);
                sum[s] = fma(c.lane[k], h[k], sum[s]);
            }
        }
        return pass == FULL ? add_up(sum) : Acc(0);
    }

    __device__ void run_tame(const Stage &stage, int steps)
    {
        Walk walk = begin_walk();
        for (int first = 0; first < steps; first += 2 * REDUCED) {
            /* Two groups between stores, which loads of operands cannot pass. */
            Acc *y0 = &tiles.y[stage.third][first + step_of_lane()][column], *y1 = y0 + REDUCED * Y_ROW;
            const Acc begun0 = pass == FULL ? *y0 : 0, begun1 = pass == FULL ? *y1 : 0;
            const Acc sum0 = walk_tame(stage, first, walk), sum1 = walk_tame(stage, first + REDUCED, walk);
            if (pass == FULL) {
                *y0 = begun0 + sum0;
                *y1 = begun1 + sum1;
            }
        }
        anchor(walk);
        if (pass == SUMMARY && stage.panel == 0) step_sum += walk.deltas;
    }

    /* One state over one step in the loop's own order. */
    __device__ void step_plainly(int k, Acc delta, Acc input, bool fresh)
    {
        h[k] = fresh ? input : advance(exponential(delta * a[k]), h[k], input);
    }

    /*
     * The fast order for a warp with lanes that are not tame.  From the first step on that is not (growing decays,
     * special values) a lane takes the loop's own order with accurate exponentials, in the same walk.  What comes
     * before that step, and lanes of other channels, have the same bits as in run_tame.
     */
    __device__ void run_mixed(const Stage &stage, int steps, bool fresh)
    {
        Walk walk = begin_walk();
        for (int first = 0; first < steps; first += REDUCED) {
            Acc sum[REDUCED] = {};
#pragma unroll
            for (int s = 0; s < REDUCED; s++) {
                if (first + s >= steps) continue; /* a step that does nothing to the tame */
                const Pair<Acc> pair = tiles.step[stage.tile & 1][first + s][column];
                const Acc *row = tiles.bc[stage.parity][first + s] + lane * OWN;
                tame = tame && is_tame(pair.delta, pair.input);
                walk.deltas += pair.delta;
#pragma unroll
                for (int k = 0; k < OWN; k++) {
                    const Acc input = pair.input * row[k];
                    if (tame) {
                        const Acc decay = rough_decay(pair.delta, rate[k]);
                        walk.local[k] = fma(decay, walk.local[k], input);
                        h[k] = fma(decay, h[k], input);
                    } else if (k < own) { /* where there is no state, infinities must not meet its zeros */
                        step_plainly(k, pair.delta, input, fresh);
                    }
                    if (pass == FULL && (tame || k < own)) sum[s] = fma(row[PANEL + k], h[k], sum[s]);
                }
                fresh = false; /* nothing multiplies a state that is not there */
            }
            if (pass == FULL) tiles.y[stage.third][first + step_of_lane()][column] += add_up(sum);
        }
        anchor(walk);
        if (pass == SUMMARY && stage.panel == 0) step_sum += walk.deltas;
    }

    /* The states at the end of a tile, and whether they are tame for the next. */
    __device__ void anchor(const Walk &walk)
    {
        Acc anchored[OWN], size = 0;
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            anchored[k] = fma(exponential_of_decay(a[k] * walk.deltas), walk.before[k], walk.local[k]);
            size += fabs(anchored[k]) + (pass == FULL ? fabs(h[k]) : Acc(0)); /* NaN and infinity stay in the sum */
        }
        if (tame && is_finite(size)) {
#pragma unroll
            for (int k = 0; k < OWN; k++) h[k] = anchored[k];
            return;
        }
#pragma unroll
        for (int k = 0; k < OWN; k++)
            if (tame && (pass == SUMMARY || (is_finite(anchored[k]) && is_finite(h[k])))) h[k] = anchored[k];
        look_at_states();
    }

    /* Whether A and the states allow the fast order. */
    __device__ void look_at_states()
    {
        tame = true;
#pragma unroll
        for (int k = 0; k < OWN; k++) tame = tame && a[k] <= 0 && is_finite(h[k]);
    }

    /* The loop's own order with accurate exponentials, for double and for a few steps. */
    __device__ void run_plain(const Stage &stage, int steps, bool fresh)
    {
        for (int first = 0; first < steps; first += REDUCED) {
            Acc sum[REDUCED] = {};
#pragma unroll
            for (int s = 0; s < REDUCED; s++) {
                if (first + s >= steps) continue;
                const Pair<Acc> pair = tiles.step[stage.tile & 1][first + s][column];
                const Acc *row = tiles.bc[stage.parity][first + s] + lane * OWN;
                if (pass == SUMMARY && stage.panel == 0) step_sum += pair.delta;
#pragma unroll
                for (int k = 0; k < OWN; k++) {
                    if (k >= own) continue;
                    step_plainly(k, pair.delta, pair.input * row[k], fresh);
                    if (pass == FULL) sum[s] = fma(row[PANEL + k], h[k], sum[s]);
                }
                fresh = false;
            }
            if (pass == FULL) tiles.y[stage.third][first + step_of_lane()][column] += add_up(sum);
        }
        look_at_states();
    }

    __device__ void run_stage(const Stage &stage)
    {
        const int64_t left = task.piece.count - stage.tile * STEPS;
        const int steps = left < STEPS ? (int)left : STEPS;
        const bool no_state = pass == SUMMARY || (task.piece.starts && !args.h_init.data);
        const bool fresh = no_state && stage.tile == 0;
        const bool steps_tame = tiles.wild[stage.third][column] == 0;
        if (pass == SUMMARY && !steps_tame) wild = true;
        if constexpr (sizeof(Acc) == 4) {
            if (steps >= 2 * REDUCED) { /* fewer gain nothing from the fast order */
                if (__all_sync(~0u, tame && steps_tame))
                    run_tame(stage, steps);
                else
                    run_mixed(stage, steps, fresh);
                return;
            }
        }
        run_plain(stage, steps, fresh);
    }

    __device__ void summarise()
    {
        if (!exists || lane != 0) return;
        int64_t at = carry_index(args, task.piece, channel);
        args.step_sums[at] = step_sum;
        args.wild[at] = wild;
    }

    __device__ void run()
    {
        const int panels = args.panels, threads = blockDim.x;
        const bool resident = panels == 1; /* all states stay in registers from tile to tile */
        if (task.tiles == 0 && task.piece.empty && task.piece.starts && pass == FULL) hand_on();
        if (task.tiles == 0 && pass == SUMMARY) {
            for (int panel = 0; panel < args.panels; panel++) {
                load_states(panel, true);
                store_states(panel, true);
            }
        }
        for (int k = column; lane == 0 && k < 3 * CHANNELS; k += args.block_channels) (&tiles.wild[0][0])[k] = 0;
        if (resident && task.tiles > 0) {
            load_A(0);
            load_states(0, true);
            look_at_states();
        }
        block_barrier(threads); /* flags are clear, and the task before has left the tiles */
        block_barrier(threads); /* stage 0 is prepared */
        Stage stage;
        for (; stage.tile < task.tiles; stage.advance(panels)) {
            const bool first = stage.tile == 0, last = stage.tile + 1 == task.tiles;
            if (!resident) {
                load_A(stage.panel);
                load_states(stage.panel, first);
                look_at_states();
            }
            /* The flags of the tile before are in nobody's hands: clear them for the tile after next. */
            if (lane == 0) tiles.wild[stage.third == 0 ? 2 : stage.third - 1][column] = 0;
            run_stage(stage);
            if (last || !resident) store_states(stage.panel, last);
            block_barrier(
                threads); /* the stage's tiles are used up, the next one's are prepared, its y is complete */
        }
        if (pass == SUMMARY) summarise();
    }
};
