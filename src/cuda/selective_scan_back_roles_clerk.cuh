/*
 * The work of one warp, the Clerk, for all teams: B, C, their gradients, what is kept, and the order of the jobs.
 * selective_scan_back_roles.cu includes it in its namespace.
 */

/* What is done with B, C and their gradients. */
template <int form> struct Inputs {
    const rl_s6_back_args &args;
    const int lane;

    __device__ explicit Inputs(const rl_s6_back_args &args) : args(args), lane(threadIdx.x & 31)
    {
    }

    /* A lane's fours of B and C on their way: of every eighth step, of both. */
    struct Fetched {
        Raw<float> four[TEAM / 32];
    };
    __device__ static int step_of(int k)
    {
        return (k * 32 + (threadIdx.x & 31)) / LANES % TILE;
    }
    __device__ void fetch(const Job &job, Fetched &to) const
    {
        const int state = lane % LANES * STATES;
#pragma unroll
        for (int k = 0; k < TEAM / 32; k++) {
            const int at = step_of(k), kind = k / (TEAM / 64);
            to.four[k].bits = make_uint4(0, 0, 0, 0);
            if (at < job.steps && state < args.scan.states)
                to.four[k] = load_raw<form>(float(),
                                            job.at[OF_B + kind] + at * (int)args.pace[OF_B + kind] +
                                                state * bytes_in<form>(args.scan.B, OF_B),
                                            args.scan.B, OF_B, true, STATES);
        }
    }

    /* Each lane's states in four orders. */
    __device__ void spread(Room &room, int parity, const Fetched &from) const
    {
#pragma unroll
        for (int k = 0; k < TEAM / 32; k++) {
            float value[STATES];
            unpack<form>(from.four[k], args.scan.B, OF_B, true, value);
            float(*const to)[PANEL] = (k < TEAM / 64 ? room.B : room.C)[parity][step_of(k)];
#pragma unroll
            for (int order = 0; order < ORDERS; order++) {
                Four<float> turned;
#pragma unroll
                for (int i = 0; i < STATES; i++) turned.state[i] = value[i ^ order];
                *(Four<float> *)&to[order][lane % LANES * STATES] = turned;
            }
        }
    }

    /* Adds the warps' dB and dC of a part: the lane four numbers of a step. */
    __device__ void finish(const Job &job, const PartRoom &room, int part) const
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
};

/* The states that are kept before a tile, and those before its chunk, on their way. */
__device__ inline void copy_states(const rl_s6_back_args &args, const Job &job, PartRoom *part)
{
    const bool kept = job.tile > 0, starts = job.moves && args.scan.chunks > 1;
    const float *const from = (const float *)(kept ? job.at[OF_KEPT] : args.A_parts);
    const float *const start = (const float *)args.ends + (job.row * args.scan.blocks + job.number) * PART_NUMBERS;
#pragma unroll 4
    for (int k = (threadIdx.x & 31) * STATES; k < PART_NUMBERS; k += 32 * STATES) {
        copy_async_16(&part[KEPT_PART].number[0][0] + k, from + (kept ? k : 0), kept ? 16 : 0);
        if (starts) copy_async_16(&part[START_PART].number[0][0] + k, start + k, 16);
    }
}

/* The sums of step sizes up to the tile, and up to the next one: 0 where it has none. */
__device__ inline void copy_sums(const rl_s6_back_args &args, const Job &job, const Room &room, PartRoom &part)
{
    const int lane = threadIdx.x & 31, next = lane / 16, column = lane % 16 * 4;
    const bool known = (next ? !job.enters : job.tile > 0) && column < job.channels;
    const char *const from = known ? job.at[OF_SUMS] + next * room.stride[OF_SUMS] + column * (int)sizeof(float)
                                   : (const char *)args.A_parts;
    copy_async_16(&part.number[0][column / WARP * WARP_NUMBERS + next * WARP + column % WARP], from, known ? 16 : 0);
}

template <int form> struct Clerk {
    const rl_s6_back_args &args;

    __device__ explicit Clerk(const rl_s6_back_args &args) : args(args)
    {
    }

    /* Answers whether there was a job to finish, or may be. */
    __device__ bool serve(Room &room, int i) const
    {
        const Job &done = room.job[i & (JOBS - 1)], &next = room.job[(i + 2) & (JOBS - 1)];
        const int parity = i & 1;
        const Inputs<form> inputs(args);
        typename Inputs<form>::Fetched fours;
        if (i >= 0 && done.steps == 0) return false;
        if (next.steps > 0) inputs.fetch(next, fours);
        if (i >= 0) {
            barrier_wait(&room.done[parity], i / 2 & 1);
            if (args.dB.data || args.dC.data) {
#pragma unroll
                for (int part = 0; part < PARTS; part++) inputs.finish(done, room.part[parity][part], part);
            }
            __syncwarp(); /* the sums have been read */
        }
        if (next.steps > 0) {
            copy_states(args, next, room.part[parity]);
            copy_sums(args, next, room, room.part[parity][SUMS_PART]);
            inputs.spread(room, parity, fours);
        }
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
