/*
 * The kernel of the split scan.  Time is cut into tiles; a tile is staged in shared memory, summarised, entered with
 * the carried state and walked, all from one read, while the next one's loads are in flight:
 *
 *     land      the tile that was asked for one round ago; each thread takes its sub-chunk into registers
 *     ask       for the block's next tile, into the room just left
 *     sum up    each thread its sub-chunk, the block its tile: x -> P x + S; tell the other blocks
 *     carry     fold the summaries of the tiles since the block's own last one onto the state it left behind
 *     walk      each thread its sub-chunk in the loop's own order, from the state that enters it
 *     give      the results to memory
 *
 * Where a summary may not stand for the walk (scan_split_number.cuh), a sub-chunk is entered with the state that the
 * walk of the one before leaves, and a tile's end is told once it is walked.  This depends on values alone, as does
 * every entering state, so results repeat bit for bit whatever the order in which blocks run.
 */
#ifndef RL_CUDA_SCAN_SPLIT_CUH
#define RL_CUDA_SCAN_SPLIT_CUH

#include "scan_split_chain.cuh"

namespace
{

constexpr int WARPS = THREADS / 32;

template <typename T> constexpr int STEPS_OF = sizeof(T) <= 4 ? 32 : 128 / (int)sizeof(T);
template <typename N> constexpr int MOST_LANES = sizeof(N) == 4 ? 16 : 8;

constexpr int DEALING = 1; /* the warp that deals; the first one folds, the last one tells */

/* What a block has learnt: the state that enters a sequence's tile `ordinal`; the first threads hold the numbers. */
struct Known {
    int64_t sequence, ordinal;
    int group;
};

template <typename N, bool backward> struct Shared {
    typedef typename Wide<N>::W W;
    static constexpr int TOLD = (backward ? 10240 : 18432) / (int)sizeof(Told<W>);
    Dealer dealer;
    Tile tiles[3]; /* that at hand, the one whose loads are in flight, and the next */
    Known known;
    Told<W> own[MOST_LANES<N>];
    Told<W> told[TOLD];
    Told<W> groups[TOLD / 8];
    Summary<N> warp_sums[WARPS * MOST_LANES<N>];
    W carry[MOST_LANES<N>];
    N ends[THREADS];
    uint8_t walked[THREADS];
};

template <typename T> __device__ inline T one()
{
    if constexpr (IsComplex<T>::value)
        return {1, 0};
    else
        return narrow<T>(1.0f);
}

/* The tile that a thread works on, and its place there. */
template <typename T, rl_split_layout layout> struct Seat {
    typedef typename Accumulated<T>::type N;
    static constexpr int STEPS = STEPS_OF<T>;
    typedef Chunk<T, STEPS> Own;
    const rl_scan_args &args;
    const Places<T, STEPS, layout> &places;
    const Tile &tile;
    const int chunk, lane;
    const OwnPlaces<T, STEPS, layout> own_places;
    const int count; /* its steps that the sequence has: below 1, none; above STEPS, all and more to come */
    const bool is_last;

    __device__ Seat(const rl_scan_args &args, const Places<T, STEPS, layout> &places, const Tile &tile)
        : args(args), places(places), tile(tile), chunk((int)threadIdx.x >> places.lanes_log2()),
          lane((int)threadIdx.x & (places.lanes() - 1)), own_places(places, chunk, lane),
          count(tile.count - chunk * STEPS), is_last(tile.is_last)
    {
    }

    __device__ int64_t channel() const
    {
        return tile.channel + lane;
    }
    __device__ bool has_channel() const
    {
        return channel() < args.channels;
    }
    /* Which of its steps is the sequence's last, if any. */
    __device__ int last_step() const
    {
        return is_last && count <= STEPS ? count - 1 : -1;
    }
};

/* Steps beyond the sequence leave the state alone, and a step that nothing precedes drops it. */
template <bool backward, typename S> __device__ void trim(const S &seat, typename S::Own &a, typename S::Own &input)
{
    typedef decltype(a.get(0)) T;
    const bool is_first = seat.chunk == 0 && seat.tile.ordinal == 0;
    const int skew = is_first ? seat.tile.skew : 0;
    if (seat.count < S::STEPS || skew > 0) {
#pragma unroll
        for (int k = 0; k < S::STEPS; k++)
            if (k >= seat.count || k < skew) {
                a.set(k, one<T>());
                input.set(k, T{});
            }
    }
    if (!backward && !seat.args.enter.data && is_first) {
#pragma unroll
        for (int k = 0; k < 16 / (int)sizeof(T); k++)
            if (k == skew) a.set(k, T{});
    }
    if (backward && !seat.args.start.data && seat.last_step() >= 0) {
#pragma unroll
        for (int k = 0; k < S::STEPS; k++)
            if (k == seat.last_step()) a.set(k, T{});
    }
}

template <typename N, bool backward, typename W, typename Factor>
__device__ inline W stepped(W state, Factor a, Factor input)
{
    return backward ? times(plus(state, input), a) : plus(times(state, a), input);
}

/* What a sub-chunk does to the state that enters it. */
template <bool backward, typename Own> __device__ auto summed_up(const Own &a, const Own &input)
{
    typedef decltype(a.get(0)) T;
    typedef typename Accumulated<T>::type N;
    typedef Wide<N> Wider;
    typedef typename Wider::W W;
    constexpr int STEPS = STEPS_OF<T>;
    Summary<N> sum = no_steps<N>();
    bool has_zero = false, is_tiny = false;
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        N decay = (N)widen(a.get(k));
        if (backward) decay = conjugate(decay);
        const auto factor = Wider::factor(decay);
        sum.P = times(sum.P, factor);
        sum.S = stepped<N, backward>(sum.S, factor, Wider::factor((N)widen(input.get(k))));
        has_zero = has_zero || is_zero(decay);
        if constexpr (Wider::follows_growth) {
            sum.growth *= fmaxf(1.0f, (float)size_of(factor));
            is_tiny = is_tiny || size_of(sum.P) < TINY;
        }
    }
    if (!has_zero) {
        sum.P = unsigned_zero(sum.P);
        if constexpr (Wider::follows_growth)
            if (is_tiny && size_of(sum.P) <= DBL_MAX)
                sum.P = number<W>(sum.growth <= MOST_GROWTH ? 0.0 : (double)NAN);
        return sum;
    }
    sum.P = number<W>(-0.0);
    if (size_of(sum.S) <= DBL_MAX) return sum;
    sum.S = W{};
#pragma unroll 1
    for (int k = 0; k < STEPS; k++) { /* again, with what a reset drops dropped */
        N decay{}, value{};
#pragma unroll
        for (int j = 0; j < STEPS; j++)
            if (j == k) {
                decay = (N)widen(a.get(j));
                value = (N)widen(input.get(j));
            }
        if (backward) decay = conjugate(decay);
        W dropped_state = {};
        if (!backward) dropped_state = plus(dropped_state, Wider::factor(value));
        sum.S =
            is_zero(decay) ? dropped_state : stepped<N, backward>(sum.S, Wider::factor(decay), Wider::factor(value));
    }
    return sum;
}

