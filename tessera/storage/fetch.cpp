#include <tessera/storage/fetch.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/manifest/manifest_names.h>
#include <tessera/storage/checksum.h>
#include <tessera/storage/folder_lock.h>
#include <tessera/storage/in_parallel.h>

namespace tessera::storage {
namespace {

constexpr int most_reads = 3;  // attempts per piece that arrives with a wrong checksum

/// Adjacent chunks of one file, requested together.
struct Piece {
  std::size_t file = 0;
  std::uint64_t begin = 0, end = 0;
};

std::vector<Piece> pieces_of(const format::Manifest& manifest, std::uint64_t piece_bytes) {
  std::vector<Piece> pieces;
  for (std::size_t f = 0; f < manifest.files.size(); ++f) {
    const format::Digest& digest = manifest.files[f].digest;
    const std::uint64_t each = std::max(piece_bytes / digest.chunk_bytes, std::uint64_t{1}) * digest.chunk_bytes;
    for (std::uint64_t begin = 0; begin < digest.size; begin += each)
      pieces.push_back({f, begin, std::min(begin + each, digest.size)});
  }
  return pieces;
}

/// Offset of the first chunk with a wrong checksum; `bytes` start at `begin` in the file.
std::optional<std::uint64_t> damaged_chunk(const format::Digest& digest, std::uint64_t begin,
                                           std::span<const std::byte> bytes) {
  for (std::uint64_t at = 0; at < bytes.size(); at += digest.chunk_bytes) {
    const auto chunk = bytes.subspan(at, std::min<std::uint64_t>(digest.chunk_bytes, bytes.size() - at));
    if (format::crc32c(chunk) != digest.chunks.at((begin + at) / digest.chunk_bytes)) return begin + at;
  }
  return std::nullopt;
}

std::string damage_text(const format::ManifestFile& file, std::uint64_t chunk) {
  const std::uint64_t end = std::min(chunk + file.digest.chunk_bytes, file.digest.size);
  return concat(file.name, ": bytes ", chunk, " to ", end, " are damaged");
}

/// Reads a piece until its checksums match; returns the text of the damage if they never do.
std::string read_verified(const ObjectStore& store, const ObjectUrl& from, const format::ManifestFile& file,
                          const Piece& piece, std::span<std::byte> into) {
  std::optional<std::uint64_t> damaged;
  for (int read = 0; read < most_reads; ++read) {
    store.get_range(from.below(file.name), piece.begin, into);
    damaged = damaged_chunk(file.digest, piece.begin, into);
    if (!damaged) return "";
  }
  return damage_text(file, *damaged);
}

format::Manifest manifest_of(const ObjectStore& store, const ObjectUrl& from, std::string& text) {
  try {
    text = store.get(from.below(format::kManifestName), most_manifest);
  } catch (const StorageError& error) {
    if (error.kind() != StorageError::Kind::missing) throw;
    throw InputError(concat(from.text(), " is not a complete checkpoint: it has no ", format::kManifestName,
                            ", which is uploaded last"));
  }
  return format::parse_manifest(text, from.below(format::kManifestName).text());
}

std::uint64_t bytes_listed(const format::Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const format::ManifestFile& file : manifest.files) bytes += file.digest.size;
  return bytes;
}

void write_exactly(int fd, std::uint64_t begin, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(begin));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw Error(concat(path, " cannot be written: ", std::strerror(errno)));
    begin += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void force_folder(const std::string& path) {
  const launch::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) throw Error(concat(path, " cannot be synced to disk: ", std::strerror(errno)));
}

/// The folder under construction.
class Growing {
 public:
  Growing(const ObjectStore& store, const ObjectUrl& from, const format::Manifest& manifest, std::string folder,
          const TransferOptions& options)
      : store_(store), from_(from), manifest_(manifest), folder_(std::move(folder)), options_(options) {
    report_.bytes = bytes_listed(manifest);
    report_.step = manifest.step;
  }

