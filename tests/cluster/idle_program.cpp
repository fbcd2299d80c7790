// Node 0 computes for ever, or sleeps if the argument is "sleep", without a word to the other nodes, which have nothing to do.
#include <multigrain/multigrain.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

namespace {

void nothing(void*) {}

}  // namespace

int main(int argc, char** argv) {
  if (mg_spawn_all(nothing, nullptr) != 0) return 1;
  std::printf("computing\n");
  std::fflush(stdout);
  if (argc > 1 && std::string_view(argv[1]) == "sleep")
    while (true) pause();
  for (volatile unsigned long i = 0;;) i = i + 1;
}
