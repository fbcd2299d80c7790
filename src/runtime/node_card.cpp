#include "runtime/node_card.h"

#include <fcntl.h>
#include <link.h>
#include <sys/personality.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/config.h"
#include "base/fnv.h"
#include "base/hexadecimal.h"
#include "runtime/private/build_id.h"
#include "runtime/private/globals.h"

namespace multigrain {
namespace {

using nlohmann::json;

constexpr size_t kMaxLibraries = 512;

std::string path_of_executable() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string("(unknown)");
}

// Identifies an executable that was linked without a build id. Accidents are to be found, not attacks.
Result<std::string> hash_of_executable() {
  const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno(errno, "cannot read the executable, which has no build id to compare");
  Fnv hash;
  std::vector<std::byte> chunk(size_t{1} << 16);
  ssize_t got;
  while ((got = read(fd, chunk.data(), chunk.size())) > 0) hash.mix(std::span(chunk).first(static_cast<size_t>(got)));
  const int failed = got < 0 ? errno : 0;
  close(fd);
  if (failed != 0) return fail_errno(failed, "cannot read the executable, which has no build id to compare");
  return fmt::format("file {:016x}", hash.value());
}

std::string build_id_of(const dl_phdr_info& object) {
  for (size_t i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const std::byte*>(object.dlpi_addr + header.p_vaddr);
    const auto build_id = find_build_id({notes, header.p_memsz});
    if (!build_id.empty()) return to_hexadecimal(build_id);
  }
  return {};
}

int add_library(dl_phdr_info* object, size_t, void* context) {
  auto& libraries = *static_cast<std::vector<NodeCard::Library>*>(context);
  const std::string_view path = object->dlpi_name != nullptr ? object->dlpi_name : "";
  const std::string_view name = path.substr(path.rfind('/') + 1);
  // The executable has no name here; the kernel's own object differs with the kernel, and no pointer leads into it.
  if (name.empty() || name.starts_with("linux-vdso")) return 0;
  if (libraries.size() < kMaxLibraries)
    libraries.push_back({std::string(name), build_id_of(*object), object->dlpi_addr});
  return 0;
}

std::string node_on_host(size_t node, const NodeCard& card) {
  return fmt::format("node {} on host {}", node, card.host);
}

Status check_libraries(const NodeCard& first, size_t number, const NodeCard& other) {
  const auto named = [](const std::vector<NodeCard::Library>& all, const std::string& name) {
    return std::ranges::find(all, name, &NodeCard::Library::name);
  };
  for (const NodeCard::Library& library : first.libraries) {
    const auto twin = named(other.libraries, library.name);
    if (twin == other.libraries.end())
      return fail("the hosts differ: node 0 on host {} has the library {} loaded, {} has not", first.host, library.name,
                  node_on_host(number, other));
    if (twin->identity != library.identity)
      return fail(
          "the hosts differ: {} has another build of the library {} ({}) than node 0 on host {} ({}); install the same "
          "version everywhere",
          node_on_host(number, other), library.name, twin->identity.empty() ? "no build id" : twin->identity,
          first.host, library.identity.empty() ? "no build id" : library.identity);
    if (twin->base != library.base)
      return fail(
          "the hosts differ: {} has the library {} at address {:#x}, node 0 on host {} at {:#x}; the limit of the "
          "stack (ulimit -s) and LD_PRELOAD must be the same everywhere",
          node_on_host(number, other), library.name, twin->base, first.host, library.base);
  }
  for (const NodeCard::Library& library : other.libraries) {
    if (named(first.libraries, library.name) == first.libraries.end())
      return fail("the hosts differ: {} has the library {} loaded, node 0 on host {} has not",
                  node_on_host(number, other), library.name, first.host);
  }
  return {};
}

}  // namespace

Result<NodeCard> describe_this_node(bool is_node_0) {
  NodeCard card;
  card.version = MULTIGRAIN_VERSION;
  std::array<char, HOST_NAME_MAX + 1> host{};
  card.host = gethostname(host.data(), host.size() - 1) == 0 ? host.data() : "(unknown)";
  card.program = path_of_executable();
  card.identity = to_hexadecimal(executable_build_id());
  if (card.identity.empty()) {
    auto hash = hash_of_executable();
    if (!hash) return tl::unexpected(hash.error());
    card.identity = std::move(*hash);
  }
  card.fingerprint = program_fingerprint();
  const int persona = personality(0xffffffff);
  card.randomised = persona < 0 || (persona & ADDR_NO_RANDOMIZE) == 0;
  dl_iterate_phdr(&add_library, &card.libraries);
  if (!is_node_0) return card;
  for (const char* name : run_settings()) {
    if (const char* value = secure_getenv(name)) card.settings.emplace_back(name, value);
  }
  return card;
}

