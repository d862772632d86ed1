/*
 * What helpers do, which selective_scan_back_roles.cu includes in its namespace: they bring a tile into its stage.
 * One warp, a Helper, has the steps of a team; one more, the Clerk, has the rest:
 * selective_scan_back_roles_clerk.cuh. The arithmetic is that of selective_scan_back_prepare.cuh.
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

    template <bool whole> __device__ void fetch_as(const Job &job, int part, Coming &to) const
    {
        const Quads<form> quads = prepared_quads<form>(args, part);
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

    /* Answers whether the fast order may have the lane's. */
    __device__ bool put_steps(const Job &job, int parity, int part, const Coming &from) const
    {
        const Quads<form> quads = prepared_quads<form>(args, part);
        const int two = quads.two, column = quads.column;
        const Four<float> bias = *(const Four<float> *)&room.bias[job.vectors][column];
        float delta[2][4], input[2][4], du[2][4];
        bool all = true;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const bool tame = size_steps(from, bias, i, delta[i], input[i], du[i]);
            all = all && (tame || i >= quads.count(job));
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            room.steps[parity][two][slot_of(column) ^ k] = {delta[0][k], delta[1][k], input[0][k], input[1][k]};
#pragma unroll
        for (int k = 0; k < 4; k += 2) {
            const Four<float> pair = {{du[0][k], du[1][k], du[0][k + 1], du[1][k + 1]}};
            *(Four<float> *)&room.du[parity][two][column + k] = pair;
        }
        return all;
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

    /* Of a job that has been walked: whether it, and so its task, was wild. */
    __device__ void note_wild(const Job &job, int i, bool &task_wild) const
    {
        const bool wild = room.wild[i & 1] || room.strange[i & 3];
        task_wild = (task_wild && !job.begins) || wild;
        __syncwarp(); /* all have read it */
        if (lane != 0) return;
        if (job.ends_task) args.again[job.task] = task_wild;
        room.wild[i & 1] = 0;
    }

    /* Brings a job; the steps of the next part are always on their way. */
    __device__ void bring(const Job &job, const Job &next, int i, Coming &coming, bool &task_wild) const
    {
        const int parity = i & 1;
        bool tame = true;
        barrier_wait(&room.done[parity], (i / 2 & 1) ^ 1); /* which the first two jobs pass */
        if (i >= 2) note_wild(room.job[(i - 2) & (JOBS - 1)], i - 2, task_wild);
        if (job.begins) load_vectors(job);
#pragma unroll 1
        for (int part = PARTS - 1; part >= 0; part--) {
            tame = put_steps(job, parity, part, coming) && tame;
            fetch(part > 0 ? job : next, (part + PARTS - 1) % PARTS, coming);
        }
        tame = __all_sync(~0u, tame);
        if (lane == 0) room.strange[i & 3] = !tame;
    }

    __device__ void run() const
    {
        Coming coming;
        bool task_wild = false;
        fetch(room.job[0], PARTS - 1, coming);
        for (int i = 0;; i++) {
            const Job &job = room.job[i & (JOBS - 1)];
            if (job.steps > 0) {
                bring(job, room.job[(i + 1) & (JOBS - 1)], i, coming, task_wild);
                hand_over(&room.full[i & 1]);
                continue;
            }
            hand_over(&room.full[i & 1]);
            for (int last = i < 2 ? 0 : i - 2; last < i; last++) {
                barrier_wait(&room.done[last & 1], last / 2 & 1);
                note_wild(room.job[last & (JOBS - 1)], last, task_wild);
            }
            return;
        }
    }
};
