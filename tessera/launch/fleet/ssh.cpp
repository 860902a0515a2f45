#include <tessera/launch/fleet/ssh.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/output.h>
#include <tessera/launch/agent/ports.h>
#include <tessera/launch/agent/process.h>
#include <tessera/launch/agent/signal_queue.h>
#include <tessera/launch/agent/start.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <list>
#include <optional>

extern char** environ;

namespace tessera::launch {

namespace {

using Clock = std::chrono::steady_clock;

std::string without_user(const std::string& host) { return host.substr(host.find('@') + 1); }

/// The agent on one host as we see it: an ssh process, or the agent itself.
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
};

/// Variables that go along to every host: settings of the libraries, and what --export names.
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
    if (value == nullptr) throw InputError(concat("--export ", name, ": it is not set here; give NAME=VALUE"));
    result.push_back(name.find('=') == std::string::npos ? concat(name, "=", value) : name);
  }
  return result;
}

/// Everything that runs until the last agent has ended.
class Job {
 public:
  Job(const LaunchCommand& command, const std::string& program) : command_(command), out_(1), err_(2) {
    LaunchOptions options = rendezvous();
    const Secret secret = command.secret_file.empty() ? make_secret() : read_secret_file(command.secret_file);
    for (std::size_t k = 0; k < command.hosts.size(); ++k) start(static_cast<int>(k), options, secret, program);
  }

  int run() {
    while (std::any_of(agents_.begin(), agents_.end(), [](auto& agent) { return !agent.status; })) {
      wait();
      while (const int signal = signals_.next()) on_signal(signal);
      for (RemoteAgent& agent : agents_) {
        read_output(agent);
        if (!agent.status && (agent.status = agent.process.status())) on_end(agent);
      }
      if (next_push_ && Clock::now() >= *next_push_) push();
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
        throw InputError(concat("host ", host.name, " cannot reach machine 0 at ", options.master_addr,
                                ": name the first host as the others know it, or give --main_process_ip"));
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

  void start(int machine, LaunchOptions options, const Secret& secret, const std::string& program) {
    const HostSlots& host = command_.hosts[static_cast<std::size_t>(machine)];
    options.machine_rank = machine;
    options.num_processes = static_cast<int>(host.slots.size());
    options.host_label = without_user(host.name);
    std::vector<std::string> words = {program, "launch", "--secret_from_stdin"};
    for (const std::string& word : words_of(options)) words.push_back(word);
    words.push_back("--");
    words.insert(words.end(), command_.command.begin(), command_.command.end());

    const bool over_ssh = machine > 0 || !is_this_host(without_user(host.name));
    ProcessOptions process;
    process.command = std::move(words);
    if (over_ssh) {
      char folder[4096];
      if (::getcwd(folder, sizeof folder) == nullptr) throw InputError(concat("getcwd: ", std::strerror(errno)));
      process.command = ssh_command(host.name, remote_line(folder, variables_for(command_, host), process.command));
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
    const std::string line = secret_digits(secret) + "\n";  // fits into the pipe: nobody needs to read yet
    if (::write(write_end.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      throw InputError(concat("pipe: ", std::strerror(errno)));
    }
    ::fcntl(write_end.get(), F_SETFL, O_NONBLOCK);
    agents_.emplace_back(host.name, over_ssh, process, std::move(write_end), out_, err_);
  }

  void wait() {
    std::vector<pollfd> watched = {{signals_.fd(), POLLIN, 0}};
    if (!out_.empty()) watched.push_back({1, POLLOUT, 0});
    if (!err_.empty()) watched.push_back({2, POLLOUT, 0});
    for (RemoteAgent& agent : agents_) {
      if (agent.status) continue;
      watched.push_back({agent.process.pidfd(), POLLIN, 0});
      if (agent.process.stdout_pipe() && !out_.full())
        watched.push_back({agent.process.stdout_pipe().get(), POLLIN, 0});
      if (agent.process.stderr_pipe() && !err_.full())
        watched.push_back({agent.process.stderr_pipe().get(), POLLIN, 0});
    }
    const bool looks_soon = next_push_ || out_.full() || err_.full();  // a reader may turn out to be away
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

  /// The agents pass it on to their ranks, and take a second one as "at once".
  void on_signal(int signal) {
    say(concat(signal_name(signal), " received; passing it on to ", agents_.size(), " hosts"));
    tell_all(signal == SIGINT ? 'i' : 't');
    stop_after(command_.options.stop_seconds + 5);
  }

  void on_end(RemoteAgent& agent) {
    for (int i = 0; i < 16; ++i) read_output(agent);  // at most what the pipes hold; what it left running may write on
    agent.out.finish();
    agent.err.finish();
    agent.in.reset();
    const int status = *agent.status;
    const int code = exit_code_of(status);
    if (code == 255 && agent.over_ssh) {
      say(concat("host ", agent.host,
                 ": ssh failed (its message is above). It must log in there without a question: ssh ", agent.host,
                 " true"));
    }
    if (code == 0 || code_ != 0) return;
    code_ = code == 255 ? static_cast<int>(ExitCode::failed) : code;
    // The agents agree among themselves; this is for those that never met.
    const bool saving = code == static_cast<int>(ExitCode::stopped) || code == 130 || code == 128 + SIGTERM;
    stop_after(saving ? command_.options.stop_seconds + 5 : code == 255 ? 1 : 6);
  }

  void stop_after(double seconds) {
    const auto at = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    next_push_ = next_push_ ? std::min(*next_push_, at) : at;
  }

  /// Firmer each time: SIGTERM twice, the end of standard input, SIGKILL to what runs here.
  void push() {
    ++pushes_;
    if (pushes_ <= 2) tell_all('t');
    for (RemoteAgent& agent : agents_) {
      if (pushes_ == 3) agent.in.reset();
      if (pushes_ > 3 && !agent.status) agent.process.signal_group(SIGKILL);
    }
    next_push_ = Clock::now() + std::chrono::seconds(2);
  }

  void tell_all(char byte) {
    for (RemoteAgent& agent : agents_) {
      if (agent.in && ::write(agent.in.get(), &byte, 1) != 1 && errno != EAGAIN) agent.in.reset();
    }
  }

  const LaunchCommand& command_;
  SignalQueue signals_;
  OutputSink out_, err_;
  std::list<RemoteAgent> agents_;
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

std::vector<std::string> ssh_command(const std::string& host, const std::string& line) {
  std::vector<std::string> words;
  const char* own = std::getenv("TESSERA_SSH");
  for (const std::string& word : split(own == nullptr || *own == 0 ? "ssh" : own, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  for (const char* word : {"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5"}) {
    words.push_back(word);
  }
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

void obey_stdin(double patience) {
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
  ::close(1);  // whoever reads our output waits for its end
  ::close(2);
  for (;;) {
    char byte = 0;
    const ssize_t got = ::read(0, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    ::kill(agent, got == 1 && byte == 'i' ? SIGINT : SIGTERM);
    if (got == 1) continue;
    const auto whole = static_cast<unsigned>(patience);
    for (unsigned left = whole + 1; left > 0;) left = ::sleep(left);
    ::kill(agent, SIGKILL);
    ::_exit(0);
  }
}

int run_over_ssh(const LaunchCommand& command, const std::string& program) {
  ::signal(SIGPIPE, SIG_IGN);  // an agent that ended reads no more signals
  return Job(command, program).run();
}

}  // namespace tessera::launch
