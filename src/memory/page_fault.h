// This reads from a fault signal's context what kind of access faulted, on x86-64.
#pragma once

#include <ucontext.h>

#include <cstdint>

namespace multigrain {

// This is the page-fault error code that the processor pushed (Intel SDM volume 3, 4.7), which Linux passes on
// unchanged.
struct PageFaultCode {
  static constexpr uint64_t kWrite = 1u << 1;
  static constexpr uint64_t kFetch = 1u << 4;

  explicit PageFaultCode(const void* context)
      : bits(static_cast<uint64_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR])) {}
  [[nodiscard]] bool is_write() const { return (bits & kWrite) != 0; }
  [[nodiscard]] bool is_fetch() const { return (bits & kFetch) != 0; }

  uint64_t bits;
};

}  // namespace multigrain
