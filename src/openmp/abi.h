// What Clang 19 compiles OpenMP into: the types and numbers of its calls, as LLVM's openmp/runtime documents them.
//
// An entry point that is missing here is missing when a program is linked, by its name; none is there that does nothing
// where something would have to be done.
#pragma once

#include <cstddef>
#include <cstdint>

// What stands between these two is visible to programs, under its C name.
#define MG_OPENMP_BEGIN _Pragma("GCC visibility push(default)") extern "C" {
#define MG_OPENMP_END \
  }                   \
  _Pragma("GCC visibility pop")

namespace multigrain::openmp {

// A place in the source, which this library has no use for.
struct Ident;

// The body of a parallel region. Its first two arguments are the thread's global number and 0; the others are the
// addresses, or values, of the variables that it uses.
using Microtask = void (*)(int32_t* global, int32_t* bound, ...);

// The name of a critical section: a common symbol of the program, whose address tells sections apart.
using CriticalName = int32_t[8];

// The schedules of loops, as the compiler numbers them. A loop with an ordered clause has the number plus kOrderedOffset.
enum : int32_t {
  kScheduleStaticChunked = 33,
  kScheduleStatic = 34,
  kScheduleDynamic = 35,
  kScheduleGuided = 36,
  kScheduleRuntime = 37,
  kScheduleAuto = 38,
  kScheduleStaticBalancedChunked = 45,
  kScheduleGuidedSimd = 46,
  kScheduleRuntimeSimd = 47,
  kOrderedLower = 64,
  kOrderedOffset = 32,
  kOrderedUpper = 72,
  kDistributeStaticChunked = 91,
  kDistributeStatic = 92,
  kModifierMonotonic = 1 << 29,
  kModifierNonmonotonic = 1 << 30,
};

// A dimension of a loop nest with ordered(n): its bounds, both included, and its step.
struct DoacrossDimension {
  int64_t lower;
  int64_t upper;
  int64_t step;
};

// A task as the compiler sees it. Behind it are the task's private variables, and behind those, what `shareds` points to.
struct CompiledTask;
using TaskRoutine = int32_t (*)(int32_t global, CompiledTask* task);
struct CompiledTask {
  void* shareds;
  TaskRoutine routine;
  int32_t part;  // of an untied task: where it goes on
  union {
    int32_t priority;
    TaskRoutine destructors;
  } first, second;
};

// The flags of a task.
enum : uint32_t {
  kTaskTied = 1,
  kTaskFinal = 2,
  kTaskMergedIf0 = 4,
  kTaskHasDestructors = 8,
  kTaskProxy = 16,
  kTaskHasPriority = 32,
  kTaskDetachable = 64,
};

// One variable of a depend clause.
struct Dependence {
  intptr_t address;
  size_t length;
  uint8_t flags;
};

// One variable of a task_reduction clause.
struct ReductionItem {
  void* shared;
  void* original;
  size_t size;
  void (*initialise)(void* own, void* original);
  void (*finish)(void* own);
  void (*combine)(void* shared, void* own);
  uint32_t flags;
};

}  // namespace multigrain::openmp
