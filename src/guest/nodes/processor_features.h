// What a node's processor can do, as far as programs ask: a program decides once, on the node where it begins, which
// instructions it uses on all nodes.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace multigrain::guest {

struct ProcessorFeatures {
  // The words of cpuid that say one feature a bit, and the registers that the system saves (xcr0).
  static constexpr size_t kWords = 9;
  std::array<uint32_t, kWords> words{};

  // Of the calling processor.
  static ProcessorFeatures here();
  // What `other` lacks of this one's, for a message; empty: nothing.
  [[nodiscard]] std::string lacking_in(const ProcessorFeatures& other) const;
};

}  // namespace multigrain::guest
