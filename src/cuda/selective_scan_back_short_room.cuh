/* What a block of a short sequence holds, which selective_scan_back_short.cu includes in its namespace. */

/* A step of a channel.  What is clamped has no slope: -1. */
template <typename Acc> struct Step {
    Acc delta, input, du, slope, x; /* δ, δx, the gradient of Σ C h, of δ along what is stored, x */
};

/* Sums over the states of a step of a channel. */
template <typename Acc> struct Along {
    Acc B, delta, output; /* Σ G B, the gradient of δ, Σ C h */
};

/* One block's sequence in shared memory. */
template <typename Acc> struct Room {
    Acc *decay, *h, *G; /* [steps, lanes] the last two first hold what a step adds */
    Acc *B, *C;         /* [steps, STATES] */
    Step<Acc> *step;    /* [steps, PAIR] */
    Along<Acc> *along;  /* [steps, PAIR] */
    Acc *shares;        /* [WARPS, lanes] */

    __device__ Room(unsigned char *memory, int64_t steps)
    {
        decay = (Acc *)memory;
        h = decay + steps * LANES;
        G = h + steps * LANES;
        B = G + steps * LANES;
        C = B + steps * STATES;
        step = (Step<Acc> *)(C + steps * STATES);
        along = (Along<Acc> *)(step + steps * PAIR);
        shares = (Acc *)(along + steps * PAIR);
    }
};

/* Steps `at`, at + stride, ...: their decays, and what they add. */
template <typename Acc> struct GroupOf {
    static constexpr int AHEAD = AHEAD_OF<Acc>;

    Acc decay[AHEAD], added[AHEAD];

    GroupOf() = default;
    __device__ GroupOf(const Acc *decays, const Acc *adds, int at, int stride)
    {
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            decay[k] = decays[at + k * stride];
            added[k] = adds[at + k * stride];
        }
    }
};
