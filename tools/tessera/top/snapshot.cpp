#include <tools/tessera/top/snapshot.h>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

namespace tessera::tool {
namespace {

using launch::RankSlot;
using launch::RankState;

constexpr double seconds_without_beat = 3;
constexpr const char* board_link = "/memfd:tessera-board";

std::vector<std::string> numbered_entries(const std::string& folder) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return names;  // another user's process, or it has just exited
  while (const dirent* entry = ::readdir(dir))
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') names.emplace_back(entry->d_name);
  ::closedir(dir);
  return names;
}

struct ProcessState {
  char state = '?';
  double seconds = 0;  ///< since its start
};

/// Whether the process is stopped by a signal or a debugger.
bool is_stopped(const ProcessState& process) { return process.state == 'T' || process.state == 't'; }

/// nullopt: the process does not exist.
std::optional<ProcessState> process_state(pid_t pid) {
  const std::string text = read_file_or_empty(concat("/proc/", pid, "/stat"));
  const std::size_t name_end = text.rfind(')');  // the name may contain anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessState result;
  fields >> result.state;
  std::string skipped;
  for (int i = 4; i < 22; ++i) fields >> skipped;
  double start_ticks = 0;
  fields >> start_ticks;
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  result.seconds = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
                   start_ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return result;
}

double seconds_since(std::int64_t then_ns, std::int64_t now_ns) {
  return static_cast<double>(std::max<std::int64_t>(0, now_ns - then_ns)) * 1e-9;
}

template <class T>
T read(const std::atomic<T>& field) {
  return field.load(std::memory_order_relaxed);
}

Pulse pulse_of(const RankView& rank, const std::optional<ProcessState>& process) {
  if (rank.pid <= 0) return Pulse::starting;
  if (!process || process->state == 'Z' || process->state == 'X')
    return rank.state == RankState::left ? Pulse::gone : Pulse::dead;
  if (is_stopped(*process)) return Pulse::frozen;
  const bool watched = rank.state != RankState::left && rank.state != RankState::none;
  return watched && rank.heartbeat_age > seconds_without_beat ? Pulse::frozen : Pulse::beating;
}

void read_last_collective(const RankSlot& slot, std::int64_t now_ns, RankView& rank) {
  const std::vector<launch::Entry> entries = launch::last_entries(slot, 1);
  if (entries.empty()) return;
  const launch::Entry& entry = entries.front();
  rank.last_collective = concat(launch::op_name(entry.op), " #", entry.sequence, " of ", harmless(entry.group));
  if (entry.payload_bytes > 0)
    rank.last_collective += ", " + format_bytes(static_cast<std::uint64_t>(entry.payload_bytes));
  if (entry.tag[0] != 0) rank.last_collective += concat(", ", harmless(entry.tag));
  if (entry.status == launch::Status::failed) rank.last_collective += ", failed";
  rank.collective_runs = entry.status == launch::Status::started;
  rank.collective_age = seconds_since(rank.collective_runs ? entry.start_ns : entry.end_ns, now_ns);
}

/// Sums the groups of one axis (such as those of a pipeline's two ends).
void read_axes(const RankSlot& slot, RankView& rank) {
  for (const launch::GroupTotals& group : slot.totals) {
    if (read(group.state) != launch::GroupTotals::named) break;
    std::int64_t payload = 0, by_theory = 0, moved = 0, waited = 0;
    for (const launch::GroupTotals::Sums& sums : group.sums) {
      payload += read(sums.payload_bytes);
      by_theory += read(sums.wire_bytes);
      moved += read(sums.moved_bytes);
      waited += read(sums.waited_ns);
    }
    if (payload > 0 && by_theory == 0) continue;  // the group has only one rank
    const std::string name = harmless(launch::read_text(group.group));
    const std::string axis(launch::axis_of(name));
    auto place = std::find_if(rank.axes.begin(), rank.axes.end(), [&](const AxisView& a) { return a.axis == axis; });
    if (place == rank.axes.end()) place = rank.axes.insert(rank.axes.end(), AxisView{.axis = axis});
    place->waited_ns += waited;
    place->moved_bytes += moved;
  }
}

/// Reads everything except the shares, which need a previous snapshot or the age of the process.
RankView read_slot(const RankSlot& slot, int number, std::int64_t now_ns, std::optional<ProcessState>& process) {
  RankView rank;
  rank.rank = number;
  rank.pid = read(slot.pid);
  rank.state = read(slot.state);
  if (rank.state > launch::last_rank_state) rank.state = RankState::none;
  rank.phase = harmless(launch::read_text(slot.phase));
  rank.place = harmless(launch::read_text(slot.place));
  if (read(slot.verdict_ns) != 0 || rank.state == RankState::failed)
    rank.error = harmless(launch::read_text(slot.error));
  rank.step = read(slot.step);
  rank.total_steps = read(slot.total_steps);
  rank.step_seconds = static_cast<double>(read(slot.step_ns)) * 1e-9;
  rank.tokens_per_second = read(slot.tokens_per_second);
  rank.loss = read(slot.loss);
  rank.memory_bytes = std::max<std::int64_t>(0, read(slot.memory_bytes));
  rank.cpu_ns = read(slot.cpu_ns);
  rank.comm_ns = read(slot.comm_ns);
  if (const std::int64_t beat = read(slot.heartbeat_ns); beat > 0) rank.heartbeat_age = seconds_since(beat, now_ns);
  if (rank.pid > 0) process = process_state(rank.pid);
  rank.stopped = process && is_stopped(*process);
  rank.pulse = pulse_of(rank, process);
  read_last_collective(slot, now_ns, rank);
  read_axes(slot, rank);
  return rank;
}

/// The kernel's name for a process's program.
std::string program_name(pid_t pid) {
  std::ifstream file(concat("/proc/", pid, "/comm"));
  std::string name;
  std::getline(file, name);
  return harmless(name);
}

double share(std::int64_t part_ns, double seconds) {
  return seconds > 0 && part_ns >= 0 ? static_cast<double>(part_ns) * 1e-9 / seconds : -1;
}

}  // namespace

