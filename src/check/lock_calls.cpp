#include "check/lock_calls.h"

#include <unwind.h>

namespace multigrain::check {
namespace {

struct Walk {
  uint64_t site = 0;
  bool found = false;
  size_t count = 0;
  CallList calls{};
};

_Unwind_Reason_Code on_frame(_Unwind_Context* context, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  const uint64_t pc = _Unwind_GetIP(context);
  if (walk.found && pc != 0) walk.calls[walk.count++] = pc;
  walk.found |= pc == walk.site;
  return walk.count == walk.calls.size() ? _URC_END_OF_STACK : _URC_NO_REASON;
}

}  // namespace

CallList calls_to(uint64_t site) {
  Walk walk{.site = site};
  _Unwind_Backtrace(&on_frame, &walk);
  return walk.calls;
}

}  // namespace multigrain::check
