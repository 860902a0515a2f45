#include <tessera/launch/fleet/host.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/system/endpoint.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/ports.h>
#include <tessera/launch/agent/process.h>
#include <tessera/launch/agent/sealed_fd.h>
#include <tessera/launch/fleet/ssh.h>
#include <tessera/launch/store/hmac.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>

namespace tessera::launch {
namespace {

/// Each rank needs a pidfd, two pipes and a connection to the store. The soft limit is raised only when necessary,
/// because ranks inherit it.
void reserve_files(int num_processes) {
  const rlim_t needed = static_cast<rlim_t>(num_processes) * 4 + 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed) {
    throw InputError(concat(num_processes, " processes need about ", needed,
                            " open files in the agent, but the limit is ", limit.rlim_max, " (ulimit -n)"));
  }
  limit.rlim_cur = needed;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// The same on every host and different for each run: if the secret is always the same, the port still differs.
std::string job_id(const Secret& secret, int port) {
  const std::string known = concat("job ", port);
  Sha256 hash;
  hash.update(secret);
  hash.update({reinterpret_cast<const std::uint8_t*>(known.data()), known.size()});
  const Digest digest = hash.finish();
  std::string id;
  for (const std::uint8_t byte : std::span(digest).first(8)) {
    id += "0123456789abcdef"[byte >> 4];
    id += "0123456789abcdef"[byte & 15];
  }
  return id;
}

/// When the whole launcher is gone, machine 0's notice arrives within this time.
constexpr std::chrono::seconds leave_after{5};

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
    : command(command),
      options(options),
      out(STDOUT_FILENO),
      err(STDERR_FILENO),
      secret(options.secret ? *options.secret : make_secret()),
      secret_fd(secret_to_fd(secret)),
      configuration_fd(options.configuration.empty()
                           ? UniqueFd()
                           : sealed_fd("tessera-configuration", "the job's configuration", options.configuration)) {
  find_program(command.at(0));
  reserve_files(options.num_processes);
  report_ = open_report(options.log_dir);
  const bool alone = options.num_machines == 1;
  if (options.machine_rank == 0) {
    StoreOptions how;
    how.address = options.master_addr;
    how.port = alone ? 0 : options.master_port;  // on a single host, the given port is for the ranks
    how.secret = secret;
    store.emplace(how);
  }
  store_where = store ? store->where() : endpoint_text(options.master_addr, options.master_port);
  if (!alone) meet_others();
  const FleetPlan plan = first_plan();
  job = job_id(secret, plan.job_port);
  board = Board::create(plan.local_processes, plan.first_rank, plan.world_size,
                        options.job.empty() ? join(command, " ") : options.job);
  board.header().agent_pid = ::getpid();
  if (options.max_restarts > 0) memory = MemoryFolder(memory_parent);
  watchdog.own_folder(memory.path());
}

void Host::meet_others() {
  FleetOptions how;
  how.machine_rank = options.machine_rank;
  how.num_machines = options.num_machines;
  how.local_processes = options.num_processes;
  how.hostname = options.host_label;
  how.store_address = options.master_addr;
  how.store_port = options.master_port;
  how.secret = secret;
  how.lost_seconds = options.host_timeout;
  how.server = store ? &*store : nullptr;
  how.say = [this](const std::string& text) {
    say(text);
    err.write_some();
  };
  how.takes_place = options.by_launcher;
  how.give_up = [this] { return signals.next() != 0 || must_leave(); };
  fleet = std::make_unique<Fleet>(how);
  if (options.by_launcher) {
    err.append(concat(joined_line(options.machine_rank), "\n"));
    err.write_some();
  }
}

FleetPlan Host::first_plan() const {
  if (fleet) return fleet->plan();
  FleetPlan plan;
  plan.world_size = plan.local_processes = options.num_processes;
  plan.master_addr = options.master_addr;
  plan.job_port = plan.master_port = choose_port(options.master_addr, options.master_port);
  return plan;
}

void Host::say(const std::string& text) { write_line(concat("[agent] ", text)); }

void Host::note(const std::string& text) { write_report_line(concat("[agent] ", text)); }

void Host::say_for_all(const std::string& text) {
  options.by_launcher&& options.machine_rank > 0 ? note(text) : say(text);
}

void Host::launcher_is_gone() {
  if (!leave_at_) leave_at_ = std::chrono::steady_clock::now() + leave_after;
}

void Host::say_lines(const std::string& text) {
  for (const std::string& line : split(text.ends_with('\n') ? text.substr(0, text.size() - 1) : text, '\n'))
    write_line(concat("[agent]   ", line));
}

void Host::write_line(const std::string& line) {
  err.append(concat(line_start(STDERR_FILENO), line, "\n"));
  write_report_line(line);
}

void Host::write_report_line(const std::string& line) {
  if (!report_) return;
  const std::string text = line + "\n";
  // A full disk must not end the job, and the line is on standard error too.
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
