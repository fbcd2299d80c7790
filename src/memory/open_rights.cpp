#include "memory/open_rights.h"

#include <sys/mman.h>

#include <cerrno>

namespace multigrain {
namespace {

class OpenRights final : public AccessRights {
 public:
  explicit OpenRights(const Region& region) : region_(region) {}
  ~OpenRights() override { mprotect(region_.base(), region_.size(), PROT_NONE); }
  OpenRights(const OpenRights&) = delete;
  OpenRights& operator=(const OpenRights&) = delete;

  void grant_read(PageId, uint64_t) override {}
  void grant_write(PageId, uint64_t) override {}
  void upgrade(PageId, uint64_t) override {}
  void revoke_write(PageId, uint64_t) override { refuse(); }
  void revoke(PageId, uint64_t) override { refuse(); }
  void open_moved(PageId, uint64_t) override { refuse(); }
  [[nodiscard]] std::string_view name() const override { return "compiled translation"; }
  [[nodiscard]] int fault_signal() const override { return SIGSEGV; }
  [[nodiscard]] std::optional<Fault> decode(int, const siginfo_t*, const void*) const override { return std::nullopt; }

 private:
  [[noreturn]] static void refuse() { panic("invariant broken: a right is taken from a view that has none to take"); }

  const Region& region_;
};

}  // namespace

Result<std::unique_ptr<AccessRights>> open_rights(const Region& region) {
  if (mprotect(region.base(), region.size(), PROT_READ | PROT_WRITE) != 0)
    return fail_errno(errno, "cannot open the view of the shared region for a program that translates its accesses");
  return std::make_unique<OpenRights>(region);
}

}  // namespace multigrain
