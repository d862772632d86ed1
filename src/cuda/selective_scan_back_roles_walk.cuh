/*
 * The walk of a team, which selective_scan_back_roles.cu includes in its namespace: the same arithmetic as in
 * selective_scan_back_walk.cuh, in the same order.
 */

struct Walker {
    const rl_s6_back_args &args;
    Room &room;
    const int team, thread;
    const Lane lane;
    float rate[OWN][STATES], G[OWN][STATES], dA[OWN][STATES], carried[OWN][STATES], deltas[OWN];

    __device__ Walker(const rl_s6_back_args &args, Room &room, int team)
        : args(args), room(room), team(team), thread(threadIdx.x % TEAM), lane(threadIdx.x % TEAM)
    {
    }

    __device__ int64_t place(const Job &job, int64_t row) const
    {
        return ((row * args.scan.blocks + job.number) * OWN * TEAM + thread) * STATES;
    }
    __device__ int64_t place_in(const rl_s6_state &view, const Job &job, int j, int k) const
    {
        return job.sequence * view.sequence + (job.channel + lane.column_of(j)) * view.channel +
               lane.state_of(0, k) * view.state;
    }
    __device__ bool has(const Job &job, int j, int k) const
    {
        return lane.column_of(j) < job.channels && lane.state_of(0, k) < args.scan.states;
    }

