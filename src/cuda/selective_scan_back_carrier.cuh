/* One state's way from chunk to chunk, for selective_scan_back_carry.cu, which includes it in its namespace. */

/* What a chunk leaves of what enters it, of A <= 0. */
template <typename Acc> __device__ inline Acc chunk_decay(Acc rate, double sum)
{
    return long_decay(rate, (Acc)sum);
}

/* One state of one channel of a sequence, where it cannot be carried over a chunk but must be run through it. */
template <typename Acc> struct Carrier {
    const rl_s6_back_args &args;
    int64_t sequence, channel, state;
    Acc a, bias;

    __device__ Carrier(const rl_s6_back_args &args, int64_t sequence, int64_t channel, int64_t state)
        : args(args), sequence(sequence), channel(channel), state(state)
    {
        a = load_A<Acc>(args.scan, channel, state);
        bias = args.scan.bias.data ? ((const Acc *)args.scan.bias.data)[channel * args.scan.bias.stride] : Acc(0);
    }

    __device__ int64_t row(int64_t chunk) const
    {
        return (sequence * args.scan.chunks + chunk) * args.scan.channels + channel;
    }
    __device__ int64_t place(int64_t chunk) const
    {
        return row(chunk) * args.scan.states + state;
    }
    /* In what is laid out by threads. */
    __device__ Acc &kept(const Chunk &chunk, int64_t tile) const
    {
        return ((Acc *)args.kept)[place_of_state(args.scan, chunk.kept + tile, channel, state)];
    }
    __device__ Acc load_state(const rl_s6_state &view) const
    {
        const int64_t at = sequence * view.sequence + channel * view.channel + state * view.state;
        return view.data ? load_any<Acc>(view.data, view.dtype, at) : Acc(0);
    }
    __device__ Acc load(const rl_s6_view &view, const Piece &piece, int64_t step) const
    {
        return load_any<Acc>(view.data, view.dtype,
                             first_row(args.scan, view, piece) + step * view.step + channel * view.lane);
    }
    __device__ Acc load_input(const rl_s6_view &view, const Piece &piece, int64_t step) const
    {
        const int64_t group = channel / args.scan.group_channels;
        return load_any<Acc>(view.data, view.dtype,
                             first_row(args.scan, view, piece) + step * view.step + group * view.group +
                                 state * view.lane);
    }
    __device__ Acc load_size(const Piece &piece, int64_t step) const
    {
        const Acc low = (Acc)args.scan.delta_min, high = (Acc)args.scan.delta_max;
        Acc size = load(args.scan.delta, piece, step) + bias;
        if (args.scan.softplus) size = softplus_of_any(size);
        size = size < low ? low : size;
        return size > high ? high : size;
    }

    /* The state before a tile, of a chunk that starts from h, as the walk back takes it. */
    __device__ Acc before(const Chunk &chunk, int64_t tile, Acc h) const
    {
        if (tile == 0) return h;
        const Acc deltas = ((const Acc *)args.kept_sums)[(chunk.kept + tile) * args.scan.channels + channel];
        return fma(distant_decay(rate_of(a), deltas), h, kept(chunk, tile));
    }

    /* The first tile of a chunk that must be run in the loop's own order: those before it keep their bits. */
    __device__ int64_t first_wild(const Chunk &chunk, int wild, Acc h) const
    {
        const int64_t noted = wild & RL_S6_BACK_NONE;
        int64_t first = noted < chunk.tiles ? noted : chunk.tiles - 1;
        if (first > RL_S6_BACK_LAST_PLAIN - 1) first = RL_S6_BACK_LAST_PLAIN - 1;
        if (!(a <= 0) || !is_finite(h)) return 0;
        for (int64_t tile = 1; tile <= first; tile++)
            if (!is_finite(before(chunk, tile, h))) return tile - 1;
        return first;
    }

    /* A chunk forward, from a wild tile on in the loop's own order, which leaves the states before its tiles. */
    __device__ Acc run_forward(int64_t index, int wild, Acc h) const
    {
        const Chunk chunk = locate_chunk(args.scan, sequence, index);
        const Piece &piece = chunk.piece;
        if (chunk.tiles == 0) return h;
        const int64_t first = first_wild(chunk, wild, h);
        bool fresh = first == 0 && piece.starts && !args.scan.h_init.data;
        h = before(chunk, first, h);
        args.plain[place(index)] = (uint16_t)(first + 1);
        atomicOr(&args.wild[row(index)], RL_S6_BACK_RUN_AGAIN);
        for (int64_t k = first * TILE; k < piece.count; k++) {
            if (k > first * TILE && k % TILE == 0) kept(chunk, k / TILE) = h;
            const Acc size = load_size(piece, k), x = load(args.scan.x, piece, k);
            const Acc input = size * x * load_input(args.scan.B, piece, k);
            h = fresh ? input : advance(exponential(size * a), h, input);
            fresh = false;
        }
        return h;
    }

    /* A chunk back in the loop's own order. */
    __device__ Acc run_back(const Chunk &chunk, Acc G) const
    {
        const Piece &piece = chunk.piece;
        for (int64_t k = piece.count - 1; k >= 0; k--) {
            if (args.dy.data) {
                Acc du = load(args.dy, piece, k);
                if (args.scan.z.data) du *= gate(load(args.scan.z, piece, k));
                G = advance(du, load_input(args.scan.C, piece, k), G);
            }
            G *= exponential(load_size(piece, k) * a);
        }
        return G;
    }

    /* Without chunks: whether what is kept may be added to the state that the sequence starts from. */
    __device__ bool keeps_finite() const
    {
        const Chunk chunk = locate_chunk(args.scan, sequence, 0);
        if (chunk.tiles <= 1) return true;
        return is_finite(kept(chunk, chunk.tiles - 1));
    }

    __device__ void carry_whole() const
    {
        const Acc h = load_state(args.scan.h_init);
        const int wild = args.wild[row(0)];
        args.plain[place(0)] = RL_S6_BACK_LAST_PLAIN + 1;
        if (!has_none(wild) || !(a <= 0) || !is_finite(h) || !keeps_finite()) run_forward(0, wild, h);
    }

    __device__ static bool has_none(int wild)
    {
        return (wild & RL_S6_BACK_NONE) == RL_S6_BACK_NONE;
    }

    __device__ Acc &summary(void *locals, int64_t chunk) const
    {
        return ((Acc *)locals)[place_of_state(args.scan, sequence * args.scan.chunks + chunk, channel, state)];
    }
    /* What a chunk makes of `value`, and whether that may be trusted. */
    __device__ bool pass(int64_t chunk, Acc local, Acc value, Acc &next) const
    {
        next = fma(chunk_decay(rate_of(a), args.step_sums[row(chunk)]), value, local);
        return a <= 0 && is_finite(value) && is_finite(next);
    }
    __device__ void carry_state(int64_t chunk, Acc h) const
    {
        for (; chunk < args.scan.chunks; chunk++) {
            const Acc local = summary(args.ends, chunk);
            const int wild = args.wild[row(chunk)];
            Acc next;
            summary(args.ends, chunk) = h;
            args.plain[place(chunk)] = RL_S6_BACK_LAST_PLAIN + 1;
            const bool tame = pass(chunk, local, h, next) && has_none(wild);
            h = tame ? next : run_forward(chunk, wild, h);
        }
    }
    __device__ void carry_gradient(int64_t chunk, Acc G) const
    {
        for (; chunk >= 0; chunk--) {
            const Acc local = summary(args.backs, chunk);
            Acc next;
            summary(args.backs, chunk) = G;
            if (chunk == 0) continue;
            const bool tame = pass(chunk, local, G, next) && !(args.wild[row(chunk)] & RL_S6_BACK_WILD_GRADIENTS);
            G = tame ? next : run_back(locate_chunk(args.scan, sequence, chunk), G);
        }
    }
};
