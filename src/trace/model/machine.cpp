#include "trace/model/machine.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace multigrain::trace {
namespace {

using nlohmann::json;

constexpr const char* kTable62 = "Bolosky's thesis [Bolosky], Table 6.2 and section 6.1.2";

Machine chapter6(std::string name, uint64_t block_size, double r, double fixed, const Components& components) {
  Machine machine;
  machine.name = std::move(name);
  machine.source = kTable62;
  machine.block_size = block_size;
  machine.r = r;
  machine.remote_move = {.fixed = fixed, .per_byte = 1 / components.bytes_per_unit};
  // The coherent caches are those of cores; what software moves is in the memory of a node.
  machine.memory = machine.name.starts_with("cc") ? MemoryOf::kCore : MemoryOf::kNode;
  machine.unit_ns = 50;
  return machine;
}

// These are machines of today. But for the first one's, the unit is a reference to the local memory (not the cache): a
// processor's own caches hide the same references in every placement, and a page's home decides only where the misses go. Figures without a
// source are estimates, and `source` says so.
std::vector<Machine> machines_of_today() {
  std::vector<Machine> machines;
  Machine m;

  // The cores of one socket, whose caches move lines. The unit is a hit in a core's own first-level cache. A 32-core Ice Lake
  // Xeon (8375C) moves a line from core to core in 51 ns, the median over all pairs
  // (github.com/nviennot/core-to-core-latency, README.md); a hit takes 5 cycles ([IntelOptimization]) of, an estimate, 3.5 GHz.
  constexpr double kHit = 5 / 3.5;
  m.name = "cache-lines";
  m.source =
      "51 ns from core to core: the median of a 32-core Ice Lake Xeon, github.com/nviennot/core-to-core-latency; 5 cycles a "
      "hit ([IntelOptimization]); estimate: 3.5 GHz";
  m.block_size = 64;
  m.memory = MemoryOf::kCore;
  m.unit_ns = kHit;
  m.remote_move = {.fixed = 51 / kHit, .per_byte = 0};
  machines.push_back(m);

  // These are from a published output of Intel's Memory Latency Checker 3.10 on two Ice Lake Xeons
  // (github.com/gjbex/Code-optimization, info/icelake_mlc.txt): 89.2 and 89.0 ns in a socket's own memory, 142.7 and
  // 142.9 ns in the other socket's. The time to move a page under Linux is an estimate: 3 us for the fault, unmapping
  // and the TLB shootdown (a fault and a change of rights of userfaultfd take 3.2 us together, see below), 11 GB/s for
  // the copy by one core, of 55 GB/s between the sockets.
  constexpr double kLocal = 89;
  m = Machine{};
  m.name = "two-socket";
  m.source =
      "89 ns local, 143 ns remote: Intel MLC 3.10 on two Ice Lake Xeons, github.com/gjbex/Code-optimization, "
      "info/icelake_mlc.txt; estimates: 3 us and 11 GB/s to migrate a page";
  m.block_size = 4096;
  m.unit_ns = kLocal;
  m.r = 143 / kLocal;
  m.remote_move = {.fixed = 3000 / kLocal, .per_byte = 1 / (11 * kLocal)};
  machines.push_back(m);
  m.name = "two-socket-2m";
  m.block_size = 2 << 20;
  machines.push_back(m);

  // In [Pond], a CXL pool of 8 to 16 sockets adds 70 to 90 ns to local DRAM. Hosts cannot reach each other's memory in
  // CXL 2.0, and nothing keeps their caches coherent: a software protocol moves pages, through the pool. Estimates: 28
  // of the 31.5 GB/s of 8 lanes of PCIe 5.0 carry data; the fault and the remapping take 3 us.
  m = Machine{};
  m.name = "cxl2";
  m.source =
      "89 ns local (as two-socket); a pool adds 90 ns: [Pond] (70 to 90 ns for 8 to 16 sockets); estimates: "
      "3 us a fault, 28 GB/s of PCIe 5.0 x8";
  m.block_size = 4096;
  m.unit_ns = kLocal;
  constexpr double kPool = kLocal + 90;
  m.g = kPool / kLocal;
  m.global_move = {.fixed = 3000 / kLocal, .per_byte = 1 / (28 * kLocal)};
  m.remote_move = {.fixed = 2 * 3000 / kLocal, .per_byte = 2 / (28 * kLocal)};
  machines.push_back(m);

  // CXL 3.x adds peers' memory and coherence by back-invalidation, line by line, behind a switch. No measurements of
  // such a machine have been published. The estimates assume that a switch costs the pool's 90 ns once more, that a
  // peer's line needs two passages (to the directory in the pool, then to the owner), and that 56 of the 63 GB/s of 8
  // lanes of PCIe 6.0 carry lines of 64 bytes.
  m = Machine{};
  m.name = "cxl3";
  m.source =
      "89 ns local (as two-socket); estimates: 180 ns more behind a switch (twice what a pool adds in [Pond]), "
      "360 ns more to a peer, 56 GB/s of PCIe 6.0 x8";
  m.block_size = 64;
  m.unit_ns = kLocal;
  constexpr double kSwitched = kLocal + 180, kPeer = kLocal + 360;
  m.g = kSwitched / kLocal;
  m.r = kPeer / kLocal;
  m.global_move = {.fixed = kSwitched / kLocal, .per_byte = 1 / (56 * kLocal)};
  m.remote_move = {.fixed = kPeer / kLocal, .per_byte = 1 / (56 * kLocal)};
  machines.push_back(m);

  // The times are those of ib_send_lat over InfiniBand's reliable connections, in the tables of a master's thesis
  // (git.dennispotter.eu/Dennis/masters-thesis, tables/mtu_performance.tex): 0.83 us one way for 32 bytes, 2.28 us for
  // 4 KiB and 4.57 us for 32 KiB, that is 12.5 bytes a nanosecond. A READ takes two ways. Software that knows where a
  // word is, like [DSZOOM], pays the READ for a remote reference, and an operation on the directory and a READ of the
  // block for a move.
  constexpr double kRead = 2 * 830;
  m = Machine{};
  m.name = "rdma";
  m.source =
      "1.66 us for an operation and 12.5 GB/s: twice 0.83 us, and 4 KiB against 32 KiB, of ib_send_lat in "
      "git.dennispotter.eu/Dennis/masters-thesis, tables/mtu_performance.tex; a directory operation and a READ for a "
      "move; 89 ns local (as two-socket)";
  m.block_size = 64;
  m.unit_ns = kLocal;
  m.r = kRead / kLocal;
  m.remote_move = {.fixed = 2 * kRead / kLocal, .per_byte = 1 / (12.5 * kLocal)};
  machines.push_back(m);

  // This is the same network under page faults. userfaultfd takes 2.4 us for a read fault with its grant and 0.8 us for
  // a change of rights on a machine of 2 cores (mgbench prints them). The requester asks the home, and the owner sends
  // the page. There is no remote reference.
  m.name = "page-dsm-4k";
  m.source = "2.4 us a fault and 0.8 us a change of rights: measured by mgbench; two operations of the rdma machine";
  m.block_size = 4096;
  m.unit_ns = kLocal;
  m.r = kInfinite;
  m.remote_move = {.fixed = (2400 + 800 + 2 * kRead) / kLocal, .per_byte = 1 / (12.5 * kLocal)};
  machines.push_back(m);
  m.name = "page-dsm-2m";
  m.block_size = 2 << 20;
  machines.push_back(m);
  return machines;
}

std::vector<Machine> make_known_machines() {
  std::vector<Machine> machines;
  // Section 5.1 and Figure 5.4 of [Bolosky] have this: g = 2, r = 5, G = 2 * pagesize + 200, the page in words of four
  // bytes. A copy from another processor's memory goes over the same bus at r a word; the ACE can always go through
  // global memory instead, which bounds R by 2G.
  Machine ace;
  ace.name = "ace";
  ace.source = "Bolosky's thesis [Bolosky], section 5.1 (g = 2, G = 2 pagesize + 200) and Figure 5.4 (r = 5); R = 2G";
  ace.block_size = 4096;
  ace.unit_ns = 650;
  ace.r = 5;
  ace.g = 2;
  ace.global_move = {.fixed = 200, .per_byte = 2.0 / 4};
  ace.remote_move = {.fixed = 400, .per_byte = 4.0 / 4};
  machines.push_back(ace);
  Machine butterfly;
  butterfly.name = "butterfly";
  butterfly.source = "Bolosky's thesis [Bolosky], section 5.1: r = 15, R = 3 pagesize + 200";
  butterfly.block_size = 4096;
  butterfly.r = 15;
  butterfly.remote_move = {.fixed = 200, .per_byte = 3.0 / 4};
  machines.push_back(butterfly);
  std::ranges::move(chapter6_machines(), std::back_inserter(machines));
  std::ranges::move(machines_of_today(), std::back_inserter(machines));
  return machines;
}

json number_or_null(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}

json move_to_json(const MoveCost& move) {
  if (!std::isfinite(move.fixed)) return nullptr;
  return {{"fixed", move.fixed}, {"per_byte", move.per_byte}};
}

Result<double> read_number(const json& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  if (!found->is_number()) return fail("the machine's \"{}\" is {}; it must be a number, or null", key, found->dump());
  return found->get<double>();
}

Result<uint64_t> read_count(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return 0;
  if (!found->is_number_unsigned()) {
    return fail("the machine's \"{}\" is {}; it must be a whole number", key, found->dump());
  }
  return found->get<uint64_t>();
}

Result<std::string> read_text(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::string();
  if (!found->is_string()) return fail("the machine's \"{}\" is {}; it must be a text", key, found->dump());
  return found->get<std::string>();
}

Result<MoveCost> read_move(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_object()) {
    return read_number(object, key, kInfinite).map([](double fixed) { return MoveCost{.fixed = fixed}; });
  }
  for (const auto& item : found->items()) {
    if (item.key() != "fixed" && item.key() != "per_byte") {
      return fail("the machine's \"{}\" has an unknown key \"{}\"; it has \"fixed\" and \"per_byte\"", key, item.key());
    }
  }
  const auto fixed = read_number(*found, "fixed", 0);
  const auto per_byte = read_number(*found, "per_byte", 0);
  if (!fixed) return tl::unexpected(fixed.error());
  if (!per_byte) return tl::unexpected(per_byte.error());
  return MoveCost{.fixed = *fixed, .per_byte = *per_byte};
}

}  // namespace

