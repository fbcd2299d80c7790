#include "openmp/tasks.h"

#include <cstring>
#include <new>

#include "openmp/memory.h"

namespace multigrain::openmp {
namespace {

// When the thread looks at a board again that it has found full.
[[gnu::tls_model("initial-exec")]] constinit thread_local uint64_t t_look_again_at = 0;

class BoardHold {
 public:
  explicit BoardHold(TaskBoard& board) : board_(board) { mg_lock(board.lock); }
  ~BoardHold() { mg_unlock(board_.lock); }
  BoardHold(const BoardHold&) = delete;
  BoardHold& operator=(const BoardHold&) = delete;

  // `idles`: the thread is in a barrier.
  void wait(bool idles) {
    uint32_t& count = idles ? board_.idling : board_.waiting;
    ++count;
    mg_cond_wait(idles ? board_.idle : board_.changed, board_.lock);
    --count;
  }
  void wake_waiting() {
    if (board_.waiting != 0) mg_cond_broadcast(board_.changed);
  }
  void wake_idle() {
    if (board_.idling != 0) mg_cond_broadcast(board_.idle);
  }
  // There is a task more. A thread that waits for others can execute it if it is its descendant.
  void wake_for_task() {
    if (board_.idling != 0)
      mg_cond_signal(board_.idle);
    else
      wake_waiting();
  }
  // Lets go of the lock for as long as `what` takes.
  template <typename What>
  void without(What&& what) {
    mg_unlock(board_.lock);
    what();
    mg_lock(board_.lock);
  }

