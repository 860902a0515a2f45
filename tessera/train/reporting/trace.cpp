#include <tessera/train/reporting/trace.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include <tessera/base/clock.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/comm/group.h>

namespace tessera::train {
namespace {

constexpr int phase_track = 0, wait_track = 1, first_group_track = 2;
constexpr std::int64_t shown_wait_ns = 20'000;  // shorter waits are not shown

std::string quoted(std::string_view text) { return dump_json(Value::of(std::string(text)), -1); }

std::string microseconds(std::int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", static_cast<double>(ns) * 1e-3);
  return text;
}

// {"ph":"M"}: the name of a row or a track.
std::string label(const char* what, int rank, int track, std::string_view text) {
  return concat("{\"ph\":\"M\",\"name\":\"", what, "\",\"ts\":0,\"pid\":", rank, ",\"tid\":", track,
                ",\"args\":{\"name\":", quoted(text), "}}");
}

// {"ph":"X"}: an event with a start and an end.
std::string span(std::string_view name, const char* category, int rank, int track, std::int64_t begin_ns,
                 std::int64_t end_ns, const std::string& arguments = "") {
  return concat("{\"ph\":\"X\",\"name\":", quoted(name), ",\"cat\":\"", category, "\",\"pid\":", rank,
                ",\"tid\":", track, ",\"ts\":", microseconds(begin_ns),
                ",\"dur\":", microseconds(std::max<std::int64_t>(0, end_ns - begin_ns)),
                arguments.empty() ? "" : concat(",\"args\":{", arguments, "}"), "}");
}

std::string arguments_of(const comm::Entry& e) {
  return concat("\"axis\":", quoted(comm::axis_of(e.group)), ",\"sequence\":", e.sequence,
                ",\"dtype\":", quoted(e.dtype), ",\"elements\":", e.numel, ",\"payload_bytes\":", e.payload_bytes,
                ",\"moved_bytes\":", e.moved_bytes, ",\"tag\":", quoted(e.tag),
                ",\"waited_us\":", microseconds(e.waited_ns),
                ",\"status\":", e.status == comm::Status::failed ? "\"failed\"" : "\"done\"");
}

// Collectives of one group may overlap but spans of one track may not, so each takes the first free lane.
class Lanes {
 public:
  int track(const comm::Entry& entry) {
    auto& lanes = groups_[entry.group];
    for (auto& [track, free_from] : lanes) {
      if (free_from > entry.start_ns) continue;
      free_from = entry.end_ns;
      return track;
    }
    lanes.emplace_back(next_, entry.end_ns);
    names_.emplace_back(next_, lanes.size() == 1 ? concat("group ", entry.group)
                                                 : concat("group ", entry.group, " (", lanes.size(), ")"));
    return next_++;
  }
  const std::vector<std::pair<int, std::string>>& names() const { return names_; }

 private:
  std::map<std::string, std::vector<std::pair<int, std::int64_t>>> groups_;
  std::vector<std::pair<int, std::string>> names_;
  int next_ = first_group_track;
};

}  // namespace

void Trace::phase(std::string_view name, std::int64_t now_ns) {
  if (!current_.empty()) phases_.push_back({current_, since_ns_, now_ns});
  if (phases_.size() > capacity) {
    phases_.pop_front();
    ++dropped_;
  }
  current_ = name;
  since_ns_ = now_ns;
}

void Trace::add(const comm::Entry& entry) {
  collectives_.push_back(entry);
  if (collectives_.size() > capacity) {
    collectives_.pop_front();
    ++dropped_;
  }
}

void Trace::collect() {
  const auto entries = comm::recorder().last();
  for (const comm::Entry& entry : entries) {
    if (entry.id < next_entry_) continue;
    dropped_ += static_cast<std::int64_t>(entry.id - next_entry_);  // overwritten in the ring before they were read
    next_entry_ = entry.id;
    if (entry.status == comm::Status::started) return;  // this event and later ones are added by the next call
    add(entry);
    ++next_entry_;
  }
}

std::string Trace::events(int rank, std::int64_t zero_ns) const {
  std::string text =
      concat(label("process_name", rank, 0, concat("rank ", rank)),
             ",\n{\"ph\":\"M\",\"name\":", "\"process_sort_index\",\"ts\":0,\"pid\":", rank,
             ",\"tid\":0,\"args\":{\"sort_index\":", rank, "}},\n", label("thread_name", rank, phase_track, "phases"),
             ",\n", label("thread_name", rank, wait_track, "waits for other ranks"));
  const auto add = [&](const std::string& event) { text.append(",\n").append(event); };
  for (const Span& s : phases_) {
    add(span(s.name, "phase", rank, phase_track, s.begin_ns - zero_ns, s.end_ns - zero_ns));
  }
  Lanes lanes;
  std::int64_t waited_until = 0;  // threads may wait at the same time; the track shows one wait at a time
  for (const comm::Entry& e : collectives_) {
    if (e.start_ns < zero_ns) continue;  // part of the startup
    add(span(comm::op_name(e.op), "collective", rank, lanes.track(e), e.start_ns - zero_ns, e.end_ns - zero_ns,
             arguments_of(e)));
    const std::int64_t begin = std::max(e.end_ns - e.waited_ns, waited_until);
    if (e.end_ns - begin < shown_wait_ns) continue;
    add(span(concat("wait: ", comm::axis_of(e.group), " ", comm::op_name(e.op)), "wait", rank, wait_track,
             begin - zero_ns, e.end_ns - zero_ns, concat("\"tag\":", quoted(e.tag))));
    waited_until = e.end_ns;
  }
  for (const auto& [track, name] : lanes.names()) add(label("thread_name", rank, track, name));
  return text;
}

std::int64_t common_zero(const comm::Group& group, bool one_host) {
  group.barrier().wait();
  at::Tensor now = at::full({1}, monotonic_ns(), at::kLong).to(group.device());
  if (one_host) group.broadcast(now, 0).wait();
  return now.item<std::int64_t>();
}

std::string merge_traces(const Trace& mine, std::int64_t zero_ns, const comm::Group& group) {
  const std::string events = mine.events(group.rank(), zero_ns);
  const int ranks = group.size();
  // Exchanges lengths and counts first, then the texts, each padded to the longest one.
  at::Tensor head =
      at::tensor({static_cast<std::int64_t>(events.size()), mine.dropped()}, at::kLong).to(group.device());
  at::Tensor heads = at::empty({ranks, 2}, head.options());
  group.all_gather(heads, head).wait();
  heads = heads.cpu();
  const std::int64_t longest = heads.select(1, 0).max().item<std::int64_t>();
  at::Tensor text = at::zeros({longest}, at::kByte);
  std::memcpy(text.data_ptr(), events.data(), events.size());
  text = text.to(group.device());
  at::Tensor all = group.rank() == 0 ? at::empty({ranks, longest}, text.options()) : at::Tensor();
  group.gather(all, text, 0).wait();
  if (group.rank() != 0) return "";
  all = all.cpu();
  std::string file = concat("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_events\":",
                            heads.select(1, 1).sum().item<std::int64_t>(), "},\n\"traceEvents\":[\n");
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank > 0) file += ",\n";
    file.append(static_cast<const char*>(all[rank].data_ptr()),
                static_cast<std::size_t>(heads[rank][0].item<std::int64_t>()));
  }
  return file + "\n]}\n";
}

}  // namespace tessera::train
