#include "own_library.h"

#include <multigrain/multigrain.h>

int library_counter = 1;
std::vector<std::string> library_names;

namespace {

mg_lock_t lock;
long* sum;
const int* all;
size_t size;
int initialised = 3;

void add_part(void*) {
  long mine = 0;
  const size_t me = mg_processor(), processors = mg_processors();
  for (size_t i = size * me / processors; i < size * (me + 1) / processors; ++i) mine += all[i];
  mg_lock(lock);
  *sum += mine * initialised;
  mg_unlock(lock);
}

}  // namespace

int& library_setting() {
  static int setting = 5;
  return setting;
}

long library_sum(const int* numbers, size_t count) {
  all = numbers;
  size = count;
  initialised = 2;
  if (lock == 0) lock = mg_lock_create();
  sum = static_cast<long*>(mg_alloc(sizeof *sum, nullptr));
  if (sum == nullptr || mg_spawn_all(add_part, nullptr) != 0) return -1;
  const long result = *sum;
  mg_free(sum);
  return result;
}
