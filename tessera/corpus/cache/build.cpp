#include <tessera/corpus/cache/build.h>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/corpus/cache/descriptor.h>
#include <tessera/corpus/cache/entry.h>

namespace tessera::corpus {
namespace {

using Kind = PlaceLocks::Kind;

constexpr auto short_while = std::chrono::milliseconds(10);

void wait_a_little() { std::this_thread::sleep_for(short_while); }

/// Identifies this boot of this machine: after a reboot, files that were not synced may have any contents.
std::string boot() {
  const std::string path = "/proc/sys/kernel/random/boot_id";
  return path_exists(path) ? trim(read_file(path)) : "unknown";
}

/// Parameters that all processes of a build must agree on.
struct Plan {
  std::string boot, settings;
  std::vector<EntrySource> sources;  // without hashes
  std::size_t items = 0;
};

Plan plan_of(const TokenRequest& request, std::size_t items) {
  Plan plan{boot(), request.settings, {}, items};
  for (const SourceFile& source : request.sources) {
    plan.sources.push_back({absolute_path(source.path), state_of(source.path), {}});
    const FileState& state = plan.sources.back().state;
    if (state.bytes != source.bytes)
      throw Error(concat("'", source.path, "' has changed: it has ", state.bytes, " bytes and had ", source.bytes));
    let_settle(state);
    if (state_of(source.path) != state)
      throw Error(concat("'", source.path, "' is being written: start again when it is complete"));
  }
  return plan;
}

std::string text_of(const Plan& plan) {
  std::vector<Value> sources;
  for (const EntrySource& source : plan.sources)
    sources.push_back(Value::make_array({Value::of(source.path), to_json(source.state)}));
  return dump_json(Value::make_object({{"boot", Value::of(plan.boot)},
                                       {"settings", Value::of(plan.settings)},
                                       {"items", Value::of(static_cast<std::int64_t>(plan.items))},
                                       {"sources", Value::make_array(std::move(sources))}}),
                   -1);
}

void check_unchanged(const EntrySource& source) {
  if (state_of(source.path) == source.state) return;
  throw Error(concat("'", source.path,
                     "' was changed while it was being tokenized: nothing was kept; start again when it is complete"));
}

/// The message for a failed write, with the free space and the space needed.
std::string about_space(const std::string& what, const std::string& folder, std::uint64_t source_bytes) {
  struct statvfs info{};
  if (::statvfs(folder.c_str(), &info) != 0) return what;
  const std::uint64_t free = std::uint64_t{info.f_bavail} * info.f_frsize;
  return concat(what, "; ", folder, " has ", format_bytes(free), " free, and the tokens of ",
                format_bytes(source_bytes),
                " of data need about the same space again: free some (tessera cache rm), or choose another folder "
                "(--data_cache_dir)");
}

/// Other processes see either the whole file or none. It need not be synced: the state of a build is only valid until
/// the machine reboots (Plan::boot).
void write_and_rename(const std::string& path, const std::string& text) {
  const std::string temporary = concat(path, ".tmp.", ::getpid());
  {
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) throw Error(concat("cannot create '", temporary, "': ", std::strerror(errno)));
    write_all(file.get(), std::as_bytes(std::span(text)), temporary);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    throw Error(concat("cannot rename '", temporary, "' to '", path, "': ", std::strerror(errno)));
}

/// A build in one folder, with the states and summaries of its items.
class Build {
 public:
  Build(const std::string& folder, const TokenRequest& request, std::vector<Item> items, Plan plan, PlaceLocks* locks,
        bool durable)
      : folder_(folder),
        request_(request),
        items_(std::move(items)),
        plan_(std::move(plan)),
        locks_(locks),
        durable_(durable),
        states_(items_.size(), State::open),
        summaries_(items_.size()) {
    for (const Item& item : items_) total_ += item.bytes;
  }

