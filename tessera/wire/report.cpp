// World::report(): the facts needed to diagnose a job that hangs.
#include <tessera/base/clock.h>
#include <tessera/base/text.h>
#include <tessera/wire/world.h>

#include <sstream>

namespace tessera::wire {
namespace {

std::string age_of(std::int64_t start_ns) { return format_real(seconds_since(start_ns), 3) + " s"; }

std::string megabytes(std::int64_t bytes) { return format_real(static_cast<double>(bytes) * 1e-6, 4) + " MB"; }

}  // namespace

std::string World::report() {
  std::ostringstream text;
  text << "rank " << rank() << " of " << size() << " in world '" << options_.name << "' on "
       << host_name(host_of(rank())) << "\n";
  std::vector<std::weak_ptr<Group>> groups;
  {
    const std::lock_guard lock(mutex_);
    groups = groups_;
  }
  for (const auto& weak : groups) {
    const auto group = weak.lock();
    if (!group) continue;
    text << "group '" << group->name() << "': rank " << group->rank() << " of " << group->size() << ", "
         << group->transport();
    try {
      group->check();
    } catch (const std::exception& error) {
      text << ", unusable: " << error.what();
    }
    const auto works = group->open_works();
    text << (works.empty() ? ", nothing in flight\n" : "\n");
    for (const auto& work : works) {
      const auto entries = work->entries();
      for (std::size_t i = 0; i < entries.size() && i < 4; ++i) {
        text << "  in flight for " << age_of(entries[i].start_ns) << ": " << launch::describe(entries[i]) << "\n";
      }
      if (entries.size() > 4) text << "  and " << entries.size() - 4 << " more of this work\n";
    }
  }
  const auto last = journal_->recorder.last(8);
  if (!last.empty()) text << "last operations:\n";
  for (const launch::Entry& entry : last) {
    const char* status = entry.status == launch::Status::done     ? "done"
                         : entry.status == launch::Status::failed ? "failed"
                                                                  : "in flight";
    text << "  " << age_of(entry.start_ns) << " ago: " << launch::describe(entry) << ", " << status << "\n";
  }
  for (const OpTotals& row : journal_->recorder.totals()) {
    text << row.group << ", " << launch::op_name(row.op) << ": " << row.count << " times, "
         << megabytes(row.payload_bytes) << ", " << format_real(row.seconds_in_flight, 4) << " s from start to end\n";
  }
  return text.str();
}

}  // namespace tessera::wire
