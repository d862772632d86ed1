/* Descriptions of tensors for the copy engine, and the tiles that it moves by them. */
#include "tensor_map.h"

#include <string.h>

#include "transfers.h"

namespace emulator
{

namespace
{

enum { MOST_RANK = 5, MOST_BOX = 256, UNIT = 16 };

/* In the place of the driver's own secret. */
struct Map {
    char *base;
    uint64_t strides[MOST_RANK]; /* in bytes, from the innermost axis on */
    uint32_t sizes[MOST_RANK];
    uint16_t box[MOST_RANK];
    uint8_t rank, element, swizzle, mark;
};
static_assert(sizeof(Map) <= sizeof(CUtensorMap), "what a kernel is given");
enum { MARK = 0xb7 };

int element_bytes(CUtensorMapDataType type)
{
    switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
        return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
        return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ:
        return 4;
    default:
        return 8;
    }
}

/* Bits of the address of 16 bytes that are mixed with those three above. */
int swizzle_bits(CUtensorMapSwizzle swizzle)
{
    switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE:
        return 0;
    case CU_TENSOR_MAP_SWIZZLE_32B:
        return 1;
    case CU_TENSOR_MAP_SWIZZLE_64B:
        return 2;
    case CU_TENSOR_MAP_SWIZZLE_128B:
        return 3;
    default:
        return -1;
    }
}

const Map &map_of(const CUtensorMap &given)
{
    const Map &map = *(const Map *)&given;
    if (map.mark != MARK) fail("what is given as a tensor map is none");
    return map;
}

bool is_valid(const Map &map)
{
    if (map.rank < 1 || map.rank > MOST_RANK || (uintptr_t)map.base % UNIT != 0) return false;
    for (int k = 0; k < map.rank; k++) {
        if (map.sizes[k] == 0 || map.box[k] == 0 || map.box[k] > MOST_BOX) return false;
        if (k > 0 && (map.strides[k] % UNIT != 0 || map.strides[k] >> 40 != 0)) return false;
    }
    const int line = map.box[0] * map.element;
    return line % UNIT == 0 && (map.swizzle == 0 || line <= UNIT << map.swizzle);
}

CUresult encode(CUtensorMap *to, CUtensorMapDataType type, cuuint32_t rank, void *base, const cuuint64_t *sizes,
                const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *each,
                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                CUtensorMapFloatOOBfill fill)
{
    const int bits = swizzle_bits(swizzle);
    if (rank > MOST_RANK || bits < 0 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
        fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || (uintptr_t)to % 64 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    Map map = {};
    map.base = (char *)base;
    map.rank = (uint8_t)rank;
    map.element = (uint8_t)element_bytes(type);
    map.swizzle = (uint8_t)bits;
    map.mark = MARK;
    for (cuuint32_t k = 0; k < rank; k++) {
        if (sizes[k] > (1ull << 32) - 1 || each[k] != 1 || box[k] > MOST_BOX) return CUDA_ERROR_INVALID_VALUE;
        map.sizes[k] = (uint32_t)sizes[k];
        map.box[k] = (uint16_t)box[k];
        map.strides[k] = k == 0 ? map.element : strides[k - 1];
    }
    if (!is_valid(map)) return CUDA_ERROR_INVALID_VALUE;
    memset(to, 0, sizeof *to);
    memcpy(to, &map, sizeof map);
    return CUDA_SUCCESS;
}

/* Where 16 bytes of a tile lie: swizzled by the bits of the address itself. */
char *swizzled(const Map &map, char *at)
{
    const uintptr_t mask = ((uintptr_t)1 << map.swizzle) - 1;
    return (char *)((uintptr_t)at ^ (((uintptr_t)at >> 7 & mask) << 4));
}

/* 16 bytes of a line, or as many of them as the tensor has; `left` elements from the first on. */
void move_unit(const Map &map, char *global, char *shared, int64_t place, bool load)
{
    const int count = UNIT / map.element;
    if (load) memset(shared, 0, UNIT);
    for (int k = 0; k < count; k++) {
        if (place + k < 0 || place + k >= map.sizes[0]) continue;
        char *out = global + k * map.element, *in = shared + k * map.element;
        memcpy(load ? in : out, load ? out : in, map.element);
    }
}

/* A line along the innermost axis; without a place in the tensor it holds zeros. */
void move_line(const Map &map, char *line, bool exists, int64_t place, char *shared, bool load)
{
    const int count = UNIT / map.element;
    for (int k = 0; k < map.box[0]; k += count) {
        char *const unit = swizzled(map, shared + k * map.element);
        char *const global = line + (place + k) * map.element;
        const bool whole = place + k >= 0 && place + k + count <= map.sizes[0];
        if (!exists) {
            if (load) memset(unit, 0, UNIT);
        } else if (whole) {
            memcpy(load ? unit : global, load ? global : unit, UNIT);
        } else {
            move_unit(map, global, unit, place + k, load);
        }
    }
}

} // namespace

void (*find_encode())()
{
    return (void (*)())encode;
}

uint32_t tile_bytes(const CUtensorMap &given, int rank)
{
    const Map &map = map_of(given);
    if (map.rank != rank) fail("a tile of %d axes of a tensor of %d", rank, map.rank);
    uint32_t bytes = map.element;
    for (int k = 0; k < rank; k++) bytes *= map.box[k];
    return bytes;
}

void move_tile(const CUtensorMap &given, const int *place, char *shared, bool load)
{
    const Map &map = map_of(given);
    const int line_bytes = map.box[0] * map.element;
    int lines = 1;
    for (int k = 1; k < map.rank; k++) lines *= map.box[k];
    if (place[0] * map.element % UNIT != 0) fail("a tile begins at element %d, which is not aligned", place[0]);
    for (int line = 0; line < lines; line++) {
        char *global = map.base;
        bool exists = true;
        for (int k = 1, rest = line; k < map.rank; rest /= map.box[k++]) {
            const int64_t at = (int64_t)place[k] + rest % map.box[k];
            exists = exists && at >= 0 && at < map.sizes[k];
            global += at * (int64_t)map.strides[k];
        }
        move_line(map, global, exists, place[0], shared + (size_t)line * line_bytes, load);
    }
}

} // namespace emulator
