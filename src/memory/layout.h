// This says where Multigrain puts things in the address space of every node (x86-64, 47 bits).
//
// The addresses are fixed, because pointers travel: an address in the shared region, or in node 0's private heap, means
// the same on every node. They are far from where the loader, the C library, MPI and PMIx map things (near the
// executable and below the stack). The table is in docs/internals/architecture.md.
//
// The thread sanitizer's shadow takes most of the address space, and it reports accesses outside of its application
// ranges as errors. So in its builds everything is squeezed into the lowest part of its high application range, which
// ASLR of mmap (at most 1 TiB below the stack) never reaches.
#pragma once

#include <cstdint>

#include "memory/checked_memory.h"

#if defined(__SANITIZE_THREAD__)
#define MULTIGRAIN_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MULTIGRAIN_UNDER_TSAN 1
#endif
#endif

namespace multigrain::layout {

#if defined(MULTIGRAIN_UNDER_TSAN)

inline constexpr uint64_t kMaxRegionSize = uint64_t{128} << 30;
inline constexpr uintptr_t kViewBase = 0x7e80'0000'0000;
inline constexpr uintptr_t kAliasBase = 0x7ea0'0000'0000;
inline constexpr uintptr_t kTablesBase = 0x7ed0'0000'0000;
inline constexpr uint64_t kTablesSize = uint64_t{64} << 30;
inline constexpr uintptr_t kLineTableBase = 0x7ee0'0000'1000;

#else

// These are the view and the alias of the shared region's frames: equally large, one after the other.
inline constexpr uint64_t kMaxRegionSize = uint64_t{16} << 40;
inline constexpr uintptr_t kViewBase = 0x2000'0000'0000;
inline constexpr uintptr_t kAliasBase = 0x3000'0000'0000;
// Here are per-page records and other sparse tables (sparse_table.h).
inline constexpr uintptr_t kTablesBase = 0x4000'0000'0000;
inline constexpr uint64_t kTablesSize = uint64_t{8} << 40;
// Here is the line table (memory/line_table.h), which is a quarter as long as the region, after a hardware page with
// the line shift. Compiled checks have the address in their code.
inline constexpr uintptr_t kLineTableBase = MG_FINE_TABLE_BASE;
static_assert(kViewBase == MG_FINE_VIEW_BASE);
// The rights cache of compiled checks comes behind the line table.
static_assert(MG_FINE_TABLE_BASE + kMaxRegionSize / 4 <= MG_FINE_RIGHTS_CACHE_BASE);

#endif

// Here is the memory behind malloc of the program, which spawn copies from node 0 to the other nodes, and the memory
// behind malloc for what must survive such a copy. Builds with a sanitizer, whose shadows reach in here, use neither
// (private_heap.h).
inline constexpr uintptr_t kPrivateHeapBase = 0x1000'0000'0000;
inline constexpr uint64_t kPrivateHeapSize = uint64_t{1} << 40;
inline constexpr uintptr_t kBootHeapBase = 0x1100'0000'0000;
inline constexpr uint64_t kBootHeapSize = uint64_t{64} << 30;

static_assert(kPrivateHeapBase + kPrivateHeapSize <= kBootHeapBase);
static_assert(kBootHeapBase + kBootHeapSize <= kViewBase);
static_assert(kViewBase + kMaxRegionSize <= kAliasBase);
static_assert(kAliasBase + kMaxRegionSize <= kTablesBase);
static_assert(kTablesBase + kTablesSize < kLineTableBase - 4096 + 1);
static_assert(kLineTableBase + kMaxRegionSize / 4 <= 0x7f00'0000'0000);

}  // namespace multigrain::layout
