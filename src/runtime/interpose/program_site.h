// Where the program calls a function of POSIX or C11 that is made of calls of Multigrain's interface (threads/posix_objects.cpp): the
// place that these note, for reports, is the program's.
#pragma once

namespace multigrain {

// Where such a call, in which the thread is, returns to; nullptr outside of one.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local const void* t_program_site;

class ProgramSite {
 public:
  explicit ProgramSite(const void* site) : outer_(t_program_site) { t_program_site = site; }
  ~ProgramSite() { t_program_site = outer_; }
  ProgramSite(const ProgramSite&) = delete;
  ProgramSite& operator=(const ProgramSite&) = delete;

 private:
  const void* const outer_;
};

// Returns the place of a call of the interface, which returns to `site`.
[[nodiscard]] inline const void* program_site(const void* site) {
  return t_program_site == nullptr ? site : t_program_site;
}

}  // namespace multigrain
