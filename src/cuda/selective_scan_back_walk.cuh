/*
 * A tile of the walk back, which selective_scan_back_walk.cu includes in its namespace.  The tile is cut into parts
 * of PART steps.  A walk forward leaves the states before each part in shared memory; then, from the last part to the
 * first, it is walked again with its states and decays in registers, and back over these.  What needs the states
 * after a step (dC, Σ C h) is taken on the way forward, the rest on the way back.
 *
 * Numbers: decays are rough (rough_decay) and run from accurate states over one tile.  The gradient that runs against
 * time would take their errors on from tile to tile: so what entered a tile goes through it a second time, by the
 * rough decays alone (`carried`), and is in the end replaced by its product with exp(A Σδ), unless the tile fades it.
 *
 * From the first step on where a decay may grow, or a step or the state is not finite, a state is `plain`: see
 * selective_scan_back_plain.cuh.
 */

/* Chains of a thread, and what belongs to them. */
template <typename Acc> struct Chains {
    Acc rate[OWN][STATES], G[OWN][STATES], dA[OWN][STATES], carried[OWN][STATES], deltas[OWN];
    unsigned spoilt; /* a bit each: they have been plain since the tile began, and are not anchored */
};

template <typename Acc> struct Walker {
    const rl_s6_back_args &args;
    const Block &block;
    Tiles<Acc> &tiles;
    Lane lane;
    Chains<Acc> own;
    int steps;  /* of the tile */
    bool fresh; /* the tile's first step has no state before it */

    __device__ Walker(const rl_s6_back_args &args, const Block &block, Tiles<Acc> &tiles)
        : args(args), block(block), tiles(tiles)
    {
    }

    __device__ int64_t channel(int j) const
    {
        return block.channel + lane.column_of(j);
    }
    __device__ bool has(int j, int panel, int slot) const
    {
        return lane.column_of(j) < block.channels && lane.state_of(panel, slot) < args.scan.states;
    }
    __device__ const Step<Acc> &step_of(int t, int j) const
    {
        return tiles.step[t][slot_of(lane.column_of(j))];
    }
    __device__ bool odd() const
    {
        return threadIdx.x & 1;
    }

    /* Adds numbers by state over half of the warp's channels: of the lane's four one is left, that of slot 0. */
    __device__ static Acc add_slots(Acc (&numbers)[STATES])
    {
#pragma unroll
        for (int half = STATES / 2; half > 0; half /= 2)
#pragma unroll
            for (int k = 0; k < half; k++) numbers[k] += __shfl_xor_sync(~0u, numbers[k + half], 8 * half);
        return numbers[0];
    }
    /* Where the warp's dB (kind 0) and dC of a step go: of odd steps the other way round, so that banks differ. */
    __device__ Acc &input_sum(int t, int kind) const
    {
        return tiles.bc[threadIdx.x / 32][t][(kind ^ (t & 1)) * PANEL + lane.lane * STATES + lane.order];
    }
    /* Those of steps t and t + 1, t being even: even threads take the one, odd threads the other. */
    __device__ void put_two(int t, int kind, Acc (&first)[STATES], Acc (&second)[STATES]) const
    {
        const Acc one = add_slots(first), two = add_slots(second);
        const Acc keep = odd() ? two : one, give = odd() ? one : two;
        Acc *const to = odd() ? &input_sum(1, kind) : &input_sum(0, kind);
        to[t * 2 * PANEL] = keep + __shfl_xor_sync(~0u, give, 1);
    }
    /* Of one step, the same sum. */
    __device__ void put_one(int t, int kind, Acc (&numbers)[STATES]) const
    {
        const Acc half = add_slots(numbers), sum = half + __shfl_xor_sync(~0u, half, 1);
        if (odd() == (t & 1)) input_sum(t, kind) = sum;
    }

    /* `more`: to what panels before have left there. */
    template <bool more> __device__ static void put(Acc &to, Acc value)
    {
        to = more ? to + value : value;
    }
    /* A step's Σ G B and Σ A G a h over the lanes of the channels: lane by lane another of the four numbers. */
    template <bool more> __device__ void put_along(int t, Acc (&along_B)[OWN], Acc (&along_delta)[OWN]) const
    {
        const int kind = lane.lane & 1;
        along_B[0] += __shfl_xor_sync(~0u, along_B[1], 4);
        along_delta[0] += __shfl_xor_sync(~0u, along_delta[1], 4);
        const Acc keep = kind ? along_delta[0] : along_B[0], give = kind ? along_B[0] : along_delta[0];
        put<more>(tiles.sums[t][kind][lane.column_of(0)], keep + __shfl_xor_sync(~0u, give, 2));
    }
    template <bool more> __device__ void put_output(int t, const Acc (&output)[OWN]) const
    {
        const Acc half = output[0] + __shfl_xor_sync(~0u, output[1], 4);
        const Acc sum = half + __shfl_xor_sync(~0u, half, 2);
        if ((lane.lane & 1) == 0) put<more>(tiles.outputs[t][lane.column_of(0)], sum);
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

    __device__ Four<Acc> row_of(const Acc (*rows)[ORDERS][PANEL], int t) const
    {
        return *(const Four<Acc> *)&rows[t][lane.order][lane.lane * STATES];
    }

    /* One step of a channel forward; its decays are left in `decay`. */
    __device__ void advance_step(const Step<Acc> &step, int j, const Four<Acc> &b, const Acc (&before)[STATES],
                                 Acc (&after)[STATES], Acc (&decay)[STATES]) const
    {
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            decay[k] = decay_of(step.delta, own.rate[j][k]);
            after[k] = fma(decay[k], before[k], step.input * b.state[k]);
        }
    }

    /* What the state after a step gives. */
    __device__ void take_after(const Step<Acc> &step, const Four<Acc> &c, const Acc (&after)[STATES],
                               Acc (&dC)[STATES], Acc &output) const
    {
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            dC[k] = fma(step.du, after[k], dC[k]);
            output = fma(c.state[k], after[k], output);
        }
    }

    /* One step of a channel back. */
    __device__ void step_back(const Step<Acc> &step, int j, const Four<Acc> &b, const Four<Acc> &c,
                              const Acc (&before)[STATES], const Acc (&decay)[STATES], Acc (&dB)[STATES],
                              Acc &along_B, Acc &along_delta)
    {
        own.deltas[j] += step.delta;
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            Acc &G = own.G[j][k];
            G = fma(step.du, c.state[k], G);
            dB[k] = fma(step.input, G, dB[k]);
            along_B = fma(G, b.state[k], along_B);
            G *= decay[k];
            own.carried[j][k] *= decay[k];
            const Acc flow = G * before[k];
            along_delta = fma(own.rate[j][k], flow, along_delta);
            own.dA[j][k] = fma(step.delta, flow, own.dA[j][k]);
        }
        along_delta = product(along_delta, rate_unit<Acc>());
    }

    /* The states before each part, from the one before the tile. */
    __device__ void leave_starts(Acc (&h)[OWN][STATES])
    {
        store_start(0, h);
#pragma unroll 1
        for (int part = 1; part * PART<Acc> < steps; part++) {
#pragma unroll
            for (int t = 0; t < PART<Acc>; t++) {
                const int at = (part - 1) * PART<Acc> + t;
                const Four<Acc> b = row_of(tiles.B, at);
                Acc decay[STATES];
#pragma unroll
                for (int j = 0; j < OWN; j++) advance_step(step_of(at, j), j, b, h[j], h[j], decay);
            }
            store_start(part, h);
        }
    }

    /* `outputs`: with the sums that y is made of. */
    template <bool outputs, bool more> __device__ void walk_part(int part)
    {
        constexpr int COUNT = PART<Acc>;
        const int begin = part * COUNT;
        Acc h[COUNT + 1][OWN][STATES], decay[COUNT][OWN][STATES];
        load_start(part, h[0]);
#pragma unroll
        for (int t = 0; t < COUNT; t += 2) {
            Acc dC[2][STATES] = {};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const Four<Acc> b = row_of(tiles.B, begin + t + i), c = outputs ? row_of(tiles.C, begin + t + i) : b;
                Acc output[OWN] = {};
#pragma unroll
                for (int j = 0; j < OWN; j++) {
                    const Step<Acc> step = step_of(begin + t + i, j);
                    advance_step(step, j, b, h[t + i][j], h[t + i + 1][j], decay[t + i][j]);
                    take_after(step, c, h[t + i + 1][j], dC[i], output[j]);
                }
                if (outputs) put_output<more>(begin + t + i, output);
            }
            put_two(begin + t, 1, dC[0], dC[1]);
        }
