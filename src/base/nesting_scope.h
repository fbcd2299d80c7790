// These are scopes that a thread is in. Code further down its stack can ask for that: code that the scope's code has
// called, and signal handlers that have interrupted it.
#pragma once

namespace multigrain {

// `Tag` is the kind of scope: a type of its own, which need not be defined. Async-signal-safe.
template <typename Tag>
class NestingScope {
 public:
  NestingScope() { ++depth(); }
  ~NestingScope() { --depth(); }
  NestingScope(const NestingScope&) = delete;
  NestingScope& operator=(const NestingScope&) = delete;
  // Returns whether the calling thread is in such a scope.
  [[nodiscard]] static bool on() { return depth() != 0; }

 private:
  // The variable is of the initial-exec model, because the fault handler uses it: there a first access must not
  // allocate.
  static unsigned& depth() {
    [[gnu::tls_model("initial-exec")]] static constinit thread_local unsigned depth = 0;
    return depth;
  }
};

}  // namespace multigrain
