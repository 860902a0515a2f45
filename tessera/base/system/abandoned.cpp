#include <tessera/base/system/abandoned.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace tessera {
namespace {

void remove_unless_held(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  struct stat facts{};
  const bool ours =
      ::fstat(fd, &facts) == 0 && facts.st_uid == ::geteuid() && (S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode));
  if (ours && ::flock(fd, LOCK_EX | LOCK_NB) == 0) {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  ::close(fd);
}

}  // namespace

void hold_as_ours(int fd) { ::flock(fd, LOCK_SH | LOCK_NB); }

void remove_abandoned(const std::string& folder, const std::function<bool(const std::string& name)>& ours) noexcept {
  try {
    std::error_code error;
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const std::filesystem::path path = it->path();
      if (ours(path.filename().string())) remove_unless_held(path.string());
    }
  } catch (...) {  // out of memory for a name
  }
}

std::string name_of_temporary(const std::string& name) {
  const auto dot = name.rfind('.');
  constexpr std::string_view middle = ".tmp";
  if (dot == std::string::npos || dot + 1 == name.size() || dot <= middle.size()) return "";
  const bool number = std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dot) + 1, name.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  const std::string before = name.substr(0, dot);
  return number && before.ends_with(middle) ? before.substr(0, before.size() - middle.size()) : "";
}

}  // namespace tessera
