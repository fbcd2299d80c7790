#include "runtime/allocation.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "instrument/abi.h"

namespace multigrain {

tl::expected<void*, HeapError> allocate(Node& node, size_t size, size_t alignment, const Placement& placement,
                                        Contents contents) {
  const size_t page_size = node.config().page_size;
  if (const size_t block_size = placement.block_size; block_size != 0) {
    // The memory begins where a block does, and no other allocation shares its last block.
    alignment = std::max(alignment, std::has_single_bit(block_size) ? block_size : page_size);
    if (size < page_size) size = (std::max<size_t>(size, 1) + block_size - 1) / block_size * block_size;
  }
  const auto block = node.heap().allocate(size, alignment, placement);
  if (!block) return tl::unexpected<HeapError>(block.error());
  // What the memory's last user did with it happens before what its next user does.
  if (block->needs_clearing && node.config().races) node.acquire_all();
  if (!block->needs_clearing || contents == Contents::kAny) return block->address;
  // The stores are ordinary ones, so that the protocol sees them: the pages may have copies anywhere. This node's copies
  // may be older than what the memory's last user wrote.
  node.acquire_all();
  const bool by_lines = placement.grain == Grain::kLine || placement.may_move_to_lines;
  const auto clear = [by_lines](void* start, size_t bytes) {
    if (by_lines)
      __multigrain_memset(start, 0, bytes);
    else
      std::memset(start, 0, bytes);
  };
  if (block->size < page_size)
    clear(block->address, block->size);
  else
    node.heap().for_each_touched(block->address, block->size, clear);
  return block->address;
}

// A diff of this node's last writes to the block, made later, would overwrite what the block's next user has written. Not
// so if that is a thread of this node, which writes to the same copies of the pages.
tl::expected<void, HeapError> release(Node& node, const void* block) {
  if (node.has_line_protocol() || node.config().races || !node.heap().reuses(block)) node.release();
  return node.heap().free(block);
}

}  // namespace multigrain
