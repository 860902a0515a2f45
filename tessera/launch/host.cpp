#include <tessera/launch/host.h>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/process.h>
#include <cerrno>
#include <cstring>

namespace tessera::launch {
namespace {

/// Each rank takes a pidfd and two pipes. The soft limit is raised only when needed: ranks inherit it.
void reserve_files(int num_processes) {
  const rlim_t needed = static_cast<rlim_t>(num_processes) * 3 + 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed) {
    throw InputError(concat(num_processes, " processes need about ", needed, " open files here, but the limit is ",
                            limit.rlim_max, " (ulimit -n)"));
  }
  limit.rlim_cur = needed;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string random_id() {
  unsigned char bytes[8];
  TESSERA_CHECK(::getrandom(bytes, sizeof bytes, 0) == sizeof bytes, "getrandom: ", std::strerror(errno));
  std::string id;
  for (const unsigned char byte : bytes) {
    id += "0123456789abcdef"[byte >> 4];
    id += "0123456789abcdef"[byte & 15];
  }
  return id;
}

UniqueFd open_report(const std::string& folder) {
  if (folder.empty()) return {};
  make_folders(folder);
  const std::string path = path_join(folder, "agent.log");
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) throw InputError(concat("--log_dir: cannot write ", path, ": ", std::strerror(errno)));
  return file;
}

}  // namespace

Host::Host(const std::vector<std::string>& command, const LaunchOptions& options)
    : command(command), options(options), out(STDOUT_FILENO), err(STDERR_FILENO), job(random_id()) {
  find_program(command.at(0));
  reserve_files(options.num_processes);
  report_ = open_report(options.log_dir);
}

void Host::say(const std::string& text) { write_line(concat("[agent] ", text)); }

void Host::say_lines(const std::string& text) {
  for (const std::string& line : split(text.ends_with('\n') ? text.substr(0, text.size() - 1) : text, '\n'))
    write_line(concat("[agent]   ", line));
}

void Host::write_line(const std::string& line) {
  err.append(concat(line_start(STDERR_FILENO), line, "\n"));
  if (!report_) return;
  const std::string text = line + "\n";
  // A full disk must not end the job, and what it says is on standard error too.
  if (::write(report_.get(), text.data(), text.size()) < 0) report_.reset();
}

std::string Host::write_report(const std::string& name, const std::string& text) {
  if (options.log_dir.empty()) return "";
  const std::string path = path_join(options.log_dir, name);
  try {
    write_file_atomically(path, text);
  } catch (const Error& error) {
    say(error.what());
    return "";
  }
  return path;
}

std::string Host::line_start(int fd) const {
  return options.prefix_output && !options.prefix_rank0 && ::isatty(fd) != 0 ? "\r\x1b[K" : "";
}

}  // namespace tessera::launch
