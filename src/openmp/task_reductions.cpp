// task_reduction and in_reduction: each thread of the team has a copy of the variable, in shared memory, into which the
// tasks that it executes reduce; the thread that ends the task group combines the copies.
#include <cstring>
#include <span>

#include "openmp/memory.h"
#include "openmp/tasks.h"

namespace multigrain::openmp {

// The variables of one clause, or of several. A copy has a cache line of its own.
struct TaskReductions {
  TaskReductions* next;
  uint32_t count;
  struct Item {
    ReductionItem what;
    std::byte* copies;
    size_t stride;
  };
  [[nodiscard]] std::span<Item> items() { return {reinterpret_cast<Item*>(this + 1), count}; }
};

namespace {

constexpr size_t kLine = 64;

void make_copies(TaskReductions::Item& item, uint32_t threads) {
  item.stride = (item.what.size + kLine - 1) / kLine * kLine;
  item.copies = static_cast<std::byte*>(allocate_task_memory(item.stride * threads));
  for (uint32_t i = 0; i < threads; ++i) {
    std::byte* const copy = item.copies + i * item.stride;
    std::memset(copy, 0, item.what.size);
    if (item.what.initialise != nullptr)
      item.what.initialise(copy, item.what.original != nullptr ? item.what.original : item.what.shared);
  }
}

TaskGroup* add(Frame& frame, int32_t count, const ReductionItem* items) {
  TaskGroup& group = *frame.group;
  const auto number = static_cast<size_t>(count);
  auto* const made = static_cast<TaskReductions*>(
      allocate_task_memory(sizeof(TaskReductions) + sizeof(TaskReductions::Item) * number));
  made->count = static_cast<uint32_t>(count);
  for (TaskReductions::Item& item : made->items()) {
    item.what = *items++;
    make_copies(item, frame.threads);
  }
  made->next = group.reductions;
  group.reductions = made;
  return &group;
}

// Returns the thread's copy if the item is that of the variable, or of another thread's copy of it.
void* copy_of(const TaskReductions::Item& item, const Frame& frame, const void* variable) {
  const auto* const address = static_cast<const std::byte*>(variable);
  const bool is_copy = address >= item.copies && address < item.copies + item.stride * frame.threads;
  if (variable != item.what.shared && !is_copy) return nullptr;
  return item.copies + item.stride * frame.number;
}

}  // namespace

void finish_reductions(TaskGroup& group, uint32_t threads) {
  while (TaskReductions* const reductions = group.reductions) {
    for (const TaskReductions::Item& item : reductions->items()) {
      for (uint32_t thread = 0; thread < threads; ++thread) {
        std::byte* const copy = item.copies + thread * item.stride;
        item.what.combine(item.what.shared, copy);
        if (item.what.finish != nullptr) item.what.finish(copy);
      }
      free_task_memory(item.copies);
    }
    group.reductions = reductions->next;
    free_task_memory(reductions);
  }
}

MG_OPENMP_BEGIN

void* __kmpc_taskred_init(int32_t, int32_t count, void* items) {
  return add(*this_thread().frame, count, static_cast<const ReductionItem*>(items));
}

void* __kmpc_task_reduction_get_th_data(int32_t, void* group, void* variable) {
  const Frame& frame = *this_thread().frame;
  for (auto* at = group != nullptr ? static_cast<TaskGroup*>(group) : frame.group; at != nullptr; at = at->outer)
    for (TaskReductions* reductions = at->reductions; reductions != nullptr; reductions = reductions->next)
      for (const TaskReductions::Item& item : reductions->items())
        if (void* const copy = copy_of(item, frame, variable)) return copy;
  end_run("a task has an in_reduction clause for a variable that no task_reduction clause around it names");
}

// reduction(task, ...) of a region or loop: each thread's part of it is a task group, which reduces into the thread's
// own copy of the variable.
void* __kmpc_taskred_modifier_init(Ident*, int32_t, int32_t, int32_t count, void* items) {
  Frame& frame = *this_thread().frame;
  begin_group(frame);
  return add(frame, count, static_cast<const ReductionItem*>(items));
}
void __kmpc_task_reduction_modifier_fini(Ident*, int32_t, int32_t) {
  end_group(this_thread());
}

MG_OPENMP_END

}  // namespace multigrain::openmp
