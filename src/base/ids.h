// These are strong types for the things that protocols name. A page number and a node number are both small integers;
// the compiler keeps them apart so that a transposed argument is an error rather than a stray write.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace multigrain {

// A StrongId is an integer that converts only explicitly. `Tag` makes each instantiation a type of its own.
template <typename Tag, typename Rep>
struct StrongId {
  Rep value{};

  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  constexpr auto operator<=>(const StrongId&) const = default;
};

// A node is one SMP of the machine: 0 .. nodes-1.
using NodeId = StrongId<struct NodeTag, uint16_t>;
// A processor is one application thread of the whole machine: 0 .. P-1. Processors of node n are n*C .. n*C + C-1.
using ProcessorId = StrongId<struct ProcessorTag, uint32_t>;
// A page is a page of the shared region, counted from the region's base.
using PageId = StrongId<struct PageTag, uint64_t>;
// A mapping domain of a node is a set of processors that share access rights and a delayed update queue. A node has one
// when faults detect accesses, and one for each processor when inline checks do.
using DomainId = StrongId<struct DomainTag, uint16_t>;
// A SyncId names a lock, barrier, condition, semaphore or flag.
using SyncId = StrongId<struct SyncTag, uint64_t>;

}  // namespace multigrain

template <typename Tag, typename Rep>
struct std::hash<multigrain::StrongId<Tag, Rep>> {
  size_t operator()(multigrain::StrongId<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value); }
};
