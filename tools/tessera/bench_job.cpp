#include <tools/tessera/bench_job.h>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/format/jsonl.h>
#include <tessera/launch/agent/process.h>
#include <tessera/launch/agent/signal_queue.h>
#include <tools/tessera/commands.h>
#include <tools/tessera/top/snapshot.h>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <numeric>

namespace tessera::tool {
namespace {

/// Seconds per step that each rank was blocked in collectives, read from the board.
class BlockedByRank {
 public:
  explicit BlockedByRank(int warmup) : warmup_(warmup) {}

  /// Reads the board, which is in the memory of the job `pid`; searches for it periodically until it is found.
  void look(pid_t pid) {
    const std::int64_t now = monotonic_ns();
    if (now < next_ns_) return;
    const Snapshot snapshot = watcher_.take(pid, /*look=*/!found_);
    for (const JobView& job : snapshot.jobs) {
      found_ = found_ || std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankView& r) { return r.step > 0; });
      for (const RankView& rank : job.ranks) {
        if (rank.step < warmup_) continue;
        auto [place, is_new] = seen_.try_emplace(rank.rank, Seen{rank.step, rank.comm_ns, 0, 0});
        if (!is_new) {
          place->second.steps = rank.step - place->second.first_step;
          place->second.blocked_ns = rank.comm_ns - place->second.first_ns;
        }
      }
    }
    next_ns_ = now + (found_ ? 50'000'000 : 300'000'000);
  }

  /// The mean over the ranks minus the minimum; 0 if it was not observed.
  double imbalance() const {
    std::vector<double> blocked;
    for (const auto& [rank, seen] : seen_)
      if (seen.steps > 0)
        blocked.push_back(static_cast<double>(seen.blocked_ns) * 1e-9 / static_cast<double>(seen.steps));
    if (blocked.size() < 2 || blocked.size() != seen_.size()) return 0;
    const double mean = std::accumulate(blocked.begin(), blocked.end(), 0.0) / static_cast<double>(blocked.size());
    return mean - *std::min_element(blocked.begin(), blocked.end());
  }

 private:
  struct Seen {
    std::int64_t first_step, first_ns, steps, blocked_ns;
  };
  int warmup_;
  BoardWatcher watcher_;
  std::map<int, Seen> seen_;
  bool found_ = false;
  std::int64_t next_ns_ = 0;
};

/// Appends the available bytes of a pipe to `text`.
void drain(launch::UniqueFd& pipe, std::string& text) {
  char buffer[4096];
  while (pipe) {
    const ssize_t got = ::read(pipe.get(), buffer, sizeof buffer);
    if (got > 0) {
      text.append(buffer, static_cast<std::size_t>(got));
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else {
      if (got == 0 || errno != EAGAIN) pipe.reset();
      return;
    }
  }
}

std::string last_lines(const std::string& text, std::size_t count) {
  std::vector<std::string> lines = split(trim(text), '\n');
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return join(lines, "\n");
}

JobFigures read_figures(const std::string& path, int warmup) {
  std::vector<double> times;
  JobFigures sums;
  format::JsonlReader reader(path);
  while (const auto line = reader.next()) {
    if (line->find("event") != nullptr || line->at("step").as_int() <= warmup) continue;
    const Value& phases = line->at("phase_ms");
    const auto phase = [&](const char* name) { return phases.at(name).as_real() * 1e-3; };
    const double seconds = line->at("step_time_ms").as_real() * 1e-3;
    times.push_back(seconds);
    sums.step += seconds;
    sums.tokens_per_second += line->at("tokens_per_second").as_real() * seconds;
    sums.compute += phase("forward") + phase("backward") + phase("optimizer");
    sums.input += phase("data");
    sums.communication += phase("communication");
  }
  if (times.empty()) throw Error(concat(path, " contains no step after the ", warmup, " warm-up steps"));
  const auto count = static_cast<double>(times.size());
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  JobFigures figures;
  figures.step = times[times.size() / 2];
  figures.tokens_per_second = sums.tokens_per_second / count / figures.step;
  // The parts are means, scaled so that they add up to the median step. Collectives between two steps (those of the
  // log) are counted as communication but not in the step's time, so they are cut off.
  const double scale = figures.step / sums.step;
  figures.compute = std::min(sums.compute * scale, figures.step);
  figures.input = std::min(sums.input * scale, figures.step - figures.compute);
  figures.communication = std::min(sums.communication * scale, figures.step - figures.compute - figures.input);
  figures.other = figures.step - figures.compute - figures.input - figures.communication;
  return figures;
}

}  // namespace

JobFigures run_job(const std::vector<std::string>& arguments, const std::string& output, int warmup) {
  launch::ProcessOptions options;
  options.command = {own_program(), "train"};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  options.capture_stdout = options.capture_stderr = true;
  launch::SignalQueue signals;
  launch::Process process(options);
  BlockedByRank blocked(warmup);
  std::string out, err;
  std::optional<int> status;
  while (!status) {
    pollfd watched[] = {{signals.fd(), POLLIN, 0},
                        {process.pidfd(), POLLIN, 0},
                        {process.stdout_pipe().get(), POLLIN, 0},
                        {process.stderr_pipe().get(), POLLIN, 0}};
    ::poll(watched, 4, 50);
    if (signals.next() != 0) throw Error("interrupted", ExitCode::interrupted);  // ~Process() ends the run
    drain(process.stdout_pipe(), out);
    drain(process.stderr_pipe(), err);
    blocked.look(process.pid());
    status = process.status();
  }
  drain(process.stderr_pipe(), err);
  const int code = launch::exit_code_of(*status);
  if (code != 0)
    throw Error(concat("tessera train ", launch::describe_status(*status), ":\n", last_lines(err, 12)),
                code == static_cast<int>(ExitCode::bad_input) ? ExitCode::bad_input : ExitCode::failed);
  JobFigures figures = read_figures(path_join(output, "metrics.jsonl"), warmup);
  figures.imbalance = std::min(blocked.imbalance(), figures.communication);
  return figures;
}

}  // namespace tessera::tool
