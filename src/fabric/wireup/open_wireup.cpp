#include <charconv>

#include "fabric/module.h"
#include "fabric/wireup/launcher_wireup.h"
#include "fabric/wireup/wireup.h"
#include "fabric/wireup/wireup_module.h"

namespace multigrain {

Result<std::unique_ptr<Wireup>> open_wireup(std::string_view name) {
  constexpr std::string_view kDescriptor = "fd:";
  if (name.starts_with(kDescriptor)) {
    int fd = -1;
    const auto [end, error] = std::from_chars(name.data() + kDescriptor.size(), name.data() + name.size(), fd);
    if (error == std::errc{} && end == name.data() + name.size() && fd >= 0) return open_launcher_wireup(fd);
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
