#include <tessera/launch/output.h>

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

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

}  // namespace tessera::launch
