// These tests are about tokens: which processes can make one, and what one is good for.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>
#include <random>

#include "fabric/ucx/gate_token.h"

namespace multigrain::gate {
namespace {

JobSecret secret_of(uint8_t fill) {
  JobSecret secret;
  secret.fill(std::byte{fill});
  return secret;
}

End end(const char* address, uint16_t port) {
  sockaddr_storage storage{};
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  inet_pton(AF_INET, address, &v4.sin_addr);
  memcpy(&storage, &v4, sizeof v4);
  End made;
  EXPECT_TRUE(end_of(storage, &made));
  return made;
}

class TokenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(Key::prepare());
    key = Key(secret_of(1));
    connection = {end("10.0.0.1", 4000), end("10.0.0.2", 5000)};
  }
  Key key;
  Connection connection;
};

TEST_F(TokenTest, IsRightForItsConnection) {
  EXPECT_EQ(key.check(key.make_token(3, connection), connection), Key::Verdict::kRight);
}

TEST_F(TokenTest, IsDrawnAfreshEachTime) {
  const Token a = key.make_token(3, connection);
  const Token b = key.make_token(3, connection);
  EXPECT_NE(a.nonce, b.nonce);
  EXPECT_NE(a.mac, b.mac);
  EXPECT_NE(key.answer(a), key.answer(b));
}

TEST_F(TokenTest, OfAnotherSecretIsWrong) {
  EXPECT_EQ(Key(secret_of(2)).check(key.make_token(3, connection), connection), Key::Verdict::kOtherSecret);
  EXPECT_NE(Key(secret_of(2)).answer(key.make_token(3, connection)), key.answer(key.make_token(3, connection)));
}

TEST_F(TokenTest, IsNotTheSecretInAnotherForm) {
  // The key is derived from the secret, so a MAC that is made with the secret itself is no token's.
  Token token = key.make_token(3, connection);
  EXPECT_NE(memcmp(token.mac.data(), secret_of(1).data(), 32), 0);
  EXPECT_FALSE(same(key.answer(token), token.mac)) << "an answer must not be the token's own MAC sent back";
}

TEST_F(TokenTest, OfAnotherConnectionIsWrong) {
  const Token token = key.make_token(3, connection);
  Connection other = connection;
  other.called = end("10.0.0.2", 5001);
  EXPECT_EQ(key.check(token, other), Key::Verdict::kOtherConnection);
  other = connection;
  other.caller = end("10.0.0.3", 4000);
  EXPECT_EQ(key.check(token, other), Key::Verdict::kOtherConnection);
  EXPECT_EQ(key.check(token, {connection.called, connection.caller}), Key::Verdict::kOtherConnection);
}

TEST_F(TokenTest, EveryBitCounts) {
  const Token token = key.make_token(3, connection);
  for (size_t bit = 0; bit < 8 * sizeof token; ++bit) {
    Token changed = token;
    reinterpret_cast<uint8_t*>(&changed)[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    EXPECT_NE(key.check(changed, connection), Key::Verdict::kRight) << "bit " << bit;
  }
}

TEST_F(TokenTest, NoiseIsNeverRight) {
  std::mt19937_64 random(20240817);
  for (int i = 0; i < 100'000; ++i) {
    // Half of the inputs are noise; the other half are a right token with a few bytes overwritten.
    Token token;
    if (i % 2 == 0) {
      for (size_t at = 0; at < sizeof token; at += 2) {
        const auto noise = static_cast<uint16_t>(random());
        memcpy(reinterpret_cast<uint8_t*>(&token) + at, &noise, 2);
      }
    } else {
      token = key.make_token(static_cast<unsigned>(random() % 64), connection);
      const Token before = token;
      for (uint64_t n = 1 + random() % 4; n != 0; --n)
        reinterpret_cast<uint8_t*>(&token)[random() % sizeof token] = static_cast<uint8_t>(random());
      if (memcmp(&token, &before, sizeof token) == 0) continue;
    }
    ASSERT_NE(key.check(token, connection), Key::Verdict::kRight) << "input " << i;
  }
}

TEST(End, TellsFamiliesAndPortsApart) {
  sockaddr_storage storage{};
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(7);
  inet_pton(AF_INET6, "fd00::1", &v6.sin6_addr);
  memcpy(&storage, &v6, sizeof v6);
  End six;
  ASSERT_TRUE(end_of(storage, &six));
  EXPECT_NE(six, end("10.0.0.1", 7));
  // The same machine, seen through a socket of either family, is the same end of a connection.
  inet_pton(AF_INET6, "::ffff:10.0.0.1", &v6.sin6_addr);
  memcpy(&storage, &v6, sizeof v6);
  ASSERT_TRUE(end_of(storage, &six));
  EXPECT_EQ(six, end("10.0.0.1", 7));
  storage.ss_family = AF_UNIX;
  EXPECT_FALSE(end_of(storage, &six));
}

}  // namespace
}  // namespace multigrain::gate
