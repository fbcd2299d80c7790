// libFuzzer's entry: the target is chosen when this is compiled.
#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  multigrain::fuzz::FUZZ_TARGET({reinterpret_cast<const std::byte*>(bytes), length});
  return 0;
}
