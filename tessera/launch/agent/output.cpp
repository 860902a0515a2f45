#include <tessera/launch/agent/output.h>

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace tessera::launch {

void OutputSink::write_some() {
  std::size_t done = 0;
  while (done < pending_.size()) {
    pollfd ready{fd_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) break;
    // A pipe that polls writable takes PIPE_BUF bytes without blocking, and not necessarily more.
    const ssize_t written =
        ::write(fd_, pending_.data() + done, std::min<std::size_t>(pending_.size() - done, PIPE_BUF));
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      if (errno != EAGAIN) done = pending_.size();
      break;
    }
  }
  pending_.erase(0, done);
}

void OutputSink::flush(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  for (write_some(); !pending_.empty() && Clock::now() < deadline; write_some()) {
    pollfd ready{fd_, POLLOUT, 0};
    ::poll(&ready, 1, 50);
  }
}

void LinePrefixer::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    if (end != std::string_view::npos) {
      if (partial_.empty()) {
        emit(bytes.substr(0, end));
      } else {
        partial_.append(bytes.substr(0, end));
        emit(partial_);
        partial_.clear();
      }
      bytes.remove_prefix(end + 1);
      continue;
    }
    partial_.append(bytes);
    bytes = {};
    if (partial_.size() > max_line) finish();
  }
}

void LinePrefixer::finish() {
  if (partial_.empty()) return;
  emit(partial_);
  partial_.clear();
}

void LinePrefixer::emit(std::string_view line) {
  sink_->append(prefix_);
  sink_->append(line);
  sink_->append("\n");
}

namespace {

constexpr std::size_t kept_lines = 50, kept_bytes = 1000;

/// "[node7 rank 3] ". Where rank 0 draws a progress line on the terminal, other lines first clear it.
std::string line_prefix(const LaunchOptions& options, int rank, int fd) {
  if (!options.prefix_output) return "";
  const bool over_progress = !options.prefix_rank0 && ::isatty(fd) != 0;
  return concat(over_progress ? "\r\x1b[K" : "", "[", options.host_label, options.host_label.empty() ? "" : " ",
                "rank ", rank, "] ");
}

}  // namespace

std::string log_folder(const LaunchOptions& options, int generation) {
  return options.max_restarts > 0 ? path_join(options.log_dir, concat("generation-", generation)) : options.log_dir;
}

RankOutput::RankOutput(const LaunchOptions& options, int rank, int local_rank, int generation, OutputSink& out,
                       OutputSink& err)
    : out_(line_prefix(options, rank, out.fd()), out), err_(line_prefix(options, rank, err.fd()), err) {
  const auto own = options.tee_of_rank.find(local_rank);
  const int tee = options.log_dir.empty() ? 3 : own == options.tee_of_rank.end() ? options.tee : own->second;
  const bool chosen = options.shown_ranks.empty() || std::find(options.shown_ranks.begin(), options.shown_ranks.end(),
                                                               local_rank) != options.shown_ranks.end();
  shown_[0] = chosen && (tee & 1) != 0;
  shown_[1] = chosen && (tee & 2) != 0;
  const bool raw = !options.prefix_output || (local_rank == 0 && !options.prefix_rank0);
  captured_ = !raw || !options.log_dir.empty() || !chosen;
  if (captured_ && raw) {
    out_ = LinePrefixer("", out);
    err_ = LinePrefixer("", err);
  }
  if (options.log_dir.empty()) return;
  const std::string folder = log_folder(options, generation);
  make_folders(folder);
  log_path_ = path_join(folder, concat("rank-", rank, ".log"));
  log_.reset(::open(log_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644));
  if (!log_) throw InputError(concat("--log_dir: cannot write ", log_path_, ": ", std::strerror(errno)));
}

void RankOutput::feed(std::string_view bytes, LinePrefixer& lines, int stream) {
  write_log(bytes);
  remember(bytes, partial_[stream]);
  if (shown_[stream]) lines.feed(bytes);
}

void RankOutput::write_log(std::string_view bytes) {
  while (log_ && !bytes.empty()) {
    const ssize_t written = ::write(log_.get(), bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      // A full disk must not end the job; from here on the lines come to the terminal instead.
      err_.feed(concat("cannot write ", log_path_, ": ", std::strerror(errno), "; its lines come here from now on\n"));
      log_.reset();
      shown_[0] = shown_[1] = true;
    }
  }
}

void RankOutput::remember(std::string_view bytes, std::string& partial) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    const auto piece = bytes.substr(0, end);
    partial.append(piece.substr(0, kept_bytes - std::min(kept_bytes, partial.size())));
    if (end == std::string_view::npos) return;
    last_.push_back(std::move(partial));
    partial.clear();
    if (last_.size() > kept_lines) last_.pop_front();
    bytes.remove_prefix(end + 1);
  }
}

void RankOutput::finish() {
  out_.finish();
  err_.finish();
  for (std::string& partial : partial_) {
    if (!partial.empty()) last_.push_back(std::move(partial));
    partial.clear();
  }
}

bool RankOutput::has_shown(std::string_view text) const {
  if (!captured_) return true;
  const std::string_view first_line = text.substr(0, std::min(text.find('\n'), std::size_t{900}));
  return shown_[1] && std::any_of(last_.begin(), last_.end(),
                                  [&](const std::string& line) { return line.find(first_line) != std::string::npos; });
}

std::vector<std::string> RankOutput::last_lines(std::size_t count) const {
  const std::size_t first = last_.size() - std::min(count, last_.size());
  return {last_.begin() + static_cast<std::ptrdiff_t>(first), last_.end()};
}

}  // namespace tessera::launch