  /// Returns when this and other processes have finished all items, or all items before the first bad one.
  void work(const CacheProgress& progress) {
    std::mutex failed_mutex;
    std::exception_ptr failed;
    const auto run = [&](const CacheProgress& tell) {
      try {
        work_as_thread(tell);
      } catch (...) {
        const std::scoped_lock lock(failed_mutex);
        if (!failed) failed = std::current_exception();
        stop_ = true;
      }
    };
    std::vector<std::jthread> others;  // the threads are joined before the objects that they use are destroyed
    const std::size_t threads = std::min<std::size_t>(static_cast<std::size_t>(std::max(request_.threads, 1)),
                                                      std::max<std::size_t>(items_.size(), 1));
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back([&] { run({}); });
    run(progress);
    others.clear();  // joins
    if (failed) std::rethrow_exception(failed);
  }

  /// Reports all problems with the records, in their order. Throws InputError.
  void check() const {
    std::vector<std::string> lines;
    Tally tally;
    for (std::size_t i = 0; i < items_.size() && lines.size() <= complaints_told; ++i) {
      if (!summaries_[i]) break;  // items after a bad item are not needed
      const ItemSummary& item = *summaries_[i];
      if (!tally.kind.empty() && !item.tally.kind.empty() && tally.kind != item.tally.kind)
        lines.push_back(mixed_kinds(item.tally.kind_place, item.tally.kind, tally));
      tally.add(item.tally);
      lines.insert(lines.end(), item.complaints.begin(), item.complaints.end());
    }
    if (lines.empty()) return;
    if (lines.size() == 1) throw InputError(lines[0]);
    const bool more = lines.size() > complaints_told;
    lines.resize(std::min(lines.size(), complaints_told));
    throw InputError(concat(request_.sources[0].path, request_.sources.size() > 1 ? " and others" : "", ": ",
                            more ? "the first " : "", lines.size(), " unusable records:\n  ", join(lines, "\n  "),
                            more ? "\n  ... and more" : ""));
  }

  /// Writes entry.json and the manifest after all shards are on disk.
  void describe() const {
    if (durable_) force_to_disk();
    Entry entry;
    entry.settings = plan_.settings;
    entry.sources = plan_.sources;
    entry.made_ns = real_time_ns();
    format::Manifest manifest;
    std::vector<std::vector<ContentHash>> hashes;
    for (const EntrySource& source : plan_.sources) hashes.emplace_back(hash_chunks(source.state.bytes));
    for (const auto& summary : summaries_) {
      TESSERA_CHECK(summary.has_value(), "an item without a summary");
      entry.tally.add(summary->tally);
      for (const format::ManifestFile& shard : summary->shards) {
        entry.shards.push_back(shard.name);
        manifest.files.push_back(shard);
      }
      for (const ChunkHash& chunk : summary->hashes) hashes.at(chunk.source).at(chunk.chunk) = chunk.hash;
    }
    for (std::size_t i = 0; i < entry.sources.size(); ++i) {
      check_unchanged(entry.sources[i]);
      entry.sources[i].hash = joined_hash(entry.sources[i].state.bytes, hashes[i]);
    }
    const std::string text = dump_json(to_json(entry), 1);
    write_file_atomically(path_join(folder_, entry_file), text);
    manifest.files.push_back({entry_file, format::digest_of(std::as_bytes(std::span(text)))});
    format::write_manifest(folder_, manifest);
  }

 private:
  enum class State { open, mine, done };

  /// Syncs the files one by one at the end: most data has been written back during the build, so each sync is short.
  void force_to_disk() const {
    for (const auto& summary : summaries_) {
      for (const format::ManifestFile& shard : summary.value().shards) {
        const std::string path = path_join(folder_, shard.name);
        const Descriptor file = open_to_read(path);
        if (::fsync(file.get()) != 0) throw Error(concat("cannot sync '", path, "' to disk: ", std::strerror(errno)));
      }
    }
  }

  void work_as_thread(const CacheProgress& progress) {
    while (!stop_) {
      const auto next = claim();
      if (progress) progress(done_bytes(), total_);
      if (!next) {
        if (all_done()) return;
        wait_a_little();
        continue;
      }
      do_item(*next);
    }
  }

