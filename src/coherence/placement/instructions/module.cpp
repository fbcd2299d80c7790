#include "coherence/placement/instructions/module.h"

extern "C" [[gnu::visibility("default")]] multigrain::placement::DecodeInstruction multigrain_references_module() {
  return &multigrain::placement::decode_instruction;
}
