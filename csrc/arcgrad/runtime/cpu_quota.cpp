#include "arcgrad/runtime/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace arcgrad {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// Whether a list separated by commas contains a word.
bool lists(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

/// The control group of the process, as a line `number:controllers:path` of /proc/self/cgroup gives
/// it. Version 2 has the number 0 and no controllers.
std::optional<std::string> own_group(const std::string& root, bool is_v2) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers(line.data() + first + 1, second - first - 1);
    if (is_v2 ? controllers.empty() : lists(controllers, "cpu")) return line.substr(second + 1);
  }
  return {};
}

/// The limit in one directory: `cpu.max` holds "quota period", or "max period" without a limit;
/// version 1 has a file for each, and the quota -1 without a limit.
double limit_of(const std::string& directory, bool is_v2) {
  double quota = 0.0, period = 0.0;
  if (is_v2) {
    std::ifstream(directory + "/cpu.max") >> quota >> period;
  } else {
    std::ifstream(directory + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(directory + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0.0 && period > 0.0 ? quota / period : kUnlimited;
}

/// The least limit of a group and of the groups that contain it, up to the mount point.
double least_limit(const std::string& mount, std::string group, bool is_v2) {
  double least = limit_of(mount, is_v2);
  for (; group.size() > 1; group.resize(std::min(group.rfind('/'), group.size() - 1)))
    least = std::min(least, limit_of(mount + group, is_v2));
  return least;
}

}  // namespace

double cpu_quota(const std::string& root) {
  double least = kUnlimited;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // id, parent, device, root of the mount, mount point, options, ..., "-", type, source, options
    std::istringstream words(line);
    std::string word, mounted, mount, type, options;
    words >> word >> word >> word >> mounted >> mount;
    while (words >> word && word != "-") continue;
    words >> type >> word >> options;
    const bool is_v2 = type == "cgroup2";
    if (!is_v2 && !(type == "cgroup" && lists(options, "cpu"))) continue;
    std::optional<std::string> group = own_group(root, is_v2);
    if (!group) continue;
    // A container often sees its own group as the mount point.
    if (mounted != "/") {
      const bool is_below = group->starts_with(mounted);
      group = is_below ? group->substr(mounted.size()) : "";
    }
    least = std::min(least, least_limit(root + mount, *group, is_v2));
  }
  return least;
}

}  // namespace arcgrad
