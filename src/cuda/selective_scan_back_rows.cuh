/* Where a tile's rows lie in memory, and fours of their elements, which selective_scan_back.cuh includes in its
 * namespace. */

enum Tensor { OF_X, OF_DELTA, OF_DY, OF_Z, OF_DX, OF_DDELTA, OF_DZ, OF_B, OF_C, TENSORS };

__device__ inline const rl_s6_view &view_of(const rl_s6_back_args &args, int tensor)
{
    switch (tensor) {
    case OF_X:
        return args.scan.x;
    case OF_DELTA:
        return args.scan.delta;
    case OF_DY:
        return args.dy;
    case OF_Z:
        return args.scan.z;
    case OF_DX:
        return args.dx;
    case OF_DDELTA:
        return args.ddelta;
    case OF_DZ:
        return args.dz;
    case OF_B:
        return args.scan.B;
    default:
        return args.scan.C;
    }
}

__device__ inline int bytes_of(const rl_s6_view &view)
{
    return view.dtype == RILL_F64 ? 8 : view.dtype == RILL_F32 ? 4 : 2;
}

/* What a kernel of one form knows of its tensors: the forms are told in s6_back_kernels.h. */
__host__ __device__ constexpr bool is_neat(int form)
{
    return form != RL_S6_BACK_ANY;
}
__host__ __device__ constexpr bool has_one_panel(int form)
{
    return form >= RL_S6_BACK_NEAT_F32;
}
__host__ __device__ constexpr bool is_brain(int form, int tensor)
{
    return form == RL_S6_BACK_NEAT_BF16 || (form == RL_S6_BACK_NEAT_MIXED &&
                                            (tensor == OF_X || tensor == OF_DY || tensor == OF_Z || tensor == OF_DZ));
}
template <int form> __device__ inline int dtype_of(const rl_s6_view &view, int tensor)
{
    return !has_one_panel(form) ? view.dtype : is_brain(form, tensor) ? (int)RILL_BF16 : (int)RILL_F32;
}
template <int form> __device__ inline int bytes_in(const rl_s6_view &view, int tensor)
{
    return !has_one_panel(form) ? bytes_of(view) : is_brain(form, tensor) ? 2 : 4;
}

/*
 * In shared memory, where they cost no thread its registers: of each tensor every `apart`th row of a tile from the
 * first on, from the block's first channel on.
 */
template <int rows, int apart = 1> struct RowsOf {
    char *row[TENSORS][rows];

    /* From step `first` of a piece on. */
    __device__ void find(const rl_s6_back_args &args, const Block &block, const Piece &piece, int64_t first)
    {
        for (int i = threadIdx.x; i < TENSORS * rows; i += blockDim.x) {
            const int tensor = i / rows;
            const rl_s6_view &view = view_of(args, tensor);
            const int64_t lane = tensor >= OF_B ? block.group * view.group : block.channel * view.lane;
            const int64_t at = first_row(args.scan, view, piece) + (first + i % rows * apart) * view.step + lane;
            row[tensor][i % rows] = (char *)view.data + at * bytes_of(view);
        }
    }

    /* Those `steps` on from others. */
    __device__ void move(const RowsOf &from, const int64_t (&stride)[TENSORS], int steps)
    {
        for (int i = threadIdx.x; i < TENSORS * rows; i += blockDim.x)
            row[i / rows][i % rows] = from.row[i / rows][i % rows] + steps * stride[i / rows];
    }
};

using Rows = RowsOf<ROWS, TILE / ROWS>;

/* Bytes of a step. */
__device__ inline void find_strides(const rl_s6_back_args &args, int64_t (&stride)[TENSORS])
{
    if (threadIdx.x >= TENSORS) return;
    const rl_s6_view &view = view_of(args, threadIdx.x);
    stride[threadIdx.x] = view.step * bytes_of(view);
}

/* Four neighbours as they lie in memory, so that a load can be issued long before its first use. */
template <typename Acc> struct Raw;
template <> struct Raw<float> {
    uint4 bits;
};
template <> struct Raw<double> {
    double value[4];
};

