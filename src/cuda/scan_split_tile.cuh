/*
 * How a tile of the split scan comes into shared memory, from there into registers, and how results go out.
 *
 * A tile is `chunks` sub-chunks of STEPS steps by `lanes` channels; thread k lanes + c owns sub-chunk k of channel c.
 * In shared memory it lies as T[step][lane] with the low five bits of an element's place turned by its sub-chunk
 * (Places), so that the threads of a warp, a sub-chunk apart, meet different banks.  Where the steps of a channel are
 * neighbours (RUNS) it lies as in memory, 16 bytes at a time, turned within 128 bytes.
 */
#ifndef RL_CUDA_SCAN_SPLIT_TILE_CUH
#define RL_CUDA_SCAN_SPLIT_TILE_CUH

#include "scan_recurrence.cuh"
#include "scan_split_args.h"

constexpr int THREADS = RL_SPLIT_THREADS;

/* The elements of a sub-chunk in registers, packed as they lie in memory. */
template <typename T, int STEPS> struct Chunk {
    static constexpr int WORDS = STEPS * (int)sizeof(T) / 4;
    uint32_t word[WORDS];

    __device__ T get(int k) const
    {
        if constexpr (sizeof(T) == 2)
            return T{(uint16_t)(word[k / 2] >> (k % 2 * 16))};
        else
            return get_words(k, T{});
    }
    __device__ void set(int k, T value)
    {
        if constexpr (sizeof(T) == 2)
            word[k / 2] = __byte_perm(word[k / 2], value.bits, k % 2 == 0 ? 0x3254 : 0x5410);
        else
            set_words(k, value);
    }
    __device__ uint4 quarter(int q) const /* 16 bytes of it */
    {
        return make_uint4(word[4 * q], word[4 * q + 1], word[4 * q + 2], word[4 * q + 3]);
    }
    __device__ void set_quarter(int q, uint4 value)
    {
        word[4 * q] = value.x;
        word[4 * q + 1] = value.y;
        word[4 * q + 2] = value.z;
        word[4 * q + 3] = value.w;
    }

  private:
    __device__ float get_words(int k, float) const
    {
        return __uint_as_float(word[k]);
    }
    __device__ double get_words(int k, double) const
    {
        return __hiloint2double((int)word[2 * k + 1], (int)word[2 * k]);
    }
    template <typename Real> __device__ Complex<Real> get_words(int k, Complex<Real>) const
    {
        return {get_words(2 * k, Real{}), get_words(2 * k + 1, Real{})};
    }
    __device__ void set_words(int k, float value)
    {
        word[k] = __float_as_uint(value);
    }
    __device__ void set_words(int k, double value)
    {
        word[2 * k] = (uint32_t)__double2loint(value);
        word[2 * k + 1] = (uint32_t)__double2hiint(value);
    }
    template <typename Real> __device__ void set_words(int k, Complex<Real> value)
    {
        set_words(2 * k, value.re);
        set_words(2 * k + 1, value.im);
    }
};

/* The type of an element's bits alone: elements of 16 bytes may be aligned to 8. */
template <typename T> __device__ inline void copy_async(void *to, const T *from, bool given)
{
    const uint32_t shared = (uint32_t)__cvta_generic_to_shared(to);
    if constexpr (sizeof(T) == 16) {
        const int bytes = given ? 8 : 0;
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared + 8), "l"((const char *)from + 8),
                     "r"(bytes)
                     : "memory");
    } else {
        const int bytes = given ? (int)sizeof(T) : 0;
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(from), "n"((int)sizeof(T)),
                     "r"(bytes)
                     : "memory");
    }
}

/* The first `bytes` of 16; the rest becomes 0. */
__device__ inline void copy_async_16(void *to, const void *from, int bytes)
{
    const uint32_t shared = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void close_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int open> __device__ inline void wait_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
}

/*
 * The tile at hand: a group's channels, and some steps of a sequence.  Steps count from `skew` before its first one,
 * so that units of 16 bytes begin at multiples of 16 bytes: 0 but for RUNS.
 */
struct Tile {
    Span span;
    int64_t sequence;
    int64_t place;   /* among the group's tiles; negative: no tile is left */
    int64_t ordinal; /* in its sequence */
    int64_t channel; /* its first one */
    int64_t first;   /* step */
    int group, skew;
    int count;    /* steps that the sequence has from `first` on, at most those of a tile */
    bool is_last; /* of its sequence */

