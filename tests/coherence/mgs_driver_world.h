// A small machine whose nodes run MGS's driver itself (coherence/mgs/driver.cpp), one step at a time, over ports: a
// fabric whose messages arrive when the explorer says so, and rights that are a table.
//
// A node has its processors, which run programs (mgs_programs.h), and a thread for each other node, which handles that
// node's messages one after the other. Two of these threads may handle messages at the same time, as the fabric's
// contract says. Every thread is a fibre. It stops before it accesses what other threads access as well: words of the
// program, rights, the frame of a page that another thread may write, the delayed update queue, release epochs. It
// stops before it takes a page's lock, and when it sleeps in a wait, where it stays until the event that it waits for
// has been announced.
//
// An action that makes no difference to other threads is one step with the action before it. A section under a page's
// lock is one step up to the first access that another processor of the node can see and that comes after another
// access or after a message was sent: taking a lock commutes with the later actions of other threads, and sending a
// message and letting go of the lock with the earlier ones (Lipton's reduction). A thread that has been woken tries its
// access again at once, because it does nothing before that. Tokens pass at once.
//
// Two states are the same if everything is the same that nodes and messages are made of, and for each thread what it
// has read since its operation, or its message, began. What a thread has read of a page under its lock does not count
// any more when it has let go of the lock, except for whether a release had to wait for the page; what it read before
// it marked a release epoch does not count when it has marked it. Counts of wake-ups, entries of the queue and epochs
// are compared with the values that threads have read of them, and so count relative to the present.
//
// Data are checked, not only states. A frame whose contents must not be used any more is filled with kPoison, so that a
// driver that uses it anyway is seen to read a value that no program has written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "explorer.h"
#include "mgs_programs.h"

namespace multigrain::mgs::explored {

inline constexpr Value kPoison = 0xdead;

struct Event {
  enum Type : uint8_t { kProcessor, kMessage };  // kMessage: a thread that handles messages begins with one, or goes on
  Type type = kProcessor;
  uint8_t a = 0;  // the processor, or the sender
  uint8_t b = 0;  // kMessage: the receiver
  uint8_t c = 0;  // kMessage: which of those on their way (0 but for kReorderMessages)
};

// The machine that runs. There is one, since the nodes' memory is where it is.
class World {
 public:
  // Makes the machine of the scenario, at its beginning. `scenario` is prepared, and outlives the machine.
  static void start(const Scenario& scenario);

  static void enabled(std::vector<Event>& events);
  // Makes `event`, which is enabled, happen. Returns what is wrong now, or nothing. If `log` is given, appends what
  // happened, in words.
  [[nodiscard]] static std::string apply(const Event& event, std::string* log = nullptr);
  // Returns what is wrong where nothing is enabled: a deadlock, or an end that is not at rest and complete.
  [[nodiscard]] static std::string check_end();
  static void serialise(std::vector<uint8_t>& out);
  [[nodiscard]] static std::string describe();

  // save() copies the whole state of the machine, and restore() goes back to it.
  static void save(std::vector<std::byte>& image);
  static void restore(const std::vector<std::byte>& image);
};

// The machine in one of its states, as a value: what explorer.h wants.
class Machine {
 public:
  using Scenario = explored::Scenario;
  using Event = explored::Event;

  explicit Machine(const Scenario& scenario);
  void enabled(std::vector<Event>& events) const;
  [[nodiscard]] std::string apply(const Event& event, std::string* log = nullptr);
  [[nodiscard]] std::string check_end() const;
  void serialise(std::vector<uint8_t>& out) const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] static std::string in_words(const Event& event);

 private:
  void be_there() const;
  void keep();

  std::vector<std::byte> image_;
  uint64_t number_ = 0;  // of the image
};

// Explores the scenario in every order. Many machines at once would take gigabytes, so this is depth first. A scenario
// that fails is explored again breadth first, so that the counter-example is as short as possible.
[[nodiscard]] exploring::Report explore(const Scenario& scenario, size_t max_states);

}  // namespace multigrain::mgs::explored
