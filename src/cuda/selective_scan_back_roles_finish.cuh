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

/* The warps of a team finish the steps of their own channels. */
template <int form> struct Finisher {
    const rl_s6_back_args &args;
    Room &room;
    const Quads<form> quads;

    __device__ Finisher(const rl_s6_back_args &args, Room &room)
        : args(args), room(room),
          quads(args, threadIdx.x % 32 / (WARP / 4), threadIdx.x % TEAM / 32 * WARP + threadIdx.x % (WARP / 4) * 4)
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
        for (int k = 0; k < 4; k++) {
            const float value = slope[k] + bias.state[k];
            slope[k] = softplus_slope(value, decay_of_small(value));
        }
    }

    /* `whole`: all of the job exists. */
    template <bool whole> __device__ void finish(const Job &job, int parity, const Leaving &from) const
    {
        const int two = quads.two, column = quads.column, count = quads.count(job);
        const float *const sums =
            &room.part[parity][two / (PART / 2)]
                 .number[1][column / WARP * WARP_NUMBERS + two % (PART / 2) * 4 * WARP + column % WARP];
        char *const to_dx = quads.find(job, OF_DX), *const to_ddelta = quads.find(job, OF_DDELTA);
        const Four<float> skip = *(const Four<float> *)&room.skip[job.vectors][column];
        const Four<float> bias = *(const Four<float> *)&room.bias[job.vectors][column];
        Four<float> &all_D = *(Four<float> *)&room.shares[0][two][column];
        Four<float> &all_bias = *(Four<float> *)&room.shares[1][two][column];
        Four<float> dD = all_D, dbias = all_bias, du[2];
        TwoSteps steps[4];
#pragma unroll
        for (int k = 0; k < 4; k++) steps[k] = room.steps[parity][two][slot_of(column) ^ k];
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
                const float delta = i ? steps[k].delta1 : steps[k].delta0, own = du[k / 2].state[k % 2 * 2 + i];
                dx[k] = fma(own, skip.state[k], product(delta, along_B.state[k]));
                ddelta[k] = product(slope[k], fma(x[k], along_B.state[k], along_delta.state[k]));
                dbias.state[k] += ddelta[k];
                dD.state[k] = fma(own, x[k], dD.state[k]);
            }
            if (!whole && i >= count) continue;
            store_whole(to_dx + i * args.pace[OF_DX], dx, dtype_of<form>(args.dx, OF_DX));
            store_whole(to_ddelta + i * args.pace[OF_DDELTA], ddelta, dtype_of<form>(args.ddelta, OF_DDELTA));
        }
        all_D = dD;
        all_bias = dbias;
    }

    /* The warp's channels of a task's dD and ddelta_bias, which begin anew: a lane one of one. */
    __device__ void finish_task(const Job &job) const
    {
        const int kind = threadIdx.x % 32 / WARP, at = threadIdx.x % TEAM / 32 * WARP + threadIdx.x % WARP;
        float sum = 0;
        __syncwarp(); /* its sums are complete */
        for (int row = 0; row < TILE / 2; row++) {
            sum += room.shares[kind][row][at];
            room.shares[kind][row][at] = 0;
        }
        if (at >= job.channels) return;
        ((float *)(kind ? args.bias_parts : args.D_parts))[job.index * args.scan.channels + job.channel + at] = sum;
    }
};