    __device__ static void load_four(const float *from, float (&to)[STATES])
    {
        const Four<float> four = *(const Four<float> *)from;
#pragma unroll
        for (int k = 0; k < STATES; k++) to[k] = four.state[k];
    }
    __device__ static void store_four_at(float *to, const float (&from)[STATES])
    {
        Four<float> four;
#pragma unroll
        for (int k = 0; k < STATES; k++) four.state[k] = from[k];
        *(Four<float> *)to = four;
    }
    __device__ void load_each(const void *from, const Job &job, int64_t row, float (&to)[OWN][STATES]) const
    {
#pragma unroll
        for (int j = 0; j < OWN; j++) load_four((const float *)from + place(job, row) + j * TEAM * STATES, to[j]);
    }
    __device__ void store_each(void *to, const Job &job, int64_t row, const float (&from)[OWN][STATES]) const
    {
#pragma unroll
        for (int j = 0; j < OWN; j++) store_four_at((float *)to + place(job, row) + j * TEAM * STATES, from[j]);
    }
    __device__ void load_view(const rl_s6_state &view, const Job &job, float (&to)[OWN][STATES]) const
    {
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++)
                to[j][k] = view.data && has(job, j, k) ? ((const float *)view.data)[place_in(view, job, j, k)] : 0.0f;
    }

    /* Adds numbers by state over half of the warp's channels: of the lane's four one is left, that of slot 0. */
    __device__ static float add_slots(float (&numbers)[STATES])
    {
#pragma unroll
        for (int half = STATES / 2; half > 0; half /= 2)
#pragma unroll
            for (int k = 0; k < half; k++) numbers[k] += __shfl_xor_sync(~0u, numbers[k + half], 8 * half);
        return numbers[0];
    }
    /*
     * Where the thread reads and writes of a part: addresses that move from part to part, so that all within a part
     * are at a constant distance.
     */
    struct Places {
        const TwoSteps *steps[OWN];
        const float2 *du[OWN];
        const float *rows; /* of B; those of C lie a constant further */
        float *start;      /* the thread's states */
        float *inputs;     /* its dB and dC: even threads have even steps, odd ones the others */
        float *along;      /* its Σ G B or Σ A G a h */

        __device__ void move(int parts)
        {
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                steps[j] += parts * (PART / 2 * COLUMNS);
                du[j] += parts * (PART / 2 * COLUMNS);
            }
            start += parts * PART_NUMBERS;
            inputs += parts * PART_NUMBERS;
            along += parts * PART_NUMBERS;
            rows += parts * (PART * ORDERS * PANEL);
        }
        /* From the part before a tile's first, where its walk ends, to the first of the next tile, of this parity. */
        __device__ void turn(int parity)
        {
            move(parity ? 1 + PARTS : 1 - PARTS);
            rows += (parity ? -PARTS : PARTS) * (PART * ORDERS * PANEL); /* both parities share them */
        }
    };
    /* Of the first part of a tile of parity 0. */
    __device__ Places places() const
    {
        Places at;
        float *const part = room.part[0][0].number[0];
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            at.steps[j] = &room.steps[0][0][slot_of(lane.column_of(j))];
            at.du[j] = (const float2 *)room.du[0][0][lane.column_of(j)];
        }
        at.rows = &room.B[0][lane.order][lane.lane * STATES];
        at.start = part + thread * STATES;
        at.inputs = part + thread / 32 * WARP_NUMBERS + (thread & 1) * PANEL + lane.lane * STATES + lane.order;
        at.along =
            part + TEAM * STATES + thread / 32 * WARP_NUMBERS + (lane.lane & 1) * WARP + lane.column_of(0) % WARP;
        return at;
    }

    /* dB (kind 0) or dC of a part's steps 2 two and 2 two + 1: even threads take the one, odd threads the other. */
    __device__ void put_two(const Places &at, int two, int kind, float (&first)[STATES],
                            float (&second)[STATES]) const
    {
        const bool odd = thread & 1;
        const float one = add_slots(first), other = add_slots(second);
        const float keep = odd ? other : one, give = odd ? one : other;
        at.inputs[(two * 2 + kind) * 2 * PANEL] = keep + __shfl_xor_sync(~0u, give, 1);
    }
    /* A step's Σ G B and Σ A G a h over the lanes of the channels: lane by lane another of the four numbers. */
    __device__ void put_along(const Places &at, int t, float (&along_B)[OWN], float (&along_delta)[OWN]) const
    {
        const int kind = lane.lane & 1;
        along_B[0] += __shfl_xor_sync(~0u, along_B[1], 4);
        along_delta[0] += __shfl_xor_sync(~0u, along_delta[1], 4);
        const float keep = kind ? along_delta[0] : along_B[0], give = kind ? along_B[0] : along_delta[0];
        at.along[t * 2 * WARP] = keep + __shfl_xor_sync(~0u, give, 2);
    }

    /* B (kind 0) or C of a part's step. */
    __device__ static Four<float> row_of(const Places &at, int kind, int t)
    {
        return *(const Four<float> *)(at.rows + (kind * TILE + t) * ORDERS * PANEL);
    }

    /* One step of a channel forward; its decays are left in `decay`. */
    __device__ void advance_step(float delta, float input, int j, const Four<float> &b, const float (&before)[STATES],
                                 float (&after)[STATES], float (&decay)[STATES]) const
    {
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            decay[k] = decay_of(delta, rate[j][k]);
            after[k] = fma(decay[k], before[k], input * b.state[k]);
        }
    }

    /* The states before a part; walks it, and goes on to the next. */
    __device__ void leave_start(Places &at, float (&h)[OWN][STATES])
    {
#pragma unroll
        for (int j = 0; j < OWN; j++) store_four_at(at.start + j * TEAM * STATES, h[j]);
#pragma unroll
        for (int two = 0; two < PART / 2; two++) {
            const Four<float> b0 = row_of(at, 0, two * 2), b1 = row_of(at, 0, two * 2 + 1);
            float decay[STATES];
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                const TwoSteps step = at.steps[j][two * COLUMNS];
                advance_step(step.delta0, step.input0, j, b0, h[j], h[j], decay);
                advance_step(step.delta1, step.input1, j, b1, h[j], h[j], decay);
            }
        }
        at.move(1);
    }

    /* Those before the other parts. */
    __device__ void leave_starts(Places &at, float (&h)[OWN][STATES])
    {
#pragma unroll 1
        for (int part = 1; part < PARTS - 1; part++) leave_start(at, h);
#pragma unroll
        for (int j = 0; j < OWN; j++) store_four_at(at.start + j * TEAM * STATES, h[j]);
    }

    /* What the state after a step gives to dC. */
    __device__ static void take_after(float du, const float (&after)[STATES], bool first, float (&dC)[STATES])
    {
#pragma unroll
        for (int k = 0; k < STATES; k++) dC[k] = first ? du * after[k] : fma(du, after[k], dC[k]);
    }

    /* One step of a channel back. */
    __device__ void step_back(float delta, float input, float du, int j, const Four<float> &b, const Four<float> &c,
                              const float (&before)[STATES], const float (&decay)[STATES], float (&dB)[STATES],
                              float &along_B, float &along_delta)
    {
        deltas[j] += delta;
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            float &gradient = G[j][k];
            gradient = fma(du, c.state[k], gradient);
            dB[k] = j == 0 ? input * gradient : fma(input, gradient, dB[k]);
            along_B = k == 0 ? gradient * b.state[k] : fma(gradient, b.state[k], along_B);
            gradient *= decay[k];
            carried[j][k] *= decay[k];
            const float flow = gradient * before[k];
            along_delta = k == 0 ? rate[j][k] * flow : fma(rate[j][k], flow, along_delta);
            dA[j][k] = fma(delta, flow, dA[j][k]);
        }
        along_delta = product(along_delta, rate_unit<float>());
    }

    __device__ static void load_steps(const Places &at, int two, TwoSteps (&step)[OWN], float2 (&du)[OWN])
    {
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            step[j] = at.steps[j][two * COLUMNS];
            du[j] = at.du[j][two * COLUMNS];
        }
    }

    __device__ void walk_part(const Places &at)
    {
        float h[PART + 1][OWN][STATES], decay[PART][OWN][STATES];
#pragma unroll
        for (int j = 0; j < OWN; j++) load_four(at.start + j * TEAM * STATES, h[0][j]);
        __syncwarp(); /* the warp's sums take the place of its states */
#pragma unroll
        for (int two = 0; two < PART / 2; two++) {
            const int t = two * 2;
            const Four<float> b0 = row_of(at, 0, t), b1 = row_of(at, 0, t + 1);
            float dC[2][STATES];
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                const TwoSteps step = at.steps[j][two * COLUMNS];
                const float2 du = at.du[j][two * COLUMNS];
                advance_step(step.delta0, step.input0, j, b0, h[t][j], h[t + 1][j], decay[t][j]);
                take_after(du.x, h[t + 1][j], j == 0, dC[0]);
                advance_step(step.delta1, step.input1, j, b1, h[t + 1][j], h[t + 2][j], decay[t + 1][j]);
                take_after(du.y, h[t + 2][j], j == 0, dC[1]);
            }
            put_two(at, two, 1, dC[0], dC[1]);
        }
        /* What a step needs is loaded before the sums of the one after it, whose shuffles take their time. */
        Four<float> b = row_of(at, 0, PART - 1), c = row_of(at, 1, PART - 1);
        TwoSteps step[OWN];
        float2 du[OWN];
        load_steps(at, PART / 2 - 1, step, du);
