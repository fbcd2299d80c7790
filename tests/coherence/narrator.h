// A model says through this what is wrong about the event that happens in it, and, if a log is wanted, what happens.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <utility>

namespace multigrain::exploring {

// A model derives from this class, and begins and ends its apply() with narrate_to() and verdict().
class Narrator {
 protected:
  // An event begins, and nothing is wrong yet. Unless `log` is null, the event is described there.
  void narrate_to(std::string* log) {
    log_ = log;
    wrong_.clear();
  }
  // The event has happened. Returns what is wrong, or nothing.
  [[nodiscard]] std::string verdict() {
    log_ = nullptr;
    return std::move(wrong_);
  }

  // The first complaint is the cause.
  void wrong(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }
  [[nodiscard]] bool all_well() const { return wrong_.empty(); }
  template <typename... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    if (log_ != nullptr) fmt::format_to(std::back_inserter(*log_), format, std::forward<Args>(args)...);
  }

 private:
  std::string wrong_;
  std::string* log_ = nullptr;
};

}  // namespace multigrain::exploring
