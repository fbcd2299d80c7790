// A program whose result depends on all that a checkpoint holds: a table of which each processor computes some rows out of the
// last step's, lists of small blocks that are allocated and freed as they go, and how far all has come. It prints a number.
//
//   rows STEPS KIB [ms a step takes [the step after whose checkpoint the last node dies]]
#include <multigrain/checkpoint.h>
#include <multigrain/multigrain.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace {

struct Block {
  Block* next;
  uint64_t value;
};

struct State {
  uint64_t steps;
  uint64_t words;  // of a table
  uint64_t* table[2];
  uint64_t done;          // steps; written by processor 0
  mg_barrier_t barrier;   // of this run
  uint64_t milliseconds;  // that a step takes
  uint64_t last_step;     // of this run, of which a node dies
  uint64_t written;       // checkpoints of this run
  uint64_t failed;        // and those that were not written
  Block* lists[1024];     // one of each processor
};

void sleep_ms(uint64_t ms) {
  const timespec time{.tv_sec = static_cast<time_t>(ms / 1000), .tv_nsec = static_cast<long>(ms % 1000 * 1'000'000)};
  nanosleep(&time, nullptr);
}

template <typename T>
T* allocate(size_t count, mg_home home) {
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  options.home = home;
  auto* const made = static_cast<T*>(mg_alloc(count * sizeof(T), &options));
  if (made == nullptr) {
    std::fprintf(stderr, "rows: %s\n", mg_error());
    std::exit(1);
  }
  return made;
}

uint64_t mixed(uint64_t value) {
  value ^= value >> 31;
  value *= 0x7fb5'd329'728e'a185;
  return value ^ value >> 27;
}

// Puts two blocks into the list, takes the oldest out of three and frees them, and changes those that are there.
void change_list(Block*& list, uint64_t step) {
  for (int i = 0; i < 2; ++i) {
    auto* const block = static_cast<Block*>(mg_alloc(sizeof(Block) + step % 7 * 40, nullptr));
    *block = {list, mixed(step * 2 + static_cast<uint64_t>(i))};
    list = block;
  }
  uint64_t length = 0;
  for (Block** at = &list; *at != nullptr;) {
    (*at)->value = mixed((*at)->value + step);
    if (++length % 3 == 0) {
      Block* const gone = *at;
      *at = gone->next;
      mg_free(gone);
    } else {
      at = &(*at)->next;
    }
  }
}

void compute(void* argument) {
  auto& state = *static_cast<State*>(argument);
  const uint64_t processors = mg_processors();
  const uint64_t self = mg_processor();
  const uint64_t begin = state.words * self / processors;
  const uint64_t end = state.words * (self + 1) / processors;
  for (uint64_t step = state.done; step < state.steps; ++step) {
    const uint64_t* const from = state.table[step % 2];
    uint64_t* const to = state.table[(step + 1) % 2];
    for (uint64_t i = begin; i < end; ++i) to[i] = mixed(from[i] + from[(i + state.words / 3) % state.words] + step);
    change_list(state.lists[self], step);
    if (state.milliseconds != 0) sleep_ms(state.milliseconds);
    mg_barrier(state.barrier);
    if (self == 0) state.done = step + 1;
    const int result = mg_checkpoint(&state);
    if (self == 0 && result > 0) ++state.written;
    if (self == 0 && result < 0) ++state.failed;
    if (step == state.last_step && self + 1 == processors) std::raise(SIGKILL);
    mg_barrier(state.barrier);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  auto* state = static_cast<State*>(mg_restored());
  if (state == nullptr) {
    state = allocate<State>(1, MG_HOME_DEFAULT);
    state->steps = std::strtoull(argv[1], nullptr, 10);
    state->words = std::strtoull(argv[2], nullptr, 10) * 128;
    // The homes of the tables differ, so that each kind is there.
    state->table[0] = allocate<uint64_t>(state->words, MG_HOME_INTERLEAVED);
    state->table[1] = allocate<uint64_t>(state->words, MG_HOME_FIRST_TOUCH);
    for (uint64_t i = 0; i < state->words; ++i) state->table[0][i] = mixed(i);
    // This one is freed and used again, and has to be zero then.
    auto* const used = allocate<uint64_t>(4096, MG_HOME_BLOCKED);
    for (int i = 0; i < 4096; ++i) used[i] = ~uint64_t{0};
    mg_free(used);
  }
  state->milliseconds = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  state->last_step = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : ~uint64_t{0};
  state->written = state->failed = 0;
  state->barrier = mg_barrier_create(0);
  const uint64_t began_at = state->done;
  if (mg_spawn_all(&compute, state) != 0) {
    std::fprintf(stderr, "rows: %s\n", mg_error());
    return 1;
  }
  uint64_t sum = 0;
  for (uint64_t i = 0; i < state->words; ++i) sum = mixed(sum + state->table[state->steps % 2][i]);
  for (Block* const list : state->lists)
    for (const Block* at = list; at != nullptr; at = at->next) sum = mixed(sum + at->value);
  const auto* const fresh = allocate<uint64_t>(4096, MG_HOME_BLOCKED);
  for (int i = 0; i < 4096; ++i) sum += fresh[i];
  std::printf("result %016llx\n", static_cast<unsigned long long>(sum));
  std::fprintf(stderr, "rows: began at step %llu, wrote %llu checkpoints, failed to write %llu\n",
               static_cast<unsigned long long>(began_at), static_cast<unsigned long long>(state->written),
               static_cast<unsigned long long>(state->failed));
  return 0;
}
