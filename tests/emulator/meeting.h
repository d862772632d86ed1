/* Between the files of the emulator that run a block. */
#ifndef EMULATOR_MEETING_H
#define EMULATOR_MEETING_H

#include "block.h"

namespace emulator
{

/* To the scheduler; the thread goes on when something wakes it. */
void leave();
void wake(Thread *thread);

/* A block begins; the running thread is over, and no one waits for it any more. */
void prepare_meetings(Block &block);
void leave_meetings();

/* Fills the calling thread's __shared__ variables of the kernel's module with all bits set. */
void poison_shared(const void *kernel);

} // namespace emulator

#endif
