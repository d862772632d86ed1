/* What a consumer of selective_scan.cuh holds from tile to tile, which includes this in its namespace: its states. */

/*
 * Lane bits of a warp, low to high: channel 0, the state lane's, the channel's others.  So neighbouring threads read
 * the same B and C, and threads two apart the same δ: shared memory serves such pairs in one access.
 */
template <typename Acc, typename Shape, Pass pass, Work work> struct OwnStates {
    static constexpr int LANES = Shape::LANES, OWN = Shape::OWN;

    const rl_s6_args &args;
    const Task &task;
    int column;            /* channel of the block */
    int lane;              /* of the channel: states OWN lane .. OWN (lane + 1) - 1 of a panel */
    bool exists;           /* the channel does */
    int own;               /* states of the panel that exist */
    Acc h[OWN], rate[OWN]; /* rate: A log2(e), for rough_decay */
    bool decays;           /* no A is above 0 */

    __device__ OwnStates(const rl_s6_args &args, const Task &task) : args(args), task(task)
    {
        int thread = threadIdx.x - PRODUCERS, in_warp = thread & 31;
        column = thread / 32 * Shape::WARP_CHANNELS + in_warp % 2 + in_warp / (2 * LANES) * 2;
        lane = in_warp / 2 % LANES;
        exists = work == WHOLE || column < task.channels;
    }

    /* Of the tensors. */
    __device__ int64_t channel() const
    {
        return task.channel + hidden(column);
    }

    __device__ int64_t state_of(int panel, int k) const
    {
        return (int64_t)panel * PANEL + lane * OWN + k;
    }

    __device__ bool has(int panel, int k) const
    {
        return work == WHOLE || (exists && state_of(panel, k) < args.states);
    }

    __device__ Acc load_A(int panel, int k) const
    {
        const int64_t at = channel() * args.A_channel + state_of(panel, k) * args.A_state;
        return has(panel, k) ? finite_range(((const Acc *)args.A)[at]) : Acc(0);
    }

    __device__ void load_rates(int panel)
    {
        own = 0;
#pragma unroll
        for (int k = 0; k < OWN; k++) own += has(panel, k);
        decays = true;
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            const Acc a = load_A(panel, k);
            decays = decays && a <= 0;
            rate[k] = fmax(a * Acc(1.44269504088896341), -Limits<Acc>::top);
        }
    }

    /* The block's own memory of states: between tiles, and at the ends of chunks. */
    __device__ Acc *kept(int panel) const
    {
        Acc *base = (Acc *)(pass == SUMMARY ? args.local : args.carry);
        return base + carry_index(args, task.piece, channel()) * args.states + state_of(panel, 0);
    }

    /*
     * Where the thread's first state of a panel lies in the caller's states.  Its operands are hidden, which
     * keeps compilers from working this out ahead of the walk and holding it in registers all along.
     */
    __device__ int64_t place_of(const rl_s6_state &states, int panel) const
    {
        int64_t sequence = task.piece.sequence, its_channel = channel();
        hide(sequence, its_channel);
        return sequence * states.sequence + its_channel * states.channel + state_of(panel, 0) * states.state;
    }

    __device__ void load_states(int panel, bool first_tile)
    {
        const bool begins = first_tile && (pass == SUMMARY || args.chunks == 1);
        const rl_s6_state &init = args.h_init;
        const int64_t from = place_of(init, panel);
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            h[k] = 0;
            if (!has(panel, k)) continue;
            if (!begins) {
                h[k] = kept(panel)[k];
            } else if (pass == FULL && init.data) {
                h[k] = load_any<Acc>(init.data, init.dtype, from + k * init.state);
            }
        }
    }

    __device__ void store_states(int panel, bool last_tile)
    {
        const bool keep = pass == SUMMARY || !last_tile, finish = pass == FULL && last_tile && task.piece.ends;
        const rl_s6_state &final = args.h_final;
        const int64_t to = place_of(final, panel);
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            if (!has(panel, k)) continue;
            if (keep) kept(panel)[k] = h[k];
            if (finish && final.data) store_any(final.data, final.dtype, to + k * final.state, h[k]);
        }
    }

    /* A sequence without steps hands its states on, bit for bit where both have one type. */
    __device__ void hand_on() const
    {
        const rl_s6_state &init = args.h_init, &final = args.h_final;
        for (int64_t state = lane; final.data && exists && state < args.states; state += LANES) {
            int64_t to = task.piece.sequence * final.sequence + channel() * final.channel + state * final.state;
            int64_t from = task.piece.sequence * init.sequence + channel() * init.channel + state * init.state;
            if (!init.data)
                store_any(final.data, final.dtype, to, Acc(0));
            else if (init.dtype != final.dtype)
                store_any(final.data, final.dtype, to, load_any<Acc>(init.data, init.dtype, from));
            else if (sizeof(Acc) == 4 && init.dtype != RILL_F32)
                ((uint16_t *) final.data)[to] = ((const uint16_t *)init.data)[from];
            else
                ((Acc *) final.data)[to] = ((const Acc *)init.data)[from];
        }
    }
};
