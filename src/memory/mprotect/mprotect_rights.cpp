#include "memory/mprotect/mprotect_rights.h"

#include <sys/mman.h>

#include <cerrno>

#include "memory/page_fault.h"

namespace multigrain::mprotection {
namespace {

// The kernel flushes TLBs of every processor that runs this process before mprotect returns, which gives the
// postconditions of the two revocations. A grant leaves the page-table entries to be filled by the first access (a
// fault that the kernel resolves alone, since the frame is in the page cache).
class MprotectRights final : public AccessRights {
 public:
  explicit MprotectRights(const Region& region) : region_(region) {}
  ~MprotectRights() override { protect(PageId(0), region_.page_count(), PROT_NONE); }

  void grant_read(PageId first, uint64_t count) override { protect(first, count, PROT_READ); }
  void grant_write(PageId first, uint64_t count) override { protect(first, count, PROT_READ | PROT_WRITE); }
  void grant_write_first(PageId first, uint64_t count) override {
    static_cast<void>(region_.make_frames(first, count));
    grant_write(first, count);
  }
  void upgrade(PageId first, uint64_t count) override { protect(first, count, PROT_READ | PROT_WRITE); }
  void revoke(PageId first, uint64_t count) override { protect(first, count, PROT_NONE); }
  void revoke_write(PageId first, uint64_t count) override { protect(first, count, PROT_READ); }

  [[nodiscard]] std::string_view name() const override { return "mprotect"; }
  [[nodiscard]] int fault_signal() const override { return SIGSEGV; }

  [[nodiscard]] std::optional<Fault> decode(int signal, const siginfo_t* info, const void* context) const override {
    if (signal != SIGSEGV || info->si_code != SEGV_ACCERR || !region_.contains(info->si_addr)) return std::nullopt;
    const PageFaultCode code(context);
    if (code.is_fetch()) return std::nullopt;  // a jump into data, which no grant would let continue
    return Fault{static_cast<std::byte*>(info->si_addr), region_.page_of(info->si_addr), code.is_write()};
  }

 private:
  void protect(PageId first, uint64_t count, int protection) const {
    MG_CHECK(region_.has_pages(first, count), first.value, count);
    const int saved = errno;
    region_.for_each_stretch(first, count, [&](std::byte* begin, uint64_t bytes) {
      if (mprotect(begin, bytes, protection) == 0) return;
      if (errno == ENOMEM)
        die(1,
            "the kernel allows no more mappings, which --access mprotect needs for pages with different rights: raise "
            "it with 'sysctl -w vm.max_map_count=1000000', use --access userfault, or use a larger --page-size");
      panic("mprotect refused a page of the view (errno, page, pages)", static_cast<uint64_t>(errno), first.value,
            count);
    });
    errno = saved;
  }

  const Region& region_;
};

}  // namespace

Result<std::unique_ptr<AccessRights>> make(const Region& region) {
  std::unique_ptr<AccessRights> rights = std::make_unique<MprotectRights>(region);
  rights->revoke(PageId(0), region.page_count());
  return rights;
}

}  // namespace multigrain::mprotection
