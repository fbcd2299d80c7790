// Mistakes of the program with locks that could only hang the run. Each of them ends the run instead, and names the
// places in the program that make the mistake.
#pragma once

#include <cstdint>

namespace multigrain {

// `lock` is a handle. `site` and `taken` are the addresses to which the calls at fault return.
[[noreturn]] void die_of_lock_twice(uint64_t lock, const void* site, uint64_t taken);
[[noreturn]] void die_of_foreign_unlock(uint64_t lock, const void* site);
[[noreturn]] void die_of_return_with_lock(uint64_t lock, uint64_t taken, uint64_t function);

}  // namespace multigrain
