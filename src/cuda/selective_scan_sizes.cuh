/*
 * What the producers of selective_scan.cuh, which includes this in its namespace, make of raw step sizes: bias,
 * softplus and clamp.
 */

template <typename T, typename U, typename Acc, typename Shape, Pass pass, Work work>
struct Sizer : Fetcher<T, U, Acc, Shape, pass, work> {
    using Base = Fetcher<T, U, Acc, Shape, pass, work>;
    using Base::ACROSS, Base::HELD, Base::task, Base::column, Base::first, Base::count, Base::whole, Base::step_size;
    using Base::raw_x, Base::raw_delta;

    struct alignas(Shape::ACROSS * sizeof(Acc)) Sums {
        Acc sum[ACROSS];
    };

    Tiles<Acc, Shape> &tiles;

    __device__ Sizer(const rl_s6_walk_args &walk, const Task &task, Tiles<Acc, Shape> &tiles)
        : Base(walk, task), tiles(tiles)
    {
    }

    /* Of the thread's channels. */
    __device__ Sums own_of(const Acc (&numbers)[Shape::CHANNELS]) const
    {
        return *(const Sums *)&numbers[column];
    }

    /* Step sizes as they were loaded, with their bias. */
    __device__ void size_steps(Acc (&step)[HELD]) const
    {
        const Sums bias = own_of(tiles.bias);
#pragma unroll
        for (int k = 0; k < HELD; k++)
            step[k] = (Acc)widen(raw_delta[k / ACROSS].get(k % ACROSS)) + bias.sum[k % ACROSS];
    }

    /* What softplus_rough takes. */
    __device__ Acc power_of(int k, const Sums &bias) const
    {
        return fma((Acc)widen(raw_delta[k / ACROSS].get(k % ACROSS)), LOG2_E, LOG2_E * bias.sum[k % ACROSS]);
    }

    /* Step sizes where softplus is all there is to do, and results have 16 bits; false where they are of no use. */
    __device__ bool size_steps_roughly(Acc (&step)[HELD]) const
    {
        const Sums bias = own_of(tiles.bias);
        Acc size = 0;
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            const Acc power = power_of(k, bias);
            size = fmaxf(size, fabsf(power));
            step[k] = softplus_rough(power);
        }
        if (size <= REACH<T>) return true;
        size = 0;
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            const Acc value = (Acc)widen(raw_delta[k / ACROSS].get(k % ACROSS)) + bias.sum[k % ACROSS];
            if (fabsf(power_of(k, bias)) > REACH<T>) step[k] = softplus_of_small(value);
            size = fmaxf(size, fabsf(value));
        }
        return size <= SMALL;
    }

    /* Whether steps or channels of the thread may not exist. */
    __device__ bool is_part(const Stage &stage) const
    {
        return !whole || stage.steps(task) < STEPS;
    }

    /* Steps and channels that do not exist become δ = δx = 0: they do nothing. */
    __device__ void leave_out(const Stage &stage, Acc (&step)[HELD])
    {
        const int there = stage.steps(task) - hidden(first);
#pragma unroll
        for (int k = 0; k < HELD; k++)
            if (k / ACROSS >= there || k % ACROSS >= count) step[k] = 0;
        if constexpr (work == WHOLE) {
#pragma unroll
            for (int s = 0; s < GROUP; s++)
                if (s >= there) raw_x[s] = {}; /* of an earlier tile */
        }
    }

    /* The same bits as from the usual way for whatever that would take. */
    __device__ void any_soft(Acc &step, Acc raw, Acc more) const
    {
        step_size.any_soft(step);
        if constexpr (sizeof(T) == 2) {
            const Acc power = fma(raw, LOG2_E, LOG2_E * more);
            if (fabsf(power) <= REACH<T>) step = softplus_rough(power);
        }
    }
};
