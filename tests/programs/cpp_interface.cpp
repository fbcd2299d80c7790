// This tests the C++ interface: containers in shared memory, standard locks, callables sent to processors, errors as
// exceptions.
#include <map>
#include <multigrain/multigrain.hpp>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>

#include "program.h"

namespace {

using Vector = std::vector<int, mg::allocator<int>>;
using String = std::basic_string<char, std::char_traits<char>, mg::allocator<char>>;
using Map = std::map<int, String, std::less<int>, mg::allocator<std::pair<const int, String>>>;
using HashMap = std::unordered_map<int, int, std::hash<int>, std::equal_to<int>,
                                   mg::allocator<std::pair<const int, int>, MG_HOME_INTERLEAVED>>;

static_assert(std::allocator_traits<mg::allocator<int>>::is_always_equal::value);
static_assert(std::is_trivially_copyable_v<mg::mutex_ref>);
static_assert(!std::is_copy_constructible_v<mg::mutex> && !std::is_move_constructible_v<mg::mutex>);

struct alignas(128) Wide {
  int value = 42;
};

// The processors share everything, locks included, in one object in shared memory.
struct Shared {
  mg::mutex mutex;
  mg::condition_variable changed;
  mg::barrier barrier;
  mg::counting_semaphore semaphore{2};
  mg::flag flag;
  Vector vector;
  Map map;
  HashMap hash_map;
  unsigned arrived = 0;
};

void use(Shared& shared, unsigned me) {
  const unsigned all = mg::processors();
  {
    const std::lock_guard<mg::mutex> guard(shared.mutex);
    for (int i = 0; i < 100; ++i) shared.vector.push_back(static_cast<int>(me));
    shared.map[static_cast<int>(me)] = String("processor ") + String(50, static_cast<char>('a' + me % 26));
    for (int i = 0; i < 20; ++i) shared.hash_map[static_cast<int>(me) * 100 + i] = i;
  }
  {
    std::unique_lock<mg::mutex> lock(shared.mutex);
    if (++shared.arrived == all) shared.changed.notify_all();
    shared.changed.wait(lock, [&shared, all] { return shared.arrived == all; });
  }
  shared.semaphore.acquire();
  shared.semaphore.release();
  if (me == 0) shared.flag.set(3);
  shared.flag.wait(3);
  REQUIRE(shared.flag.get() == 3);

  REQUIRE(shared.vector.size() == 100 * all);
  REQUIRE(std::accumulate(shared.vector.begin(), shared.vector.end(), 0u) == 100 * all * (all - 1) / 2);
  REQUIRE(shared.map.size() == all);
  REQUIRE(shared.map.at(static_cast<int>((me + 1) % all)).size() == 60);
  REQUIRE(shared.hash_map.size() == 20 * all);
  REQUIRE(shared.hash_map.at(static_cast<int>((me + 1) % all) * 100 + 7) == 7);
  shared.barrier.arrive_and_wait();
}

template <typename Function>
int code_of(Function&& function) {
  try {
    function();
  } catch (const std::system_error& error) {
    return error.code().value();
  }
  return 0;
}

}  // namespace

int main() {
  const unsigned all = mg::processors();
  {
    const auto shared = mg::make_unique<Shared>();
    REQUIRE(mg::is_shared(shared.get()));
    Shared* const object = shared.get();
    mg::run_on_all([object](unsigned me) { use(*object, me); });
    REQUIRE(mg::is_shared(shared->vector.data()));
  }

  auto counts = mg::make_shared_array<uint64_t>(all);
  auto wide = mg::make_shared_array<Wide>(10, {.alignment = 0, .home = MG_HOME_NODE, .node = mg::nodes() - 1});
  REQUIRE(reinterpret_cast<uintptr_t>(wide.data()) % 128 == 0);
  for (const Wide& element : wide) REQUIRE(element.value == 42);
  const std::span<uint64_t> view = counts;
  mg::mutex mutex;
  const mg::mutex_ref lock = mutex;
  const auto count = [view, lock, all](unsigned me) {
    mg::mutex_ref mine = lock;
    for (int i = 0; i < 50; ++i) {
      const std::scoped_lock guard(mine);
      view[(me + 1) % all] += 1;
      view[0] += 1;
    }
  };
  for (unsigned p = 1; p < all; ++p) mg::spawn(p, count);
  if (all > 1) {
    mg::join(1);
    mg::join_all();
  }
  for (unsigned p = 1; p < all; ++p) REQUIRE(counts[p] == (p == 1 ? 0u : 50u));
  REQUIRE(counts[0] == 50u * (all - 1) + (all > 1 ? 50u : 0u));

  REQUIRE(mutex.try_lock());
  mutex.unlock();
  REQUIRE(code_of([all] { mg::spawn(all, [] {}); }) == EINVAL);
  REQUIRE(code_of([] { mg::spawn(0, [] {}); }) == EBUSY);
  REQUIRE(code_of([] { (void)mg::make_shared_array<char>(1, {.alignment = 3, .home = MG_HOME_DEFAULT, .node = 0}); }) ==
          EINVAL);
  bool refused = false;
  try {
    (void)mg::make_shared_array<char>(size_t{1} << 60);
  } catch (const std::bad_alloc&) {
    refused = true;
  }
  REQUIRE(refused);

  auto moved = std::move(counts);
  REQUIRE(counts.empty() && moved.size() == all);
  const auto before = mg::clock::now();
  REQUIRE(mg::clock::now() >= before);
  return 0;
}
