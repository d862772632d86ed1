/* The order of a team's jobs, which selective_scan_back_roles.cu includes in its namespace: the work of one warp. */

struct Jobs {
    const rl_s6_back_args &args;
    Room &room;
    const int lane;

    __device__ Jobs(const rl_s6_back_args &args, Room &room) : args(args), room(room), lane(threadIdx.x & 31)
    {
    }

    __device__ bool is_split() const
    {
        return args.scan.chunks > 1;
    }
    __device__ bool exists(int64_t task) const
    {
        return task < args.pieces * args.scan.blocks;
    }
    __device__ const rl_s6_view &view(int stream) const
    {
        return stream == OF_DB ? args.dB : stream == OF_DC ? args.dC : view_of(args, stream);
    }

    __device__ void enter_task(Cursor &at) const
    {
        Job &job = at.model;
        job.index = job.task / args.scan.blocks;
        job.number = job.task - job.index * args.scan.blocks;
        const Block block = locate_block(args.scan, job.number);
        job.channel = block.channel;
        job.channels = block.channels;
        job.sequence = is_split() ? job.index / args.scan.chunks : job.index * args.run;
        at.end = job.sequence + (is_split() ? 1 : args.run);
        if (at.end > args.scan.sequences) at.end = args.scan.sequences;
        at.begins = true;
        job.vectors ^= 1;
    }

    __device__ void enter_sequence(Cursor &at) const
    {
        Job &job = at.model;
        at.chunk = locate_chunk(args.scan, job.sequence, is_split() ? job.index % args.scan.chunks : 0);
        const Piece &piece = at.chunk.piece;
        at.tile = at.chunk.tiles;
        job.row = piece.sequence * args.scan.chunks + piece.chunk;
        job.moves = !piece.starts || args.scan.h_init.data;
        job.starts = piece.starts;
        job.finishes = piece.ends || !is_split();
    }

    /* Where the chunk's first tile lies: each lane finds one of the streams. */
    __device__ void find_origins(Cursor &at) const
    {
        const Job &job = at.model;
        const Piece &piece = at.chunk.piece;
        const int64_t row = piece.batch * args.scan.length + piece.row, own = PART_NUMBERS * sizeof(float);
        if (lane >= STREAMS) return;
        char *&origin = at.origin[lane];
        if (lane == OF_SHARES) {
            origin = (char *)args.bc_parts + (job.number * args.rows + row) * 2 * args.scan.states * sizeof(float);
        } else if (lane == OF_KEPT) {
            origin = (char *)args.kept + (at.chunk.kept * args.scan.blocks + job.number) * own;
        } else if (lane == OF_SUMS) {
            origin = (char *)args.kept_sums + (at.chunk.kept * args.scan.channels + job.channel) * sizeof(float);
        } else {
            const rl_s6_view &which = view(lane);
            const int64_t group = job.number / args.scan.blocks_per_group;
            const int64_t first = lane >= OF_B ? group * which.group : job.channel;
            origin = (char *)which.data + (first_row(args.scan, which, piece) + first) * bytes_of(which);
        }
    }
    __device__ void find_stride() const
    {
        if (lane >= STREAMS) return;
        int64_t &stride = room.stride[lane];
        if (lane == OF_SHARES)
            stride = (args.scan.reverse ? -2 : 2) * TILE * args.scan.states * sizeof(float);
        else if (lane == OF_KEPT)
            stride = args.scan.blocks * PART_NUMBERS * sizeof(float);
        else if (lane == OF_SUMS)
            stride = args.scan.channels * sizeof(float);
        else
            stride = TILE * view(lane).step * bytes_of(view(lane));
    }

    __device__ void start(int64_t task)
    {
        Cursor &at = room.cursor;
        find_stride();
        if (lane == 0) {
            at.model.task = task;
            at.model.vectors = 0;
            if (exists(task)) {
                enter_task(at);
                enter_sequence(at);
            }
        }
        __syncwarp();
        if (exists(at.model.task)) find_origins(at);
        __syncwarp();
    }

    /* Behind a chunk's last job. */
    __device__ void leave_chunk(Cursor &at)
    {
        Job &model = at.model;
        __syncwarp();
        if (lane == 0) {
            if (++model.sequence == at.end) {
                model.task += (int64_t)TEAMS * gridDim.x;
                if (exists(model.task)) enter_task(at);
            }
            if (exists(model.task)) enter_sequence(at);
        }
        __syncwarp();
        if (exists(model.task)) find_origins(at);
        __syncwarp();
    }

    /* Describes the next job, and goes on to the one after it. */
    __device__ void describe(Job &job)
    {
        Cursor &at = room.cursor;
        const int64_t tile = at.tile - 1;
        if (!exists(at.model.task)) {
            if (lane == 0) job.steps = 0;
            __syncwarp();
            return;
        }
        for (int k = lane; k < (int)(sizeof(Job) / sizeof(int)); k += 32)
            ((int *)&job)[k] = ((const int *)&at.model)[k];
        __syncwarp();
        if (lane < STREAMS) job.at[lane] = at.origin[lane] + tile * room.stride[lane];
        if (lane == 0) {
            const int64_t left = at.chunk.piece.count - tile * TILE;
            job.steps = left < TILE ? (int)left : TILE;
            job.tile = (int)tile;
            job.begins = at.begins;
            job.ends_task = tile == 0 && at.model.sequence + 1 == at.end;
            job.enters = tile + 1 == at.chunk.tiles;
            job.leaves = tile == 0;
            at.tile = tile;
            at.begins = false;
        }
        __syncwarp();
        if (tile == 0) leave_chunk(at);
    }
};
