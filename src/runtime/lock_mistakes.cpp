#include "runtime/lock_mistakes.h"

#include <unistd.h>

#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "base/stack_text.h"
#include "status/node_status.h"
#include "sync/handle.h"

namespace multigrain {
namespace {

struct Place {
  std::string_view label;
  uint64_t site;
};

template <size_t N>
void copy(char (&to)[N], std::string_view text) {
  text.copy(to, N - 1);
}

// The launcher prints the sentence, with lines; where there is no launcher, this process prints it, with addresses.
[[noreturn]] void die_of(std::string_view sentence, uint64_t lock, std::initializer_list<Place> places) {
  NodeStatus& status = *node_status();
  MistakeRecord& mistake = status.mistake;
  uint32_t none = 0;
  // Another processor has made a mistake of its own, and has said so for the run.
  if (!mistake.state.compare_exchange_strong(none, 1)) _exit(1);
  mistake.processor = status.first_processor + static_cast<uint32_t>(this_status() - status.processor);
  mistake.lock = lock;
  copy(mistake.sentence, sentence);
  size_t i = 0;
  for (const Place& place : places) {
    mistake.place[i].site = place.site;
    copy(mistake.place[i++].label, place.label);
  }
  mistake.state.store(2, std::memory_order_release);
  if (status.launched == 0) {
    StackText line;
    line.text("multigrain: node ").number(status.node).text(", processor ").number(mistake.processor);
    line.text(": ").text(sentence).text(": lock ").number(SyncHandle::decode(SyncId(lock)).index);
    for (const Place& place : places)
      line.text(", ").text(place.label).text(" at ").text(status.program).text(" ").hexadecimal(place.site - 1);
    line.write_out();
  }
  _exit(1);
}

}  // namespace

void die_of_lock_twice(uint64_t lock, const void* site, uint64_t taken) {
  die_of("mg_lock: the processor holds this lock already, and would wait for itself for ever", lock,
         {{"wanted", reinterpret_cast<uint64_t>(site)}, {"taken", taken}});
}

void die_of_foreign_unlock(uint64_t lock, const void* site) {
  die_of("mg_unlock: this processor does not hold the lock", lock, {{"unlocked", reinterpret_cast<uint64_t>(site)}});
}

void die_of_return_with_lock(uint64_t lock, uint64_t taken, uint64_t function) {
  // The launcher names the line before an address, since places are where calls return to: so the function
  // counts as one.
  die_of("a processor has returned from its function with a lock that nobody else can unlock", lock,
         {{"taken", taken}, {"in the function", function + 1}});
}

}  // namespace multigrain
