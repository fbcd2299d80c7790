#include "placement/policies.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <utility>

namespace multigrain::placement {
namespace {

class Ace : public Policy {
 public:
  explicit Ace(unsigned invalidations) : invalidations_(invalidations) {}
  [[nodiscard]] std::string name() const override { return "ace"; }
  Decision on_reference(BlockState& block, const Reference& reference) override { return decide(block, reference); }

 protected:
  Decision decide(BlockState& block, const Reference& reference) const {
    uint64_t& invalidated = block.memo[0];
    if (invalidated >= invalidations_) return Decision::global();
    if (reference.is_write) ++invalidated;
    return Decision::local();
  }

 private:
  const unsigned invalidations_;
};

class Delay final : public Ace {
 public:
  Delay(unsigned references, unsigned invalidations) : Ace(invalidations), references_(references) {}
  [[nodiscard]] std::string name() const override { return "delay"; }
  [[nodiscard]] bool wants_counters() const override { return true; }
  Decision on_reference(BlockState& block, const Reference& reference) override {
    // A write that invalidates other places' copies faults at once; a block that is mapped remotely faults when its
    // count runs out.
    uint64_t& count = block.counters[reference.from];
    if (!block.has_copy(reference.from) && ++count < references_) return Decision::stay();
    const Decision decision = decide(block, reference);
    count = 0;
    // The block has moved, so every place has to map it anew, and its count begins again.
    if (reference.is_write) std::ranges::fill(block.counters, 0);
    return decision;
  }

 private:
  const unsigned references_;
};

class Platinum final : public Policy {
 public:
  explicit Platinum(const PlatinumOptions& options) : options_(options) {
    MG_CHECK(options.t1 != 0 && options.t2 != 0);
  }
  [[nodiscard]] std::string name() const override {
    return options_.freeze_in_global ? "platinum-global" : options_.back_off ? "platinum-back-off" : "platinum";
  }
  [[nodiscard]] uint64_t reconsiders_after() const override { return options_.t2; }
  Decision on_reference(BlockState& block, const Reference& reference) override {
    uint64_t& invalidated = block.memo[0];  // the time of the last invalidation, + 1
    uint64_t& invalidator = block.memo[1];
    uint64_t& thaw = block.memo[2];  // the block is frozen before the thaw of this number
    uint64_t& backed_off = block.memo[3];
    const uint64_t time = reference.time;
    const uint64_t epoch = time / options_.t2;
    if (epoch < thaw) return frozen();
    if (invalidated != 0 && invalidator != reference.from && time - (invalidated - 1) <= options_.t1) {
      // The block was frozen again before it had been thawed for as long as a thaw takes to come around.
      backed_off = options_.back_off && thaw != 0 && epoch == thaw ? std::min<uint64_t>(backed_off + 1, 20) : 0;
      thaw = epoch + (uint64_t{1} << backed_off);
      return frozen();
    }
    if (reference.is_write) {
      invalidated = time + 1;
      invalidator = reference.from;
    }
    return Decision::local();
  }

 private:
  [[nodiscard]] Decision frozen() const { return options_.freeze_in_global ? Decision::global() : Decision::stay(); }

  const PlatinumOptions options_;
};

class Competitive final : public Policy {
 public:
  explicit Competitive(uint64_t worth_of_move) : worth_(worth_of_move) {}
  [[nodiscard]] std::string name() const override { return "competitive"; }
  [[nodiscard]] bool wants_local() const override { return true; }
  [[nodiscard]] bool wants_counters() const override { return true; }
  Decision on_reference(BlockState& block, const Reference& reference) override {
    uint64_t& counted = block.memo[0];  // the sum of the counters
    uint64_t& next = block.memo[1];     // the place whose counter a local reference lowers
    uint64_t& mine = block.counters[reference.from];
    const bool write = reference.is_write;
    if (block.has_copy(reference.from)) {
      if (write && block.copy_count() > 1) return Decision::local();
      // A real machine would need a transaction to count this. A local reference of the holder is a reason to leave the
      // block here.
      if (counted != 0 && block.copy_count() == 1) {
        while (block.counters[next] == 0) next = (next + 1) % block.places;
        --block.counters[next];
        --counted;
      }
      return Decision::stay();
    }
    ++mine;
    ++counted;
    if (mine < (write ? 2 * worth_ : worth_)) return Decision::stay();
    if (write) {
      std::ranges::fill(block.counters, 0);
      counted = 0;
    } else {
      counted -= mine;
      mine = 0;
    }
    return Decision::local();
  }

