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

#include <machine/copies.cuh>

#include "scan_recurrence.cuh"
#include "scan_split_args.h"

/*
 * Threads that hold a tile's sub-chunks, those that carry states from tile to tile, and blocks of a multiprocessor.
 * With two blocks one computes while the other waits.  Rows tell each other so many summaries that larger tiles and
 * more carriers are better.  BY_ROWS is the including file's.
 */
constexpr int WORKERS = BY_ROWS ? 512 : 256, CARRIERS = BY_ROWS ? 128 : 64, BLOCKS = BY_ROWS ? 1 : 2;

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

/* The tensors by time. */
enum Part { DECAYS, INPUTS, OUTPUTS, STATES_BEFORE, DECAY_GRADIENTS, PARTS };

__device__ inline const rl_scan_view &view_of(const rl_scan_args &args, int part)
{
    return part == DECAYS          ? args.a
           : part == INPUTS        ? args.input
           : part == OUTPUTS       ? args.output
           : part == STATES_BEFORE ? args.before
                                   : args.decay;
}

/*
 * A tile: a group's channels, and some steps of a sequence.  Steps count from `skew` before the sequence's first one,
 * so that units of 16 bytes begin at multiples of 16 bytes: 0 but for RUNS.
 */
struct Tile {
    Span span;
    int64_t sequence;
    int64_t place;     /* among the group's tiles; negative: no tile is left */
    int64_t ordinal;   /* in its sequence */
    int64_t channel;   /* its first one */
    int64_t first;     /* step */
    int64_t at[PARTS]; /* the elements of its first step and channel */
    int group, skew;
    int count;     /* steps that the sequence has from `first` on, at most those of a tile */
    bool is_last;  /* of its sequence */
    bool is_plain; /* every step is the sequence's, and none lacks a state before it */
};

template <bool runs> struct IfRuns {
};
template <> struct IfRuns<true> {
    typedef void type;
};

/* Where elements lie in shared memory. */
template <typename T, int STEPS, rl_split_layout layout> struct Places {
    static constexpr bool RUNS = layout == RL_SPLIT_RUNS || layout == RL_SPLIT_DOWN, DOWN = layout == RL_SPLIT_DOWN;
    static constexpr int TILE = STEPS * WORKERS;     /* elements */
    static constexpr int UNIT = 16 / (int)sizeof(T); /* elements of 16 bytes; RUNS and ROWS */
    static constexpr int QUARTERS = STEPS / (UNIT > 0 ? UNIT : 1);
    static constexpr int ROW = rl_split_row((int)sizeof(T)); /* ROWS */
    const int chosen_log2;

    __device__ int lanes_log2() const
    {
        return layout == RL_SPLIT_ROWS ? ROW : RUNS ? 0 : chosen_log2;
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
        return WORKERS >> lanes_log2();
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
        const int unit = DOWN ? (WORKERS - chunk) * QUARTERS - 1 : chunk * QUARTERS;
        return turned(unit) * 16;
    }
    __device__ static int turned(int unit)
    {
        return unit ^ (unit >> 3 & 7);
    }
};

