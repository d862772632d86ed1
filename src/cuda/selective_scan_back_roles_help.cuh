/*
 * What helpers do, which selective_scan_back_roles.cu includes in its namespace: they bring a tile into its stage.
 * One warp, a Helper, has the steps of a team; one more, the Clerk, B, C, their gradients and what is kept, of all
 * teams. The arithmetic is that of selective_scan_back_prepare.cuh and selective_scan_back_finish.cuh.
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
    const int lane;

    /* The lane's steps of a part on their way. */
    struct Coming {
        Raw<float> x[2], delta[2], dy[2];
    };

    __device__ Helper(const rl_s6_back_args &args, Room &room) : args(args), room(room), lane(threadIdx.x & 31)
    {
    }

    __device__ Quads<form> quads_of(int part) const
    {
        return Quads<form>(args, part * (PART / 2) + lane / (COLUMNS / 4), lane % (COLUMNS / 4) * 4);
    }
    template <bool whole> __device__ void fetch_as(const Job &job, int part, Coming &to) const
    {
        const Quads<form> quads = quads_of(part);
        quads.template fetch<whole>(job, OF_DELTA, to.delta);
        quads.template fetch<whole>(job, OF_X, to.x);
        quads.template fetch<whole>(job, OF_DY, to.dy);
    }
    __device__ void fetch(const Job &job, int part, Coming &to) const
    {
        is_whole(job) ? fetch_as<true>(job, part, to) : fetch_as<false>(job, part, to);
    }

    /* Step sizes and what goes with them; whether the fast order may have them. */
    __device__ bool size_steps(const Coming &from, const Four<float> &bias, int i, float (&delta)[4],
                               float (&input)[4], float (&du)[4]) const
    {
        float value[4], size = 0, sum = 0; /* NaN stays in the sum: x and dy are 0 where nothing exists */
        unpack<form>(from.delta[i], args.scan.delta, OF_DELTA, true, delta);
        unpack<form>(from.x[i], args.scan.x, OF_X, true, value);
        unpack<form>(from.dy[i], args.dy, OF_DY, true, du);
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
        const Quads<form> quads = quads_of(part);
        const int two = quads.two, column = quads.column;
        const Four<float> bias = *(const Four<float> *)&room.bias[job.vectors][column];
        float delta[2][4], input[2][4], du[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const bool tame = size_steps(from, bias, i, delta[i], input[i], du[i]);
            if (!tame && i < quads.count(job)) room.wild[parity] = 1;
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

    /* Of a job that has been walked: whether it, and so its task, was wild. */
    __device__ void note_wild(const Job &job, int parity) const
    {
        if (lane == 0) {
            const int wild = (job.begins ? 0 : room.task_wild) | room.wild[parity];
            if (job.ends_task) args.again[job.task] = wild;
            room.task_wild = wild;
            room.wild[parity] = 0;
        }
        __syncwarp();
    }

    /* The steps of the next part are always on their way. */
    __device__ void fill(const Job &next, const Job &later, int parity, Coming &coming) const
    {
        copy_kept(next, args, room.part[parity][0], 1);
#pragma unroll 1
        for (int part = 0; part < PARTS; part++) {
            put_steps(next, parity, part, coming);
            fetch(part + 1 < PARTS ? next : later, (part + 1) % PARTS, coming);
        }
    }

    __device__ void run() const
    {
        Coming coming;
        fetch(room.job[0], 0, coming);
        for (int i = -2;; i++) {
            const Job &done = room.job[i & (JOBS - 1)], &next = room.job[(i + 2) & (JOBS - 1)];
            const int parity = i & 1;
            if (i >= 0) {
                if (done.steps == 0) return;
                barrier_wait(&room.done[parity], i / 2 & 1);
                note_wild(done, parity);
            }
            if (next.steps > 0) {
                if (next.begins) load_vectors(next);
                fill(next, room.job[(i + 3) & (JOBS - 1)], parity, coming);
            }
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
        store_whole(job.at[OF_DB + kind] + (step * view.step + state) * bytes_in<form>(view, OF_B), sum.state,
                    dtype_of<form>(view, OF_B));
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
                (exists ? at * (int)args.pace[OF_B + kind] + state * bytes_in<form>(args.scan.B, OF_B) : 0);
            if (bytes_in<form>(args.scan.B, OF_B) == 4)
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
