/* Kernels of channels that are neighbours in memory, of all types that 16 bytes hold some of. */
constexpr bool BY_ROWS = true;
#include "scan_split.cuh"

rl_split_kernel rl_scan_split_rows(rill_dtype dtype, bool backward)
{
    switch (dtype) {
    case RILL_BF16:
        return rows_instance_of<bf16>(backward);
    case RILL_F16:
        return rows_instance_of<f16>(backward);
    case RILL_F64:
        return rows_instance_of<double>(backward);
    case RILL_C64:
        return rows_instance_of<Complex<float>>(backward);
    default:
        return rows_instance_of<float>(backward);
    }
}