/* Where a thread's own elements lie: in few registers, so that they need not be found again at each step. */
template <typename T, int STEPS, rl_split_layout layout> struct OwnPlaces {
    typedef Places<T, STEPS, layout> P;
    static constexpr int PERIOD = layout == RL_SPLIT_ROWS ? 32 >> P::ROW : 1;
    int place[PERIOD];
    int lane, turn, log2; /* ANY */

    __device__ OwnPlaces(const Places<T, STEPS, layout> &places, int chunk, int lane)
        : lane(lane), turn(places.turn(chunk)), log2(places.lanes_log2())
    {
        if (P::RUNS) place[0] = places.first_quarter(chunk);
        if (layout == RL_SPLIT_ANY) place[0] = chunk * STEPS << log2;
        if (layout == RL_SPLIT_ROWS) {
#pragma unroll
            for (int k = 0; k < PERIOD; k++) place[k] = places.at(chunk, k, lane);
        }
    }
    __device__ int at(int k) const /* ROWS, ANY */
    {
        if constexpr (layout == RL_SPLIT_ROWS) return place[k % PERIOD] + k / PERIOD * 32;
        return place[0] + (((k << log2) + lane) ^ turn);
    }
    __device__ int at_quarter(int quarter) const /* RUNS: in bytes */
    {
        return place[0] ^ (quarter * 16);
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
template <typename T, bool down> __device__ inline uint4 in_order(uint4 v)
{
    if constexpr (down) return reversed<T>(v);
    return v;
}

/* Asks for a tile of a tensor; what lies outside the sequence or the channels becomes 0, or is never looked at. */
template <typename T, int STEPS>
__device__ __forceinline__ void land(T *to, const Places<T, STEPS, RL_SPLIT_ROWS> &places, const rl_scan_args &args,
                                     const Tile &tile, Part part)
{
    typedef Places<T, STEPS, RL_SPLIT_ROWS> P;
    const rl_scan_view &view = view_of(args, part);
    const int element = (int)threadIdx.x * P::UNIT, lane = element & (places.lanes() - 1);
    const int stride = WORKERS * P::UNIT >> P::ROW; /* a multiple of the turns' period: places advance alike */
    const int step = element >> P::ROW;
    const T *base = (const T *)view.data;
    const int left = tile.channel + lane < args.channels ? tile.count - step : 0;
    const T *from = base + tile.at[part] + lane + step * view.step;
    T *place = to + places.at(step / STEPS, step % STEPS, lane);
#pragma unroll
    for (int k = 0; k < P::QUARTERS; k++, from += stride * view.step) {
        const bool given = k * stride < left;
        copy_async_16(place + k * WORKERS * P::UNIT, given ? from : base, given ? 16 : 0);
    }
}

template <typename T, int STEPS, rl_split_layout layout,
          typename = typename IfRuns<Places<T, STEPS, layout>::RUNS>::type>
__device__ __forceinline__ void land(T *to, const Places<T, STEPS, layout> &places, const rl_scan_args &args,
                                     const Tile &tile, Part part)
{
    typedef Places<T, STEPS, layout> P;
    constexpr int steps = P::TILE;
    const int mine = (int)threadIdx.x * P::UNIT;
    const T *base = (const T *)view_of(args, part).data,
            *from = base + tile.at[part] - (P::DOWN ? steps - 1 : 0) + mine;
    char *place = (char *)to + P::turned((int)threadIdx.x) * 16;
    /* The step in time of the tile's lowest address. */
    const int64_t ahead = tile.first - tile.skew;
    const int64_t time = P::DOWN ? tile.span.begin + tile.span.count - ahead - steps : tile.span.begin + ahead;
    if (time >= 0 && time + steps <= args.length) {
#pragma unroll
        for (int k = 0; k < P::QUARTERS; k++)
            copy_async_16(place + k * WORKERS * 16, from + k * WORKERS * P::UNIT, 16);
        return;
    }
#pragma unroll 1
    for (int k = 0; k < P::QUARTERS; k++) {
        const int64_t at = time + mine + k * WORKERS * P::UNIT, left = args.length - at;
        const int given = at < 0 || left <= 0 ? 0 : left < P::UNIT ? (int)left : P::UNIT;
        copy_async_16(place + k * WORKERS * 16, given > 0 ? from + k * WORKERS * P::UNIT : base,
                      given * (int)sizeof(T));
    }
}

/* Of any type: elements of T's own are copied in flight, others widened here. */
template <typename T, int STEPS>
__device__ __forceinline__ void land(T *to, const Places<T, STEPS, RL_SPLIT_ANY> &places, const rl_scan_args &args,
                                     const Tile &tile, Part part)
{
    typedef Places<T, STEPS, RL_SPLIT_ANY> P;
    const rl_scan_view &view = view_of(args, part);
    const int steps = places.steps(), count = tile.count, lanes = places.lanes();
    const bool along = (view.step < 0 ? -view.step : view.step) < view.channel; /* neighbours are steps */
    const bool in_flight = size_of(view.dtype) == (int)sizeof(T);
    for (int element = (int)threadIdx.x; element < P::TILE; element += WORKERS) {
        const int step = along ? element & (steps - 1) : element >> places.lanes_log2();
        const int lane = along ? element >> (31 - __clz(steps)) : element & (lanes - 1);
        const bool given = step < count && tile.channel + lane < args.channels;
        const int64_t at = given ? tile.at[part] + step * view.step + lane * view.channel : 0;
        T *place = to + places.at(step / STEPS, step % STEPS, lane);
        if (in_flight)
            copy_async(place, (const T *)view.data + at, given);
        else
            *place = given ? load_number<T>(view.data, view.dtype, at) : T{};
    }
}

/* A thread's own elements out of a tile. */
template <typename T, int STEPS, rl_split_layout layout>
__device__ __forceinline__ Chunk<T, STEPS> take(const T *from, const OwnPlaces<T, STEPS, layout> &own_places)
{
    typedef Places<T, STEPS, layout> P;
    Chunk<T, STEPS> own;
    if constexpr (P::RUNS) {
#pragma unroll
        for (int q = 0; q < P::QUARTERS; q++)
            own.set_quarter(q, in_order<T, P::DOWN>(*(const uint4 *)((const char *)from + own_places.at_quarter(q))));
    } else {
        if constexpr (sizeof(T) == 2) {
#pragma unroll
            for (int k = 0; k < Chunk<T, STEPS>::WORDS; k++) own.word[k] = 0;
        }
#pragma unroll
        for (int k = 0; k < STEPS; k++) own.set(k, from[own_places.at(k)]);
    }
    return own;
}

/* 16 bytes, of which only the steps from `least` to below `count` are stored. */
template <typename T, bool down> __device__ inline void store_unit(T *to, uint4 v, int least, int count)
{
    constexpr int UNIT = 16 / (int)sizeof(T);
    Chunk<T, UNIT> unit;
    unit.set_quarter(0, v);
#pragma unroll
    for (int k = 0; k < UNIT; k++) {
        const int step = down ? UNIT - 1 - k : k;
        if (step >= least && step < count) to[k] = unit.get(k);
    }
}

/*
 * Results into a tensor.  The sub-chunks of a warp are one piece of a tile, here and in `room`, which nobody else
 * looks at: the warp's threads put their own elements there, and store 16 bytes each that are neighbours in memory.
 */
template <typename T, int STEPS>
__device__ __forceinline__ void
give(const Chunk<T, STEPS> &own, T *room, const Places<T, STEPS, RL_SPLIT_ROWS> &places,
     const OwnPlaces<T, STEPS, RL_SPLIT_ROWS> &own_places, const rl_scan_args &args, const Tile &tile, Part part)
{
    typedef Places<T, STEPS, RL_SPLIT_ROWS> P;
    const rl_scan_view &view = view_of(args, part);
    __syncwarp(); /* all of the warp have taken what lay there */
#pragma unroll
    for (int k = 0; k < STEPS; k++) room[own_places.at(k)] = own.get(k);
    __syncwarp(); /* the piece is complete */
    const int thread = (int)threadIdx.x, element = thread / 32 * 32 * STEPS + thread % 32 * P::UNIT;
    const int lane = element & (places.lanes() - 1), step = element >> P::ROW;
    constexpr int stride = 32 * P::UNIT >> P::ROW;
    const int left = tile.channel + lane < args.channels ? tile.count - step : 0;
    T *to = (T *)view.data + tile.at[part] + lane + step * view.step;
#pragma unroll
    for (int k = 0; k < P::QUARTERS; k++, to += stride * view.step) {
        const int at = step + k * stride;
        if (k * stride < left) *(uint4 *)to = *(const uint4 *)&room[places.at(at / STEPS, at % STEPS, lane)];
    }
}

template <typename T, int STEPS, rl_split_layout layout,
          typename = typename IfRuns<Places<T, STEPS, layout>::RUNS>::type>
__device__ __forceinline__ void give(const Chunk<T, STEPS> &own, T *room, const Places<T, STEPS, layout> &,
                                     const OwnPlaces<T, STEPS, layout> &own_places, const rl_scan_args &args,
                                     const Tile &tile, Part part)
{
    typedef Places<T, STEPS, layout> P;
    __syncwarp(); /* all of the warp have taken what lay there */
#pragma unroll
    for (int q = 0; q < P::QUARTERS; q++)
        *(uint4 *)((char *)room + own_places.at_quarter(q)) = in_order<T, P::DOWN>(own.quarter(q));
    __syncwarp(); /* the piece is complete */
    const int warp = (int)threadIdx.x / 32;
    const int first = (P::DOWN ? WORKERS / 32 - 1 - warp : warp) * 32 * P::QUARTERS + (int)threadIdx.x % 32;
    T *const to = (T *)view_of(args, part).data + tile.at[part] - (P::DOWN ? P::TILE - 1 : 0);
    const int least = tile.ordinal == 0 ? tile.skew : 0, count = tile.count;
#pragma unroll
    for (int q = 0; q < P::QUARTERS; q++) {
        const int unit = first + q * 32;
        const int step = P::DOWN ? P::TILE - (unit + 1) * P::UNIT : unit * P::UNIT; /* its first one run */
        const uint4 v = *(const uint4 *)((const char *)room + P::turned(unit) * 16);
        if (step >= least && step + P::UNIT <= count)
            *(uint4 *)(to + unit * P::UNIT) = v;
        else
            store_unit<T, P::DOWN>(to + unit * P::UNIT, v, least - step, count - step);
    }
}

template <typename T, int STEPS>
__device__ __forceinline__ void give(const Chunk<T, STEPS> &own, T *, const Places<T, STEPS, RL_SPLIT_ANY> &places,
                                     const OwnPlaces<T, STEPS, RL_SPLIT_ANY> &own_places, const rl_scan_args &args,
                                     const Tile &tile, Part part)
{
    const rl_scan_view &view = view_of(args, part);
    const int before = ((int)threadIdx.x >> places.lanes_log2()) * STEPS;
    if (tile.channel + own_places.lane >= args.channels) return;
    T value[STEPS];
#pragma unroll
    for (int k = 0; k < STEPS; k++) value[k] = own.get(k);
    store_steps(value, view.data, view.dtype, tile.at[part] + own_places.lane * view.channel + before * view.step,
                view.step, tile.count - before);
}

#endif
