/* What code that reports its accesses to memory (mgcc -fmultigrain-count=memory) and the runtime agree on, beside abi.h. A module
 * of such code registers by another function, so that the runtime knows which modules report and which do not. */
#ifndef MULTIGRAIN_COUNT_MEMORY_H
#define MULTIGRAIN_COUNT_MEMORY_H

#include "count/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In place of __multigrain_count_register. */
void __multigrain_count_register_memory(mg_counted_module* module) __attribute__((visibility("default")));

/* Code calls this behind each access to memory that may be shared, with the number of bytes and whether it writes. The pages
 * are here by then, so that a fault comes before. An address of null is no access. */
void __multigrain_count_read(const void* address, uint64_t bytes) __attribute__((visibility("default")));
void __multigrain_count_write(const void* address, uint64_t bytes) __attribute__((visibility("default")));

#ifdef __cplusplus
}
#endif
#endif
