#include "check/findings.h"

#include <fmt/format.h>

#include "base/lock_guard.h"
#include "base/standard_error.h"
#include "sync/handle.h"

namespace multigrain::check {

Findings::Findings(Fabric& fabric, MessageType type, const races::Module& module)
    : fabric_(fabric), type_(type), module_(module) {
  fabric.set_handler(type, [](void* self, const Message&) { static_cast<Findings*>(self)->found_.fetch_add(1); }, this);
}

void Findings::count() {
  found_.fetch_add(1);
  if (fabric_.self() == NodeId(0)) return;
  MessageHeader header;
  header.type = type_;
  fabric_.send(NodeId(0), header, SendContext::kOrdinary);
}

void Findings::add(std::string_view text) {
  count();
  const LockGuard hold(lock_);
  if (told_ == kMostTold)
    write_to_standard_error(
        fmt::format("multigrain: --check: node {} has told {} findings, and only counts from now on\n",
                    fabric_.self().value, kMostTold));
  if (told_++ < kMostTold) write_to_standard_error(fmt::format("multigrain: --check: {}\n", text));
}

races::Places& Findings::places() {
  if (!places_) places_ = module_.places(*node_status());
  return *places_;
}

std::string Findings::line_of(uint64_t site) {
  if (site == 0) return "a place that is not known";
  const LockGuard hold(lock_);
  return places().call(site);
}

std::string Findings::block_of(uint64_t address) {
  const LockGuard hold(lock_);
  return places().block(address);
}

std::string Findings::lock_name(uint64_t lock) {
  const std::string name = fmt::format("lock {}", SyncHandle::decode(SyncId(lock)).index);
  const std::string made = [&] {
    const LockGuard hold(lock_);
    return places().made(lock);
  }();
  return made.empty() ? name : fmt::format("{} (created at {})", name, made);
}

void Findings::finish(uint64_t lost_orders) {
  const uint64_t found = found_.load();
  if (found != 0)
    write_to_standard_error(fmt::format("multigrain: --check: {} finding{}; docs/user/check.md says what {} means\n",
                                        found, found == 1 ? "" : "s", found == 1 ? "it" : "each"));
  if (lost_orders != 0)
    write_to_standard_error(
        fmt::format("multigrain: --check: the order of locks was not noted {} times, for lack of room, so cycles may "
                    "have been missed\n",
                    lost_orders));
}

}  // namespace multigrain::check