template <typename V> __device__ inline V shuffled_up(const V &value, int distance)
{
    constexpr int words = (int)sizeof(V) / 4;
    uint32_t word[words];
    memcpy(word, &value, sizeof value);
#pragma unroll
    for (int k = 0; k < words; k++) word[k] = __shfl_up_sync(~0u, word[k], (unsigned)distance);
    V result;
    memcpy(&result, word, sizeof result);
    return result;
}

/*
 * From each thread's own summary: that of all sub-chunks before it in the tile.  The last sub-chunk's threads leave
 * the tile's in `told` and tell it to the other blocks, unless told_to is NULL.
 */
template <typename N, bool backward>
__device__ Summary<N> sums_before(Shared<N, backward> &shared, Summary<N> sum, int lanes_log2, char *told_to,
                                  bool fenced)
{
    typedef typename Wide<N>::W W;
    const int lanes = 1 << lanes_log2, lane = (int)threadIdx.x & (lanes - 1), warp = (int)threadIdx.x / 32;
    const int place = (int)threadIdx.x & 31;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        if (distance < lanes) continue;
        const Summary<N> both = joined(shuffled_up(sum, distance), sum);
        if (place >= distance) sum = both;
    }
    if (place >= 32 - lanes) shared.warp_sums[warp * lanes + lane] = sum;
    Summary<N> before = shuffled_up(sum, lanes);
    if (place < lanes) before = no_steps<N>();
    __syncthreads(); /* warp_sums are complete */
    Summary<N> warps = no_steps<N>();
#pragma unroll
    for (int k = 0; k + 1 < WARPS; k++) {
        const Summary<N> more = joined(warps, shared.warp_sums[k * lanes + lane]);
        if (k < warp) warps = more;
    }
    if ((int)threadIdx.x >= THREADS - lanes) {
        const Summary<N> whole = joined(warps, sum);
        const Told<W> told = {whole.P, whole.S};
        shared.own[lane] = told;
        if (fenced) __threadfence(); /* the entering state, which h_final may overwrite, has been read */
        if (told_to) put(told_to + lane * sizeof told, told);
    }
    return joined(warps, before);
}

