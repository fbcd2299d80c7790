// Executes an instruction whose operand in memory is not where the instruction looks for it.
//
// The operand is read from where it is into a buffer, a copy of the instruction is executed on the buffer (instruction.h), and the
// operand is written to where it is. Each access is made by itself, so an instruction that refers to two places never needs both at
// once: two nodes whose instructions go in opposite directions do not wait for each other. An atomic instruction is executed
// until a compare-and-swap finds the operand as it was when it was read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "coherence/placement/instructions/instruction.h"

namespace multigrain::placement {

// Where operands are. Addresses are the program's.
class Operands {
 public:
  virtual ~Operands() = default;
  // These return false if nothing is there. They are called in a signal handler.
  [[nodiscard]] virtual bool load(uint64_t address, std::span<std::byte> out) = 0;
  [[nodiscard]] virtual bool store(uint64_t address, std::span<const std::byte> bytes) = 0;
  // If the word of 8 bytes at `address`, a multiple of 8, equals `expected`, `desired` replaces it. `expected` becomes what it was.
  [[nodiscard]] virtual bool compare_and_swap(uint64_t address, uint64_t& expected, uint64_t desired) = 0;
};

enum class Executed : uint8_t {
  kDone,           // the thread goes on behind the instruction, or a repeated one goes on with the rest
  kNothingThere,   // an operand does not exist; nothing has changed, but for what a repeated instruction has done
  kNotUnderstood,  // decode_instruction() says so, or an atomic instruction needs more than an aligned word of 8 bytes
};

class Executor {
 public:
  // Errors: the system has no memory that can be written and executed.
  static Result<Executor> create(DecodeInstruction decode);
  Executor(Executor&& other) noexcept;
  Executor& operator=(Executor&&) = delete;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  // Executes the instruction at which a signal has interrupted the calling thread, and changes the context as the instruction changes
  // registers. Only for a synchronous signal, whose handler has all asynchronous signals blocked. Any number of threads at once.
  // Async-signal-safe, if the operands are.
  [[nodiscard]] Executed execute(ucontext_t& context, Operands& operands);

 private:
  struct Window;
  Executor(DecodeInstruction decode, uint8_t* code) : decode_(decode), code_(code) {}
  Executed execute_ordinary(const Instruction& instruction, ucontext_t& context, Operands& operands);
  Executed execute_atomic(const Instruction& instruction, ucontext_t& context, Operands& operands);
  Executed move_string(const Instruction& instruction, Registers& registers, Operands& operands);
  Executed move_elements(const Instruction& instruction, ucontext_t& context, Operands& operands);
  Executed one_of_string(const Instruction& instruction, ucontext_t& context, Operands& operands);
  // Executes the copy with the context's registers on window.operand. The results are in the window, and in the context's vectors.
  [[nodiscard]] bool run(const Instruction& instruction, const ucontext_t& context, Window& window);

  DecodeInstruction decode_;
  uint8_t* code_ = nullptr;  // slots for code
  std::atomic<uint64_t> free_slots_{~uint64_t{0}};
};

}  // namespace multigrain::placement
