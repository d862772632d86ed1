/*
 * Tiles of the walk back that hold what the fast order cannot take, which selective_scan_back_walk.cu includes in its
 * namespace.  From the first step on where a decay may grow, or a step or the state is not finite, a state is
 * `plain`: it takes accurate exponentials, and every product and sum as the plain loop has them, in the same walk. So
 * with gradients, from the last such step back, whether states are plain or not.  What comes before has the same bits
 * as without: chains that are not plain, and sums, are computed as in selective_scan_back_walk.cuh.
 *
 * There are few such tiles: code and registers count, and a part is walked again for every step.
 */

template <typename Acc> struct PlainWalker : Walker<Acc> {
    using Base = Walker<Acc>;
    using Base::args, Base::block, Base::tiles, Base::lane, Base::own, Base::steps, Base::fresh;

    int h_from[OWN], G_from[OWN]; /* states are plain from this step on, gradients from this one back */
    unsigned h_plain, G_plain;    /* a bit for each chain: those that are so in the whole tile */

    __device__ PlainWalker(const rl_s6_back_args &args, const Block &block, Tiles<Acc> &tiles)
        : Base(args, block, tiles)
    {
    }

    __device__ static int bit(int j, int k)
    {
        return j * STATES + k;
    }
    __device__ bool is_plain_state(int j, int k, int t) const
    {
        return (h_plain >> bit(j, k) & 1) || t >= h_from[j];
    }
    __device__ bool is_plain_gradient(int j, int k, int t) const
    {
        return (G_plain >> bit(j, k) & 1) || t <= G_from[j];
    }

    /* Finds what is plain. */
    __device__ void look(const Acc (&h)[OWN][STATES], const int *flags)
    {
        h_plain = G_plain = 0;
        for (int j = 0; j < OWN; j++) {
            h_from[j] = TILE;
            G_from[j] = -1;
            for (int k = 0; k < STATES; k++) {
                const unsigned mask = 1u << bit(j, k), grows = own.rate[j][k] <= 0 ? 0 : mask;
                h_plain |= grows | (is_finite(h[j][k]) ? 0 : mask);
                G_plain |= grows | (is_finite(own.G[j][k]) ? 0 : mask);
            }
            if (!flags[lane.column_of(j)]) continue;
            for (int t = 0; t < steps; t++) {
                if (h_from[j] == TILE && is_wild_state(this->step_of(t, j))) h_from[j] = t;
                if (is_wild_gradient(this->step_of(t, j))) G_from[j] = t;
            }
        }
    }

    /* One step forward; what does not exist stays 0, for infinities must not meet its zeros. */
    __device__ void advance_all(int t, int panel, const Acc (&before)[OWN][STATES], Acc (&after)[OWN][STATES]) const
    {
        const Four<Acc> b = this->row_of(tiles.B, t);
        for (int j = 0; j < OWN; j++) {
            const Step<Acc> step = this->step_of(t, j);
            for (int k = 0; k < STATES; k++) {
                const Acc added = product(step.input, b.state[k]),
                          was = before[j][k]; /* may lie where `after` does */
                after[j][k] = fma(decay_of(step.delta, own.rate[j][k]), was, added);
                if (!is_plain_state(j, k, t)) continue;
                after[j][k] = 0;
                if (!this->has(j, panel, k)) continue;
                const Acc a = load_A<Acc>(args.scan, this->channel(j), lane.state_of(panel, k));
                after[j][k] = fresh && t == 0 ? added : advance(exponential(step.delta * a), was, added);
            }
        }
    }

    /* What a step adds to sums over channels and over states. */
    struct Sums {
        Acc dB[STATES], dC[STATES], along_B[OWN], along_delta[OWN], output[OWN];
    };

    /* One step of a channel back, in the reference's order where it is plain. */
    __device__ void step_back_any(const Step<Acc> &step, int j, int panel, int t, Acc x, const Four<Acc> &b,
                                  const Four<Acc> &c, const Acc (&before)[STATES], const Acc (&after)[STATES],
                                  Sums &sums)
    {
        const bool has_dy = args.dy.data, first = fresh && t == 0;
        Acc plain_delta = 0;
        own.deltas[j] += step.delta;
        for (int k = 0; k < STATES; k++) {
            if (!this->has(j, panel, k)) continue;
            const bool plain_h = is_plain_state(j, k, t), plain_G = is_plain_gradient(j, k, t);
            const Acc decay = decay_of(step.delta, own.rate[j][k]);
            Acc &G = own.G[j][k];
            if (has_dy) {
                G = plain_G ? advance(step.du, c.state[k], G) : fma(step.du, c.state[k], G);
                sums.dC[k] = fma(step.du, after[k], sums.dC[k]);
                sums.output[j] = fma(c.state[k], after[k], sums.output[j]);
            }
            sums.dB[k] = fma(step.input, G, sums.dB[k]);
            sums.along_B[j] = fma(G, b.state[k], sums.along_B[j]);
            own.carried[j][k] *= decay;
            if (!plain_h && !plain_G) {
                G = product(G, decay);
                const Acc flow = product(G, before[k]);
                sums.along_delta[j] = fma(own.rate[j][k], flow, sums.along_delta[j]);
                own.dA[j][k] = fma(step.delta, flow, own.dA[j][k]);
                continue;
            }
            const Acc a = load_A<Acc>(args.scan, this->channel(j), lane.state_of(panel, k));
            const Acc right = exponential(step.delta * a), held = first ? Acc(0) : right * before[k];
            /* The other part of the sum is x Σ G B; where x is infinite, only its terms show what that is. */
            if (!is_finite(x)) plain_delta += G * (b.state[k] * x);
            if (!first) plain_delta += G * (a * held);
            if (!first) own.dA[j][k] += G * (step.delta * held);
            G = !plain_G ? product(decay, G) : first ? Acc(0) : right * G;
        }
        sums.along_delta[j] = product(sums.along_delta[j], rate_unit<Acc>()) + plain_delta;
    }

    template <bool more> __device__ void put_sums(int t, Sums &sums) const
    {
        this->template put_along<more>(t, sums.along_B, sums.along_delta);
        if (args.needs_outputs) this->template put_output<more>(t, sums.output);
    }

    __device__ Acc load_x(const Chunk &chunk, int64_t step, int j) const
    {
        const rl_s6_view &x = args.scan.x;
        if (lane.column_of(j) >= block.channels) return 0;
        return load_any<Acc>(x.data, x.dtype,
                             first_row(args.scan, x, chunk.piece) + step * x.step + this->channel(j) * x.lane);
    }

    /* No step beyond the last is taken: zeros must not meet infinities. */
    __device__ void walk_step(int t, int panel, const Chunk &chunk, int64_t first)
    {
        const int part = t / PART<Acc>;
        const Four<Acc> b = this->row_of(tiles.B, t), c = this->row_of(tiles.C, t);
        Acc before[OWN][STATES], after[OWN][STATES];
        Sums sums = {};
        this->load_start(part, before);
        for (int earlier = part * PART<Acc>; earlier < t; earlier++) advance_all(earlier, panel, before, before);
        advance_all(t, panel, before, after);
        for (int j = 0; j < OWN; j++)
            step_back_any(this->step_of(t, j), j, panel, t, load_x(chunk, first + t, j), b, c, before[j], after[j],
                          sums);
        this->put_one(t, 0, sums.dB);
        this->put_one(t, 1, sums.dC);
        panel == 0 ? put_sums<false>(t, sums) : put_sums<true>(t, sums);
    }

    /* The steps from `begin` on; the states before parts are there unless it is 0. */
    __device__ void walk(int panel, const Chunk &chunk, int64_t first, Acc (&h)[OWN][STATES], const int *flags,
                         int begin)
    {
        look(h, flags);
        for (int t = 0; t < steps && begin == 0; t++) {
            if (t % PART<Acc> == 0) this->store_start(t / PART<Acc>, h);
            advance_all(t, panel, h, h);
        }
        for (int t = steps - 1; t >= begin; t--) walk_step(t, panel, chunk, first);
        for (int j = 0; j < OWN; j++)
            for (int k = 0; k < STATES; k++)
                if (is_plain_gradient(j, k, 0)) own.spoilt |= 1u << bit(j, k);
    }
};

template <typename Acc>
__device__ __attribute__((noinline)) void walk_plainly(const rl_s6_back_args &args, const Block &block,
                                                       Tiles<Acc> &tiles, Chains<Acc> &chains, int steps, bool fresh,
                                                       int panel, const Chunk &chunk, int64_t first,
                                                       Acc (&h)[OWN][STATES], const int *flags, int begin)
{
    PlainWalker<Acc> walker(args, block, tiles);
    walker.own = chains;
    walker.steps = steps;
    walker.fresh = fresh;
    walker.walk(panel, chunk, first, h, flags, begin);
    chains = walker.own;
}
