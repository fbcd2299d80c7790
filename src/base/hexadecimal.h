// This writes bytes as text: two lower-case digits each, the high one first. It is our own code because libsodium,
// which has this, is linked by the ucx module alone, and the runtime and the PMI-2 module do without it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace multigrain {

inline constexpr std::string_view kHexadecimalDigits = "0123456789abcdef";

inline std::string to_hexadecimal(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text.push_back(kHexadecimalDigits[std::to_integer<size_t>(byte >> 4)]);
    text.push_back(kHexadecimalDigits[std::to_integer<size_t>(byte & std::byte{15})]);
  }
  return text;
}

// Appends to `bytes`. Returns false if to_hexadecimal() does not write such a `text`; part of it may have been appended
// then.
inline bool append_hexadecimal(std::string_view text, std::vector<std::byte>& bytes) {
  if (text.size() % 2 != 0) return false;
  for (size_t i = 0; i < text.size(); i += 2) {
    const size_t high = kHexadecimalDigits.find(text[i]);
    const size_t low = kHexadecimalDigits.find(text[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return false;
    bytes.push_back(static_cast<std::byte>(high << 4 | low));
  }
  return true;
}

}  // namespace multigrain
