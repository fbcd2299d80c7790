#include "runtime/allocation.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "check/checker.h"
#include "fabric/module.h"
#include "instrument/abi.h"
#include "races/compiled/compiled_detector.h"
#include "races/module.h"
#include "runtime/message_types.h"
#include "runtime/private/globals.h"
#include "runtime/private/private_heap.h"
#include "status/node_status.h"

namespace multigrain {
namespace {

using check::g_checker;

// How --check accesses shared memory. Where a program has compiled checks, so must this.
constexpr check::SharedAccess kByPages{
    .load = [](const void* address, size_t size, void* value) { std::memcpy(value, address, size); },
    .store = [](void* address, size_t size, const void* value) { std::memcpy(address, value, size); },
    .fill = [](void* address, int byte, size_t size) { std::memset(address, byte, size); }};
constexpr check::SharedAccess kByLines{
    .load = &__multigrain_load, .store = &__multigrain_store, .fill = [](void* address, int byte, size_t size) {
      __multigrain_memset(address, byte, size);
    }};

void clear(Node& node, const Allocation& block, const Placement& placement) {
  const bool by_lines = placement.grain == Grain::kLine || placement.may_move_to_lines;
  const auto clear = [by_lines](void* start, size_t bytes) {
    if (by_lines)
      __multigrain_memset(start, 0, bytes);
    else
      std::memset(start, 0, bytes);
  };
  if (block.size < node.config().page_size)
    clear(block.address, block.size);
  else
    node.heap().for_each_touched(block.address, block.size, clear);
}

// Gives blocks of the quarantine back to the heap: some, or all. A block whose bytes differ from what they were has been
// written by the program (check/heap_check.h, C3), so what all nodes have released must be here. Returns whether any block
// was given back.
bool empty_quarantine(Node& node, bool all) {
  node.acquire_all();
  const std::vector<void*> blocks = g_checker->heap().let_go(all);
  node.release();
  for (void* const block : blocks) static_cast<void>(node.heap().free(block));
  return !blocks.empty();
}

}  // namespace

Status start_check(Node& node) {
  const auto open = load_module(races::kModuleName, races::kModuleSymbol);
  if (!open) return fail("--check: {}", open.error().message);
  const races::Module& module = *reinterpret_cast<decltype(&multigrain_races_module)>(*open)();
  g_checker = new check::Checker(node.fabric(),
                                 {.finding = runtime_message::kFinding, .lock_edges = runtime_message::kLockOrder},
                                 module, node.has_line_protocol() ? kByLines : kByPages, &in_program_code);
  return {};
}

tl::expected<void*, HeapError> allocate(Node& node, size_t size, size_t alignment, const Placement& placement,
                                        Contents contents, uint64_t site) {
  const size_t asked = size;
  if (g_checker != nullptr) [[unlikely]]
    size = check::with_redzone(size).value_or(SIZE_MAX);
  const size_t page_size = node.config().page_size;
  if (const size_t block_size = placement.block_size; block_size != 0) {
    // The memory begins where a block does, and no other allocation shares its last block.
    alignment = std::max(alignment, std::has_single_bit(block_size) ? block_size : page_size);
    if (size < page_size) size = (std::max<size_t>(size, 1) + block_size - 1) / block_size * block_size;
  }
  auto block = node.heap().allocate(size, alignment, placement);
  if (g_checker != nullptr) [[unlikely]] {
    const BootHeapScope boot;
    if (!block && empty_quarantine(node, true)) block = node.heap().allocate(size, alignment, placement);
  }
  if (!block) return tl::unexpected<HeapError>(block.error());
  const bool is_cleared = block->needs_clearing && contents == Contents::kZero;
  // What the memory's last user did with it happens before what its next user does. And the stores that follow are ordinary
  // ones, so that the protocol sees them: the pages may have copies anywhere, and this node's may be older than what the
  // memory's last user wrote.
  if (block->needs_clearing && (is_cleared || node.config().races || g_checker != nullptr)) node.acquire_all();
  if (is_cleared) clear(node, *block, placement);
  if (g_checker != nullptr) [[unlikely]] {
    const BootHeapScope boot;
    g_checker->heap().made(block->address, asked, block->size, site, node.processors().current());
  }
  if (races::g_compiled_detector != nullptr) [[unlikely]]
    races::g_compiled_detector->allocate(block->address, asked, site);
  return block->address;
}

// A diff of this node's last writes to the block, made later, would overwrite what the block's next user has written. Not
// so if that is a thread of this node, which writes to the same copies of the pages.
tl::expected<void, HeapError> release(Node& node, void* block, uint64_t site) {
  if (races::g_compiled_detector != nullptr) [[unlikely]]
    if (const auto usable = node.heap().usable_size(block)) races::g_compiled_detector->free(block, *usable, site);
  if (g_checker != nullptr) [[unlikely]] {
    const BootHeapScope boot;
    const auto usable = node.heap().usable_size(block);
    const unsigned processor = node.processors().current();
    if (!usable) {
      g_checker->heap().freed_no_block(block, site, processor);
    } else if (g_checker->heap().freed(block, *usable, site, processor)) {
      note_freed(reinterpret_cast<uint64_t>(block), site);
      if (g_checker->heap().is_full()) empty_quarantine(node, false);
    }
    return {};
  }
  if (node.has_line_protocol() || node.config().races || !node.heap().reuses(block)) node.release();
  return node.heap().free(block);
}

tl::expected<size_t, HeapError> usable_size(Node& node, const void* block) {
  auto size = node.heap().usable_size(block);
  if (size && g_checker != nullptr) [[unlikely]]
    return g_checker->heap().size_of(block, *size);
  return size;
}

void look_at_blocks(Node& node) {
  const BootHeapScope boot;
  node.acquire_all();
  g_checker->heap().look_at_all([&node](const void* block) { return node.heap().usable_size(block).value_or(0); });
}

}  // namespace multigrain