std::string harmless(std::string text) {
  const bool valid = is_utf8(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (c1) text[i] = text[i + 1] = '?';  // U+0080..U+009F: terminals may interpret these too
    if (byte < 0x20 || byte == 0x7F || (byte >= 0x80 && !valid)) text[i] = '?';
  }
  return text;
}

void BoardWatcher::find() {
  for (auto& [inode, held] : boards_) held.holders.clear();
  const uid_t self = ::geteuid();
  for (const std::string& pid : numbered_entries("/proc")) {
    const std::string folder = concat("/proc/", pid);
    struct stat owner{};
    if (::stat(folder.c_str(), &owner) != 0 || owner.st_uid != self) continue;
    for (const std::string& number : numbered_entries(folder + "/fd")) {
      const std::string link = concat(folder, "/fd/", number);
      char target[64] = {};
      if (::readlink(link.c_str(), target, sizeof target - 1) <= 0) continue;
      if (!std::string_view(target).starts_with(board_link)) continue;
      struct stat file{};
      if (::stat(link.c_str(), &file) != 0) continue;
      const auto inode = static_cast<std::uint64_t>(file.st_ino);
      auto place = boards_.find(inode);
      if (place == boards_.end()) {
        const launch::UniqueFd fd(::open(link.c_str(), O_RDWR | O_CLOEXEC));
        if (!fd) continue;
        try {
          launch::Board board = launch::Board::open(fd.get());
          const int slots = board.slots();  // open() has checked this, but the memory may change later
          place = boards_.emplace(inode, Held{std::move(board), slots, {}}).first;
        } catch (const InputError&) {
          continue;  // a board of another version, or unrelated memory with that name
        }
      }
      place->second.holders.push_back(static_cast<pid_t>(parse_int(pid).value_or(0)));
    }
  }
  std::erase_if(boards_, [](const auto& entry) { return entry.second.holders.empty(); });
  std::erase_if(former_, [&](const auto& entry) { return !boards_.contains(entry.first.first); });
}

