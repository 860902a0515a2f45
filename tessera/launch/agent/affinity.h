#pragma once
/// \file
/// Which cores a rank runs on (--bind_cores): the host's cores are dealt out in order, neighbours together. More ranks
/// than cores is normal: then they share, round robin.

#include <sched.h>

#include <string>
#include <vector>

namespace tessera::launch {

/// The cores that this thread may use (sched_getaffinity: inside a container or a Slurm step, only those).
std::vector<int> usable_cores();

/// "1,3-5" -> {1, 3, 4, 5}, sorted. Throws InputError: bad syntax, a core twice, one that this process may not use.
std::vector<int> parse_core_list(const std::string& text, const std::vector<int>& usable);

/// The cores of each of `ranks` ranks. At least as many cores as ranks: consecutive shares whose sizes differ by at
/// most one; fewer: rank r gets core r modulo their number. `cores` must not be empty.
std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int ranks);

/// The calling thread runs on `cores` while this lives; what it forks meanwhile keeps them, from the first instruction
/// on. Empty: no change. Throws InputError when the system refuses.
class CoreBinding {
 public:
  explicit CoreBinding(const std::vector<int>& cores);
  ~CoreBinding();
  CoreBinding(const CoreBinding&) = delete;
  CoreBinding& operator=(const CoreBinding&) = delete;

 private:
  bool bound_ = false;
  cpu_set_t before_;
};

}  // namespace tessera::launch
