#include <tools/tessera/top/screen.h>

#include <tessera/base/text.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace tessera::tool {
namespace {

constexpr std::size_t step_width = 11, detail_indent = 14;
constexpr const char* red = "\x1b[31m";
constexpr const char* bold = "\x1b[1m";
constexpr const char* plain = "\x1b[0m";

template <class... Numbers>
std::string print(const char* format, Numbers... numbers) {
  char buffer[160];
  std::snprintf(buffer, sizeof buffer, format, numbers...);
  return buffer;
}

/// Truncates to `columns` code points (the text is valid UTF-8 or ASCII).
std::string cut(const std::string& text, int columns) {
  int seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) continue;
    if (seen++ == columns) return text.substr(0, i);
  }
  return text;
}

/// Right-aligned in a column; a text that does not fit is shown as '#'.
std::string right(const std::string& text, std::size_t width) {
  return text.size() <= width ? std::string(width - text.size(), ' ') + text : std::string(width, '#');
}

std::string percent(double share) { return share < 0 ? "-" : print("%.0f", 100 * std::min(share, 99.0)); }

std::string age(double seconds) {
  if (seconds < 0) return "-";
  if (seconds < 0.001) return print("%.0f us", seconds * 1e6);
  if (seconds < 1) return print("%.0f ms", seconds * 1e3);
  return seconds < 100 ? print("%.1f s", seconds) : format_duration(seconds);
}

std::string beat(const RankView& rank) {
  if (rank.heartbeat_age < 0) return "-";
  return rank.heartbeat_age < 100 ? print("%.1f", rank.heartbeat_age) : print("%.0f", rank.heartbeat_age);
}

std::string loss(const RankView& rank) {
  if (rank.step == 0 && rank.loss == 0) return "-";
  if (!std::isfinite(rank.loss)) return format_real(rank.loss);
  return std::abs(rank.loss) < 1000 ? print("%.4f", rank.loss) : print("%.1e", rank.loss);
}

std::string steps(const RankView& rank) {
  const std::string both = concat(rank.step, "/", rank.total_steps);
  if (rank.total_steps > 0 && both.size() <= step_width) return both;
  return rank.step > 0 ? concat(rank.step) : "-";
}

std::string speed(const RankView& rank) {
  return rank.tokens_per_second > 0 && rank.tokens_per_second < 1e15 ? format_count(rank.tokens_per_second) : "-";
}

std::string memory(const RankView& rank) {
  return rank.memory_bytes > 0 ? format_bytes(static_cast<std::uint64_t>(rank.memory_bytes)) : "-";
}

bool in_trouble(const RankView& rank) {
  return rank.pulse == Pulse::frozen || rank.pulse == Pulse::dead || rank.state == launch::RankState::failed;
}

std::string heading() {
  return right("rank", 4) + right("pid", 8) + "  state     " + right("step", step_width) + right("tok/s", 9) +
         right("loss", 9) + right("memory", 10) + right("cpu%", 5) + right("comm%", 6) + right("beat", 5);
}

std::string main_line(const RankView& rank) {
  std::string word = state_word(rank);
  word.resize(10, ' ');
  return right(concat(rank.rank), 4) + right(rank.pid > 0 ? concat(rank.pid) : "-", 8) + "  " + word +
         right(steps(rank), step_width) + right(speed(rank), 9) + right(loss(rank), 9) + right(memory(rank), 10) +
         right(percent(rank.cpu_share), 5) + right(percent(rank.comm_share), 6) + right(beat(rank), 5);
}

/// Further details of the rank: "" if it reports none.
std::string detail_text(const RankView& rank) {
  std::vector<std::string> parts;
  if (rank.pulse == Pulse::frozen)
    parts.push_back(rank.stopped ? "stopped by a signal" : concat("no heartbeat for ", age(rank.heartbeat_age)));
  if (rank.pulse == Pulse::dead) parts.push_back("its process is gone");
  if (!rank.error.empty()) parts.push_back(rank.error);
  if (!rank.place.empty()) parts.push_back(rank.place);
  if (!rank.phase.empty()) parts.push_back(rank.phase);
  if (!rank.last_collective.empty())
    parts.push_back(concat(age(rank.collective_age), rank.collective_runs ? " in " : " since ", rank.last_collective));
  return join(parts, "; ");
}

