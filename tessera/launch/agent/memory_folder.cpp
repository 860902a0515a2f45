#include <tessera/launch/agent/memory_folder.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <string_view>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera::launch {
namespace {

constexpr std::string_view prefix = "tessera-memory-";

/// Whether `name` is a folder in `parent` created by an agent that no longer exists.
bool abandoned(const std::string& parent, std::string_view name) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  const auto pid = parse_int(name.substr(0, name.find('-')));
  if (!pid || *pid < 1) return false;
  if (::kill(static_cast<pid_t>(*pid), 0) == 0 || errno == EPERM) return false;
  struct stat facts{};  // never removes through a symbolic link, nor another user's folder
  const std::string path = path_join(parent, concat(prefix, name));
  return ::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid();
}

void remove_or_say(const std::string& path) noexcept {
  try {
    remove_tree(path);
  } catch (const std::exception& error) {
    log::warning("copies of training state stay in memory: ", error.what());
  }
}

}  // namespace

MemoryFolder::MemoryFolder(const std::string& parent) {
  if (!is_directory(parent)) return;
  for (const std::string& name : list_folder(parent))
    if (abandoned(parent, name)) remove_or_say(path_join(parent, name));
  std::string made = path_join(parent, concat(prefix, ::getpid(), "-XXXXXX"));
  if (::mkdtemp(made.data()) != nullptr) path_ = made;
}

MemoryFolder::~MemoryFolder() {
  if (!path_.empty()) remove_or_say(path_);
}

MemoryFolder::MemoryFolder(MemoryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

MemoryFolder& MemoryFolder::operator=(MemoryFolder&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

}  // namespace tessera::launch
