/*
 * What the helpers do for a team's job, which selective_scan_back_roles.cu includes in its namespace: they bring a
 * tile into its stage, and finish the gradients of one that has been walked.  The arithmetic is that of
 * selective_scan_back_prepare.cuh and selective_scan_back_finish.cuh.
 */

template <int form> struct Helper {
    const rl_s6_back_args &args;
    Room &room;
    const int thread, two, column; /* its steps 2 two and 2 two + 1, its first channel of four */

    __device__ Helper(const rl_s6_back_args &args, Room &room)
        : args(args), room(room), thread(threadIdx.x % TEAM), two(threadIdx.x % TEAM / (COLUMNS / 4)),
          column(threadIdx.x % (COLUMNS / 4) * 4)
    {
    }

    __device__ static void meet()
    {
        barrier_meet_numbered(1 + TEAMS, TEAM);
    }

    /* The thread's four channels of its first step in a tensor; those of the second lie a pace on. */
    __device__ char *quad_of(const Job &job, int tensor) const
    {
        return job.at[tensor] + (two * 2 * args.pace[tensor] + column * bytes_in<form>(view_of(args, tensor)));
    }
    /* The thread's steps that exist. */
    __device__ int count(const Job &job) const
    {
        return column < job.block.channels ? job.steps - two * 2 : 0;
    }
    /* What does not exist becomes `bits`. */
    __device__ void fetch(const Job &job, int tensor, int count, uint32_t bits, Raw<float> (&to)[2]) const
    {
        const char *const from = quad_of(job, tensor);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            to[i].bits = make_uint4(bits, bits, bits, bits);
            if (i < count) to[i] = load_raw<form>(float(), from + i * args.pace[tensor], view_of(args, tensor), true, 4);
        }
    }
    /* Step sizes that do not exist are so far below zero that softplus and its slope make 0 of them. */
    __device__ void fetch_delta(const Job &job, int count, Raw<float> (&to)[2]) const
    {
        fetch(job, OF_DELTA, count, 0xf149f149u, to);
    }

    /* A job's tensors on their way to its preparation. */
    struct Coming {
        Raw<float> x[2], delta[2], dy[2];
    };
    __device__ void fetch_steps(const Job &job, Coming &to) const
    {
        const int steps = count(job);
        fetch_delta(job, steps, to.delta);
        fetch(job, OF_X, steps, 0, to.x);
        fetch(job, OF_DY, steps, 0, to.dy);
    }

    /* The same to its end. */
    struct Leaving {
        Raw<float> x[2], delta[2];
    };
    __device__ void fetch_again(const Job &job, Leaving &to) const
    {
        const int steps = count(job);
        fetch(job, OF_X, steps, 0, to.x);
        fetch_delta(job, steps, to.delta);
    }

    /* Step sizes and what goes with them; whether the fast order may have them. */
    __device__ bool size_steps(const Coming &from, const Four<float> &bias, int i, float (&delta)[4],
                               float (&input)[4], float (&du)[4]) const
    {
        float value[4], size = 0, sum = 0; /* NaN stays in the sum: x and dy are 0 where nothing exists */
        unpack<form>(from.delta[i], args.scan.delta, true, delta);
        unpack<form>(from.x[i], args.scan.x, true, value);
        unpack<form>(from.dy[i], args.dy, true, du);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            delta[k] += bias.state[k];
            size = fmaxf(size, fabsf(delta[k]));
            delta[k] = softplus_of_small(delta[k]);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            input[k] = delta[k] * value[k];
            sum += fabsf(input[k]) + fabsf(du[k]);
        }
        return size <= SMALL && sum <= Limits<float>::tame;
    }

    __device__ void put_steps(const Job &job, int parity, const Coming &from) const
    {
        const Four<float> bias = *(const Four<float> *)&room.bias[job.vectors][column];
        const int steps = count(job);
        float delta[2][4], input[2][4], du[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const bool tame = size_steps(from, bias, i, delta[i], input[i], du[i]);
            if (!tame && i < steps) room.wild[parity] = 1;
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            room.steps[parity][two][slot_of(column) ^ k] = {delta[0][k], input[0][k], delta[1][k], input[1][k]};
#pragma unroll
        for (int k = 0; k < 4; k += 2) {
            const Four<float> pair = {{du[0][k], du[1][k], du[0][k + 1], du[1][k + 1]}};
            *(Four<float> *)&room.du[parity][two][column + k] = pair;
        }
    }

    /* B, C and what is kept before the tile. */
    __device__ void copy_inputs(const Job &job, int parity) const
    {
        const int at = thread / LANES % TILE, kind = thread / (TEAM / 2), state = thread % LANES * STATES;
        const rl_s6_view &view = kind ? args.scan.C : args.scan.B;
        const bool exists = at < job.steps && state < args.scan.states;
        const char *const from =
            exists ? job.at[OF_B + kind] + (at * args.pace[OF_B + kind] + state * bytes_in<form>(view))
                   : (const char *)view.data;
        if (form == RL_S6_BACK_NEAT_F32)
            copy_async_16(&room.inputs[parity][thread], from, exists ? 16 : 0);
        else
            copy_async((uint2 *)room.inputs[parity] + thread, (const uint2 *)from, exists);
        const bool kept = job.tile > 0;
        const float *const states = kept ? job.kept + thread * STATES : (const float *)args.A_parts;
#pragma unroll
        for (int j = 0; j < OWN; j++)
            copy_async_16(&room.part[parity][0].number[j][thread * STATES], states + (kept ? j * TEAM * STATES : 0),
                          kept ? 16 : 0);
        if (thread < COLUMNS / 4) {
            const bool sums = kept && thread * 4 < job.block.channels;
            copy_async_16(&room.deltas[parity][thread * 4], sums ? job.sums + thread * 4 : states, sums ? 16 : 0);
        }
    }

    /* The slopes of step sizes along what is stored. */
    __device__ void slopes_of(const Raw<float> &raw, const Four<float> &bias, float (&slope)[4]) const
    {
        unpack<form>(raw, args.scan.delta, true, slope);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float value = slope[k] + bias.state[k];
            slope[k] = softplus_slope(value, decay_of_small(value));
        }
    }

    __device__ void finish_steps(const Job &job, int parity, const Leaving &from) const
    {
        const PartRoom &place = room.part[parity][two / 2];
        const int count = this->count(job);
        char *const to_dx = quad_of(job, OF_DX), *const to_ddelta = quad_of(job, OF_DDELTA);
        const Four<float> skip = *(const Four<float> *)&room.skip[job.vectors][column];
        const Four<float> bias = *(const Four<float> *)&room.bias[job.vectors][column];
        Four<float> &all_D = *(Four<float> *)&room.shares[0][two][column];
        Four<float> &all_bias = *(Four<float> *)&room.shares[1][two][column];
        Four<float> dD = {}, dbias = {};
        if (!job.begins) {
            dD = all_D;
            dbias = all_bias;
        }
        TwoSteps steps[4];
        Four<float> du[2];
#pragma unroll
        for (int k = 0; k < 4; k++) steps[k] = room.steps[parity][two][slot_of(column) ^ k];
#pragma unroll
        for (int k = 0; k < 2; k++) du[k] = *(const Four<float> *)&room.du[parity][two][column + 2 * k];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float *const sums = &place.number[1][column / WARP * WARP_NUMBERS + (two % 2 * 2 + i) * 2 * WARP];
            const Four<float> along_B = *(const Four<float> *)&sums[column % WARP];
            const Four<float> along_delta = *(const Four<float> *)&sums[WARP + column % WARP];
            float x[4], slope[4], dx[4], ddelta[4];
            unpack<form>(from.x[i], args.scan.x, true, x);
            slopes_of(from.delta[i], bias, slope);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float delta = i ? steps[k].delta1 : steps[k].delta0, own = du[k / 2].state[k % 2 * 2 + i];
                const float along_x = x[k] * along_B.state[k], whole = along_delta.state[k] + along_x;
                dx[k] = delta * along_B.state[k];
                ddelta[k] = slope[k] * whole;
                dbias.state[k] += ddelta[k];
                dx[k] += own * skip.state[k];
                dD.state[k] += own * x[k];
            }
            if (i >= count) continue;
            if (args.dx.data) store_whole(to_dx + i * args.pace[OF_DX], dx, dtype_of<form>(args.dx));
            if (args.ddelta.data) store_whole(to_ddelta + i * args.pace[OF_DDELTA], ddelta, dtype_of<form>(args.ddelta));
        }
        all_D = dD;
        all_bias = dbias;
    }

    /* Adds the warps' dB and dC. */
    __device__ void finish_inputs(const Job &job, int parity) const
    {
        const int at = thread / 8, number = thread % 8 * STATES, kind = number / PANEL, state = number % PANEL;
        const int from = ((at % PART / 2 * 2 + kind) * 2 + at % 2) * PANEL + state;
        if (at >= job.steps || state >= args.scan.states) return;
        const float *const place = room.part[parity][at / PART].number[0];
        Four<float> sum = *(const Four<float> *)&place[from];
#pragma unroll
        for (int warp = 1; warp < TEAM / 32; warp++) {
            const Four<float> more = *(const Four<float> *)&place[warp * WARP_NUMBERS + from];
#pragma unroll
            for (int k = 0; k < STATES; k++) sum.state[k] += more.state[k];
        }
        if (!args.add_groups) {
            const int64_t step = (args.scan.reverse ? -2 : 2) * args.scan.states;
            *(Four<float> *)(job.shares + at * step + kind * args.scan.states + state) = sum;
            return;
        }
        const rl_s6_view &view = kind ? args.dC : args.dB;
        if (!view.data) return;
        const int64_t to = job.batch * view.batch + job.block.group * view.group + state +
                           job.first * (args.scan.reverse ? -view.step : view.step) + at * view.step;
        store_whole((char *)view.data + to * bytes_in<form>(view), sum.state, dtype_of<form>(view));
    }
    /* A task's dD and ddelta_bias, and whether it must be done again. */
    __device__ void finish_task(const Job &job) const
    {
        const int kind = thread / COLUMNS, at = thread % COLUMNS;
        if (thread == 0) args.again[job.task] = room.task_wild;
        if (at >= job.block.channels) return;
        float sum = 0;
        for (int row = 0; row < TILE / 2; row++) sum += room.shares[kind][row][at];
        ((float *)(kind ? args.bias_parts : args.D_parts))[job.index * args.scan.channels + job.block.channel + at] =
            sum;
    }

    /* Of a task's first job, what its steps need besides their tensors. */
    __device__ void load_vectors(const Job &job) const
    {
        const int lane = threadIdx.x & 31;
        for (int k = lane; k < COLUMNS; k += 32) {
            const bool exists = k < job.block.channels;
            const rl_s6_vector &bias = args.scan.bias, &skip = args.scan.D;
            const int64_t channel = job.block.channel + k;
            room.bias[job.vectors][k] =
                exists && bias.data ? ((const float *)bias.data)[channel * bias.stride] : 0.0f;
            room.skip[job.vectors][k] =
                exists && skip.data ? ((const float *)skip.data)[channel * skip.stride] : 0.0f;
        }
    }

    /* Fills the stage of one parity with a job; all helpers have left it. */
    __device__ void prepare(const Job &job, int parity, const Coming &from) const
    {
        if (job.steps == 0) return;
        copy_inputs(job, parity);
        put_steps(job, parity, from);
        await_copies();
    }

    __device__ void finish(const Job &job, int parity, const Leaving &from) const
    {
        if (thread == 0) {
            room.task_wild = (job.begins ? 0 : room.task_wild) | room.wild[parity];
            room.wild[parity] = 0;
        }
        finish_steps(job, parity, from);
        if (args.dB.data || args.dC.data) finish_inputs(job, parity);
    }
};
