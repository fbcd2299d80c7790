// This says where the memory of each node is, in a machine that lives in one process.
#pragma once

#include <cstdint>

#include "memory/layout.h"
#include "memory/region.h"

namespace multigrain::node_memory {

inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t kStride = uint64_t{1} << 30;  // between the regions, and the line tables, of two nodes

constexpr RegionPlacement region_of_node(unsigned node) {
  return {.view = layout::kViewBase + node * kStride, .alias = layout::kAliasBase + node * kStride};
}
constexpr uintptr_t line_table_of_node(unsigned node) {
  return layout::kTablesBase + layout::kTablesSize - (node + 1) * kStride + kPage;
}

}  // namespace multigrain::node_memory
