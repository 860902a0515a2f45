#include <tessera/corpus/cache/source_state.h>

#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/corpus/cache/descriptor.h>

namespace tessera::corpus {
namespace {

constexpr std::uint64_t glanced = 64 << 10;
constexpr std::int64_t tick_ns = 20'000'000;  // kernels take file times from a clock that ticks every 1 to 10 ms
constexpr std::int64_t coarse_ns = std::int64_t{2'000'000'000};  // file systems with a resolution of 1 or 2 s (FAT)

std::int64_t nanoseconds(const struct timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::int64_t newest(const FileState& state) { return std::max(state.modified_ns, state.changed_ns); }

}  // namespace

FileState state_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) throw InputError(concat("cannot stat '", path, "': ", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) throw InputError(concat("'", path, "' is not a regular file"));
  return {static_cast<std::uint64_t>(info.st_size), info.st_ino, nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)};
}

Value to_json(const FileState& state) {
  return Value::make_array({Value::of(static_cast<std::int64_t>(state.bytes)),
                            Value::of(static_cast<std::int64_t>(state.inode)), Value::of(state.modified_ns),
                            Value::of(state.changed_ns)});
}

FileState state_from_json(const Value& value) {
  const std::vector<Value>& items = value.items();
  if (items.size() != 4) throw InputError(concat(value.where().str(), ": a file's state must be four numbers"));
  return {static_cast<std::uint64_t>(items[0].as_int()), static_cast<std::uint64_t>(items[1].as_int()),
          items[2].as_int(), items[3].as_int()};
}

std::int64_t real_time_ns() {
  struct timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return nanoseconds(now);
}

bool is_settled(const FileState& state, std::int64_t seen_ns) { return newest(state) < seen_ns - coarse_ns; }

void let_settle(const FileState& state) {
  const std::int64_t wait = newest(state) + tick_ns - real_time_ns();
  if (wait > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(wait, tick_ns)));
}

std::string glance_at(const SourceFile& file) {
  const std::uint64_t bytes = state_of(file.path).bytes;
  const Descriptor opened = open_to_read(file.path);
  std::vector<std::byte> seen;
  const auto look = [&](std::uint64_t begin, std::uint64_t end) {
    const std::size_t old = seen.size();
    seen.resize(old + (end - begin));
    read_all(opened, std::span(seen).subspan(old), begin, file.path);
  };
  if (bytes <= 3 * glanced) {
    look(0, bytes);
  } else {
    look(0, glanced);
    look((bytes - glanced) / 2, (bytes - glanced) / 2 + glanced);
    look(bytes - glanced, bytes);
  }
  return concat(static_cast<int>(file.kind), "/", static_cast<int>(file.compression), " ", bytes, " ",
                hash_of(seen).hex());
}

ContentHash hash_of_file(const std::string& path, std::uint64_t bytes) {
  std::vector<ContentHash> chunks(hash_chunks(bytes));
  hash_file_chunks(path, 0, chunks.size(), bytes, chunks);
  return joined_hash(bytes, chunks);
}

}  // namespace tessera::corpus
