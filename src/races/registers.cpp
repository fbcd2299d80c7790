#include "races/decode.h"

namespace multigrain::races {

void move_registers(Registers& registers, const DecodedInstruction& decoded, const std::array<uint64_t, 2>& distance) {
  for (uint8_t i = 0; i < decoded.count; ++i) {
    const MemoryAccess& access = decoded.access[i];
    if (distance[i] != 0 && access.base >= 0) registers[access.base] += static_cast<greg_t>(distance[i]) / access.scale;
  }
}

void move_registers_back(Registers& registers, const DecodedInstruction& decoded,
                         const std::array<uint64_t, 2>& distance, const Registers& moved, bool was_executed) {
  for (uint8_t i = 0; i < decoded.count; ++i) {
    const MemoryAccess& access = decoded.access[i];
    if (distance[i] == 0 || access.base < 0) continue;
    // A result that is there instead of the address must stay. (A conditional move may have left the address there.)
    if (was_executed && access.base_is_result && registers[access.base] != moved[access.base]) continue;
    registers[access.base] -= static_cast<greg_t>(distance[i]) / access.scale;
  }
}

}  // namespace multigrain::races
