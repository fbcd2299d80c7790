#include "fabric/ucx/gate_token.h"

#include <netinet/in.h>
#include <sodium.h>

#include <cstring>

namespace multigrain::gate {
namespace {

// The last byte is the version of the protocol.
constexpr std::array<uint8_t, 8> kMagic = {'M', 'G', ' ', 'g', 'a', 't', 'e', 1};
constexpr char kKeyPurpose[] = "multigrain: key of the gates";
constexpr uint8_t kTokenPurpose = 't';
constexpr uint8_t kAnswerPurpose = 'a';

}  // namespace

bool end_of(const sockaddr_storage& from, End* end) {
  if (from.ss_family == AF_INET) {
    sockaddr_in address;
    memcpy(&address, &from, sizeof address);
    *end = End{};
    end->address[10] = end->address[11] = 0xff;
    memcpy(&end->address[12], &address.sin_addr, 4);
    memcpy(end->port.data(), &address.sin_port, 2);
    return true;
  }
  if (from.ss_family == AF_INET6) {
    sockaddr_in6 address;
    memcpy(&address, &from, sizeof address);
    memcpy(end->address.data(), &address.sin6_addr, 16);
    memcpy(end->port.data(), &address.sin6_port, 2);
    return true;
  }
  return false;
}

Status Key::prepare() {
  if (sodium_init() < 0) return fail("libsodium cannot be used on this machine: it found no source of random numbers");
  return {};
}

Key::Key(const JobSecret& secret) {
  // The key is a keyed hash of a constant. The call cannot fail, because the lengths are within BLAKE2b's bounds.
  crypto_generichash(key_.data(), key_.size(), reinterpret_cast<const unsigned char*>(kKeyPurpose), sizeof kKeyPurpose,
                     reinterpret_cast<const unsigned char*>(secret.data()), secret.size());
}

Key::~Key() {
  sodium_memzero(key_.data(), key_.size());
}

bool Key::operator==(const Key& other) const {
  return sodium_memcmp(key_.data(), other.key_.data(), key_.size()) == 0;
}

Mac Key::mac_of(uint8_t purpose, const void* bytes, size_t length) const {
  crypto_generichash_state state;
  Mac mac;
  crypto_generichash_init(&state, key_.data(), key_.size(), mac.size());
  crypto_generichash_update(&state, &purpose, 1);
  crypto_generichash_update(&state, static_cast<const unsigned char*>(bytes), length);
  crypto_generichash_final(&state, mac.data(), mac.size());
  sodium_memzero(&state, sizeof state);
  return mac;
}

Token Key::make_token(unsigned node, const Connection& connection) const {
  Token token;
  token.magic = kMagic;
  token.node = {static_cast<uint8_t>(node), static_cast<uint8_t>(node >> 8)};
  randombytes_buf(token.nonce.data(), token.nonce.size());
  token.caller = connection.caller;
  token.called = connection.called;
  token.mac = mac_of(kTokenPurpose, &token, offsetof(Token, mac));
  return token;
}

Mac Key::answer(const Token& token) const {
  return mac_of(kAnswerPurpose, &token, sizeof token);
}

Key::Verdict Key::check(const Token& token, const Connection& connection) const {
  if (token.magic != kMagic) return Verdict::kNoToken;
  if (!same(mac_of(kTokenPurpose, &token, offsetof(Token, mac)), token.mac)) return Verdict::kOtherSecret;
  if (token.caller != connection.caller || token.called != connection.called) return Verdict::kOtherConnection;
  return Verdict::kRight;
}

bool same(const Mac& a, const Mac& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace multigrain::gate
