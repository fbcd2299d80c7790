// What the host keeps for each thread of a guest, and where: at the lowest address of the alternate stack on which the
// thread's signal handlers run. The stack is aligned to its size, so a handler finds the block from its stack pointer
// alone, before it knows what the registers fs and gs mean.
//
//     block | the frame by which the thread enters the guest | a page without rights | stack
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/error.h"

namespace multigrain::guest {

class SignalActions;
class Away;
struct CallSite;

inline constexpr size_t kBlockSize = size_t{256} << 10;  // entry.cpp has it in its instructions
inline constexpr size_t kFrameSize = size_t{24} << 10;   // for all registers of a processor with AMX, and more
inline constexpr size_t kGateState = 1024;               // where the floating-point state is in ThreadBlock::gate_frame

// The values of ThreadBlock::selector, as the system defines them.
inline constexpr uint8_t kCallsPass = 0;
inline constexpr uint8_t kCallsTrap = 1;

struct ThreadBlock {
  // These are known to the instructions of entry.cpp and gates.cpp.
  volatile uint8_t selector = kCallsPass;  // what the system does with system calls of this thread
  volatile int pending_signal = 0;         // a signal for the guest that came while the host ran, with its info below;
                                           // -1: only those that are held
  uint64_t host_fs = 0;                    // the host's thread pointer
  uint64_t guest_fs = 0;                   // the guest's, while the host runs
  uint64_t host_stack = 0;                 // where leave_guest() continues
  uint64_t stack_top = 0;
  ThreadBlock* self = this;        // by which a gate knows that gs leads to a block
  const CallSite* site = nullptr;  // from which the gate was entered
  uint64_t guest_mask = 0;         // the thread's mask while the guest runs
  // The guest's registers, while a call is carried out that came by a gate: a ucontext_t, as of a signal.
  alignas(64) std::byte gate_frame[kFrameSize];

  siginfo_t pending_info{};
  // The guest's own alternate stack: the system knows only this one here.
  stack_t alternate_stack{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  // What the guest blocks of the signals that the host needs; the system knows the rest.
  uint64_t hidden_mask = 0;
  // The mask of the call that a signal has interrupted (sigsuspend and the like), until that signal is delivered.
  std::optional<uint64_t> temporary_mask;
  // Of those, the ones that another process has sent while the guest blocks them; si_signo 0: none.
  static constexpr size_t kHeld = 3;
  siginfo_t held[kHeld] = {};
  SignalActions* actions = nullptr;
  // The word that is cleared and woken when the thread ends (set_tid_address), or null.
  uint64_t clear_tid = 0;
  // The list of robust mutexes (set_robust_list), or null.
  uint64_t robust_list = 0;
  // The thread's number as the guest knows it; 0: the system's own number is that.
  int32_t tid = 0;
  // The node that runs it; of a shadow, the one that runs its thread.
  uint16_t node = 0;
  // Of a thread that is away from home (cluster.h): what is known of it there; else null.
  Away* away = nullptr;
  // Of such a thread: the guest's mask, since on its own node only the host sends signals; and the one that its shadow has.
  uint64_t mask_away = 0;
  uint64_t mask_at_home = 0;
  // How many signals from home it has acted on, and how many of these its shadow knows of.
  volatile uint32_t signals_acted_on = 0;
  uint32_t signals_answered = 0;
  // Whether the frame of the gates has what is the same each time.
  bool gate_is_ready = false;
  // Whether gs is what the guest has made of it; else it leads to this block.
  bool gs_is_guests = false;
  // The only processor that it has asked to run on, on several nodes; -1: any.
  int32_t processor = -1;
  // Whether it is a process of its own that shares this one's memory (vfork).
  bool shares_memory = false;

  alignas(64) std::byte frame[kFrameSize];

  [[nodiscard]] bool contains(uint64_t address) const {
    return address - reinterpret_cast<uint64_t>(this) < kBlockSize;
  }
  [[nodiscard]] stack_t stack() const;
};

// Reserves a block with its stack. Errors: no memory.
Result<ThreadBlock*> create_block();
// The calling thread must not run on its stack.
void destroy_block(ThreadBlock* block);

}  // namespace multigrain::guest
