/*
 * A tile of the walk back, which selective_scan_back_walk.cu includes in its namespace.  The tile is cut into parts
 * of PART steps.  A walk forward leaves the states before each part in shared memory; then, from the last part to the
 * first, it is walked again with its states and decays in registers, and back over these.
 *
 * Numbers: decays are rough (rough_decay) and run from accurate states over one tile.  The gradient that runs against
 * time would take their errors on from tile to tile: so what entered the tile goes through it a second time, by the
 * rough decays alone (`carried`), and is in the end replaced by its product with exp(A Σδ).
 *
 * From the first step on where a decay may grow, or a step or the state is not finite, a state is `plain`: it takes
 * accurate exponentials, and every product and sum as the plain loop has them, in the same walk.  So with gradients,
 * from the last such step back, whether states are plain or not.  What comes before has the same bits as without.
 */

template <typename Acc> struct Walker {
    static constexpr int PARTS = TILE / PART<Acc>;

    const rl_s6_back_args &args;
    const Block &block;
    Tiles<Acc> &tiles;
    Lane lane;
    Acc rate[OWN][STATES], G[OWN][STATES], dA[OWN][STATES], carried[OWN][STATES], deltas[OWN];
    int h_from[OWN], G_from[OWN]; /* states are plain from this step on, gradients from this one back */
    unsigned h_plain, G_plain;    /* of the thread's states, a bit each: those that are so in the whole tile */
    int steps;                    /* of the tile */
    bool fresh;                   /* the tile's first step has no state before it */

    __device__ Walker(const rl_s6_back_args &args, const Block &block, Tiles<Acc> &tiles)
        : args(args), block(block), tiles(tiles)
    {
    }

    __device__ int64_t channel(int own) const
    {
        return block.channel + lane.column_of(own);
    }
    __device__ bool has(int own, int panel, int slot) const
    {
        return lane.column_of(own) < block.channels && lane.state_of(panel, slot) < args.scan.states;
    }

    /* Adds a step's dB and dC over the warp's channels: lane by lane another of its 32 numbers. */
    __device__ Acc add_channels(Acc (&dB)[STATES], Acc (&dC)[STATES]) const
    {
#pragma unroll
        for (int half = STATES / 2; half > 0; half /= 2) {
#pragma unroll
            for (int k = 0; k < half; k++) {
                dB[k] += __shfl_xor_sync(~0u, dB[k + half], 8 * half);
                dC[k] += __shfl_xor_sync(~0u, dC[k + half], 8 * half);
            }
        }
        const bool odd = threadIdx.x & 1;
        const Acc keep = odd ? dC[0] : dB[0], give = odd ? dB[0] : dC[0];
        return keep + __shfl_xor_sync(~0u, give, 1);
    }
    __device__ int number() const /* which one */
    {
        return (threadIdx.x & 1) * PANEL + lane.lane * STATES + lane.order;
    }

    /* Adds a step's Σ G B and Σ A G a h over the lanes of the channels: lane by lane another of the four numbers. */
    __device__ Acc add_states(Acc (&along_B)[OWN], Acc (&along_delta)[OWN]) const
    {
        const bool second = lane.lane & 1;
        along_B[0] += __shfl_xor_sync(~0u, along_B[1], 4);
        along_delta[0] += __shfl_xor_sync(~0u, along_delta[1], 4);
        const Acc keep = second ? along_delta[0] : along_B[0], give = second ? along_B[0] : along_delta[0];
        return keep + __shfl_xor_sync(~0u, give, 2);
    }
    __device__ Acc add_outputs(const Acc (&output)[OWN]) const
    {
        const Acc sum = output[0] + __shfl_xor_sync(~0u, output[1], 4);
        return sum + __shfl_xor_sync(~0u, sum, 2);
    }

    __device__ void put(Acc &to, Acc value, int panel) const
    {
        to = panel == 0 ? value : to + value;
    }

    __device__ void store_start(int part, const Acc (&h)[OWN][STATES]) const
    {
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            Four<Acc> four;
#pragma unroll
            for (int k = 0; k < STATES; k++) four.state[k] = h[j][k];
            tiles.start[part][j][threadIdx.x] = four;
        }
    }
    __device__ void load_start(int part, Acc (&h)[OWN][STATES]) const
    {
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            const Four<Acc> four = tiles.start[part][j][threadIdx.x];
#pragma unroll
            for (int k = 0; k < STATES; k++) h[j][k] = four.state[k];
        }
    }

    __device__ bool is_plain_state(int j, int k, int t) const
    {
        return (h_plain >> (j * STATES + k) & 1) || t >= h_from[j];
    }
    __device__ bool is_plain_gradient(int j, int k, int t) const
    {
        return (G_plain >> (j * STATES + k) & 1) || t <= G_from[j];
    }

    /* One step forward; its decays are left in `decay`. */
    template <bool mixed>
    __device__ void advance_step(int t, int panel, const Acc (&before)[OWN][STATES], Acc (&after)[OWN][STATES],
                                 Acc (&decay)[OWN][STATES]) const
    {
        const Four<Acc> b = *(const Four<Acc> *)&tiles.B[t][lane.order][lane.lane * STATES];
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            const Step<Acc> step = tiles.step[t][lane.column_of(j)];
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                const Acc added = step.input * b.state[k], was = before[j][k]; /* may lie where `after` does */
                decay[j][k] = decay_of(step.delta, rate[j][k]);
                after[j][k] = fma(decay[j][k], was, added);
                if (!mixed || !is_plain_state(j, k, t)) continue;
                after[j][k] = 0; /* infinities must not meet the zeros of a state that does not exist */
                if (!has(j, panel, k)) continue;
                const Acc a = load_A<Acc>(args.scan, channel(j), lane.state_of(panel, k));
                after[j][k] = fresh && t == 0 ? added : advance(exponential(step.delta * a), was, added);
            }
        }
    }

    /* The states before each part, from the one before the tile. */
    template <bool mixed> __device__ void leave_starts(int panel, Acc (&h)[OWN][STATES])
    {
        store_start(0, h);
#pragma unroll 1
        for (int part = 1; part * PART<Acc> < steps; part++) {
#pragma unroll(mixed ? 1 : PART <Acc>)
            for (int t = 0; t < PART<Acc>; t++) {
                Acc decay[OWN][STATES];
                advance_step<mixed>((part - 1) * PART<Acc> + t, panel, h, h, decay);
            }
            store_start(part, h);
        }
    }

    /* What a step adds to sums over channels and over states. */
    struct Sums {
        Acc dB[STATES], dC[STATES], along_B[OWN], along_delta[OWN], output[OWN];
    };

    /* One step of a channel back with plain states or gradients, in the reference's order. */
    __device__ void step_mixed(const Step<Acc> &step, int j, int panel, int t, Acc x, const Four<Acc> &b,
                               const Four<Acc> &c, const Acc (&before)[STATES], const Acc (&after)[STATES],
                               Sums &sums)
    {
        const bool has_dy = args.dy.data, first = fresh && t == 0;
        Acc plain_delta = 0;
        deltas[j] += step.delta;
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            if (!has(j, panel, k)) continue;
            const bool plain_h = is_plain_state(j, k, t), plain_G = is_plain_gradient(j, k, t);
            const Acc decay = decay_of(step.delta, rate[j][k]);
            if (has_dy) {
                G[j][k] = plain_G ? advance(step.du, c.state[k], G[j][k]) : fma(step.du, c.state[k], G[j][k]);
                sums.dC[k] = fma(step.du, after[k], sums.dC[k]);
                sums.output[j] = fma(c.state[k], after[k], sums.output[j]);
            }
            sums.dB[k] = fma(step.input, G[j][k], sums.dB[k]);
            sums.along_B[j] = fma(G[j][k], b.state[k], sums.along_B[j]);
            carried[j][k] *= decay;
            if (!plain_h && !plain_G) {
                G[j][k] *= decay;
                const Acc flow = G[j][k] * before[k];
                sums.along_delta[j] = fma(rate[j][k], flow, sums.along_delta[j]);
                dA[j][k] = fma(step.delta, flow, dA[j][k]);
                continue;
            }
            const Acc a = load_A<Acc>(args.scan, channel(j), lane.state_of(panel, k));
            const Acc right = exponential(step.delta * a), held = first ? Acc(0) : right * before[k];
            /* The other part of the sum is x Σ G B; where x is infinite, only its terms show what that is. */
            if (!is_finite(x)) plain_delta += G[j][k] * (b.state[k] * x);
            if (!first) plain_delta += G[j][k] * (a * held);
            if (!first) dA[j][k] += G[j][k] * (step.delta * held);
            G[j][k] = !plain_G ? decay * G[j][k] : first ? Acc(0) : right * G[j][k];
        }
        sums.along_delta[j] = sums.along_delta[j] * rate_unit<Acc>() + plain_delta;
    }

    /* One step of a channel back.  `outputs`: with the sums that y is made of. */
    template <bool outputs>
    __device__ void step_back(const Step<Acc> &step, int j, const Four<Acc> &b, const Four<Acc> &c,
                              const Acc (&before)[STATES], const Acc (&after)[STATES], const Acc (&decay)[STATES],
                              Sums &sums)
    {
        deltas[j] += step.delta;
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            G[j][k] = fma(step.du, c.state[k], G[j][k]);
            sums.dC[k] = fma(step.du, after[k], sums.dC[k]);
            sums.dB[k] = fma(step.input, G[j][k], sums.dB[k]);
            sums.along_B[j] = fma(G[j][k], b.state[k], sums.along_B[j]);
            G[j][k] *= decay[k];
            carried[j][k] *= decay[k];
            const Acc flow = G[j][k] * before[k];
            sums.along_delta[j] = fma(rate[j][k], flow, sums.along_delta[j]);
            dA[j][k] = fma(step.delta, flow, dA[j][k]);
        }
        sums.along_delta[j] *= rate_unit<Acc>();
