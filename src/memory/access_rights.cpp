#include "memory/access_rights.h"

#include "memory/mprotect/mprotect_rights.h"
#include "memory/userfault/userfault_rights.h"

namespace multigrain {

Result<std::unique_ptr<AccessRights>> choose(AccessMechanism mechanism, const Region& region, std::string* reason) {
  std::string why;
  if (mechanism != AccessMechanism::kMprotect) {
    Result<std::unique_ptr<AccessRights>> rights = userfault::make(region);
    if (rights) {
      if (reason != nullptr)
        *reason = mechanism == AccessMechanism::kUserfault
                      ? "access rights by userfaultfd, as asked for"
                      : "access rights by userfaultfd, which this kernel supports in full";
      return rights;
    }
    if (mechanism == AccessMechanism::kUserfault)
      return fail("{}; use --access mprotect or automatic", rights.error().message);
    why = fmt::format("access rights by mprotect, because {}", rights.error().message);
  } else {
    why = "access rights by mprotect, as asked for";
  }
  if (reason != nullptr) *reason = why;
  return mprotection::make(region);
}

}  // namespace multigrain