 private:
  TaskBoard& board_;
};

// --- Records (K6), under the lock.

void need(Task* task) {
  for (; task != nullptr && task->dependents++ == 0; task = task->parent) {
  }
}

void need_no_more(Task* task) {
  while (task != nullptr && --task->dependents == 0) {
    Task* const parent = task->parent;
    if (task->is_over) free_task_memory(task);
    task = parent;
  }
}

// The task is executed, and nothing counts it. Its record is freed now, or when nothing needs it any more.
void dispose(Task& task) {
  if (task.dependents == 0)
    free_task_memory(&task);
  else
    task.is_over = true;
}

// --- The board, under the lock.

void push(TaskBoard& board, Task& task) {
  task.next = nullptr;
  (board.first == nullptr ? board.first : board.last->next) = &task;
  board.last = &task;
  ++board.posted;
}

bool is_descendant(const Task* task, const Task* ancestor) {
  while (task != nullptr && task != ancestor) task = task->parent;
  return task != nullptr;
}

// Takes the oldest task off the board, or the oldest descendant of `ancestor`; null if there is none.
Task* pop(TaskBoard& board, const Task* ancestor) {
  Task* before = nullptr;
  for (Task* task = board.first; task != nullptr; before = task, task = task->next) {
    if (ancestor != nullptr && !is_descendant(task->parent, ancestor)) continue;
    (before == nullptr ? board.first : before->next) = task->next;
    if (board.last == task) board.last = before;
    --board.posted;
    return task;
  }
  return nullptr;
}

void count(TaskBoard& board, Task& task) {
  ++board.pending;
  ++task.parent->children;
  if (task.has_clauses) ++task.parent->in_order;
  need(task.parent);
  if (task.group != nullptr) ++task.group->tasks;
}

void complete(TaskBoard& board, BoardHold& hold, Task& task) {
  Task* const parent = task.parent;
  --board.pending;
  --parent->children;
  if (task.has_clauses) --parent->in_order;
  if (task.group != nullptr) --task.group->tasks;
  if (board.pending == 0) hold.wake_idle();
  if (parent->children == 0 || task.has_clauses || (task.group != nullptr && task.group->tasks == 0))
    hold.wake_waiting();
  dispose(task);
  need_no_more(parent);
}

// --- Execution

// Calls the routine in the place of the thread's task.
void execute(Thread& thread, Task& task) {
  Frame& frame = *thread.frame;
  Task* const outer = frame.task;
  TaskGroup* const group = frame.group;
  frame.task = &task;
  frame.group = task.group;
  task.runs = 1;
  ++task.parts;
  CompiledTask* const compiled = task.compiled();
  compiled->routine(thread.global, compiled);
  if (--task.parts == 0 && (task.flags & kTaskHasDestructors) != 0)
    compiled->first.destructors(thread.global, compiled);
  frame.task = outer;
  frame.group = group;
}

// Completes a posted task whose routine has returned, unless it waits for its event.
void body_over(TaskBoard& board, BoardHold& hold, Task& task) {
  if ((task.flags & kTaskDetachable) != 0 && !task.is_fulfilled)
    task.body_is_over = true;
  else
    complete(board, hold, task);
}

// Executes a task of the board, or waits for a change, under the lock.
void help_or_wait(Thread& thread, TaskBoard& board, BoardHold& hold, const Task* ancestor) {
  Task* const task = pop(board, ancestor);
  if (task == nullptr) {
    hold.wait(ancestor == nullptr);
    return;
  }
  hold.without([&] { execute(thread, *task); });
  body_over(board, hold, *task);
}

bool may_post(const Frame& frame, const Task& task) {
  return frame.threads != 1 && shared().program_has_tasks && !task.final &&
         (frame.task == nullptr || !frame.task->final) && mg_time_ns() >= t_look_again_at;
}

// Marks that the thread has to look for tasks that are not complete.
void note_posted(Frame& frame) {
  current_task(frame).has_posted = true;
  for (TaskGroup* group = frame.group; group != nullptr; group = group->outer)
    if (!group->has_posted) group->has_posted = true;
}

bool post(Frame& frame, Task& task) {
  TaskBoard& board = *shared().tasks;
  BoardHold hold(board);
  if (board.posted >= kPostedPerThread * frame.threads) {
    t_look_again_at = mg_time_ns() + kLookAgainNs;
    return false;
  }
  count(board, task);
  push(board, task);
  note_posted(frame);
  hold.wake_for_task();
  return true;
}

// The task is over, and nothing counts it.
void drop(Frame& frame, Task& task) {
  if (!task.has_posted) {
    free_task_memory(&task);
    return;
  }
  if (Task* const outer = frame.task) outer->has_posted = true;
  const BoardHold hold(*shared().tasks);
  dispose(task);
}

}  // namespace

TaskBoard* make_task_board() {
  auto* const made = new_shared<TaskBoard>();
  made->lock = mg_lock_create();
  made->changed = mg_cond_create();
  made->idle = mg_cond_create();
  return made;
}

Task& current_task(Frame& frame) {
  if (frame.task == nullptr) {
    frame.task = new (allocate_task_memory(sizeof(Task))) Task();
  }
  return *frame.task;
}

Task* make_task(Frame& frame, uint32_t flags, size_t task_bytes, size_t shared_bytes, TaskRoutine routine) {
  const size_t shareds_at = (task_bytes + 15) / 16 * 16;
  Task& parent = current_task(frame);
  auto* const task = new (allocate_task_memory(sizeof(Task) + shareds_at + shared_bytes)) Task();
  task->parent = &parent;
  task->group = frame.group;
  task->flags = flags;
  task->bytes = static_cast<uint32_t>(shareds_at + shared_bytes);
  task->final = (flags & kTaskFinal) != 0 || parent.final;
  CompiledTask* const compiled = task->compiled();
  compiled->shareds = shared_bytes != 0 ? reinterpret_cast<std::byte*>(compiled) + shareds_at : nullptr;
  compiled->routine = routine;
  compiled->part = 0;
  return task;
}

Task* duplicate_task(Frame& frame, Task& pattern) {
  CompiledTask* const from = pattern.compiled();
  auto* const task = new (allocate_task_memory(sizeof(Task) + pattern.bytes)) Task();
  task->parent = &current_task(frame);
  task->group = frame.group;
  task->flags = pattern.flags;
  task->bytes = pattern.bytes;
  task->final = pattern.final;
  CompiledTask* const compiled = task->compiled();
  std::memcpy(static_cast<void*>(compiled), from, pattern.bytes);
  if (from->shareds != nullptr)
    compiled->shareds = reinterpret_cast<std::byte*>(compiled) +
                        (static_cast<std::byte*>(from->shareds) - reinterpret_cast<std::byte*>(from));
  return task;
}

void drop_task(Thread& thread, Task& task) {
  CompiledTask* const compiled = task.compiled();
  if ((task.flags & kTaskHasDestructors) != 0) compiled->first.destructors(thread.global, compiled);
  drop(*thread.frame, task);
}

// A task that can wait for its event is counted before it begins: the event may happen at once.
void execute_now(Thread& thread, Task& task) {
  if ((task.flags & kTaskDetachable) == 0) {
    execute(thread, task);
    drop(*thread.frame, task);
    return;
  }
  TaskBoard& board = *shared().tasks;
  BoardHold hold(board);
  count(board, task);
  note_posted(*thread.frame);
  hold.without([&] { execute(thread, task); });
  body_over(board, hold, task);
}

void hand_over(Thread& thread, Task& task) {
  // An untied task goes on with its next part, in the thread that executes it.
  if (task.runs != 0) {
    execute(thread, task);
    return;
  }
  Frame& frame = *thread.frame;
  if (may_post(frame, task) && post(frame, task)) return;
  execute_now(thread, task);
}

void wait_for_children(Thread& thread) {
  const Frame& frame = *thread.frame;
  if (frame.task == nullptr || !frame.task->has_posted) return;
  const Task& task = *frame.task;
  TaskBoard& board = *shared().tasks;
  BoardHold hold(board);
  while (task.children != 0) help_or_wait(thread, board, hold, &task);
}

// Waits for the children with depend clauses that wait for their events.
void wait_in_order(Thread& thread) {
  const Frame& frame = *thread.frame;
  if (frame.task == nullptr || !frame.task->has_posted) return;
  const Task& task = *frame.task;
  TaskBoard& board = *shared().tasks;
  BoardHold hold(board);
  while (task.in_order != 0) help_or_wait(thread, board, hold, &task);
}

void begin_group(Frame& frame) {
  auto* const group = new (allocate_task_memory(sizeof(TaskGroup))) TaskGroup();
  group->outer = frame.group;
  group->task = &current_task(frame);
  frame.group = group;
}

void end_group(Thread& thread) {
  Frame& frame = *thread.frame;
  TaskGroup& group = *frame.group;
  if (group.has_posted) {
    TaskBoard& board = *shared().tasks;
    BoardHold hold(board);
    while (group.tasks != 0) help_or_wait(thread, board, hold, group.task);
  }
  finish_reductions(group, frame.threads);
  frame.group = group.outer;
  free_task_memory(&group);
}

void task_barrier(Thread& thread) {
  const Frame& frame = *thread.frame;
  TaskBoard& board = *shared().tasks;
  BoardHold hold(board);
  const uint32_t barrier = board.barriers;
  ++board.arrived;
  while (board.barriers == barrier) {
    if (board.arrived == frame.threads && board.pending == 0) {
      board.arrived = 0;
      ++board.barriers;
      hold.wake_idle();
      break;
    }
    help_or_wait(thread, board, hold, nullptr);
  }
}

void complete_all_tasks(Thread& thread) {
  wait_for_children(thread);
}

void end_of_region(Thread& thread) {
  Frame& frame = *thread.frame;
  if (frame.threads == 1)
    complete_all_tasks(thread);
  else if (shared().program_has_tasks)
    task_barrier(thread);
  if (frame.task == nullptr) return;
  Task& task = *frame.task;
  frame.task = nullptr;
  drop(frame, task);
}

MG_OPENMP_BEGIN

CompiledTask* __kmpc_omp_task_alloc(Ident*, int32_t, int32_t flags, size_t task_bytes, size_t shared_bytes,
                                    TaskRoutine routine) {
  return make_task(*this_thread().frame, static_cast<uint32_t>(flags), task_bytes, shared_bytes, routine)->compiled();
}
// There is no device but the host.
CompiledTask* __kmpc_omp_target_task_alloc(Ident* place, int32_t global, int32_t flags, size_t task_bytes,
                                           size_t shared_bytes, TaskRoutine routine, int64_t) {
  return __kmpc_omp_task_alloc(place, global, flags, task_bytes, shared_bytes, routine);
}

int32_t __kmpc_omp_task(Ident*, int32_t, CompiledTask* task) {
  hand_over(this_thread(), *Task::of(task));
  return 0;
}

int32_t __kmpc_omp_task_with_deps(Ident*, int32_t, CompiledTask* compiled, int32_t, Dependence*, int32_t, Dependence*) {
  Thread& thread = this_thread();
  wait_in_order(thread);
  Task& task = *Task::of(compiled);
  task.has_clauses = true;
  execute_now(thread, task);
  return 0;
}
void __kmpc_omp_wait_deps(Ident*, int32_t, int32_t, Dependence*, int32_t, Dependence*) {
  wait_in_order(this_thread());
}
void __kmpc_omp_taskwait_deps_51(Ident*, int32_t, int32_t, Dependence*, int32_t, Dependence*, int32_t) {
  wait_in_order(this_thread());
}

// The program calls the body of a task with if(0) itself, between these two.
void __kmpc_omp_task_begin_if0(Ident*, int32_t, CompiledTask* compiled) {
  Frame& frame = *this_thread().frame;
  frame.task = Task::of(compiled);
}
void __kmpc_omp_task_complete_if0(Ident*, int32_t, CompiledTask* compiled) {
  Frame& frame = *this_thread().frame;
  Task& task = *Task::of(compiled);
  frame.task = task.parent;
  frame.group = task.group;
  drop_task(this_thread(), task);
}

int32_t __kmpc_omp_taskwait(Ident*, int32_t) {
  wait_for_children(this_thread());
  return 0;
}
// A thread that yields may go on at once.
int32_t __kmpc_omp_taskyield(Ident*, int32_t, int32_t) {
  return 0;
}
void __kmpc_taskgroup(Ident*, int32_t) {
  begin_group(*this_thread().frame);
}
void __kmpc_end_taskgroup(Ident*, int32_t) {
  end_group(this_thread());
}
int32_t __kmpc_omp_reg_task_with_affinity(Ident*, int32_t, CompiledTask*, int32_t, void*) {
  return 0;
}

// The event is the task.
void* __kmpc_task_allow_completion_event(Ident*, int32_t, CompiledTask* task) {
  return Task::of(task);
}
void omp_fulfill_event(uintptr_t event) {
  Task& task = *reinterpret_cast<Task*>(event);
  TaskBoard& board = *shared().tasks;
  BoardHold hold(board);
  task.is_fulfilled = true;
  if (task.body_is_over) complete(board, hold, task);
}

MG_OPENMP_END

}  // namespace multigrain::openmp
