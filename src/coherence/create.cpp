#include "coherence/create.h"

#include "coherence/dszoom/driver.h"
#include "coherence/hlrc/driver.h"
#include "coherence/mgs/driver.h"
#include "coherence/placement/driver.h"
#include "coherence/sc/driver.h"
#include "coherence/shasta/driver.h"
#include "memory/checked_memory.h"

namespace multigrain {

static_assert(kMaxLineNodes == MG_FINE_MAX_NODES);
static_assert(kMinLineSize == size_t{1} << MG_FINE_MIN_LINE_SHIFT);
static_assert(kMaxLineSize == size_t{1} << MG_FINE_MAX_LINE_SHIFT);

Result<std::unique_ptr<Protocol>> create_page_protocol(const ProtocolTraits& protocol, const NodeServices& services,
                                                       const ProtocolOptions& options) {
  switch (protocol.kind) {
    case ProtocolKind::kMgs:
      return mgs::Driver::create(services, {.prefetch = options.prefetch,
                                            .reads_one_sided = options.mgs_reads_one_sided,
                                            .mappings = options.mgs_mappings,
                                            .domains = options.mgs_domains});
    case ProtocolKind::kHlrc:
      return hlrc::Driver::create(
          services, {.open_ahead = options.prefetch,
                     .fetch_ahead = options.hlrc.fetch_ahead,
                     .runs = options.hlrc.runs,
                     .coalesce = options.hlrc.coalesce,
                     .cooperative = options.hlrc.cooperative,
                     .homes_follow = options.hlrc.homes_follow,
                     .gathers = services.fabric.nodes() > hlrc::NoticeReader::kMostEarly,
                     .updates = options.hlrc.updates ? hlrc::Driver::Updates::kLearned : hlrc::Driver::Updates::kNever,
                     .chains = options.hlrc.chains ? PageChains::Follow::kLearned : PageChains::Follow::kNever});
    case ProtocolKind::kSc:
      return sc::Driver::create(services, options.prefetch);
    case ProtocolKind::kPlacement:
      return placement::Driver::create(services, options.policy, options.observer);
    case ProtocolKind::kDszoom:
    case ProtocolKind::kShasta:
      break;
  }
  return fail("{} is no page protocol", protocol.name);
}

Result<std::unique_ptr<LineMemory>> create_line_protocol(const ProtocolTraits& protocol, const NodeServices& services,
                                                         const LineServices& lines, MemoryModel model,
                                                         unsigned prefetch) {
  switch (protocol.kind) {
    case ProtocolKind::kDszoom:
      return dszoom::Driver::create(services, lines, prefetch,
                                    prefetch == 0 ? dszoom::Runs::kNever : dszoom::Runs::kLearned,
                                    prefetch == 0 ? dszoom::RightsAhead::kNever : dszoom::RightsAhead::kLearned);
    case ProtocolKind::kShasta:
      return shasta::Driver::create(services, lines,
                                    model == MemoryModel::kRelease ? shasta::Model::kRc : shasta::Model::kSc, prefetch,
                                    prefetch == 0 ? shasta::Runs::kNever : shasta::Runs::kLearned);
    case ProtocolKind::kMgs:
    case ProtocolKind::kHlrc:
    case ProtocolKind::kSc:
    case ProtocolKind::kPlacement:
      break;
  }
  return fail("{} is no line protocol", protocol.name);
}

const char* protocol_message_name(MessageType type) {
  if (const char* const name = mgs::message_name(type)) return name;
  if (const char* const name = sc::message_name(type)) return name;
  if (const char* const name = placement::message_name(type)) return name;
  return shasta::message_name(type);
}

}  // namespace multigrain
