/* These are the addresses and values of memory where compiled access checks look, and line protocols write. The
 * functions of the runtime that checks call are in instrument/abi.h; docs/internals/fine-grain.md is the contract of
 * both. The header is C, so that everything that is compiled may use it.
 */
#ifndef MULTIGRAIN_MEMORY_CHECKED_MEMORY_H
#define MULTIGRAIN_MEMORY_CHECKED_MEMORY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The view of the region is here: an address is shared if its bits from MG_FINE_VIEW_SHIFT on are MG_FINE_VIEW_TAG. */
#define MG_FINE_VIEW_SHIFT 44
#define MG_FINE_VIEW_TAG 2u
#define MG_FINE_VIEW_BASE 0x200000000000ull

/* Every 32-bit word of an invalid line holds the flag value. Two such words are a double that is a quiet NaN; one is
 * such a float. Its halves are equal, and its bytes are among the greatest. So one comparison with a constant
 * recognises loads of 1 and 2 bytes, wherever in the word they are: bytes not below MG_FINE_FLAG8 and halves equal to
 * MG_FINE_FLAG16 may be of the flag value. */
#define MG_FINE_FLAG8 0xfdu
#define MG_FINE_FLAG16 0xfffdu
#define MG_FINE_FLAG32 0xfffdfffdu
#define MG_FINE_FLAG64 0xfffdfffdfffdfffdull

/* The line table is here, the line shift (a uint64_t, MG_FINE_MIN_LINE_SHIFT .. MG_FINE_MAX_LINE_SHIFT) before it. */
#define MG_FINE_TABLE_BASE 0x480000001000ull
#define MG_FINE_SHIFT_ADDRESS (MG_FINE_TABLE_BASE - 8)
#define MG_FINE_MIN_LINE_SHIFT 5
#define MG_FINE_MAX_LINE_SHIFT 11

/* The rights cache of a node has a word for each page of 2^MG_FINE_PAGE_SHIFT bytes of the view. The word is the rights
 * epoch in which the page's lines were checked, plus what was found: all are exclusive, all are readable, or neither.
 * Only this process maps the cache. */
#define MG_FINE_RIGHTS_CACHE_BASE 0x4d0000000000ull
#define MG_FINE_PAGE_SHIFT 12
#define MG_FINE_CACHED_EXCLUSIVE 0u
#define MG_FINE_CACHED_READABLE 1u
#define MG_FINE_CACHED_NEITHER 2u

/* A node's rights epoch changes to a value that was never used before whenever a right in the node's rights cache may
 * have been revoked. Bit 0 says that some right is cached in this epoch; bit 1 is 0. Compiled code finds the epoch
 * through __multigrain_rights_epoch. */
#define MG_FINE_EPOCH_CACHED 1u
/* The variable in which compiled code keeps the epoch of its loop hazard has the first value if no loop hazard is
 * published, and the second if one is published but the rights cache must not be used under it. No epoch and no word of
 * the rights cache is as great. */
#define MG_FINE_NO_LOOP_HAZARD (~3ull)
#define MG_FINE_CACHE_UNUSABLE (~7ull)

/* These are the bits of a line's word; docs/internals/fine-grain.md explains them. */
#define MG_FINE_WRITABLE 1u
#define MG_FINE_READABLE 2u
#define MG_FINE_EXCLUSIVE 3u /* the whole word, where this node may store */
#define MG_FINE_LOCKED 4u
#define MG_FINE_HOLDERS_SHIFT 8

/* A line protocol has at most this many nodes: a directory entry has a bit for each. */
#define MG_FINE_MAX_NODES (64 - MG_FINE_HOLDERS_SHIFT)

/* A thread's hazards are MG_FINE_HAZARDS words in one cache line, in which the thread announces the lines that it is
 * about to access. A word is 0 (cleared), or the number of the first line, plus the number of lines times
 * MG_FINE_HAZARD_LINE, plus MG_FINE_HAZARD_STORES if the thread stores. A hazard over all lines has MG_FINE_HAZARD_ALL
 * as its first line, and any number of lines. */
#define MG_FINE_HAZARDS 8
#define MG_FINE_HAZARD_ALL (1ull << 39)
#define MG_FINE_HAZARD_LINE (1ull << 40)
#define MG_FINE_HAZARD_STORES (1ull << 63)
#define MG_FINE_HAZARD_MAX_LINES ((1u << 23) - 1)

/* The loop hazard (docs/internals/fine-grain.md) is the last of a thread's hazards, and covers all lines. Where other
 * hazards have a number of lines, it has a number that differs each time that it is published. */
#define MG_FINE_LOOP_HAZARD (MG_FINE_HAZARDS - 1)

/* This points to the calling thread's hazards, and is never NULL. A thread that is no processor has a hazard slot as
 * well, from its start on. */
extern __thread uint64_t* __multigrain_hazards __attribute__((tls_model("initial-exec"), visibility("default")));

/* While a signal handler, which has hazards of its own, runs on this thread, this points to the hazards of the code
 * that it interrupted. Otherwise it is NULL. The runtime uses it; compiled code does not. */
extern __thread uint64_t* __multigrain_interrupted_hazards
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

#ifdef __cplusplus
}
#endif
#endif