    /* The element of its first step. */
    __device__ int64_t at(const rl_scan_view &view, int64_t lane, bool down) const
    {
        return span.at(view, channel + lane, down) + (first - skew) * view.step;
    }
};

/* Where elements lie in shared memory. */
template <typename T, int STEPS, rl_split_layout layout> struct Places {
    static constexpr int TILE = STEPS * THREADS;     /* elements */
    static constexpr int UNIT = 16 / (int)sizeof(T); /* elements of 16 bytes; RUNS and ROWS */
    static constexpr int QUARTERS = STEPS / (UNIT > 0 ? UNIT : 1);
    static constexpr int ROW = rl_split_row((int)sizeof(T)); /* ROWS */
    const int chosen_log2;
    const bool down;

    __device__ int lanes_log2() const
    {
        return layout == RL_SPLIT_ROWS ? ROW : layout == RL_SPLIT_RUNS ? 0 : chosen_log2;
    }
    __device__ int lanes() const
    {
        return 1 << lanes_log2();
    }
    __device__ int steps() const
    {
        return TILE >> lanes_log2();
    }
    __device__ int chunks() const
    {
        return THREADS >> lanes_log2();
    }
    /* Step k of a sub-chunk. */
    __device__ int at(int chunk, int k, int lane) const
    {
        return (chunk * STEPS << lanes_log2()) + (((k << lanes_log2()) + lane) ^ turn(chunk));
    }
    __device__ int turn(int chunk) const
    {
        return (chunk << lanes_log2()) & ((STEPS << lanes_log2()) - 1) & 31;
    }
    /* The first 16 bytes of a sub-chunk in the order of running; `quarter` times 16 turns that into the others. */
    __device__ int first_quarter(int chunk) const
    {
        const int unit = down ? (THREADS - chunk) * QUARTERS - 1 : chunk * QUARTERS;
        return turned(unit) * 16;
    }
    __device__ static int turned(int unit)
    {
        return unit ^ (unit >> 3 & 7);
    }
};

/* Where a thread's own elements lie: in few registers, so that they need not be found again at each step. */
template <typename T, int STEPS, rl_split_layout layout> struct OwnPlaces {
    static constexpr int PERIOD = layout == RL_SPLIT_ROWS ? 32 >> Places<T, STEPS, layout>::ROW : 1;
    int place[PERIOD];
    int lane, turn, log2; /* ANY */

    __device__ OwnPlaces(const Places<T, STEPS, layout> &places, int chunk, int lane)
        : lane(lane), turn(places.turn(chunk)), log2(places.lanes_log2())
    {
        if (layout == RL_SPLIT_RUNS) place[0] = places.first_quarter(chunk);
        if (layout == RL_SPLIT_ANY) place[0] = chunk * STEPS << log2;
        if (layout == RL_SPLIT_ROWS) {
#pragma unroll
            for (int k = 0; k < PERIOD; k++) place[k] = places.at(chunk, k, lane);
        }
    }
    __device__ T get(const T *landed, int k) const /* ROWS, ANY */
    {
        if constexpr (layout == RL_SPLIT_ROWS) return landed[place[k % PERIOD] + k / PERIOD * 32];
        return landed[place[0] + (((k << log2) + lane) ^ turn)];
    }
    __device__ uint4 get_quarter(const T *landed, int quarter) const /* RUNS */
    {
        return *(const uint4 *)((const char *)landed + (place[0] ^ (quarter * 16)));
    }
};

/* 16 bytes of elements from the last to the first. */
template <typename T> __device__ inline uint4 reversed(uint4 v)
{
    if constexpr (sizeof(T) == 2)
        return make_uint4(__byte_perm(v.w, 0, 0x1032), __byte_perm(v.z, 0, 0x1032), __byte_perm(v.y, 0, 0x1032),
                          __byte_perm(v.x, 0, 0x1032));
    else if constexpr (sizeof(T) == 4)
        return make_uint4(v.w, v.z, v.y, v.x);
    else
        return make_uint4(v.z, v.w, v.x, v.y);
}
template <typename T> __device__ inline uint4 in_order(uint4 v, bool down)
{
    const uint4 other = reversed<T>(v);
    return down ? other : v;
}