#pragma unroll
        for (int two = PART / 2 - 1; two >= 0; two--) {
            float dB[2][STATES];
#pragma unroll
            for (int i = 1; i >= 0; i--) {
                const int t = two * 2 + i;
                float along_B[OWN], along_delta[OWN];
#pragma unroll
                for (int j = 0; j < OWN; j++)
                    step_back(i ? step[j].delta1 : step[j].delta0, i ? step[j].input1 : step[j].input0,
                              i ? du[j].y : du[j].x, j, b, c, h[t][j], decay[t][j], dB[i], along_B[j],
                              along_delta[j]);
                if (t > 0) {
                    b = row_of(at, 0, t - 1);
                    c = row_of(at, 1, t - 1);
                }
                if (t > 0 && i == 0) load_steps(at, two - 1, step, du);
                put_along(at, t, along_B, along_delta);
            }
            put_two(at, two, 0, dB[0], dB[1]);
        }
    }

    /* Where a span begins: what enters it waits in the place of the task's part of dA. */
    __device__ void enter_span(const Job &job)
    {
        store_each(args.A_parts, job, job.index, G);
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            deltas[j] = 0;
#pragma unroll
            for (int k = 0; k < STATES; k++) carried[j][k] = G[j][k];
        }
    }

    /* Where it ends: takes the errors of rough decays out of what entered it. */
    __device__ void anchor(const Job &job)
    {
        float entering[OWN][STATES];
        load_each(args.A_parts, job, job.index, entering);
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                const float right = long_decay(rate[j][k], deltas[j]);
                const float error = fma(right, entering[j][k], -carried[j][k]);
                G[j][k] += error;
            }
    }

    /* Whether the fast order suits the thread's chains. */
    __device__ bool is_tame(const float (&h)[OWN][STATES]) const
    {
        float size = 0; /* NaN and infinity stay in the sum */
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) size += fabsf(h[j][k]) + fabsf(G[j][k]);
        return is_finite(size);
    }

    /* Whether the task holds no chain that may grow, and no state that has been run again. */
    __device__ bool begin_task(const Job &job)
    {
        bool tame = true;
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                const int64_t channel = job.channel + lane.column_of(j);
                rate[j][k] = has(job, j, k) ? rate_of(load_A<float>(args.scan, channel, lane.state_of(0, k))) : 0.0f;
                tame = tame && rate[j][k] <= 0;
                dA[j][k] = 0;
            }
        return tame;
    }
    __device__ bool enter_chunk(const Job &job)
    {
        bool tame = true;
        if (job.finishes)
            load_view(args.dh_final, job, G);
        else
            load_each(args.backs, job, job.row, G);
        for (int j = 0; j < OWN; j++) {
            const int column = lane.column_of(j);
            if (column < job.channels)
                tame =
                    tame && !(args.wild[job.row * args.scan.channels + job.channel + column] & RL_S6_BACK_RUN_AGAIN);
        }
        return tame;
    }

    /* The states before a chunk. */
    __device__ void fetch_start(const Job &job, float (&start)[OWN][STATES]) const
    {
        if (args.scan.chunks > 1)
            load_each(args.ends, job, job.row, start);
        else
            load_view(args.scan.h_init, job, start);
    }

    /* The states before a tile, as the threads' first part holds what is kept of them. */
    __device__ void load_before(const Job &job, int parity, const float (&start)[OWN][STATES],
                                float (&h)[OWN][STATES]) const
    {
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            load_four(&room.part[parity][0].number[j][thread * STATES], h[j]);
            const float sum = room.deltas[parity][lane.column_of(j)];
            if (!job.moves) continue;
#pragma unroll
            for (int k = 0; k < STATES; k++)
                h[j][k] = job.leaves ? start[j][k] : fma(distant_decay(rate[j][k], sum), start[j][k], h[j][k]);
        }
    }

    /* B and C of the tile, each lane's states in four orders. */
    template <int form> __device__ void spread_inputs(int parity)
    {
        const int at = thread / LANES % TILE, four = thread % LANES;
        float value[STATES];
        Raw<float> raw;
        if (bytes_in<form>(args.scan.B) == 4) {
            raw.bits = room.inputs[parity][thread];
        } else {
            const uint2 two = ((const uint2 *)room.inputs[parity])[thread];
            raw.bits = make_uint4(two.x, two.y, 0, 0);
        }
        unpack<form>(raw, args.scan.B, true, value);
        float(*const to)[PANEL] = thread < TEAM / 2 ? room.B[at] : room.C[at];
#pragma unroll
        for (int order = 0; order < ORDERS; order++) {
            Four<float> turned;
#pragma unroll
            for (int k = 0; k < STATES; k++) turned.state[k] = value[k ^ order];
            *(Four<float> *)&to[order][four * STATES] = turned;
        }
    }

    /* What is left to do of a job once it has been walked. */
    template <int form, bool whole>
    __device__ void finish(const Job &job, int parity, const typename Finisher<form>::Leaving &leaving) const
    {
        Finisher<form>(args, room).template finish<whole>(job, parity, leaving);
    }

    /* The first part of leave_starts, and meanwhile the end of the job before, whose waits are long. */
    template <int form>
    __device__ void leave_and_finish(Places &at, float (&h)[OWN][STATES], const Job &last, int parity)
    {
        typename Finisher<form>::Leaving leaving;
        if (is_whole(last)) {
            Finisher<form>(args, room).template fetch_as<true>(last, leaving);
            leave_start(at, h);
            finish<form, true>(last, parity, leaving);
        } else {
            Finisher<form>(args, room).template fetch_as<false>(last, leaving);
            leave_start(at, h);
            finish<form, false>(last, parity, leaving);
        }
        end<form>(last, parity);
    }

    template <int form> __device__ void end(const Job &job, int parity) const
    {
        if (job.ends_task) Finisher<form>(args, room).finish_task(job);
        __syncwarp();
        if ((thread & 31) == 0) barrier_arrive(&room.done[parity]);
    }

    __device__ void store_initial(const Job &job) const
    {
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++)
                if (has(job, j, k)) ((float *)args.dh_init.data)[place_in(args.dh_init, job, j, k)] = G[j][k];
    }

    /* Each job is finished while the next one begins. */
    template <int form> __device__ void run()
    {
        Places at = places();
        for (unsigned i = 0;; i++) {
            const Job &job = room.job[i % JOBS], &last = room.job[(i + JOBS - 1) % JOBS];
            const int parity = i & 1;
            float start[OWN][STATES] = {}, h[OWN][STATES];
            bool tame = true;
            barrier_wait(&room.full[parity], i / 2 & 1);
            if (job.steps == 0) {
                typename Finisher<form>::Leaving leaving;
                if (i == 0) return;
                Finisher<form>(args, room).fetch(last, leaving);
                finish<form, false>(last, parity ^ 1, leaving);
                end<form>(last, parity ^ 1);
                return;
            }
            if (job.moves) fetch_start(job, start);
            barrier_meet_numbered(1 + team, TEAM); /* all have left B and C */
            spread_inputs<form>(parity);
            if (job.begins) tame = begin_task(job);
            if (job.enters) tame = enter_chunk(job) && tame;
            barrier_meet_numbered(1 + team, TEAM); /* B and C are there */
            if (i > 0) at.turn(parity);
            load_before(job, parity, start, h);
            if (!(tame && is_tame(h))) room.wild[parity] = 1;
            if (job.enters || (job.tile & 1)) enter_span(job);
            if (i > 0)
                leave_and_finish<form>(at, h, last, parity ^ 1);
            else
                leave_start(at, h);
            leave_starts(at, h);
#pragma unroll 1
            for (int part = PARTS - 1; part >= 0; part--) {
                walk_part(at);
                at.move(-1);
            }
            if (!(job.tile & 1)) anchor(job);
            if (job.leaves && job.starts && args.dh_init.data) store_initial(job);
            if (job.ends_task) store_each(args.A_parts, job, job.index, dA);
            __syncwarp(); /* the warp's sums are there */
        }
    }
};
