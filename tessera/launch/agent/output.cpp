#include <tessera/launch/agent/output.h>

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/system/file_limit.h>
#include <tessera/base/text.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace tessera::launch {

namespace {

/// A second open file description of the pipe or terminal behind `fd`: O_NONBLOCK on the original one would affect
/// everyone who shares it. Empty for other files.
UniqueFd open_without_blocking(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0 || !(S_ISFIFO(info.st_mode) || ::isatty(fd) != 0)) return {};
  return UniqueFd(::open(concat("/proc/self/fd/", fd).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
}

/// Bytes that can be written without blocking once the descriptor polls writable: PIPE_BUF to a pipe, one to a
/// terminal.
std::size_t piece_without_blocking(int fd) { return ::isatty(fd) != 0 ? 1 : PIPE_BUF; }

}  // namespace

OutputSink::OutputSink(int fd, double patience)
    : fd_(fd),
      own_(open_without_blocking(fd)),
      piece_(own_ ? std::size_t{1} << 16 : piece_without_blocking(fd)),
      patience_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience))) {}

bool OutputSink::unread() const { return !pending_.empty() && Clock::now() - taken_ >= patience_; }

void OutputSink::append(std::string_view bytes) {
  if (pending_.empty()) taken_ = Clock::now();
  pending_.append(bytes);
}

bool OutputSink::drops(std::string_view bytes) {
  if (!dropping_ && pending_.size() > max_pending && unread()) {
    dropping_ = true;
    dropping_since_ = taken_;
  }
  if (dropping_) dropped_lines_ += static_cast<std::size_t>(std::count(bytes.begin(), bytes.end(), '\n'));
  return dropping_;
}

void OutputSink::append_line(std::string_view prefix, std::string_view line) {
  if (drops("\n")) return;
  append(prefix);
  append(line);
  append("\n");
}

void OutputSink::append_raw(std::string_view bytes) {
  if (!drops(bytes)) append(bytes);
}

void OutputSink::tell_dropped() {
  const double seconds = std::chrono::duration<double>(Clock::now() - dropping_since_).count();
  append(concat(pending_.empty() || pending_.back() == '\n' ? "" : "\n", "[agent] nobody read this output for ",
                format_real(seconds, 3), " s: ", dropped_lines_, dropped_lines_ == 1 ? " line" : " lines",
                " of the ranks were dropped (--log_dir DIR keeps all)\n"));
  dropping_ = false;
  dropped_lines_ = 0;
}

void OutputSink::tell_lost(int error) {
  if (error == EPIPE || fd_ == STDERR_FILENO || std::exchange(told_lost_, true)) return;
  log::warning("the output of the ranks cannot be written: ", write_error_text(error),
               "; lines are lost until it can be written again (--log_dir DIR keeps all)");
}

void OutputSink::write_some() {
  std::size_t done = 0;
  while (done < pending_.size()) {
    pollfd ready{fd_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) break;
    const ssize_t written =
        ::write(own_ ? own_.get() : fd_, pending_.data() + done, std::min(pending_.size() - done, piece_));
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      if (errno == EAGAIN) break;
      tell_lost(errno);
      done = pending_.size();
      break;
    }
  }
  if (done > 0) taken_ = Clock::now();
  pending_.erase(0, done);
  if (dropping_ && pending_.size() <= max_pending / 2) tell_dropped();
}

void OutputSink::flush(double seconds) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  for (write_some(); !pending_.empty() && Clock::now() < deadline; write_some()) {
    pollfd ready{fd_, POLLOUT, 0};
    ::poll(&ready, 1, 50);
  }
}

LinePrefixer LinePrefixer::raw(OutputSink& sink) {
  LinePrefixer prefixer("", sink);
  prefixer.raw_ = true;
  return prefixer;
}

void LinePrefixer::feed(std::string_view bytes) {
  if (raw_) {
    sink_->append_raw(bytes);
    return;
  }
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
  if (!kept_ || !kept_(line)) sink_->append_line(prefix_, line);
}

namespace {

constexpr std::size_t kept_lines = 50, kept_bytes = 1000;

/// "[node7 rank 3] ". When rank 0 draws a progress line on the terminal, other lines first clear it.
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
  // A rank that writes directly to a terminal would block while the terminal's output is stopped.
  captured_ = options.prefix_output || !options.log_dir.empty() || !chosen;
  if (captured_ && raw) {
    out_ = LinePrefixer::raw(out);
    err_ = LinePrefixer::raw(err);
    if (shown_[0] && ::isatty(out.fd()) != 0) terminals_ += "1";
    if (shown_[1] && ::isatty(err.fd()) != 0) terminals_ += "2";
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
      // A full disk must not end the job; the lines go to the terminal instead.
      err_.feed(concat("cannot write ", log_path_, ": ", write_error_text(errno), "; further lines are shown here\n"));
      log_.reset();
      shown_[0] = shown_[1] = true;
    }
  }
}

void RankOutput::remember(std::string_view bytes, std::string& partial) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    auto piece = bytes.substr(0, end);
    // Text that a progress line has overwritten is not worth keeping; "\r\n" ends a line.
    if (const auto drawn = piece.substr(0, piece.size() - piece.ends_with('\r')).rfind('\r');
        drawn != std::string_view::npos) {
      partial.clear();
      piece.remove_prefix(drawn + 1);
    }
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

std::string_view first_part(std::string_view message) {
  return message.substr(0, std::min(message.find('\n'), std::size_t{900}));
}

bool RankOutput::has_shown(std::string_view text) const {
  if (!captured_) return true;
  const std::string_view first_line = first_part(text);
  return shown_[1] && std::any_of(last_.begin(), last_.end(),
                                  [&](const std::string& line) { return line.find(first_line) != std::string::npos; });
}

std::vector<std::string> RankOutput::last_lines(std::size_t count) const {
  const std::size_t first = last_.size() - std::min(count, last_.size());
  return {last_.begin() + static_cast<std::ptrdiff_t>(first), last_.end()};
}

}  // namespace tessera::launch
