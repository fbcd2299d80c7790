// These are the programs that the processors of a small machine run under MGS. They are free of data races in their
// writes, and say what each of their reads may return.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "mgs_driver_mutants.h"

namespace multigrain::mgs::explored {

using Value = uint16_t;
inline constexpr unsigned kMaxNodes = 16;
inline constexpr unsigned kMaxWords = 4;   // how many words of a page programs use
inline constexpr unsigned kMaxPages = 16;  // how many pages a machine has at most
inline constexpr unsigned kMaxLocks = 8;
inline constexpr unsigned kMaxTokens = 64;

enum class OpType : uint8_t {
  kRead,  // reads a word, and checks the value
  kWrite,
  kRelease,  // a release: when it has ended, what this node wrote is visible to every later reader
  kSignal,   // sets tokens; a processor that has written must release first, which Scenario::prepare() checks
  kWait,     // waits until all of a set of tokens are set
  kLock,     // takes a lock; the order of processors is decided at run time
  kUnlock,
  kBarrier,  // waits for all processors
};

struct Op {
  OpType type = OpType::kRead;
  uint8_t page = 0;  // the page, or the lock
  uint8_t word = 0;
  Value value = 0;
  uint64_t tokens = 0;
  // These are the values that a read may return. If there are none, it must return the value that the machine's golden
  // memory holds at that moment, which is exact in a program without races.
  std::vector<Value> legal;
};

Op read(unsigned page, unsigned word);
Op write(unsigned page, unsigned word, Value value);
Op release();
Op signal(unsigned token);
Op wait(std::initializer_list<unsigned> tokens);
Op lock(unsigned which);
Op unlock(unsigned which);
Op barrier();

using Program = std::vector<Op>;

struct Processor {
  unsigned node = 0;
  Program program;
};

// A scenario is a machine and the programs of its processors. Call prepare() once before use.
struct Scenario {
  std::string name;
  unsigned nodes = 0;
  unsigned words = 2;
  std::vector<unsigned> homes;  // the home node of each page
  std::vector<Processor> processors;
  bool one_sided = false;  // nodes read pages by themselves
  // Each processor is a mapping domain, with a translation table and a delayed update queue of its own. Otherwise a node is one.
  bool has_tables = false;
  unsigned ahead = 0;   // so many pages are read ahead of each read fault
  bool golden = false;  // reads are checked against golden memory; for programs with locks or barriers
  Mutant mutant = Mutant::kNone;

  // prepare() derives these: the final value of each word of each page (unless golden).
  std::vector<Value> final_values;

  // Works out which values each read may return, by happens-before: program order, and each token's signal before its
  // waits. Throws std::invalid_argument if the programs race in their writes or pass a token without a release.
  void prepare();
};

// GoogleTest prints parameters by this.
void PrintTo(const Scenario& scenario, std::ostream* out);

}  // namespace multigrain::mgs::explored
