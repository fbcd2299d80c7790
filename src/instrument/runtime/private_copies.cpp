#include "instrument/runtime/private_copies.h"

namespace multigrain::checks {

void InOutBytes::store_changes() {
  const int error = errno;
  const auto* const now = static_cast<const std::byte*>(used_);
  begin_access();
  for (size_t at = 0; at < size_;) {
    if (now[at] == before_bytes_[at]) {
      ++at;
      continue;
    }
    size_t end = at + 1;
    while (end < size_ && now[end] != before_bytes_[end]) ++end;
    store(address_of(user_) + at, end - at, now + at);
    at = end;
  }
  errno = error;
}

}  // namespace multigrain::checks
