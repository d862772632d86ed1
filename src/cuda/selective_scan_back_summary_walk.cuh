/*
 * How a block's threads make a chunk's summary, forward and back: selective_scan_back_summary_neat.cu includes it in
 * its namespace.
 */

template <typename T, typename U, bool gated> struct Summary : Stager<T, U, gated> {
    using Base = Stager<T, U, gated>;
    using Base::args, Base::chunk, Base::block, Base::tiles, Base::way_back, Base::stage_of, Base::lane, Base::warp,
        Base::warps;

    const int states, order;      /* the lane of four states; their order in memory */
    const int own_column, column; /* the thread's channel in its warp, in its block */
    const bool exists;
    float rate[STATES], h[STATES], back[STATES], deltas;
    float *kept, *sums; /* of the tile that is walked */

    __device__ Summary(const rl_s6_back_summary_args &args, const Chunk &chunk, const Block &block,
                       Tiles<T, U, gated> &tiles)
        : Base(args, chunk, block, tiles), states(lane / 2 % LANES), order(lane / 8),
          own_column(lane % 2 + 2 * order), column(warp * WARP_COLUMNS + own_column),
          exists(column < block.channels), h{}, back{}, deltas(0)
    {
    }

    __device__ int64_t channel() const
    {
        return block.channel + column;
    }
    /* What a span makes of zero. */
    struct Local {
        float h[STATES];
        Way way[STATES];
    };

    /* A tile forward and, where all go on, the way back. */
    template <bool going> __device__ void walk_tile(int stage, int half, Local &local) const
    {
        const TwoSteps *pairs = &this->own().step[half * TILE / 2][own_column];
        const Four<float> *gradients = &this->own().du[half * TILE / PART][own_column];
        const float *b_row = tiles.B[stage] + half * TILE * PANEL + states * STATES;
        const float *c_row = tiles.C[stage] + half * TILE * PANEL + states * STATES;
#pragma unroll 1
        for (int way = 0; way < TILE / WAY; way++) {
            Way ways[STATES] = {};
#pragma unroll
            for (int part = 0; part < WAY / PART; part++) {
                const TwoSteps two[2] = {pairs[0], pairs[WARP_COLUMNS + 1]};
                Four<float> du = {};
                if (going) du = *gradients;
#pragma unroll
                for (int t = 0; t < PART; t++) {
                    const float size = two[t / 2].delta[t % 2], input = two[t / 2].input[t % 2];
                    const Four<float> b = *(const Four<float> *)(b_row + t * PANEL);
                    Four<float> c = {};
                    if (going) c = *(const Four<float> *)(c_row + t * PANEL);
#pragma unroll
                    for (int k = 0; k < STATES; k++) {
                        const float decay = rough_decay(size, rate[k]);
                        local.h[k] = fmaf(decay, local.h[k], input * b.state[k]);
                        if (going) ways[k].take(decay, du.state[t] * c.state[k], part + t == 0);
                    }
                }
                pairs += PART / 2 * (WARP_COLUMNS + 1);
                gradients += WARP_COLUMNS + 1;
                b_row += PART * PANEL;
                c_row += PART * PANEL;
            }
#pragma unroll
            for (int k = 0; k < STATES && going; k++) local.way[k].join(ways[k]);
        }
    }

    /* States as the walk back holds them: slot i is state i ^ order. */
    __device__ void store_states(float *to, const float (&from)[STATES]) const
    {
        Four<float> four;
        float turned[STATES];
#pragma unroll
        for (int k = 0; k < STATES; k++) turned[k] = order & 1 ? from[k ^ 1] : from[k];
#pragma unroll
        for (int k = 0; k < STATES; k++) four.state[k] = order & 2 ? turned[k ^ 2] : turned[k];
        *(Four<float> *)to = four;
    }
    /* Numbers from row to row of such, and the thread's first. */
    __device__ int64_t row_size() const
    {
        return args.scan.blocks * blockDim.x * STATES;
    }
    __device__ int64_t place(int64_t row) const
    {
        const int other = (warp & 1) ^ states / 2, threads = (int)blockDim.x / OWN;
        const int thread = warp / 2 * 32 + lane;
        return row * row_size() + ((block.number * OWN + other) * threads + thread) * STATES;
    }

    /* Whether a span may change a bit of what runs against time, of each of the thread's states. */
    __device__ unsigned may_change(int stage, float largest_du) const
    {
        unsigned largest_C = 0, may = 0;
#pragma unroll
        for (int k = 0; k < WARPS; k++) largest_C = max(largest_C, tiles.largest[stage][k]);
        const float largest = (float)SPAN / 2 * largest_du * __uint_as_float(largest_C);
#pragma unroll
        for (int k = 0; k < STATES; k++)
            may |= !(distant_decay(rate[k], deltas) * largest <= HIDDEN * fabsf(back[k])) << k;
        return exists && states * STATES < (int)args.scan.states ? may : 0;
    }

    /* Lists the warp's states of which the bits are set, as far as there is room.  Answers their number. */
    __device__ int list_few(unsigned may) const
    {
        int count = 0;
        if (!__any_sync(~0u, may)) return 0;
        __syncwarp(); /* all have read the sums of sizes */
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            const unsigned all = __ballot_sync(~0u, may >> k & 1);
            const int at = count + __popc(all & ((1u << lane) - 1));
            if ((may >> k & 1) && at < MOST_FEW)
                this->own().few[at] = {rate[k], own_column * PANEL + states * STATES + k};
            count += __popc(all);
        }
        __syncwarp();
        return count;
    }

    /* A span back for the listed: each by `split` lanes, which have a part of its time. */
    template <int split> __device__ void walk_few(int stage, int count) const
    {
        constexpr int WAYS = SPAN / WAY / split; /* of a lane */
        const int at = lane / split, part = lane % split;
        const Few few = this->own().few[at < count ? at : 0];
        const int of = few.place / PANEL, first = part * WAYS * WAY;
        const TwoSteps *pairs = &this->own().step[first / 2][of];
        const Four<float> *gradients = &this->own().du[first / PART][of];
        const float *c = tiles.C[stage] + first * PANEL + few.place % PANEL;
        Way ways[WAYS] = {};
#pragma unroll
        for (int way = 0; way < WAYS; way++) {
#pragma unroll
            for (int t = 0; t < WAY; t++) {
                const float size = pairs[t / 2 * (WARP_COLUMNS + 1)].delta[t % 2];
                const float du = gradients[t / PART * (WARP_COLUMNS + 1)].state[t % PART];
                ways[way].take(rough_decay(size, few.rate), du * c[t * PANEL], t == 0);
            }
            pairs += WAY / 2 * (WARP_COLUMNS + 1);
            gradients += WAY / PART * (WARP_COLUMNS + 1);
            c += WAY * PANEL;
        }
        Way whole = {1, 0};
#pragma unroll
        for (int k = 0; k < SPAN / WAY; k++) {
            const Way &own = ways[k % WAYS];
            whole.join({__shfl_down_sync(~0u, own.product, k / WAYS), __shfl_down_sync(~0u, own.gradient, k / WAYS)});
        }
        __syncwarp(); /* all have read theirs */
        if (part == 0 && at < count) this->own().numbers[few.place] = whole.gradient;
        __syncwarp();
    }

    /* What the few have come to, of the thread's states. */
    __device__ void take_few(int stage, int count, Local &local) const
    {
        if (count <= MOST_FEW / 4)
            walk_few<4>(stage, count);
        else if (count <= MOST_FEW / 2)
            walk_few<2>(stage, count);
        else
            walk_few<1>(stage, count);
        const Four<float> four = *(const Four<float> *)&this->own().numbers[own_column * PANEL + states * STATES];
#pragma unroll
        for (int k = 0; k < STATES; k++) local.way[k].gradient = four.state[k];
    }

    __device__ void keep(int tile, const float (&of)[STATES], float sum)
    {
        kept += row_size();
        sums += args.scan.channels;
        if (tile >= (int)chunk.tiles) return;
        store_states(kept, of);
        if (states == 0 && exists) *sums = sum;
    }

    /* The sums of the tiles' step sizes: of each the thread adds up a half of a half. */
    __device__ void add_sizes(float (&sum)[2]) const
    {
        const float *const from = &this->own().numbers[states * (4 + 1) * WARP_COLUMNS + own_column];
        float some = (from[0] + from[WARP_COLUMNS]) + (from[2 * WARP_COLUMNS] + from[3 * WARP_COLUMNS]);
        some += __shfl_xor_sync(~0u, some, 2);
        const float other = __shfl_xor_sync(~0u, some, 4);
        sum[0] = states & 2 ? other : some;
        sum[1] = states & 2 ? some : other;
    }

    /*
     * The states behind a span.  exp2_rough does for decays that the span's end has half forgotten; those near 1,
     * whose errors would add up, are exact.
     */
    __device__ void leave_span(const Local &local, float sum)
    {
        float power[STATES];
        bool lasts = false;
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            power[k] = rate[k] * sum;
            lasts = lasts || !(power[k] < LASTING);
        }
        float decay[STATES];
