#include "report/waiting_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <vector>

#include "sync/handle.h"

namespace multigrain {
namespace {

using Processors = std::vector<const ProcessorSnapshot*>;

SyncHandle handle_of(uint64_t object) {
  return SyncHandle::decode(SyncId(object));
}

std::string seconds(Nanoseconds time) {
  return fmt::format("{:.1f} s", static_cast<double>(time) * 1e-9);
}

// Returns, for instance, "lock 3" or "barrier 0 of node 2".
std::string name_of(const char* kind, uint64_t object) {
  const SyncHandle handle = handle_of(object);
  if (handle.creator == NodeId(0)) return fmt::format("{} {}", kind, handle.index);
  return fmt::format("{} {} of node {}", kind, handle.index, handle.creator.value);
}

std::string lock_name(uint64_t lock) {
  return name_of("lock", lock);
}

bool wants_lock(const ProcessorSnapshot& processor) {
  return processor.life == Life::kRuns && (processor.call == Call::kLock || processor.call == Call::kRelock);
}

class Analysis {
 public:
  explicit Analysis(std::span<const NodeSnapshot> nodes) {
    for (const NodeSnapshot& node : nodes)
      for (const ProcessorSnapshot& processor : node.processors) {
        processors_.push_back(&processor);
        for (const auto& held : processor.held) holders_[held.lock] = {&processor, held.line};
      }
  }

  [[nodiscard]] std::string list() const;
  // Returns a sentence for each cycle of processors that wait for each other's locks.
  [[nodiscard]] std::vector<std::string> cycles() const;
  // Returns whether processors that compute keep others waiting at a barrier, and all that do not sleep compute.
  [[nodiscard]] bool some_compute_for_others() const;
  // Returns a sentence for each barrier at which a processor waits.
  [[nodiscard]] std::vector<std::string> barriers() const;

 private:
  struct Holder {
    const ProcessorSnapshot* processor = nullptr;
    std::string line;
  };

  [[nodiscard]] const Holder* holder_of(uint64_t lock) const {
    const auto found = holders_.find(lock);
    return found != holders_.end() ? &found->second : nullptr;
  }
  [[nodiscard]] std::string waits_for(const ProcessorSnapshot& processor) const;
  [[nodiscard]] std::string state_of(const ProcessorSnapshot& processor) const;

