#include <tessera/launch/watch/waiting.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>

#include <dirent.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

namespace tessera::launch {
namespace {

using Inode = std::uint64_t;

/// Returns the entries of a folder that have numbers as names.
std::vector<std::string> numbered(const std::string& folder) {
  std::vector<std::string> result;
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(::opendir(folder.c_str()), ::closedir);
  while (const dirent* entry = opened ? ::readdir(opened.get()) : nullptr) {
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') result.emplace_back(entry->d_name);
  }
  return result;
}

std::string link_of(const std::string& path) {
  std::array<char, 4096> text{};
  const ssize_t length = ::readlink(path.c_str(), text.data(), text.size());
  return length > 0 ? std::string(text.data(), static_cast<std::size_t>(length)) : std::string();
}

/// The inode of an exclusive lock in a line of /proc/locks or of a fdinfo file, "1: OFDLCK ADVISORY  WRITE 12 08:01:345
/// 0 EOF"; nullopt for a shared lock, and for a request that waits ("1: -> ...").
std::optional<Inode> locked_inode(const std::string& line) {
  std::istringstream words(line);
  std::string number, kind, advisory, access, pid, place;
  if (!(words >> number >> kind >> advisory >> access >> pid >> place) || access != "WRITE") return std::nullopt;
  const auto colon = place.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  return std::strtoull(place.c_str() + colon + 1, nullptr, 10);
}

/// Returns the open files of a process on which anyone holds an exclusive lock: inode -> path.
std::map<Inode, std::string> locked_files(const std::string& process) {
  std::map<Inode, std::string> locked, result;
  for (const std::string& line : split(read_file_or_empty("/proc/locks"), '\n')) {
    if (const auto inode = locked_inode(line)) locked.emplace(*inode, "");
  }
  if (locked.empty()) return {};
  for (const std::string& fd : numbered(process + "/fd")) {
    struct stat info{};
    const std::string path = concat(process, "/fd/", fd);
    if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || !locked.contains(info.st_ino)) continue;
    result.emplace(info.st_ino, link_of(path));
  }
  return result;
}

/// The first of these files on which this process holds an exclusive lock.
std::optional<Inode> held_by(const std::string& process, const std::map<Inode, std::string>& files) {
  for (const std::string& fd : numbered(process + "/fdinfo")) {
    for (const std::string& line : split(read_file_or_empty(concat(process, "/fdinfo/", fd)), '\n')) {
      if (!line.starts_with("lock:")) continue;
      const auto inode = locked_inode(line.substr(5));
      if (inode && files.contains(*inode)) return inode;
    }
  }
  return std::nullopt;
}

std::string command_of(const std::string& process) {
  constexpr std::size_t shown = 80;
  std::string text = read_file_or_empty(process + "/cmdline");
  std::replace(text.begin(), text.end(), '\0', ' ');
  text = trim(text);
  return text.size() > shown ? text.substr(0, shown) + "..." : text;
}

std::string state_of(const std::string& process) {
  const std::string stat = read_file_or_empty(process + "/stat");
  const auto name = stat.rfind(')');
  return name != std::string::npos && name + 2 < stat.size() && (stat[name + 2] == 'T' || stat[name + 2] == 't')
             ? ", which is stopped by a signal"
             : "";
}

std::string foreign_lock(pid_t pid, const std::vector<pid_t>& own) {
  const auto files = locked_files(concat("/proc/", pid));
  if (files.empty()) return "";
  for (const std::string& other : numbered("/proc")) {
    const auto number = static_cast<pid_t>(std::atoi(other.c_str()));
    if (number == pid || std::find(own.begin(), own.end(), number) != own.end()) continue;
    const std::string process = "/proc/" + other;
    if (const auto inode = held_by(process, files))
      return concat(files.at(*inode), ", which it has open, is locked by another program: pid ", other, " (",
                    command_of(process), ")", state_of(process));
  }
  return "";
}

/// Derives the reason from a system call in which one of the process's threads sleeps; "" if unknown.
std::string waiting_call(pid_t pid) {
  const std::string tasks = concat("/proc/", pid, "/task/");
  for (const std::string& thread : numbered(tasks)) {
    long call = -1;
    unsigned long first = 0;
    std::istringstream text(
        read_file_or_empty(concat(tasks, thread, "/syscall")));  // "1 0x2 0x7ff... ..." or "running"
    if (!(text >> call >> std::hex >> first)) continue;
    if (call == SYS_write && (first == STDOUT_FILENO || first == STDERR_FILENO))
      return concat("nobody reads its standard ", first == STDOUT_FILENO ? "output" : "error");
    if (call == SYS_wait4 || call == SYS_waitid) return "it waits for a program that it has started";
  }
  return "";
}

}  // namespace

std::string what_it_waits_for(pid_t pid, const std::vector<pid_t>& own) {
  const std::string call = waiting_call(pid);
  return call.empty() ? foreign_lock(pid, own) : call;
}

}  // namespace tessera::launch
