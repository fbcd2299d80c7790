#include <map>
#include <multigrain/multigrain.hpp>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>

namespace {

using String = std::basic_string<char, std::char_traits<char>, mg::allocator<char>>;

struct Words {
  mg::mutex lock;
  std::map<unsigned, String, std::less<>, mg::allocator<std::pair<const unsigned, String>>> all;
};

}  // namespace

extern "C" void* make_words() {
  return new (mg_alloc(sizeof(Words), nullptr)) Words;
}

extern "C" void add_word(void* words, unsigned processor) {
  auto& shared = *static_cast<Words*>(words);
  const std::lock_guard hold(shared.lock);
  shared.all[processor] = String(100 + processor, 'x');
}

extern "C" unsigned long letters(void* words) {
  unsigned long count = 0;
  try {
    for (unsigned i = 0;; ++i) count += static_cast<Words*>(words)->all.at(i).size();
  } catch (const std::out_of_range&) {
    return count;
  }
}
