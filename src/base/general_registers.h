// The general registers in the context of a signal (ucontext_t), in the order in which instructions of x86-64 number them.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstdint>

namespace multigrain {

// Indices into gregset_t.
inline constexpr std::array<int8_t, 16> kGeneralRegisters = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                                             REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                                             REG_R12, REG_R13, REG_R14, REG_R15};

}  // namespace multigrain
