#include <tessera/comm/recorder.h>

#include <algorithm>
#include <utility>

namespace tessera::comm {
namespace {
thread_local std::int64_t moved_by_this_thread = -1;
thread_local const Tag* innermost = nullptr;
}  // namespace

void report_moved(std::int64_t bytes) {
  moved_by_this_thread = std::max<std::int64_t>(moved_by_this_thread, 0) + bytes;
}
std::int64_t take_moved() { return std::exchange(moved_by_this_thread, -1); }

Tag::Tag(std::string text) : text_(std::move(text)), outer_(innermost) { innermost = this; }
Tag::~Tag() { innermost = outer_; }

const std::string& Tag::current() {
  static const std::string none;
  return innermost == nullptr ? none : innermost->text_;
}

}  // namespace tessera::comm
