// This checks the C++ library on shared memory, on another node than the one that filled the memory, so that its lines
// are not there. Each check looks at what that node has found and at what it has left. This is a program of Multigrain:
// its exit status is the verdict.
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "program.h"

namespace {

struct Base {
  virtual ~Base() = default;
  virtual int number() const { return 1; }
  long pad[20] = {};
};
struct Derived : Base {
  int number() const override { return 2; }
  long value = 77;
};
struct Top {
  long top = 5;
  virtual ~Top() = default;
};
struct Left : virtual Top {
  long left[30] = {1};
};
struct Right : virtual Top {
  long right[30] = {2};
};
struct Both : Left, Right {
  long both = 3;
};

template <typename T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <typename U>
  explicit Allocator(const Allocator<U>&) {}
  T* allocate(size_t count) { return program::shared<T>(count); }
  void deallocate(T* at, size_t) { mg_free(at); }
  template <typename U>
  bool operator==(const Allocator<U>&) const {
    return true;
  }
};
using Map = std::unordered_map<int, int, std::hash<int>, std::equal_to<>, Allocator<std::pair<const int, int>>>;

template <typename T>
T* make(auto&&... arguments) {
  return new (program::shared<T>(1)) T(std::forward<decltype(arguments)>(arguments)...);
}

char* text;
char* more;
Base* object;
Both* both;
Map* map;
std::string* string;
std::tm* when;
int* number;
double* real;
long* counter;
float* single;
std::thread* thread;
size_t (*volatile length_of)(const char*) = std::strlen;
void* (*volatile copy)(void*, const void*, size_t) = std::memcpy;

void casts() {
  auto* const derived = dynamic_cast<Derived*>(object);
  REQUIRE(derived != nullptr && derived->value == 77);
  REQUIRE(dynamic_cast<Both*>(object) == nullptr);
  Top* const top = both;
  auto* const back = dynamic_cast<Both*>(top);
  REQUIRE(back == both && back->both == 3);
  REQUIRE(dynamic_cast<Right*>(static_cast<Left*>(both)) == static_cast<Right*>(both));
  REQUIRE(dynamic_cast<void*>(top) == both);
}

void output() {
  std::ostringstream to;
  to.write(text, 5);
  to << std::string_view(text, 19) << text << *real << std::put_time(when, "%Y-%m-%d");
  REQUIRE(to.str() == "hellohello, shared worldhello, shared world2.51971-05-06");
  char name[] = "/tmp/multigrain-library-XXXXXX";
  const int fd = mkstemp(name);
  REQUIRE(fd >= 0);
  // std::cout's buffer is an object that the library has made.
  std::ofstream file(name);
  std::streambuf* const before = std::cout.rdbuf(file.rdbuf());
  std::cout.write(text, 19) << std::string_view(text, 5);
  std::cout.rdbuf(before);
  file.close();
  std::ifstream in(name);
  std::string line;
  std::getline(in, line);
  REQUIRE(line == "hello, shared worldhello");
  unlink(name);
}

void input() {
  std::istringstream from("42 2.5 1.5 77 word 1999-12-31 a line\nanother one\nthe end of it");
  from >> *number >> *real >> *single >> *counter >> *string;
  from >> std::get_time(when, "%Y-%m-%d");
  std::string own;
  std::getline(from, own);
  from.getline(more, 30);
  from >> std::ws;
  from.read(more + 40, 7);
}

void numbers() {
  const auto written = std::to_chars(text, text + 30, 3.14159);
  REQUIRE(written.ec == std::errc() && written.ptr == text + 7);
  *written.ptr = 0;
  double read = 0;
  const char* const half = "0.5";
  REQUIRE(std::from_chars(text, written.ptr, read).ptr == written.ptr && read == 3.14159);
  REQUIRE(std::from_chars(half, half + 3, *real).ec == std::errc());
  REQUIRE(std::to_chars(more, more + 30, 1.0f, std::chars_format::fixed, 3).ptr == more + 5);
}

void hashes() {
  REQUIRE(std::hash<std::string_view>()(std::string_view(text, 19)) ==
          std::hash<std::string_view>()("hello, shared world"));
  for (int i = 0; i < 3000; ++i) (*map)[i] = i;
  REQUIRE(map->load_factor() <= map->max_load_factor());
}

template <typename Exception>
void throws(auto&& from) {
  try {
    throw Exception(from);
  } catch (const std::exception& error) {
    REQUIRE(std::strcmp(error.what(), "hello, shared world") == 0);
  }
}
void exceptions() {
  throws<std::runtime_error>(text);
  throws<std::out_of_range>(text);
  throws<std::invalid_argument>(text);
  throws<std::logic_error>(text);
  throws<std::range_error>(std::string(text));
}

void strings() {
  REQUIRE(*string == "short");
  *string += "er";
  string->append(text, 3);
  std::string own(text);
  REQUIRE(own.find(text + 7) == 7 && own.compare(text) == 0);
}

void pointers() {
  char own[20] = {};
  copy(own, text, 20);
  REQUIRE(std::strcmp(own, "hello, shared world") == 0);
  REQUIRE(length_of(text) == 19);
  copy(more, "written", 8);
}

void threads() {
  new (thread) std::thread([] { *number = 7; });
  thread->join();
}

using Function = void (*)();
const struct {
  Function function;
  bool (*right)();  // afterwards, on node 0
} tests[] = {
    {casts, [] { return true; }},
    {output, [] { return true; }},
    {input,
     [] {
       return *number == 42 && *real == 2.5 && *single == 1.5f && *counter == 77 && *string == "word" &&
              when->tm_year == 99 && when->tm_mday == 31 && std::strcmp(more, "another one") == 0 &&
              std::memcmp(more + 40, "the end", 7) == 0;
     }},
    {numbers, [] { return std::strcmp(text, "3.14159") == 0 && *real == 0.5 && std::memcmp(more, "1.000", 5) == 0; }},
    {hashes,
     [] {
       for (int i = 0; i < 3000; ++i)
         if (map->at(i) != i) return false;
       return map->size() == 3000 && map->load_factor() <= map->max_load_factor();
     }},
    {exceptions, [] { return true; }},
    {strings, [] { return *string == "shorterhel"; }},
    {pointers, [] { return std::strcmp(more, "written") == 0; }},
    {threads, [] { return *number == 7; }},
};

mg_barrier_t barrier;

void run(void*) {
  for (const auto& test : tests) {
    if (mg_processor() == 0) {
      std::strcpy(text, "hello, shared world");
      std::memset(more, 0, 100);
      *string = "short";
      *when = {};
      when->tm_year = 71, when->tm_mon = 4, when->tm_mday = 6;
      *number = 1, *real = 2.5, *single = 0, *counter = 0;
    }
    mg_barrier(barrier);
    if (mg_processor() == mg_processors() - 1) test.function();
    mg_barrier(barrier);
    if (mg_processor() == 0) REQUIRE(test.right());
  }
}

}  // namespace

int main() {
  text = program::shared<char>(64);
  more = program::shared<char>(100);
  object = make<Derived>();
  both = make<Both>();
  map = make<Map>();
  string = make<std::string>("short");
  when = make<std::tm>();
  number = program::shared<int>(64);
  real = program::shared<double>(64);
  single = program::shared<float>(64);
  counter = program::shared<long>(64);
  thread = program::shared<std::thread>(64);
  barrier = mg_barrier_create(0);
  program::run_on_all(run);
}
