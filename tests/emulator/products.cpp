/*
 * Products of tiles by a group of four warps.  A thread keeps what it asked for until it waits; when all have come to
 * wait, the last one multiplies for all.  Layouts: see src/cuda/machine/wgmma.cuh.
 */
#include "formats.h"

namespace emulator
{

namespace
{

enum { GROUP = 128, WARP = 32, ROWS = 64, MOST_COLUMNS = 256, MOST_K = 16, UNIT = 16 };

/* A tile in shared memory, by its descriptor. */
struct Tile {
    Format format;
    uint64_t start, leading, stride;
    int units; /* of 16 bytes, of a line; as a power of two the bits that are swizzled */
    int bits;
    bool turned;
};

Tile tile_of(Format format, uint64_t descriptor, bool turned)
{
    static const int bits_of[] = {0, 3, 2, 1};
    Tile tile = {};
    tile.format = format;
    tile.start = (descriptor & 0x3fff) << 4;
    tile.leading = (descriptor >> 16 & 0x3fff) << 4;
    tile.stride = (descriptor >> 32 & 0x3fff) << 4;
    tile.bits = bits_of[descriptor >> 62];
    tile.units = 1 << tile.bits;
    tile.turned = turned;
    if (descriptor >> 49 & 7) fail("wgmma: a tile's base offset is not emulated");
    if (tile.bits > 0 && tile.start >> 7 & (uint64_t)(tile.units - 1))
        fail("wgmma: a tile swizzled over %d bytes begins at %llu, between atoms", UNIT * tile.units,
             (unsigned long long)tile.start);
    return tile;
}

/* Where 16 bytes of a tile lie: `line` counts rows of A or columns of B, or where turned K; `unit` goes across. */
uint64_t unit_at(const Tile &tile, int line, int unit)
{
    const uint64_t atom = (uint64_t)line / 8, within = (uint64_t)line % 8 * (uint64_t)(UNIT * tile.units);
    const uint64_t segment = (uint64_t)(unit / tile.units), place = (uint64_t)(unit % tile.units * UNIT);
    uint64_t at = tile.start + within + place;
    if (tile.turned)
        at += tile.bits ? atom * tile.stride + segment * tile.leading : atom * tile.leading + segment * tile.stride;
    else
        at += atom * tile.stride + (tile.bits ? segment * (uint64_t)(UNIT * tile.units) : segment * tile.leading);
    return at ^ ((at >> 7 & (uint64_t)(tile.units - 1)) << 4);
}

/* The element of a row of A, or a column of B, and of K. */
float element_at(const Tile &tile, int across, int k)
{
    const int each = UNIT / bytes_of(tile.format), line = tile.turned ? k : across, place = tile.turned ? across : k;
    const uint64_t at = unit_at(tile, line, place / each) + (uint64_t)(place % each * bytes_of(tile.format));
    uint32_t bits = 0;
    if (at >= MOST_SHARED) fail("wgmma: a tile reaches to %llu in shared memory", (unsigned long long)at);
    memcpy(&bits, self->block->shared + at, (size_t)bytes_of(tile.format));
    return widened(tile.format, bits);
}

int depth_of(Format format)
{
    return format == TENSOR_FLOAT ? 8 : 16;
}

struct Matrices {
    float a[ROWS][MOST_K], b[MOST_K][MOST_COLUMNS];
};

/* A from the registers of all threads. */
void gather(void **items, size_t index, Matrices &m)
{
    for (int rank = 0; rank < GROUP; rank++) {
        const Request &request = ((Thread *)items[rank])->products[index].request;
        const int lane = rank % WARP, each = request.format == TENSOR_FLOAT ? 1 : 2;
        for (int i = 0; i < 4; i++)
            for (int e = 0; e < each; e++)
                m.a[16 * (rank / WARP) + lane / 4 + 8 * (i % 2)][each * (lane % 4) + 4 * each * (i / 2) + e] =
                    element_of(request.format, request.registers[i], e);
    }
}

void load(const Request &request, Matrices &m)
{
    const int depth = depth_of(request.format);
    if (!request.has_registers) {
        const Tile a = tile_of(request.format, request.a, request.a_turned);
        for (int row = 0; row < ROWS; row++)
            for (int k = 0; k < depth; k++) m.a[row][k] = element_at(a, row, k);
    }
    const Tile b = tile_of(request.format, request.b, request.b_turned);
    for (int k = 0; k < depth; k++)
        for (int column = 0; column < request.columns; column++) m.b[k][column] = element_at(b, column, k);
}

/* A thread's sums, rounded once. */
void add(Product &product, int rank, const Matrices &m)
{
    const Request &request = product.request;
    const int lane = rank % WARP, depth = depth_of(request.format);
    for (int i = 0; i < request.columns / 2; i++) {
        const int row = 16 * (rank / WARP) + lane / 4 + 8 * (i / 2 % 2);
        const int column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
        double sum = !request.adds ? 0 : product.before.empty() ? product.sum[i] : product.before[(size_t)i];
        for (int k = 0; k < depth; k++) sum += (double)m.a[row][k] * m.b[k][column];
        product.sum[i] = (float)sum;
    }
}

bool is_same(const Request &x, const Request &y)
{
    return x.format == y.format && x.columns == y.columns && x.a_turned == y.a_turned && x.b_turned == y.b_turned &&
           x.adds == y.adds && x.has_registers == y.has_registers && x.a == y.a && x.b == y.b;
}

void multiply(void **items, size_t index)
{
    static thread_local Matrices m;
    const Request &request = ((Thread *)items[0])->products[index].request;
    for (int rank = 0; rank < GROUP; rank++)
        if (!is_same(request, ((Thread *)items[rank])->products[index].request))
            fail("wgmma: threads 0 and %d of a group ask for different products", rank);
    if (request.has_registers) gather(items, index, m);
    load(request, m);
    for (int rank = 0; rank < GROUP; rank++) add(((Thread *)items[rank])->products[index], rank, m);
}

/* Does what the threads wait for: the products that each has marked as due. */
void multiply_all(void **items)
{
    for (int rank = 0; rank < GROUP; rank++) {
        if (!items[rank]) fail("wgmma: thread %d of a group is over", rank);
        if (((Thread *)items[rank])->due != ((Thread *)items[0])->due)
            fail("wgmma: threads 0 and %d of a group wait for different products", rank);
    }
    for (size_t k = 0; k < ((Thread *)items[0])->due; k++) multiply(items, k);
}

} // namespace

uint64_t describe_tile(const void *tile, uint32_t leading, uint32_t stride, unsigned swizzle)
{
    const uintptr_t at = (uintptr_t)tile - (uintptr_t)self->block->shared;
    if (at >= MOST_SHARED) fail("wgmma: a tile at %p is not in dynamic shared memory", tile);
    if ((at | leading | stride) % UNIT != 0 || (leading | stride) >> 18 != 0)
        fail("wgmma: a tile at %zu, %u bytes leading, stride %u", (size_t)at, leading, stride);
    return (uint64_t)at >> 4 | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           (uint64_t)swizzle << 62;
}

void multiply_later(float *sum, const Request &request)
{
    Product product = {request, sum, {}, self->product_groups};
    bool is_pending = false;
    for (const Product &earlier : self->products) is_pending = is_pending || earlier.sum == sum;
    if (!is_pending) product.before.assign(sum, sum + request.columns / 2);
    memset(sum, 0xff, (size_t)request.columns / 2 * sizeof *sum);
    self->products.push_back(product);
}

void close_products()
{
    self->product_groups++;
}

void wait_for_products(int open)
{
    std::vector<Product> &products = self->products;
    self->due = 0;
    while (self->due < products.size() && products[self->due].group < self->product_groups - open) self->due++;
    meet_lanes("wgmma.wait_group", GROUP, ~0u, self, multiply_all);
    products.erase(products.begin(), products.begin() + (long)self->due);
}

} // namespace emulator
