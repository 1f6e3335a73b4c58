#pragma once

// The processor time that the control groups of this process allow, as containers limit it.

#include <string>

namespace arcgrad {

/// The number of processors that the control groups of the process may use at the same time on
/// average, for versions 1 and 2 of control groups; infinity without a limit. Files are read below
/// `root`, so that tests can pass a directory.
double cpu_quota(const std::string& root = "");

}  // namespace arcgrad
