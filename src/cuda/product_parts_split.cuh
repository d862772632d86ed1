/* The columns of b on their way into planes, which product_parts.cuh includes in its namespace. */

/* The weight that a column is of, which then counts from the weight's first. */
__device__ inline const rl_product_weight &weight_of(const rl_product_args &p, int64_t &column)
{
    const rl_product_weight *weight = p.weights;
#pragma unroll
    for (int i = 1; i < RL_PRODUCT_WEIGHTS; i++)
        if (weight == p.weights + i - 1 && column >= weight->columns) {
            column -= weight->columns;
            weight++;
        }
    return *weight;
}

/* Four neighbours of any type that float32 holds, which begin at a multiple of as many bytes. */
__device__ inline void load_four(const void *data, int dtype, int64_t at, float *value)
{
    if (dtype == RILL_F32) {
        const Quad<float> quad = *(const Quad<float> *)((const float *)data + at);
#pragma unroll
        for (int j = 0; j < 4; j++) value[j] = quad.get(j);
        return;
    }
    const Quad<bf16> quad = *(const Quad<bf16> *)((const bf16 *)data + at);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint16_t bits = quad.get(j).bits;
        value[j] = dtype == RILL_BF16 ? widen(bf16{bits}) : widen(f16{bits});
    }
}

/* One by one, out of line: code that is run once comes from memory, line by line. */
__device__ __attribute__((noinline)) inline float load_one(const void *data, int dtype, int64_t at)
{
    return load_any<float>(data, dtype, at);
}

/* What belongs together along k of one of b's columns. */
__device__ inline void fetch_b(const rl_product_args &p, float (&value)[MINE], int64_t column, int64_t k)
{
    const bool there = column < p.columns;
    const rl_product_weight &weight = weight_of(p, column);
    const int64_t row = column * weight.row;
    if (weight.wide && there && k + MINE - 1 < p.inner) {
#pragma unroll
        for (int i = 0; i < MINE; i += 4) load_four(weight.data, weight.dtype, row + k + i, &value[i]);
        return;
    }
#pragma unroll
    for (int i = 0; i < MINE; i++)
        value[i] = there && k + i < p.inner ? load_one(weight.data, weight.dtype, row + (k + i) * weight.lane) : 0.0f;
}

/*
 * A chunk of b on its way into planes: a warp takes 8 columns at a time.  Columns are in another order than in
 * memory, so that those of a thread's sums come in fours:  c = 16 m + 4 q + 2 h + e  is the units'  16 m + 8 h + 2 q
 * + e.
 */
template <typename Way> struct Split {
    static constexpr int WARPS = Way::GROUPS * 4, PLANE = Way::COLUMNS * LINE;
    static constexpr int ITEMS = (Way::COLUMNS / 8 + WARPS - 1) / WARPS;

    float value[ITEMS][MINE];

    __device__ static int line_of(int item)
    {
        return (item * WARPS + (int)threadIdx.x / 32) * 8 + (int)threadIdx.x % 32 / 4;
    }

    __device__ void fetch(const rl_product_args &p, int64_t column0, int64_t chunk)
    {
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            const int n = line_of(item);
            if (n >= Way::COLUMNS) continue;
            const int column = n / 16 * 16 + n % 8 / 2 * 4 + n / 8 % 2 * 2 + n % 2;
            fetch_b(p, value[item], column0 + column, chunk * CHUNK + threadIdx.x % 4 * MINE);
        }
    }

    /* Of columns as lines have them: scales up, and behind them down. */
    __device__ static float *scales()
    {
        return (float *)(dynamic_shared + Way::FEED);
    }

    /* The largest of each column so far. */
    __device__ void measure(float (&most)[ITEMS]) const
    {
#pragma unroll
        for (int item = 0; item < ITEMS; item++)
#pragma unroll
            for (int i = 0; i < MINE; i++) most[item] = fmaxf(most[item], fabsf(value[item][i]));
    }
    __device__ static void put_scales(const float (&most)[ITEMS])
    {
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            const float two = fmaxf(most[item], __shfl_xor_sync(~0u, most[item], 1));
            const Scale scale = scale_of(fmaxf(two, __shfl_xor_sync(~0u, two, 2)));
            const int line = line_of(item);
            if (line >= Way::COLUMNS || threadIdx.x % 4 != 0) continue;
            scales()[line] = scale.up;
            scales()[Way::COLUMNS + line] = scale.down;
        }
    }

    __device__ void put(int slot) const
    {
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            const int line = line_of(item);
            if (line >= Way::COLUMNS) continue;
            unsigned char *to =
                dynamic_shared + Way::FEED + Way::SCALE_BYTES + slot * Way::SLOT + line * LINE + threadIdx.x % 4 * 4;
            const float up = Way::SCALES ? scales()[line] : 1;
#pragma unroll
            for (int unit = 0; unit < MINE / 2; unit++) { /* 16 bytes of a line, as its swizzle exchanges them */
                const float low = value[item][2 * unit], high = value[item][2 * unit + 1];
                uint32_t part[Way::B_PARTS];
                if constexpr (Way::SCALES)
                    split_halves(low * up, high * up, part);
                else if constexpr (Way::NUMBER == F16)
                    part[0] = float_to_half(low) | (uint32_t)float_to_half(high) << 16;
                else
                    split(low, high, part);
#pragma unroll
                for (int i = 0; i < Way::B_PARTS; i++)
                    *(uint32_t *)(to + i * PLANE + (unit ^ (line / 2 % 4)) * UNIT) = part[i];
            }
        }
    }
};

/* Calls take(split, chunk) for the first `count` of b's chunks, so many of which are on their way at a time. */
template <typename Way, int TOGETHER, class Take>
__device__ inline void go_through(const rl_product_args &p, int64_t column0, int count, Take &&take)
{
    for (int first = 0; first < count; first += TOGETHER) {
        Split<Way> split[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (first + i < count) split[i].fetch(p, column0, first + i);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (first + i < count) take(split[i], first + i);
    }
}

/* The scales of columns, from so many chunks. */
template <typename Way, int TOGETHER>
__device__ inline void find_scales(const rl_product_args &p, int64_t column0, int chunks)
{
    float most[Split<Way>::ITEMS] = {};
    go_through<Way, TOGETHER>(p, column0, chunks, [&](const Split<Way> &split, int) { split.measure(most); });
    Split<Way>::put_scales(most);
    __syncwarp(); /* the scales of the warp's own lines, but for their way back, are there */
}

/* Brings the first `count` of b's chunks into slots of their own. */
template <typename Way>
__device__ inline void fill_planes(const rl_product_args &p, int64_t column0, int chunks, int count)
{
    constexpr int TOGETHER = Way::SCALES ? 3 : 4; /* on their way at a time */
    if constexpr (Way::SCALES) find_scales<Way, TOGETHER>(p, column0, chunks);
    go_through<Way, TOGETHER>(p, column0, count, [](const Split<Way> &split, int chunk) { split.put(chunk); });
}
