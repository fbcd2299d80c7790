#include "coherence/create.h"

#include "coherence/dszoom/driver.h"
#include "coherence/hlrc/driver.h"
#include "coherence/mgs/driver.h"
#include "coherence/sc/driver.h"
#include "coherence/shasta/driver.h"

namespace multigrain {

Result<std::unique_ptr<Protocol>> create_protocol(std::string_view name, const NodeServices& services,
                                                  const ProtocolOptions& options) {
  if (name == "mgs") return mgs::Driver::create(services, options.prefetch);
  if (name == "hlrc")
    return hlrc::Driver::create(services, {.open_ahead = options.prefetch,
                                           .fetch_ahead = options.hlrc.fetch_ahead,
                                           .coalesce = options.hlrc.coalesce,
                                           .cooperative = options.hlrc.cooperative});
  if (name == "sc") return sc::Driver::create(services, options.prefetch);
  return fail("there is no protocol '{}'", name);
}

Result<std::unique_ptr<LineMemory>> create_line_protocol(std::string_view name, const NodeServices& services,
                                                         const LineServices& lines, MemoryModel model) {
  if (name == "dszoom") return dszoom::Driver::create(services, lines);
  if (name == "shasta") {
    // A store whose check hits while others of its processor are queued would overtake them, and checks do not look at
    // the queue: so under tso a store that misses stalls, as under sc (docs/internals/shasta.md).
    const bool is_release = model == MemoryModel::kRelease;
    return shasta::Driver::create(services, lines, is_release ? shasta::Model::kRc : shasta::Model::kSc);
  }
  return fail("there is no line protocol '{}'", name);
}

bool works_without_handlers(std::string_view name) {
  return name == "hlrc" || name == "dszoom";
}

const char* protocol_message_name(MessageType type) {
  if (const char* const name = mgs::message_name(type)) return name;
  if (const char* const name = sc::message_name(type)) return name;
  return shasta::message_name(type);
}

}  // namespace multigrain
