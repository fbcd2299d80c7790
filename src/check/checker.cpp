#include "check/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/lock_guard.h"
#include "fabric/rows.h"
#include "status/node_status.h"

namespace multigrain::check {
namespace {

constexpr size_t kMostCycles = 20;

uint32_t index_of(const ProcessorStatus& status) {
  return static_cast<uint32_t>(&status - node_status()->processor);
}
uint32_t processor_of(const ProcessorStatus& status) {
  return node_status()->first_processor + index_of(status);
}

uint64_t number(const void* site) {
  return reinterpret_cast<uint64_t>(site);
}

}  // namespace

constinit Checker* g_checker = nullptr;

Checker::Checker(Fabric& fabric, const MessageTypes& types, const races::Module& module, const SharedAccess& access,
                 InProgram in_program)
    : fabric_(fabric),
      types_(types),
      in_program_(in_program),
      findings_(fabric, types.finding, module),
      heap_(findings_, access),
      lost_by_others_(fabric.nodes()),
      recent_(std::make_unique<std::array<Recent, Config::kMaxProcessorsPerNode>>()) {
  fabric.set_handler(
      types.lock_edges, [](void* self, const Message& message) { static_cast<Checker*>(self)->take_edges(message); },
      this);
}

std::vector<HeldLockPlace> Checker::held_by(const ProcessorStatus& status) const {
  std::vector<HeldLockPlace> held(std::min(status.held.load(std::memory_order_relaxed), ProcessorStatus::kMaxHeld));
  const std::unique_ptr<LockCalls>& calls = calls_[index_of(status)];
  for (size_t i = 0; i < held.size(); ++i) {
    held[i] = {.lock = status.locks[i].lock.load(std::memory_order_relaxed),
               .site = status.locks[i].site.load(std::memory_order_relaxed)};
    if (calls != nullptr) held[i].calls = calls->calls_of(held[i].lock);
  }
  return held;
}

void Checker::took(uint64_t lock, const void* site) {
  const ProcessorStatus* const status = this_status();
  if (status == nullptr) return;
  std::unique_ptr<LockCalls>& calls = calls_[index_of(*status)];
  if (calls == nullptr) calls = std::make_unique<LockCalls>();
  calls->took(lock, number(site), number(__builtin_frame_address(0)));
}

void Checker::wants(uint64_t lock, const void* site) {
  const ProcessorStatus* const status = this_status();
  if (status == nullptr || status->held.load(std::memory_order_relaxed) == 0) return;
  uint64_t hash = lock;
  const uint32_t known = std::min(status->held.load(std::memory_order_relaxed), ProcessorStatus::kMaxHeld);
  for (uint32_t i = 0; i < known; ++i)
    hash = (hash ^ status->locks[i].lock.load(std::memory_order_relaxed)) * 0x9e3779b97f4a7c15u;
  // Only this processor's thread uses the entry.
  std::atomic<uint64_t>& recent = (*recent_)[index_of(*status)].hash[hash >> 56];
  if (recent.load(std::memory_order_relaxed) == hash) return;
  recent.store(hash, std::memory_order_relaxed);
  const std::vector<HeldLockPlace> held = held_by(*status);
  const CallList calls = calls_to(number(site));
  const LockGuard guard(lock_);
  order_.note(held, {.lock = lock, .site = number(site), .calls = calls}, processor_of(*status));
}

void Checker::at_barrier(const void* site) {
  const ProcessorStatus* const status = this_status();
  if (status == nullptr || status->held.load(std::memory_order_relaxed) == 0) return;
  for (const HeldLockPlace& held : held_by(*status)) {
    {
      const LockGuard guard(lock_);
      if (!barriers_told_.insert({number(site), held.site}).second) continue;
    }
    findings_.add(
        fmt::format("processor {} came to a barrier with a lock\n"
                    "  the barrier: {}\n  {}, taken at {}\n"
                    "  a processor that takes the lock before it comes to the barrier waits for ever",
                    processor_of(*status), findings_.line_of(number(site)), findings_.lock_name(held.lock),
                    findings_.line_of(held.site)));
  }
}

void Checker::at_exit() {
  const ProcessorStatus* const status = this_status();
  if (status == nullptr) return;
  for (const HeldLockPlace& held : held_by(*status))
    findings_.add(fmt::format("the program ends while processor {} holds a lock\n  {}, taken at {}",
                              processor_of(*status), findings_.lock_name(held.lock), findings_.line_of(held.site)));
}

void Checker::send_lock_order() {
  std::vector<LockEdge> all;
  MessageHeader header;
  header.type = types_.lock_edges;
  {
    const LockGuard guard(lock_);
    all = order_.edges();
    header.word[0] = order_.lost();
  }
  send_rows(fabric_, header, std::span<const LockEdge>(all));
}

void Checker::take_edges(const Message& message) {
  const LockGuard guard(others_lock_);
  lost_by_others_[message.from.value] = message.header.word[0];
  for (const LockEdge& edge :
       append_rows(edges_of_others_, message, "an order of locks that cannot be right, from node"))
    if (edge.gates > LockEdge::kMostHeld) panic("an order of locks that makes no sense, from node", message.from.value);
}

std::string Checker::describe(const HeldLockPlace& place) {
  std::string text = findings_.line_of(place.site);
  for (const uint64_t call : place.calls)
    if (call != 0 && in_program_(reinterpret_cast<const void*>(call)))
      text += fmt::format("\n      called from {}", findings_.line_of(call));
  return text;
}

void Checker::tell(const LockCycle& cycle) {
  std::string text = fmt::format("{} locks are taken in orders that can end in a deadlock", cycle.size());
  for (const LockEdge& edge : cycle)
    text += fmt::format("\n  processor {} wanted {} at {}\n    while it held {}, taken at {}", edge.processor,
                        findings_.lock_name(edge.wanted.lock), describe(edge.wanted),
                        findings_.lock_name(edge.held.lock), describe(edge.held));
  findings_.add(text);
}

void Checker::finish() {
  std::vector<LockEdge> all;
  uint64_t lost = 0;
  {
    const LockGuard guard(lock_);
    all = order_.edges();
    lost = order_.lost();
  }
  {
    const LockGuard guard(others_lock_);
    all.insert(all.end(), edges_of_others_.begin(), edges_of_others_.end());
    lost = std::accumulate(lost_by_others_.begin(), lost_by_others_.end(), lost);
  }
  for (const LockCycle& cycle : find_cycles(all, kMostCycles)) tell(cycle);
  findings_.finish(lost);
}

}  // namespace multigrain::check
