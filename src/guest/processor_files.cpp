#include "guest/processor_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace multigrain::guest {
namespace {

constexpr std::string_view kCpuFolder = "/sys/devices/system/cpu/";
constexpr std::string_view kNodeFolder = "/sys/devices/system/node/";

// Cuts a number off the beginning of the text, and returns it.
std::optional<unsigned> take_number(std::string_view& text) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

ProcessorMask mask_of(unsigned first, unsigned count, unsigned all) {
  ProcessorMask mask((all + 63) / 64);
  for (unsigned i = first; i < first + count && i < all; ++i) mask[i / 64] |= uint64_t{1} << (i % 64);
  return mask;
}

std::string cpuinfo(const std::string& real, const Processors& processors) {
  std::vector<std::vector<std::string_view>> blocks(1);
  for (const std::string_view line : lines_of(real)) {
    if (!line.empty())
      blocks.back().push_back(line);
    else if (!blocks.back().empty())
      blocks.emplace_back();
  }
  if (blocks.back().empty() && blocks.size() > 1) blocks.pop_back();
  std::string text;
  for (unsigned i = 0; i < processors.all; ++i) {
    const std::pair<std::string_view, unsigned> own[] = {
        {"processor", i},
        {"physical id", i / processors.of_a_node},
        {"siblings", processors.of_a_node},
        {"core id", i % processors.of_a_node},
        {"cpu cores", processors.of_a_node},
        {"apicid", i},
        {"initial apicid", i},
    };
    for (const std::string_view line : blocks[i % blocks.size()]) {
      const std::string_view key = line.substr(0, std::min(line.find_first_of("\t:"), line.size()));
      const auto* const found = std::ranges::find(own, key, [](const auto& pair) { return pair.first; });
      const size_t colon = line.find(':');
      if (found != std::end(own) && colon != std::string_view::npos)
        text += fmt::format("{}: {}\n", line.substr(0, colon), found->second);
      else
        text.append(line).push_back('\n');
    }
    text.push_back('\n');
  }
  return text;
}

std::string stat(const std::string& real, const Processors& processors) {
  std::vector<std::string_view> of_processors;
  std::string before, after;
  for (std::string_view line : lines_of(real)) {
    std::string_view rest = line;
    if (take(rest, "cpu") && take_number(rest)) {
      of_processors.push_back(rest);
      continue;
    }
    std::string& part = of_processors.empty() ? before : after;
    part.append(line).push_back('\n');
  }
  if (of_processors.empty()) return real;
  for (unsigned i = 0; i < processors.all; ++i)
    before += fmt::format("cpu{}{}\n", i, of_processors[i % of_processors.size()]);
  return before + after;
}

// Returns what cpuN/topology/NAME says.
std::optional<std::string> topology(std::string_view name, unsigned processor, const Processors& processors) {
  const unsigned place = processor % processors.of_a_node;
  const unsigned package = processor / processors.of_a_node;
  if (name == "core_id" || name == "cluster_id") return fmt::format("{}\n", place);
  if (name == "physical_package_id") return fmt::format("{}\n", package);
  if (name == "die_id") return "0\n";
  const bool is_list = name.ends_with("_list");
  if (is_list) name.remove_suffix(5);
  ProcessorMask mask;
  if (name == "core_cpus" || name == "thread_siblings" || name == "cluster_cpus")
    mask = mask_of(processor, 1, processors.all);
  else if (name == "core_siblings" || name == "package_cpus" || name == "die_cpus")
    mask = mask_of(package * processors.of_a_node, processors.of_a_node, processors.all);
  else
    return std::nullopt;
  return (is_list ? list_text(mask, processors.all) : mask_text(mask, processors.all)) + "\n";
}

std::optional<std::string> node_file(std::string_view name, const Processors& processors) {
  if (name == "online" || name == "possible" || name == "has_cpu" || name == "has_memory" ||
      name == "has_normal_memory")
    return "0\n";
  if (name == "node0/cpulist") return list_text(mask_of_all(processors.all), processors.all) + "\n";
  if (name == "node0/cpumap") return mask_text(mask_of_all(processors.all), processors.all) + "\n";
  return std::nullopt;
}

}  // namespace

bool has(const ProcessorMask& mask, unsigned processor) {
  return processor / 64 < mask.size() && (mask[processor / 64] >> (processor % 64) & 1) != 0;
}

ProcessorMask mask_of_all(unsigned processors) {
  return mask_of(0, processors, processors);
}

std::string mask_text(const ProcessorMask& mask, unsigned processors) {
  constexpr unsigned kGroup = 32;
  std::string text;
  for (unsigned group = (processors + kGroup - 1) / kGroup; group-- > 0;) {
    const auto bits = static_cast<uint32_t>(mask[group / 2] >> (group % 2 * kGroup));
    const unsigned width = std::min(kGroup, processors - group * kGroup);
    text += fmt::format("{}{:0{}x}", text.empty() ? "" : ",", bits, (width + 3) / 4);
  }
  return text;
}

std::string list_text(const ProcessorMask& mask, unsigned processors) {
  std::string text;
  for (unsigned i = 0; i < processors; ++i) {
    if (!has(mask, i)) continue;
    unsigned last = i;
    while (last + 1 < processors && has(mask, last + 1)) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", i);
    if (last > i) text += fmt::format("-{}", last);
    i = last;
  }
  return text;
}

std::optional<std::string> processor_file(std::string_view path, const Processors& processors,
                                          std::string (*real)(const std::string&)) {
  if (path == "/proc/cpuinfo") return cpuinfo(real(std::string(path)), processors);
  if (path == "/proc/stat") return stat(real(std::string(path)), processors);
  if (take(path, kNodeFolder)) return node_file(path, processors);
  if (!take(path, kCpuFolder)) return std::nullopt;
  if (path == "online" || path == "possible" || path == "present")
    return list_text(mask_of_all(processors.all), processors.all) + "\n";
  if (path == "offline") return "\n";
  if (!take(path, "cpu")) return std::nullopt;
  const auto number = take_number(path);
  if (!number || *number >= processors.all || !take(path, "/topology/")) return std::nullopt;
  return topology(path, *number, processors);
}

std::string processor_path(const std::string& path, const Processors& processors) {
  std::string_view rest = path;
  if (take(rest, kNodeFolder)) {
    if (!take(rest, "node")) return path;
    const auto node = take_number(rest);
    return node && *node != 0 ? "" : path;
  }
  if (!take(rest, kCpuFolder) || !take(rest, "cpu")) return path;
  const auto number = take_number(rest);
  if (!number) return path;
  if (*number >= processors.all) return "";
  const long real = sysconf(_SC_NPROCESSORS_ONLN);
  const unsigned here = real > 0 ? *number % static_cast<unsigned>(real) : *number;
  return fmt::format("{}cpu{}{}", kCpuFolder, here, rest);
}

}  // namespace multigrain::guest