  /// Claims an item that no process is working on; also notes items that others have finished.
  std::optional<std::size_t> claim() {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < items_.size() && i <= first_bad_; ++i) {
      if (states_[i] != State::open || note_if_done(i)) continue;
      if (locks_ != nullptr && !locks_->try_lock(i, Kind::exclusive)) continue;
      if (note_if_done(i)) {  // finished by its holder between the check and the lock
        locks_->unlock(i);
        continue;
      }
      // The .done files exist until the folder is renamed: if one is missing here, another process has published the
      // entry.
      if (locks_ != nullptr && !locks_->still_there()) {
        locks_->unlock(i);
        stop_ = true;
        return std::nullopt;
      }
      states_[i] = State::mine;
      return i;
    }
    return std::nullopt;
  }

  bool note_if_done(std::size_t i) {
    const std::string path = path_join(folder_, done_name(i));
    if (!path_exists(path)) return false;
    try {
      note(i, summary_from_json(read_json(path)));
    } catch (const Error&) {
      if (path_exists(path)) throw;
      return false;  // the folder was published after the check
    }
    return true;
  }

  void note(std::size_t i, ItemSummary summary) {
    if (!summary.complaints.empty()) first_bad_ = std::min(first_bad_, i);
    summaries_[i] = std::move(summary);
    states_[i] = State::done;
    done_bytes_ += items_[i].bytes;
  }

  void do_item(std::size_t i) {
    try {
      ItemSummary summary = encode_item(request_, items_[i], i, folder_);
      for (const ItemPiece& part : items_[i].pieces) check_unchanged(plan_.sources[part.source]);
      const std::string text = dump_json(to_json(summary), -1);
      if (locks_ != nullptr) write_and_rename(path_join(folder_, done_name(i)), text);
      const std::scoped_lock lock(mutex_);
      note(i, std::move(summary));
      if (locks_ != nullptr) locks_->unlock(i);
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      states_[i] = State::open;
      if (locks_ != nullptr) locks_->unlock(i);
      throw;
    }
  }

  std::uint64_t done_bytes() const {
    const std::scoped_lock lock(mutex_);
    return done_bytes_;
  }

  bool all_done() const {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < items_.size() && i <= first_bad_; ++i)
      if (states_[i] != State::done) return false;
    return true;
  }

  std::string folder_;
  const TokenRequest& request_;
  std::vector<Item> items_;
  Plan plan_;
  PlaceLocks* locks_;  // null: no other process participates
  bool durable_;
  std::atomic<bool> stop_ = false;

  mutable std::mutex mutex_;  // guards the following members and locks_
  std::vector<State> states_;
  std::vector<std::optional<ItemSummary>> summaries_;
  std::size_t first_bad_ = static_cast<std::size_t>(-1);
  std::uint64_t done_bytes_ = 0, total_ = 0;
};

/// Takes a lock, waiting while the file is still at its path. Returns false if it is gone.
bool wait_for(PlaceLocks& locks, std::uint64_t place, Kind kind) {
  while (!locks.try_lock(place, kind)) {
    if (!locks.still_there()) return false;
    wait_a_little();
  }
  return locks.still_there();
}

/// Removes everything but the lock file.
void clear(const std::string& folder) {
  for (const std::string& name : list_folder(folder))
    if (name != lock_file) remove_tree(path_join(folder, name));
}

/// One attempt to participate in a build.
class Part {
 public:
  Part(const std::string& root, const std::string& name, const TokenRequest& request)
      : final_(path_join(root, name)),
        folder_(path_join(root, name + ".building")),
        request_(request),
        items_(plan_items(request.sources)),
        plan_(plan_of(request, items_.size())) {
    make_folders(folder_);
    locks_.emplace(path_join(folder_, lock_file), true);
  }

