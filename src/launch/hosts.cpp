#include "launch/hosts.h"

#include <algorithm>
#include <optional>

#include "base/config.h"
#include "base/quantity.h"

namespace multigrain {
namespace {

constexpr std::string_view kSpace = " \t\r";

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

Result<unsigned> parse_slots(std::string_view text) {
  const std::optional<uint64_t> slots = parse_whole(text, Config::kMaxUcxNodes);
  if (!slots || *slots < 1) return fail("'{}' is not a number of nodes from 1 to {}", text, Config::kMaxUcxNodes);
  return static_cast<unsigned>(*slots);
}

// Returns whether the text is a host's name. Other text might be taken for an option or for a command, for instance by
// ssh.
bool is_host_name(std::string_view name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.@:%").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.front() != '-' && name.back() != '@' && name.find("@-") == std::string_view::npos &&
         std::ranges::all_of(name, good);
}

// Parses a host such as "b", "b:2" or "[fe80::1]:2".
Result<HostSlots> parse_host(std::string_view text) {
  HostSlots host;
  std::string_view name = text;
  std::string_view rest;
  const size_t bracket = text.find('[');
  if (bracket != std::string_view::npos) {
    const size_t closing = text.find(']', bracket);
    if (closing == std::string_view::npos) return fail("'{}' is not a host: the bracket is not closed", text);
    host.name = std::string(text.substr(0, bracket)) + std::string(text.substr(bracket + 1, closing - bracket - 1));
    rest = text.substr(closing + 1);
    if (!rest.empty() && rest.front() != ':') return fail("'{}' is not a host", text);
  } else {
    const size_t colon = text.find(':');
    if (colon != std::string_view::npos && text.find(':', colon + 1) != std::string_view::npos)
      return fail("'{}' is not a host; an address of IPv6 is written in brackets", text);
    host.name = name.substr(0, colon);
    if (colon != std::string_view::npos) rest = text.substr(colon);
  }
  if (!is_host_name(host.name)) return fail("'{}' is not the name of a host", host.name);
  if (rest.empty()) return host;
  const Result<unsigned> slots = parse_slots(rest.substr(1));
  if (!slots) return fail("host '{}': {}", host.name, slots.error().message);
  host.slots = *slots;
  return host;
}

void add_host(std::vector<HostSlots>& hosts, HostSlots host) {
  const auto known = std::ranges::find(hosts, host.name, &HostSlots::name);
  if (known != hosts.end()) {
    known->slots += host.slots;
  } else {
    hosts.push_back(std::move(host));
  }
}

// Reads one word that follows the host in a line of a file: "slots=2". The other words that MPI's launchers know
// (max_slots) have no meaning here.
Status read_word(std::string_view word, HostSlots& host) {
  const size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  if (equals == std::string_view::npos || (key != "slots" && key != "max_slots" && key != "max-slots"))
    return fail("'{}' is not understood; after the host there may be slots=N", word);
  const Result<unsigned> slots = parse_slots(word.substr(equals + 1));
  if (!slots) return tl::unexpected<Error>(slots.error());
  if (key == "slots") host.slots = *slots;
  return {};
}

Result<HostSlots> parse_line(std::string_view line) {
  size_t end = std::min(line.find_first_of(kSpace), line.size());
  auto host = parse_host(line.substr(0, end));
  while (host && end < line.size()) {
    line = trim(line.substr(end));
    end = std::min(line.find_first_of(kSpace), line.size());
    if (const Status read = read_word(line.substr(0, end), *host); !read) return tl::unexpected<Error>(read.error());
  }
  return host;
}

}  // namespace

Result<std::vector<HostSlots>> parse_hosts(std::string_view list) {
  std::vector<HostSlots> hosts;
  while (true) {
    const size_t comma = list.find(',');
    auto host = parse_host(trim(list.substr(0, comma)));
    if (!host) return tl::unexpected<Error>(host.error());
    add_host(hosts, std::move(*host));
    if (comma == std::string_view::npos) return hosts;
    list.remove_prefix(comma + 1);
  }
}

Result<std::vector<HostSlots>> parse_hostfile(std::string_view text, const std::string& file) {
  std::vector<HostSlots> hosts;
  for (unsigned number = 1; !text.empty(); ++number) {
    const size_t newline = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(std::min(newline + 1, text.size()));
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    auto host = parse_line(line);
    if (!host) return fail("{}, line {}: {}", file, number, host.error().message);
    add_host(hosts, std::move(*host));
  }
  if (hosts.empty()) return fail("{} names no host", file);
  return hosts;
}

Result<std::vector<HostNodes>> place_nodes(const std::vector<HostSlots>& hosts, std::optional<unsigned> nodes) {
  unsigned slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  if (nodes && *nodes > slots)
    return fail("--nodes {}, but the hosts take {}: give a host more with {}:N, or slots=N in a hostfile", *nodes,
                slots, hosts.front().name);
  unsigned left = nodes.value_or(slots);
  if (left > Config::kMaxUcxNodes)
    return fail("the hosts take {} nodes; a run has at most {}", left, Config::kMaxUcxNodes);
  std::vector<HostNodes> placed;
  unsigned first = 0;
  for (const HostSlots& host : hosts) {
    const unsigned count = std::min(host.slots, left);
    if (count == 0) break;
    placed.push_back({host.name, first, count});
    first += count;
    left -= count;
  }
  return placed;
}

Result<std::vector<std::string>> split_words(std::string_view command) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (const char c : command) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        words.back() += c;
      }
      continue;
    }
    if (kSpace.find(c) != std::string_view::npos) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == '\'' || c == '"') {
      quote = c;
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) return fail("'{}' has a quote that is not closed", command);
  if (words.empty() || words.front().empty()) return fail("there is no command in '{}'", command);
  return words;
}

}  // namespace multigrain