  FetchReport run(const std::string& manifest_text) {
    make_folders(folder_);
    remove_what_is_not_listed();
    open_files();
    const std::vector<Piece> pieces = pieces_of(manifest_, options_.part_bytes);
    in_parallel(pieces.size(), options_.connections, [&](std::size_t i) { take(pieces[i]); });
    for (std::size_t f = 0; f < files_.size(); ++f)
      if (::fsync(files_[f].fd.get()) != 0)
        throw Error(concat(path_of(f), " cannot be synced to disk: ", std::strerror(errno)));
    write_file_atomically(path_join(folder_, format::kManifestName), manifest_text);
    const auto problems = format::check_names(folder_, manifest_);
    if (!problems.empty()) throw InputError(concat(from_.text(), ": ", problems.front().text));
    force_folder(folder_);
    return report_;
  }

 private:
  struct Target {
    launch::UniqueFd fd;
    std::uint64_t there = 0;  // size left by an interrupted fetch, not yet verified
  };

  std::string path_of(std::size_t file) const { return path_join(folder_, manifest_.files[file].name); }

  void remove_what_is_not_listed() const {
    for (const std::string& name : list_folder(folder_)) {
      const bool listed = std::any_of(manifest_.files.begin(), manifest_.files.end(),
                                      [&](const format::ManifestFile& file) { return file.name == name; });
      const std::string path = path_join(folder_, name);
      std::error_code ignored;
      if (!listed || !std::filesystem::is_regular_file(std::filesystem::symlink_status(path, ignored)))
        remove_tree(path);
    }
  }

  void open_files() {
    for (std::size_t f = 0; f < manifest_.files.size(); ++f) {
      const std::string path = path_of(f);
      Target target{launch::UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644))};
      struct stat facts{};
      if (!target.fd || ::fstat(target.fd.get(), &facts) != 0)
        throw Error(concat(path, " cannot be created: ", std::strerror(errno)));
      const std::uint64_t size = manifest_.files[f].digest.size;
      target.there = std::min(static_cast<std::uint64_t>(facts.st_size), size);
      if (::ftruncate(target.fd.get(), static_cast<off_t>(size)) != 0)
        throw Error(concat(path, " cannot be extended to ", size, " bytes: ", std::strerror(errno)));
      files_.push_back(std::move(target));
    }
  }

  void take(const Piece& piece) {
    const format::ManifestFile& file = manifest_.files[piece.file];
    const Target& target = files_[piece.file];
    std::vector<std::byte> bytes(piece.end - piece.begin);
    bool right = false;
    if (piece.begin < target.there) {
      read_exactly(target.fd.get(), piece.begin, bytes, path_of(piece.file));
      right = !damaged_chunk(file.digest, piece.begin, bytes);
    }
    if (!right) {
      const std::string damage = read_verified(store_, from_, file, piece, bytes);
      if (!damage.empty())
        throw StorageError(StorageError::Kind::damaged, concat(from_.text(), " is damaged in the store: ", damage,
                                                               " (read ", most_reads, " times)"));
      write_exactly(target.fd.get(), piece.begin, bytes, path_of(piece.file));
    }
    const std::lock_guard lock(mutex_);
    done_ += bytes.size();
    if (!right) report_.fetched += bytes.size();
    if (options_.progress) options_.progress(done_, report_.bytes);
  }

  const ObjectStore& store_;
  const ObjectUrl& from_;
  const format::Manifest& manifest_;
  std::string folder_;
  const TransferOptions& options_;
  std::vector<Target> files_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
  FetchReport report_;
};

}  // namespace

