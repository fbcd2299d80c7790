#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "fabric/module.h"
#include "fabric/network_devices.h"
#include "fabric/ucx/ucx_fabric.h"
#include "fabric/ucx/ucx_module.h"

namespace multigrain {
namespace {

struct Setting {
  const char* name;
  const char* value;
  bool forced;  // any other value would break the run
};

// UCX reads its environment when its libraries are loaded and when it is opened.
constexpr Setting kSettings[] = {
    // The runtime handles page faults, so UCX must not catch SIGSEGV and SIGBUS, nor SIGHUP for its debug log.
    {"UCX_HANDLE_ERRORS", "none", true},
    {"UCX_DEBUG_SIGNO", "0", true},
    // UCX would patch mmap, munmap, malloc, dlopen and similar functions to learn of memory that goes away. The fabric
    // registers the memory that it exports, which stays; the patches would run inside the runtime's fault handler and
    // malloc.
    {"UCX_MEM_EVENTS", "n", true},
    {"UCX_MEM_MMAP_HOOK_MODE", "none", true},
    {"UCX_MEM_MALLOC_HOOKS", "n", true},
    {"UCX_MEM_MALLOC_RELOC", "n", true},
    {"UCX_MEM_DYNAMIC_MMAP_THRESH", "n", true},
    {"UCX_MEM_DLOPEN_PROCESS_RPATH", "n", true},
    // UCX would start a thread that shows its state as a file system.
    {"UCX_VFS_ENABLE", "n", true},
    // Endpoints must report that a peer is gone; UCX uses its shared-memory transports for such endpoints only if it is
    // told to.
    {"UCX_POSIX_ERROR_HANDLING", "y", false},
    // With these, shared memory has no name in a file system (confine.h).
    {"UCX_POSIX_DIR", "/dev/shm", true},
    {"UCX_POSIX_USE_PROC_LINK", "y", true},
    // The fabric has heartbeats of its own, which are faster than UCX's.
    {"UCX_KEEPALIVE_INTERVAL", "inf", false},
    // Standard output belongs to the program.
    {"UCX_LOG_FILE", "stderr", false},
    {"UCX_WARN_UNUSED_ENV_VARS", "n", false},
};

// While it exists, the variables are set; afterwards the environment is again as the program and its children expect
// it.
class UcxEnvironment {
 public:
  UcxEnvironment() {
    for (const Setting& setting : kSettings) {
      const char* const users = std::getenv(setting.name);
      if (users != nullptr && !setting.forced) continue;
      if (users != nullptr && std::string(users) != setting.value)
        std::fprintf(stderr, "multigrain: %s=%s is ignored: a run needs %s\n", setting.name, users, setting.value);
      saved_.push_back({setting.name, users != nullptr ? std::optional<std::string>(users) : std::nullopt});
      setenv(setting.name, setting.value, 1);
    }
  }
  ~UcxEnvironment() {
    for (const auto& [name, value] : saved_) {
      if (value) {
        setenv(name, value->c_str(), 1);
      } else {
        unsetenv(name);
      }
    }
  }
  UcxEnvironment(const UcxEnvironment&) = delete;
  UcxEnvironment& operator=(const UcxEnvironment&) = delete;

 private:
  struct Saved {
    const char* name;
    std::optional<std::string> value;
  };
  std::vector<Saved> saved_;
};

// Loads the module, and with it UCX's libraries, which read their environment then.
Result<void*> load_function(const char* name) {
  Result<void*> function = load_module("ucx", name);
  if (!function) return fail("{}; UCX is in the package libucx0", function.error().message);
  return function;
}

}  // namespace

Result<std::shared_ptr<const Secret<JobSecret>>> agree_on_secret(Wireup& wireup) {
  const UcxEnvironment environment;
  const Result<void*> function = load_function(ucx::kAgreeFunction);
  if (!function) return tl::unexpected(function.error());
  auto secret = std::make_shared<Secret<JobSecret>>();
  Status agreed;
  reinterpret_cast<ucx::AgreeFunction>(*function)(wireup, **secret, agreed);
  if (!agreed) return tl::unexpected(agreed.error());
  return secret;
}

Result<std::unique_ptr<UcxFabric>> load_ucx_fabric(const UcxOptions& options) {
  // UCX would only warn of a device that it does not know, and take another.
  if (const Status checked = check_devices(options.interface); !checked)
    return fail("MULTIGRAIN_INTERFACE: {}", checked.error().message);
  // A process has one environment, so several fabrics of one process open one after the other.
  static Mutex one_at_a_time;
  const LockGuard guard(one_at_a_time);
  const UcxEnvironment environment;
  const Result<void*> function = load_function(ucx::kModuleFunction);
  if (!function) return tl::unexpected(function.error());
  Result<std::unique_ptr<UcxFabric>> result;
  reinterpret_cast<ucx::ModuleFunction>(*function)(options, result);
  return result;
}

}  // namespace multigrain
