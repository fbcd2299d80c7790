/* What compiled access checks call in the runtime, and the words that they test (docs/internals/fine-grain.md). The memory
 * that they look at is in memory/checked_memory.h. C, so that everything that is compiled may use it.
 */
#ifndef MULTIGRAIN_INSTRUMENT_ABI_H
#define MULTIGRAIN_INSTRUMENT_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "memory/checked_memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this contract, which compiled code carries in a note: code of another version does not run under a line
 * protocol. A macro without a suffix, as it goes into assembly. */
#define MG_FINE_VERSION 4

/* Pointers to words that compiled code tests; the words are 0 in a run whose protocol has no use for them.
 * __multigrain_pending_messages: messages wait that this processor should handle (polls). __multigrain_outstanding: stores of
 * this node may not be visible to other nodes yet (fences). __multigrain_rights_epoch: the node's rights epoch. */
extern const uint64_t* __multigrain_pending_messages __attribute__((visibility("default")));
extern const uint64_t* __multigrain_outstanding __attribute__((visibility("default")));
extern uint64_t* __multigrain_rights_epoch __attribute__((visibility("default")));

/* Publishes the loop hazard. Returns the node's rights epoch if entries of the rights cache that were made in it hold while
 * the hazard is published, and else MG_FINE_CACHE_UNUSABLE. Keeps registers. */
uint64_t __multigrain_publish_loop_hazard(void);
/* Called while the loop hazard is published in an epoch with MG_FINE_EPOCH_CACHED: checks all lines of the pages of
 * [address, address + size), and enters what it finds into the rights cache. Keeps registers. */
void __multigrain_cache_rights(const void* address, uint64_t size);

/* --- The runtime's entries, for compiled code. They may wait for other nodes, and run message handlers meanwhile. Any
 * hazard of the caller that is published when they are called is cleared. Only those named _miss keep registers: compiled
 * code calls them with the convention of preserve_all (trampolines in src/instrument/runtime). */

/* A load of `size` bytes (1, 2, 4, 8; it may cross lines, and need not be shared) returned the flag value, or part of
 * it. Returns what the load is to return. */
uint64_t __multigrain_load_miss(const void* address, unsigned size);
/* The word of the line at `address` is not MG_FINE_EXCLUSIVE. Returns with it exclusive, and with the caller's hazard 0
 * published for stores to that line: the caller stores within the line, and clears the hazard. Not for private addresses. */
void __multigrain_store_miss(void* address);
/* The same for a store of `size` bytes (1 to 16) within the line, whose value is `low` and, of more than 8 bytes,
 * `high`. Returns 1 if the protocol has taken the store, with no hazard published: the caller goes on behind it. 0: as
 * above. */
uint64_t __multigrain_store_value_miss(void* address, uint64_t low, uint64_t high, unsigned size);
/* *__multigrain_pending_messages was not 0: handles messages. */
void __multigrain_poll_miss(void);
/* *__multigrain_outstanding was not 0, and what follows is a release: waits for this node's stores. */
void __multigrain_fence_miss(void);
/* A compare-and-swap loop begins, and the word of the line at `address` is not MG_FINE_EXCLUSIVE: a hint. */
void __multigrain_prefetch_exclusive_miss(const void* address);

/* Loads and stores of any length, anywhere, also over several lines, shared or private. */
void __multigrain_load(const void* address, size_t size, void* value);
void __multigrain_store(void* address, size_t size, const void* value);
void* __multigrain_memcpy(void* to, const void* from, size_t size);
void* __multigrain_memmove(void* to, const void* from, size_t size);
void* __multigrain_memset(void* to, int byte, size_t size);

/* A run of memory that a batch uses: `rows` times [begin, end), each so many bytes behind the one before (modulo 2^64);
 * private parts are left alone. */
typedef struct mg_fine_run {
  uintptr_t begin;
  uintptr_t end;
  uintptr_t stores; /* 1: the batch stores there; 0: it only loads */
  uintptr_t stride;
  uintptr_t rows; /* not 0 */
} mg_fine_run;
/* A flag in `count` of the following entries: they do not use the rights cache. For measurements of what it is worth. */
#define MG_FINE_WITHOUT_RIGHTS_CACHE (1u << 31)
/* Publishes hazards over all runs (at most MG_FINE_HAZARDS), with all lines valid, or writable. Returns 1, or 0 with no
 * hazard published if other nodes took lines away too often meanwhile: then the caller goes access by access. The caller has
 * published no others when it calls, and clears hazards 0 .. count-1 itself. */
int __multigrain_batch_begin(const mg_fine_run* runs, unsigned count);
/* The same, in a loop that uses the loop hazard: if all lines have their rights, that hazard covers them, and no other is
 * published. Returns what __multigrain_publish_loop_hazard() returns, with the loop hazard published; MG_FINE_NO_LOOP_HAZARD,
 * with hazards of the batch's own published; or 0, with none published. */
uint64_t __multigrain_batch_begin_in_loop(const mg_fine_run* runs, unsigned count);
/* The same, for a few stores whose own check failed; keeps registers. */
uint64_t __multigrain_batch_miss(const mg_fine_run* runs, unsigned count);
/* __multigrain_load and __multigrain_store; keep registers. */
void __multigrain_load_range_miss(const void* address, size_t size, void* value);
void __multigrain_store_range_miss(void* address, size_t size, const void* value);

/* Ends the process unless the calling thread has published hazards over [address, address + size), of stores if `stores` is
 * 1: code that was compiled with -fmultigrain-checks=verify calls this before each access that relies on a hazard. */
void __multigrain_verify(const void* address, size_t size, int stores);

/* The caller waits in a loop for what another processor will store, and has just looked again in vain. */
void __multigrain_spin(void);

#ifdef __cplusplus
}
#endif
#endif
