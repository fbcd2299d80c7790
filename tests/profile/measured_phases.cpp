// A program whose measured phase does one thing, for virtual_clock_test.py, which reads what it took from the statistics.
//
//   measured_phases empty          nothing but the barrier after mg_profile_reset()
//   measured_phases barriers N     N barriers
//   measured_phases locks N        processor 0 takes a lock that nobody else wants, and lets it go, N times
//   measured_phases pages N        processor 0 reads one word of each of N pages that the last node has written
#include <multigrain/multigrain.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace {

mg_barrier_t barrier;
mg_lock_t lock;
char* pages;
// Other nodes have a copy of this, but not of main()'s arguments.
enum class What { kEmpty, kBarriers, kLocks, kPages } what;
unsigned count;
unsigned long sum;

void slave(void*) {
  const bool is_first = mg_processor() == 0;
  const bool reads = what == What::kPages;
  const size_t page = mg_page_size();
  if (reads && mg_processor() + 1 == mg_processors())
    for (unsigned i = 0; i < count; ++i) pages[i * page] = 1;
  // The phase is to find warm what it uses: the barrier, the lock and its code.
  for (int i = 0; i < 10; ++i) mg_barrier(barrier);
  for (int i = 0; is_first && i < 1000; ++i) {
    mg_lock(lock);
    mg_unlock(lock);
  }
  mg_barrier(barrier);
  if (is_first) mg_profile_reset();
  if (what == What::kBarriers)
    for (unsigned i = 0; i < count; ++i) mg_barrier(barrier);
  else if (what == What::kEmpty)
    mg_barrier(barrier);
  else if (is_first)
    for (unsigned i = 0; i < count; ++i) {
      if (reads) {
        sum += pages[i * page];
      } else {
        mg_lock(lock);
        mg_unlock(lock);
      }
    }
  if (is_first) mg_profile_stop();
  mg_barrier(barrier);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kNames[] = {"empty", "barriers", "locks", "pages"};
  const auto* const name = std::find_if(std::begin(kNames), std::end(kNames),
                                        [&](const char* each) { return argc > 1 && std::strcmp(each, argv[1]) == 0; });
  if (name == std::end(kNames)) {
    std::fprintf(stderr, "usage: measured_phases empty|barriers|locks|pages [N]\n");
    return 2;
  }
  what = static_cast<What>(name - std::begin(kNames));
  count = argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : 1;
  barrier = mg_barrier_create(0);
  lock = mg_lock_create();
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  options.home = MG_HOME_NODE;
  options.node = mg_nodes() - 1;
  pages = static_cast<char*>(mg_alloc(count * mg_page_size(), &options));
  if (pages == nullptr || mg_spawn_all(slave, nullptr) != 0) {
    std::fprintf(stderr, "measured_phases: %s\n", mg_error());
    return 1;
  }
  if (what == What::kPages && sum != count) {
    std::fprintf(stderr, "measured_phases: read %lu in place of %u\n", sum, count);
    return 1;
  }
  return 0;
}