#pragma unroll
        for (int k = 0; k < STATES; k++)
            if (outputs) sums.output[j] = fma(c.state[k], after[k], sums.output[j]);
    }

    template <bool outputs> __device__ void put_sums(int t, int panel, Sums &sums)
    {
        const int kind = lane.lane & 1, column = lane.column_of(0);
        put(tiles.sums[t][kind][column], add_states(sums.along_B, sums.along_delta), panel);
        tiles.bc[threadIdx.x / 32][t][number()] = add_channels(sums.dB, sums.dC);
        if (!outputs) return;
        const Acc output = add_outputs(sums.output);
        if (kind == 0) put(tiles.outputs[t][column], output, panel);
    }

    __device__ Four<Acc> row_of(const Acc (*rows)[ORDERS][PANEL], int t) const
    {
        return *(const Four<Acc> *)&rows[t][lane.order][lane.lane * STATES];
    }

    template <bool outputs> __device__ void walk_part(int part, int panel)
    {
        constexpr int COUNT = PART<Acc>;
        const int begin = part * COUNT;
        Acc h[COUNT + 1][OWN][STATES], decay[COUNT][OWN][STATES];
        load_start(part, h[0]);
#pragma unroll
        for (int t = 0; t < COUNT; t++) advance_step<false>(begin + t, panel, h[t], h[t + 1], decay[t]);
#pragma unroll
        for (int t = COUNT - 1; t >= 0; t--) {
            const Four<Acc> b = row_of(tiles.B, begin + t), c = row_of(tiles.C, begin + t);
            Sums sums = {};
#pragma unroll
            for (int j = 0; j < OWN; j++)
                step_back<outputs>(tiles.step[begin + t][lane.column_of(j)], j, b, c, h[t][j], h[t + 1][j],
                                   decay[t][j], sums);
            put_sums<outputs>(begin + t, panel, sums);
        }
    }

    /* The same with plain channels, of which there are few: it saves registers and code, and walks the part again for
     * every step.  No step beyond the last is taken: zeros must not meet infinities. */
    __device__ void walk_mixed_part(int part, int panel, const Chunk &chunk, int64_t first)
    {
        const int begin = part * PART<Acc>, end = begin + PART<Acc> < steps ? begin + PART<Acc> : steps;
#pragma unroll 1
        for (int t = end - 1; t >= begin; t--) {
            const Four<Acc> b = row_of(tiles.B, t), c = row_of(tiles.C, t);
            Acc before[OWN][STATES], after[OWN][STATES], decay[OWN][STATES];
            Sums sums = {};
            load_start(part, before);
#pragma unroll 1
            for (int earlier = begin; earlier < t; earlier++)
                advance_step<true>(earlier, panel, before, before, decay);
            advance_step<true>(t, panel, before, after, decay);
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                const rl_s6_view &x = args.scan.x;
                const bool exists = lane.column_of(j) < block.channels;
                const int64_t x_at =
                    first_row(args.scan, x, chunk.piece) + (first + t) * x.step + channel(j) * x.lane;
                step_mixed(tiles.step[t][lane.column_of(j)], j, panel, t,
                           exists ? load_any<Acc>(x.data, x.dtype, x_at) : Acc(0), b, c, before[j], after[j], sums);
            }
            put_sums<true>(t, panel, sums);
        }
    }

    /* Finds what is plain; returns whether anything is. */
    __device__ bool look(const Acc (&h)[OWN][STATES], const int *flags)
    {
        bool any = false;
        h_plain = G_plain = 0;
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            const int column = lane.column_of(j), wild = flags[column];
            h_from[j] = TILE;
            G_from[j] = -1;
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                const unsigned bit = 1u << (j * STATES + k), grows = rate[j][k] <= 0 ? 0 : bit;
                h_plain |= grows | (is_finite(h[j][k]) ? 0 : bit);
                G_plain |= grows | (is_finite(G[j][k]) ? 0 : bit);
            }
            any = any || wild;
            if (!wild) continue;
