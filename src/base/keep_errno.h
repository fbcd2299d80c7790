// errno as it was, at the end of a scope: for the fault handler, and for functions that compiled code calls for what is a
// load or a store to the program.
#pragma once

#include <cerrno>

namespace multigrain {

class KeepErrno {
 public:
  KeepErrno() : value_(errno) {}
  ~KeepErrno() { errno = value_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int value_;
};

}  // namespace multigrain
