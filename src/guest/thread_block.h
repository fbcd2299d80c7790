// The block in which the host keeps what it knows of one thread of a guest. It is at the lowest address of the
// alternate stack on which the thread's signal handlers run. The stack is aligned to its size, so a handler finds the
// block from its stack pointer alone, before it knows what the registers fs and gs mean.
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

inline constexpr size_t kBlockSize = size_t{256} << 10;  // entry.cpp has this number in its instructions
inline constexpr size_t kFrameSize = size_t{24} << 10;   // enough for all registers, those of AMX included
inline constexpr size_t kGateState = 1024;  // offset of the floating-point state in ThreadBlock::gate_frame

// ThreadBlock::selector has one of these values, which the kernel defines.
inline constexpr uint8_t kCallsPass = 0;
inline constexpr uint8_t kCallsTrap = 1;

struct ThreadBlock {
  // The instructions of entry.cpp and gates.cpp know where these are.
  volatile uint8_t selector = kCallsPass;  // tells the kernel whether system calls trap
  // A signal for the guest that came while the host ran; pending_info belongs to it. -1: only held signals
  // wait; 0: none.
  volatile int pending_signal = 0;
  uint64_t host_fs = 0;     // the host's thread pointer
  uint64_t guest_fs = 0;    // the guest's thread pointer, while the host runs
  uint64_t host_stack = 0;  // the stack pointer that leave_guest() restores
  uint64_t stack_top = 0;
  ThreadBlock* self = this;        // shows a call gate that gs is right
  const CallSite* site = nullptr;  // the site that entered the call gate
  uint64_t guest_mask = 0;         // the thread's mask while the guest runs
  // While a call that came by a call gate is carried out, the guest's registers are here: a ucontext_t,
  // like a signal's.
  alignas(64) std::byte gate_frame[kFrameSize];

  siginfo_t pending_info{};
  // The guest's own alternate stack is kept here, since the kernel knows only the stack of this block.
  stack_t alternate_stack{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  // The guest blocks these of the signals that the host needs. The kernel knows the rest of the guest's mask.
  uint64_t hidden_mask = 0;
  // A call with a mask of its own (sigsuspend and the like) that a signal has interrupted leaves its mask here until
  // that signal is delivered.
  std::optional<uint64_t> temporary_mask;
  // Another process has sent these signals of hidden_mask while the guest blocks them. si_signo 0 marks a free slot.
  static constexpr size_t kHeld = 3;
  siginfo_t held[kHeld] = {};
  SignalActions* actions = nullptr;
  // The host clears and wakes this word when the thread ends (set_tid_address). It may be null.
  uint64_t clear_tid = 0;
  // The thread's list of robust mutexes begins here (set_robust_list). It may be null.
  uint64_t robust_list = 0;
  // The guest knows the thread by this number; 0: by the kernel's own number.
  int32_t tid = 0;
  // At home, this is the node that runs the thread; for a shadow, the node that runs its thread.
  uint16_t node = 0;
  // On another node than the home, this is what the node knows of the thread (cluster.h); else null.
  Away* away = nullptr;
  // A thread away from home keeps the guest's mask here, since only the host sends signals on its node, and the mask
  // that its shadow has.
  uint64_t mask_away = 0;
  uint64_t mask_at_home = 0;
  // These count the signals from home on which the thread has acted, and those of them of which its shadow knows.
  volatile uint32_t signals_acted_on = 0;
  uint32_t signals_answered = 0;
  // Says whether the frame of the call gates has all that is the same each time.
  bool gate_is_ready = false;
  // Says whether the guest has set gs; else gs points to this block.
  bool gs_is_guests = false;
  // On several nodes: the thread has asked to run on this processor alone; -1: on any.
  int32_t processor = -1;
  // Says that the thread has tried to use memory that only the home has (Cluster::come_home()).
  bool needs_home = false;
  // Says whether the thread is a process of its own that shares this one's memory (vfork).
  bool shares_memory = false;

  alignas(64) std::byte frame[kFrameSize];

  [[nodiscard]] bool contains(uint64_t address) const {
    return address - reinterpret_cast<uint64_t>(this) < kBlockSize;
  }
  [[nodiscard]] stack_t stack() const;
};

// Returns the number by which the guest knows the thread, which must be the calling one.
pid_t number_of(const ThreadBlock& thread);

// Reserves a block and its stack. Fails if there is no memory.
Result<ThreadBlock*> create_block();
// The calling thread must not run on the block's stack.
void destroy_block(ThreadBlock* block);

}  // namespace multigrain::guest