/* The states before a sequence's step that is run at `k` of a sub-chunk: those that the next step in running holds.
 */
template <typename T, rl_split_layout layout> struct Before {
    typedef Seat<T, layout> S;
    typedef typename S::N N;
    const S &seat;
    const T *landed;
    T beyond; /* the first one of the sub-chunk after */
    Chunk<T, 16 / sizeof(T) ? 16 / sizeof(T) : 1> unit;

    __device__ Before(const S &seat, const T *landed, T extra) : seat(seat), landed(landed), beyond(extra)
    {
        if (seat.chunk + 1 == seat.places.chunks()) return;
        const OwnPlaces<T, S::STEPS, layout> next(seat.places, seat.chunk + 1, seat.lane);
        if constexpr (layout == RL_SPLIT_RUNS) {
            unit.set_quarter(0, in_order<T>(next.get_quarter(landed, 0), seat.places.down));
            beyond = unit.get(0);
        } else {
            beyond = next.get(landed, 0);
        }
    }
    __device__ N operator()(int k)
    {
        if (k + 1 == S::STEPS) return (N)widen(beyond);
        if constexpr (layout == RL_SPLIT_RUNS) {
            constexpr int UNIT = 16 / (int)sizeof(T);
            if (k == 0 || (k + 1) % UNIT == 0)
                unit.set_quarter(0,
                                 in_order<T>(seat.own_places.get_quarter(landed, (k + 1) / UNIT), seat.places.down));
            return (N)widen(unit.get((k + 1) % UNIT));
        } else {
            return (N)widen(seat.own_places.get(landed, k + 1));
        }
    }
};

/* The loop's own order; results take the places of what they are made from. */
template <typename S>
__device__ inline typename S::N walk(typename S::Own &a, typename S::Own &input, typename S::N h)
{
    typedef typename S::N N;
    typedef decltype(a.get(0)) T;
#pragma unroll
    for (int k = 0; k < S::STEPS; k++) {
        h = advance((N)widen(a.get(k)), h, (N)widen(input.get(k)));
        input.set(k, narrow<T>(h));
    }
    return h;
}

template <typename T, rl_split_layout layout, typename S = Seat<T, layout>>
__device__ inline typename S::N walk_back(const S &seat, typename S::Own &a, typename S::Own &input, typename S::N u,
                                          const T *landed, T extra)
{
    typedef typename S::N N;
    const bool wants_decay = seat.args.before.data;
    const int last = wants_decay ? seat.last_step() : -1;
    N start = {};
    if (last >= 0 && seat.has_channel()) {
        if (seat.args.start.data)
            start = load_state<N>(seat.args.start, seat.tile.sequence, seat.channel());
        else
            start = number<N>(INFINITY); /* the decay is 0 there: its gradient becomes 0 */
    }
    Before<T, layout> before(seat, landed, extra);
#pragma unroll
    for (int k = 0; k < S::STEPS; k++) {
        const N decay = (N)widen(a.get(k)), g = add((N)widen(input.get(k)), u);
        if (wants_decay) {
            if (k % 4 == 0) asm volatile("" ::: "memory"); /* else all are loaded first, into registers that lack */
            const N h = before(k);
            a.set(k, narrow<T>(decay_gradient(decay, k == last ? start : h, g)));
        }
        u = dropped(conjugate(decay), g);
        input.set(k, narrow<T>(g));
    }
    return u;
}

/* The first state before a step of the next tile, which the last step of this one needs. */
template <typename T, rl_split_layout layout> __device__ inline T state_beyond(const Seat<T, layout> &seat)
{
    const rl_scan_view &view = seat.args.before;
    const bool is_needed = view.data && seat.chunk + 1 == seat.places.chunks();
    if (!is_needed || seat.is_last || !seat.has_channel()) return T{};
    const int64_t at = seat.tile.at(view, seat.lane, seat.args.down) + seat.places.steps() * view.step;
    if constexpr (layout == RL_SPLIT_ANY)
        return load_number<T>(view.data, view.dtype, at);
    else
        return ((const T *)view.data)[at];
}

/*
 * Folds what other blocks tell onto `base`, the state that enters tile `from`: leaves that which enters this tile in
 * shared.carry, and in `base` that of its group.  Calls `meanwhile` where most threads would only wait.
 */
