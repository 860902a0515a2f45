#include <tessera/launch/agent/local_rank.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

namespace tessera::launch {
namespace {

ProcessOptions captured(ProcessOptions options, const RankOutput& output) {
  options.capture_stdout = options.capture_stderr = output.captured();
  if (output.captured())
    options.environment.emplace_back("TESSERA_TERMINAL",
                                     output.terminals().empty() ? std::nullopt : std::optional(output.terminals()));
  return options;
}

template <class Feed>
void read_pipe(UniqueFd& pipe, const OutputSink& sink, bool all, const Feed& feed) {
  char buffer[1 << 16];
  std::size_t total = 0;
  // A rank that never stops writing must not keep the agent from serving the others.
  while (pipe && total < (std::size_t{1} << 20) && (all || !sink.full())) {
    const ssize_t got = ::read(pipe.get(), buffer, sizeof buffer);
    if (got > 0) {
      total += static_cast<std::size_t>(got);
      feed(std::string_view(buffer, static_cast<std::size_t>(got)));
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else {
      if (got == 0 || errno != EAGAIN) pipe.reset();
      return;
    }
  }
}

}  // namespace

LocalRank::LocalRank(Host& host, ProcessOptions options, int rank, int local_rank, int generation)
    : host(&host),
      rank(rank),
      local_rank(local_rank),
      output(host.options, rank, local_rank, generation, host.out, host.err),
      process(captured(std::move(options), output)) {}

std::string LocalRank::name() const {
  return rank_name(rank, process.pid(), on_board() ? read_text(slot().place) : std::string());
}

bool LocalRank::on_board() const {
  return slot().heartbeat_ns.load() != 0 && slot().generation.load() == host->board.header().generation.load();
}

pid_t LocalRank::watched_pid() const {
  const pid_t shown = slot().pid.load();
  return shown > 0 && ::getpgid(shown) == process.pid() ? shown : process.pid();
}

void LocalRank::watch_output(std::vector<pollfd>& descriptors) {
  if (process.stdout_pipe() && !host->out.full()) descriptors.push_back({process.stdout_pipe().get(), POLLIN, 0});
  if (process.stderr_pipe() && !host->err.full()) descriptors.push_back({process.stderr_pipe().get(), POLLIN, 0});
}

void LocalRank::read_output(bool all) {
  read_pipe(process.stdout_pipe(), host->out, all, [&](std::string_view bytes) { output.feed_out(bytes); });
  read_pipe(process.stderr_pipe(), host->err, all, [&](std::string_view bytes) { output.feed_err(bytes); });
}

void LocalRank::ask(int signal, AgentClock::time_point at) {
  process.signal_group(signal);
  asked = true;
  hurried |= !status;
  kill_at = kill_at ? std::min(*kill_at, at) : at;
}

void LocalRank::kill() {
  process.signal_group(SIGKILL);
  asked = true;
  killed |= !status;
  kill_at.reset();
}

void LocalRank::collect() {
  read_output(true);
  output.finish();
  host->watchdog.forget(process.pid());
  process.reap();
  gone = true;
}

}  // namespace tessera::launch
