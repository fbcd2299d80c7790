#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "races/module.h"
#include "report/origins.h"
#include "report/symbols.h"

namespace multigrain::races {
namespace {

class PlacesOfThisProcess final : public Places {
 public:
  explicit PlacesOfThisProcess(const NodeStatus& own) : own_(own), symbols_(Symbols::of_process(getpid())) {}

  std::string instruction(uint64_t address) override { return symbols_.describe(address, false); }
  // The program's own line is the outermost one: macros such as those of parmacs.m4 call functions that are inlined.
  std::string call(uint64_t return_address) override { return symbols_.describe_all(return_address, true).back(); }
  std::string block(uint64_t address) override {
    const std::array<const NodeStatus*, 1> nodes{&own_};
    const auto block = find_block(nodes, address);
    if (!block || block->size == 0 || address - block->key >= block->size) return {};
    return fmt::format("byte {} of {}", address - block->key,
                       describe_block(*block, [this](uint64_t site) { return symbols_.line_of_call(site); }));
  }
  std::string made(uint64_t handle) override {
    const std::array<const NodeStatus*, 1> nodes{&own_};
    const auto origin = find_origin(nodes, handle);
    return origin && origin->made != 0 ? symbols_.line_of_call(origin->made) : std::string();
  }

 private:
  const NodeStatus& own_;
  Symbols symbols_;
};

constexpr Module kModule{.decode = &decode_instruction, .places = [](const NodeStatus& own) -> std::unique_ptr<Places> {
                           return std::make_unique<PlacesOfThisProcess>(own);
                         }};

}  // namespace
}  // namespace multigrain::races

extern "C" [[gnu::visibility("default")]] const multigrain::races::Module* multigrain_races_module() {
  return &multigrain::races::kModule;
}
