// The node's side of a program that translates its accesses (mgcc -fmultigrain-translate): the processors' translation tables,
// and what happens when one of them does not allow an access.
#pragma once

#include <memory>

#include "coherence/hazard_slots.h"
#include "coherence/mgs/translation_tables.h"
#include "coherence/protocol.h"
#include "coherence/translated_memory.h"
#include "memory/region.h"

namespace multigrain {

class Translation final : public TranslatedMemory {
 public:
  // Makes the tables for a node of this many processors. `region` and `hazards` outlive the result. Errors: those of
  // mgs::TranslationTables::create().
  static Result<std::unique_ptr<Translation>> create(const Region& region, HazardSlots& hazards, unsigned processors);

  [[nodiscard]] mgs::TranslationTables& tables() { return *tables_; }

  // From now on the program's accesses are translated, and `protocol`, whose mappings the tables are, serves their faults. It
  // lives as long as the process.
  void begin(Protocol& protocol);

  // The TLB fault handler. A thread gets its table at its first fault.
  bool fault(uintptr_t address, bool is_write) override;

 private:
  Translation(const Region& region, HazardSlots& hazards, std::unique_ptr<mgs::TranslationTables> tables,
              unsigned processors)
      : region_(region), hazards_(hazards), tables_(std::move(tables)), processors_(processors) {}

  const Region& region_;
  HazardSlots& hazards_;
  const std::unique_ptr<mgs::TranslationTables> tables_;
  const unsigned processors_;
  Protocol* protocol_ = nullptr;
};

}  // namespace multigrain
