// Too much memory is an error of mg_alloc, as are options that make no sense; what is freed can be allocated again.
#include <cerrno>
#include <cstring>
#include <vector>

#include "program.h"

namespace {

void expect_error(size_t size, const mg_alloc_options& options, int code) {
  errno = 0;
  REQUIRE(mg_alloc(size, &options) == nullptr);
  REQUIRE(errno == code);
  REQUIRE(std::strlen(mg_error()) > 0);
}

}  // namespace

int main() {
  mg_alloc_options options{};
  expect_error(SIZE_MAX, options, ENOMEM);
  expect_error(SIZE_MAX - 4096, options, ENOMEM);
  expect_error(size_t{1} << 60, options, ENOMEM);
  options.alignment = 48;
  expect_error(100, options, EINVAL);
  options.alignment = 0;
  options.home = MG_HOME_NODE;
  options.node = mg_nodes();
  expect_error(100, options, EINVAL);

  // The region is 16 TiB unless told otherwise: blocks of 1 TiB must run out before long, and only address space.
  constexpr size_t kBlock = size_t{1} << 40;
  for (int round = 0; round < 3; ++round) {
    std::vector<char*> blocks;
    while (auto* block = static_cast<char*>(mg_alloc(kBlock, nullptr))) {
      REQUIRE(blocks.size() < 64);
      REQUIRE(block[0] == 0 && block[kBlock - 1] == 0);
      block[kBlock / 2] = 1;
      blocks.push_back(block);
    }
    REQUIRE(errno == ENOMEM);
    for (char* block : blocks) mg_free(block);
  }
  return 0;
}
