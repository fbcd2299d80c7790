#include "guest/call_functions.h"
#include "guest/host.h"

namespace multigrain::guest::call {

long map(Call& call) {
  const auto& argument = call.arguments;
  return host().space.map(argument[0], argument[1], call.integer(2), call.integer(3), call.integer(4), argument[5],
                          call.thread.node);
}
long unmap(Call& call) {
  return host().space.unmap(call.arguments[0], call.arguments[1]);
}
long protect(Call& call) {
  return host().space.protect(call.arguments[0], call.arguments[1], call.integer(2));
}
long protect_with_key(Call& call) {
  return host().space.protect(call.arguments[0], call.arguments[1], call.integer(2), call.integer(3));
}
long remap(Call& call) {
  const auto& argument = call.arguments;
  return host().space.remap(argument[0], argument[1], argument[2], call.integer(3), argument[4], call.thread.node);
}
long set_break(Call& call) {
  return host().space.set_break(call.arguments[0]);
}
long attach(Call& call) {
  return host().space.attach(call.integer(0), call.arguments[1], call.integer(2));
}
long detach(Call& call) {
  return host().space.detach(call.arguments[0]);
}

}  // namespace multigrain::guest::call
