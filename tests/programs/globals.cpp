// What main() left in globals, in the heap that they own and in static locals is there on every node, may be used and
// changed there, and differs from node to node afterwards, as with fork(). It is copied anew when a node without
// running processors gets some.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "program.h"

namespace {

struct Leaf {
  virtual ~Leaf() = default;
  virtual int value() const = 0;
};
struct Seven : Leaf {
  int value() const override { return 7; }
};

std::vector<int> numbers;
std::map<std::string, std::vector<double>> table;
std::string text;  // long enough to be on the heap
std::unique_ptr<Leaf> leaf;
int plain = 1;
int zero_at_start;
std::mutex in_node;
unsigned round_number;
mg_barrier_t barrier;

std::vector<std::string>& static_local() {
  static std::vector<std::string> strings(3, "a string that does not fit into the object itself");
  return strings;
}

void check_state() {
  REQUIRE(numbers.size() == 10000 + round_number);
  for (size_t i = 0; i < 10000; ++i) REQUIRE(numbers[i] == static_cast<int>(3 * i));
  REQUIRE(table.size() == 100);
  REQUIRE(table.at("key 42 with a tail that makes it long").at(5) == 42.5);
  REQUIRE(text == std::string(1000, 'm') + std::to_string(round_number));
  REQUIRE(leaf->value() == 7);
  REQUIRE(plain == 5 && zero_at_start == 6);
  REQUIRE(static_local().size() == 4 && static_local()[3] == "main was here");
}

void slave(void*) {
  check_state();
  mg_barrier(barrier);
  {
    // Processors of a node share these objects, so they change them one at a time.
    const std::lock_guard<std::mutex> guard(in_node);
    for (int i = 0; i < 5000; ++i) numbers.push_back(static_cast<int>(mg_node()));
    table["of node"].push_back(mg_node());
    table.erase("key 7 with a tail that makes it long");
    text += "and more of it";
    leaf = std::make_unique<Seven>();
    plain += 100;
    static_local().emplace_back("not main");
  }
  mg_barrier(barrier);
  // No change of another node has come here.
  const unsigned here = mg_processors_per_node();
  REQUIRE(numbers.size() == 10000 + round_number + 5000 * here);
  for (size_t i = 10000 + round_number; i < numbers.size(); ++i) REQUIRE(numbers[i] == static_cast<int>(mg_node()));
  REQUIRE(table.size() == 100 && table["of node"].size() == here);
  REQUIRE(plain == 5 + 100 * static_cast<int>(here));
}

void set_state() {
  numbers.clear();
  for (int i = 0; i < 10000; ++i) numbers.push_back(3 * i);
  numbers.resize(10000 + round_number, -1);
  table.clear();
  for (int i = 0; i < 100; ++i) {
    auto& row = table["key " + std::to_string(i) + " with a tail that makes it long"];
    row.assign(10, i + 0.5);
  }
  text = std::string(1000, 'm') + std::to_string(round_number);
  leaf = std::make_unique<Seven>();
  plain = 5;
  zero_at_start = 6;
  static_local().resize(3);
  static_local().emplace_back("main was here");
}

}  // namespace

int main() {
  barrier = mg_barrier_create(0);
  for (round_number = 0; round_number < 3; ++round_number) {
    set_state();
    program::run_on_all(slave);
  }
  return 0;
}