/// "comm%: tp 12, dp_shard 3, world 0": the axes for which the rank waits; "" if there is only one.
std::string axes_text(const RankView& rank) {
  std::vector<std::string> parts;
  for (const AxisView& axis : rank.axes)
    if (axis.share >= 0) parts.push_back(concat(axis.axis, " ", percent(axis.share)));
  return parts.size() < 2 ? "" : "comm%: " + join(parts);
}

/// The details on separate lines below the rank's; a rank in trouble gets several.
std::vector<std::string> detail_lines(const RankView& rank, int columns) {
  const std::size_t most = in_trouble(rank) ? 4 : 1;
  const int width = std::max(10, columns - static_cast<int>(detail_indent));
  std::vector<std::string> lines;
  for (std::string rest = detail_text(rank); !rest.empty() && lines.size() < most;) {
    std::string line = cut(rest, width);
    const std::size_t blank = line.rfind(' ');
    if (line.size() < rest.size() && blank != std::string::npos && most > 1) line.resize(blank);
    rest = trim(rest.substr(line.size()));
    lines.push_back(std::string(detail_indent, ' ') + line);
  }
  if (const std::string axes = axes_text(rank); !axes.empty())
    lines.push_back(std::string(detail_indent, ' ') + cut(axes, width));
  return lines;
}

/// The name is shortened to make room for the rest.
std::string title(const JobView& job, int columns) {
  std::string text;
  const std::size_t here = job.ranks.size();
  text += job.agent_pid > 0 ? concat(": agent ", job.agent_pid) : ": no tessera agent";
  if (job.generation > 0) text += concat(", restart ", job.generation);
  text += job.world_size > static_cast<int>(here) ? concat(", ", here, " of ", job.world_size, " ranks here")
                                                  : concat(", ", here, here == 1 ? " rank" : " ranks");
  if (job.seconds >= 0) text += ", up " + format_duration(job.seconds);
  const auto slowest = std::max_element(job.ranks.begin(), job.ranks.end(), [](const RankView& a, const RankView& b) {
    return a.step_seconds * static_cast<double>(a.total_steps - a.step) <
           b.step_seconds * static_cast<double>(b.total_steps - b.step);
  });
  if (slowest != job.ranks.end() && slowest->step > 0 && slowest->total_steps > slowest->step &&
      slowest->step_seconds > 0)
    text +=
        ", left " + format_duration(slowest->step_seconds * static_cast<double>(slowest->total_steps - slowest->step));
  const std::string name = job.name.empty() ? "job" : job.name;
  const int room = std::max(8, columns - static_cast<int>(text.size()));
  const std::string fits = cut(name, room);
  return (fits.size() < name.size() ? cut(name, room - 3) + "..." : name) + text;
}

Value known(double number, bool is_known = true) {
  return is_known && std::isfinite(number) ? Value::of(number) : Value();
}

Value to_json(const RankView& rank) {
  Value value = Value::make_object({{"rank", Value::of(rank.rank)},
                                    {"pid", Value::of(static_cast<std::int64_t>(rank.pid))},
                                    {"state", Value::of(state_word(rank))},
                                    {"phase", Value::of(rank.phase)},
                                    {"step", Value::of(rank.step)},
                                    {"total_steps", Value::of(rank.total_steps)},
                                    {"step_seconds", known(rank.step_seconds)},
                                    {"tokens_per_second", known(rank.tokens_per_second)},
                                    {"loss", known(rank.loss)},
                                    {"memory_bytes", Value::of(rank.memory_bytes)},
                                    {"cpu_share", known(rank.cpu_share, rank.cpu_share >= 0)},
                                    {"comm_share", known(rank.comm_share, rank.comm_share >= 0)},
                                    {"heartbeat_age_seconds", known(rank.heartbeat_age, rank.heartbeat_age >= 0)}});
  if (!rank.place.empty()) value.set("place", Value::of(rank.place));
  Value axes = Value::make_array();
  for (const AxisView& axis : rank.axes)
    axes.push_back(Value::make_object({{"axis", Value::of(axis.axis)},
                                       {"seconds_waited", Value::of(static_cast<double>(axis.waited_ns) * 1e-9)},
                                       {"share", known(axis.share, axis.share >= 0)},
                                       {"moved_bytes", Value::of(axis.moved_bytes)}}));
  value.set("communication", std::move(axes));
  if (!rank.error.empty()) value.set("error", Value::of(rank.error));
  if (!rank.last_collective.empty()) {
    value.set("last_collective", Value::of(rank.last_collective));
    value.set("collective_runs", Value::of(rank.collective_runs));
    value.set("collective_age_seconds", Value::of(rank.collective_age));
  }
  return value;
}

}  // namespace

