// What remote references of instructions need of Zydis, which other runs do without: a module (fabric/module.h).
#pragma once

#include "coherence/placement/instructions/instruction.h"

namespace multigrain::placement {

inline constexpr const char* kReferencesModule = "references";
inline constexpr const char* kReferencesSymbol = "multigrain_references_module";

}  // namespace multigrain::placement

// Returns what decodes instructions.
extern "C" multigrain::placement::DecodeInstruction multigrain_references_module();