#pragma unroll 1
            for (int t = 0; t < steps; t++) {
                if (h_from[j] == TILE && is_wild_state(tiles.step[t][column])) h_from[j] = t;
                if (is_wild_gradient(tiles.step[t][column])) G_from[j] = t;
            }
        }
        return any || h_plain || G_plain;
    }

    /* Takes the errors of rough decays out of what entered the tile. */
    template <bool mixed> __device__ void anchor()
    {
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            const Four<Acc> entering = tiles.entering[j][threadIdx.x];
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                const Acc decay = long_decay(rate[j][k], deltas[j]);
                if (mixed && is_plain_gradient(j, k, 0)) continue;
                G[j][k] += fma(decay, entering.state[k], -carried[j][k]);
            }
        }
    }

    template <bool mixed, bool outputs>
    __device__ void walk_parts(int panel, const Chunk &chunk, int64_t first, Acc (&h)[OWN][STATES])
    {
        leave_starts<mixed>(panel, h);
#pragma unroll 1
        for (int part = (steps - 1) / PART<Acc>; part >= 0; part--) {
            if (mixed)
                walk_mixed_part(part, panel, chunk, first);
            else
                walk_part<outputs>(part, panel);
        }
        anchor<mixed>();
    }

    /* A panel of a tile, from the states before it. */
    __device__ void walk_tile(int panel, const Chunk &chunk, int64_t first, Acc (&h)[OWN][STATES], const int *flags)
    {
        const bool mixed = __any_sync(~0u, look(h, flags));
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            Four<Acc> entering;
            deltas[j] = 0;
#pragma unroll
            for (int k = 0; k < STATES; k++) entering.state[k] = carried[j][k] = G[j][k];
            tiles.entering[j][threadIdx.x] = entering;
        }
        if (mixed)
            walk_parts<true, true>(panel, chunk, first, h);
        else if (args.needs_outputs)
            walk_parts<false, true>(panel, chunk, first, h);
        else
            walk_parts<false, false>(panel, chunk, first, h);
    }
};