 private:
  const uint64_t worth_;  // D: how many remote references cost as much as a move
};

class AlwaysMigrate final : public Policy {
 public:
  [[nodiscard]] std::string name() const override { return "always-migrate"; }
  Decision on_reference(BlockState& /*block*/, const Reference& /*reference*/) override { return Decision::local(); }
};

enum class Where : uint8_t { kFirstTouch, kInterleaved, kGlobal };

class Static final : public Policy {
 public:
  explicit Static(Where where) : where_(where) {}
  [[nodiscard]] std::string name() const override {
    return where_ == Where::kFirstTouch ? "first-touch" : where_ == Where::kInterleaved ? "interleaved" : "global";
  }
  Decision first(BlockState& block, const Reference& /*reference*/) override {
    if (where_ == Where::kFirstTouch) return Decision::local();
    if (where_ == Where::kGlobal) return Decision::global();
    return Decision::move(static_cast<PlaceId>(block.block % block.places));
  }
  Decision on_reference(BlockState& /*block*/, const Reference& /*reference*/) override { return Decision::stay(); }

 private:
  const Where where_;
};

}  // namespace

std::unique_ptr<Policy> ace_policy(unsigned invalidations) {
  return std::make_unique<Ace>(invalidations);
}
std::unique_ptr<Policy> delay_policy(unsigned references, unsigned invalidations) {
  return std::make_unique<Delay>(references, invalidations);
}
std::unique_ptr<Policy> platinum_policy(const PlatinumOptions& options) {
  return std::make_unique<Platinum>(options);
}
std::unique_ptr<Policy> competitive_policy(uint64_t worth_of_move) {
  return std::make_unique<Competitive>(worth_of_move);
}
std::unique_ptr<Policy> always_migrate_policy() {
  return std::make_unique<AlwaysMigrate>();
}
std::unique_ptr<Policy> first_touch_policy() {
  return std::make_unique<Static>(Where::kFirstTouch);
}
std::unique_ptr<Policy> interleaved_policy() {
  return std::make_unique<Static>(Where::kInterleaved);
}
std::unique_ptr<Policy> static_global_policy() {
  return std::make_unique<Static>(Where::kGlobal);
}

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names = {
      "ace",         "delay",          "platinum",    "platinum-back-off", "platinum-global",
      "competitive", "always-migrate", "first-touch", "interleaved",       "global"};
  return names;
}

namespace {

// The parameters of "NAME:KEY=VALUE:KEY=VALUE".
struct PolicyText {
  std::string_view name;
  std::vector<std::pair<std::string_view, uint64_t>> parameters;
};

Result<PolicyText> parse_policy(std::string_view text) {
  PolicyText out{.name = text.substr(0, text.find(':')), .parameters = {}};
  for (size_t at = out.name.size(); at < text.size();) {
    const std::string_view rest = text.substr(at + 1);
    const std::string_view parameter = rest.substr(0, rest.find(':'));
    const size_t equals = parameter.find('=');
    uint64_t value = 0;
    const char* const end = parameter.data() + parameter.size();
    const auto number = equals == std::string_view::npos ? end : parameter.data() + equals + 1;
    const auto [read, error] = std::from_chars(number, end, value);
    if (error != std::errc() || read != end || value == 0)
      return fail("'{}' of the policy '{}' is no parameter: give NAME=N with a whole number of at least 1", parameter,
                  text);
    out.parameters.emplace_back(parameter.substr(0, equals), value);
    at += 1 + parameter.size();
  }
  return out;
}

// Takes the policy's parameters, of which `known` has the names and where the values go.
Status take_parameters(const PolicyText& text, std::initializer_list<std::pair<std::string_view, uint64_t*>> known) {
  for (const auto& [name, value] : text.parameters) {
    const auto* const found = std::ranges::find(known, name, [](const auto& entry) { return entry.first; });
    if (found != known.end()) {
      *found->second = value;
      continue;
    }
    std::string names;
    for (const auto& [each, place] : known) names += (names.empty() ? "" : ", ") + std::string(each);
    return fail("the policy '{}' has no parameter '{}'{}", text.name, name,
                names.empty() ? "; it has none" : "; it has " + names);
  }
  return {};
}

unsigned as_count(uint64_t value) {
  return static_cast<unsigned>(std::min<uint64_t>(value, ~0u));
}

}  // namespace

