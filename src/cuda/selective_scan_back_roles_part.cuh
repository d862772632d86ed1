/*
 * The arithmetic of a team's walk, which selective_scan_back_roles.cu includes in its namespace: that of
 * selective_scan_back_walk.cuh, in the same order.
 */

struct Parts {
    Room &room;
    const int thread;
    const Lane lane;
    float rate[OWN][STATES], G[OWN][STATES], dA[OWN][STATES];

    __device__ explicit Parts(Room &room) : room(room), thread(threadIdx.x % TEAM), lane(threadIdx.x % TEAM)
    {
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
        at.rows = &room.B[0][0][lane.order][lane.lane * STATES];
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
        return *(const Four<float> *)(at.rows + (kind * 2 * TILE + t) * ORDERS * PANEL);
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

    /* The states before each part, from the one before the tile; `at` moves from the first part to the last. */
    __device__ void leave_starts(Places &at, float (&h)[OWN][STATES])
    {
#pragma unroll 1
        for (int part = 0; part < PARTS - 1; part++) leave_start(at, h);
#pragma unroll
        for (int j = 0; j < OWN; j++) store_four_at(at.start + j * TEAM * STATES, h[j]);
    }

    /* What the state after a step gives to dC. */
    __device__ static void take_after(float du, const float (&after)[STATES], bool first, float (&dC)[STATES])
    {
#pragma unroll
        for (int k = 0; k < STATES; k++) dC[k] = first ? du * after[k] : fma(du, after[k], dC[k]);
    }

    /* What entered a tile, by rough decays alone, and the sums of its step sizes. */
    struct Passing {
        float carried[OWN][STATES], deltas[OWN];
    };

    /* One step of a channel back; `anchors`: and of what passes. */
    template <bool anchors>
    __device__ void step_back(Passing &passing, float delta, float input, float du, int j, const Four<float> &b,
                              const Four<float> &c, const float (&before)[STATES], const float (&decay)[STATES],
                              float (&dB)[STATES], float &along_B, float &along_delta)
    {
        if (anchors) passing.deltas[j] += delta;
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            float &gradient = G[j][k];
            gradient = fma(du, c.state[k], gradient);
            dB[k] = j == 0 ? input * gradient : fma(input, gradient, dB[k]);
            along_B = k == 0 ? gradient * b.state[k] : fma(gradient, b.state[k], along_B);
            gradient *= decay[k];
            if (anchors) passing.carried[j][k] *= decay[k];
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

    template <bool anchors> __device__ void walk_part(const Places &at, Passing &passing)
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
                    step_back<anchors>(passing, i ? step[j].delta1 : step[j].delta0,
                                       i ? step[j].input1 : step[j].input0, i ? du[j].y : du[j].x, j, b, c, h[t][j],
                                       decay[t][j], dB[i], along_B[j], along_delta[j]);
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
};