template <typename N, bool backward, typename Meanwhile>
__device__ void fold_earlier(Shared<N, backward> &shared, const rl_split_args &args, const Tile &tile, int lanes_log2,
                             int64_t from, typename Wide<N>::W &base, const Meanwhile &meanwhile)
{
    typedef Told<typename Wide<N>::W> T;
    typedef typename Wide<N>::Factor Factor;
    const int lanes = 1 << lanes_log2, thread = (int)threadIdx.x;
    const int most = (Shared<N, backward>::TOLD >> lanes_log2) / GROUP<N> * GROUP<N>;
    const int64_t start = tile.group * args.most_tiles + tile.place - tile.ordinal;
    for (bool is_first = true; is_first || from < tile.ordinal; is_first = false) {
        const int count = (int)min(tile.ordinal - from, (int64_t)most), groups = count / GROUP<N>;
        const int64_t slot = (start + from) << lanes_log2;
        for (int k = thread; k < count << lanes_log2; k += THREADS)
            shared.told[k] = await<typename Wide<N>::W>((const T *)args.summaries + slot + k);
        __syncthreads(); /* told is complete */
        if (GROUP < N >> 1 && groups > 0) {
            for (int k = thread; k < groups << lanes_log2; k += THREADS) {
                const T *some = shared.told + ((k >> lanes_log2) * GROUP<N> << lanes_log2) + (k & (lanes - 1));
                Summary<N> sum = no_steps<N>();
#pragma unroll 4
                for (int j = 0; j < GROUP<N>; j++) {
                    Summary<N> more = no_steps<N>();
                    more.P = some[j << lanes_log2].P;
                    more.S = some[j << lanes_log2].S;
                    sum = joined(sum, more);
                }
                shared.groups[k] = {sum.P, sum.S};
            }
            __syncthreads(); /* groups are complete */
        }
        if (thread < lanes) {
            const T *told = shared.told + thread;
            const Factor *ends = (const Factor *)args.ends + slot + thread;
            base = after_groups<N>(GROUP<N> > 1 ? shared.groups + thread : told, told, ends, lanes, groups, base);
            const int done = groups * GROUP<N> << lanes_log2;
            if (from + count == tile.ordinal)
                shared.carry[thread] =
                    after_tiles<N>(told + done, ends + done, lanes, count - groups * GROUP<N>, base);
        }
        from += count;
        if (is_first) meanwhile();
        if (backward) wait_copies<1>(); /* the states before, which the walk reads */
        __syncthreads();                /* told may be written again, carry is complete */
    }
}

