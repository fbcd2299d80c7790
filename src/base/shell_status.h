// These are the exit statuses by which shells, and programs that run others, say that a program did not run.
#pragma once

namespace multigrain {

inline constexpr int kNotExecutable = 126;  // it is there, but cannot be executed
inline constexpr int kNotFound = 127;

}  // namespace multigrain