Card encode(const NodeCard& card) {
  json libraries = json::array();
  for (const NodeCard::Library& library : card.libraries)
    libraries.push_back({library.name, library.identity, library.base});
  json settings = json::array();
  for (const auto& [name, value] : card.settings) settings.push_back({name, value});
  const json whole = {{"version", card.version},         {"host", card.host},
                      {"program", card.program},         {"identity", card.identity},
                      {"fingerprint", card.fingerprint}, {"randomised", card.randomised},
                      {"libraries", libraries},          {"settings", settings}};
  // A host name or a path need not be UTF-8.
  const std::string text = whole.dump(-1, ' ', false, json::error_handler_t::replace);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Result<NodeCard> decode(const Card& bytes) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const json whole = json::parse(text, text + bytes.size(), nullptr, false);
  const auto bad = [](const char* what) { return fail("the card of a node makes no sense ({})", what); };
  if (!whole.is_object()) return bad("no object");
  NodeCard card;
  for (const auto& [name, target] : {std::pair("version", &card.version), std::pair("host", &card.host),
                                     std::pair("program", &card.program), std::pair("identity", &card.identity)}) {
    const auto value = whole.find(name);
    if (value == whole.end() || !value->is_string()) return bad(name);
    *target = value->get<std::string>();
  }
  const auto fingerprint = whole.find("fingerprint");
  if (fingerprint == whole.end() || !fingerprint->is_number_unsigned()) return bad("fingerprint");
  card.fingerprint = fingerprint->get<uint64_t>();
  const auto randomised = whole.find("randomised");
  if (randomised == whole.end() || !randomised->is_boolean()) return bad("randomised");
  card.randomised = randomised->get<bool>();
  const auto libraries = whole.find("libraries");
  if (libraries == whole.end() || !libraries->is_array() || libraries->size() > kMaxLibraries) return bad("libraries");
  for (const json& library : *libraries) {
    if (!library.is_array() || library.size() != 3 || !library[0].is_string() || !library[1].is_string() ||
        !library[2].is_number_unsigned())
      return bad("libraries");
    card.libraries.push_back(
        {library[0].get<std::string>(), library[1].get<std::string>(), library[2].get<uint64_t>()});
  }
  const auto settings = whole.find("settings");
  if (settings == whole.end() || !settings->is_array()) return bad("settings");
  const std::vector<const char*> known = run_settings();
  for (const json& setting : *settings) {
    if (!setting.is_array() || setting.size() != 2 || !setting[0].is_string() || !setting[1].is_string())
      return bad("settings");
    const std::string name = setting[0].get<std::string>();
    if (std::ranges::find(known, name) == known.end()) return bad("settings");
    card.settings.emplace_back(name, setting[1].get<std::string>());
  }
  return card;
}

Status check_agreement(const std::vector<NodeCard>& cards) {
  const NodeCard& first = cards.front();
  for (size_t i = 0; i < cards.size(); ++i) {
    const NodeCard& card = cards[i];
    if (card.version != first.version)
      return fail("the hosts differ: {} has Multigrain {}, node 0 on host {} has {}", node_on_host(i, card),
                  card.version, first.host, first.version);
    if (card.identity != first.identity)
      return fail(
          "the hosts run different programs: {} runs {} with build id {}, node 0 on host {} runs {} with build id {}; "
          "copy the same file to every host",
          node_on_host(i, card), card.program, card.identity, first.host, first.program, first.identity);
    if (card.randomised)
      return fail(
          "address randomisation is on for {}; start the program with mgrun, or allow the personality system call",
          node_on_host(i, card));
    if (card.fingerprint != first.fingerprint)
      return fail("the hosts differ: {} has the program's variables at other addresses than node 0 on host {}",
                  node_on_host(i, card), first.host);
    if (Status same = check_libraries(first, i, card); !same) return same;
  }
  return {};
}

void adopt_settings(const NodeCard& node_0) {
  for (const char* name : run_settings()) unsetenv(name);
  for (const auto& [name, value] : node_0.settings) setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace multigrain