template <typename T, rl_split_layout layout, bool backward>
__global__ void __launch_bounds__(THREADS, RL_SPLIT_BLOCKS) split_kernel(const __grid_constant__ rl_split_args args)
{
    typedef typename Accumulated<T>::type N;
    typedef typename Wide<N>::W W;
    typedef Seat<T, layout> S;
    extern __shared__ __align__(128) unsigned char landing[];
    __shared__ __align__(16) unsigned char common[sizeof(Shared<N, backward>)];
    Shared<N, backward> &shared = *(Shared<N, backward> *)common;
    const rl_scan_args &scan = args.scan;
    const Places<T, S::STEPS, layout> places = {args.lanes_log2, scan.down};
    const int thread = (int)threadIdx.x, lanes = places.lanes(), lanes_log2 = places.lanes_log2();
    const bool deals = thread / 32 == DEALING;
    T *const a_landed = (T *)landing, *const input_landed = a_landed + places.TILE;
    T *const before_landed = input_landed + places.TILE;

    const auto ask = [&](const Tile &tile) {
        if (tile.place >= 0) {
            land(a_landed, places, scan, scan.a, tile);
            if (scan.input.data) land(input_landed, places, scan, scan.input, tile);
        }
        close_copies();
    };
    const auto ask_before = [&](const Tile &tile) {
        if (tile.place >= 0 && scan.before.data) land(before_landed, places, scan, scan.before, tile);
        close_copies();
    };

    uint32_t ticket = 0;
    if (deals) {
        shared.dealer.begin(args);
        ticket = shared.dealer.ask(args);
        shared.dealer.deal(args, ticket, shared.tiles[0]);
        ticket = shared.dealer.ask(args);
    }
    if (thread == 0) shared.known = {-1, 0, -1};
    __syncthreads(); /* the first tile is dealt */
    ask(shared.tiles[0]);
    if (backward) ask_before(shared.tiles[0]);
    if (deals) shared.dealer.deal(args, ticket, shared.tiles[1]);

    W base = {};
    for (int turn = 0;; turn = turn == 2 ? 0 : turn + 1) {
        const Tile &tile = shared.tiles[turn], &following = shared.tiles[turn == 2 ? 0 : turn + 1];
        if (tile.place < 0) break;
        if (deals) ticket = shared.dealer.ask(args);
        wait_copies<backward ? 1 : 0>();
        __syncthreads(); /* the tile has landed, the following one is dealt */
        const S seat(scan, places, tile);
        typename S::Own a = take(a_landed, seat.own_places, scan.down), input = {};
        if (scan.input.data) input = take(input_landed, seat.own_places, scan.down);
        shared.walked[thread] = false;
        __syncthreads(); /* the room is free */
        ask(following);

        const bool continues = shared.known.group == tile.group && shared.known.sequence == tile.sequence;
        const int64_t from = continues ? shared.known.ordinal : 0;
        if (!continues && thread < lanes)
            base = seat.has_channel() ? Wide<N>::open(load_state<N>(scan.enter, tile.sequence, seat.channel())) : W{};
        trim<backward>(seat, a, input);
        const int64_t slot = ((int64_t)tile.group * args.most_tiles + tile.place) << lanes_log2;
        const Summary<N> sum = sums_before<N>(
            shared, summed_up<backward>(a, input), lanes_log2,
            seat.is_last ? nullptr : (char *)args.summaries + slot * (int64_t)sizeof(Told<W>), !continues);
        T extra = {};
        if constexpr (backward) extra = state_beyond(seat);
        fold_earlier(shared, args, tile, lanes_log2, from, base, [&] {
            if (deals) shared.dealer.deal(args, ticket, shared.tiles[turn == 0 ? 2 : turn - 1]);
        });

        /* The state that enters the sub-chunk; where the fold may not decide, the walk of the one before does. */
        W entering = shared.carry[seat.lane], leaving;
        bool is_ready = seat.chunk == 0, is_walked = false;
        const bool is_told =
            thread >= lanes || fold<N>(shared.own[seat.lane].P, shared.own[seat.lane].S, entering, leaving);
        if (!is_ready) is_ready = fold<N>(sum.P, sum.S, entering, entering);
        N state = Wide<N>::close(entering);
        for (;;) {
            if (is_ready && !is_walked) {
                if constexpr (backward)
                    state = walk_back<T, layout>(seat, a, input, state, before_landed, extra);
                else
                    state = walk<S>(a, input, state);
                shared.ends[thread] = state;
                shared.walked[thread] = true;
                is_walked = true;
            }
            if (!__syncthreads_or(!is_walked)) break; /* else ends and walked are those of this round */
            if (!is_walked && shared.walked[thread - lanes]) {
                state = shared.ends[thread - lanes];
                is_ready = true;
            }
            __syncthreads(); /* they have been read */
        }
        if (backward) ask_before(following);
        if (!is_told && !seat.is_last)
            put_end((typename Wide<N>::Factor *)args.ends + slot + thread,
                    Wide<N>::factor(shared.ends[THREADS - lanes + thread]));
        if (thread == 0) shared.known = {tile.sequence, tile.ordinal / GROUP<N> * GROUP<N>, tile.group};
        if (scan.output.data) give(input, places, scan, scan.output, tile, seat.chunk, seat.lane);
        if (backward && scan.before.data) give(a, places, scan, scan.decay, tile, seat.chunk, seat.lane);
        if (seat.has_channel()) {
            if (seat.last_step() >= 0) {
                __threadfence(); /* every block has read the entering state, which this may overwrite */
                store_state(scan.leave, tile.sequence, seat.channel(), state);
            }
            if (tile.span.count == 0 && seat.chunk == 0) pass_on<N>(scan, tile.sequence, seat.channel());
        }
    }
}

template <typename T, rl_split_layout layout, bool backward> rl_split_kernel instance()
{
    typedef typename Accumulated<T>::type N;
    return {(const void *)split_kernel<T, layout, backward>,
            (size_t)(backward ? 3 : 2) * THREADS * STEPS_OF<T> * sizeof(T), STEPS_OF<T>,
            (int32_t)sizeof(Told<typename Wide<N>::W>), (int32_t)sizeof(typename Wide<N>::Factor)};
}

template <typename T> rl_split_kernel instance_of(rl_split_layout layout, bool backward)
{
    if (layout == RL_SPLIT_ROWS)
        return backward ? instance<T, RL_SPLIT_ROWS, true>() : instance<T, RL_SPLIT_ROWS, false>();
    return backward ? instance<T, RL_SPLIT_RUNS, true>() : instance<T, RL_SPLIT_RUNS, false>();
}
template <typename N> rl_split_kernel any_instance_of(bool backward)
{
    return backward ? instance<N, RL_SPLIT_ANY, true>() : instance<N, RL_SPLIT_ANY, false>();
}

} // namespace

#endif