/* Asks for a tile of a tensor; what lies outside the sequence or the channels becomes 0, or is never looked at. */
template <typename T, int STEPS>
__device__ void land(T *to, const Places<T, STEPS, RL_SPLIT_ROWS> &places, const rl_scan_args &args,
                     const rl_scan_view &view, const Tile &tile)
{
    typedef Places<T, STEPS, RL_SPLIT_ROWS> P;
    const int element = (int)threadIdx.x * P::UNIT, lane = element & (places.lanes() - 1);
    const int stride = THREADS * P::UNIT >> P::ROW; /* a multiple of the turns' period: places advance alike */
    const int step = element >> P::ROW;
    const T *base = (const T *)view.data;
    const bool inside = tile.channel + lane < args.channels;
    const int left = inside ? tile.count - step : 0;
    const T *from = base + tile.at(view, lane, args.down) + step * view.step;
    T *place = to + places.at(step / STEPS, step % STEPS, lane);
#pragma unroll
    for (int k = 0; k < P::QUARTERS; k++, from += stride * view.step) {
        const bool given = k * stride < left;
        copy_async_16(place + k * THREADS * P::UNIT, given ? from : base, given ? 16 : 0);
    }
}

template <typename T, int STEPS>
__device__ void land(T *to, const Places<T, STEPS, RL_SPLIT_RUNS> &places, const rl_scan_args &args,
                     const rl_scan_view &view, const Tile &tile)
{
    typedef Places<T, STEPS, RL_SPLIT_RUNS> P;
    const int steps = places.steps(), mine = (int)threadIdx.x * P::UNIT;
    /* Step in time, and element, of the tile's lowest address. */
    const int64_t ahead = tile.first - tile.skew, span = steps - 1;
    const int64_t time = args.down ? tile.span.begin + tile.span.count - 1 - ahead - span : tile.span.begin + ahead;
    const T *base = (const T *)view.data, *from = base + tile.at(view, 0, args.down) - (args.down ? span : 0) + mine;
    char *place = (char *)to + P::turned((int)threadIdx.x) * 16;
    if (time >= 0 && time + steps <= args.length) {
#pragma unroll
        for (int k = 0; k < P::QUARTERS; k++)
            copy_async_16(place + k * THREADS * 16, from + k * THREADS * P::UNIT, 16);
        return;
    }
#pragma unroll 1
    for (int k = 0; k < P::QUARTERS; k++) {
        const int64_t at = time + mine + k * THREADS * P::UNIT, left = args.length - at;
        const int given = at < 0 || left <= 0 ? 0 : left < P::UNIT ? (int)left : P::UNIT;
        copy_async_16(place + k * THREADS * 16, given > 0 ? from + k * THREADS * P::UNIT : base,
                      given * (int)sizeof(T));
    }
}

/* Of any type: elements of T's own are copied in flight, others widened here. */
template <typename T, int STEPS>
__device__ void land(T *to, const Places<T, STEPS, RL_SPLIT_ANY> &places, const rl_scan_args &args,
                     const rl_scan_view &view, const Tile &tile)
{
    typedef Places<T, STEPS, RL_SPLIT_ANY> P;
    const int steps = places.steps(), count = tile.count, lanes = places.lanes();
    const bool along = (view.step < 0 ? -view.step : view.step) < view.channel; /* neighbours are steps */
    const bool in_flight = size_of(view.dtype) == (int)sizeof(T);
    const int64_t first = tile.at(view, 0, args.down);
    for (int element = (int)threadIdx.x; element < P::TILE; element += THREADS) {
        const int step = along ? element & (steps - 1) : element >> places.lanes_log2();
        const int lane = along ? element >> (31 - __clz(steps)) : element & (lanes - 1);
        const bool given = step < count && tile.channel + lane < args.channels;
        const int64_t at = given ? first + step * view.step + lane * view.channel : 0;
        T *place = to + places.at(step / STEPS, step % STEPS, lane);
        if (in_flight)
            copy_async(place, (const T *)view.data + at, given);
        else
            *place = given ? load_number<T>(view.data, view.dtype, at) : T{};
    }
}

