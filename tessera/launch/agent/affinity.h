#pragma once
/// \file
/// Assigns cores to ranks (--bind_cores). The host's cores are handed out in order, so each rank gets adjacent cores.
/// When there are more ranks than cores, ranks share cores round robin.

#include <sched.h>

#include <string>
#include <vector>

namespace tessera::launch {

/// The cores that this thread may use (sched_getaffinity; inside a container or a Slurm step, only the allowed ones).
std::vector<int> usable_cores();

/// "1,3-5" -> {1, 3, 4, 5}, sorted. Throws InputError for bad syntax, a repeated core, or a core this process may not
/// use.
std::vector<int> parse_core_list(const std::string& text, const std::vector<int>& usable);

/// Returns the cores of each of `ranks` ranks. With at least as many cores as ranks, each gets a consecutive share; the
/// sizes differ by at most one. With fewer cores, rank r gets core r modulo their number. `cores` must not be empty.
std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int ranks);

/// Binds the calling thread to `cores` during its lifetime; processes forked in that time inherit the binding from
/// their first instruction. Empty: no change. Throws InputError when the system refuses.
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
