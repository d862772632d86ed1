/* The walk of a team from job to job, which selective_scan_back_roles.cu includes in its namespace. */

struct Walker : Parts {
    const rl_s6_back_args &args;
    const int team;

    __device__ Walker(const rl_s6_back_args &args, Room &room, int team) : Parts(room), args(args), team(team)
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
        if (bytes_in<form>(args.scan.B, OF_B) == 4) {
            raw.bits = room.inputs[parity][thread];
        } else {
            const uint2 two = ((const uint2 *)room.inputs[parity])[thread];
            raw.bits = make_uint4(two.x, two.y, 0, 0);
        }
        unpack<form>(raw, args.scan.B, OF_B, true, value);
        float(*const to)[PANEL] = thread < TEAM / 2 ? room.B[at] : room.C[at];
#pragma unroll
        for (int order = 0; order < ORDERS; order++) {
            Four<float> turned;
#pragma unroll
            for (int k = 0; k < STATES; k++) turned.state[k] = value[k ^ order];
            *(Four<float> *)&to[order][four * STATES] = turned;
        }
    }

    template <int form> __device__ void walk(const Job &job, int parity, Places &at)
    {
        float start[OWN][STATES] = {}, h[OWN][STATES];
        bool tame = true;
        if (job.moves) fetch_start(job, start);
        barrier_meet_numbered(1 + team, TEAM); /* all have left B and C */
        spread_inputs<form>(parity);
        if (job.begins) tame = begin_task(job);
        if (job.enters) tame = enter_chunk(job) && tame;
        barrier_meet_numbered(1 + team, TEAM); /* B and C are there */
        load_before(job, parity, start, h);
        if (!(tame && is_tame(h))) room.wild[parity] = 1;
        if (job.enters || (job.tile & 1)) enter_span(job);
        leave_starts(at, h);
#pragma unroll 1
        for (int part = PARTS - 1; part >= 0; part--) {
            walk_part(at);
            at.move(-1);
        }
        const Finisher<form> finisher(args, room);
        typename Finisher<form>::Leaving leaving;
        finisher.fetch(job, leaving);
        if (!(job.tile & 1)) anchor(job);
        __syncwarp(); /* the warp's sums are there */
        is_whole(job) ? finisher.template finish<true>(job, parity, leaving)
                      : finisher.template finish<false>(job, parity, leaving);
        if (job.leaves && job.starts && args.dh_init.data) store_initial(job);
        if (!job.ends_task) return;
        store_each(args.A_parts, job, job.index, dA);
        finisher.finish_task(job);
    }

    __device__ void store_initial(const Job &job) const
    {
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++)
                if (has(job, j, k)) ((float *)args.dh_init.data)[place_in(args.dh_init, job, j, k)] = G[j][k];
    }

    template <int form> __device__ void run()
    {
        Places at = places();
        for (unsigned i = 0;; i++) {
            const Job &job = room.job[i % JOBS];
            const int parity = i & 1;
            barrier_wait(&room.full[parity], i / 2 & 1);
            if (job.steps == 0) return;
            if (i > 0) at.turn(parity);
            walk<form>(job, parity, at);
            __syncwarp();
            if ((thread & 31) == 0) barrier_arrive(&room.done[parity]);
        }
    }
};
