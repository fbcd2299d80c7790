// The fuzz targets with a fixed seed: right inputs, damaged in a few places, and noise. (Where Clang is the compiler,
// the fuzzers look for more: ctest -C Long -L long.)
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "targets.h"

namespace multigrain::fuzz {
namespace {

class FuzzTest : public ::testing::TestWithParam<Target> {};

std::vector<std::byte> damaged(std::vector<std::byte> bytes, std::mt19937_64& random) {
  for (uint64_t n = random() % 4; n != 0; --n) {
    switch (bytes.empty() ? 3 : random() % 6) {
      case 0:  // a byte
        bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        break;
      case 1:  // a bit
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << random() % 8);
        break;
      case 2: {  // a number of some width, of a kind that code gets wrong
        const uint64_t odd[] = {0, 1, ~uint64_t{0}, uint64_t{1} << random() % 64, bytes.size(), random()};
        const uint64_t value = odd[random() % std::size(odd)];
        const size_t width = std::min<size_t>(size_t{1} << random() % 4, bytes.size());
        std::memcpy(bytes.data() + random() % (bytes.size() - width + 1), &value, width);
        break;
      }
      case 3:  // more
        bytes.insert(bytes.end(), random() % 32, static_cast<std::byte>(random()));
        break;
      case 4:  // less
        bytes.resize(random() % bytes.size());
        break;
      default: {  // a piece twice
        const size_t at = random() % bytes.size();
        const std::vector<std::byte> piece(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.end());
        bytes.insert(bytes.end(), piece.begin(), piece.end());
      }
    }
  }
  return bytes;
}

TEST_P(FuzzTest, KeepsItsPromisesWhateverComes) {
  const std::vector<std::byte> good = GetParam().good();
  GetParam().run(good);
  std::mt19937_64 random(20241121);
  for (int i = 0; i < 150'000; ++i) GetParam().run(damaged(good, random));
  std::vector<std::byte> noise;
  for (int i = 0; i < 20'000; ++i) {
    noise.resize(random() % 300);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    GetParam().run(noise);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzTest, ::testing::ValuesIn(kTargets),
                         [](const auto& target) { return target.param.name; });

// The checks above would hold of a decoder that refuses everything.
TEST(Fuzz, StartsFromInputsThatAreRight) {
  const ucx::WireContext context = wire_context();
  auto input = kTargets[0].good();
  ucx::WireMessage message;
  EXPECT_EQ(decode(context, Bytes(input).subspan(4), 4196, message).verdict, ucx::Verdict::kGood);
  EXPECT_EQ(decode(context, Bytes(input).subspan(4), 4197, message).verdict, ucx::Verdict::kBroken);
  input[4] ^= std::byte{1};
  EXPECT_EQ(decode(context, Bytes(input).subspan(4), 4196, message).verdict, ucx::Verdict::kStranger);
  ucx::WireControl control;
  input = kTargets[1].good();
  EXPECT_EQ(decode(context, Bytes(input).subspan(4), 60, control).verdict, ucx::Verdict::kGood);
  std::array<std::byte, 4096> page{};
  EXPECT_TRUE(apply_diff(page.data(), page.size(), kTargets[3].good()));
  EXPECT_EQ(page[1200], std::byte{2});
}

}  // namespace
}  // namespace multigrain::fuzz
