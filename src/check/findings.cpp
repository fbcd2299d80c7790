#include "check/findings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/lock_guard.h"
#include "sync/handle.h"

namespace multigrain::check {
namespace {

// One call, so that what other threads and nodes write does not come between.
void write_out(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

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
    write_out(fmt::format("multigrain: --check: node {} has told {} findings, and only counts from now on\n",
                          fabric_.self().value, kMostTold));
  if (told_++ < kMostTold) write_out(fmt::format("multigrain: --check: {}\n", text));
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
    write_out(fmt::format("multigrain: --check: {} finding{}; docs/user/check.md says what {} means\n", found,
                          found == 1 ? "" : "s", found == 1 ? "it" : "each"));
  if (lost_orders != 0)
    write_out(
        fmt::format("multigrain: --check: the order of locks was not noted {} times, for lack of room, so circles may "
                    "have been missed\n",
                    lost_orders));
}

}  // namespace multigrain::check