#pragma unroll
        for (int k = 0; k < STATES; k++) decay[k] = exp2_rough(power[k]);
        if (__any_sync(~0u, lasts)) {
#pragma unroll
            for (int k = 0; k < STATES; k++) decay[k] = power[k] < LASTING ? decay[k] : power_of_two(power[k]);
        }
#pragma unroll
        for (int k = 0; k < STATES; k++) h[k] = fmaf(decay[k], h[k], local.h[k]);
    }

    /* Answers its sum of step sizes. */
    __device__ float walk_span(int tile, float largest_du)
    {
        Local local = {};
#pragma unroll
        for (int k = 0; k < STATES; k++) local.way[k].product = 1;
        float sum[2];
        add_sizes(sum);
        const int stage = stage_of(tile);
        const unsigned may = way_back ? may_change(stage, largest_du) : 0;
        const int count = way_back ? list_few(may) : 0;
#pragma unroll 1
        for (int half = 0; half < 2; half++) {
            if (count > MOST_FEW)
                walk_tile<true>(stage, half, local);
            else
                walk_tile<false>(stage, half, local);
            if (half) break;
            float middle[STATES];
#pragma unroll
            for (int k = 0; k < STATES; k++) middle[k] = fmaf(distant_decay(rate[k], sum[0]), h[k], local.h[k]);
            keep(tile + 1, middle, deltas + sum[0]);
        }
        if (count > 0 && count <= MOST_FEW) take_few(stage, count, local);
        leave_span(local, sum[0] + sum[1]);
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            if (may >> k & 1) back[k] = fmaf(distant_decay(rate[k], deltas), local.way[k].gradient, back[k]);
        }
        deltas += sum[0] + sum[1];
        keep(tile + 2, h, deltas);
        return sum[0] + sum[1];
    }

    __device__ void begin()
    {
        const int64_t row = chunk.kept;
        kept = (float *)args.kept + place(row);
        sums = (float *)args.kept_sums + row * args.scan.channels + channel();
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            const int64_t state = states * STATES + k;
            const bool given = exists && state < args.scan.states;
            rate[k] = given ? rate_of(load_A<float>(args.scan, channel(), state)) : 0;
        }
        this->begin_stage();
    }

    /* `parity`: of the barriers' phases. */
    __device__ void run(uint32_t &parity)
    {
        double total = 0;
        if (chunk.tiles > 0 && threadIdx.x == 0) this->copy(0);
        begin();
        int left = (int)chunk.piece.count; /* steps */
        for (int tile = 0; left > 0; tile += 2, left -= SPAN, parity ^= 1) {
            barrier_wait(&tiles.copied, parity);
            const float largest_du = this->prepare(tile, left < SPAN ? left : SPAN, left > SPAN);
            barrier_wait(&tiles.shared, parity); /* B and C are there */
            total += walk_span(tile, largest_du);
            __syncwarp(); /* before the next span takes the place of this one's steps */
        }
        finish(total);
    }

    __device__ void finish(double total) const
    {
        const int64_t row = chunk.piece.sequence * args.scan.chunks + chunk.piece.chunk;
        const int64_t end = row * args.scan.channels;
        if (args.scan.chunks > 1) {
            store_states((float *)args.ends + place(row), h);
            store_states((float *)args.backs + place(row), back);
            if (states == 0 && exists) args.step_sums[end + channel()] = total;
        }
        const int k = warp * WARP_COLUMNS + lane;
        if (lane < WARP_COLUMNS && k < block.channels)
            args.wild[end + block.channel + k] = tiles.first[k] | tiles.wild[k];
    }
};
