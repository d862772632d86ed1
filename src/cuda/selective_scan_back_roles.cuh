/*
 * What a block of selective_scan_back_roles.cu holds, which that includes in its namespace.
 *
 * A job is a tile of a task.  Of each team two are prepared at a time: its stage of one parity is walked while the
 * other one is finished and filled again.
 */

/* What lies in memory tile by tile: the tensors, and these. */
enum Stream { OF_SHARES = TENSORS, OF_KEPT, OF_SUMS, OF_DB, OF_DC, STREAMS };

/* A tile, and where it lies. */
struct Job {
    char *at[STREAMS];                  /* its first step, from the block's first channel on */
    int64_t number, channel;            /* of the block, of its first channel */
    int64_t task, index, row, sequence; /* row: of what is kept of chunks */
    int channels, steps, tile;          /* that exist; 0 steps: there is no job any more */
    bool begins, ends_task;             /* the task's first and last */
    bool enters, leaves;                /* the chunk's last tile and its first, which are the first and last walked */
    bool moves, starts, finishes;       /* the chunk has a state before it; it is its sequence's first, last */
    uint8_t vectors;                    /* where the task's bias and skip are */
};

/* Where a team's jobs have come to. */
struct Cursor {
    Job model; /* what all of the chunk's have in common */
    Chunk chunk;
    char *origin[STREAMS]; /* the chunk's first tile */
    int64_t end, tile;
    bool begins;
};

/* Two steps of a channel. */
struct alignas(16) TwoSteps {
    float delta0, delta1, input0, input1;
};

/*
 * A part of a tile: first the states before it as threads hold them; then, once a warp has read its own, its dB and
 * dC in the first half and its Σ G B and Σ A G a h in the second.  Until the walk of a tile comes to fill them, its
 * first part holds the states that are kept before the tile, the third one those before the chunk, and the second one
 * in the room of each warp its channels' SUMS: Σδ from the chunk's first step up to the tile, and up to the next one.
 */
struct alignas(16) PartRoom {
    float number[OWN][TEAM * STATES];
};
enum { KEPT_PART = 0, SUMS_PART = 1, START_PART = 2 };

struct Room {
    TwoSteps steps[2][TILE / 2][COLUMNS];
    alignas(16) float du[2][TILE / 2][COLUMNS][2];
    PartRoom part[2][PARTS];
    alignas(16) float B[2][TILE][ORDERS][PANEL], C[2][TILE][ORDERS][PANEL];
    alignas(16) float bias[2][COLUMNS], skip[2][COLUMNS];
    Job job[JOBS];
    Cursor cursor;
    int64_t stride[STREAMS]; /* from tile to tile */
    uint64_t full[2], done[2];
    int wild[2];    /* the states or gradients of a job are what the fast order cannot take */
    int strange[4]; /* the same of its steps */
};
