// What commands show on standard error of work that takes long, with the time left. On anything but a terminal it is nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"

namespace multigrain {

// A bar, of work that is counted: with the rate.
class Progress {
 public:
  // `total` in `unit`s ("references", "bytes"); 0: not known.
  Progress(std::string label, std::string unit, uint64_t total);
  // Removes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap enough to be called for every batch: it draws ten times a second.
  void update(uint64_t done);

 private:
  void draw(uint64_t done, Nanoseconds now);

  std::string label_;
  std::string unit_;
  uint64_t total_;
  bool terminal_;
  bool drawn_ = false;
  Nanoseconds start_ = 0;
  Nanoseconds next_ = 0;
};

// A bar, of work in a few long steps. The time left is what it is if the others take as long as those that are done.
class Steps {
 public:
  Steps(std::string label, size_t total);
  // Removes the bar.
  ~Steps();
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  // The next step begins, and with that the one before is done.
  void begin(const std::string& name);
  // What is drawn when the step begins, `seconds` after the first one did.
  [[nodiscard]] std::string text(const std::string& name, double seconds) const;

 private:
  std::string label_;
  size_t total_;
  bool terminal_;
  size_t begun_ = 0;
  Nanoseconds start_ = 0;
};

}  // namespace multigrain
