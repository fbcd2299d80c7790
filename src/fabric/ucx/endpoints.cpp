#include "fabric/ucx/endpoints.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "fabric/ucx/parts.h"

namespace multigrain::ucx {
namespace {

constexpr std::chrono::seconds kConnectTimeout{60};
constexpr Nanoseconds kHandshakePoll = 20'000;

// The begin of a node's card, which all nodes get in exchange #2. The address and the key of its words follow.
struct CardHead {
  static constexpr uint64_t kMagic = 0x3278637567746c6d;
  uint64_t magic;
  std::array<uint64_t, index(SegmentId::kCount)> base;
  std::array<uint64_t, index(SegmentId::kCount)> length;
  uint32_t address_bytes;
  uint32_t words_key_bytes;
};

// Returns the device in a line of lanes_of(), such as "tcp/eth0"; it is empty if the line has none.
std::string_view device_of(std::string_view line) {
  const size_t colon = line.find(':', line.find(':') + 1);
  if (colon == std::string_view::npos) return {};
  return line.substr(colon + 1, line.find_first_of(" .", colon) - colon - 1);
}

// Returns whether the network itself does puts on that lane. (The name of lanes for puts depends on UCX's version. The
// transports below have such lanes too, but only for memory of other kinds than ours.)
bool puts(std::string_view line) {
  const std::string_view device = device_of(line);
  const std::string_view transport = device.substr(0, device.find('/'));
  for (const std::string_view none : {"tcp", "posix", "self"})
    if (transport == none) return false;
  return line.find(" rma") != std::string_view::npos;
}

}  // namespace

Status Endpoints::connect(Wireup& wireup) {
  const WireContext& context = parts_.context;
  if (wireup.nodes() != context.nodes || wireup.self().value != context.self)
    return fail("the wire-up is that of node {} of {}, not of node {} of {}", wireup.self().value, wireup.nodes(),
                context.self, context.nodes);
  parts_.worker.enter_library();
  const auto cards = exchange_cards(wireup);
  const Status connected = cards ? shake_hands(*cards) : Status(tl::unexpected(cards.error()));
  parts_.worker.leave_library();
  return connected;
}

// --- Cards

Result<Card> Endpoints::make_card() const {
  CardHead head{};
  head.magic = CardHead::kMagic;
  const auto& exported = parts_.segments.exported();
  for (size_t i = 0; i < exported.size(); ++i) {
    head.base[i] = reinterpret_cast<uint64_t>(exported[i].base);
    head.length[i] = exported[i].length;
  }
  ucp_address_t* address = nullptr;
  size_t address_bytes = 0;
  ucs_status_t status = ucp_worker_get_address(parts_.worker.worker(), &address, &address_bytes);
  if (status != UCS_OK) return fail_ucx("UCX has no address", status);
  void* key = nullptr;
  size_t key_bytes = 0;
  status = ucp_rkey_pack(parts_.worker.context(), parts_.segments.words_memory(), &key, &key_bytes);
  if (status != UCS_OK) return fail_ucx("UCX gives no key for this node's words", status);
  head.address_bytes = static_cast<uint32_t>(address_bytes);
  head.words_key_bytes = static_cast<uint32_t>(key_bytes);
  Card card(sizeof head + address_bytes + key_bytes);
  std::memcpy(card.data(), &head, sizeof head);
  std::memcpy(card.data() + sizeof head, address, address_bytes);
  std::memcpy(card.data() + sizeof head + address_bytes, key, key_bytes);
  ucp_rkey_buffer_release(key);
  ucp_worker_release_address(parts_.worker.worker(), address);
  return card;
}

Result<std::vector<Card>> Endpoints::exchange_cards(Wireup& wireup) {
  const WireContext& context = parts_.context;
  auto card = make_card();
  if (!card) return tl::unexpected(card.error());
  auto cards = wireup.exchange(*card, kConnectTimeout);
  if (!cards) return tl::unexpected(cards.error());
  if (cards->size() != context.nodes) return fail("the wire-up knows {} nodes of {}", cards->size(), context.nodes);
  for (unsigned n = 0; n < context.nodes; ++n) {
    if (n == context.self) continue;
    if (Status accepted = accept_card(n, (*cards)[n]); !accepted) return tl::unexpected(accepted.error());
    // The lower of two nodes connects; the higher one waits for the hello. Two connections that cross would work, but
    // UCX gives one of them up again, with a warning.
    if (context.self < n) {
      const UcxLock lock(parts_);
      if (Status made = make_endpoint(n, (*cards)[n]); !made) return tl::unexpected(made.error());
    }
  }
  return cards;
}

Status Endpoints::accept_card(unsigned n, const Card& card) {
  const std::string& host = parts_.options.hosts[n];
  CardHead head{};
  if (card.size() >= sizeof head) std::memcpy(&head, card.data(), sizeof head);
  if (head.magic != CardHead::kMagic ||
      card.size() != sizeof head + uint64_t{head.address_bytes} + head.words_key_bytes)
    return fail("node {} on host {} has sent an address that cannot be read", n, host);
  for (size_t i = 0; i < head.length.size(); ++i) {
    const uint64_t expected = parts_.context.segment_bytes[i];
    if (head.length[i] != expected)
      return fail("node {} on host {} exports {} bytes where this node expects {}", n, host, head.length[i], expected);
  }
  RemoteSegments& remote = parts_.peers[n].segments;
  remote.base = head.base;
  return parts_.segments.prepare(remote);
}

Status Endpoints::make_endpoint(unsigned n, const Card& card) {
  Peer& peer = parts_.peers[n];
  const std::string& host = parts_.options.hosts[n];
  CardHead head{};
  std::memcpy(&head, card.data(), sizeof head);
  const std::byte* const address = card.data() + sizeof head;
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_USER_DATA;
  parameters.address = reinterpret_cast<const ucp_address_t*>(address);
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.cb = [](void* self, ucp_ep_h endpoint, ucs_status_t) {
    Parts& parts = *static_cast<Parts*>(self);
    inside_ucx.assume_held();
    for (unsigned i = 0; i < parts.context.nodes; ++i)
      if (parts.peers[i].connection.endpoint == endpoint) parts.failures.peer_failed(i, FailureReason::kBroken, false);
  };
  parameters.err_handler.arg = &parts_;
  parameters.user_data = &parts_;
  ucs_status_t status = ucp_ep_create(parts_.worker.worker(), &parameters, &peer.connection.endpoint);
  if (status != UCS_OK)
    return fail(
        "node {} on host {} cannot be reached: UCX says: {} (UCX_TLS and UCX_NET_DEVICES, or mgrun --interface, "
        "say what it may use)",
        n, host, ucs_status_string(status));
  status = ucp_ep_rkey_unpack(peer.connection.endpoint, address + head.address_bytes, &peer.segments.words_key);
  if (status != UCS_OK)
    return fail("the key that node {} on host {} has sent cannot be used: UCX says: {}", n, host,
                ucs_status_string(status));
  parts_.sender.send_control(n, ControlKind::kHello);
  return {};
}

// --- The handshake

struct Endpoints::Handshake {
  const std::vector<Card>& cards;
  unsigned missing;  // a node that this one still waits for; the number of nodes: none
  bool flushing = false;
  std::array<void*, SmallNodeSet::kCapacity> flushes{};
  bool ready_sent = false;
};

Status Endpoints::shake_hands(const std::vector<Card>& cards) {
  const unsigned nodes = parts_.context.nodes;
  const Nanoseconds deadline = monotonic_ns() + static_cast<Nanoseconds>(kConnectTimeout.count()) * kSecond;
  Handshake handshake{.cards = cards, .missing = nodes};
  while (true) {
    handshake.missing = nodes;
    {
      UcxLock lock(parts_);
      while (lock.progress() != 0) {
      }
      if (Status answered = answer_hellos(handshake); !answered) return answered;
      if (flush_all(handshake) && all_ready(handshake) && !parts_.sender.controls_under_way()) break;
    }
    if (monotonic_ns() > deadline)
      return fail("node {} on host {} does not answer over the network (is a firewall between the hosts?)",
                  handshake.missing, parts_.options.hosts[handshake.missing]);
    sleep_ns(kHandshakePoll);
  }
  const UcxLock lock(parts_);
  for (Peer& peer : parts_.peers) {
    if (peer.connection.endpoint == nullptr) continue;
    for (const std::string& line : lanes_of(peer)) peer.connection.can_put = peer.connection.can_put || puts(line);
  }
  return {};
}

Status Endpoints::answer_hellos(Handshake& handshake) {
  for (unsigned n = 0; n < parts_.context.nodes; ++n) {
    if (n == parts_.context.self) continue;
    Connection& connection = parts_.peers[n].connection;
    if (connection.hello_received && connection.endpoint == nullptr) {
      if (Status made = make_endpoint(n, handshake.cards[n]); !made) return made;
    }
    if (connection.hello_received && !std::exchange(connection.hello_answered, true))
      parts_.sender.send_control(n, ControlKind::kWelcome);
    const Liveness& liveness = parts_.peers[n].liveness;
    if (liveness.failed.load(std::memory_order_relaxed))
      return fail("node {} on host {} cannot be reached: {}", n, parts_.options.hosts[n],
                  text_of(liveness.reason, false));
    if (!connection.hello_received || !connection.welcome_received) handshake.missing = n;
  }
  return {};
}

// When the handshake is over, UCX may have nothing left to do, at either end of a connection, that needs this node to
// make progress: perhaps no thread of the node enters UCX again soon. So each node flushes its connections, which may
// need the peer's help, and ends the handshake when all nodes have flushed theirs. Returns whether this node's
// connections are flushed.
bool Endpoints::flush_all(Handshake& handshake) {
  const unsigned nodes = parts_.context.nodes;
  if (handshake.missing == nodes && !handshake.flushing) {
    handshake.flushing = true;
    const ucp_request_param_t parameters{};
    for (unsigned n = 0; n < nodes; ++n) {
      if (n == parts_.context.self) continue;
      void* const request = ucp_ep_flush_nbx(parts_.peers[n].connection.endpoint, &parameters);
      if (UCS_PTR_IS_PTR(request)) handshake.flushes[n] = request;
    }
  }
  for (unsigned n = 0; handshake.flushing && n < nodes; ++n) {
    if (handshake.flushes[n] == nullptr) continue;
    if (ucp_request_check_status(handshake.flushes[n]) == UCS_INPROGRESS) {
      handshake.missing = n;
    } else {
      ucp_request_free(handshake.flushes[n]);
      handshake.flushes[n] = nullptr;
    }
  }
  return handshake.flushing && handshake.missing == nodes;
}

bool Endpoints::all_ready(Handshake& handshake) {
  const unsigned nodes = parts_.context.nodes;
  for (unsigned n = 0; n < nodes; ++n) {
    if (n == parts_.context.self) continue;
    if (!handshake.ready_sent) parts_.sender.send_control(n, ControlKind::kReady);
    if (!parts_.peers[n].connection.ready_received) handshake.missing = n;
  }
  handshake.ready_sent = true;
  return handshake.missing == nodes;
}

// --- The end

void Endpoints::flush() {
  const ucp_request_param_t parameters{};
  const Nanoseconds deadline = monotonic_ns() + kSecond;
  void* const request = ucp_worker_flush_nbx(parts_.worker.worker(), &parameters);
  if (!UCS_PTR_IS_PTR(request)) return;
  while (ucp_request_check_status(request) == UCS_INPROGRESS && monotonic_ns() < deadline) {
    ucp_worker_progress(parts_.worker.worker());
    parts_.dispatcher.recycle();
  }
  ucp_request_free(request);
}

void Endpoints::close() {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
  for (const Peer& peer : parts_.peers) {
    if (peer.connection.endpoint == nullptr) continue;
    void* const request = ucp_ep_close_nbx(peer.connection.endpoint, &parameters);
    if (!UCS_PTR_IS_PTR(request)) continue;
    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
      ucp_worker_progress(parts_.worker.worker());
      parts_.dispatcher.recycle();
    }
    ucp_request_free(request);
  }
}

