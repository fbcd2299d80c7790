#include "compile_cost.h"

#include <elf.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "base/child_process.h"
#include "base/clock.h"
#include "base/temporary_folder.h"

namespace multigrain::bench {
namespace {

namespace fs = std::filesystem;

// C++ sources, and what the workloads' front end has written, are compiled by mg++.
std::string compiler_for(const fs::path& file) {
  return file.extension() == ".c" ? "mgcc" : "mg++";
}

Result<double> compile(std::vector<std::string> command) {
  ChildStart start;
  start.command = std::move(command);
  start.parent_death_signal = SIGTERM;
  const Nanoseconds began = monotonic_ns();
  const auto output = run_and_read(start);
  const Nanoseconds took = monotonic_ns() - began;
  if (!output) return tl::unexpected(output.error());
  if (!output->succeeded()) return fail("{} failed", start.command.front());
  return static_cast<double>(took) * 1e-9;
}

// Returns how many bytes of code an object file has.
Result<uint64_t> code_bytes(const fs::path& object) {
  std::ifstream file(object, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  Elf64_Ehdr head{};
  if (!file || bytes.size() < sizeof head) return fail("cannot read {}", object.string());
  std::memcpy(&head, bytes.data(), sizeof head);
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shoff > bytes.size() ||
      (bytes.size() - head.e_shoff) / sizeof(Elf64_Shdr) < head.e_shnum)
    return fail("{} is no object file of this machine", object.string());
  uint64_t code = 0;
  for (size_t i = 0; i < head.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, bytes.data() + head.e_shoff + i * sizeof section, sizeof section);
    if ((section.sh_flags & SHF_EXECINSTR) != 0) code += section.sh_size;
  }
  return code;
}

}  // namespace

Result<std::vector<CompileRow>> measure_compilation(const fs::path& tools, const std::vector<std::string>& files,
                                                    const std::vector<std::string>& options, unsigned rounds) {
  const TemporaryFolder folder("mgbench");
  if (folder.path().empty()) return fail("cannot make a folder in {}", fs::temp_directory_path().string());
  const fs::path object = folder.path() / "object.o";
  std::vector<CompileRow> rows;
  for (const std::string& file : files) {
    CompileRow row{.name = fs::path(file).stem(),
                   .seconds = std::numeric_limits<double>::infinity(),
                   .plain_seconds = std::numeric_limits<double>::infinity()};
    std::vector<std::string> command = {tools / compiler_for(file), "-w", "-c", file, "-o", object};
    command.insert(command.end(), options.begin(), options.end());
    std::vector<std::string> plain = command;
    plain.emplace_back("-fno-multigrain-checks");
    for (unsigned round = 0; round < rounds; ++round) {
      for (const bool has_checks : {false, true}) {
        // What the last file was compiled to must not be taken for this one's.
        std::error_code none;
        fs::remove(object, none);
        const auto seconds = compile(has_checks ? command : plain);
        if (!seconds) return fail("{}: {}", file, seconds.error().message);
        if (!fs::exists(object, none)) return fail("{} is nothing that {} compiles", file, compiler_for(file));
        const auto bytes = code_bytes(object);
        if (!bytes) return fail("{}: {}", file, bytes.error().message);
        double& shortest = has_checks ? row.seconds : row.plain_seconds;
        shortest = std::min(shortest, *seconds);
        (has_checks ? row.bytes : row.plain_bytes) = *bytes;
      }
    }
    if (row.plain_bytes == 0) return fail("{} has no code", file);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace multigrain::bench
