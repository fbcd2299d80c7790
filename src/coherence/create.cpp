#include "coherence/create.h"

#include "coherence/hlrc/shell.h"
#include "coherence/mgs/shell.h"

namespace multigrain {

Result<std::unique_ptr<Protocol>> create_protocol(std::string_view name, const NodeServices& services,
                                                  const ProtocolOptions& options) {
  if (name == "mgs") return mgs::Shell::create(services, options.prefetch);
  if (name == "hlrc")
    return hlrc::Shell::create(
        services,
        {.open_ahead = options.prefetch, .fetch_ahead = options.hlrc.fetch_ahead, .coalesce = options.hlrc.coalesce,
                   .cooperative = options.hlrc.cooperative});
  return fail("there is no protocol '{}'", name);
}

Result<std::unique_ptr<dszoom::Shell>> create_line_protocol(const NodeServices& services,
                                                            const dszoom::LineServices& lines) {
  return dszoom::Shell::create(services, lines);
}

const char* protocol_message_name(MessageType type) {
  return mgs::message_name(type);
}

}  // namespace multigrain