Machine Machine::with_block_size(uint64_t bytes) const {
  Machine machine = *this;
  machine.block_size = bytes;
  return machine;
}

Status validate(const Machine& m) {
  const std::string& name = m.name;
  if (m.processors == 1 || m.processors > Machine::kMaxProcessors) {
    return fail("machine '{}' has {} processors; it must have 2 to {}", name, m.processors, Machine::kMaxProcessors);
  }
  if (!std::has_single_bit(m.block_size) || m.block_size < Machine::kMinBlockSize ||
      m.block_size > Machine::kMaxBlockSize) {
    return fail("machine '{}' has blocks of {} bytes; a block size is a power of two from {} to {}", name, m.block_size,
                Machine::kMinBlockSize, Machine::kMaxBlockSize);
  }
  if (!(m.r > 1))
    return fail("machine '{}' has r = {}; the model requires r > 1 (a local reference costs 1)", name, m.r);
  if (!(m.g > 1))
    return fail("machine '{}' has g = {}; the model requires g > 1 (a local reference costs 1)", name, m.g);
  if (!(m.R() >= 0) || !(m.remote_move.per_byte >= 0) || !(m.global_move.per_byte >= 0) || !(m.G() >= 0)) {
    return fail("machine '{}' has R = {} and G = {}; a block move cannot cost less than nothing", name, m.R(), m.G());
  }
  if (std::isfinite(m.g) != std::isfinite(m.G())) {
    return fail("machine '{}' has g = {} and G = {}; give both, or neither if it has no global memory", name, m.g,
                m.G());
  }
  if (m.has_global() && m.r < m.g) {
    return fail("machine '{}' has r = {} < g = {}; the model requires r >= g, or global memory would never be used",
                name, m.r, m.g);
  }
  if (m.has_global() && m.R() > 2 * m.G()) {
    return fail(
        "machine '{}' has R = {} > 2G = {} at {}-byte blocks; the model requires R <= 2G, because a block can be "
        "copied "
        "through global memory for 2G",
        name, m.R(), 2 * m.G(), m.block_size);
  }
  if (!std::isfinite(m.R())) {
    return fail("machine '{}' has no finite R; blocks must be able to move between processors", name);
  }
  return {};
}

