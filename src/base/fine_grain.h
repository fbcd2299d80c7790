/* What compiled access checks and line protocols agree on: addresses, values, and the runtime's entries.
 * docs/fine-grain.md is the contract; this header has its numbers. C, so that everything that is compiled may use it.
 */
#ifndef MULTIGRAIN_BASE_FINE_GRAIN_H
#define MULTIGRAIN_BASE_FINE_GRAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this contract, which compiled code carries in a note: code of another version does not run under a line
 * protocol. A macro without a suffix, as it goes into assembly. */
#define MG_FINE_VERSION 3

/* The view of the shared region: an address is shared if its bits from MG_FINE_VIEW_SHIFT on are MG_FINE_VIEW_TAG. */
#define MG_FINE_VIEW_SHIFT 44
#define MG_FINE_VIEW_TAG 2u
#define MG_FINE_VIEW_BASE 0x200000000000ull

/* What every 32-bit word of an invalid line holds. Twice, it is a double that is a quiet NaN; once, such a float. Its
 * halves are equal and its bytes the greatest but one, so that loads of 1 and 2 bytes can be told by one comparison with
 * a constant, wherever in the word they are: bytes not below MG_FINE_FLAG8 and halves equal to MG_FINE_FLAG16 may be of
 * the flag value. */
#define MG_FINE_FLAG8 0xfdu
#define MG_FINE_FLAG16 0xfffdu
#define MG_FINE_FLAG32 0xfffdfffdu
#define MG_FINE_FLAG64 0xfffdfffdfffdfffdull

/* The line table, and the line shift (a uint64_t, MG_FINE_MIN_LINE_SHIFT .. MG_FINE_MAX_LINE_SHIFT) before it. */
#define MG_FINE_TABLE_BASE 0x480000001000ull
#define MG_FINE_SHIFT_ADDRESS (MG_FINE_TABLE_BASE - 8)
#define MG_FINE_MIN_LINE_SHIFT 5
#define MG_FINE_MAX_LINE_SHIFT 11

/* The page table of a node: a word for each MG_FINE_PAGE_SHIFT bytes of the view (log2), which says since when all their
 * lines have been exclusive, or readable: the node's losses then, and what is added. Only this process has it. */
#define MG_FINE_PAGES_BASE 0x4d0000000000ull
#define MG_FINE_PAGE_SHIFT 12
#define MG_FINE_PAGE_EXCLUSIVE 0u
#define MG_FINE_PAGE_READABLE 1u
#define MG_FINE_PAGE_NEITHER 2u

/* A node's losses: a word that is another, never used before, after the node may have lost a right that it has remembered
 * in its page table. The lowest bit: it has remembered something. The next is 0. Behind __multigrain_losses. */
#define MG_FINE_REMEMBERED 1u
/* Where compiled code keeps the losses since when pages are remembered: there is no held window; there is one, under which
 * the page table is not to be used. No losses are so great, nor words of that table. */
#define MG_FINE_NOT_HELD (~3ull)
#define MG_FINE_NOT_REMEMBERED (~7ull)

/* Bits of a line's word; docs/fine-grain.md. */
#define MG_FINE_WRITABLE 1u
#define MG_FINE_READABLE 2u
#define MG_FINE_EXCLUSIVE 3u /* the whole word, where this node may store */
#define MG_FINE_LOCKED 4u
#define MG_FINE_HOLDERS_SHIFT 8

/* Nodes of a line protocol: a directory entry has a bit for each. */
#define MG_FINE_MAX_NODES (64 - MG_FINE_HOLDERS_SHIFT)

/* A processor's windows: MG_FINE_WINDOWS words in one cache line. A word is 0 (closed), or the number of the first
 * line, plus the number of lines times MG_FINE_WINDOW_LINE, plus MG_FINE_WINDOW_STORES if it stores. One over all lines
 * has MG_FINE_WINDOW_ALL in the place of its first, and any number. */
#define MG_FINE_WINDOWS 8
#define MG_FINE_WINDOW_ALL (1ull << 39)
#define MG_FINE_WINDOW_LINE (1ull << 40)
#define MG_FINE_WINDOW_STORES (1ull << 63)
#define MG_FINE_WINDOW_MAX_LINES ((1u << 23) - 1)

/* The calling thread's windows; never NULL. A thread that is no processor has a place as well, from its start on. */
extern __thread uint64_t* __multigrain_windows __attribute__((tls_model("initial-exec"), visibility("default")));

