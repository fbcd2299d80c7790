#include "emulation/node_caches.h"

#include <memory>
#include <utility>

#include "base/spin_lock.h"

namespace multigrain::node_caches {
namespace {

// Those that take turns come one at a time. The lock is for one that has lost its turn, and runs nevertheless.
SpinLock g_lock;
CacheModel* g_model MG_GUARDED_BY(g_lock) = nullptr;  // lives for ever
const std::byte* g_memory = nullptr;
uint64_t g_bytes = 0;

}  // namespace

constinit bool internal::g_on = false;

Status start(const CacheDescription& description, unsigned processors, const std::byte* memory, uint64_t bytes,
             size_t page_size) {
  MG_CHECK(!internal::g_on);
  auto model = CacheModel::create(description, processors, bytes, page_size);
  if (!model) return tl::unexpected(model.error());
  const LockGuard guard(g_lock);
  g_model = std::make_unique<CacheModel>(std::move(*model)).release();
  g_memory = memory;
  g_bytes = bytes;
  internal::g_on = true;
  return {};
}

Picoseconds access(unsigned processor, const void* address, uint64_t length, bool writes) {
  const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(address) - g_memory);
  if (offset >= g_bytes) return 0;
  const LockGuard guard(g_lock);
  return g_model->access(processor, offset, length, writes);
}

void internal::purge(uint64_t address, uint64_t length) {
  const LockGuard guard(g_lock);
  g_model->purge(address, length);
}

}  // namespace multigrain::node_caches
