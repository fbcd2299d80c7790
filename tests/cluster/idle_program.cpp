// Computes for ever on node 0 without a word to the other nodes, which have nothing to do.
#include <multigrain/multigrain.h>

#include <cstdio>

namespace {

void nothing(void*) {}

}  // namespace

int main() {
  if (mg_spawn_all(nothing, nullptr) != 0) return 1;
  std::printf("computing\n");
  std::fflush(stdout);
  for (volatile unsigned long i = 0;;) i = i + 1;
}