// --- What UCX chose

// Returns a line for each lane of a connection, as UCX describes them. UCX writes that only to a stream:
//   lane[0]:  1:tcp/eth0.0 md[1]  -> md[1]/tcp/sysdev[255] am am_bw#0 keepalive
std::vector<std::string> Endpoints::lanes_of(const Peer& peer) const {
  char* text = nullptr;
  size_t length = 0;
  std::vector<std::string> lines;
  if (std::FILE* const stream = open_memstream(&text, &length); stream != nullptr) {
    ucp_ep_print_info(peer.connection.endpoint, stream);
    std::fclose(stream);
    const std::string_view all(text, length);
    for (size_t at = all.find("lane["); at != std::string_view::npos; at = all.find("lane[", at + 1))
      lines.emplace_back(all.substr(at, all.find('\n', at) - at));
    std::free(text);
  }
  return lines;
}

std::string Endpoints::description() const {
  std::set<std::string> chosen;
  const UcxLock lock(parts_);
  for (const Peer& peer : parts_.peers) {
    if (peer.connection.endpoint == nullptr) continue;
    for (const std::string& line : lanes_of(peer)) {
      std::string device(device_of(line));
      if (device.empty()) continue;
      if (const size_t slash = device.find('/'); slash != std::string::npos) device.replace(slash, 1, " over ");
      chosen.insert(device);
    }
  }
  std::string result;
  for (const std::string& one : chosen) result += (result.empty() ? "" : ", ") + one;
  return result;
}

}  // namespace multigrain::ucx
