/* Where a tile's rows lie in memory, and fours of their elements, which selective_scan_back.cuh includes in its
 * namespace. */

enum Tensor { OF_X, OF_DELTA, OF_DY, OF_Z, OF_DX, OF_DDELTA, OF_DZ, OF_B, OF_C, TENSORS };

__device__ inline const rl_s6_view &view_of(const rl_s6_back_args &args, int tensor)
{
    switch (tensor) {
    case OF_X: return args.scan.x;
    case OF_DELTA: return args.scan.delta;
    case OF_DY: return args.dy;
    case OF_Z: return args.scan.z;
    case OF_DX: return args.dx;
    case OF_DDELTA: return args.ddelta;
    case OF_DZ: return args.dz;
    case OF_B: return args.scan.B;
    default: return args.scan.C;
    }
}

__device__ inline int bytes_of(const rl_s6_view &view)
{
    return view.dtype == RILL_F64 ? 8 : view.dtype == RILL_F32 ? 4 : 2;
}

/* In shared memory: each tensor's first row of a tile, from the block's first channel on. */
struct Rows {
    char *row[TENSORS];

    /* A thread a tensor, of step `first` of a piece. */
    __device__ void find(const rl_s6_back_args &args, const Block &block, const Piece &piece, int64_t first)
    {
        const int tensor = threadIdx.x;
        if (tensor >= TENSORS) return;
        const rl_s6_view &view = view_of(args, tensor);
        const int64_t lane = tensor >= OF_B ? block.group * view.group : block.channel * view.lane;
        row[tensor] =
            (char *)view.data + (first_row(args.scan, view, piece) + first * view.step + lane) * bytes_of(view);
    }
};

/* Four neighbours as they lie in memory, so that a load can be issued long before its first use. */
template <typename Acc> struct alignas(16) Raw {
    uint32_t word[sizeof(Acc)];
};

/* One by one; the result is of the accumulation type. */
template <typename Acc> __device__ __attribute__((noinline)) Raw<Acc> gather(const void *data, int dtype, int64_t lane, int count)
{
    Raw<Acc> raw;
    Acc *to = (Acc *)raw.word;
    for (int k = 0; k < 4; k++) to[k] = k < count ? load_any<Acc>(data, dtype, k * lane) : Acc(0);
    return raw;
}
template <typename Acc>
__device__ __attribute__((noinline)) void scatter(void *data, int dtype, int64_t lane, int count, Raw<Acc> raw)
{
    const Acc *from = (const Acc *)raw.word;
    for (int k = 0; k < 4 && k < count; k++) store_any<Acc>(data, dtype, k * lane, from[k]);
}

template <typename Acc> __device__ inline int own_type()
{
    return sizeof(Acc) == 4 ? RILL_F32 : RILL_F64;
}

/* `full`: there are four, and they are one access. */
template <typename Acc>
__device__ inline Raw<Acc> load_raw(const void *data, const rl_s6_view &view, bool full, int count)
{
    if (!full || (sizeof(Acc) == 8 && view.dtype != RILL_F64)) return gather<Acc>(data, view.dtype, view.lane, count);
    Raw<Acc> raw;
    uint4 *to = (uint4 *)raw.word;
    if (sizeof(Acc) == 8) {
        to[0] = ((const uint4 *)data)[0];
        to[sizeof(Acc) / 8] = ((const uint4 *)data)[1];
    } else if (view.dtype == RILL_F32) {
        to[0] = *(const uint4 *)data;
    } else {
        const uint2 two = *(const uint2 *)data;
        to[0] = make_uint4(two.x, two.y, 0, 0);
    }
    return raw;
}

template <typename Acc>
__device__ inline void unpack(const Raw<Acc> &raw, const rl_s6_view &view, bool full, Acc (&to)[4])
{
    if (sizeof(Acc) == 8 || !full || view.dtype == RILL_F32) {
#pragma unroll
        for (int k = 0; k < 4; k++) to[k] = ((const Acc *)raw.word)[k];
        return;
    }
    const bool brain = view.dtype == RILL_BF16;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const uint16_t bits = (uint16_t)(raw.word[k / 2] >> (k % 2 * 16));
        to[k] = brain ? widen(bf16{bits}) : widen(f16{bits});
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

template <typename Acc>
__device__ inline void store_four(void *data, const rl_s6_view &view, bool full, int count, const Acc (&from)[4])
{
    if (full && view.dtype == own_type<Acc>()) {
        Raw<Acc> raw;
#pragma unroll
        for (int k = 0; k < 4; k++) ((Acc *)raw.word)[k] = from[k];
        *(Raw<Acc> *)data = raw;
    } else if (full && sizeof(Acc) == 4) {
        const bool brain = view.dtype == RILL_BF16;
        *(uint2 *)data = make_uint2(pack((float)from[0], (float)from[1], brain),
                                    pack((float)from[2], (float)from[3], brain));
    } else {
        Raw<Acc> raw;
#pragma unroll
        for (int k = 0; k < 4; k++) ((Acc *)raw.word)[k] = from[k];
        scatter<Acc>(data, view.dtype, view.lane, count, raw);
    }
}
