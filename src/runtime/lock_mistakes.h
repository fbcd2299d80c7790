// Mistakes with locks that can only hang a run: each ends it with the places in the program that make the mistake.
#pragma once

#include <cstdint>

namespace multigrain {

// `lock`: a handle. `site`, `taken`: what the calls at fault return to.
[[noreturn]] void die_of_lock_twice(uint64_t lock, const void* site, uint64_t taken);
[[noreturn]] void die_of_foreign_unlock(uint64_t lock, const void* site);
[[noreturn]] void die_of_return_with_lock(uint64_t lock, uint64_t taken, uint64_t function);

}  // namespace multigrain
