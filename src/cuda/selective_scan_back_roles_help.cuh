/*
 * What helpers do, which selective_scan_back_roles.cu includes in its namespace: they bring a tile into its stage,
 * and finish the gradients of one that has been walked.  One warp, a Helper, has the steps of a team; one more, the
 * Clerk, B, C, their gradients and what is kept, of all teams.  The arithmetic is that of
 * selective_scan_back_prepare.cuh and selective_scan_back_finish.cuh.
 */

/* Once the warp's own copies and writes to a stage are done. */
__device__ inline void hand_over(uint64_t *barrier)
{
    await_copies();
    __syncwarp();
    if ((threadIdx.x & 31) == 0) barrier_arrive(barrier);
}

template <int form> struct Helper {
    const rl_s6_back_args &args;
    Room &room;
    const int lane, column; /* its first channel of four; of a part it has steps 2 second and 2 second + 1 */
    const int second;

    /* The lane's steps of a part on their way: to be prepared, to be finished. */
    struct Coming {
        Raw<float> x[2], delta[2], dy[2];
    };
    struct Leaving {
        Raw<float> x[2], delta[2];
    };

    __device__ Helper(const rl_s6_back_args &args, Room &room)
        : args(args), room(room), lane(threadIdx.x & 31), column(threadIdx.x % (COLUMNS / 4) * 4),
          second(threadIdx.x % 32 / (COLUMNS / 4))
    {
    }

    __device__ int two_of(int part) const
    {
        return part * (PART / 2) + second;
    }
    /* The lane's four channels of its first step of a part; those of the second lie a pace on. */
    __device__ char *quad_of(const Job &job, int tensor, int part) const
    {
        return job.at[tensor] +
               (two_of(part) * 2 * (int)args.pace[tensor] + column * bytes_in<form>(view_of(args, tensor)));
    }
    /* The lane's steps of the part that exist. */
    __device__ int count(const Job &job, int part) const
    {
        return column < job.channels ? job.steps - two_of(part) * 2 : 0;
    }
    __device__ static bool is_whole(const Job &job)
    {
        return job.steps == TILE && job.channels == COLUMNS;
    }

    /*
     * What does not exist becomes 0, but for step sizes, which become so small that softplus and its slope make 0 of
     * them.
     */
    template <bool whole> __device__ void fetch(const Job &job, int tensor, int part, Raw<float> (&to)[2]) const
    {
        const char *const from = quad_of(job, tensor, part);
        const uint32_t bits = tensor == OF_DELTA ? 0xf149f149u : 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (!whole) to[i].bits = make_uint4(bits, bits, bits, bits);
            if (whole || i < count(job, part))
                to[i] = load_raw<form>(float(), from + i * args.pace[tensor], view_of(args, tensor), true, 4);
        }
    }
    template <bool whole> __device__ void fetch_coming_of(const Job &job, int part, Coming &to) const
    {
        fetch<whole>(job, OF_DELTA, part, to.delta);
        fetch<whole>(job, OF_X, part, to.x);
        fetch<whole>(job, OF_DY, part, to.dy);
    }
    template <bool whole> __device__ void fetch_leaving_of(const Job &job, int part, Leaving &to) const
    {
        fetch<whole>(job, OF_X, part, to.x);
        fetch<whole>(job, OF_DELTA, part, to.delta);
    }
    __device__ void fetch_coming(const Job &job, int part, Coming &to) const
    {
        is_whole(job) ? fetch_coming_of<true>(job, part, to) : fetch_coming_of<false>(job, part, to);
    }
    __device__ void fetch_leaving(const Job &job, int part, Leaving &to) const
    {
        is_whole(job) ? fetch_leaving_of<true>(job, part, to) : fetch_leaving_of<false>(job, part, to);
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

    __device__ void put_steps(const Job &job, int parity, int part, const Coming &from) const
    {
        const Four<float> bias = *(const Four<float> *)&room.bias[job.vectors][column];
        const int two = two_of(part);
        float delta[2][4], input[2][4], du[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const bool tame = size_steps(from, bias, i, delta[i], input[i], du[i]);
            if (!tame && i < count(job, part)) room.wild[parity] = 1;
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

    __device__ void finish_steps(const Job &job, int parity, int part, const Leaving &from) const
    {
        const int two = two_of(part);
        const float *const sums = &room.part[parity][part].number[1][column / WARP * WARP_NUMBERS + column % WARP];
        char *const to_dx = quad_of(job, OF_DX, part), *const to_ddelta = quad_of(job, OF_DDELTA, part);
        const Four<float> skip = *(const Four<float> *)&room.skip[job.vectors][column];
        const Four<float> bias = *(const Four<float> *)&room.bias[job.vectors][column];
        const bool begins = job.begins && part < PARTS / 2; /* each step of a tile's half has sums of its own */
        TwoSteps steps[4];
        Four<float> du[2];
#pragma unroll
        for (int k = 0; k < 4; k++) steps[k] = room.steps[parity][two][slot_of(column) ^ k];
#pragma unroll
        for (int k = 0; k < 2; k++) du[k] = *(const Four<float> *)&room.du[parity][two][column + 2 * k];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const Four<float> along_B = *(const Four<float> *)&sums[(second * 2 + i) * 2 * WARP];
            const Four<float> along_delta = *(const Four<float> *)&sums[(second * 2 + i) * 2 * WARP + WARP];
            const int row = two % (TILE / 4) * 2 + i;
            Four<float> &all_D = *(Four<float> *)&room.shares[0][row][column];
            Four<float> &all_bias = *(Four<float> *)&room.shares[1][row][column];
            Four<float> dD = {}, dbias = {};
            if (!begins) {
                dD = all_D;
                dbias = all_bias;
            }
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
            all_D = dD;
            all_bias = dbias;
            if (i >= count(job, part)) continue;
            if (args.dx.data) store_whole(to_dx + i * args.pace[OF_DX], dx, dtype_of<form>(args.dx));
            if (args.ddelta.data)
                store_whole(to_ddelta + i * args.pace[OF_DDELTA], ddelta, dtype_of<form>(args.ddelta));
        }
    }

    /* A task's dD and ddelta_bias, and whether it must be done again. */
    __device__ void finish_task(const Job &job) const
    {
        if (lane == 0) args.again[job.task] = room.task_wild;
        __syncwarp();
        for (int at = lane; at < job.channels; at += 32) {
            float sum[2] = {};
            for (int row = 0; row < TILE / 2; row++)
                for (int kind = 0; kind < 2; kind++) sum[kind] += room.shares[kind][row][at];
            const int64_t to = job.index * args.scan.channels + job.channel + at;
            ((float *)args.D_parts)[to] = sum[0];
            ((float *)args.bias_parts)[to] = sum[1];
        }
        __syncwarp();
    }

    /* Of a task's first job, what its steps need besides their tensors. */
    __device__ void load_vectors(const Job &job) const
    {
        for (int k = lane; k < COLUMNS; k += 32) {
            const bool exists = k < job.channels;
            const rl_s6_vector &bias = args.scan.bias, &skip = args.scan.D;
            const int64_t channel = job.channel + k;
            room.bias[job.vectors][k] =
                exists && bias.data ? ((const float *)bias.data)[channel * bias.stride] : 0.0f;
            room.skip[job.vectors][k] =
                exists && skip.data ? ((const float *)skip.data)[channel * skip.stride] : 0.0f;
        }
        __syncwarp();
    }

    /* Half of the states that are kept before a tile; the other half is the clerk's. */
    __device__ static void copy_kept(const Job &job, const rl_s6_back_args &args, PartRoom &to, int half)
    {
        const bool kept = job.tile > 0;
        const float *const from =
            kept ? (const float *)job.at[OF_KEPT] + half * TEAM * STATES : (const float *)args.A_parts;
        for (int k = (threadIdx.x & 31) * STATES; k < TEAM * STATES; k += 32 * STATES)
            copy_async_16(&to.number[half][k], from + (kept ? k : 0), kept ? 16 : 0);
    }

    /* What the job that was walked leaves: notes whether it was wild. */
    __device__ void note_wild(const Job &job, int parity) const
    {
        if (lane == 0) {
            room.task_wild = (job.begins ? 0 : room.task_wild) | room.wild[parity];
            room.wild[parity] = 0;
        }
        __syncwarp();
    }

    __device__ void run() const
    {
        Coming coming;
        Leaving leaving;
        fetch_coming(room.job[0], 0, coming);
        for (int i = -2;; i++) {
            const Job &done = room.job[i & (JOBS - 1)], &next = room.job[(i + 2) & (JOBS - 1)];
            const Job &done_later = room.job[(i + 1) & (JOBS - 1)], &next_later = room.job[(i + 3) & (JOBS - 1)];
            const int parity = i & 1;
            const bool finishes = i >= 0;
            if (finishes && done.steps == 0) return;
            if (finishes) barrier_wait(&room.done[parity], i / 2 & 1);
            if (finishes) note_wild(done, parity);
            if (next.steps > 0 && next.begins) load_vectors(next);
#pragma unroll 1
            for (int part = 0; part < PARTS; part++) {
                const bool last = part + 1 == PARTS;
                if (finishes) finish_steps(done, parity, part, leaving);
                if (last ? i >= -1 : finishes) fetch_leaving(last ? done_later : done, last ? 0 : part + 1, leaving);
                if (part == 0) {
                    __syncwarp(); /* the part's sums have been read */
                    if (next.steps > 0) copy_kept(next, args, room.part[parity][0], 1);
                }
                if (next.steps > 0) put_steps(next, parity, part, coming);
                fetch_coming(last ? next_later : next, last ? 0 : part + 1, coming);
            }
            __syncwarp();
            if (finishes && done.ends_task) finish_task(done);
            hand_over(&room.full[parity]);
        }
    }
};

template <int form> struct Clerk {
    const rl_s6_back_args &args;
    const int lane;

    __device__ explicit Clerk(const rl_s6_back_args &args) : args(args), lane(threadIdx.x & 31)
    {
    }

    /* Adds the warps' dB and dC of a part: the lane four numbers of a step. */
    __device__ void finish_inputs(const Job &job, const PartRoom &room, int part) const
    {
        const int at = lane / 8, kind = lane % 8 / 4, state = lane % 4 * STATES, step = part * PART + at;
        const float *const place = &room.number[0][((at / 2 * 2 + kind) * 2 + at % 2) * PANEL + state];
        if (step >= job.steps || state >= args.scan.states) return;
        Four<float> sum = *(const Four<float> *)place;
#pragma unroll
        for (int warp = 1; warp < TEAM / 32; warp++) {
            const Four<float> more = *(const Four<float> *)&place[warp * WARP_NUMBERS];
#pragma unroll
            for (int k = 0; k < STATES; k++) sum.state[k] += more.state[k];
        }
        if (!args.add_groups) {
            const int64_t pace = (args.scan.reverse ? -2 : 2) * args.scan.states;
            *(Four<float> *)((float *)job.at[OF_SHARES] + step * pace + kind * args.scan.states + state) = sum;
            return;
        }
        const rl_s6_view &view = kind ? args.dC : args.dB;
        if (!view.data) return;
        store_whole(job.at[OF_DB + kind] + (step * view.step + state) * bytes_in<form>(view), sum.state,
                    dtype_of<form>(view));
    }

    /* B, C and what is kept before the tile. */
    __device__ void copy_inputs(const Job &job, Room &room, int parity) const
    {
#pragma unroll
        for (int k = 0; k < TEAM / 32; k++) {
            const int number = k * 32 + lane, at = number / LANES % TILE, kind = k / (TEAM / 64);
            const int state = lane % LANES * STATES;
            const bool exists = at < job.steps && state < args.scan.states;
            const char *const from =
                job.at[OF_B + kind] +
                (exists ? at * (int)args.pace[OF_B + kind] + state * bytes_in<form>(args.scan.B) : 0);
            if (form == RL_S6_BACK_NEAT_F32)
                copy_async_16(&room.inputs[parity][number], from, exists ? 16 : 0);
            else
                copy_async((uint2 *)room.inputs[parity] + number, (const uint2 *)from, exists);
        }
        Helper<form>::copy_kept(job, args, room.part[parity][0], 0);
        if (lane >= COLUMNS / 4) return;
        const bool sums = job.tile > 0 && lane * 4 < job.channels;
        copy_async_16(&room.deltas[parity][lane * 4],
                      sums ? (const float *)job.at[OF_SUMS] + lane * 4 : (const float *)args.A_parts, sums ? 16 : 0);
    }

    /* Answers whether there was a job to finish, or may be. */
    __device__ bool serve(Room &room, int i) const
    {
        const Job &done = room.job[i & (JOBS - 1)], &next = room.job[(i + 2) & (JOBS - 1)];
        const int parity = i & 1;
        if (i >= 0) {
            if (done.steps == 0) return false;
            barrier_wait(&room.done[parity], i / 2 & 1);
            if (args.dB.data || args.dC.data) {
#pragma unroll
                for (int part = 0; part < PARTS; part++) finish_inputs(done, room.part[parity][part], part);
            }
            __syncwarp(); /* the sums have been read */
        }
        if (next.steps > 0) copy_inputs(next, room, parity);
        Jobs(args, room).describe(room.job[(i + AHEAD) & (JOBS - 1)]);
        hand_over(&room.full[parity]);
        return true;
    }

    __device__ void run(Room *rooms) const
    {
        unsigned over = 0; /* a bit for each team */
        for (int i = -2; over != (1u << TEAMS) - 1; i++)
#pragma unroll 1
            for (int team = 0; team < TEAMS; team++)
                if (!(over >> team & 1) && !serve(rooms[team], i)) over |= 1u << team;
    }
};
