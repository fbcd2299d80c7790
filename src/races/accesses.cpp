#include "races/accesses.h"

#include <bit>

namespace multigrain::races {

AccessWindow::AccessWindow(size_t capacity) : kept_(capacity), heads_(std::bit_ceil(capacity)) {
  shift_ = 64 - static_cast<unsigned>(std::countr_zero(heads_.size()));
}

}  // namespace multigrain::races
