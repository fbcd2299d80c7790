// The features of a node's processor, as far as programs ask for them. A program decides once, on the node where it
// begins, which instructions it uses on all nodes, so every node must have the features of that one.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace multigrain::guest {

struct ProcessorFeatures {
  // These are the words of cpuid that say one feature a bit, and the registers that the kernel saves (xcr0).
  static constexpr size_t kWords = 9;
  std::array<uint32_t, kWords> words{};

  // Returns the features of the calling processor.
  static ProcessorFeatures here();
  // Returns, for a message, what `other` lacks of these features; empty if it lacks none.
  [[nodiscard]] std::string lacking_in(const ProcessorFeatures& other) const;
};

}  // namespace multigrain::guest
