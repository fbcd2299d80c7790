/* This header declares the functions of the runtime that compiled access checks call, and the words that they test
 * (docs/internals/fine-grain.md). The memory that checks look at is described in memory/checked_memory.h. Both headers
 * are written in C, so that all compiled code can include them. */
#ifndef MULTIGRAIN_INSTRUMENT_ABI_H
#define MULTIGRAIN_INSTRUMENT_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "memory/checked_memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this contract. Compiled code carries it in a note, and code of another version does not run under a
 * line protocol. The number has no suffix, because it is also written into assembly. */
#define MG_FINE_VERSION 5

/* Pointers to words that compiled code tests; the words are 0 in a run whose protocol has no use for them.
 * __multigrain_pending_messages: not 0 while messages wait that this processor should handle (polls).
 * __multigrain_outstanding: not 0 while stores of this node may not be visible to other nodes yet (fences).
 * __multigrain_rights_epoch: the node's rights epoch. */
extern const uint64_t* __multigrain_pending_messages __attribute__((visibility("default")));
extern const uint64_t* __multigrain_outstanding __attribute__((visibility("default")));
extern uint64_t* __multigrain_rights_epoch __attribute__((visibility("default")));

/* --- Compiled translation (mgcc -fmultigrain-translate; docs/internals/mgs.md, "Compiled translation").
 *
 * The translation table of the calling thread: rights[(address - MG_FINE_VIEW_BASE) >> shift] says what the thread may do with
 * the page of a shared address. In a run without compiled translation, and before a thread has a table, `shift` is
 * MG_TRANSLATE_NO_TABLE, and the one entry says the same of all pages. */
typedef struct mg_translation {
  const uint8_t* rights;
  uint64_t shift;
} mg_translation;
#define MG_TRANSLATE_MAY_READ 1u
#define MG_TRANSLATE_MAY_WRITE 2u
#define MG_TRANSLATE_NO_TABLE 63
extern __thread mg_translation __multigrain_translation
    __attribute__((tls_model("initial-exec"), visibility("default")));
/* An access translates at most this many bytes, and publishes a hazard over MG_TRANSLATE_LINES lines before it looks at the
 * table. It clears the hazard when it is made. */
#define MG_TRANSLATE_LARGEST 64
#define MG_TRANSLATE_LINES 3
/* Compiled code calls these when the table does not allow its access of [address, address + size), or if that lies in two
 * pages. They return with hazard 0 published, and the access allowed. They keep registers. */
void __multigrain_translate_read_miss(const void* address, uint64_t size);
void __multigrain_translate_write_miss(const void* address, uint64_t size);

/* --- Compiled code stores by these entries where its own check has not found that it may. They keep registers.
 *
 * Makes a store to shared memory, naturally aligned. */
void __multigrain_store_1(void* address, uint64_t value);
void __multigrain_store_2(void* address, uint64_t value);
void __multigrain_store_4(void* address, uint64_t value);
void __multigrain_store_8(void* address, uint64_t value);
/* Makes the line at `address` exclusive, and returns with hazard 0 published for stores to it: the caller stores within
 * the line, and then clears the hazard. `address` must be shared. */
void __multigrain_begin_store(void* address);
/* Publishes the loop hazard, unless it is published, and tests whether this node may store to the lines of [address,
 * address + size); size is at most 64. If it may, returns the node's rights epoch, in which entries of the rights cache
 * are valid while the hazard is published, or MG_FINE_CACHE_UNUSABLE. Otherwise clears the hazard, and returns
 * MG_FINE_NO_LOOP_HAZARD. */
uint64_t __multigrain_check_in_loop(const void* address, uint64_t size);
/* Does the same for the line at `address`, which must be shared, and brings it if need be. If it returns
 * MG_FINE_NO_LOOP_HAZARD, hazard 0 is published for stores to the line, and the caller clears it behind them. */
uint64_t __multigrain_update_in_loop(void* address);
/* These do what __multigrain_check_in_loop() does for their store, and make it in either case. */
uint64_t __multigrain_store_1_in_loop(void* address, uint64_t value);
uint64_t __multigrain_store_2_in_loop(void* address, uint64_t value);
uint64_t __multigrain_store_4_in_loop(void* address, uint64_t value);
uint64_t __multigrain_store_8_in_loop(void* address, uint64_t value);

