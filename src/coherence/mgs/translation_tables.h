// The translation tables (software TLBs) of a node whose program is compiled to look its accesses up there
// (instrument/abi.h): one for each processor of the node, and one that all other threads share. docs/internals/mgs.md,
// "Compiled translation", says why a page that was taken away is not accessed any more.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "coherence/hazard_slots.h"
#include "coherence/mgs/mappings.h"
#include "memory/region.h"
#include "memory/sparse_table.h"

namespace multigrain::mgs {

class TranslationTables final : public Mappings {
 public:
  // Makes tables without any right for this many processors, and one for other threads. `region` and `hazards`, in which every
  // thread that uses a table publishes what it accesses, outlive the result. Errors: tables that cannot be reserved; a kernel
  // without the barriers of membarrier(2).
  static Result<std::unique_ptr<TranslationTables>> create(const Region& region, HazardSlots& hazards,
                                                           unsigned processors);

  [[nodiscard]] unsigned domains() const { return static_cast<unsigned>(tables_.size()); }

  // From now on the calling thread uses the table of this node's i-th processor, or that of other threads. Async-signal-safe.
  void bind_processor(unsigned processor) const;
  void bind_other() const;
  // Returns whether the calling thread uses one of the tables.
  [[nodiscard]] static bool is_bound();

  [[nodiscard]] DomainId domain() override;
  void map(DomainId domain, PageId page, bool writable) override;
  void unmap(DomainSet domains, PageId page) override;

 private:
  TranslationTables(const Region& region, HazardSlots& hazards, std::vector<SparseTable<uint8_t>> tables)
      : region_(region), hazards_(hazards), tables_(std::move(tables)) {}
  void bind(DomainId domain) const;

  const Region& region_;
  HazardSlots& hazards_;
  const std::vector<SparseTable<uint8_t>> tables_;  // the last one is that of other threads
};

}  // namespace multigrain::mgs
