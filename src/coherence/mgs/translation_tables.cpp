#include "coherence/mgs/translation_tables.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/config.h"
#include "instrument/abi.h"

namespace multigrain::mgs {
namespace {

static_assert(BitSet<DomainId>::kCapacity == Config::kMaxTranslatingProcessors + 1);

constexpr int kNone = -1;
[[gnu::tls_model("initial-exec")]] constinit thread_local int t_domain = kNone;

// How many hazards a thread looks at again before it lets another thread have its core.
constexpr unsigned kSpins = 64;

}  // namespace

Result<std::unique_ptr<TranslationTables>> TranslationTables::create(const Region& region, HazardSlots& hazards,
                                                                     unsigned processors) {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0)
    return fail_errno(errno,
                      "translation=compiled needs membarrier(2) with MEMBARRIER_CMD_PRIVATE_EXPEDITED (Linux 4.14)");
  std::vector<SparseTable<uint8_t>> tables;
  for (unsigned i = 0; i <= processors; ++i) {
    auto table = SparseTable<uint8_t>::create(region.page_count(), "translation entries");
    if (!table) return tl::unexpected(table.error());
    tables.push_back(std::move(*table));
  }
  return std::unique_ptr<TranslationTables>(new TranslationTables(region, hazards, std::move(tables)));
}

void TranslationTables::bind(DomainId domain) const {
  t_domain = domain.value;
  __multigrain_translation.rights = &tables_[domain.value][uint64_t{0}];
  __multigrain_translation.shift = region_.page_shift();
}

void TranslationTables::bind_processor(unsigned processor) const {
  bind(DomainId(static_cast<uint16_t>(processor)));
}

void TranslationTables::bind_other() const {
  bind(DomainId(static_cast<uint16_t>(tables_.size() - 1)));
}

bool TranslationTables::is_bound() {
  return t_domain != kNone;
}

// A thread of the runtime's has no table, and releases nothing; a thread that has not accessed shared memory yet neither.
DomainId TranslationTables::domain() {
  return DomainId(static_cast<uint16_t>(t_domain != kNone ? static_cast<size_t>(t_domain) : tables_.size() - 1));
}

// The store of the right comes after those that have filled the frame, and a processor's look at the table before its access.
void TranslationTables::map(DomainId domain, PageId page, bool writable) {
  const auto rights = static_cast<uint8_t>(MG_TRANSLATE_MAY_READ | (writable ? MG_TRANSLATE_MAY_WRITE : 0u));
  std::atomic_ref(tables_[domain.value][page]).fetch_or(rights, std::memory_order_release);
}

// A processor stores its hazard, and then looks at the table, without a barrier between the two. The barrier that this makes
// every running thread execute stands in for it: either the processor's store comes before that, and is seen below, or the
// processor looks at the table behind it, and finds that the right is gone.
void TranslationTables::unmap(DomainSet domains, PageId page) {
  domains.for_each(
      [&](DomainId domain) { std::atomic_ref(tables_[domain.value][page]).store(0, std::memory_order_seq_cst); });
  const int saved = errno;
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
    panic("membarrier failed, which worked before (errno)", static_cast<uint64_t>(errno));
  errno = saved;
  const auto line_shift = static_cast<unsigned>(*reinterpret_cast<const volatile uint64_t*>(MG_FINE_SHIFT_ADDRESS));
  const uint64_t lines = region_.page_size() >> line_shift;
  hazards_.for_each_covering(page.value * lines, lines, true, [](const HazardSlots::Published& seen) {
    for (unsigned spins = 0; !HazardSlots::has_cleared(seen); ++spins) {
      if (spins < kSpins)
        __builtin_ia32_pause();
      else
        sched_yield();
    }
  });
}

}  // namespace multigrain::mgs