Result<std::unique_ptr<Policy>> make_policy(std::string_view text, const Setting& setting) {
  const auto parsed = parse_policy(text);
  if (!parsed) return tl::unexpected(parsed.error());
  const std::string_view name = parsed->name;
  Status taken;
  if (name == "ace" || name == "delay") {
    uint64_t invalidations = 4, references = 100;
    taken = name == "ace" ? take_parameters(*parsed, {{"invalidations", &invalidations}})
                          : take_parameters(*parsed, {{"references", &references}, {"invalidations", &invalidations}});
    if (!taken) return tl::unexpected(taken.error());
    return name == "ace" ? ace_policy(as_count(invalidations))
                         : delay_policy(as_count(references), as_count(invalidations));
  }
  if (name.starts_with("platinum")) {
    PlatinumOptions options{.t1 = setting.t1,
                            .t2 = setting.t2,
                            .back_off = name == "platinum-back-off",
                            .freeze_in_global = name == "platinum-global"};
    if (name == "platinum" || options.back_off || options.freeze_in_global) {
      taken = take_parameters(*parsed, {{"t1", &options.t1}, {"t2", &options.t2}});
      if (!taken) return tl::unexpected(taken.error());
      return platinum_policy(options);
    }
  }
  if (std::ranges::find(policy_names(), name) != policy_names().end()) {
    taken = take_parameters(*parsed, {});
    if (!taken) return tl::unexpected(taken.error());
  }
  if (name == "competitive") return competitive_policy(setting.worth_of_move);
  if (name == "always-migrate") return always_migrate_policy();
  if (name == "first-touch") return first_touch_policy();
  if (name == "interleaved") return interleaved_policy();
  if (name == "global") return static_global_policy();
  std::string names;
  for (const std::string& known : policy_names()) names += (names.empty() ? "" : ", ") + known;
  return fail("there is no policy '{}'; there are {}", name, names);
}

namespace {

bool is_for_runs(const Policy& policy) {
  return !policy.wants_local() && !policy.wants_counters();
}

struct Description {
  std::string_view name;
  std::string_view text;
};
constexpr Description kDescriptions[] = {
    {"ace", "local, until writes have invalidated the page so often (invalidations=4), then global for good"},
    {"platinum",
     "global for a while if another node wants it so soon after a write (t1=10000000 ns); all such pages are "
     "asked about again at intervals (t2=1000000000 ns)"},
    {"platinum-back-off", "the same, and a page that is soon global again stays so for twice as long"},
    {"platinum-global", "as platinum; in a run the two are the same"},
    {"always-migrate", "local, always"},
    {"first-touch", "local to the node that uses it first, and global when another one uses it"},
    {"interleaved", "page i local to node i mod nodes if that uses it first, else global"},
    {"global", "global, always"},
};

}  // namespace

std::string render_policies_of_runs() {
  std::string out = "policies of --protocol placement, and their parameters:\n";
  for (const Description& one : kDescriptions) out += fmt::format("  {:<18} {}\n", one.name, one.text);
  return out;
}

Result<std::unique_ptr<Policy>> make_policy_of_run(std::string_view text) {
  auto policy = make_policy(text, kRunSetting);
  if (!policy || is_for_runs(**policy)) return policy;
  return fail(
      "the policy '{}' counts references, and a run sees only those that fault: it can be simulated on a trace (mgtrace "
      "analyze --policy {})",
      (*policy)->name(), (*policy)->name());
}

}  // namespace multigrain::placement