/* While a handler of a signal runs on this thread, with windows of its own: those of the code that it interrupted. Else
 * NULL. The runtime's, not compiled code's. */
extern __thread uint64_t* __multigrain_interrupted __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Words that compiled code looks at; 0 in a run whose protocol has no use for them. Behind __multigrain_mail: whether
 * messages wait that this processor should handle (polls). Behind __multigrain_outstanding: whether stores of this node
 * may not be visible to others yet (fences). */
extern const uint64_t* __multigrain_mail __attribute__((visibility("default")));
extern const uint64_t* __multigrain_outstanding __attribute__((visibility("default")));
extern uint64_t* __multigrain_losses __attribute__((visibility("default")));

/* A held window (docs/fine-grain.md): the last one, over all lines. Where the others have a number of lines it has one
 * that differs from one opening to the next. */
#define MG_FINE_HELD_WINDOW (MG_FINE_WINDOWS - 1)

/* Opens it. Returns the node's losses if words of the page table that equal them are right while the window is open, and
 * else MG_FINE_NOT_REMEMBERED. Keeps registers. */
uint64_t __multigrain_hold_open(void);
/* With it open, and something remembered: looks at the lines of the pages of [address, address + size), and enters in the
 * page table what it finds. Keeps registers. */
void __multigrain_hold_look(const void* address, uint64_t size);

/* --- The runtime's entries, for compiled code. They may wait for other nodes, and run message handlers meanwhile. Any
 * window of the caller that is open when they are called is closed. Only those named _miss keep registers: compiled
 * code calls them with the convention of preserve_all (trampolines in src/instrument/runtime). */

/* A load of `size` bytes (1, 2, 4, 8; it may cross lines, and need not be shared) returned the flag value, or part of
 * it. Returns what the load is to return. */
uint64_t __multigrain_load_miss(const void* address, unsigned size);
/* The word of the line at `address` is not MG_FINE_EXCLUSIVE. Returns with it exclusive, and window 0 of the caller
 * open for stores to that line: the caller stores within the line, and closes the window. Not for private addresses. */
void __multigrain_store_miss(void* address);
/* The same for a store of `size` bytes (1 to 16) within the line, whose value is `low` and, of more than 8 bytes,
 * `high`. Returns 1 if the protocol has taken the store, with no window open: the caller goes on behind it. 0: as
 * above. */
uint64_t __multigrain_store_value_miss(void* address, uint64_t low, uint64_t high, unsigned size);
/* The word behind __multigrain_mail was not 0: handles messages. */
void __multigrain_poll_miss(void);
/* The word behind __multigrain_outstanding was not 0, and what follows is a release: waits for this node's stores. */
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
/* In `count` of the following: the page table is not looked at, to measure what it is worth. */
#define MG_FINE_WITHOUT_PAGES (1u << 31)
/* Opens windows over all runs (at most MG_FINE_WINDOWS), with all lines valid, or writable. Returns 1, or 0 with no
 * window open if other nodes took lines away too often meanwhile: then the caller goes access by access. The caller has
 * no others open when it calls, and closes windows 0 .. count-1 itself. */
int __multigrain_batch_open(const mg_fine_run* runs, unsigned count);
/* The same, in a loop that holds a window: if all lines are here, that does for them, and no other is opened. Returns what
 * __multigrain_hold_open() returns with the held window open; MG_FINE_NOT_HELD with windows of the batch's own; or 0 with
 * none. */
uint64_t __multigrain_batch_hold(const mg_fine_run* runs, unsigned count);
/* The same, for a few stores whose own check failed; keeps registers. */
uint64_t __multigrain_batch_miss(const mg_fine_run* runs, unsigned count);
/* __multigrain_load and __multigrain_store; keep registers. */
void __multigrain_load_range_miss(const void* address, size_t size, void* value);
void __multigrain_store_range_miss(void* address, size_t size, const void* value);

/* Ends the process unless the calling thread has windows open over [address, address + size), of stores if `stores` is 1:
 * code that was compiled with -fmultigrain-checks=verify calls this before each access that relies on a window. */
void __multigrain_verify(const void* address, size_t size, int stores);

/* The caller waits in a loop for what another processor will store, and has just looked again in vain. */
void __multigrain_spin(void);

#ifdef __cplusplus
}
#endif
#endif
