/* src/cuda/machine/kernel.cuh for the emulator: an address is taken where the kernel's type is known, and noted. */
#ifndef RL_CUDA_MACHINE_KERNEL_CUH
#define RL_CUDA_MACHINE_KERNEL_CUH

#include <utility>

template <typename... Parameters> struct EmulatorCaller {
    static constexpr size_t sizes[] = {sizeof(Parameters)...};

    template <size_t... k> static void pass(const void *kernel, void *const *arguments, std::index_sequence<k...>)
    {
        ((void (*)(Parameters...))kernel)(*(const Parameters *)arguments[k]...);
    }
    static void call(const void *kernel, void *const *arguments)
    {
        pass(kernel, arguments, std::index_sequence_for<Parameters...>());
    }
};

template <typename... Parameters> const void *emulator_know(void (*kernel)(Parameters...), const char *name)
{
    typedef EmulatorCaller<Parameters...> Caller;
    return emulator::know((const void *)kernel, {name, Caller::call, Caller::sizes, sizeof...(Parameters)});
}

template <auto kernel> const void *kernel_address()
{
    return emulator_know(kernel, __PRETTY_FUNCTION__);
}

#define dynamic_shared ((unsigned char *)emulator::self->block->shared)

template <typename T> inline T &shared_as()
{
    return *reinterpret_cast<T *>(dynamic_shared);
}

#endif
