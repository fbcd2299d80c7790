// A program of small cases for mgrun --races: some have a data race, at the lines with a mark, and must be named; the others
// have none, though they come near to one.
#include <multigrain/multigrain.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

#define REQUIRE(condition)                                                                                       \
  do {                                                                                                           \
    if (!(condition)) {                                                                                          \
      std::fprintf(stderr, "%s:%d: processor %u: not so: %s\n", __FILE__, __LINE__, mg_processor(), #condition); \
      std::_Exit(1);                                                                                             \
    }                                                                                                            \
  } while (false)

constexpr unsigned kRounds = 30;

struct Node {
  Node* next;
  uint64_t value;
};

// What the cases share; each member has a line of the cache for itself, and all are in one page.
struct Shared {
  alignas(64) volatile uint64_t counter;
  alignas(64) volatile uint32_t flag;
  alignas(64) Node* volatile list;
  alignas(64) uint64_t words[8];
  alignas(64) volatile unsigned char bytes[64];
  alignas(64) Node nodes[64];
  alignas(64) char text[256];
  alignas(64) uint64_t area[8][32];
};

struct World {
  Shared* shared;
  mg_barrier_t barrier;
  mg_lock_t lock;
  mg_lock_t other_lock;
  mg_cond_t cond;
  mg_sem_t sem;
  mg_flag_t flag;
  const char* file;
};
World* world;

unsigned self() {
  return mg_processor();
}
void meet() {
  mg_barrier(world->barrier);
}

// --- Races

void counter() {
  for (unsigned i = 0; i < kRounds; ++i) {
    const uint64_t before = world->shared->counter;  // line: counter read
    world->shared->counter = before + 1;             // line: counter write
    meet();
  }
}

void one_instruction() {
  for (unsigned i = 0; i < kRounds; ++i) {
    __asm__ volatile("incq %0" : "+m"(world->shared->words[0]));  // line: increment
    meet();
  }
}

void same_word() {
  for (unsigned i = 0; i < kRounds; ++i) {
    if (self() == 0)
      world->shared->flag = 2 * i + 1;  // line: first writer
    else if (self() == mg_processors() - 1)
      world->shared->flag = 2 * i + 2;  // line: second writer
    meet();
  }
}

// The last processor prepends to the list under a lock, while the first one walks it without: as in water-spatial.
void list() {
  Shared& shared = *world->shared;
  for (unsigned i = 0; i < kRounds; ++i) {
    if (self() == mg_processors() - 1) {
      Node& node = shared.nodes[i];
      mg_lock(world->lock);
      node.next = shared.list;
      shared.list = &node;  // line: prepend
      mg_unlock(world->lock);
    } else if (self() == 0) {
      uint64_t sum = 0;
      for (Node* node = shared.list; node != nullptr; node = node->next) sum += node->value;  // line: walk
      REQUIRE(sum == 0);
    }
    meet();
  }
}

void spin() {
  for (unsigned i = 0; i < 8; ++i) {
    auto& flag = const_cast<volatile uint64_t&>(world->shared->words[i]);
    if (self() == mg_processors() - 1) {
      flag = 1;  // line: set
      mg_release();
    }
    while (flag == 0) {  // line: poll
    }
    meet();
  }
}

void wrong_lock() {
  for (unsigned i = 0; i < kRounds; ++i) {
    const mg_lock_t lock = self() == 0 ? world->lock : world->other_lock;
    mg_lock(lock);
    world->shared->counter = world->shared->counter + 1;  // line: wrong lock
    mg_unlock(lock);
    meet();
  }
}

void copied() {
  Shared& shared = *world->shared;
  for (unsigned i = 0; i < kRounds; ++i) {
    if (self() == 0) {
      char local[200];
      size_t bytes = 150 + i;
      __asm__ volatile("" : "+r"(bytes));
      std::memcpy(local, shared.text, bytes);  // line: copy
      __asm__ volatile("" : : "r"(local) : "memory");
    } else if (self() == mg_processors() - 1) {
      shared.text[100] = static_cast<char>(i);  // line: one character
    }
    meet();
  }
}

// The second write of each processor does not recur, and no processor faults on it: it is known from the diffs alone. (Node 0
// has the home copy, of which there is no diff.)
void once() {
  Shared& shared = *world->shared;
  meet();
  if (self() != 0) {
    shared.words[self() % 4] = self();
    shared.words[7] = self() + 100;  // line: once
  }
}

// --- None

void neighbours() {
  for (unsigned i = 0; i < kRounds; ++i) {
    world->shared->bytes[self()] = static_cast<unsigned char>(i + self() + 1);
    if (i % 2 == 0) meet();
    REQUIRE(world->shared->bytes[self()] == static_cast<unsigned char>(i + self() + 1));
  }
}

void barriers() {
  for (unsigned i = 0; i < kRounds; ++i) {
    if (self() == i % mg_processors()) world->shared->counter = i;
    meet();
    REQUIRE(world->shared->counter == i);
    meet();
  }
}

// What a processor has written before it passes the lock on, all that come after it see.
void chain() {
  Shared& shared = *world->shared;
  for (unsigned i = 0; i < kRounds; ++i) {
    uint64_t turn = 0;
    if (self() == 0) shared.words[1] = i + 1;
    while (turn <= uint64_t{i} * mg_processors() + self()) {
      mg_lock(world->lock);
      turn = shared.counter;
      if (turn == uint64_t{i} * mg_processors() + self()) shared.counter = ++turn;
      mg_unlock(world->lock);
    }
    if (self() == mg_processors() - 1) REQUIRE(shared.words[1] == i + 1);
    meet();
  }
}

void locked() {
  Shared& shared = *world->shared;
  for (unsigned i = 0; i < kRounds * 4; ++i) {
    mg_lock(world->lock);
    Node* const first = shared.list;
    shared.nodes[0].next = first;
    shared.list = first == nullptr ? &shared.nodes[0] : nullptr;
    shared.counter = shared.counter + 1;
    mg_unlock(world->lock);
  }
  meet();
  REQUIRE(shared.counter == uint64_t{kRounds} * 4 * mg_processors());
}

void conditions() {
  Shared& shared = *world->shared;
  for (unsigned i = 0; i < kRounds; ++i) {
    if (self() == 0) {
      mg_lock(world->lock);
      shared.words[2] = i + 1;
      shared.counter = i + 1;
      mg_cond_broadcast(world->cond);
      mg_unlock(world->lock);
    } else {
      mg_lock(world->lock);
      while (shared.counter < i + 1) mg_cond_wait(world->cond, world->lock);
      REQUIRE(shared.words[2] >= i + 1);
      mg_unlock(world->lock);
    }
    meet();
  }
}

void semaphores() {
  Shared& shared = *world->shared;
  for (unsigned i = 0; i < kRounds; ++i) {
    if (self() == 0) {
      shared.words[3] = i + 1;
      for (unsigned p = 1; p < mg_processors(); ++p) mg_sem_post(world->sem);
    } else {
      mg_sem_wait(world->sem);
      REQUIRE(shared.words[3] == i + 1);
    }
    meet();
  }
}

void flags() {
  Shared& shared = *world->shared;
  for (unsigned i = 0; i < kRounds; ++i) {
    if (self() == 0) {
      shared.words[4] = i + 1;
      mg_flag_set(world->flag, i + 1);
    } else {
      mg_flag_wait(world->flag, i + 1);
      REQUIRE(shared.words[4] == i + 1);
    }
    meet();
  }
}

// The processors are ordered by a file, of which Multigrain knows nothing.
void by_file() {
  Shared& shared = *world->shared;
  if (self() == 0) {
    shared.words[5] = 17;
    mg_release();
    std::FILE* const file = std::fopen(world->file, "w");
    REQUIRE(file != nullptr);
    std::fclose(file);
  } else {
    while (access(world->file, F_OK) != 0) usleep(1000);
    mg_acquire();
    REQUIRE(shared.words[5] == 17);
  }
  meet();
  if (self() == 0) unlink(world->file);
}

// Memory goes from one processor to the next through mg_free and mg_alloc.
void reused() {
  for (unsigned i = 0; i < kRounds; ++i) {
    mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
    auto* const block = static_cast<uint64_t*>(mg_alloc(256, &options));
    REQUIRE(block != nullptr);
    for (unsigned k = 0; k < 32; ++k) block[k] = self() * 1000 + k;
    for (unsigned k = 0; k < 32; ++k) REQUIRE(block[k] == self() * 1000 + k);
    mg_free(block);
  }
  meet();
}

// Processors do many kinds of accesses to their own parts of a page that all of them use, so that each instruction is
// executed alone. Each must do what it does otherwise.
template <typename T>
__attribute__((noinline)) T add_to(T* at, T what) {
  return *at += what;
}
void instructions() {
  Shared& shared = *world->shared;
  uint64_t* const own = shared.area[self() % 8];
  for (unsigned i = 0; i < kRounds; ++i) {
    uint64_t local[32];
    for (unsigned k = 0; k < 32; ++k) own[k] = i * 100 + k;
    size_t bytes = 32 * sizeof(uint64_t);
    __asm__ volatile("" : "+r"(bytes) : : "memory");
    std::memcpy(local, own, bytes);
    for (unsigned k = 0; k < 32; ++k) REQUIRE(local[k] == i * 100 + k);
    std::memset(own, 0x5a, bytes);
    REQUIRE(own[31] == 0x5a5a5a5a5a5a5a5a);
    // A pointer to itself: the register is the address, and what is stored.
    *reinterpret_cast<void**>(own) = own;
    REQUIRE(*reinterpret_cast<void**>(own) == own);
    {
      uint64_t at = reinterpret_cast<uint64_t>(own);
      __asm__ volatile("movq %0, 8(%0)\n\tmovq 8(%0), %0\n\tmovq %0, 16(%0)" : "+r"(at) : : "memory");
      REQUIRE(at == reinterpret_cast<uint64_t>(own) && own[1] == at && own[2] == at);
      own[3] = 5;
      __asm__ volatile("addq 24(%0), %0" : "+r"(at) : : "memory");
      REQUIRE(at == reinterpret_cast<uint64_t>(own) + 5);
      uint64_t exchanged = reinterpret_cast<uint64_t>(own);
      __asm__ volatile("xchgq %0, 24(%0)" : "+r"(exchanged) : : "memory");
      REQUIRE(exchanged == 5 && own[3] == reinterpret_cast<uint64_t>(own));
      own[4] = 7;
      uint64_t index = 2;
      __asm__ volatile("movb 16(%1,%0,8), %b0" : "+r"(index) : "r"(own) : "memory");
      REQUIRE(index == 7);
    }
    // The same page as source and destination, forwards and byte by byte.
    {
      auto* to = reinterpret_cast<unsigned char*>(own + 16);
      const auto* from = reinterpret_cast<unsigned char*>(own);
      uint64_t count = 40;
      for (unsigned k = 0; k < 5; ++k) own[k] = 0x1122334455667788u * (k + 1);
      __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
      REQUIRE(count == 0 && to == reinterpret_cast<unsigned char*>(own + 21) &&
              from == reinterpret_cast<unsigned char*>(own + 5));
      for (unsigned k = 0; k < 5; ++k) REQUIRE(own[16 + k] == own[k]);
      uint64_t* store = own + 24;
      count = 4;
      __asm__ volatile("rep stosq" : "+D"(store), "+c"(count) : "a"(uint64_t{42}) : "memory");
      REQUIRE(store == own + 28 && own[24] == 42 && own[27] == 42);
    }
    auto* const atomic = reinterpret_cast<std::atomic<uint64_t>*>(own + 6);
    atomic->store(1);
    REQUIRE(atomic->fetch_add(2) == 1 && atomic->exchange(9) == 3);
    uint64_t expected = 9;
    REQUIRE(atomic->compare_exchange_strong(expected, 11) && atomic->load() == 11);
    auto* const number = reinterpret_cast<double*>(own + 8);
    *number = 1.5;
    REQUIRE(add_to(number, 2.25) == 3.75 && *number == 3.75);
    auto* const small = reinterpret_cast<signed char*>(own + 9);
    *small = -3;
    REQUIRE(add_to(small, static_cast<signed char>(1)) == -2 && static_cast<int>(*small) == -2);
    std::strcpy(reinterpret_cast<char*>(own + 10), "a string of some length");
    REQUIRE(std::strlen(reinterpret_cast<char*>(own + 10)) == 23);
    meet();
  }
}

struct Case {
  std::string_view name;
  void (*run)();
};
constexpr Case kCases[] = {
    {"counter", counter},
    {"one_instruction", one_instruction},
    {"same_word", same_word},
    {"list", list},
    {"spin", spin},
    {"wrong_lock", wrong_lock},
    {"copied", copied},
    {"once", once},
    {"neighbours", neighbours},
    {"barriers", barriers},
    {"chain", chain},
    {"locked", locked},
    {"conditions", conditions},
    {"semaphores", semaphores},
    {"flags", flags},
    {"by_file", by_file},
    {"reused", reused},
    {"instructions", instructions},
};

void slave(void* number) {
  kCases[reinterpret_cast<uintptr_t>(number)].run();
}

}  // namespace

int main(int argc, char** argv) {
  REQUIRE(argc >= 2);
  world = static_cast<World*>(std::calloc(1, sizeof(World)));
  // A page, at home on node 0, which has touched it first.
  static_assert(sizeof(Shared) <= 4096);
  world->shared = static_cast<Shared*>(mg_alloc(4096, nullptr));
  REQUIRE(world->shared != nullptr);
  std::memset(static_cast<void*>(world->shared), 0, sizeof(Shared));
  world->barrier = mg_barrier_create(0);
  world->lock = mg_lock_create();
  world->other_lock = mg_lock_create();
  world->cond = mg_cond_create();
  world->sem = mg_sem_create(0);
  world->flag = mg_flag_create();
  world->file = argc > 2 ? argv[2] : "";
  const int status = argc > 3 ? std::atoi(argv[3]) : 0;
  for (uintptr_t i = 0; i < std::size(kCases); ++i) {
    if (kCases[i].name != argv[1]) continue;
    REQUIRE(mg_spawn_all(slave, reinterpret_cast<void*>(i)) == 0);
    return status;
  }
  std::fprintf(stderr, "there is no case %s\n", argv[1]);
  return 1;
}
