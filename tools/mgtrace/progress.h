// A progress bar on standard error, with rate and time left. On anything but a terminal it prints nothing.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace multigrain::trace::tool {

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

}  // namespace multigrain::trace::tool
