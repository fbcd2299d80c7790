// Atomic operations of every kind and size, in globals and in memory of mg_alloc(), counted over all processors: none may
// be lost, and no byte beside them. Compiled by mg++ -fmultigrain-threads.
#include <atomic>
#include <cstring>

#include "program.h"

namespace {

constexpr unsigned kRounds = 40;

struct Odd {
  uint64_t a, b, c;
  bool operator==(const Odd&) const = default;
};
struct Small {
  char text[3];
};
#pragma pack(push, 1)
struct Unaligned {
  char before;
  uint32_t count;
  char behind;
};
#pragma pack(pop)

__extension__ using Wide = unsigned __int128;

// All on one page: updates of one must not disturb another.
struct Objects {
  std::atomic<uint8_t> byte;
  uint8_t bytes[64];  // each processor writes those of its own, plainly
  std::atomic<uint16_t> half;
  std::atomic<uint32_t> word;
  std::atomic<uint64_t> number;
  std::atomic<Wide> wide;
  std::atomic<float> single;
  std::atomic<double> real;
  long double extended;
  std::atomic<int*> pointer;
  std::atomic<Odd> odd;
  std::atomic<Small> small;
  Unaligned unaligned;
  _Complex double complex;
  std::atomic<uint32_t> bits;
  std::atomic<int32_t> most, least;
  std::atomic<uint64_t> sum_of_exchanged, exchanged;
  std::atomic_flag spin_lock;
  uint64_t under_spin_lock;
  std::atomic<uint64_t> by_exchange;
  uint64_t legacy;
  uint64_t many[256];
};

Objects global;
Objects* allocated;
int base[1 << 20];
mg_barrier_t barrier;

template <typename T, typename Change>
void change(std::atomic<T>& object, Change&& next) {
  T old = object.load();
  while (!object.compare_exchange_weak(old, next(old))) {
  }
}

void count_once(Objects& at, unsigned me) {
  at.byte.fetch_add(1);
  at.bytes[me] = static_cast<uint8_t>(at.bytes[me] + 1);
  ++at.half;
  at.word.fetch_sub(1, std::memory_order_relaxed);
  at.number += 3;
  change(at.wide, [](Wide old) { return old + (Wide{1} << 64 | 1); });
  __atomic_fetch_add(reinterpret_cast<Wide*>(&at.wide), Wide{1}, __ATOMIC_SEQ_CST);
  change(at.single, [](float old) { return old + 1; });
  at.real.fetch_add(0.5);
  at.pointer.fetch_add(2);
  change(at.odd, [](Odd old) { return Odd{old.a + 1, old.b + 2, old.c + 3}; });
  change(at.small, [](Small old) {
    for (char& letter : old.text) ++letter;
    return old;
  });
  __atomic_fetch_add(&at.unaligned.count, 1, __ATOMIC_SEQ_CST);
  at.bits.fetch_xor(1u << me);
  at.sum_of_exchanged += at.exchanged.exchange(me + 1);
  while (at.spin_lock.test_and_set(std::memory_order_acquire)) {
  }
  ++at.under_spin_lock;
  at.spin_lock.clear(std::memory_order_release);
  __sync_fetch_and_add(&at.legacy, 2);
  for (uint64_t old = at.by_exchange; !at.by_exchange.compare_exchange_strong(old, old + 1);) {
  }
}

void count(Objects& at) {
  const unsigned me = mg_processor();
  for (unsigned round = 0; round < kRounds; ++round) {
    count_once(at, me);
    __atomic_fetch_add(&at.many[(round * 7 + me) % 256], 1, __ATOMIC_RELAXED);
    const auto mine = static_cast<int32_t>(me * kRounds + round);
    for (int32_t old = at.most.load(); old < mine && !at.most.compare_exchange_weak(old, mine);) {
    }
    __atomic_fetch_min(reinterpret_cast<int32_t*>(&at.least), -mine, __ATOMIC_SEQ_CST);
  }
}

void check(Objects& at) {
  const unsigned all = mg_processors() * kRounds;
  const auto bytes = [](unsigned number) { return static_cast<uint8_t>(number); };
  REQUIRE(at.byte.load() == bytes(all) && at.half.load() == all && at.word.load() == 0 - all &&
          at.number.load() == 3 * all);
  for (unsigned p = 0; p < 64; ++p) REQUIRE(at.bytes[p] == (p < mg_processors() ? bytes(kRounds) : 0));
  REQUIRE(at.wide.load() == (Wide{all} << 64 | 2 * all));
  REQUIRE(at.single.load() == static_cast<float>(all) && at.real.load() == 0.5 * all);
  REQUIRE(at.pointer.load() == base + 2 * all);
  REQUIRE((at.odd.load() == Odd{all, 2 * all, 3 * all}));
  const Small small = at.small.load();
  for (const char letter : small.text) REQUIRE(static_cast<uint8_t>(letter) == bytes(all));
  REQUIRE(at.unaligned.count == all && at.unaligned.before == 'b' && at.unaligned.behind == 'e');
  REQUIRE(at.bits.load() == 0);
  REQUIRE(at.most.load() == static_cast<int32_t>(all - 1) && at.least.load() == -static_cast<int32_t>(all - 1));
  // What was exchanged away by somebody, and what is left, is what all have put there.
  const uint64_t put = uint64_t{kRounds} * mg_processors() * (mg_processors() + 1) / 2;
  REQUIRE(at.sum_of_exchanged.load() + at.exchanged.load() == put);
  REQUIRE(at.under_spin_lock == all && at.legacy == 2 * all && at.by_exchange.load() == all);
  uint64_t sum = 0;
  for (const uint64_t& one : at.many) sum += one;
  REQUIRE(sum == all);
}

void prepare(Objects& at) {
  at.pointer.store(base);
  at.unaligned.before = 'b';
  at.unaligned.behind = 'e';
}

void work(void*) {
  count(global);
  mg_barrier(barrier);
  count(*allocated);
  mg_barrier(barrier);
  check(global);
  check(*allocated);
}

}  // namespace

int main() {
  allocated = new (program::shared<Objects>(1)) Objects;
  prepare(global);
  prepare(*allocated);
  barrier = mg_barrier_create(0);
  REQUIRE(mg_share_globals() == 0);
  program::run_on_all(&work);
  check(global);
  check(*allocated);
}
