// This tests mg::atomic, atomic_ref and atomic_flag: each operation's result, that none is lost when all processors make
// them at once, what their order brings along, and waits. The argument is the number of rounds.
#include <cmath>
#include <multigrain/atomic.hpp>

#include "program.h"

namespace {

struct Pair {
  int32_t first;
  int32_t second;
  bool operator==(const Pair&) const = default;
};
enum class Colour : uint8_t { kRed, kGreen };

static_assert(std::is_trivially_copyable_v<mg::atomic_ref<int>>);
static_assert(!std::is_copy_constructible_v<mg::atomic<int>> && !mg::atomic<int>::is_always_lock_free);
static_assert(sizeof(mg::atomic<Pair>) == 8 && alignof(mg::atomic<Pair>) == 8);
static_assert(sizeof(mg::atomic<mg_atomic_16>) == 16 && alignof(mg::atomic<mg_atomic_16>) == 16);
template <typename T>
concept can_be_atomic = requires { typename mg::atomic<T>; };
static_assert(can_be_atomic<int> && can_be_atomic<double> && can_be_atomic<char*> && can_be_atomic<Colour>);
struct Padded {
  char small;
  int number;
};
static_assert(!can_be_atomic<Padded> && !can_be_atomic<char[3]> && !can_be_atomic<long double>);

template <typename T>
void integer(mg::atomic<T>& it) {
  constexpr T kMost = std::numeric_limits<T>::max();
  constexpr T kLeast = std::numeric_limits<T>::min();
  it = 5;
  REQUIRE(it == 5 && it.exchange(6) == 5 && it.load(std::memory_order_acquire) == 6);
  REQUIRE(it.fetch_add(3) == 6 && it.fetch_sub(2) == 9 && it == 7);
  REQUIRE(it.fetch_and(3) == 7 && it.fetch_or(8) == 3 && it.fetch_xor(1) == 11 && it == 10);
  REQUIRE(it.fetch_min(4) == 10 && it.fetch_max(20) == 4 && it == 20);
  REQUIRE(++it == 21 && it++ == 21 && --it == 21 && it-- == 21 && (it += 4) == 24);
  T expected = 1;
  REQUIRE(!it.compare_exchange_strong(expected, 2) && expected == 24);
  REQUIRE(it.compare_exchange_weak(expected, 2) && it == 2);
  it.store(kMost, std::memory_order_release);
  REQUIRE(++it == kLeast);  // it wraps
  REQUIRE(it.fetch_min(1) == kLeast && it.fetch_max(1) == kLeast && it == 1);
  if (std::is_signed_v<T>) {
    it = static_cast<T>(-3);
    REQUIRE(it.fetch_min(2) == static_cast<T>(-3) && it == static_cast<T>(-3) && it.fetch_max(2) == static_cast<T>(-3));
    REQUIRE(it == 2);
  }
}

struct Shared {
  mg::atomic<int8_t> i8;
  mg::atomic<uint8_t> u8;
  mg::atomic<int16_t> i16;
  mg::atomic<uint16_t> u16;
  mg::atomic<int32_t> i32;
  mg::atomic<uint32_t> u32;
  mg::atomic<int64_t> i64;
  mg::atomic<uint64_t> u64;
  mg::atomic<mg_atomic_16> wide;
  mg::atomic<float> single;
  mg::atomic<double> real;
  mg::atomic<double*> pointer;
  mg::atomic<bool> boolean;
  mg::atomic<Colour> colour;
  mg::atomic<Pair> pair;
  mg::atomic_flag flag;
  double numbers[4] = {};

