#include "base/protocols.h"

#include <fmt/ranges.h>

#include <optional>
#include <vector>

#include "base/quantity.h"

namespace multigrain {
namespace {

// Returns "a, b or c".
template <typename Words>
std::string alternatives(const Words& words) {
  const std::string all_but_last = fmt::format("{}", fmt::join(words.begin(), words.end() - 1, ", "));
  return fmt::format("{}{}{}", all_but_last, all_but_last.empty() ? "" : " or ", words.back());
}

}  // namespace

std::string ProtocolTraits::line_sizes() const {
  std::vector<size_t> sizes;
  for (size_t size = min_line_size; size <= max_line_size; size *= 2) sizes.push_back(size);
  return alternatives(sizes);
}

std::string protocol_names() {
  std::vector<std::string_view> names{kAutomaticProtocol};
  for (const ProtocolTraits& protocol : kProtocols) names.push_back(protocol.name);
  return alternatives(names);
}

Result<MemoryModel> parse_model(std::string_view text) {
  if (text == "sc") return MemoryModel::kSequential;
  if (text == "rc") return MemoryModel::kRelease;
  return fail("memory model is '{}'; it must be sc or rc", text);
}

Result<MgsOptions> parse_mgs(std::string_view text) {
  MgsOptions options;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    if (item == "reads=auto")
      options.reads = MgsReads::kAutomatic;
    else if (item == "reads=one-sided")
      options.reads = MgsReads::kOneSided;
    else if (item == "reads=message")
      options.reads = MgsReads::kByMessage;
    else if (item == "translation=hardware")
      options.translation = MgsTranslation::kHardware;
    else if (item == "translation=compiled")
      options.translation = MgsTranslation::kCompiled;
    else if (item == "hand-on=auto")
      options.hand_on = MgsHandOn::kAutomatic;
    else if (item == "hand-on=dirty")
      options.hand_on = MgsHandOn::kDirty;
    else if (item == "hand-on=clean")
      options.hand_on = MgsHandOn::kClean;
    else
      return fail(
          "the options of mgs are not understood at '{}'; they must be a list of reads=auto, one-sided or message, "
          "translation=hardware or compiled, and hand-on=auto, dirty or clean",
          item);
    if (comma == std::string_view::npos) return options;
    rest.remove_prefix(comma + 1);
  }
}

Result<HlrcOptions> parse_hlrc(std::string_view text) {
  HlrcOptions options;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    constexpr std::string_view kFetchAhead = "fetch-ahead=";
    if (item.starts_with(kFetchAhead)) {
      if (const auto pages = parse_whole(item.substr(kFetchAhead.size()), HlrcOptions::kMaxFetchAhead)) {
        options.fetch_ahead = static_cast<unsigned>(*pages);
        if (*pages != 0) options.against_races = item;
        continue;
      }
    } else if (item == "coalesce=on" || item == "coalesce=off") {
      options.coalesce = item == "coalesce=on";
      continue;
    } else if (item == "lock=ticket" || item == "lock=test-and-set") {
      options.tickets = item == "lock=ticket";
      continue;
    } else if (item == "barrier=leader" || item == "barrier=cooperative") {
      options.cooperative = item == "barrier=cooperative";
      continue;
    } else if (item == "homes=follow" || item == "homes=stay") {
      options.homes_follow = item == "homes=follow";
      continue;
    } else if (item == "runs=on" || item == "runs=off") {
      options.runs = item == "runs=on";
      if (options.runs) options.against_races = item;
      continue;
    } else if (item == "chains=on" || item == "chains=off") {
      options.chains = item == "chains=on";
      if (options.chains) options.against_races = item;
      continue;
    } else if (item == "updates=on" || item == "updates=off") {
      options.updates = item == "updates=on";
      if (options.updates) options.against_races = item;
      continue;
    } else if (item == "releases=deferred" || item == "releases=at-once") {
      options.deferred_releases = item == "releases=deferred";
      if (options.deferred_releases) options.against_races = item;
      continue;
    }
    return fail(
        "the options of hlrc are not understood at '{}'; they must be a list of fetch-ahead=N (0 to {}), coalesce=on "
        "or off, lock=ticket or test-and-set, barrier=leader or cooperative, homes=follow or stay, runs=on or off, chains=on or off, updates=on or off, and "
        "releases=deferred or at-once",
        item, HlrcOptions::kMaxFetchAhead);
  }
  return options;
}

}  // namespace multigrain