#pragma unroll
        for (int t = COUNT - 2; t >= 0; t -= 2) {
            Acc dB[2][STATES] = {};
#pragma unroll
            for (int i = 1; i >= 0; i--) {
                const int at = begin + t + i;
                const Four<Acc> b = row_of(tiles.B, at), c = row_of(tiles.C, at);
                Acc along_B[OWN] = {}, along_delta[OWN] = {};
#pragma unroll
                for (int j = 0; j < OWN; j++)
                    step_back(step_of(at, j), j, b, c, h[t + i][j], decay[t + i][j], dB[i], along_B[j],
                              along_delta[j]);
                put_along<more>(at, along_B, along_delta);
            }
            put_two(begin + t, 0, dB[0], dB[1]);
        }
    }

    template <bool outputs, bool more> __device__ void walk_parts(int parts)
    {
#pragma unroll 1
        for (int part = parts - 1; part >= 0; part--) walk_part<outputs, more>(part);
    }

    /* Where a tile begins. */
    __device__ void enter_tile()
    {
        own.spoilt = 0;
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            Four<Acc> entering;
            own.deltas[j] = 0;
#pragma unroll
            for (int k = 0; k < STATES; k++) entering.state[k] = own.carried[j][k] = own.G[j][k];
            tiles.entering[j][threadIdx.x] = entering;
        }
    }

    /* Where it ends: takes the errors of rough decays out of what entered it, but where that fades. */
    __device__ void anchor(const Acc (&fade)[OWN])
    {
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            const Four<Acc> entering = tiles.entering[j][threadIdx.x];
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                const Acc right = long_decay(own.rate[j][k], own.deltas[j]);
                const Acc error = fma(right, entering.state[k], -own.carried[j][k]);
                const bool spoilt = own.spoilt >> (j * STATES + k) & 1;
                if (!spoilt && !fades(own.rate[j][k], fade[j])) own.G[j][k] += error;
            }
        }
    }

    /* Whether all of the thread's chains surely take the fast order. */
    __device__ bool is_tame_tile(const Acc (&h)[OWN][STATES], const int *flags) const
    {
        Acc size = 0; /* NaN and infinity stay in the sum */
        bool tame = true;
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            tame = tame && !flags[lane.column_of(j)];
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                size += fabs(h[j][k]) + fabs(own.G[j][k]);
                tame = tame && own.rate[j][k] <= 0;
            }
        }
        return tame && is_finite(size);
    }

    /*
     * A panel of a tile, from the states before it.  Steps beyond the last would do no harm but that their zeros
     * could meet infinite states: a part that is not whole is walked step by step.
     */
    __device__ void walk_tile(int panel, const Chunk &chunk, int64_t first, Acc (&h)[OWN][STATES], const int *flags)
    {
        const bool tame = !__any_sync(~0u, !is_tame_tile(h, flags));
        const int parts = tame ? steps / PART<Acc> : 0;
        if (tame) leave_starts(h);
        if (parts * PART<Acc> < steps) {
            Acc from[OWN][STATES];
            Chains<Acc> chains = own; /* here, so that they stay in registers elsewhere */
#pragma unroll
            for (int j = 0; j < OWN; j++)
#pragma unroll
                for (int k = 0; k < STATES; k++) from[j][k] = h[j][k];
            walk_plainly(args, block, tiles, chains, steps, fresh, panel, chunk, first, from, flags,
                         parts * PART<Acc>);
            own = chains;
        }
        if (args.needs_outputs)
            panel == 0 ? walk_parts<true, false>(parts) : walk_parts<true, true>(parts);
        else
            panel == 0 ? walk_parts<false, false>(parts) : walk_parts<false, true>(parts);
    }
};