Result<Machine> machine_from_json(const json& object) {
  if (!object.is_object())
    return fail("a machine is a JSON object such as {{\"name\": \"numa\", \"r\": 102, \"R\": 2323, ...}}");
  static constexpr const char* kKeys[] = {"name", "source", "processors", "block_size", "r",
                                          "g",    "R",      "G",          "memory",     "unit_ns"};
  for (const auto& item : object.items()) {
    if (std::ranges::find(kKeys, item.key()) == std::end(kKeys)) {
      return fail(
          "a machine has no \"{}\"; its keys are name, source, processors, block_size, r, g, R, G, memory, unit_ns",
          item.key());
    }
  }
  const auto name = read_text(object, "name");
  const auto source = read_text(object, "source");
  const auto processors = read_count(object, "processors");
  const auto block_size = read_count(object, "block_size");
  const auto r = read_number(object, "r", kInfinite);
  const auto g = read_number(object, "g", kInfinite);
  const auto unit_ns = read_number(object, "unit_ns", 0);
  const auto remote_move = read_move(object, "R");
  const auto global_move = read_move(object, "G");
  const auto memory = read_text(object, "memory");
  for (const auto* text : {&name, &source, &memory}) {
    if (!*text) return tl::unexpected(text->error());
  }
  for (const auto* count : {&processors, &block_size}) {
    if (!*count) return tl::unexpected(count->error());
  }
  for (const auto* number : {&r, &g, &unit_ns}) {
    if (!*number) return tl::unexpected(number->error());
  }
  for (const auto* move : {&remote_move, &global_move}) {
    if (!*move) return tl::unexpected(move->error());
  }
  if (!memory->empty() && *memory != "node" && *memory != "core")
    return fail("the machine's \"memory\" is \"{}\"; it must be \"node\" or \"core\"", *memory);
  Machine machine;
  machine.memory = *memory == "core" ? MemoryOf::kCore : MemoryOf::kNode;
  machine.name = *name;
  machine.source = *source;
  machine.processors = static_cast<unsigned>(std::min<uint64_t>(*processors, Machine::kMaxProcessors + 1));
  machine.block_size = *block_size;
  machine.r = *r;
  machine.g = *g;
  machine.remote_move = *remote_move;
  machine.global_move = *global_move;
  machine.unit_ns = *unit_ns;
  if (auto status = validate(machine); !status) return tl::unexpected(status.error());
  return machine;
}

