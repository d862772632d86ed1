/* What kernels declare __shared__ begins as NaN, not as the zeros that a thread of the host finds in its own memory.
 */
#include <link.h>
#include <string.h>

#include "meeting.h"

namespace emulator
{

namespace
{

bool holds(const struct dl_phdr_info *module, uintptr_t address)
{
    for (int k = 0; k < module->dlpi_phnum; k++) {
        const ElfW(Phdr) &part = module->dlpi_phdr[k];
        const uintptr_t begin = module->dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_LOAD && address >= begin && address < begin + part.p_memsz) return true;
    }
    return false;
}

/* Fills all memory that the kernel's module has for the calling thread: no other code of it runs there. */
int fill(struct dl_phdr_info *module, size_t, void *kernel)
{
    if (!holds(module, (uintptr_t)kernel)) return 0;
    for (int k = 0; k < module->dlpi_phnum; k++) {
        const ElfW(Phdr) &part = module->dlpi_phdr[k];
        if (part.p_type == PT_TLS && module->dlpi_tls_data) memset(module->dlpi_tls_data, 0xff, part.p_memsz);
    }
    return 1;
}

} // namespace

void poison_shared(const void *kernel)
{
    dl_iterate_phdr(fill, (void *)kernel);
}

} // namespace emulator
