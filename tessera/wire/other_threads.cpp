#include <tessera/wire/other_threads.h>

#include <tessera/base/error.h>

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

namespace tessera::wire {

bool has_other_threads() {
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), &closedir);
  if (!tasks) return true;
  while (const dirent* entry = readdir(tasks.get())) {
    const int thread = std::atoi(entry->d_name);
    if (thread <= 0 || thread == static_cast<int>(syscall(SYS_gettid))) continue;
    std::string name;
    // A thread that has ended since has no name.
    if (std::getline(std::ifstream(concat("/proc/self/task/", thread, "/comm")), name) && name != helper_thread) {
      return true;
    }
  }
  return false;
}

}  // namespace tessera::wire