/* One element: out of line, for these are the rare ones. */
template <typename Acc> __device__ __attribute__((noinline)) Acc load_one(const void *data, int dtype, int64_t index)
{
    return load_any<Acc>(data, dtype, index);
}
template <typename Acc>
__device__ __attribute__((noinline)) void store_one(void *data, int dtype, int64_t index, Acc value)
{
    store_any<Acc>(data, dtype, index, value);
}

/* `full`: there are four, and they are one access.  Otherwise they come one by one, in the accumulation type. */
template <int form>
__device__ inline Raw<float> load_raw(float, const void *data, const rl_s6_view &view, int tensor, bool full,
                                      int count)
{
    if (full && dtype_of<form>(view, tensor) == RILL_F32) return {*(const uint4 *)data};
    if (full) {
        const uint2 two = *(const uint2 *)data;
        return {make_uint4(two.x, two.y, 0, 0)};
    }
    float one[4];
#pragma unroll
    for (int k = 0; k < 4; k++) one[k] = k < count ? load_one<float>(data, view.dtype, k * view.lane) : 0.0f;
    return {make_uint4(__float_as_uint(one[0]), __float_as_uint(one[1]), __float_as_uint(one[2]),
                       __float_as_uint(one[3]))};
}
template <int form>
__device__ inline Raw<double> load_raw(double, const void *data, const rl_s6_view &view, int, bool full, int count)
{
    Raw<double> raw;
    if (full && view.dtype == RILL_F64) {
        const double2 *const pairs = (const double2 *)data, first = pairs[0], second = pairs[1];
        return {{first.x, first.y, second.x, second.y}};
    }
#pragma unroll
    for (int k = 0; k < 4; k++) raw.value[k] = k < count ? load_one<double>(data, view.dtype, k * view.lane) : 0.0;
    return raw;
}

template <int form>
__device__ inline void unpack(const Raw<double> &raw, const rl_s6_view &, int, bool, double (&to)[4])
{
#pragma unroll
    for (int k = 0; k < 4; k++) to[k] = raw.value[k];
}
template <int form>
__device__ inline void unpack(const Raw<float> &raw, const rl_s6_view &view, int tensor, bool full, float (&to)[4])
{
    const uint32_t word[4] = {raw.bits.x, raw.bits.y, raw.bits.z, raw.bits.w};
    const int dtype = dtype_of<form>(view, tensor);
    if (!full || dtype == RILL_F32) {
#pragma unroll
        for (int k = 0; k < 4; k++) to[k] = __uint_as_float(word[k]);
    } else if (dtype == RILL_BF16) {
#pragma unroll
        for (int k = 0; k < 4; k++) to[k] = widen(bf16{(uint16_t)(word[k / 2] >> (k % 2 * 16))});
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++) to[k] = widen(f16{(uint16_t)(word[k / 2] >> (k % 2 * 16))});
    }
}

__device__ inline uint32_t pack(float low, float high, bool brain)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    return brain ? pack_bfloats(low, high) : pack_halves(low, high);
#else
    const uint32_t first = brain ? narrow<bf16>(low).bits : narrow<f16>(low).bits;
    const uint32_t second = brain ? narrow<bf16>(high).bits : narrow<f16>(high).bits;
    return first | second << 16;
#endif
}

__device__ inline void store_whole(void *data, const float (&from)[4], int dtype)
{
    const bool brain = dtype == RILL_BF16;
    if (dtype == RILL_F32)
        *(float4 *)data = make_float4(from[0], from[1], from[2], from[3]);
    else
        *(uint2 *)data = make_uint2(pack(from[0], from[1], brain), pack(from[2], from[3], brain));
}
__device__ inline void store_whole(void *data, const double (&from)[4], int)
{
    ((double2 *)data)[0] = make_double2(from[0], from[1]);
    ((double2 *)data)[1] = make_double2(from[2], from[3]);
}

template <int form, typename Acc>
__device__ inline void store_four(void *data, const rl_s6_view &view, int tensor, bool full, int count,
                                  const Acc (&from)[4])
{
    if (full && (sizeof(Acc) == 4 || view.dtype == RILL_F64)) {
        store_whole(data, from, dtype_of<form>(view, tensor));
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (k < count) store_one<Acc>(data, view.dtype, k * view.lane, from[k]);
}