  mg::barrier barrier;
  uint16_t plain[256] = {};  // by atomic_ref
  uint64_t payload = 0;      // handed over by `ready`
  mg::atomic<uint32_t> ready;
  mg::atomic<uint32_t> gate;
  mg::atomic<uint32_t> x, y;
  uint32_t seen[2] = {};
  mg::atomic_flag taken;
  uint64_t guarded = 0;  // by `taken`, as a spin lock
};

void results(Shared& it) {
  integer(it.i8);
  integer(it.u8);
  integer(it.i16);
  integer(it.u16);
  integer(it.i32);
  integer(it.u32);
  integer(it.i64);
  integer(it.u64);
  const mg_atomic_16 large = static_cast<mg_atomic_16>(7) << 100;
  it.wide = large;
  REQUIRE(it.wide.exchange(1) == large && it.wide == 1);
  mg_atomic_16 found = 0;
  REQUIRE(!it.wide.compare_exchange_strong(found, large) && found == 1);
  REQUIRE(it.wide.compare_exchange_strong(found, large) && it.wide == large);
  it.single = 1.5f;
  REQUIRE(it.single.fetch_add(2) == 1.5f && it.single == 3.5f && it.single.fetch_sub(0.5f) == 3.5f &&
          (it.single += 1) == 4);
  it.real = 0.25;
  REQUIRE(it.real.fetch_add(1e10) == 0.25 && it.real == 1e10 + 0.25 && it.real.fetch_sub(1e10) == 1e10 + 0.25);
  it.pointer = it.numbers;
  REQUIRE(it.pointer.fetch_add(3) == it.numbers && --it.pointer == it.numbers + 2 && (it.pointer += -2) == it.numbers);
  it.boolean = false;
  REQUIRE(!it.boolean && !it.boolean.exchange(true) && it.boolean);
  it.colour = Colour::kGreen;
  Colour colour = Colour::kRed;
  REQUIRE(!it.colour.compare_exchange_strong(colour, Colour::kRed) && colour == Colour::kGreen);
  it.pair = Pair{1, -2};
  REQUIRE((it.pair.exchange(Pair{3, 4}) == Pair{1, -2} && it.pair.load() == Pair{3, 4}));
  REQUIRE(!it.flag.test() && !it.flag.test_and_set() && it.flag.test_and_set());
  it.flag.clear();
  REQUIRE(!it.flag.test());
  // An object on the stack is an ordinary one.
  mg::atomic<int> own = 3;
  REQUIRE(++own == 4);
  own.wait(3);
  own.notify_all();
}

// All processors change the same objects: nothing is lost, and nothing beside them.
void together(Shared& it, unsigned me, unsigned rounds) {
  const unsigned all = mg::processors();
  if (me == 0) {
    it.i8 = 0;
    it.u16 = 0;
    it.u32 = 0;
    it.u64 = 0;
    it.real = 0;
    it.u8 = 0;
    it.i64 = 0;
    it.wide = 0;
  }
  it.barrier.arrive_and_wait();
  for (unsigned i = 0; i < rounds; ++i) {
    it.i8 += 1;
    it.u16.fetch_add(3);
    ++it.u32;
    it.real.fetch_add(0.5);
    uint64_t old = it.u64;
    while (!it.u64.compare_exchange_weak(old, old + 7)) {
    }
    it.i64.fetch_max(static_cast<int64_t>(me) * rounds + i);
    it.wide.fetch_add(mg_atomic_16{1} << 70);
    mg::atomic_ref(it.plain[(i * 37 + me) % 256]) += 1;
  }
  it.barrier.arrive_and_wait();
  const uint64_t done = uint64_t{rounds} * all;
  REQUIRE(it.i8 == static_cast<int8_t>(done) && it.u16 == static_cast<uint16_t>(3 * done) && it.u32 == done);
  REQUIRE(it.real == 0.5 * static_cast<double>(done) && it.u64 == 7 * done && it.u8 == 0);
  REQUIRE(it.i64 == static_cast<int64_t>(done) - 1 && it.wide == mg_atomic_16{done} << 70);
  uint64_t sum = 0;
  for (const uint16_t& count : it.plain) sum += count;  // plain: the barrier orders it
  REQUIRE(sum == done);
  it.barrier.arrive_and_wait();
  if (me == 0)
    for (uint16_t& count : it.plain) count = 0;
  it.barrier.arrive_and_wait();
}

// A value that is published brings along what was written before it; the readers sleep until it is there.
void publish(Shared& it, unsigned me, unsigned rounds) {
  const unsigned all = mg::processors();
  for (uint32_t i = 1; i <= rounds; ++i) {
    const bool writes = i % all == me;
    if (writes) {
      it.payload = i * 1000 + me;
      it.ready.store(i, std::memory_order_release);
      it.ready.notify_all();
    } else {
      for (uint32_t now; (now = it.ready.load(std::memory_order_acquire)) != i;) it.ready.wait(now);
      REQUIRE(it.payload == i * 1000 + i % all);
    }
    // Everybody has looked before the next writer writes.
    if (++it.gate == i * all) it.gate.notify_all();
    for (uint32_t now; (now = it.gate) < i * all;) it.gate.wait(now);
  }
  it.barrier.arrive_and_wait();
  it.ready = 0;
  it.gate = 0;
  it.barrier.arrive_and_wait();
}

// Store buffering: with sequential consistency at least one of two sees the other's store.
void one_order(Shared& it, unsigned me, unsigned rounds) {
  const unsigned last = mg::processors() - 1;
  for (unsigned i = 0; i < rounds; ++i) {
    if (me == 0) {
      it.x.store(1);
      it.seen[0] = it.y.load();
    }
    if (me == last) {
      it.y.store(1);
      it.seen[1] = it.x.load();
    }
    it.barrier.arrive_and_wait();
    if (last != 0) REQUIRE(it.seen[0] + it.seen[1] >= 1);
    it.barrier.arrive_and_wait();
    if (me == 0) it.x = it.y = 0;
    it.barrier.arrive_and_wait();
  }
}

// A spin lock, as programs make them, guards plain data.
void spin_lock(Shared& it, unsigned rounds) {
  for (unsigned i = 0; i < rounds; ++i) {
    while (it.taken.test_and_set(std::memory_order_acquire)) it.taken.wait(true);
    ++it.guarded;
    it.taken.clear(std::memory_order_release);
    it.taken.notify_one();
  }
  it.barrier.arrive_and_wait();
  REQUIRE(it.guarded == uint64_t{rounds} * mg::processors());
  it.barrier.arrive_and_wait();
  it.guarded = 0;
  it.barrier.arrive_and_wait();
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 60;
  const auto shared = mg::make_unique<Shared>();
  Shared* const it = shared.get();
  results(*it);
  if (mg::nodes() > 1) {
    mg::spawn(mg::processors() - 1, [it] {
      it->i64 = 9;
      results(*it);
    });
    mg::join_all();
  }
  mg::run_on_all([it, rounds](unsigned me) {
    together(*it, me, rounds);
    publish(*it, me, rounds);
    one_order(*it, me, rounds);
    spin_lock(*it, rounds);
  });
  return 0;
}
