#include "emulation/machine_description.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <variant>

#include "base/quantity.h"
#include "emulation/located_json.h"

namespace multigrain {
namespace {

// --- The prices by name

struct Price {
  enum class Kind { kTime, kTimePerByte, kCurve };
  std::string_view name;
  std::variant<Picoseconds MachineCosts::*, CostCurve MachineCosts::*> member;
  Kind kind = Kind::kTime;
};

constexpr auto kPerByte = Price::Kind::kTimePerByte;
constexpr auto kCurve = Price::Kind::kCurve;

constexpr Price kPrices[] = {
    {"fault_entry", &MachineCosts::fault_entry},
    {"check_miss", &MachineCosts::check_miss},
    {"check", &MachineCosts::check},
    {"load_check", &MachineCosts::load_check},
    {"store_check", &MachineCosts::store_check},
    {"poll", &MachineCosts::poll},
    {"directory", &MachineCosts::directory},
    {"downgrade", &MachineCosts::downgrade},
    {"transition", &MachineCosts::transition},
    {"translation_fill", &MachineCosts::translation_fill},
    {"queue_page", &MachineCosts::queue_page},
    {"grant_call", &MachineCosts::grant_call, kCurve},
    {"revoke_call", &MachineCosts::revoke_call, kCurve},
    {"rights_page", &MachineCosts::rights_page, kCurve},
    {"twin_byte", &MachineCosts::twin_byte, kPerByte},
    {"diff_make_byte", &MachineCosts::diff_make_byte, kPerByte},
    {"diff_apply_byte", &MachineCosts::diff_apply_byte, kPerByte},
    {"send_byte", &MachineCosts::send_byte, kPerByte},
    {"receive_byte", &MachineCosts::receive_byte, kPerByte},
    {"message_send", &MachineCosts::message_send},
    {"message_receive", &MachineCosts::message_receive},
    {"interrupt", &MachineCosts::interrupt},
    {"remote_issue", &MachineCosts::remote_issue},
    {"get_answer", &MachineCosts::get_answer},
    {"get_answer_byte", &MachineCosts::get_answer_byte, kPerByte},
    {"atomic_answer", &MachineCosts::atomic_answer},
    {"lock_acquire", &MachineCosts::lock_acquire},
    {"lock_release", &MachineCosts::lock_release},
    {"lock_ask", &MachineCosts::lock_ask},
    {"lock_pass", &MachineCosts::lock_pass},
    {"release", &MachineCosts::release},
    {"barrier_arrive", &MachineCosts::barrier_arrive},
    {"barrier_leave", &MachineCosts::barrier_leave},
    {"flag", &MachineCosts::flag},
    {"spawn", &MachineCosts::spawn},
    {"node_miss", &MachineCosts::node_miss},
};

constexpr auto kPriceNames = [] {
  std::array<std::string_view, std::size(kPrices)> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kPrices[i].name;
  return names;
}();

// The prices of misses of the caches.
struct MissPrice {
  std::string_view read, write;
  CacheDescription::Price CacheDescription::* member;
};
constexpr MissPrice kMissPrices[] = {
    {"local_read", "local_write", &CacheDescription::local},
    {"remote_read", "remote_write", &CacheDescription::remote},
    {"two_party_read", "two_party_write", &CacheDescription::two_party},
    {"three_party_read", "three_party_write", &CacheDescription::three_party},
    {"software_read", "software_write", &CacheDescription::software},
};

constexpr std::string_view kUnlimited = "unlimited";
constexpr std::string_view kOneHandler = "one";
constexpr std::string_view kHandlerOfEach = "each processor";
constexpr uint32_t kMostProcessors = 65536;  // of a node

constexpr Unit kClockUnits[] = {{"MHz", 1}, {"GHz", 1000}};
constexpr Unit kSizes[] = {{"bytes", 1}, {"KiB", 1024}, {"MiB", 1024 * 1024}};
constexpr Unit kRates[] = {{"KB/s", 1e-6}, {"MB/s", 1e-3}, {"GB/s", 1}};  // in bytes per nanosecond

// --- Reading

// Where figures are: an object, with the unit and the source of those that have none of their own.
struct Group {
  const LocatedJson& json;
  std::string path;  // "costs"; empty for the whole
  std::string unit;
  std::string source;
};

// A figure with its unit and its place, before it is a price.
struct Figure {
  const LocatedJson* json = nullptr;  // a number, a text, or the points of a curve
  unsigned line = 1;
  std::string path;  // "costs.twin_byte"
  std::string unit;
};

class Reader {
 public:
  explicit Reader(std::string_view where) : where_(where) {}
  Result<MachineDescription> read(std::string_view text);