std::string state_word(const RankView& rank) {
  switch (rank.pulse) {
    case Pulse::dead:
      return "DEAD";
    case Pulse::frozen:
      return "FROZEN";
    case Pulse::starting:
      return "starting";
    case Pulse::gone:
      return "left";
    case Pulse::beating:
      break;
  }
  return rank.state == launch::RankState::failed ? "FAILED" : launch::state_name(rank.state);
}

std::vector<std::string> draw(const Snapshot& snapshot, const ScreenSize& screen, bool colours) {
  const auto painted = [&](const char* colour, const std::string& text) {
    const std::string fits = cut(text, screen.columns);
    return colours ? colour + fits + plain : fits;
  };
  // Each job: title, heading, and an empty line between jobs. Each rank: one line, plus details if there is room.
  std::size_t needed = snapshot.jobs.size() * 3;
  for (const JobView& job : snapshot.jobs) needed += job.agent_stopped ? 1 : 0;
  for (const JobView& job : snapshot.jobs)
    for (const RankView& rank : job.ranks) needed += 1 + detail_lines(rank, screen.columns).size();
  const bool details = screen.rows <= 0 || needed <= static_cast<std::size_t>(screen.rows);
  std::vector<std::string> lines;
  for (const JobView& job : snapshot.jobs) {
    if (!lines.empty()) lines.emplace_back();
    lines.push_back(painted(bold, title(job, screen.columns)));
    if (job.agent_stopped)
      lines.push_back(
          painted(red, concat("  the agent is stopped, and its ranks are not watched: kill -CONT ", job.agent_pid)));
    if (!job.stop_reason.empty()) lines.push_back(painted(red, "  ending: " + job.stop_reason));
    lines.push_back(cut(heading(), screen.columns));
    for (const RankView& rank : job.ranks) {
      const bool trouble = in_trouble(rank);
      lines.push_back(trouble ? painted(red, main_line(rank)) : cut(main_line(rank), screen.columns));
      if (!details && !trouble) continue;
      for (const std::string& line : detail_lines(rank, screen.columns))
        lines.push_back(trouble ? painted(red, line) : cut(line, screen.columns));
    }
  }
  if (screen.rows > 0 && lines.size() > static_cast<std::size_t>(screen.rows)) {
    const std::size_t hidden = lines.size() - static_cast<std::size_t>(screen.rows) + 1;
    lines.resize(lines.size() - hidden);
    lines.push_back(concat("... ", hidden, " more lines: enlarge the window, or choose a job with --pid"));
  }
  return lines;
}

Value to_json(const Snapshot& snapshot) {
  Value jobs = Value::make_array();
  for (const JobView& job : snapshot.jobs) {
    Value ranks = Value::make_array();
    for (const RankView& rank : job.ranks) ranks.push_back(to_json(rank));
    Value value = Value::make_object({{"job", Value::of(job.name)},
                                      {"agent_pid", Value::of(static_cast<std::int64_t>(job.agent_pid))},
                                      {"generation", Value::of(static_cast<std::int64_t>(job.generation))},
                                      {"world_size", Value::of(job.world_size)},
                                      {"seconds", known(job.seconds, job.seconds >= 0)}});
    if (job.agent_pid > 0) value.set("agent_stopped", Value::of(job.agent_stopped));
    if (!job.stop_reason.empty()) value.set("stop_reason", Value::of(job.stop_reason));
    value.set("ranks", std::move(ranks));
    jobs.push_back(std::move(value));
  }
  return Value::make_object({{"jobs", std::move(jobs)}});
}

}  // namespace tessera::tool