  Processors processors_;
  std::map<uint64_t, Holder> holders_;
};

// Says for what the processor waits, for instance "lock 3 (created at a.c:6), which processor 1 took
// at a.c:9 and holds".
std::string Analysis::waits_for(const ProcessorSnapshot& processor) const {
  const auto created = [&](std::string name) {
    return processor.made.empty() ? name : fmt::format("{} (created at {})", name, processor.made);
  };
  switch (processor.call) {
    case Call::kLock:
    case Call::kRelock: {
      std::string text = created(lock_name(processor.object));
      if (processor.call == Call::kRelock) text += " again, having been signalled";
      const Holder* const holder = holder_of(processor.object);
      if (holder == nullptr) return text + ", which no processor holds that is known";
      text += fmt::format(", which processor {} took at {} and holds", holder->processor->number, holder->line);
      if (holder->processor->life == Life::kReturned) text += ", though it has returned";
      return text;
    }
    case Call::kBarrier:
      return created(name_of("barrier", processor.object));
    case Call::kCondition:
      return fmt::format("a signal of {}, having given up {}", created(name_of("condition", processor.object)),
                         lock_name(processor.lock));
    case Call::kSemaphore:
      return "a unit of " + created(name_of("semaphore", processor.object));
    case Call::kFlag:
      return fmt::format("{} to become {}", created(name_of("flag", processor.object)), processor.lock);
    case Call::kJoin:
      return fmt::format("processor {} to return (mg_join)", processor.object);
    case Call::kNone:
    case Call::kCount:
      break;
  }
  return "memory, or another answer of another node's runtime";
}

std::string Analysis::state_of(const ProcessorSnapshot& processor) const {
  switch (processor.life) {
    case Life::kNotStarted:
      return "was never started";
    case Life::kReturned:
      return fmt::format("has returned from {}", processor.function);
    case Life::kRuns:
      break;
  }
  if (!processor.sleeps && processor.call == Call::kNone)
    return fmt::format("runs {}, or is in a system call there", processor.function);
  const std::string at = processor.call == Call::kNone ? "in " + processor.function : "at " + processor.line;
  if (!processor.sleeps) return fmt::format("is {} and wants {}", at, waits_for(processor));
  return fmt::format("has slept for {} {}: it waits for {}", seconds(processor.slept), at, waits_for(processor));
}

std::string Analysis::list() const {
  std::string text;
  for (const ProcessorSnapshot* const processor : processors_) {
    text += fmt::format("\n  processor {} on node {} {}", processor->number, processor->node, state_of(*processor));
    std::vector<std::string> held;
    held.reserve(processor->held.size());
    for (const auto& lock : processor->held) held.push_back(fmt::format("{} ({})", lock_name(lock.lock), lock.line));
    if (!held.empty()) text += fmt::format("; it holds {}", fmt::join(held, ", "));
  }
  return text;
}

std::vector<std::string> Analysis::cycles() const {
  std::vector<std::string> result;
  std::map<const ProcessorSnapshot*, unsigned> walk_of;
  unsigned walk = 0;
  for (const ProcessorSnapshot* const start : processors_) {
    ++walk;
    // A processor waits for one lock, and a lock has one holder, so there is only one way to follow.
    const ProcessorSnapshot* at = start;
    while (at != nullptr && wants_lock(*at) && walk_of.emplace(at, walk).second) {
      const Holder* const holder = holder_of(at->object);
      at = holder != nullptr ? holder->processor : nullptr;
    }
    if (at == nullptr || !wants_lock(*at) || walk_of[at] != walk) continue;
    std::vector<std::string> members;
    const ProcessorSnapshot* member = at;
    do {
      const Holder& holder = *holder_of(member->object);
      members.push_back(fmt::format("processor {} waits at {} for {}, which processor {} took at {}", member->number,
                                    member->line, lock_name(member->object), holder.processor->number, holder.line));
      member = holder.processor;
    } while (member != at);
    result.push_back(fmt::format("deadlock: {}", fmt::join(members, "; ")));
  }
  return result;
}

bool Analysis::some_compute_for_others() const {
  const auto runs = [](const ProcessorSnapshot* processor) { return processor->life == Life::kRuns; };
  return std::ranges::all_of(processors_,
                             [&](const ProcessorSnapshot* processor) {
                               return !runs(processor) || processor->sleeps || processor->computes;
                             }) &&
         std::ranges::any_of(
             processors_, [&](const ProcessorSnapshot* processor) { return runs(processor) && !processor->sleeps; }) &&
         std::ranges::any_of(processors_, [&](const ProcessorSnapshot* processor) {
           return runs(processor) && processor->sleeps && processor->call == Call::kBarrier;
         });
}

std::vector<std::string> Analysis::barriers() const {
  std::map<uint64_t, Processors> at;
  for (const ProcessorSnapshot* const processor : processors_)
    if (processor->life == Life::kRuns && processor->call == Call::kBarrier) at[processor->object].push_back(processor);
  std::vector<std::string> result;
  for (const auto& [barrier, present] : at) {
    const unsigned wanted = handle_of(barrier).argument;
    if (present.size() >= wanted) continue;
    const auto missing = wanted - present.size();
    std::vector<std::string> others;
    for (const ProcessorSnapshot* const processor : processors_)
      if (std::ranges::find(present, processor) == present.end())
        others.push_back(fmt::format("processor {} {}", processor->number, state_of(*processor)));
    const std::string& made = present.front()->made;
    result.push_back(fmt::format("{}{} lacks {} of {} processors{}: {}", name_of("barrier", barrier),
                                 made.empty() ? "" : fmt::format(" (created at {})", made), missing, wanted,
                                 others.size() == missing ? "" : fmt::format(" ({} are elsewhere)", others.size()),
                                 others.empty() ? "there are no others" : fmt::format("{}", fmt::join(others, "; "))));
  }
  return result;
}

}  // namespace

WaitingReport describe_waiting(std::span<const NodeSnapshot> nodes, Nanoseconds stood, bool outside) {
  const Analysis analysis(nodes);
  WaitingReport report;
  unsigned threads = 0;
  bool complete = true;
  std::vector<std::string> notes;
  for (const NodeSnapshot& node : nodes) {
    threads += node.other_threads;
    complete = complete && node.attached && !node.stopped && !node.leaves;
    if (!node.attached)
      notes.push_back(fmt::format("node {} does not take part (yet), or runs a program without Multigrain", node.node));
    if (node.stopped) notes.push_back(fmt::format("the process of node {} is stopped (SIGSTOP)", node.node));
    if (node.other_threads != 0)
      notes.push_back(fmt::format("node {} has {} thread{} besides its processors, of which nothing is known here",
                                  node.node, node.other_threads, node.other_threads == 1 ? "" : "s"));
  }
  if (stood == 0)
    report.text = "what the processors do:";
  else if (outside)
    report.text = fmt::format(
        "for {} processors have waited at a barrier while the others have neither called Multigrain nor taken a fault:",
        seconds(stood));
  else
    report.text = fmt::format("every processor that runs has slept for {} in Multigrain:", seconds(stood));
  report.text += analysis.list();
  const auto cycles = analysis.cycles();
  for (const auto& sentences : {cycles, analysis.barriers(), notes})
    for (const std::string& sentence : sentences) report.text += "\n  " + sentence;
  if (outside)
    report.certain = complete && analysis.some_compute_for_others();
  else
    report.certain = !cycles.empty() || (stood != 0 && complete && threads == 0);
  return report;
}

}  // namespace multigrain