std::vector<StoredCheckpoint> checkpoints_at(const ObjectStore& store, const ObjectUrl& url) {
  std::map<std::string, StoredCheckpoint> found;  // keyed by the checkpoint's part of the key; "" is `url` itself
  const std::size_t skip = url.key.empty() ? 0 : url.key.size() + 1;
  for (const ObjectFacts& object : store.list(url, false).objects) {
    if (object.key.size() <= skip) continue;
    const std::vector<std::string> parts = split(object.key.substr(skip), '/');
    if (parts.size() > 2) continue;
    const std::string folder = parts.size() == 2 ? parts[0] : "";
    StoredCheckpoint& checkpoint = found[folder];
    checkpoint.url = folder.empty() ? url : url.below(folder);
    checkpoint.objects += 1;
    checkpoint.bytes += object.size;
    checkpoint.whole = checkpoint.whole || parts.back() == format::kManifestName;
  }
  if (const auto itself = found.find(""); itself != found.end() && itself->second.whole) return {itself->second};
  std::vector<StoredCheckpoint> list;
  for (auto& [name, checkpoint] : found) {
    if (!name.starts_with("checkpoint-")) continue;
    checkpoint.step = parse_int(name.substr(11));
    if (checkpoint.step && *checkpoint.step >= 0) list.push_back(std::move(checkpoint));
  }
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return list;
}

StoredCheckpoint newest_at(const ObjectStore& store, const ObjectUrl& url) {
  const std::vector<StoredCheckpoint> list = checkpoints_at(store, url);
  const auto newest = std::find_if(list.rbegin(), list.rend(), [](const StoredCheckpoint& c) { return c.whole; });
  if (newest != list.rend()) return *newest;
  throw InputError(concat(url.text(), " contains no complete checkpoint: neither a ", format::kManifestName,
                          " nor a checkpoint-N that has one",
                          list.empty() ? "" : concat(" (", list.size(), " with an incomplete upload)")));
}

FetchReport fetch_checkpoint(const ObjectStore& store, const ObjectUrl& from, const std::string& folder,
                             const TransferOptions& options) {
  std::string manifest_text;
  const format::Manifest manifest = manifest_of(store, from, manifest_text);
  std::filesystem::path target = absolute_path(folder);
  if (!target.has_filename()) target = target.parent_path();
  make_folders(target.parent_path().string());
  const FolderLock lock(target.string() + ".fetching");
  if (path_exists(target.string())) {
    const std::string there = path_join(target.string(), format::kManifestName);
    if (!path_exists(there) || read_file(there, most_manifest) != manifest_text)
      throw InputError(concat(folder, " already exists and is not the checkpoint at ", from.text(),
                              ": choose another folder or remove it"));
    format::verify_sizes(target.string(), manifest);
    return {.folder = folder, .step = manifest.step, .bytes = bytes_listed(manifest), .fetched = 0};
  }
  const std::string growing = target.string() + ".fetching";
  FetchReport report = Growing(store, from, manifest, growing, options).run(manifest_text);
  if (std::rename(growing.c_str(), target.c_str()) != 0)
    throw Error(concat(growing, " cannot be renamed to ", folder, ": ", std::strerror(errno)));
  force_folder(target.parent_path().string());
  report.folder = folder;
  return report;
}

RemoteVerdict verify_checkpoint(const ObjectStore& store, const ObjectUrl& from, const TransferOptions& options) {
  RemoteVerdict verdict;
  std::string text;
  verdict.manifest = manifest_of(store, from, text);
  for (const format::ManifestFile& file : verdict.manifest.files) {
    const auto facts = store.find(from.below(file.name));
    if (!facts)
      verdict.damages.push_back(file.name + " is missing");
    else if (facts->size != file.digest.size)
      verdict.damages.push_back(concat(file.name, " has ", facts->size, " bytes instead of ", file.digest.size));
  }
  if (!verdict.damages.empty()) return verdict;
  const std::vector<Piece> pieces = pieces_of(verdict.manifest, options.part_bytes);
  std::mutex mutex;
  std::uint64_t done = 0;
  in_parallel(pieces.size(), options.connections, [&](std::size_t i) {
    std::vector<std::byte> bytes(pieces[i].end - pieces[i].begin);
    const std::string damage = read_verified(store, from, verdict.manifest.files[pieces[i].file], pieces[i], bytes);
    const std::lock_guard lock(mutex);
    if (!damage.empty()) verdict.damages.push_back(damage);
    done += bytes.size();
    if (options.progress) options.progress(done, bytes_listed(verdict.manifest));
  });
  std::sort(verdict.damages.begin(), verdict.damages.end());
  return verdict;
}

}  // namespace tessera::storage
