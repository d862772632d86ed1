#ifndef EMULATOR_TENSOR_MAP_H
#define EMULATOR_TENSOR_MAP_H

namespace emulator
{

/* cuTensorMapEncodeTiled */
void (*find_encode())();

} // namespace emulator

#endif
