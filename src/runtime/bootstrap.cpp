#include "runtime/bootstrap.h"

#include <cstdlib>
#include <utility>

#include "base/own_descriptors.h"
#include "runtime/node_card.h"
#include "runtime/private/private_heap.h"

namespace multigrain {
namespace {

// How long nodes wait for each other. A host that is slow to start programs (a cold file server) needs its time; the
// launcher finds out that a host is not there.
constexpr std::chrono::seconds kPatience{120};

}  // namespace

Result<std::optional<Bootstrap>> Bootstrap::run() {
  const char* const name = secure_getenv("MULTIGRAIN_WIREUP");
  if (name == nullptr) return std::nullopt;
  const char* const number = secure_getenv("MULTIGRAIN_NODE");
  // This node's libraries are looked at before the wire-up loads one of its own.
  auto mine = describe_this_node(number == nullptr || std::string_view(number) == "0");
  if (!mine) return tl::unexpected(mine.error());
  Bootstrap bootstrap;
  auto wireup = open_wireup(name);
  if (!wireup) return tl::unexpected(wireup.error());
  bootstrap.wireup = std::move(*wireup);
  auto all = bootstrap.wireup->exchange(encode(*mine), kPatience);
  if (!all) return tl::unexpected(all.error());
  std::vector<NodeCard> cards;
  for (const Card& bytes : *all) {
    auto card = decode(bytes);
    if (!card) return fail("node {}: {}", cards.size(), card.error().message);
    bootstrap.hosts.push_back(card->host);
    cards.push_back(std::move(*card));
  }
  if (Status agree = check_agreement(cards); !agree) return tl::unexpected(agree.error());
  adopt_settings(cards.front());
  return std::optional(std::move(bootstrap));
}

Result<std::unique_ptr<UcxFabric>> Bootstrap::connect(const Config& config, std::span<std::byte> frames,
                                                      std::span<std::byte> lines,
                                                      void (*lost)(void* context, NodeId node, const char* reason),
                                                      void* context) {
  auto secret = agree_on_secret(*wireup);
  if (!secret) return tl::unexpected(secret.error());
  UcxOptions options;
  options.self = config.node;
  options.hosts = hosts;
  options.secret = std::move(*secret);
  options.interface = config.interface;
  options.region_size = frames.size();
  options.lines_bytes = lines.size();
  options.pages_bytes = words::page_table_bytes(frames.size());
  options.silence_limit = config.silence_limit;
  options.peer_failed = lost;
  options.context = context;
  options.enter_library = &BootHeapScope::enter;
  options.leave_library = &BootHeapScope::leave;
  options.lowest_descriptor = own_descriptors::lowest();
  options.keep_descriptor = &own_descriptors::keep;
  auto fabric = load_ucx_fabric(options);
  if (!fabric) return fabric;
  (*fabric)->export_segment(SegmentId::kFrames, frames.data(), frames.size());
  (*fabric)->export_segment(SegmentId::kLines, lines.data(), lines.size());
  if (Status connected = (*fabric)->connect(*wireup); !connected) return tl::unexpected(connected.error());
  if (Status finished = wireup->finish(); !finished) return tl::unexpected(finished.error());
  return fabric;
}

}  // namespace multigrain
