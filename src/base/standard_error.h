// Reports on standard error.
#pragma once

#include <string_view>

namespace multigrain {

// Writes the text in one call if the system takes it whole, so that nothing of other threads and nodes stands within it. Text that
// cannot be written is lost.
void write_to_standard_error(std::string_view text);

}  // namespace multigrain
