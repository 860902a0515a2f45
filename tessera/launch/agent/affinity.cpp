#include <tessera/launch/agent/affinity.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tessera::launch {

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

std::vector<int> parse_core_list(const std::string& text, const std::vector<int>& usable) {
  std::vector<int> cores;
  const auto core = [&](const std::string& word) {
    const auto value = parse_int(word);
    if (!value || *value < 0 || *value >= CPU_SETSIZE) {
      throw InputError(
          concat("core list '", text, "': '", word, "' is not a core; expected numbers and ranges: 1,3-5"));
    }
    return static_cast<int>(*value);
  };
  for (const std::string& part : split(text, ',')) {
    const auto dash = part.find('-');
    const int first = core(part.substr(0, dash));
    const int last = dash == std::string::npos ? first : core(part.substr(dash + 1));
    if (last < first) throw InputError(concat("core list '", text, "': ", part, " runs backwards"));
    for (int at = first; at <= last; ++at) cores.push_back(at);
  }
  std::sort(cores.begin(), cores.end());
  const auto twice = std::adjacent_find(cores.begin(), cores.end());
  if (twice != cores.end()) throw InputError(concat("core list '", text, "': core ", *twice, " is listed twice"));
  for (int at : cores) {
    if (std::find(usable.begin(), usable.end(), at) == usable.end()) {
      std::vector<std::string> names;
      for (int u : usable) names.push_back(std::to_string(u));
      throw InputError(
          concat("core list '", text, "': this process may not use core ", at, "; it may use ", join(names)));
    }
  }
  return cores;
}

std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int ranks) {
  TESSERA_CHECK(!cores.empty() && ranks > 0, "cores ", cores.size(), " ranks ", ranks);
  std::vector<std::vector<int>> shares(static_cast<std::size_t>(ranks));
  const std::size_t n = cores.size(), r = shares.size();
  for (std::size_t i = 0; i < r; ++i) {
    if (n < r) {
      shares[i] = {cores[i % n]};
    } else {
      shares[i].assign(cores.begin() + static_cast<std::ptrdiff_t>(n * i / r),
                       cores.begin() + static_cast<std::ptrdiff_t>(n * (i + 1) / r));
    }
  }
  return shares;
}

CoreBinding::CoreBinding(const std::vector<int>& cores) {
  if (cores.empty()) return;
  CPU_ZERO(&before_);
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores) CPU_SET(static_cast<std::size_t>(core), &set);
  if (::sched_getaffinity(0, sizeof before_, &before_) != 0 || ::sched_setaffinity(0, sizeof set, &set) != 0) {
    throw InputError(concat("--bind_cores: ", std::strerror(errno)));
  }
  bound_ = true;
}

CoreBinding::~CoreBinding() {
  if (bound_) ::sched_setaffinity(0, sizeof before_, &before_);
}

}  // namespace tessera::launch
