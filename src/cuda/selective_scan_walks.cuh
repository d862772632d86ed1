/* The walks over a tile of the consumers of selective_scan.cuh, which includes this in its namespace. */

template <typename T, typename Acc, typename Shape, Pass pass, Work work>
struct Walker : OwnStates<Acc, Shape, pass, work> {
    using Base = OwnStates<Acc, Shape, pass, work>;
    using Base::decays, Base::load_A;
    using Base::LANES, Base::OWN, Base::args, Base::task, Base::column, Base::lane, Base::own, Base::h, Base::rate;
    static constexpr int STORED = 8; /* steps between stores of y: loads cannot pass them, which saves registers */
    static constexpr int UNROLLED = STEPS / STORED;            /* of walk_freely */
    static constexpr int PART = LANES * (Shape::CHANNELS + 2); /* quads between the parts of y of four steps */

    Tiles<Acc, Shape> &tiles;
    bool tame; /* A and the states allow the fast order */
    double step_sum;
    bool counts; /* the panel adds to step_sum */
    int parity;  /* of the stage */

    __device__ Walker(const rl_s6_args &args, const Task &task, Tiles<Acc, Shape> &tiles)
        : Base(args, task), tiles(tiles), step_sum(0)
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

    /* Whether A and the states allow the fast order. */
    __device__ void look_at_states()
    {
        tame = decays;
#pragma unroll
        for (int k = 0; k < OWN; k++) tame = tame && is_finite(h[k]);
    }

    /* After a tile in the fast order. */
    __device__ void look_again()
    {
        Acc size = 0; /* NaN and infinity stay in the sum */
#pragma unroll
        for (int k = 0; k < OWN; k++) size += fabs(h[k]);
        if (__builtin_expect(!tame || !is_finite(size), false)) look_at_states();
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

    __device__ void step_tame(const Pair<Acc> &pair, const Acc *row, Walk &walk, Acc &sum)
    {
        const States<Acc, pass == FULL ? 2 *OWN : OWN> bc = *(const decltype(bc) *)row;
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            step_fast(walk, k, exp2_rough(power_of(pair.delta, rate[k])), pair.input * bc.state[k]);
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
     */
    __device__ void walk_tame(const Stage &stage, int steps, Walk &walk)
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
                step_tame(two.pair[0], row + s * 2 * PANEL, walk, sum[s]);
                step_tame(two.pair[1], row + (s + 1) * 2 * PANEL, walk, sum[s + 1]);
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
                    const Acc decay =
                        accurate ? exponential(pair.delta * a[k]) : exp2_rough(power_of(pair.delta, rate[k]));
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

    /*
     * The exponent of a rough decay, raised by what exp2_rough is low about 2^-6, where errors last longest of all
     * that no anchor ends: .43 of 2^-24, of which 2^-25 makes good .34 and still leaves exp2_rough(0) the 1 that it
     * is.
     */
    __device__ static Acc power_of(Acc delta, Acc rate)
    {
        return fma(delta, rate, Acc(0x1p-25));
    }

    using Row = States<Acc, 2 * OWN>; /* B, then C, of the lane's states */

    /* What walk_freely begins with: asked for before the rest of what a tile begins with, it is there in time. */
    struct Lead {
        const TwoSteps<Acc> *pairs;
        const Acc *row;
        TwoSteps<Acc> two, next;
        Row first;
    };
    __device__ Lead lead_of(int at) const
    {
        const TwoSteps<Acc> *pairs = &tiles.step[at][0][column];
        const Acc *row = tiles.bc[at][0] + lane * 2 * OWN;
        return {pairs, row, pairs[0], pairs[Shape::CHANNELS], *(const Row *)row};
    }

    /*
     * walk_tame for the tiles in which no channel is slow: where states soon fade, so do their errors, and the second
     * recurrence is left out.  (A channel that is not slow keeps its states as they are in walk_tame too.)  Decays
     * are worked out a step ahead, their exponents two and their step sizes four, so that the special function unit
     * and the multiply-adds always have something to do beside each other; and a row is asked for before the stores
     * ahead of its use.
     */
    __device__ void walk_freely(int at, const Lead &lead)
    {
        const TwoSteps<Acc> *pairs = lead.pairs;
        const Acc *row = lead.row;
        Quad<Acc> *to = &tiles.y[at][0][lane][slot_of(column)];
        TwoSteps<Acc> two = lead.two, next = lead.next;
        Row first = lead.first;
        Acc decay[OWN], power[OWN];
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            decay[k] = exp2_rough(power_of(two.pair[0].delta, rate[k]));
            power[k] = power_of(two.pair[1].delta, rate[k]);
        }
#pragma unroll UNROLLED
        for (int part = 0; part < STEPS; part += STORED) {
            Acc sum[STORED] = {};
#pragma unroll
            for (int s = 0; s < STORED; s += 2) {
                const int after = part + s + 2 < STEPS ? s + 2 : 0; /* behind the last any will do */
                const int later = part + s + 4 < STEPS ? s + 4 : 0;
                const TwoSteps<Acc> last = pairs[later / 2 * Shape::CHANNELS];
                const Row other = *(const Row *)(row + (s + 1) * 2 * PANEL);
                Acc second[OWN];
#pragma unroll
                for (int k = 0; k < OWN; k++) {
                    second[k] = exp2_rough(power[k]);
                    h[k] = fma(decay[k], h[k], two.pair[0].input * first.state[k]);
                    sum[s] = fma(first.state[OWN + k], h[k], sum[s]);
                }
                first = *(const Row *)(row + after * 2 * PANEL);
#pragma unroll
                for (int k = 0; k < OWN; k++) {
                    decay[k] = exp2_rough(power_of(next.pair[0].delta, rate[k]));
                    power[k] = power_of(next.pair[1].delta, rate[k]);
                    h[k] = fma(second[k], h[k], two.pair[1].input * other.state[k]);
                    sum[s + 1] = fma(other.state[OWN + k], h[k], sum[s + 1]);
                }
                two = next;
                next = last;
            }
#pragma unroll
            for (int s = 0; s < STORED; s += GROUP) put(to + s / GROUP * PART, sum + s);
            pairs += STORED / 2 * Shape::CHANNELS;
            row += STORED * 2 * PANEL;
            to += STORED / GROUP * PART;
        }
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
        look_at_states();
    }
};
