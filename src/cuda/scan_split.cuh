/*
 * The kernel of the split scan.  Time is cut into tiles, which the blocks, one or two a multiprocessor, take in turn.
 * From one read a block makes a tile's summary, x -> P x + S for the state x that enters it, and later its results.
 * In a round, while tile i + 2 is on its way from memory:
 *
 *     workers   sum up tile i + 1, each thread its sub-chunk, and tell the other blocks
 *     carriers  fold what other blocks have told of the tiles before i: the state that enters tile i
 *     workers   walk tile i, each thread its sub-chunk in the loop's own order; store the results
 *     workers   take tile i + 1 into registers, ask for tile i + 3 into its room
 *
 * so what is told has a whole round's time to arrive before it is needed, and loads are always under way.
 *
 * Where a summary may not stand for the walk (scan_split_number.cuh), a sub-chunk is entered with the state that the
 * walk of the one before leaves, and a tile's end is told once it is walked.  This depends on values alone, as does
 * every entering state, so results repeat bit for bit whatever the order in which blocks run.
 */
#ifndef RL_CUDA_SCAN_SPLIT_CUH
#define RL_CUDA_SCAN_SPLIT_CUH

#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "scan_split_carry.cuh"

namespace
{

/* The states before a sequence's step that is run at `k` of a sub-chunk: those that the next step in running holds.
 */
template <typename T, rl_split_layout layout> struct Before {
    typedef Seat<T, layout> S;
    typedef typename S::N N;
    const S &seat;
    const T *landed;
    T beyond; /* the first one of the sub-chunk after */
    Chunk<T, 16 / sizeof(T) ? 16 / sizeof(T) : 1> unit;

    __device__ __forceinline__ Before(const S &seat, const T *landed, T extra)
        : seat(seat), landed(landed), beyond(extra)
    {
        if (seat.chunk + 1 == seat.places.chunks()) return;
        if constexpr (S::All::RUNS) {
            load(seat.places.first_quarter(seat.chunk + 1));
            beyond = unit.get(0);
        } else {
            beyond = landed[seat.places.at(seat.chunk + 1, 0, seat.lane)];
        }
    }
    __device__ __forceinline__ void load(int place)
    {
        unit.set_quarter(0, in_order<T, S::All::DOWN>(*(const uint4 *)((const char *)landed + place)));
    }
    __device__ __forceinline__ N operator()(int k)
    {
        if (k + 1 == S::STEPS) return (N)widen(beyond);
        if constexpr (S::All::RUNS) {
            constexpr int UNIT = 16 / (int)sizeof(T);
            if (k == 0 || (k + 1) % UNIT == 0) load(seat.own_places.at_quarter((k + 1) / UNIT));
            return (N)widen(unit.get((k + 1) % UNIT));
        } else {
            return (N)widen(landed[seat.own_places.at(k + 1)]);
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
__device__ __forceinline__ typename S::N walk_back(const S &seat, typename S::Own &a, typename S::Own &input,
                                                   typename S::N u, const T *landed, T extra)
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
            const N h = before(k);
            a.set(k, narrow<T>(decay_gradient(decay, k == last ? start : h, g)));
        }
        u = dropped(conjugate(decay), g);
        input.set(k, narrow<T>(g));
    }
    return u;
}

/* The first state before a step of the next tile, which the last step of this one needs. */
template <typename T, rl_split_layout layout> __device__ __forceinline__ T state_beyond(const Seat<T, layout> &seat)
{
    const rl_scan_view &view = seat.args.before;
    const bool is_needed = view.data && seat.chunk + 1 == seat.places.chunks();
    if (!is_needed || seat.tile.is_last || !seat.has_channel()) return T{};
    const int64_t at = seat.tile.at[STATES_BEFORE] + seat.lane * view.channel + seat.places.steps() * view.step;
    if constexpr (layout == RL_SPLIT_ANY)
        return load_number<T>(view.data, view.dtype, at);
    else
        return ((const T *)view.data)[at];
}

template <typename T, bool backward>
constexpr size_t ROOM_BYTES = (backward ? 6 : 4) * WORKERS *STEPS_OF<T> * sizeof(T);

/* The rooms of the tiles on their way. */
template <typename T, rl_split_layout layout> struct Rooms {
    static constexpr int TILE = STEPS_OF<T> * WORKERS;
    T *first;

    __device__ T *a(int round) const
    {
        return first + (round & 1) * 2 * TILE;
    }
    __device__ T *input(int round) const
    {
        return a(round) + TILE;
    }
    __device__ T *before(int round) const
    {
        return first + (4 + (round & 1)) * TILE;
    }
};

template <typename T, rl_split_layout layout, bool backward> struct Worker {
    typedef typename Accumulated<T>::type N;
    typedef typename Wide<N>::W W;
    typedef Seat<T, layout> S;
    typedef typename S::Own Own;
    const rl_split_args &args;
    const rl_scan_args &scan;
    const typename S::All &places;
    const typename S::Mine &own_places;
    Shared<N, backward> &shared;
    const Rooms<T, layout> rooms;

    __device__ __forceinline__ const Tile &tile(int round) const
    {
        return shared.tiles[round & MASK];
    }
    __device__ __forceinline__ S seat(int round) const
    {
        return S(scan, places, own_places, tile(round));
    }
    __device__ __forceinline__ void ask(int round) const
    {
        if (tile(round).place >= 0) {
            land(rooms.a(round), places, scan, tile(round), DECAYS);
            if (scan.input.data) land(rooms.input(round), places, scan, tile(round), INPUTS);
        }
        close_copies();
    }
    __device__ __forceinline__ void ask_before(int round) const
    {
        if (!backward) return;
        if (tile(round).place >= 0 && scan.before.data)
            land(rooms.before(round), places, scan, tile(round), STATES_BEFORE);
        close_copies();
    }
    __device__ __forceinline__ int64_t slot(int round) const
    {
        return ((int64_t)tile(round).group * args.most_tiles + tile(round).place) << places.lanes_log2();
    }
    __device__ __forceinline__ void take_own(int round, Own &a, Own &input) const
    {
        a = take(rooms.a(round), own_places);
        input = Own{};
        if (scan.input.data) input = take(rooms.input(round), own_places);
        trim<backward>(seat(round), a, input);
    }

    /* Sums up a tile that has landed, and tells. */
    __device__ __forceinline__ Summary<N> tell(int round) const
    {
        if (tile(round).place < 0) return {};
        const S at = seat(round);
        const bool goes_on = round > 0 && continues(tile(round), tile(round - 1));
        if (!goes_on && (int)threadIdx.x >= WORKERS - places.lanes())
            shared.enter[round & 1][at.lane] =
                at.has_channel() ? load_state<N>(scan.enter, at.tile.sequence, at.channel()) : N{};
        Own a, input;
        take_own(round, a, input);
        return sums_before<N>(
            shared, summed_up<backward>(a, input), places.lanes_log2(), shared.own[round & 1],
            at.tile.is_last ? nullptr : (char *)args.summaries + slot(round) * (int64_t)sizeof(Told<W>), !goes_on);
    }

    /* The state that enters a sub-chunk comes from the fold; where that may not decide, from the walk before it. */
    __device__ __forceinline__ N walk_all(int round, const Summary<N> &sum, Own &a, Own &input, T extra) const
    {
        const S at = seat(round);
        const int thread = (int)threadIdx.x, lanes = places.lanes();
        W entering = shared.carry[round & 1][at.lane];
        bool is_ready = at.chunk == 0 || fold<N>(sum, entering, entering), is_walked = false;
        N state = Wide<N>::close(entering);
        for (;;) {
            if (is_ready && !is_walked) {
                if constexpr (backward)
                    state = walk_back<T, layout>(at, a, input, state, rooms.before(round), extra);
                else
                    state = walk<S>(a, input, state);
                shared.ends[thread] = state;
                shared.walked[thread] = true;
                is_walked = true;
            }
            if (!workers_meet(!is_walked)) return state; /* else ends and walked are those of this round */
            if (!is_walked && shared.walked[thread - lanes]) {
                state = shared.ends[thread - lanes];
                is_ready = true;
            }
            meet<AMONG_WORKERS>(); /* they have been read */
        }
    }

    /* Where the tile's summary is not accepted the other blocks wait for the state after it. */
    __device__ __forceinline__ void tell_end(int round) const
    {
        const int thread = (int)threadIdx.x;
        if (tile(round).is_last || thread >= places.lanes()) return;
        W leaving;
        if (fold<N>(from_told<N>(shared.own[round & 1][thread]), shared.carry[round & 1][thread], leaving)) return;
        put_end((typename Wide<N>::Factor *)args.ends + slot(round) + thread,
                Wide<N>::factor(shared.ends[WORKERS - places.lanes() + thread]));
    }

    __device__ __forceinline__ void give_state(int round, N state) const
    {
        const S at = seat(round);
        if (!at.tile.is_last || !at.has_channel()) return;
        if (at.last_step() >= 0) {
            __threadfence(); /* every block has read the entering state, which this may overwrite */
            store_state(scan.leave, at.tile.sequence, at.channel(), state);
        }
        if (at.tile.span.count == 0 && at.chunk == 0) pass_on<N>(scan, at.tile.sequence, at.channel());
    }

    /* Walks a tile, and asks for the states before the one after the next. */
    __device__ __forceinline__ void walk_round(int round, const Summary<N> &sum, Own &a, Own &input, T extra) const
    {
        const N state = walk_all(round, sum, a, input, extra);
        ask_before(round + 2);
        tell_end(round);
        give_state(round, state);
    }

    /* The round before the first one only sums up: the code is large, and a second copy of it would be slow to load.
     */
    __device__ __forceinline__ void run() const
    {
        for (int round = 0; round < 2; round++) {
            meet<EVERYBODY>(); /* the tile is dealt */
            ask(round);
            ask_before(round);
        }
        Own a = {}, input = {};
        Summary<N> sum = {}; /* of what precedes a and input in their tile */
        for (int round = -1; round < 0 || tile(round).place >= 0; round++) {
            wait_copies<backward ? 2 : 1>();
            shared.walked[threadIdx.x] = false;
            meet<AMONG_WORKERS>(); /* the next tile has landed, and the states before this one */
            const Summary<N> next_sum = tell(round + 1);
            T extra = {};
            if (backward && round >= 0) extra = state_beyond(seat(round));
            meet<EVERYBODY>(); /* the carry and the tile to be asked for; at first, the state before all */
            if (round >= 0) walk_round(round, sum, a, input, extra);
            Own next_a = {}, next_input = {};
            if (tile(round + 1).place >= 0) take_own(round + 1, next_a, next_input);
            if (round >= 0 && scan.output.data)
                give(input, rooms.a(round + 1), places, own_places, scan, tile(round), OUTPUTS);
            if (backward && round >= 0 && scan.before.data)
                give(a, rooms.input(round + 1), places, own_places, scan, tile(round), DECAY_GRADIENTS);
            sum = next_sum;
            a = next_a;
            input = next_input;
            meet<AMONG_WORKERS>(); /* the next tile's room is free */
            ask(round + 3);
        }
    }
};

template <typename T, rl_split_layout layout, bool backward>
__global__ void __launch_bounds__(WORKERS + CARRIERS, BLOCKS) split_kernel(const __grid_constant__ rl_split_args args)
{
    typedef typename Accumulated<T>::type N;
    unsigned char *const landing = dynamic_shared;
    Shared<N, backward> &shared = *(Shared<N, backward> *)(landing + ROOM_BYTES<T, backward>);
    const Places<T, STEPS_OF<T>, layout> places = {args.lanes_log2};
    /* It may look at offsets already: the reset, launched as any kernel is, has begun after all that is ahead. */
    if ((int)threadIdx.x >= WORKERS + CARRIERS - 32) shared.dealer.begin(args);
    let_later_start();
    await_earlier(); /* the common memory's reset, and all before it */
    if ((int)threadIdx.x < WORKERS) {
        const int lanes_log2 = places.lanes_log2(), thread = (int)threadIdx.x;
        const OwnPlaces<T, STEPS_OF<T>, layout> own_places(places, thread >> lanes_log2,
                                                           thread & ((1 << lanes_log2) - 1));
        const Worker<T, layout, backward> worker = {args, args.scan, places, own_places, shared, {(T *)landing}};
        worker.run();
    } else {
        carry_rounds(shared, args, places.lanes_log2());
    }
}

template <typename T, rl_split_layout layout, bool backward> rl_split_kernel instance()
{
    typedef typename Accumulated<T>::type N;
    return {kernel_address<split_kernel<T, layout, backward>>(),
            ROOM_BYTES<T, backward> + sizeof(Shared<N, backward>),
            WORKERS,
            WORKERS + CARRIERS,
            BLOCKS,
            STEPS_OF<T>,
            (int32_t)sizeof(Told<typename Wide<N>::W>),
            (int32_t)sizeof(typename Wide<N>::Factor)};
}

template <typename T> rl_split_kernel instance_of(rl_split_layout layout, bool backward)
{
    if (layout == RL_SPLIT_DOWN)
        return backward ? instance<T, RL_SPLIT_DOWN, true>() : instance<T, RL_SPLIT_DOWN, false>();
    return backward ? instance<T, RL_SPLIT_RUNS, true>() : instance<T, RL_SPLIT_RUNS, false>();
}
template <typename T> rl_split_kernel rows_instance_of(bool backward)
{
    return backward ? instance<T, RL_SPLIT_ROWS, true>() : instance<T, RL_SPLIT_ROWS, false>();
}
template <typename N> rl_split_kernel any_instance_of(bool backward)
{
    return backward ? instance<N, RL_SPLIT_ANY, true>() : instance<N, RL_SPLIT_ANY, false>();
}

} // namespace

#endif
