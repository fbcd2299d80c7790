#include "openmp/team.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <new>

#include "openmp/memory.h"
#include "openmp/program_symbols.h"
#include "openmp/tasks.h"
#include "runtime/running.h"

namespace multigrain::openmp {
namespace {

[[gnu::tls_model("initial-exec")]] constinit thread_local Thread t_thread;

constinit std::atomic<Shared*> g_shared{nullptr};
constinit std::mutex g_making_shared;
constinit std::atomic<int32_t> g_foreign_threads{0};
// The master's alone: whether a region with workers runs, and how many there have been.
constinit std::atomic<bool> g_in_region{false};
constinit uint64_t g_regions = 0;
constinit RegionHistory g_history{};
constinit uint32_t g_ordered = 0;

bool is_thread_of_main() {
  return gettid() == getpid() && __multigrain_is_running() != 0 && mg_node() == 0;
}

// Before main() the thread of main() cannot be told from others: then it is asked again.
void know(Thread& thread) {
  if (thread.frame == nullptr) {
    thread.initial.controls = initial_controls();
    thread.frame = &thread.initial;
  }
  if (__multigrain_is_running() == 0) return;
  if (is_thread_of_main()) {
    thread.kind = Thread::Kind::kMain;
    return;
  }
  thread.kind = Thread::Kind::kForeign;
  // These numbers are above those of workers; nothing here goes by them.
  thread.global = static_cast<int32_t>(mg_processors()) + g_foreign_threads.fetch_add(1, std::memory_order_relaxed);
}

// --- Workers

void run_part(Thread& thread, const RegionHead& region, void* const* argument, uint64_t region_number,
              uint32_t number) {
  Frame frame;
  frame.outer = thread.frame;
  frame.threads = region.threads;
  frame.number = number;
  frame.level = region.level;
  frame.active_level = region.active_level;
  frame.controls = region.controls;
  frame.region = region_number;
  frame.ordered = region.ordered;
  thread.team_number = region.team_number;
  thread.teams = region.teams;
  thread.frame = &frame;
  call(region.microtask, thread.global, region.arguments, argument);
  end_of_region(thread);
  thread.frame = frame.outer;
  if (number == 0) g_ordered = frame.ordered;
}

// The number of the worker is its place among the processors that were started.
struct Start {
  Shared* shared;
  uint32_t number;
};

void work(void* what) {
  const Start& start = *static_cast<Start*>(what);
  Shared& all = *start.shared;
  const uint32_t number = start.number;
  mg_sem_wait(all.begin);
  if (all.threads == 0) return;
  g_shared.store(&all, std::memory_order_release);
  Thread& thread = t_thread;
  thread.initial.controls = initial_controls();
  thread.frame = &thread.initial;
  thread.kind = Thread::Kind::kWorker;
  thread.global = static_cast<int32_t>(number);
  auto& history = *new (allocate_private(sizeof(RegionHistory))) RegionHistory();
  for (uint64_t region = 1;; ++region) {
    mg_barrier(all.all);
    const bool changed = all.region.changed_at == region;
    const RegionHistory::Seen* const expected = history.expected();
    if (!changed && expected == nullptr)
      end_run("a worker expects no region, and was told of none; its number:", region);
    const RegionHead& head = changed ? all.region.head : expected->head;
    void* const* const argument = changed ? all.region.argument : expected->argument.data();
    if (head.microtask == nullptr) return;
    if (number < head.threads) run_part(thread, head, argument, region, number);
    history.note(head, argument);
    mg_barrier(all.all);
  }
}

// Lets the workers go when main() has ended. If exit() was called in a region, or by another thread, they may be anywhere,
// and the runtime ends them as it ends processors that still run.
void at_exit() {
  Shared* const all = g_shared.load(std::memory_order_acquire);
  if (all == nullptr || all->threads <= 1 || __multigrain_is_running() == 0) return;
  if (t_thread.kind != Thread::Kind::kMain || g_in_region.load(std::memory_order_relaxed)) return;
  all->region.head.microtask = nullptr;
  all->region.changed_at = ++g_regions;
  mg_barrier(all->all);
  for (unsigned processor = 1; processor < mg_processors(); ++processor) mg_join(processor);
  all->threads = 1;
}

// The program has started a processor itself, so the workers before that one are sent home.
void give_up(Shared& all, unsigned processor) {
  for (unsigned started = 1; started < processor; ++started) mg_sem_post(all.begin);
  for (unsigned started = 1; started < processor; ++started) mg_join(started);
  mg_barrier_destroy(all.all);
  mg_flag_destroy(all.ordered);
  mg_sem_destroy(all.begin);
  free_shared(all.of_some);
}

// The workers are all processors but the master's; or none, as long as the program uses some itself.
void start_workers(Shared& all) {
  if (mg_nodes() > kMaxNodes)
    end_run("OpenMP runs on machines of at most 64 nodes (mgrun --nodes); this one's number of nodes is", mg_nodes());
  const unsigned processors = mg_processors();
  auto* const starts = new_shared<Start>(processors);
  all.all = mg_barrier_create(processors);
  all.of_some = new_shared<mg_barrier_t>(processors + 1);
  all.ordered = mg_flag_create();
  all.begin = mg_sem_create(0);
  all.program_has_tasks = program_refers_to("__kmpc_omp_task_alloc");
  for (unsigned processor = 1; processor < processors; ++processor) starts[processor] = {&all, processor};
  for (unsigned processor = 1; processor < processors; ++processor) {
    const int failed = mg_spawn(processor, &work, &starts[processor]);
    if (failed == 0) continue;
    if (failed != -EBUSY) end_run(mg_error());
    give_up(all, processor);
    free_shared(starts);
    return;
  }
  all.shape.threads = processors;
  all.shape.nodes = mg_nodes();
  for (unsigned node = 0; node <= mg_nodes(); ++node) all.shape.first[node] = node * mg_processors_per_node();
  all.threads = processors;
  for (unsigned processor = 1; processor < processors; ++processor) mg_sem_post(all.begin);
  std::atexit(&at_exit);
}

// Returns how many threads the next region has, and starts the workers if it needs them.
uint32_t decide_threads(Thread& thread) {
  const Frame& frame = *thread.frame;
  uint32_t threads = thread.wanted_threads != 0 ? thread.wanted_threads : frame.controls.threads;
  thread.wanted_threads = 0;
  if (thread.kind != Thread::Kind::kMain ||
      frame.active_level >= static_cast<int32_t>(frame.controls.max_active_levels))
    return 1;
  // A child that the program has forked has no workers, and none of the interface.
  if (__multigrain_is_running() == 0) return 1;
  // A thread of main() inside a serialized region of an active one is a thread of the active one's team.
  if (g_in_region.load(std::memory_order_relaxed)) return 1;
  threads = std::min({threads, frame.controls.thread_limit, mg_processors()});
  if (threads <= 1) return 1;
  Shared& all = shared();
  if (all.threads == 0) start_workers(all);
  return std::max(1u, std::min(threads, all.threads));
}

}  // namespace

Thread& this_thread() {
  Thread& thread = t_thread;
  if (thread.kind == Thread::Kind::kNew) [[unlikely]]
    know(thread);
  return thread;
}

Shared& shared() {
  Shared* const known = g_shared.load(std::memory_order_acquire);
  if (known != nullptr) [[likely]]
    return *known;
  const std::lock_guard one_at_a_time(g_making_shared);
  if (Shared* const made = g_shared.load(std::memory_order_acquire)) return *made;
  auto* const made = new_shared<Shared>();
  make_parts(*made);
  g_shared.store(made, std::memory_order_release);
  return *made;
}

void begin_alone(Thread& thread) {
  Frame* frame = thread.free_frames;
  if (frame != nullptr) {
    thread.free_frames = frame->outer;
  } else {
    constexpr size_t kFrames = 16;
    auto* const some = static_cast<Frame*>(allocate_private(sizeof(Frame) * kFrames));
    for (size_t i = 1; i < kFrames; ++i) {
      some[i].outer = thread.free_frames;
      thread.free_frames = &some[i];
    }
    frame = some;
  }
  new (frame) Frame;
  frame->outer = thread.frame;
  frame->level = thread.frame->level + 1;
  frame->active_level = thread.frame->active_level;
  frame->controls = thread.frame->controls;
  thread.frame = frame;
  thread.wanted_threads = 0;
}

void end_alone(Thread& thread) {
  end_of_region(thread);
  Frame* const frame = thread.frame;
  thread.frame = frame->outer;
  frame->outer = thread.free_frames;
  thread.free_frames = frame;
}

void fork(Thread& thread, Microtask microtask, uint32_t arguments, void* const* argument) {
  if (arguments > kMaxArguments)
    end_run("a parallel region uses more than 512 variables of its surroundings:", arguments);
  const uint32_t threads = decide_threads(thread);
  if (threads == 1) {
    begin_alone(thread);
    call(microtask, thread.global, arguments, argument);
    end_alone(thread);
    return;
  }
  Shared& all = shared();
  if (threads < all.threads && all.of_some[threads] == 0) all.of_some[threads] = mg_barrier_create(threads);
  RegionHead head;
  head.microtask = microtask;
  head.threads = threads;
  head.arguments = arguments;
  head.ordered = g_ordered;
  head.level = thread.frame->level + 1;
  head.active_level = thread.frame->active_level + 1;
  head.team_number = thread.team_number;
  head.teams = thread.teams;
  head.controls = thread.frame->controls;
  ++g_regions;
  const RegionHistory::Seen* const expected = g_history.expected();
  if (expected == nullptr || !expected->is(head, argument)) {
    all.region.head = head;
    std::copy_n(argument, arguments, all.region.argument);
    all.region.changed_at = g_regions;
  }
  g_history.note(head, argument);
  g_in_region.store(true, std::memory_order_relaxed);
  mg_barrier(all.all);
  run_part(thread, head, argument, g_regions, 0);
  mg_barrier(all.all);
  g_in_region.store(false, std::memory_order_relaxed);
}

void bare_team_barrier(const Frame& frame) {
  if (frame.threads == 1) return;
  const Shared& all = shared();
  mg_barrier(frame.threads == all.threads ? all.all : all.of_some[frame.threads]);
}

void team_barrier(Thread& thread) {
  const Frame& frame = *thread.frame;
  if (frame.threads == 1) {
    complete_all_tasks(thread);
    return;
  }
  if (shared().program_has_tasks)
    task_barrier(thread);
  else
    bare_team_barrier(frame);
}

TeamShape shape_of(const Frame& frame) {
  TeamShape shape = shared().shape;
  if (frame.threads == shape.threads) return shape;
  shape.threads = frame.threads;
  while (shape.first[shape.nodes - 1] >= frame.threads) --shape.nodes;
  shape.first[shape.nodes] = frame.threads;
  return shape;
}

unsigned node_of(const Frame& frame, const TeamShape& shape) {
  unsigned node = 0;
  while (shape.first[node + 1] <= frame.number) ++node;
  return node;
}

}  // namespace multigrain::openmp
