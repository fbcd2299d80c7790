// Explicit tasks.
//
// A task is executed by the thread that creates it, at once, unless its team has use for it: then it is posted on the
// board, from which threads take that have nothing else to do: those in barriers, in taskwait, and at the ends of task
// groups. A task is posted if the board has fewer tasks than kPostedPerThread for each thread of the team. A thread that
// finds the board full does not look again for kLookAgainNs, since to look costs a lock of all nodes: so the many small
// tasks of a recursion become calls, and the first ones, which are large, are shared.
//
//   K1  Tasks, their variables, task groups and the board are in shared memory: a task's child may use the task's
//       variables on another node.
//   K2  What is marked so in Task and TaskGroup, and the board, is guarded by the board's lock. The rest of a task belongs
//       to the thread that creates it until it is posted, and then to the thread that takes it.
//   K3  A posted task is complete when its thread has said so under the lock; who waits for that takes the lock, so it
//       sees what the task wrote.
//   K4  A task that waits, or comes to the end of a task group, executes of posted tasks its own descendants alone: so no
//       thread comes to hold a lock twice by way of a task that it has nothing to do with. At a barrier no task waits.
//   K5  Tasks with depend clauses are not posted. Each is complete before the thread that creates it creates another, so
//       the order that the clauses ask for is that in which the tasks are created. If one waits for its event, the next one
//       waits for it, too.
//   K6  The record of a task lives while a posted descendant does, by which K4 finds its way up.
#pragma once

#include <multigrain/multigrain.h>

#include <cstddef>
#include <cstdint>

#include "openmp/abi.h"
#include "openmp/team.h"

namespace multigrain::openmp {

inline constexpr uint32_t kPostedPerThread = 4;
inline constexpr uint64_t kLookAgainNs = 200'000;

struct TaskReductions;

// Stands in front of the compiler's task, which begins where this ends.
struct alignas(16) Task {
  Task* parent;      // null: it is an implicit task
  TaskGroup* group;  // the innermost one around it when it was created
  Task* next;        // on the board; guarded
  uint32_t flags;    // the compiler's
  uint32_t bytes;    // of the compiler's part, with the variables
  uint32_t parts;    // how many calls of an untied task's routine are under way
  uint32_t runs;     // the creator's: it is being executed, so to hand it over once more goes on with its next part
  bool final;        // all tasks inside of it are executed at once
  bool has_posted;   // the executing thread's: a child, or a child's child, may not be complete
  bool has_clauses;  // of depend
  // Guarded.
  bool body_is_over;    // of a task that waits for its event
  bool is_fulfilled;    // its event has happened
  bool is_over;         // it is executed; its record may still be needed
  uint32_t children;    // posted ones that are not complete
  uint32_t in_order;    // those of them that have depend clauses (K5): they wait for their events
  uint32_t dependents;  // records that need this one: posted children, and children that are needed themselves

  [[nodiscard]] CompiledTask* compiled() { return reinterpret_cast<CompiledTask*>(this + 1); }
  static Task* of(CompiledTask* compiled) { return reinterpret_cast<Task*>(compiled) - 1; }
};

struct TaskGroup {
  TaskGroup* outer;
  Task* task;  // in which it is
  TaskReductions* reductions;
  bool has_posted;  // by the thread that made it
  uint32_t tasks;   // posted ones that are not complete; guarded
};

// Is in shared memory.
struct TaskBoard {
  mg_lock_t lock;
  mg_cond_t changed;  // for threads that wait for tasks of theirs
  mg_cond_t idle;     // for threads in a barrier, to which any task will do
  // Guarded by `lock`, like all that follows.
  Task* first;
  Task* last;
  uint32_t posted;    // on the board
  uint32_t pending;   // posted and not complete
  uint32_t waiting;   // threads that wait for `changed`
  uint32_t idling;    // threads that wait for `idle`
  uint32_t arrived;   // at the barrier that is under way
  uint32_t barriers;  // that are over
};

TaskBoard* make_task_board();

// A barrier of the team, in which its threads execute what is on the board.
void task_barrier(Thread& thread);
// Waits for the tasks of a team of one: those that wait for an event.
void complete_all_tasks(Thread& thread);
// Called by each thread at the end of a region, before the team parts.
void end_of_region(Thread& thread);

// Returns the task that the thread executes.
Task& current_task(Frame& frame);
Task* make_task(Frame& frame, uint32_t flags, size_t task_bytes, size_t shared_bytes, TaskRoutine routine);
// Makes a task like `pattern`, which has not been handed over, with a copy of what is in it.
Task* duplicate_task(Frame& frame, Task& pattern);
// Executes the task, or posts it.
void hand_over(Thread& thread, Task& task);
// Executes the task, which is not posted.
void execute_now(Thread& thread, Task& task);
// Frees a task, as if it had been executed.
void drop_task(Thread& thread, Task& task);
void wait_for_children(Thread& thread);
void begin_group(Frame& frame);
void end_group(Thread& thread);

// Combines and frees what a group's task_reduction clauses have made (task_reductions.cpp).
void finish_reductions(TaskGroup& group, uint32_t threads);

// The memory of tasks: shared, and freed by any thread (task_memory.cpp).
void* allocate_task_memory(size_t bytes);
void free_task_memory(void* block);

}  // namespace multigrain::openmp
