#include <cstdint>
#include <limits>
#include <optional>

#include "base/quantity.h"
#include "fabric/module.h"
#include "fabric/wireup/launcher_wireup.h"
#include "fabric/wireup/wireup.h"
#include "fabric/wireup/wireup_module.h"

namespace multigrain {

Result<std::unique_ptr<Wireup>> open_wireup(std::string_view name) {
  constexpr std::string_view kDescriptor = "fd:";
  if (name.starts_with(kDescriptor)) {
    const std::optional<uint64_t> fd =
        parse_whole(name.substr(kDescriptor.size()), static_cast<uint64_t>(std::numeric_limits<int>::max()));
    if (fd) return open_launcher_wireup(static_cast<int>(*fd));
  } else if (name == "pmix" || name == "pmi2") {
    const Result<void*> open = load_module(name, kOpenWireupSymbol);
    if (!open) return tl::unexpected<Error>(open.error());
    Result<std::unique_ptr<Wireup>> wireup = fail("the module opened nothing");
    reinterpret_cast<OpenWireupFunction*>(*open)(&wireup);
    return wireup;
  }
  return fail("MULTIGRAIN_WIREUP is '{}'; it must be fd:N, pmix or pmi2, and the launcher sets it", name);
}

}  // namespace multigrain
