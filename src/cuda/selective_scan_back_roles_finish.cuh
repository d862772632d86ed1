/* How threads take a tile's steps, and finish those walked: selective_scan_back_roles.cu includes it in its
 * namespace. */

/* Whether all of a job's steps and channels exist. */
__device__ inline bool is_whole(const Job &job)
{
    return job.steps == TILE && job.channels == COLUMNS;
}

/* A thread's four channels of steps 2 two and 2 two + 1. */
template <int form> struct Quads {
    const rl_s6_back_args &args;
    const int two, column;

    __device__ Quads(const rl_s6_back_args &args, int two, int column) : args(args), two(two), column(column)
    {
    }

    /* Those of the first step in a tensor; the second's lie a pace on. */
    __device__ char *find(const Job &job, int tensor) const
    {
        return job.at[tensor] +
               (two * 2 * (int)args.pace[tensor] + column * bytes_in<form>(view_of(args, tensor), tensor));
    }
    /* Steps that exist. */
    __device__ int count(const Job &job) const
    {
        return column < job.channels ? job.steps - two * 2 : 0;
    }
    /*
     * What does not exist becomes 0, but for step sizes, which become so small that softplus and its slope make 0 of
     * them.
     */
    template <bool whole> __device__ void fetch(const Job &job, int tensor, Raw<float> (&to)[2]) const
    {
        const char *const from = find(job, tensor);
        const uint32_t bits = tensor == OF_DELTA ? 0xf149f149u : 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (!whole) to[i].bits = make_uint4(bits, bits, bits, bits);
            if (whole || i < count(job))
                to[i] = load_raw<form>(float(), from + i * args.pace[tensor], view_of(args, tensor), tensor, true, 4);
        }
    }
};

/* Those of a tile that a walking thread finishes: of its warp's channels. */
template <int form> __device__ inline Quads<form> walked_quads(const rl_s6_back_args &args)
{
    const int thread = threadIdx.x % TEAM;
    return Quads<form>(args, thread % 32 / (WARP / 4), thread / 32 * WARP + thread % (WARP / 4) * 4);
}
/* Those of a part that a helping lane prepares. */
template <int form> __device__ inline Quads<form> prepared_quads(const rl_s6_back_args &args, int part)
{
    const int lane = threadIdx.x & 31;
    return Quads<form>(args, part * (PART / 2) + lane / (COLUMNS / 4), lane % (COLUMNS / 4) * 4);
}

/* What a thread has of a task's dD and ddelta_bias: its channels' in two steps of every tile. */
struct Shares {
    float D[4], bias[4];
};

/* The warps of a team finish the steps of their own channels. */
template <int form> struct Finisher {
    const rl_s6_back_args &args;
    Room &room;
    const Quads<form> quads;

    __device__ Finisher(const rl_s6_back_args &args, Room &room, const Quads<form> &quads)
        : args(args), room(room), quads(quads)
    {
    }

    /* x and the stored step sizes on their way. */
    struct Leaving {
        Raw<float> x[2], delta[2];
    };
    template <bool whole> __device__ void fetch_as(const Job &job, Leaving &to) const
    {
        quads.template fetch<whole>(job, OF_X, to.x);
        quads.template fetch<whole>(job, OF_DELTA, to.delta);
    }
    __device__ void fetch(const Job &job, Leaving &to) const
    {
        is_whole(job) ? fetch_as<true>(job, to) : fetch_as<false>(job, to);
    }

    /* The slopes of step sizes along what is stored. */
    __device__ void slopes_of(const Raw<float> &raw, const Four<float> &bias, float (&slope)[4]) const
    {
        unpack<form>(raw, args.scan.delta, OF_DELTA, true, slope);
#pragma unroll
        for (int k = 0; k < 4; k++) slope[k] = slope_of_small(slope[k] + bias.state[k]);
    }

    /* `whole`: all of the job exists. */
    template <bool whole>
    __device__ void finish(const Job &job, int parity, const Leaving &from, Shares &shares) const
    {
        const int two = quads.two, column = quads.column, count = quads.count(job);
        const float *const sums =
            &room.part[parity][two / (PART / 2)]
                 .number[1][column / WARP * WARP_NUMBERS + two % (PART / 2) * 4 * WARP + column % WARP];
        char *const to_dx = quads.find(job, OF_DX), *const to_ddelta = quads.find(job, OF_DDELTA);
        const Four<float> skip = *(const Four<float> *)&room.skip[job.vectors][column];
        const Four<float> bias = *(const Four<float> *)&room.bias[job.vectors][column];
        Four<float> du[2];
        float2 deltas[4];
#pragma unroll
        for (int k = 0; k < 4; k++) deltas[k] = *(const float2 *)&room.steps[parity][two][slot_of(column) ^ k].delta0;
#pragma unroll
        for (int k = 0; k < 2; k++) du[k] = *(const Four<float> *)&room.du[parity][two][column + 2 * k];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const Four<float> along_B = *(const Four<float> *)&sums[i * 2 * WARP];
            const Four<float> along_delta = *(const Four<float> *)&sums[i * 2 * WARP + WARP];
            float x[4], slope[4], dx[4], ddelta[4];
            unpack<form>(from.x[i], args.scan.x, OF_X, true, x);
            slopes_of(from.delta[i], bias, slope);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float delta = i ? deltas[k].y : deltas[k].x, own = du[k / 2].state[k % 2 * 2 + i];
                dx[k] = fma(own, skip.state[k], product(delta, along_B.state[k]));
                ddelta[k] = product(slope[k], fma(x[k], along_B.state[k], along_delta.state[k]));
                shares.bias[k] += ddelta[k];
                shares.D[k] = fma(own, x[k], shares.D[k]);
            }
            if (!whole && i >= count) continue;
            store_whole(to_dx + i * args.pace[OF_DX], dx, dtype_of<form>(args.dx, OF_DX));
            store_whole(to_ddelta + i * args.pace[OF_DDELTA], ddelta, dtype_of<form>(args.ddelta, OF_DDELTA));
        }
    }

    /* A task's dD and ddelta_bias: the twos of its tiles one after the other. */
    __device__ void finish_task(const Job &job, const Shares &shares) const
    {
        const int64_t at = job.index * args.scan.channels + job.channel + quads.column;
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float D = 0, bias = 0;
#pragma unroll 1
            for (int two = 0; two < TILE / 2; two++) {
                D += __shfl_sync(~0u, shares.D[k], two * (WARP / 4) + lane % (WARP / 4));
                bias += __shfl_sync(~0u, shares.bias[k], two * (WARP / 4) + lane % (WARP / 4));
            }
            if (lane >= WARP / 4 || quads.column + k >= job.channels) continue;
            ((float *)args.D_parts)[at + k] = D;
            ((float *)args.bias_parts)[at + k] = bias;
        }
    }
};
