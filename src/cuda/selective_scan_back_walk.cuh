/*
 * A tile of the walk back, which selective_scan_back_walk.cu includes in its namespace.  The tile is cut into parts
 * of PART steps.  A walk forward leaves the states before each part in shared memory; then, from the last part to the
 * first, it is walked again with its states and decays in registers, and back over these.
 *
 * Numbers: decays are rough (rough_decay) and run from accurate states over one tile.  The gradient that runs against
 * time would take their errors on from tile to tile: so what entered the tile goes through it a second time, by the
 * rough decays alone (`carried`), and is in the end replaced by its product with exp(A Σδ).
 *
 * A channel of a tile is `plain` where a decay may grow, or a step or a state is not finite: it takes accurate
 * exponentials and every product and sum as the plain loop has them, in the same walk.  The others have the same bits
 * with and without it.
 */

template <typename Acc> struct Walker {
    static constexpr int PARTS = TILE / PART<Acc>;

    const rl_s6_back_args &args;
    const Block &block;
    Tiles<Acc> &tiles;
    Lane lane;
    Acc rate[OWN][STATES], G[OWN][STATES], dA[OWN][STATES], carried[OWN][STATES], deltas[OWN];
    bool plain[OWN];
    int steps;  /* of the tile */
    bool fresh; /* the tile's first step has no state before it */

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

    /* A decay as a plain channel has it. */
    __device__ Acc plain_decay(int j, int panel, int k, Acc delta) const
    {
        return has(j, panel, k) ? exponential(delta * load_A<Acc>(args.scan, channel(j), lane.state_of(panel, k)))
                                : Acc(1);
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
                if (!mixed || !plain[j]) continue;
                decay[j][k] = plain_decay(j, panel, k, step.delta);
                after[j][k] = fresh && t == 0 ? added : advance(decay[j][k], was, added);
                if (!has(j, panel, k)) after[j][k] = 0; /* infinities must not meet its zeros */
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

    /* One step of a plain channel back, in the reference's order. */
    __device__ void step_plainly(const Step<Acc> &step, int j, int panel, int t, int64_t x_at, const Four<Acc> &b,
                                 const Four<Acc> &c, const Acc (&before)[STATES], const Acc (&after)[STATES],
                                 const Acc (&decay)[STATES], Sums &sums)
    {
        const bool has_dy = args.dy.data, first = fresh && t == 0;
        const Acc x = load_any<Acc>(args.scan.x.data, args.scan.x.dtype, x_at);
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            if (!has(j, panel, k)) continue;
            const Acc held = first ? Acc(0) : decay[k] * before[k];
            const Acc a = load_A<Acc>(args.scan, channel(j), lane.state_of(panel, k));
            if (has_dy) {
                G[j][k] = advance(step.du, c.state[k], G[j][k]);
                sums.dC[k] += step.du * after[k];
                sums.output[j] = fma(c.state[k], after[k], sums.output[j]);
            }
            sums.dB[k] += G[j][k] * step.input;
            sums.along_B[j] += G[j][k] * b.state[k];
            /* The other part of it is x Σ G B; where x is infinite, only its terms show what the sum is. */
            if (!first) sums.along_delta[j] += G[j][k] * (a * held);
            if (!is_finite(x)) sums.along_delta[j] += G[j][k] * (b.state[k] * x);
            if (!first) dA[j][k] += G[j][k] * (step.delta * held);
            G[j][k] = first ? Acc(0) : decay[k] * G[j][k];
        }
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
                const Step<Acc> &step = tiles.step[t][lane.column_of(j)];
                if (plain[j])
                    step_plainly(step, j, panel, t, place_of_x(chunk.piece, first + t, j), b, c, before[j], after[j],
                                 decay[j], sums);
                else
                    step_back<true>(step, j, b, c, before[j], after[j], decay[j], sums);
            }
            put_sums<true>(t, panel, sums);
        }
    }

    __device__ int64_t place_of_x(const Piece &piece, int64_t step, int own) const
    {
        const rl_s6_view &x = args.scan.x;
        return first_row(args.scan, x, piece) + step * x.step + channel(own) * x.lane;
    }

    /* Whether a channel must take the loop's own order; all of its lanes say the same. */
    __device__ void look(int panel, const Acc (&h)[OWN][STATES], const int *flags)
    {
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            int bad = flags[lane.column_of(j)];
#pragma unroll
            for (int k = 0; k < STATES; k++)
                if (!(rate[j][k] <= 0) || !is_finite(h[j][k]) || !is_finite(G[j][k])) bad = 1;
            bad |= __shfl_xor_sync(~0u, bad, 2);
            bad |= __shfl_xor_sync(~0u, bad, 4);
            plain[j] = bad;
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
    }

    /* A panel of a tile, from the states before it. */
    __device__ void walk_tile(int panel, const Chunk &chunk, int64_t first, Acc (&h)[OWN][STATES], const int *flags)
    {
        look(panel, h, flags);
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            Four<Acc> entering;
            deltas[j] = 0;
#pragma unroll
            for (int k = 0; k < STATES; k++) entering.state[k] = carried[j][k] = G[j][k];
            tiles.entering[j][threadIdx.x] = entering;
        }
        if (__any_sync(~0u, plain[0] || plain[1]))
            walk_parts<true, true>(panel, chunk, first, h);
        else if (args.needs_outputs)
            walk_parts<false, true>(panel, chunk, first, h);
        else
            walk_parts<false, false>(panel, chunk, first, h);
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            const Four<Acc> entering = tiles.entering[j][threadIdx.x];
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                const Acc decay = long_decay(rate[j][k], deltas[j]);
                if (!plain[j]) G[j][k] += fma(decay, entering.state[k], -carried[j][k]);
            }
        }
    }
};