/* A thread's own elements out of a tile. */
template <typename T, int STEPS, rl_split_layout layout>
__device__ inline Chunk<T, STEPS> take(const T *from, const OwnPlaces<T, STEPS, layout> &own_places, bool down)
{
    Chunk<T, STEPS> own;
    if constexpr (layout == RL_SPLIT_RUNS) {
#pragma unroll
        for (int q = 0; q < Places<T, STEPS, layout>::QUARTERS; q++)
            own.set_quarter(q, in_order<T>(own_places.get_quarter(from, q), down));
    } else {
        if constexpr (sizeof(T) == 2) {
#pragma unroll
            for (int k = 0; k < Chunk<T, STEPS>::WORDS; k++) own.word[k] = 0;
        }
#pragma unroll
        for (int k = 0; k < STEPS; k++) own.set(k, own_places.get(from, k));
    }
    return own;
}

/* A thread's own elements into a tensor. */
template <typename T, int STEPS>
__device__ void give(const Chunk<T, STEPS> &own, const Places<T, STEPS, RL_SPLIT_ROWS> &places,
                     const rl_scan_args &args, const rl_scan_view &view, const Tile &tile, int chunk, int lane)
{
    const int count = tile.count - chunk * STEPS;
    if (tile.channel + lane >= args.channels) return;
    T *to = (T *)view.data + tile.at(view, lane, args.down) + chunk * STEPS * view.step;
#pragma unroll
    for (int k = 0; k < STEPS; k++, to += view.step)
        if (k < count) *to = own.get(k);
}

template <typename T, int STEPS>
__device__ void give(const Chunk<T, STEPS> &own, const Places<T, STEPS, RL_SPLIT_ANY> &places,
                     const rl_scan_args &args, const rl_scan_view &view, const Tile &tile, int chunk, int lane)
{
    const int count = tile.count - chunk * STEPS;
    if (tile.channel + lane >= args.channels) return;
    T value[STEPS];
#pragma unroll
    for (int k = 0; k < STEPS; k++) value[k] = own.get(k);
    store_steps(value, view.data, view.dtype,
                tile.span.at(view, tile.channel + lane, args.down) + (tile.first + chunk * STEPS) * view.step,
                view.step, count);
}

/* 16 bytes, of which only the steps from `least` to below `count` are stored. */
template <typename T> __device__ inline void store_unit(T *to, uint4 v, int least, int count, bool down)
{
    constexpr int UNIT = 16 / (int)sizeof(T);
    if (least <= 0 && count >= UNIT) {
        *(uint4 *)to = v;
        return;
    }
    Chunk<T, UNIT> unit;
    unit.set_quarter(0, v);
#pragma unroll
    for (int k = 0; k < UNIT; k++) {
        const int step = down ? UNIT - 1 - k : k;
        if (step >= least && step < count) to[k] = unit.get(k);
    }
}

/*
 * Two threads of neighbouring sub-chunks swap 16 bytes, so that each store of a warp covers whole sectors of 32.  All
 * threads of the warp take part.
 */
template <typename T, int STEPS>
__device__ void give(const Chunk<T, STEPS> &own, const Places<T, STEPS, RL_SPLIT_RUNS> &, const rl_scan_args &args,
                     const rl_scan_view &view, const Tile &tile, int chunk, int)
{
    typedef Places<T, STEPS, RL_SPLIT_RUNS> P;
    const bool odd = chunk & 1, down = args.down;
    const int mine = (chunk - odd) * STEPS + odd * P::UNIT; /* the first step that this thread stores */
    const int least = tile.ordinal == 0 ? tile.skew - mine : -STEPS, count = tile.count - mine;
    T *to = (T *)view.data + tile.at(view, 0, down) + (down ? -(mine + P::UNIT - 1) : mine);
#pragma unroll
    for (int q = 0; q < P::QUARTERS; q += 2) {
        const uint4 even_unit = in_order<T>(own.quarter(q), down), odd_unit = in_order<T>(own.quarter(q + 1), down);
        const uint4 sent = odd ? even_unit : odd_unit;
        uint4 got;
        got.x = __shfl_xor_sync(~0u, sent.x, 1);
        got.y = __shfl_xor_sync(~0u, sent.y, 1);
        got.z = __shfl_xor_sync(~0u, sent.z, 1);
        got.w = __shfl_xor_sync(~0u, sent.w, 1);
        /* First the even thread's two units, then the odd one's. */
#pragma unroll
        for (int turn = 0; turn < 2; turn++) {
            const int step = turn * STEPS + q * P::UNIT;
            const uint4 v = odd == turn ? (odd ? odd_unit : even_unit) : got;
            if (step < count) store_unit(down ? to - step : to + step, v, least - step, count - step, down);
        }
    }
}

#endif
