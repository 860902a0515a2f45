#include <tessera/launch/fleet/ssh.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/output.h>
#include <tessera/launch/agent/ports.h>
#include <tessera/launch/agent/process.h>
#include <tessera/launch/agent/restart_pause.h>
#include <tessera/launch/agent/signal_queue.h>
#include <tessera/launch/agent/start.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

extern char** environ;

namespace tessera::launch {

namespace {

using Clock = std::chrono::steady_clock;

Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string without_user(const std::string& host) { return host.substr(host.find('@') + 1); }

constexpr double lived_long = 60;                      // seconds after which an agent is restarted without a growing
                                                       // pause
constexpr std::chrono::seconds last_agents_after{30};  // time to wait for agents that do not get machine 0's verdict
constexpr double first_pause = 1, longest_pause = 30;  // seconds before an agent is started again

/// The agent on one host as seen from here: an ssh process, or the agent itself.
struct RemoteAgent {
  RemoteAgent(const std::string& host, bool over_ssh, const ProcessOptions& options, UniqueFd in, OutputSink& out,
              OutputSink& err)
      : host(host), over_ssh(over_ssh), process(options), in(std::move(in)), out("", out), err("", err) {}
  std::string host;
  bool over_ssh;
  Process process;
  UniqueFd in;  ///< the write end of its standard input
  LinePrefixer out, err;
  std::optional<int> status;
  const Clock::time_point began = Clock::now();
};

/// A host of the job, with its current agent.
struct Seat {
  std::unique_ptr<RemoteAgent> agent;
  bool joined = false;                          ///< it has joined the job at least once
  std::optional<Clock::time_point> again = {};  ///< when to restart its agent
  RestartPause pause{first_pause, longest_pause};
};

std::string how_it_ended(const RemoteAgent& agent) {
  return concat(agent.over_ssh ? "its ssh " : "its agent ", describe_status(*agent.status));
}

/// Variables passed to every host: settings of libraries, and the variables of --export.
std::vector<std::string> variables_for(const LaunchCommand& command, const HostSlots& host) {
  std::vector<std::string> result;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view word = *at;
    const bool setting = word.starts_with("NCCL_") || word.starts_with("GLOO_") || word.starts_with("OMP_") ||
                         word.starts_with("PYTHONPATH=") || word.starts_with("LD_LIBRARY_PATH=") ||
                         word.starts_with("TESSERA_BACKEND=");
    if (setting) result.emplace_back(word);
  }
  if (const std::string devices = device_list(host); !devices.empty()) {
    result.push_back("CUDA_VISIBLE_DEVICES=" + devices);
  }
  for (const std::string& name : command.exports) {
    const char* value = name.find('=') == std::string::npos ? std::getenv(name.c_str()) : "";
    if (value == nullptr) throw InputError(concat("--export ", name, ": it is not set here; use --export NAME=VALUE"));
    result.push_back(name.find('=') == std::string::npos ? concat(name, "=", value) : name);
  }
  return result;
}

/// The whole job, until the last agent has exited.
class Job {
 public:
  Job(const LaunchCommand& command, const std::string& program)
      : command_(command),
        program_(program),
        out_(1),
        err_(2),
        options_(rendezvous()),
        secret_(command.secret_file.empty() ? make_secret() : read_secret_file(command.secret_file)),
        seats_(command.hosts.size()) {
    for (std::size_t k = 0; k < seats_.size(); ++k) start(static_cast<int>(k));
  }

  int run() {
    while (
        std::any_of(seats_.begin(), seats_.end(), [](const Seat& seat) { return !seat.agent->status || seat.again; })) {
      wait();
      while (const int signal = signals_.next()) on_signal(signal);
      for (std::size_t k = 0; k < seats_.size(); ++k) {
        RemoteAgent& agent = *seats_[k].agent;
        read_output(agent);
        if (!agent.status && (agent.status = agent.process.status())) on_end(static_cast<int>(k));
      }
      if (next_push_ && Clock::now() >= *next_push_) push();
      for (std::size_t k = 0; k < seats_.size(); ++k) {
        if (seats_[k].again && Clock::now() >= *seats_[k].again) start_again(static_cast<int>(k));
      }
      out_.write_some();
      err_.write_some();
    }
    out_.flush(5);
    err_.flush(5);
    return code_;
  }