 private:
  template <typename... Args>
  [[nodiscard]] tl::unexpected<Error> wrong(unsigned line, std::string_view path, fmt::format_string<Args...> format,
                                            Args&&... args) const {
    return fail("{}, line {}: {}{}{}", where_, line, path, path.empty() ? "" : ": ",
                fmt::format(format, std::forward<Args>(args)...));
  }
  Result<std::string> text_of(const Group& in, std::string_view key) const;
  Result<Group> group(const Group& in, std::string_view key) const;
  Result<const LocatedJson*> member(const Group& in, std::string_view key) const;
  template <typename Keys>
  Status check_keys(const Group& in, const Keys& keys) const;
  // `of` is a figure of the group: a value, or an object with the value and its own unit and source.
  Result<Figure> figure(const Group& in, std::string_view key, const LocatedJson& of) const;
  Result<double> number(const Figure& figure) const;
  Result<double> factor(const Figure& figure, std::span<const Unit> units) const;
  Result<Picoseconds> price(const Figure& figure, Price::Kind kind) const;
  Result<Picoseconds> time(const Figure& figure, double value) const;
  Result<CostCurve> curve(const Figure& figure) const;

  Status read_processor(const Group& whole, MachineDescription& machine);
  Status read_translation(const Group& processor, MachineDescription& machine) const;
  Status read_calls(const Group& processor, MachineDescription& machine) const;
  Result<counting::CallCost> call(const Group& calls, const std::string& name, const LocatedJson& json) const;
  Status read_network(const Group& whole, MachineDescription& machine) const;
  Status read_costs(const Group& whole, MachineDescription& machine) const;
  Status read_caches(const Group& whole, MachineDescription& machine) const;
  Status read_handlers(const Group& whole, MachineDescription& machine) const;
  // Of the group's figure `key`: a whole number from `least` to `most`, in `units`, or without a unit if there are none.
  Result<uint32_t> whole_number(const Group& in, std::string_view key, std::span<const Unit> units, uint32_t least,
                                uint32_t most) const;

