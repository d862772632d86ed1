/* The walk of a team from job to job, which selective_scan_back_roles.cu includes in its namespace. */

struct Walker : Parts {
    const rl_s6_back_args &args;

    __device__ Walker(const rl_s6_back_args &args, Room &room) : Parts(room), args(args)
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

    /* Where an anchored tile begins: what enters it waits in the place of the task's part of dA. */
    __device__ void enter_tile(const Job &job, Passing &passing) const
    {
        store_each(args.A_parts, job, job.index, G);
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            passing.deltas[j] = 0;
#pragma unroll
            for (int k = 0; k < STATES; k++) passing.carried[j][k] = G[j][k];
        }
    }

    /* Where it ends: takes the errors of rough decays out of what entered it, but for states that fade. */
    __device__ void anchor(const Job &job, const Passing &passing, unsigned fading)
    {
        float entering[OWN][STATES];
        load_each(args.A_parts, job, job.index, entering);
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                const float right = long_decay(rate[j][k], passing.deltas[j]);
                const float error = fma(right, entering[j][k], -passing.carried[j][k]);
                if (!(fading >> (j * STATES + k) & 1)) G[j][k] += error;
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
                rate[j][k] = has(job, j, k) ? rate_of(load_A<float>(args.scan, channel, lane.state_of(0, k))) : FADED;
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

    /* The states before a chunk, where it has any. */
    __device__ void load_start(const Job &job, int parity, float (&start)[OWN][STATES]) const
    {
        if (args.scan.chunks == 1) {
            load_view(args.scan.h_init, job, start);
            return;
        }
#pragma unroll
        for (int j = 0; j < OWN; j++) load_four(&room.part[parity][START_PART].number[j][thread * STATES], start[j]);
    }

    /*
     * The states before a tile, as its parts hold what is kept of them; and what its step sizes come to, less than 0
     * where that is not known.
     */
    __device__ void load_before(const Job &job, int parity, float (&h)[OWN][STATES], float (&fade)[OWN]) const
    {
        const PartRoom *const part = room.part[parity];
        const float *const sums = &part[SUMS_PART].number[0][thread / 32 * WARP_NUMBERS];
        float start[OWN][STATES], before[OWN];
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            const int column = lane.column_of(j) % WARP;
            load_four(&part[KEPT_PART].number[j][thread * STATES], h[j]);
            before[j] = sums[column];
            fade[j] = sums[WARP + column] - before[j];
        }
        if (job.moves) {
            load_start(job, parity, start);
#pragma unroll
            for (int j = 0; j < OWN; j++)
#pragma unroll
                for (int k = 0; k < STATES; k++)
                    h[j][k] =
                        job.leaves ? start[j][k] : fma(distant_decay(rate[j][k], before[j]), start[j][k], h[j][k]);
        }
        __syncwarp(); /* the warp has read what its states will take the place of */
    }

    /* A bit for each chain. */
    __device__ unsigned find_fading(const float (&fade)[OWN]) const
    {
        unsigned fading = 0;
#pragma unroll
        for (int j = 0; j < OWN; j++)
#pragma unroll
            for (int k = 0; k < STATES; k++) fading |= (fades(rate[j][k], fade[j]) ? 1u : 0u) << (j * STATES + k);
        return fading;
    }

    template <bool anchors> __device__ void walk_parts(Places &at, Passing &passing)
    {
#pragma unroll 1
        for (int part = PARTS - 1; part >= 0; part--) {
            walk_part<anchors>(at, passing);
            at.move(-1);
        }
    }

    template <int form> __device__ void walk(const Job &job, int parity, Places &at, Shares &shares)
    {
        float h[OWN][STATES], fade[OWN];
        bool tame = true;
        if (job.begins) tame = begin_task(job);
        if (job.enters) tame = enter_chunk(job) && tame;
        load_before(job, parity, h, fade);
        if (!(tame && is_tame(h))) room.wild[parity] = 1;
        leave_starts(at, h);
        Passing passing;
        const unsigned fading = find_fading(fade);
        if (__all_sync(~0u, fading == (1u << OWN * STATES) - 1)) {
            walk_parts<false>(at, passing);
        } else {
            enter_tile(job, passing);
            walk_parts<true>(at, passing);
            anchor(job, passing, fading);
        }
        __syncwarp(); /* the warp's sums are there */
        const Finisher<form> finisher(args, room, walked_quads<form>(args));
        typename Finisher<form>::Leaving leaving;
        finisher.fetch(job, leaving);
        is_whole(job) ? finisher.template finish<true>(job, parity, leaving, shares)
                      : finisher.template finish<false>(job, parity, leaving, shares);
        if (job.leaves && job.starts && args.dh_init.data) store_initial(job);
        if (!job.ends_task) return;
        store_each(args.A_parts, job, job.index, dA);
        finisher.finish_task(job, shares);
        shares = {};
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
        Shares shares = {};
        for (unsigned i = 0;; i++) {
            const Job &job = room.job[i % JOBS];
            const int parity = i & 1;
            barrier_wait(&room.full[parity], i / 2 & 1);
            if (job.steps == 0) return;
            if (i > 0) at.turn(parity);
            walk<form>(job, parity, at, shares);
            __syncwarp();
            if ((thread & 31) == 0) barrier_arrive(&room.done[parity]);
        }
    }
};