Result<Machine> machine_from_json(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  if (object.is_discarded()) return fail("the machine is not well-formed JSON");
  return machine_from_json(object);
}

json to_json(const Machine& machine) {
  return {{"name", machine.name},
          {"source", machine.source},
          {"processors", machine.processors},
          {"block_size", machine.block_size},
          {"r", number_or_null(machine.r)},
          {"g", number_or_null(machine.g)},
          {"R", move_to_json(machine.remote_move)},
          {"G", move_to_json(machine.global_move)},
          {"memory", machine.memory == MemoryOf::kCore ? "core" : "node"},
          {"unit_ns", machine.unit_ns}};
}

Machine cc_machine(uint64_t block_size, const Components& c) {
  return chapter6("cc", block_size, kInfinite, 3 * c.latency + c.hardware_overhead, c);
}
Machine cc_plus_machine(uint64_t block_size, const Components& c) {
  return chapter6("cc+", block_size, 2 * c.latency + c.hardware_overhead, 3 * c.latency + c.hardware_overhead, c);
}
Machine numa_machine(uint64_t block_size, const Components& c) {
  return chapter6("numa", block_size, 2 * c.latency + c.hardware_overhead, 4 * c.latency + c.software_overhead, c);
}
Machine dsm_machine(uint64_t block_size, const Components& c) {
  return chapter6("dsm", block_size, kInfinite, 4 * c.latency + c.software_overhead, c);
}
Machine dsm_plus_machine(uint64_t block_size, const Components& c) {
  return chapter6("dsm+", block_size, 2 * c.latency + 2 * c.software_overhead, 4 * c.latency + c.software_overhead, c);
}

std::vector<Machine> chapter6_machines(const Components& c) {
  return {cc_plus_machine(64, c), cc_machine(64, c), numa_machine(4096, c), dsm_plus_machine(4096, c),
          dsm_machine(4096, c)};
}

std::vector<Machine> default_machines() {
  return {*find_machine("cache-lines"), *find_machine("two-socket")};
}

const std::vector<Machine>& known_machines() {
  static const std::vector<Machine> machines = make_known_machines();
  return machines;
}

Result<Machine> find_machine(std::string_view name) {
  const auto& machines = known_machines();
  const auto found = std::ranges::find(machines, name, &Machine::name);
  if (found != machines.end()) return *found;
  if (name.ends_with(".json")) {
    std::ifstream file{std::string(name)};
    if (!file) return fail("cannot read the machine file '{}'", name);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    auto machine = machine_from_json(std::string_view(text));
    if (!machine) return fail("{}: {}", name, machine.error().message);
    return machine;
  }
  std::string names;
  for (const Machine& machine : machines) names += (names.empty() ? "" : ", ") + machine.name;
  return fail("there is no machine '{}'; there are {}, or name a .json file", name, names);
}

}  // namespace multigrain::trace