  std::string_view where_;
  double ps_per_cycle_ = 0;
};

std::string joined(const Group& in, std::string_view key) {
  return in.path.empty() ? std::string(key) : fmt::format("{}.{}", in.path, key);
}

std::string listed(std::span<const Unit> units) {
  std::string out;
  for (size_t i = 0; i < units.size(); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : i + 1 == units.size() ? " or " : ", ", units[i].name);
  return out;
}

Result<const LocatedJson*> Reader::member(const Group& in, std::string_view key) const {
  const LocatedJson* const found = in.json.find(key);
  if (found == nullptr) return wrong(in.json.line, in.path, "'{}' is missing", key);
  return found;
}

Result<std::string> Reader::text_of(const Group& in, std::string_view key) const {
  const auto found = member(in, key);
  if (!found) return tl::unexpected(found.error());
  if ((*found)->kind != LocatedJson::Kind::kText || (*found)->text.empty())
    return wrong((*found)->line, joined(in, key), "this must be a text in quotation marks, and not an empty one");
  return (*found)->text;
}

Result<Group> Reader::group(const Group& in, std::string_view key) const {
  const auto found = member(in, key);
  if (!found) return tl::unexpected(found.error());
  const std::string path = joined(in, key);
  if ((*found)->kind != LocatedJson::Kind::kObject)
    return wrong((*found)->line, path, "this must be an object with figures");
  Group inside{.json = **found, .path = path, .unit = in.unit, .source = in.source};
  for (const auto& [name, target] : {std::pair("unit", &inside.unit), std::pair("source", &inside.source)}) {
    if ((*found)->find(name) == nullptr) continue;
    auto text = text_of(inside, name);
    if (!text) return tl::unexpected(text.error());
    *target = std::move(*text);
  }
  return inside;
}

template <typename Keys>
Status Reader::check_keys(const Group& in, const Keys& keys) const {
  for (const auto& [name, value] : in.json.members) {
    if (std::ranges::find(keys, name) != std::end(keys)) continue;
    std::string known;
    for (const auto& key : keys) known += fmt::format("{}{}", known.empty() ? "" : ", ", key);
    return wrong(value.line, joined(in, name), "there is no such key; those that there are: {}", known);
  }
  return {};
}

Result<Figure> Reader::figure(const Group& in, std::string_view key, const LocatedJson& of) const {
  Figure figure{.json = &of, .line = of.line, .path = joined(in, key), .unit = in.unit};
  std::string source = in.source;
  if (of.kind == LocatedJson::Kind::kObject) {
    const Group own{.json = of, .path = figure.path, .unit = {}, .source = {}};
    if (Status good = check_keys(own, std::array<std::string_view, 3>{"value", "unit", "source"}); !good)
      return tl::unexpected(good.error());
    for (const auto& [name, target] : {std::pair("unit", &figure.unit), std::pair("source", &source)}) {
      if (of.find(name) == nullptr) continue;
      auto text = text_of(own, name);
      if (!text) return tl::unexpected(text.error());
      *target = std::move(*text);
    }
    const auto value = member(own, "value");
    if (!value) return tl::unexpected(value.error());
    figure.json = *value;
    figure.line = (*value)->line;
  }
  if (source.empty())
    return wrong(figure.line, figure.path,
                 "this figure has no source, and neither has its group; add \"source\": \"...\"");
  return figure;
}

Result<double> Reader::number(const Figure& figure) const {
  if (figure.json->kind != LocatedJson::Kind::kNumber) return wrong(figure.line, figure.path, "this must be a number");
  if (figure.json->number < 0)
    return wrong(figure.line, figure.path, "this is {}; it must not be negative", figure.json->number);
  return figure.json->number;
}

Result<double> Reader::factor(const Figure& figure, std::span<const Unit> units) const {
  const auto found = std::ranges::find(units, figure.unit, &Unit::name);
  if (figure.unit.empty())
    return wrong(figure.line, figure.path, "this figure has no unit, and neither has its group; it must be {}",
                 listed(units));
  if (found == units.end())
    return wrong(figure.line, figure.path, "its unit is '{}'; it must be {}", figure.unit, listed(units));
  return found->factor;
}

Result<Picoseconds> Reader::time(const Figure& figure, double value) const {
  const std::array<Unit, 5> units{{{"cycles", ps_per_cycle_}, {"ps", 1}, {"ns", 1e3}, {"us", 1e6}, {"ms", 1e9}}};
  const auto factor = this->factor(figure, units);
  if (!factor) return tl::unexpected(factor.error());
  const double ps = value * *factor;
  if (ps > static_cast<double>(kMostCost))
    return wrong(figure.line, figure.path, "this is {} {}; it must be at most 10 s", value, figure.unit);
  if (ps != 0 && ps < 0.5)
    return wrong(figure.line, figure.path, "this is {} {}, which is less than a picosecond", value, figure.unit);
  return static_cast<Picoseconds>(std::llround(ps));
}

Result<Picoseconds> Reader::price(const Figure& figure, Price::Kind kind) const {
  const auto value = number(figure);
  if (!value) return tl::unexpected(value.error());
  const auto rate = std::ranges::find(kRates, figure.unit, &Unit::name);
  if (kind != Price::Kind::kTimePerByte || rate == std::end(kRates)) return time(figure, *value);
  if (*value == 0) return wrong(figure.line, figure.path, "this is a rate of 0; it must be above 0");
  return time({.json = figure.json, .line = figure.line, .path = figure.path, .unit = "ns"},
              1 / (*value * rate->factor));
}

Result<CostCurve> Reader::curve(const Figure& figure) const {
  constexpr std::string_view kWhat =
      "this must be a number, or points such as [[1, 20], [16, 80]]: the processors of the node, from few to many, and the "
      "price there";
  if (figure.json->kind != LocatedJson::Kind::kArray) {
    const auto constant = price(figure, Price::Kind::kTime);
    if (!constant) return tl::unexpected(constant.error());
    return CostCurve(*constant);
  }
  CostCurve curve;
  if (figure.json->elements.empty()) return wrong(figure.line, figure.path, "{}", kWhat);
  for (const LocatedJson& point : figure.json->elements) {
    if (point.kind != LocatedJson::Kind::kArray || point.elements.size() != 2 ||
        point.elements[0].kind != LocatedJson::Kind::kNumber)
      return wrong(figure.line, figure.path, "{}", kWhat);
    const double processors = point.elements[0].number;
    if (processors < 1 || processors > kMostProcessors || processors != std::floor(processors))
      return wrong(figure.line, figure.path, "a point is for {} processors; it must be a whole number from 1 to {}",
                   processors, kMostProcessors);
    Figure at = figure;
    at.json = &point.elements[1];
    const auto cost = price(at, Price::Kind::kTime);
    if (!cost) return tl::unexpected(cost.error());
    if (!curve.add({.processors = static_cast<uint32_t>(processors), .cost = *cost}))
      return wrong(figure.line, figure.path,
                   "the point for {} processors does not come after one for fewer, or there are more than {} points",
                   processors, CostCurve::kMostPoints);
  }
  return curve;
}

// --- The parts of a description

Status Reader::read_processor(const Group& whole, MachineDescription& machine) {
  const auto processor = group(whole, "processor");
  if (!processor) return tl::unexpected(processor.error());
  constexpr std::array<std::string_view, 6> kKeys{"clock", "instructions", "calls", "translation", "unit", "source"};
  if (Status good = check_keys(*processor, kKeys); !good) return good;

  const auto json = member(*processor, "clock");
  if (!json) return tl::unexpected(json.error());
  const auto clock = figure(*processor, "clock", **json);
  if (!clock) return tl::unexpected(clock.error());
  const auto value = number(*clock);
  if (!value) return tl::unexpected(value.error());
  const auto unit = factor(*clock, kClockUnits);
  if (!unit) return tl::unexpected(unit.error());
  machine.clock_mhz = *value * *unit;
  if (machine.clock_mhz < 0.001 || machine.clock_mhz > 1e6)
    return wrong(clock->line, clock->path, "this is {} {}; it must be from 0.001 MHz to 1000 GHz", *value, clock->unit);
  ps_per_cycle_ = 1e6 / machine.clock_mhz;

  const auto instructions = group(*processor, "instructions");
  if (!instructions) return tl::unexpected(instructions.error());
  const std::span<const std::string_view> classes = counting::class_names();
  std::vector<std::string_view> known(classes.begin(), classes.end());
  known.insert(known.end(), {"unit", "source"});
  if (Status good = check_keys(*instructions, known); !good) return good;
  for (size_t i = 0; i < classes.size(); ++i) {
    const auto found = member(*instructions, classes[i]);
    if (!found) return tl::unexpected(found.error());
    const auto one = figure(*instructions, classes[i], **found);
    if (!one) return tl::unexpected(one.error());
    const auto cost = price(*one, Price::Kind::kTime);
    if (!cost) return tl::unexpected(cost.error());
    machine.instructions.of_class[i] = *cost;
  }
  if (processor->json.find("translation") != nullptr)
    if (Status good = read_translation(*processor, machine); !good) return good;
  return read_calls(*processor, machine);
}

Status Reader::read_translation(const Group& processor, MachineDescription& machine) const {
  const auto translation = group(processor, "translation");
  if (!translation) return tl::unexpected(translation.error());
  if (Status good = check_keys(*translation, std::array<std::string_view, 4>{"pointer", "array", "unit", "source"});
      !good)
    return good;
  counting::TranslationCosts& costs = machine.instructions.translation.emplace();
  for (const auto& [key, target] : {std::pair("pointer", &costs.pointer), std::pair("array", &costs.array)}) {
    const auto found = member(*translation, key);
    if (!found) return tl::unexpected(found.error());
    const auto one = figure(*translation, key, **found);
    if (!one) return tl::unexpected(one.error());
    const auto cost = price(*one, Price::Kind::kTime);
    if (!cost) return tl::unexpected(cost.error());
    *target = *cost;
  }
  return {};
}

Result<counting::CallCost> Reader::call(const Group& calls, const std::string& name, const LocatedJson& json) const {
  counting::CallCost cost;
  if (json.kind != LocatedJson::Kind::kObject || json.find("value") != nullptr) {
    const auto one = figure(calls, name, json);
    if (!one) return tl::unexpected(one.error());
    const auto fixed = price(*one, Price::Kind::kTime);
    if (!fixed) return tl::unexpected(fixed.error());
    cost.fixed = *fixed;
    return cost;
  }
  const auto parts = group(calls, name);
  if (!parts) return tl::unexpected(parts.error());
  if (Status good = check_keys(*parts, std::array<std::string_view, 4>{"fixed", "per_byte", "unit", "source"}); !good)
    return tl::unexpected(good.error());
  for (const auto& [key, target, kind] : {std::tuple("fixed", &cost.fixed, Price::Kind::kTime),
                                          std::tuple("per_byte", &cost.per_byte, Price::Kind::kTimePerByte)}) {
    const auto found = member(*parts, key);
    if (!found) return tl::unexpected(found.error());
    const auto one = figure(*parts, key, **found);
    if (!one) return tl::unexpected(one.error());
    const auto part = price(*one, kind);
    if (!part) return tl::unexpected(part.error());
    *target = *part;
  }
  return cost;
}

Status Reader::read_calls(const Group& processor, MachineDescription& machine) const {
  constexpr std::string_view kOthers = "default";
  const auto calls = group(processor, "calls");
  if (!calls) return tl::unexpected(calls.error());
  if (const auto others = member(*calls, kOthers); !others) return tl::unexpected(others.error());
  for (const auto& [name, json] : calls->json.members) {
    if (name == "unit" || name == "source") continue;
    const auto cost = call(*calls, name, json);
    if (!cost) return tl::unexpected(cost.error());
    (name == kOthers ? machine.instructions.other_calls : machine.instructions.calls[name]) = *cost;
  }
  return {};
}

Status Reader::read_network(const Group& whole, MachineDescription& machine) const {
  const auto network = group(whole, "network");
  if (!network) return tl::unexpected(network.error());
  constexpr std::array<std::string_view, 5> kKeys{"latency", "bandwidth", "occupancy", "unit", "source"};
  if (Status good = check_keys(*network, kKeys); !good) return good;
  for (const auto& [key, target] :
       {std::pair("latency", &machine.network.latency_ns), std::pair("occupancy", &machine.network.occupancy_ns)}) {
    const auto found = member(*network, key);
    if (!found) return tl::unexpected(found.error());
    const auto one = figure(*network, key, **found);
    if (!one) return tl::unexpected(one.error());
    const auto cost = price(*one, Price::Kind::kTime);
    if (!cost) return tl::unexpected(cost.error());
    *target = (*cost + 500) / 1000;
    if (*cost != 0 && *target == 0)
      return wrong(one->line, one->path,
                   "this is less than half a nanosecond; times of a network are whole nanoseconds");
  }
  const auto found = member(*network, "bandwidth");
  if (!found) return tl::unexpected(found.error());
  const auto bandwidth = figure(*network, "bandwidth", **found);
  if (!bandwidth) return tl::unexpected(bandwidth.error());
  if (bandwidth->json->kind == LocatedJson::Kind::kText && bandwidth->json->text == kUnlimited) return {};
  if (bandwidth->json->kind != LocatedJson::Kind::kNumber)
    return wrong(bandwidth->line, bandwidth->path, "this must be a number, or \"{}\"", kUnlimited);
  const auto value = number(*bandwidth);
  if (!value) return tl::unexpected(value.error());
  const auto unit = factor(*bandwidth, kRates);
  if (!unit) return tl::unexpected(unit.error());
  if (*value == 0)
    return wrong(bandwidth->line, bandwidth->path, "this is 0; it must be above 0, or \"{}\"", kUnlimited);
  machine.network.bytes_per_ns = *value * *unit;
  return {};
}

Status Reader::read_costs(const Group& whole, MachineDescription& machine) const {
  const auto costs = group(whole, "costs");
  if (!costs) return tl::unexpected(costs.error());
  std::vector<std::string_view> known(kPriceNames.begin(), kPriceNames.end());
  known.insert(known.end(), {"unit", "source"});
  if (Status good = check_keys(*costs, known); !good) return good;
  for (const Price& each : kPrices) {
    const auto found = member(*costs, each.name);
    if (!found) return tl::unexpected(found.error());
    const auto one = figure(*costs, each.name, **found);
    if (!one) return tl::unexpected(one.error());
    if (each.kind == Price::Kind::kCurve) {
      const auto points = curve(*one);
      if (!points) return tl::unexpected(points.error());
      machine.costs.*std::get<CostCurve MachineCosts::*>(each.member) = *points;
    } else {
      const auto cost = price(*one, each.kind);
      if (!cost) return tl::unexpected(cost.error());
      machine.costs.*std::get<Picoseconds MachineCosts::*>(each.member) = *cost;
    }
  }
  return {};
}

Result<uint32_t> Reader::whole_number(const Group& in, std::string_view key, std::span<const Unit> units,
                                      uint32_t least, uint32_t most) const {
  const auto found = member(in, key);
  if (!found) return tl::unexpected(found.error());
  const auto one = figure(in, key, **found);
  if (!one) return tl::unexpected(one.error());
  const auto value = number(*one);
  if (!value) return tl::unexpected(value.error());
  double unit = 1;
  if (!units.empty()) {
    const auto found_unit = factor(*one, units);
    if (!found_unit) return tl::unexpected(found_unit.error());
    unit = *found_unit;
  }
  const double whole = *value * unit;
  if (whole != std::floor(whole) || whole < least || whole > most)
    return wrong(one->line, one->path, "this is {}; it must be a whole number from {} to {}", whole, least, most);
  return static_cast<uint32_t>(whole);
}

Status Reader::read_caches(const Group& whole, MachineDescription& machine) const {
  constexpr std::string_view kSection = "caches";
  constexpr uint32_t kMostBytes = uint32_t{1} << 30;
  constexpr uint32_t kLeastLine = 8, kMostLine = 4096, kMostWays = 64;
  if (whole.json.find(kSection) == nullptr) return {};
  const auto caches = group(whole, kSection);
  if (!caches) return tl::unexpected(caches.error());
  std::vector<std::string_view> known{"size", "line", "ways", "replacement", "pointers", "unit", "source"};
  for (const MissPrice& each : kMissPrices) known.insert(known.end(), {each.read, each.write});
  if (Status good = check_keys(*caches, known); !good) return good;

  CacheDescription& read = machine.caches.emplace();
  for (const auto& [key, target, units, least, most] :
       {std::tuple("size", &read.size, std::span<const Unit>(kSizes), kLeastLine, kMostBytes),
        std::tuple("line", &read.line, std::span<const Unit>(kSizes), kLeastLine, kMostLine),
        std::tuple("ways", &read.ways, std::span<const Unit>(), 1u, kMostWays),
        std::tuple("pointers", &read.pointers, std::span<const Unit>(), 0u, kMostProcessors)}) {
    const auto number = whole_number(*caches, key, units, least, most);
    if (!number) return tl::unexpected(number.error());
    *target = *number;
  }
  if (!std::has_single_bit(read.line))
    return wrong(caches->json.find("line")->line, joined(*caches, "line"),
                 "this is {} bytes; it must be a power of two", read.line);
  const uint64_t set = uint64_t{read.line} * read.ways;
  if (read.size % set != 0 || !std::has_single_bit(read.size / set))
    return wrong(caches->json.find("size")->line, joined(*caches, "size"),
                 "this is {} bytes, which are not a power of two of sets of {} lines of {} bytes", read.size, read.ways,
                 read.line);
  const auto replacement = member(*caches, "replacement");
  if (!replacement) return tl::unexpected(replacement.error());
  const auto policy = figure(*caches, "replacement", **replacement);
  if (!policy) return tl::unexpected(policy.error());
  if (policy->json->kind != LocatedJson::Kind::kText || (policy->json->text != "lru" && policy->json->text != "fifo"))
    return wrong(policy->line, policy->path, "this must be \"lru\" or \"fifo\"");
  read.replacement =
      policy->json->text == "lru" ? CacheDescription::Replacement::kLru : CacheDescription::Replacement::kFifo;
  for (const MissPrice& each : kMissPrices) {
    CacheDescription::Price& target = read.*each.member;
    for (const auto& [key, cost] : {std::pair(each.read, &target.read), std::pair(each.write, &target.write)}) {
      const auto found = member(*caches, key);
      if (!found) return tl::unexpected(found.error());
      const auto one = figure(*caches, key, **found);
      if (!one) return tl::unexpected(one.error());
      const auto known_price = price(*one, Price::Kind::kTime);
      if (!known_price) return tl::unexpected(known_price.error());
      *cost = *known_price;
    }
  }
  return {};
}

Status Reader::read_handlers(const Group& whole, MachineDescription& machine) const {
  constexpr std::string_view kKey = "handlers";
  const LocatedJson* const found = whole.json.find(kKey);
  if (found == nullptr) return {};
  const auto one = figure(whole, kKey, *found);
  if (!one) return tl::unexpected(one.error());
  const bool is_text = one->json->kind == LocatedJson::Kind::kText;
  if (!is_text || (one->json->text != kOneHandler && one->json->text != kHandlerOfEach))
    return wrong(one->line, one->path, "this must be \"{}\" or \"{}\"", kOneHandler, kHandlerOfEach);
  if (one->json->text == kHandlerOfEach) machine.handlers = MachineDescription::Handlers::kEachProcessor;
  return {};
}

Result<MachineDescription> Reader::read(std::string_view text) {
  const auto json = parse_located_json(text);
  if (!json) return fail("{}, {}", where_, json.error().message);
  const Group whole{.json = *json, .path = {}, .unit = {}, .source = {}};
  if (json->kind != LocatedJson::Kind::kObject)
    return wrong(1, "", "a description of a machine is an object, which begins with a brace");
  constexpr std::array<std::string_view, 8> kKeys{"name",    "what",     "source", "processor",
                                                  "network", "handlers", "costs",  "caches"};
  if (Status good = check_keys(whole, kKeys); !good) return tl::unexpected(good.error());
  MachineDescription machine;
  for (const auto& [key, target] :
       {std::pair("name", &machine.name), std::pair("what", &machine.what), std::pair("source", &machine.source)}) {
    auto found = text_of(whole, key);
    if (!found) return tl::unexpected(found.error());
    *target = std::move(*found);
  }
  if (Status good = read_processor(whole, machine); !good) return tl::unexpected(good.error());
  if (Status good = read_network(whole, machine); !good) return tl::unexpected(good.error());
  if (Status good = read_costs(whole, machine); !good) return tl::unexpected(good.error());
  if (Status good = read_caches(whole, machine); !good) return tl::unexpected(good.error());
  if (Status good = read_handlers(whole, machine); !good) return tl::unexpected(good.error());
  return machine;
}

}  // namespace

std::span<const std::string_view> price_names() {
  return kPriceNames;
}

Result<MachineDescription> parse_machine(std::string_view text, std::string_view where) {
  return Reader(where).read(text);
}

std::string compact(const MachineDescription& machine) {
  using nlohmann::ordered_json;
  const auto group = [&] { return ordered_json{{"unit", "ps"}, {"source", machine.source}}; };
  const auto call = [](const counting::CallCost& cost) {
    return ordered_json{{"fixed", cost.fixed}, {"per_byte", cost.per_byte}};
  };
  ordered_json instructions = group();
  const std::span<const std::string_view> classes = counting::class_names();
  for (size_t i = 0; i < classes.size(); ++i) instructions[std::string(classes[i])] = machine.instructions.of_class[i];
  ordered_json calls = group();
  calls["default"] = call(machine.instructions.other_calls);
  for (const auto& [name, cost] : machine.instructions.calls) calls[name] = call(cost);
  ordered_json network = {{"unit", "ns"}, {"source", machine.source}};
  network["latency"] = machine.network.latency_ns;
  network["occupancy"] = machine.network.occupancy_ns;
  if (machine.network.bytes_per_ns == 0)
    network["bandwidth"] = kUnlimited;
  else
    network["bandwidth"] = {{"value", machine.network.bytes_per_ns}, {"unit", "GB/s"}};
  ordered_json costs = group();
  for (const Price& each : kPrices) {
    ordered_json& out = costs[std::string(each.name)];
    if (each.kind != Price::Kind::kCurve) {
      out = machine.costs.*std::get<Picoseconds MachineCosts::*>(each.member);
      continue;
    }
    out = ordered_json::array();
    for (const CostCurve::Point& point : (machine.costs.*std::get<CostCurve MachineCosts::*>(each.member)).points())
      out.push_back({point.processors, point.cost});
  }
  ordered_json processor = {{"clock", {{"value", machine.clock_mhz}, {"unit", "MHz"}, {"source", machine.source}}},
                            {"instructions", std::move(instructions)}};
  if (const auto& translation = machine.instructions.translation) {
    processor["translation"] = group();
    processor["translation"]["pointer"] = translation->pointer;
    processor["translation"]["array"] = translation->array;
  }
  processor["calls"] = std::move(calls);
  ordered_json whole = {{"name", machine.name},          {"what", machine.what},
                        {"source", machine.source},      {"processor", std::move(processor)},
                        {"network", std::move(network)}, {"costs", std::move(costs)}};
  if (machine.handlers == MachineDescription::Handlers::kEachProcessor)
    whole["handlers"] = {{"value", kHandlerOfEach}, {"source", machine.source}};
  if (machine.caches) {
    const CacheDescription& caches = *machine.caches;
    ordered_json out = group();
    out["size"] = {{"value", caches.size}, {"unit", "bytes"}};
    out["line"] = {{"value", caches.line}, {"unit", "bytes"}};
    out["ways"] = caches.ways;
    out["replacement"] = caches.replacement == CacheDescription::Replacement::kLru ? "lru" : "fifo";
    out["pointers"] = caches.pointers;
    for (const MissPrice& each : kMissPrices) {
      out[std::string(each.read)] = (caches.*each.member).read;
      out[std::string(each.write)] = (caches.*each.member).write;
    }
    whole["caches"] = std::move(out);
  }
  // A text of the file need not be UTF-8.
  return whole.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace multigrain
