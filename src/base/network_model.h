// The network cost model says what a message or a remote operation costs beyond what it costs here. There are also
// networks with known figures, by name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"

namespace multigrain {

struct NetworkModel {
  Nanoseconds latency_ns = 0;    // one way, for every message and remote operation
  double bytes_per_ns = 0;       // link bandwidth; 0 is unlimited
  Nanoseconds occupancy_ns = 0;  // time for which any message occupies the link
  // The receiving processor pays this when a message's handler runs, for example for an interrupt. It is charged in
  // virtual time only: on the wall clock a handler costs what it costs here.
  Nanoseconds handler_ns = 0;

  // Returns whether a message costs nothing on its way.
  [[nodiscard]] bool ideal() const { return latency_ns == 0 && bytes_per_ns == 0 && occupancy_ns == 0; }
  // Returns how long `bytes` keep a link busy beyond its occupancy.
  [[nodiscard]] Nanoseconds transfer_ns(uint64_t bytes) const {
    return bytes_per_ns > 0 ? static_cast<Nanoseconds>(static_cast<double>(bytes) / bytes_per_ns + 0.5) : 0;
  }
  bool operator==(const NetworkModel&) const = default;
};

// A preset is a network by name. `source` says where its figures are from. Every figure that a paper gives for a round
// trip is halved, because a remote operation is charged two latencies.
struct NetworkPreset {
  std::string_view name;
  NetworkModel model;
  std::string_view what;
  std::string_view source;
};
// Returns all of them, those of papers first. The table lives for ever.
std::span<const NetworkPreset> network_presets();

// Reads a preset's name ("ideal", "myrinet"), a list of figures ("latency=50us,bandwidth=96MB/s,occupancy=1us,
// handler=5us"), or a preset with figures that replace its own ("myrinet,latency=20us"). Units: ns, us, ms; B/s, KB/s,
// MB/s, GB/s (powers of ten). Errors are one sentence that names the item.
Result<NetworkModel> parse_network_model(std::string_view text);

// Writes the model as parse_network_model reads it, every figure but those that are 0: "latency=50us"; "ideal" if all
// are 0.
std::string format_network_model(const NetworkModel& model);

// Returns the presets as a table for people, with their figures and sources. It ends with a newline.
std::string render_network_presets();

}  // namespace multigrain