 private:
  LaunchOptions rendezvous() const {
    LaunchOptions options = command_.options;
    const bool loopback = is_this_host(options.master_addr);
    for (const HostSlots& host : command_.hosts) {
      if (command_.hosts.size() > 1 && loopback && !is_this_host(without_user(host.name))) {
        throw InputError(
            concat("host ", host.name, " cannot reach machine 0 at ", options.master_addr,
                   ": list the first host under a name that the others can resolve, or use --main_process_ip"));
      }
    }
    if (command_.hosts.size() == 1) {
      options.master_addr = "127.0.0.1";
    } else if (options.master_port == 0) {
      options.master_port = loopback
                                ? choose_port(options.master_addr)
                                : 20'000 + static_cast<int>(Clock::now().time_since_epoch().count() / 1000 % 10'000);
    }
    return options;
  }

  void start(int machine) {
    LaunchOptions options = options_;
    const HostSlots& host = command_.hosts[static_cast<std::size_t>(machine)];
    options.machine_rank = machine;
    options.num_processes = static_cast<int>(host.slots.size());
    options.host_label = without_user(host.name);
    std::vector<std::string> words = {program_, "launch", "--secret_from_stdin"};
    for (const std::string& word : words_of(options)) words.push_back(word);
    words.push_back("--");
    words.insert(words.end(), command_.command.begin(), command_.command.end());

    const bool over_ssh = machine > 0 || !is_this_host(without_user(host.name));
    ProcessOptions process;
    process.command = std::move(words);
    if (over_ssh) {
      char folder[4096];
      if (::getcwd(folder, sizeof folder) == nullptr) throw InputError(concat("getcwd: ", std::strerror(errno)));
      // Only the agents can judge when the network has been down for too long, and a lost one may return by itself.
      const double patience = options.host_timeout + (options.max_restarts > 0 ? FleetOptions().join_seconds : 10);
      process.command =
          ssh_command(host.name, remote_line(folder, variables_for(command_, host), process.command), patience);
    } else {
      for (const std::string& word : variables_for(command_, host)) {
        process.environment.emplace_back(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
      }
    }
    int in[2];
    if (::pipe2(in, O_CLOEXEC) != 0) throw InputError(concat("pipe: ", std::strerror(errno)));
    const UniqueFd read_end(in[0]);
    UniqueFd write_end(in[1]);
    process.stdin_fd = read_end.get();
    process.capture_stdout = process.capture_stderr = true;
    const std::string line = secret_digits(secret_) + "\n";  // fits into the pipe, so it need not be read yet
    if (::write(write_end.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      throw InputError(concat("pipe: ", std::strerror(errno)));
    }
    ::fcntl(write_end.get(), F_SETFL, O_NONBLOCK);
    Seat& seat = seats_[static_cast<std::size_t>(machine)];
    seat.agent = std::make_unique<RemoteAgent>(host.name, over_ssh, process, std::move(write_end), out_, err_);
    seat.agent->err.keep([&seat, joined = joined_line(machine)](std::string_view said) {
      seat.joined = seat.joined || said == joined;
      return said == joined;
    });
  }

  void start_again(int machine) {
    Seat& seat = seats_[static_cast<std::size_t>(machine)];
    seat.again.reset();
    say(concat("host ", seat.agent->host, " (machine ", machine, "): ", how_it_ended(*seat.agent),
               "; starting its agent again over ssh"));
    start(machine);
    started_again_ = true;
  }

  /// Whether the job continues after this exit of an agent: not after a final one, or one that would only repeat
  /// itself.
  bool may_start_again(int machine, int code) const {
    const Seat& seat = seats_[static_cast<std::size_t>(machine)];
    const bool job_runs = !next_push_ && !seats_[0].agent->status;
    const bool final = code == 0 || code == static_cast<int>(ExitCode::bad_input) ||
                       code == static_cast<int>(ExitCode::stopped) || code == 130 || code == 128 + SIGTERM;
    return machine > 0 && command_.options.max_restarts > 0 && job_runs && seat.joined && !final;
  }

  void wait() {
    std::vector<pollfd> watched = {{signals_.fd(), POLLIN, 0}};
    if (!out_.empty()) watched.push_back({1, POLLOUT, 0});
    if (!err_.empty()) watched.push_back({2, POLLOUT, 0});
    for (Seat& seat : seats_) {
      RemoteAgent& agent = *seat.agent;
      if (agent.status) continue;
      watched.push_back({agent.process.pidfd(), POLLIN, 0});
      if (agent.process.stdout_pipe() && !out_.full())
        watched.push_back({agent.process.stdout_pipe().get(), POLLIN, 0});
      if (agent.process.stderr_pipe() && !err_.full())
        watched.push_back({agent.process.stderr_pipe().get(), POLLIN, 0});
    }
    const bool pending = std::any_of(seats_.begin(), seats_.end(), [](const Seat& seat) { return seat.again; });
    const bool looks_soon = pending || next_push_ || out_.full() || err_.full();  // this may reveal that the reader is
                                                                                  // gone
    ::poll(watched.data(), watched.size(), looks_soon ? 100 : 60'000);
  }

  void read_output(RemoteAgent& agent) {
    read_pipe(agent.process.stdout_pipe(), agent.out, out_);
    read_pipe(agent.process.stderr_pipe(), agent.err, err_);
  }
  static void read_pipe(UniqueFd& pipe, LinePrefixer& lines, const OutputSink& sink) {
    char buffer[1 << 16];
    std::size_t total = 0;
    while (pipe && !sink.full() && total < (std::size_t{1} << 20)) {
      const ssize_t got = ::read(pipe.get(), buffer, sizeof buffer);
      if (got > 0) {
        total += static_cast<std::size_t>(got);
        lines.feed({buffer, static_cast<std::size_t>(got)});
      } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
        lines.finish();
        pipe.reset();
      } else if (errno == EAGAIN) {
        return;
      }
    }
  }

  void say(const std::string& text) { err_.append(concat("[launch] ", text, "\n")); }

  /// The agents pass it on to their ranks; a second signal means "at once".
  void on_signal(int signal) {
    say(concat(signal_name(signal), " received; passing it on to ", seats_.size(), " hosts"));
    stopping_ = true;
    tell_all(signal == SIGINT ? 'i' : 't');
    stop_after(command_.options.stop_seconds + 5);
  }

  void on_end(int machine) {
    Seat& seat = seats_[static_cast<std::size_t>(machine)];
    RemoteAgent& agent = *seat.agent;
    for (int i = 0; i < 16; ++i)
      read_output(agent);  // reads no more than the pipes contain, because processes that it left running may continue
                           // to write
    agent.out.finish();
    agent.err.finish();
    agent.in.reset();
    const int status = *agent.status;
    const int code = exit_code_of(status);
    if (may_start_again(machine, code)) {
      const bool lived = Clock::now() - agent.began >= to_duration(lived_long);
      seat.again = Clock::now() + std::max(to_duration(first_pause), to_duration(seat.pause.next(lived)));
      return;
    }
    const bool gone = (code == 255 || WIFSIGNALED(status)) && agent.over_ssh, lost = gone && !next_push_;
    if (lost && !seat.joined) {
      say(concat("host ", agent.host,
                 ": ssh failed (its message is above). It must log in there without a prompt: ssh ", agent.host,
                 " true"));
    } else if (lost && machine == 0) {
      say(concat("host ", agent.host, " is machine 0, whose agent hosts the job's store: ", how_it_ended(agent),
                 ". The job ends with it: start the job again, with --resume_from_checkpoint auto"));
    } else if (lost && command_.options.max_restarts == 0) {
      say(concat("host ", agent.host, " (machine ", machine, "): ", how_it_ended(agent),
                 ", and the job ends. Use --max_restarts N to have its agent started again"));
    }
    if (machine == 0) {
      for (Seat& other : seats_) other.again.reset();
      if (started_again_) stop_after(std::chrono::duration<double>(last_agents_after).count());
    }
    if (code == 0 || code_ != 0 || (gone && stopping_ && machine > 0)) return;  // the others' exit code counts
    code_ = code == 255 ? static_cast<int>(ExitCode::failed) : code;
    // The agents agree among themselves; this covers agents that never joined.
    const bool saving = code == static_cast<int>(ExitCode::stopped) || code == 130 || code == 128 + SIGTERM;
    stop_after(saving ? command_.options.stop_seconds + 5 : code == 255 ? 1 : 6);
  }

  void stop_after(double seconds) {
    const auto at = Clock::now() + to_duration(seconds);
    for (Seat& seat : seats_) seat.again.reset();
    next_push_ = next_push_ ? std::min(*next_push_, at) : at;
  }

  /// Escalates at each call: SIGTERM twice, the end of standard input, SIGKILL to local processes.
  void push() {
    ++pushes_;
    if (pushes_ <= 2) tell_all('t');
    for (Seat& seat : seats_) {
      RemoteAgent& agent = *seat.agent;
      if (pushes_ == 3) agent.in.reset();
      if (pushes_ > 3 && !agent.status) agent.process.signal_group(SIGKILL);
    }
    next_push_ = Clock::now() + std::chrono::seconds(2);
  }

  void tell_all(char byte) {
    for (Seat& seat : seats_) {
      RemoteAgent& agent = *seat.agent;
      if (agent.in && ::write(agent.in.get(), &byte, 1) != 1 && errno != EAGAIN) agent.in.reset();
    }
  }

  const LaunchCommand& command_;
  const std::string program_;
  SignalQueue signals_;
  OutputSink out_, err_;
  const LaunchOptions options_;
  const Secret secret_;
  std::vector<Seat> seats_;  ///< by machine rank
  bool started_again_ = false;
  bool stopping_ = false;  ///< on request
  int code_ = 0;
  int pushes_ = 0;
  std::optional<Clock::time_point> next_push_;
};

}  // namespace

bool is_this_host(const std::string& name) {
  char own[256] = {};
  return name == "localhost" || name == "::1" || name.starts_with("127.") ||
         (::gethostname(own, sizeof own - 1) == 0 && name == own);
}

std::vector<std::string> ssh_command(const std::string& host, const std::string& line, double patience) {
  constexpr int interval = 5;
  std::vector<std::string> words;
  const char* own = std::getenv("TESSERA_SSH");
  for (const std::string& word : split(own == nullptr || *own == 0 ? "ssh" : own, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  const int tries = std::max(3, static_cast<int>(std::min(patience, 1e6) / interval));
  for (const std::string& option : {std::string("BatchMode=yes"), std::string("ConnectTimeout=10"),
                                    concat("ServerAliveInterval=", interval), concat("ServerAliveCountMax=", tries)}) {
    words.insert(words.end(), {"-o", option});
  }
  words.push_back("-T");
  words.insert(words.end(), {"--", host, line});
  return words;
}

std::string remote_line(const std::string& folder, const std::vector<std::string>& variables,
                        const std::vector<std::string>& command) {
  std::string line = concat("cd ", quote_for_shell(folder), " && exec");
  if (!variables.empty()) line += " env";
  for (const std::string& word : variables) line += " " + quote_for_shell(word);
  for (const std::string& word : command) line += " " + quote_for_shell(word);
  return line;
}

Secret secret_from_stdin() {
  std::string line;
  for (char c = 0; line.size() <= 64;) {
    const ssize_t got = ::read(0, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1 || c == '\n') break;
    line += c;
  }
  return parse_secret(line, "standard input");
}

void obey_stdin(double patience, int end_signal) {
  const pid_t agent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw InputError(concat("fork: ", std::strerror(errno)));
  if (child > 0) {
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null || ::dup2(null.get(), 0) < 0) throw InputError(concat("/dev/null: ", std::strerror(errno)));
    return;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != agent) ::_exit(0);
  ::setpgid(0, 0);
  ::close(1);  // a reader of our output waits until it is closed
  ::close(2);
  for (;;) {
    char byte = 0;
    const ssize_t got = ::read(0, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    ::kill(agent, got != 1 ? end_signal : byte == 'i' ? SIGINT : SIGTERM);
    if (got == 1) continue;
    const auto whole = static_cast<unsigned>(patience);
    for (unsigned left = whole + 1; left > 0;) left = ::sleep(left);
    ::kill(agent, SIGKILL);
    ::_exit(0);
  }
}

std::string joined_line(int machine) { return concat("[agent] machine ", machine, " is in the job"); }

int run_over_ssh(const LaunchCommand& command, const std::string& program) {
  ::signal(SIGPIPE, SIG_IGN);  // an agent that has exited reads no more signals
  return Job(command, program).run();
}

}  // namespace tessera::launch
