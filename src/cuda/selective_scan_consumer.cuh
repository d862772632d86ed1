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
    int own; /* states of the panel that exist */
    Acc h[OWN], a[OWN];
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

    /* A tile on its way through the fast order. */
    struct Walk {
        Acc rate[OWN], before[OWN], local[OWN], deltas;
        int left; /* steps that exist from here on */
        bool tame, fresh;
    };

    /*
     * Four steps of the fast order, for lanes that are tame: every decay is in [0, 1], states and inputs are finite.
     * Their decays are rough (exp2_rough of a product with log2(e)), and the bias would add up over thousands of
     * steps.  So beside the states a second recurrence runs from 0, and at the tile's end the states become
     * exp(A Σδ) h_before + local, with one accurate exponential: an error lasts no longer than a tile.
     *
     * From the first step on that is not tame (growing decays, special values) a lane takes the loop's own order with
     * accurate exponentials, in the same walk; all_tame leaves that out.  What comes before that step, and lanes of
     * other channels, have the same bits either way.
     */
    template <bool all_tame> __device__ Acc walk_group(const Stage &stage, int first, Walk &walk)
    {
        Acc sum[REDUCED] = {};
#pragma unroll
        for (int s = 0; s < REDUCED; s++) {
            if (!all_tame && s >= walk.left) continue; /* a step that does nothing to the tame */
            const Pair<Acc> pair = tiles.step[stage.tile & 1][first + s][column];
            const Acc *row = tiles.bc[stage.parity][first + s] + lane * OWN;
            const Quad<Acc> b = *(const Quad<Acc> *)row;
            Quad<Acc> c = {};
            if (pass == FULL) c = *(const Quad<Acc> *)(row + PANEL);
            if (!all_tame) walk.tame = walk.tame && is_tame(pair.delta, pair.input);
            walk.deltas += pair.delta;
#pragma unroll
            for (int k = 0; k < OWN; k++) {
                Acc decay = exp2_rough(pair.delta * walk.rate[k]), input = pair.input * b.lane[k];
                if (!all_tame && !walk.tame) {
                    if (k >= own) continue; /* no state: infinities must not meet its zeros */
                    decay = exponential(pair.delta * a[k]);
                }
                if (!all_tame && !walk.tame && walk.fresh)
                    h[k] = input; /* nothing multiplies a state that is not there */
                else if (pass == FULL || !all_tame)
                    h[k] = fma(decay, h[k], input);
                if (pass == FULL) sum[s] = fma(c.lane[k], h[k], sum[s]);
                walk.local[k] = fma(decay, walk.local[k], input);
            }
            if (!all_tame) walk.fresh = false;
        }
        walk.left -= REDUCED;
        return pass == FULL ? add_up(sum) : Acc(0);
    }

    template <bool all_tame> __device__ void run_fast(const Stage &stage, int steps, bool tame, bool fresh)
    {
        const float log2e = 1.44269504f;
        Walk walk = {};
        walk.left = steps;
        walk.tame = tame;
        walk.fresh = fresh;
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            walk.before[k] = h[k];
            walk.rate[k] = finite_range(a[k] * log2e);
        }
        for (int first = 0; first < steps; first += 2 * REDUCED) {
            /* Two groups between stores, which loads of operands cannot pass. */
            Acc *y0 = &tiles.y[stage.third][first + step_of_lane()][column], *y1 = y0 + REDUCED * Y_ROW;
            const Acc begun0 = pass == FULL ? *y0 : 0, begun1 = pass == FULL ? *y1 : 0;
            const Acc sum0 = walk_group<all_tame>(stage, first, walk);
            const Acc sum1 = walk_group<all_tame>(stage, first + REDUCED, walk);
            if (pass == FULL) {
                *y0 = begun0 + sum0;
                *y1 = begun1 + sum1;
            }
        }
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            const Acc anchored = fma(exponential_of_decay(a[k] * walk.deltas), walk.before[k], walk.local[k]);
            if (walk.tame && (pass == SUMMARY || (is_finite(anchored) && is_finite(h[k])))) h[k] = anchored;
        }
        if (pass == SUMMARY && stage.panel == 0) step_sum += walk.deltas;
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
                    if (k >= own) continue; /* no state: infinities must not meet its zeros */
                    Acc input = pair.input * row[k];
                    h[k] = fresh ? input : fma(exponential(pair.delta * a[k]), h[k], input);
                    if (pass == FULL) sum[s] = fma(row[PANEL + k], h[k], sum[s]);
                }
                fresh = false; /* nothing multiplies a state that is not there */
            }
            if (pass == FULL) tiles.y[stage.third][first + step_of_lane()][column] += add_up(sum);
        }
    }

    __device__ void run_stage(const Stage &stage)
    {
        const int64_t left = task.piece.count - stage.tile * STEPS;
        const int steps = left < STEPS ? (int)left : STEPS;
        const bool no_state = pass == SUMMARY || (task.piece.starts && !args.h_init.data);
        const bool fresh = no_state && stage.tile == 0;
        const bool steps_tame = tiles.wild[stage.third][column] == 0;
        if (pass == SUMMARY && !steps_tame) wild = true;
        bool tame = true; /* what the lane brings along */
#pragma unroll
        for (int k = 0; k < OWN; k++) tame = tame && a[k] <= 0 && is_finite(h[k]);
        if constexpr (sizeof(Acc) == 4) {
            if (steps >= 2 * REDUCED) { /* fewer gain nothing from the fast order */
                if (__all_sync(~0u, tame && steps_tame))
                    run_fast<true>(stage, steps, true, false);
                else
                    run_fast<false>(stage, steps, tame, fresh);
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
        const bool resident = args.panels == 1; /* all states stay in registers from tile to tile */
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
        }
        block_barrier(); /* flags are clear, and the task before has left the tiles */
        block_barrier(); /* stage 0 is prepared */
        Stage stage;
        for (; stage.tile < task.tiles; stage.advance(args.panels)) {
            const bool first = stage.tile == 0, last = stage.tile + 1 == task.tiles;
            if (!resident) {
                load_A(stage.panel);
                load_states(stage.panel, first);
            }
            /* The flags of the tile before are in nobody's hands: clear them for the tile after next. */
            if (lane == 0) tiles.wild[stage.third == 0 ? 2 : stage.third - 1][column] = 0;
            run_stage(stage);
            if (last || !resident) store_states(stage.panel, last);
            block_barrier(); /* the stage's tiles are used up, the next one's are prepared, its y is complete */
        }
        if (pass == SUMMARY) summarise();
    }
};
