#include "runtime/translation.h"

#include <sys/mman.h>

#include "base/config.h"
#include "instrument/runtime/installed_protocol.h"
#include "profile/this_thread.h"
#include "profile/virtual_time.h"
#include "runtime/processors.h"
#include "status/node_status.h"

namespace multigrain {

Result<std::unique_ptr<Translation>> Translation::create(const Region& region, HazardSlots& hazards,
                                                         unsigned processors) {
  auto tables = mgs::TranslationTables::create(region, hazards, processors);
  if (!tables) return tl::unexpected(tables.error());
  return std::unique_ptr<Translation>(new Translation(region, hazards, std::move(*tables), processors));
}

void Translation::begin(Protocol& protocol) {
  protocol_ = &protocol;
  set_translated_memory(this);
}

bool Translation::fault(uintptr_t address, bool is_write) {
  if (!mgs::TranslationTables::is_bound()) {
    // A thread that was started without pthread_create has no hazards yet.
    hazards_.bind();
    if (const std::optional<unsigned> processor = Processors::of_this_thread())
      tables_->bind_processor(*processor % processors_);
    else
      tables_->bind_other();
  }
  const virtual_time::MissedCheck missed;
  if (ProcessorStatus* const status = this_status()) count_step(*status);
  virtual_time::synchronise();
  auto* const at = reinterpret_cast<std::byte*>(address);
  if (region_.contains(at) && protocol_->on_fault(region_.page_of(at), is_write)) {
    virtual_time::spend_in(Category::kProtocol, &MachineCosts::translation_fill);
    return true;
  }
  // Nothing is allocated there: the program has used a wild pointer, and is to find out by SIGSEGV where it made the access.
  mprotect(reinterpret_cast<void*>(address & ~uintptr_t{Config::kMinPageSize - 1}), Config::kMinPageSize, PROT_NONE);
  return false;
}

}  // namespace multigrain
