#include "guest/nodes/processor_features.h"

#include <cpuid.h>
#include <fmt/format.h>

namespace multigrain::guest {
namespace {

struct Word {
  const char* name;
  uint32_t leaf, subleaf;
  unsigned which;         // the register: eax, ebx, ecx or edx
  uint32_t not_features;  // bits about the kernel or the processor's number
};

// [Intel SDM, volume 2A, CPUID] lists these. OSXSAVE follows from the kernel's choice, which xcr0 says.
constexpr uint32_t kOsxsave = uint32_t{1} << 27;
constexpr std::array<Word, ProcessorFeatures::kWords - 1> kWordsOfCpuid = {{
    {"leaf 1 ecx", 1, 0, 2, kOsxsave | uint32_t{1} << 31},
    {"leaf 1 edx", 1, 0, 3, 0},
    {"leaf 7 ebx", 7, 0, 1, 0},
    {"leaf 7 ecx", 7, 0, 2, 0},
    {"leaf 7 edx", 7, 0, 3, 0},
    {"leaf 7.1 eax", 7, 1, 0, 0},
    {"leaf 0x80000001 ecx", 0x80000001, 0, 2, 0},
    {"leaf 0x80000001 edx", 0x80000001, 0, 3, 0},
}};
constexpr size_t kSavedRegisters = ProcessorFeatures::kWords - 1;

}  // namespace

ProcessorFeatures ProcessorFeatures::here() {
  ProcessorFeatures features;
  uint32_t registers[4] = {};
  for (size_t i = 0; i < kWordsOfCpuid.size(); ++i) {
    const Word& word = kWordsOfCpuid[i];
    if (__get_cpuid_count(word.leaf, word.subleaf, &registers[0], &registers[1], &registers[2], &registers[3]) != 0)
      features.words[i] = registers[word.which] & ~word.not_features;
  }
  if (__get_cpuid(1, &registers[0], &registers[1], &registers[2], &registers[3]) != 0 &&
      (registers[2] & kOsxsave) != 0) {
    uint32_t low = 0, high = 0;
    asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    features.words[kSavedRegisters] = low;
  }
  return features;
}

std::string ProcessorFeatures::lacking_in(const ProcessorFeatures& other) const {
  std::string text;
  for (size_t i = 0; i < kWords; ++i) {
    const uint32_t lacking = words[i] & ~other.words[i];
    if (lacking == 0) continue;
    text += fmt::format("{}{} {:#x}", text.empty() ? "" : ", ", i < kSavedRegisters ? kWordsOfCpuid[i].name : "xcr0",
                        lacking);
  }
  return text;
}

}  // namespace multigrain::guest
