// Calls the body of a region, which has as many arguments as the region uses variables.
//
// A function of the C ABI finds its arguments in registers and on the stack of its caller, and may be called with more of
// them than it has. So there are callers of a few sizes.
#include <algorithm>
#include <bit>
#include <utility>

#include "openmp/memory.h"
#include "openmp/team.h"

namespace multigrain::openmp {
namespace {

template <size_t>
using Pointer = void*;

template <size_t... I>
void call_with(Microtask microtask, int32_t* global, int32_t* bound, void* const* argument, std::index_sequence<I...>) {
  using Body = void (*)(int32_t*, int32_t*, Pointer<I>...);
  std::bit_cast<Body>(microtask)(global, bound, argument[I]...);
}

template <size_t Size>
void call_of_size(Microtask microtask, int32_t* global, int32_t* bound, uint32_t arguments, void* const* argument) {
  void* padded[Size];
  std::copy_n(argument, arguments, padded);
  std::fill(padded + arguments, padded + Size, nullptr);
  call_with(microtask, global, bound, padded, std::make_index_sequence<Size>());
}

}  // namespace

void call(Microtask microtask, int32_t global, uint32_t arguments, void* const* argument) {
  int32_t bound = 0;
  if (arguments <= 4)
    call_of_size<4>(microtask, &global, &bound, arguments, argument);
  else if (arguments <= 16)
    call_of_size<16>(microtask, &global, &bound, arguments, argument);
  else if (arguments <= 64)
    call_of_size<64>(microtask, &global, &bound, arguments, argument);
  else
    call_of_size<kMaxArguments>(microtask, &global, &bound, arguments, argument);
}

}  // namespace multigrain::openmp
