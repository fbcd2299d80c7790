#include "fabric/ucx/job_secret.h"

#include <sodium.h>

#include <array>
#include <chrono>
#include <cstring>
#include <vector>

namespace multigrain::ucx {
namespace {

// The nodes have exchanged cards before, so no node is late by more than the time to load a library.
constexpr std::chrono::seconds kPatience{60};
constexpr char kPairPurpose[] = "multigrain: key of a pair of nodes";

using PublicKey = std::array<unsigned char, crypto_box_PUBLICKEYBYTES>;
using PrivateKey = std::array<unsigned char, crypto_box_SECRETKEYBYTES>;
constexpr size_t kSealedBytes = crypto_box_SEALBYTES + sizeof(JobSecret);

unsigned char* bytes_of(JobSecret& secret) {
  return reinterpret_cast<unsigned char*>(secret.data());
}

}  // namespace

Status agree(Wireup& wireup, JobSecret& secret) {
  if (sodium_init() < 0) return fail("libsodium cannot be used on this machine: it found no source of random numbers");
  PublicKey open{};
  Secret<PrivateKey> closed;
  crypto_box_keypair(open.data(), closed->data());

  const auto shown = wireup.exchange(std::as_bytes(std::span(open)), kPatience);
  if (!shown) return tl::unexpected(shown.error());
  std::vector<unsigned char> sealed(1);
  if (wireup.self().value == 0) {
    randombytes_buf(bytes_of(secret), secret.size());
    sealed.resize(wireup.nodes() * kSealedBytes);
    for (size_t n = 0; n < shown->size(); ++n) {
      PublicKey theirs{};
      if ((*shown)[n].size() != theirs.size()) return fail("node {} has sent something that is not a public key", n);
      memcpy(theirs.data(), (*shown)[n].data(), theirs.size());
      if (crypto_box_seal(&sealed[n * kSealedBytes], bytes_of(secret), secret.size(), theirs.data()) != 0)
        return fail("node {} has sent a public key that cannot be one", n);
    }
  }
  const auto given = wireup.exchange(std::as_bytes(std::span(sealed)), kPatience);
  if (!given) return tl::unexpected(given.error());
  if (wireup.self().value == 0) return {};
  const Card& all = given->front();
  if (all.size() != wireup.nodes() * kSealedBytes ||
      crypto_box_seal_open(bytes_of(secret),
                           reinterpret_cast<const unsigned char*>(all.data()) + wireup.self().value * kSealedBytes,
                           kSealedBytes, open.data(), closed->data()) != 0)
    return fail("node 0 has sent something that is not the job's secret");
  return {};
}

uint64_t pair_key(const JobSecret& secret, unsigned from, unsigned to) {
  // The hash is the shortest that the library makes; its first bytes are the key.
  std::array<unsigned char, crypto_generichash_BYTES_MIN> hash{};
  const std::array<unsigned char, 4> pair = {static_cast<unsigned char>(from), static_cast<unsigned char>(from >> 8),
                                             static_cast<unsigned char>(to), static_cast<unsigned char>(to >> 8)};
  crypto_generichash_state state;
  crypto_generichash_init(&state, reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), hash.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(kPairPurpose), sizeof kPairPurpose);
  crypto_generichash_update(&state, pair.data(), pair.size());
  crypto_generichash_final(&state, hash.data(), hash.size());
  sodium_memzero(&state, sizeof state);
  uint64_t key = 0;
  memcpy(&key, hash.data(), sizeof key);
  sodium_memzero(hash.data(), hash.size());
  return key;
}

}  // namespace multigrain::ucx