Snapshot BoardWatcher::take(pid_t pid, bool look) {
  if (look) find();
  Snapshot snapshot;
  snapshot.time_ns = monotonic_ns();
  for (const auto& [inode, held] : boards_) {
    const launch::BoardHeader& header = held.board.header();
    JobView job;
    job.name = harmless(launch::read_text(header.job));
    job.agent_pid = header.agent_pid;
    job.generation = read(header.generation);
    job.world_size = header.world_size;
    if (read(header.stop) != 0) job.stop_reason = harmless(launch::read_text(header.stop_reason));
    if (const auto agent = job.agent_pid > 0 ? process_state(job.agent_pid) : std::nullopt) {
      job.seconds = agent->seconds;
      job.agent_stopped = is_stopped(*agent);
    }
    for (int i = 0; i < held.slots; ++i) {
      std::optional<ProcessState> process;
      RankView rank = read_slot(held.board.slot(i), header.first_rank + i, snapshot.time_ns, process);
      if (process && job.name.empty()) job.name = program_name(rank.pid);
      if (process && job.agent_pid <= 0) job.seconds = std::max(job.seconds, process->seconds);
      const auto former = former_.find({inode, i});
      if (former != former_.end()) {
        const double passed = seconds_since(former->second.time_ns, snapshot.time_ns);
        rank.cpu_share = share(rank.cpu_ns - former->second.cpu_ns, passed);
        rank.comm_share = share(rank.comm_ns - former->second.comm_ns, passed);
        for (AxisView& axis : rank.axes) {
          const auto before = former->second.waited_ns.find(axis.axis);
          axis.share = share(axis.waited_ns - (before == former->second.waited_ns.end() ? 0 : before->second), passed);
        }
      } else if (process) {
        rank.cpu_share = share(rank.cpu_ns, process->seconds);
        rank.comm_share = share(rank.comm_ns, process->seconds);
        for (AxisView& axis : rank.axes) axis.share = share(axis.waited_ns, process->seconds);
      }
      Former& now = former_[{inode, i}] = {snapshot.time_ns, rank.cpu_ns, rank.comm_ns, {}};
      for (const AxisView& axis : rank.axes) now.waited_ns[axis.axis] = axis.waited_ns;
      job.ranks.push_back(std::move(rank));
    }
    const bool asked = pid == 0 || pid == job.agent_pid ||
                       std::any_of(job.ranks.begin(), job.ranks.end(), [&](const RankView& r) { return r.pid == pid; });
    if (!asked) continue;
    // Ranks of another launcher have one board each: they form one job.
    const auto same = std::find_if(snapshot.jobs.begin(), snapshot.jobs.end(), [&](const JobView& other) {
      return job.agent_pid == 0 && other.agent_pid == 0 && job.world_size > 1 && other.world_size == job.world_size &&
             other.name == job.name;
    });
    if (same == snapshot.jobs.end()) {
      snapshot.jobs.push_back(std::move(job));
    } else {
      same->seconds = std::max(same->seconds, job.seconds);
      std::move(job.ranks.begin(), job.ranks.end(), std::back_inserter(same->ranks));
    }
  }
  for (JobView& job : snapshot.jobs)
    std::sort(job.ranks.begin(), job.ranks.end(), [](const RankView& a, const RankView& b) { return a.rank < b.rank; });
  std::sort(snapshot.jobs.begin(), snapshot.jobs.end(),
            [](const JobView& a, const JobView& b) { return a.agent_pid < b.agent_pid; });
  return snapshot;
}

}  // namespace tessera::tool
