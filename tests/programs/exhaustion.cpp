// Too much memory is an error of mg_alloc, as are options that make no sense or are those of a later version; what is
// freed can be allocated again.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "program.h"

namespace {

void expect_error(size_t size, const mg_alloc_options& options, int code) {
  errno = 0;
  REQUIRE(mg_alloc(size, &options) == nullptr);
  REQUIRE(errno == code);
  REQUIRE(std::strlen(mg_error()) > 0);
}

void expect_success(const mg_alloc_options& options) {
  void* const block = mg_alloc(100, &options);
  REQUIRE(block != nullptr);
  mg_free(block);
}

// Programs that were compiled with an older header hand over a shorter structure, those with a newer one a longer one.
void options_of_other_versions() {
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  for (const size_t size : {size_t{0}, size_t{1}, sizeof options - 1, sizeof options + 4, size_t{1} << 20, SIZE_MAX}) {
    options.size = size;
    expect_error(100, options, EINVAL);
    REQUIRE(std::string_view(mg_error()).find("MG_ALLOC_OPTIONS_INIT") != std::string_view::npos);
  }

  // Fields for which an older structure has no room are not looked at.
  options.alignment = 48;
  options.home = MG_HOME_NODE;
  options.node = mg_nodes();
  options.size = sizeof options;
  expect_error(100, options, EINVAL);
  options.size = offsetof(mg_alloc_options, alignment);
  expect_success(options);
  options.size = offsetof(mg_alloc_options, home);
  expect_error(100, options, EINVAL);
  options.alignment = 64;
  expect_success(options);

  struct {
    mg_alloc_options known = MG_ALLOC_OPTIONS_INIT;
    uint64_t later[2] = {0, 0};
  } newer;
  newer.known.size = sizeof newer;
  expect_success(newer.known);
  newer.later[1] = uint64_t{1} << 56;
  expect_error(100, newer.known, EINVAL);
  REQUIRE(std::string_view(mg_error()).find("this version of the library does not know") != std::string_view::npos);
  newer.known.size = sizeof newer.known;
  expect_success(newer.known);
  newer.known.place = MG_PLACE_GLOBAL;
  expect_success(newer.known);
  newer.known.place = MG_PLACE_GLOBAL + 1;
  expect_error(100, newer.known, EINVAL);
}

}  // namespace

int main() {
  options_of_other_versions();
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
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
