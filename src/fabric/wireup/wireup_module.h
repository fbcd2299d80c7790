// The interface of a module for wire-up (multigrain-pmix.so, multigrain-pmi2.so), which hides the launcher's library.
#pragma once

#include <memory>
#include <utility>

#include "fabric/wireup/wireup.h"

namespace multigrain {

inline constexpr const char* kOpenWireupSymbol = "multigrain_open_wireup";

// The module's one function, which is extern "C" and visible under that name. It opens the wire-up of the launcher that
// started this process and stores it, or the error, in `out`.
using OpenWireupFunction = void(Result<std::unique_ptr<Wireup>>* out);

// The body of that function, for a module whose wire-up has an open().
template <typename ModuleWireup>
void open_wireup_of_module(Result<std::unique_ptr<Wireup>>* out) {
  auto wireup = std::make_unique<ModuleWireup>();
  if (const Status opened = wireup->open(); !opened)
    *out = tl::unexpected<Error>(opened.error());
  else
    *out = std::move(wireup);
}

}  // namespace multigrain
