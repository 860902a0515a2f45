#include <tessera/wire/timeline.h>

#include <tessera/base/clock.h>
#include <tessera/base/text.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

namespace tessera::wire {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      result += ' ';
      continue;
    }
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string microseconds(std::int64_t ns) { return concat(ns / 1000, ".", std::to_string(1000 + ns % 1000).substr(1)); }

class Timeline {
 public:
  Timeline(const std::string& path, int rank) : file_(path), rank_(rank) {
    if (!file_) throw Failure(Code::system, concat("the timeline ", path, ": ", std::strerror(errno), "."));
    file_ << "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" << rank << ",\"args\":{\"name\":\"rank " << rank
          << "\"}}";
  }
  ~Timeline() { file_ << "\n]\n"; }

  void write(const Work& work, const std::string& group) {
    const auto [row, added] = rows_.try_emplace(group, static_cast<int>(rows_.size()));
    if (added) {
      file_ << ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":" << rank_ << ",\"tid\":" << row->second
            << ",\"args\":{\"name\":" << quoted(group) << "}}";
    }
    const std::int64_t now = monotonic_ns();
    for (const launch::Entry& entry : work.entries()) {
      file_ << ",\n{\"name\":\"" << launch::op_name(entry.op) << "\",\"ph\":\"X\",\"pid\":" << rank_
            << ",\"tid\":" << row->second << ",\"ts\":" << microseconds(entry.start_ns)
            << ",\"dur\":" << microseconds(now - entry.start_ns)
            << ",\"args\":{\"what\":" << quoted(launch::details(entry)) << ",\"bytes\":" << entry.payload_bytes;
      if (work.code() != Code::ok) file_ << ",\"error\":" << quoted(work.error());
      file_ << "}}";
    }
    file_.flush();
  }

 private:
  std::ofstream file_;
  const int rank_;
  std::map<std::string, int> rows_;
};

}  // namespace

void start_timeline(Journal& journal, const std::string& path, int rank) {
  stop_timeline(journal);
  const auto timeline = std::make_shared<Timeline>(path, rank);
  const std::lock_guard lock(journal.mutex);
  journal.on_end = [timeline](const Work& work, const std::string& group) { timeline->write(work, group); };
}

void stop_timeline(Journal& journal) {
  const std::lock_guard lock(journal.mutex);
  journal.on_end = nullptr;
}

}  // namespace tessera::wire