/* --- Compiled code calls these entries of the runtime. They may wait for other nodes, and run message handlers
 * meanwhile. They clear every hazard that the caller has published, except polls and fences, which do nothing while a
 * hazard is published. Of these entries only those whose names end in _miss keep registers: compiled code calls them by
 * the convention preserve_all (see the trampolines in src/instrument/runtime). */

/* These load 1, 2, 4 or 8 bytes (they may cross lines, and need not be shared) where a check has failed. Compiled code calls
 * them by an entry for each register (runtime/load_entries.cpp), code of older passes by these names. */
uint64_t __multigrain_load_1_miss(const void* address);
uint64_t __multigrain_load_2_miss(const void* address);
uint64_t __multigrain_load_4_miss(const void* address);
uint64_t __multigrain_load_8_miss(const void* address);
/* Handles messages. Compiled code calls this when *__multigrain_pending_messages is not 0. */
void __multigrain_poll_miss(void);
/* Waits until this node's stores are visible to all nodes. Compiled code calls this before a release operation when
 * *__multigrain_outstanding is not 0. */
void __multigrain_fence_miss(void);
/* Compiled code calls this before a compare-and-swap loop if the word of the line at `address` is not
 * MG_FINE_EXCLUSIVE. It is a hint. */
void __multigrain_prefetch_exclusive_miss(const void* address);

/* These make loads and stores of any length, at any address, across lines as well, of shared or private memory. */
void __multigrain_load(const void* address, size_t size, void* value);
void __multigrain_store(void* address, size_t size, const void* value);
void* __multigrain_memcpy(void* to, const void* from, size_t size);
void* __multigrain_memmove(void* to, const void* from, size_t size);
void* __multigrain_memset(void* to, int byte, size_t size);

/* A run of memory that a batch uses: `rows` times [begin, end), where each row begins `stride` bytes behind the one
 * before (modulo 2^64). Private parts are left alone. */
typedef struct mg_fine_run {
  uintptr_t begin;
  uintptr_t end;
  uintptr_t stores; /* 1: the batch stores there; 0: it only loads */
  uintptr_t stride;
  uintptr_t rows; /* not 0 */
} mg_fine_run;
/* With this flag in `count`, the following entries do not use the rights cache. It serves to measure what the rights
 * cache is worth. */
#define MG_FINE_WITHOUT_RIGHTS_CACHE (1u << 31)
/* Publishes hazards over all runs (at most MG_FINE_HAZARDS), and makes all their lines valid, or writable where the
 * batch stores. Returns 1 then. Returns 0, with no hazard published, if other nodes took lines away too often
 * meanwhile: the caller then goes access by access. The caller has published no other hazards when it calls, and clears
 * hazards 0 .. count-1 itself. */
int __multigrain_batch_begin(const mg_fine_run* runs, unsigned count);
/* Does the same in a loop that uses the loop hazard. If the node has the rights to all lines, the loop hazard covers
 * them, and no other hazard is published. Returns what __multigrain_check_in_loop() returns, with the loop hazard
 * published; MG_FINE_NO_LOOP_HAZARD, with hazards of the batch's own published; or 0, with none published. */
uint64_t __multigrain_batch_begin_in_loop(const mg_fine_run* runs, unsigned count);
/* Does the same as __multigrain_batch_begin() for a few stores whose own check failed. Keeps registers. */
uint64_t __multigrain_batch_miss(const mg_fine_run* runs, unsigned count);
/* These are __multigrain_load and __multigrain_store, and keep registers. */
void __multigrain_load_range_miss(const void* address, size_t size, void* value);
void __multigrain_store_range_miss(void* address, size_t size, const void* value);

/* Ends the process unless the calling thread has published hazards over [address, address + size), and hazards of
 * stores if `stores` is 1. Code that was compiled with -fmultigrain-checks=verify calls this before each access that
 * relies on a hazard. */
void __multigrain_verify(const void* address, size_t size, int stores);

/* Compiled code calls this in a loop that waits for another processor's store, whenever it has looked in vain. */
void __multigrain_spin(void);

#ifdef __cplusplus
}
#endif
#endif
