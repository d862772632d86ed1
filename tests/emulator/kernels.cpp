/* The runtime's kernels: their attributes, and launches. */
#include <cuda_runtime_api.h>
#include <string.h>

#include <map>
#include <memory>
#include <mutex>

#include "runtime.h"

namespace emulator
{

namespace
{

struct Entry {
    Kernel kernel;
    size_t most_shared;
};

std::mutex mutex;

std::map<const void *, Entry> &entries()
{
    static std::map<const void *, Entry> *all = new std::map<const void *, Entry>();
    return *all;
}

Entry *find_entry(const void *kernel)
{
    std::lock_guard<std::mutex> lock(mutex);
    auto found = entries().find(kernel);
    return found == entries().end() ? NULL : &found->second;
}

/* Arguments as they were when the launch was asked for. */
struct Arguments {
    std::vector<std::vector<uint64_t>> values;
    std::vector<void *> places;

    Arguments(const Kernel &kernel, void **given)
    {
        for (size_t k = 0; k < kernel.count; k++) {
            values.emplace_back(kernel.sizes[k] / 8 + 32);
            void *place = values.back().data();
            size_t room = values.back().size() * 8;
            std::align(256, kernel.sizes[k], place, room);
            places.push_back(memcpy(place, given[k], kernel.sizes[k]));
        }
    }
};

bool is_valid(const Entry &entry, dim3 blocks, dim3 threads, size_t shared, unsigned cluster)
{
    const uint64_t count = (uint64_t)threads.x * threads.y * threads.z;
    return count > 0 && count <= MOST_THREADS && threads.z <= 64 && blocks.x > 0 && blocks.x <= 0x7fffffff &&
           blocks.y > 0 && blocks.y <= 65535 && blocks.z > 0 && blocks.z <= 65535 && shared <= entry.most_shared &&
           cluster > 0 && cluster <= MOST_CLUSTER && blocks.x % cluster == 0;
}

cudaError_t launch(const void *kernel, dim3 blocks, dim3 threads, void **given, size_t shared, cudaStream_t stream,
                   unsigned cluster = 1)
{
    const Entry *entry = find_entry(kernel);
    if (!entry) return cudaErrorInvalidDeviceFunction;
    if (!is_valid(*entry, blocks, threads, shared, cluster)) return cudaErrorInvalidValue;
    const Kernel *known = &entry->kernel;
    std::shared_ptr<Arguments> arguments = std::make_shared<Arguments>(*known, given);
    return enqueue(stream, [=] {
        Launch made = {kernel, known, arguments->places.data(), blocks, threads, shared, cluster, {}};
        made.clusters = make_clusters(made);
        run(made);
    });
}

} // namespace

const void *know(const void *kernel, const Kernel &known)
{
    std::lock_guard<std::mutex> lock(mutex);
    entries().insert({kernel, {known, USUAL_SHARED}});
    return kernel;
}

} // namespace emulator

using namespace emulator;

cudaError_t cudaLaunchKernel(const void *kernel, dim3 blocks, dim3 threads, void **arguments, size_t shared,
                             cudaStream_t stream)
{
    return answer(launch(kernel, blocks, threads, arguments, shared, stream));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments)
{
    unsigned cluster = 1;
    for (unsigned k = 0; k < config->numAttrs; k++) {
        const cudaLaunchAttribute &attribute = config->attrs[k];
        if (attribute.id == cudaLaunchAttributeClusterDimension)
            cluster = attribute.val.clusterDim.x;
        else if (attribute.id != cudaLaunchAttributeProgrammaticStreamSerialization)
            return answer(cudaErrorNotSupported);
    }
    return answer(launch(kernel, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
                         config->stream, cluster));
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
    const Entry *entry = find_entry(kernel);
    if (!entry) return answer(cudaErrorInvalidDeviceFunction);
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = MOST_THREADS;
    attributes->maxDynamicSharedSizeBytes = (int)entry->most_shared;
    attributes->numRegs = 64;
    attributes->ptxVersion = attributes->binaryVersion = most_shared() == MOST_SHARED ? 90 : 80;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    Entry *entry = find_entry(kernel);
    if (!entry) return answer(cudaErrorInvalidDeviceFunction);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || (size_t)value > most_shared()) return answer(cudaErrorInvalidValue);
    entry->most_shared = (size_t)value;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int threads, size_t shared)
{
    if (!find_entry(kernel)) return answer(cudaErrorInvalidDeviceFunction);
    *blocks = blocks_together((unsigned)threads, shared);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *kernel, const cudaLaunchConfig_t *config)
{
    int blocks;
    const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, (int)config->blockDim.x,
                                                                            config->dynamicSmemBytes);
    if (error != cudaSuccess) return error;
    *clusters = blocks * multiprocessors();
    for (unsigned k = 0; k < config->numAttrs; k++)
        if (config->attrs[k].id == cudaLaunchAttributeClusterDimension)
            *clusters /= (int)config->attrs[k].val.clusterDim.x;
    return cudaSuccess;
}