  /// Returns false if the caller must check the folder again.
  bool take(const CacheProgress& progress) {
    if (!locks_->still_there()) return false;
    if (!join_or_begin()) return false;
    Build build(folder_, request_, items_, plan_, &*locks_, true);
    try {
      build.work(progress);
      build.check();
      if (!wait_for(*locks_, planning_place, Kind::exclusive)) return true;  // another process has published it
      build.describe();
      publish();
    } catch (const std::exception&) {
      leave();
      throw;
    }
    return true;
  }

 private:
  /// Returns whether the folder contains our plan. While the planning lock is held, no process joins or clears the
  /// build.
  bool join_or_begin() {
    if (!wait_for(*locks_, planning_place, Kind::exclusive)) return false;
    const std::string path = path_join(folder_, "plan.json"), text = text_of(plan_);
    const bool same = path_exists(path) && read_file(path) == text;
    if (!same && !locks_->try_lock(presence_place, Kind::exclusive)) {  // other processes are building something else
      if (!std::exchange(told_, true))
        log::info("waiting for another job, which is tokenizing different contents in ", folder_);
      locks_->unlock(planning_place);
      wait_a_little();
      return false;
    }
    if (!same) {
      clear(folder_);
      write_file_atomically(path, text);
    }
    TESSERA_CHECK(locks_->try_lock(presence_place, Kind::shared), folder_, " is cleared while it is joined");
    locks_->unlock(planning_place);
    return true;
  }

  void publish() {
    if (::rename(folder_.c_str(), final_.c_str()) != 0)
      throw Error(concat("cannot rename '", folder_, "' to '", final_, "': ", std::strerror(errno)));
    for (const std::string& name : list_folder(final_))
      if (name.ends_with(".done") || name == "plan.json") remove_tree(path_join(final_, name));
    sync_folder(path_join(final_, ".."));
  }

  static void sync_folder(const std::string& folder) {
    const Descriptor opened = open_to_read(folder);
    ::fsync(opened.get());  // some file systems refuse; the rename itself is atomic
  }

  /// After an error, the last process to leave removes the build. Each process gives up its presence lock before it
  /// waits for its turn to check whether others are present, so when two processes leave at once, the second one finds
  /// nobody.
  void leave() noexcept {
    try {
      locks_->unlock(presence_place);
      if (!wait_for(*locks_, planning_place, Kind::exclusive)) return;
      if (locks_->try_lock(presence_place, Kind::exclusive)) {
        const std::string gone = concat(folder_, ".gone.", ::getpid());  // another process may start again in the
                                                                         // meantime
        if (::rename(folder_.c_str(), gone.c_str()) == 0) remove_tree(gone);
      }
    } catch (const std::exception& error) {
      log::warning("cannot remove ", folder_, ": ", error.what());
    }
  }

  static inline bool told_ = false;  // once per process

  std::string final_, folder_;
  const TokenRequest& request_;
  std::vector<Item> items_;
  Plan plan_;
  std::optional<PlaceLocks> locks_;
};

std::uint64_t bytes_of(const std::vector<SourceFile>& sources) {
  std::uint64_t bytes = 0;
  for (const SourceFile& source : sources) bytes += source.bytes;
  return bytes;
}

}  // namespace

void build_entry(const std::string& root, const std::string& name, const TokenRequest& request,
                 const CacheProgress& progress) {
  make_folders(root);
  try {
    while (!path_exists(path_join(root, name)))
      if (Part(root, name, request).take(progress)) return;
  } catch (const InputError&) {
    throw;
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.find(std::strerror(ENOSPC)) == std::string::npos && what.find(std::strerror(EFBIG)) == std::string::npos &&
        what.find(std::strerror(EDQUOT)) == std::string::npos)
      throw;
    throw Error(about_space(what, root, bytes_of(request.sources)));
  }
}

void build_privately(const std::string& folder, const TokenRequest& request, const CacheProgress& progress) {
  std::vector<Item> items = plan_items(request.sources);
  Plan plan = plan_of(request, items.size());
  Build build(folder, request, std::move(items), std::move(plan), nullptr, false);
  build.work(progress);
  build.check();
  build.describe();
}

}  // namespace tessera::corpus
