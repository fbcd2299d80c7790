/* What compiled access checks and line protocols agree on: addresses, values, and the runtime's entries.
 * docs/fine-grain.md is the contract; this header has its numbers. C, so that everything that is compiled may use it.
 */
#ifndef MULTIGRAIN_INSTRUMENT_FINE_GRAIN_H
#define MULTIGRAIN_INSTRUMENT_FINE_GRAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The view of the shared region: an address is shared if its bits from MG_FINE_VIEW_SHIFT on are MG_FINE_VIEW_TAG. */
#define MG_FINE_VIEW_SHIFT 44
#define MG_FINE_VIEW_TAG 2u
#define MG_FINE_VIEW_BASE 0x200000000000ull

/* What every 32-bit word of an invalid line holds. Twice, it is a double that is a quiet NaN; once, such a float. */
#define MG_FINE_FLAG32 0xfff5a35bu
#define MG_FINE_FLAG64 0xfff5a35bfff5a35bull

/* The line table, and the line shift (a uint64_t, MG_FINE_MIN_LINE_SHIFT .. MG_FINE_MAX_LINE_SHIFT) before it. */
#define MG_FINE_TABLE_BASE 0x480000001000ull
#define MG_FINE_SHIFT_ADDRESS (MG_FINE_TABLE_BASE - 8)
#define MG_FINE_MIN_LINE_SHIFT 5
#define MG_FINE_MAX_LINE_SHIFT 11

/* Bits of a line's word; docs/fine-grain.md. */
#define MG_FINE_WRITABLE 1u
#define MG_FINE_READABLE 2u
#define MG_FINE_EXCLUSIVE 3u /* the whole word, where this node may store */
#define MG_FINE_LOCKED 4u
#define MG_FINE_HOLDERS_SHIFT 8

/* A processor's windows: MG_FINE_WINDOWS words in one cache line. A word is 0 (closed), or the number of the first line,
 * plus the number of lines times MG_FINE_WINDOW_LINE, plus MG_FINE_WINDOW_STORES if it stores. */
#define MG_FINE_WINDOWS 8
#define MG_FINE_WINDOW_LINE (1ull << 40)
#define MG_FINE_WINDOW_STORES (1ull << 63)
#define MG_FINE_WINDOW_MAX_LINES ((1u << 23) - 1)

/* The calling thread's windows; never NULL. A thread that is no processor has a place as well, from its start on. */
extern __thread uint64_t* __multigrain_windows __attribute__((tls_model("initial-exec"), visibility("default")));

/* --- The runtime's entries, for compiled code. They may wait for other nodes, and run message handlers meanwhile. Any
 * window of the caller that is open when they are called is closed. Only those named _miss keep registers: compiled
 * code calls them with the convention of preserve_all (trampolines in src/instrument/runtime). */

/* A load of `size` bytes (1, 2, 4, 8; it may cross lines, and need not be shared) returned the flag value, or part of it.
 * Returns what the load is to return. */
uint64_t __multigrain_load_miss(const void* address, unsigned size);
/* The word of the line at `address` is not MG_FINE_EXCLUSIVE. Returns with it exclusive, and window 0 of the caller open
 * for stores to that line: the caller stores within the line, and closes the window. Not for private addresses. */
void __multigrain_store_miss(void* address);

/* Loads and stores of any length, anywhere, also over several lines, shared or private. */
void __multigrain_load(const void* address, size_t size, void* value);
void __multigrain_store(void* address, size_t size, const void* value);
void* __multigrain_memcpy(void* to, const void* from, size_t size);
void* __multigrain_memmove(void* to, const void* from, size_t size);
void* __multigrain_memset(void* to, int byte, size_t size);

/* A run of memory that a batch uses: [begin, end); private parts are left alone. */
typedef struct mg_fine_run {
  uintptr_t begin;
  uintptr_t end;
  uintptr_t stores; /* 1: the batch stores there; 0: it only loads */
} mg_fine_run;
/* Opens windows over all runs (at most MG_FINE_WINDOWS), with all lines valid, or writable. Returns 1, or 0 with no
 * window open if other nodes took lines away too often meanwhile: then the caller goes access by access. */
int __multigrain_batch_open(const mg_fine_run* runs, unsigned count);
/* The same, for a few stores whose own check failed; keeps registers. */
uint64_t __multigrain_batch_miss(const mg_fine_run* runs, unsigned count);
/* __multigrain_load and __multigrain_store; keep registers. */
void __multigrain_load_range_miss(const void* address, size_t size, void* value);
void __multigrain_store_range_miss(void* address, size_t size, const void* value);
void __multigrain_batch_close(void);

#ifdef __cplusplus
}
#endif
#endif
