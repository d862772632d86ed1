/* What a block of the walk back holds, which selective_scan_back_walk.cu includes in its namespace. */

/* Where what is kept of a chunk lies for the block, and how far it is from tile to tile. */
template <typename Acc> struct Keeping {
    const Acc *state, *ends, *sums;
    Acc *shares; /* of dB and dC, from the chunk's first step on */
    int64_t stride, share_step;

    __device__ void find(const rl_s6_back_args &args, const Block &block, const Chunk &chunk)
    {
        const int64_t own = (int64_t)args.scan.panels * OWN * blockDim.x * STATES, first = block.number * own;
        const int64_t row = chunk.piece.sequence * args.scan.chunks + chunk.piece.chunk;
        stride = args.scan.blocks * own;
        state = (const Acc *)args.kept + chunk.kept * stride + first;
        ends = (const Acc *)args.ends + row * stride + first;
        sums = (const Acc *)args.kept_sums + chunk.kept * args.scan.channels + block.channel;
        const int64_t share_row = block.number * args.rows + chunk.piece.batch * args.scan.length + chunk.piece.row;
        share_step = (args.scan.reverse ? -2 : 2) * args.scan.states;
        shares = (Acc *)args.bc_parts + share_row * 2 * args.scan.states;
    }
};

template <typename Acc> struct Tiles {
    Step<Acc> step[TILE][CHANNELS<Acc>];
    alignas(16) Acc B[TILE][ORDERS][PANEL], C[TILE][ORDERS][PANEL];
    alignas(16) Acc sums[TILE][2][CHANNELS<Acc> + WARP];       /* Σ G B, Σ A G a h; apart so that banks differ */
    alignas(16) Acc outputs[TILE][CHANNELS<Acc>];              /* Σ C h */
    alignas(16) Acc bc[CHANNELS<Acc> / WARP][TILE][2 * PANEL]; /* each warp's dB and dC */
    alignas(16) Acc shares[2][ROWS][CHANNELS<Acc>];            /* dD, ddelta_bias of every eighth two steps */
    Four<Acc> start[TILE / PART<Acc>][OWN][THREADS<Acc>], entering[OWN][THREADS<Acc>];
    Parameters<Acc> vectors;
    int flags[2][CHANNELS<Acc>]; /* of a tile and the next */
    Rows rows[2];                /* likewise */
    int64_t stride[TENSORS];
    int seat[THREADS<Acc>];
    Block block; /* this and the next here, to leave registers to the walk */
    Chunk chunk;
    Keeping<Acc> keeping;
    int moves, again; /* the chunk starts from a state that is not zero; some states have been run again */
};
