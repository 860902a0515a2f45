#include <tessera/storage/push.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/storage/checksum.h>
#include <tessera/storage/in_parallel.h>

namespace tessera::storage {
namespace {

constexpr std::uint64_t most_parts = 9'000;  // S3 allows 10,000

launch::UniqueFd open_listed(const std::string& folder, const format::ManifestFile& file) {
  const std::string path = path_join(folder, file.name);
  launch::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat facts{};
  if (!fd || ::fstat(fd.get(), &facts) != 0)
    throw InputError(concat(path, " cannot be opened: ", std::strerror(errno)));
  if (!S_ISREG(facts.st_mode) || static_cast<std::uint64_t>(facts.st_size) != file.digest.size)
    throw InputError(concat(path, " is not a file of ", file.digest.size, " bytes, as the manifest requires"));
  return fd;
}

/// The upload of one checkpoint: state shared by several threads.
class Push {
 public:
  Push(const ObjectStore& store, const OpenCheckpoint& checkpoint, const ObjectUrl& to, const TransferOptions& options)
      : store_(store), checkpoint_(checkpoint), to_(to), options_(options) {
    report_.bytes = checkpoint.bytes();
  }

  PushReport run() {
    const std::string& manifest = checkpoint_.manifest_text();
    const ObjectUrl manifest_at = to_.below(format::kManifestName);
    const auto bytes = std::as_bytes(std::span(manifest));
    const std::uint32_t crc = format::crc32c(bytes);
    const auto there = store_.find(manifest_at);
    const bool same = there && there->size == manifest.size() && there->crc32c == crc;
    if (there && !same) store_.erase(manifest_at);
    for (const OpenCheckpoint::File& file : checkpoint_.files()) push_file(file);
    if (!same) store_.put(manifest_at, bytes, crc);
    return report_;
  }

 private:
  struct Part {
    std::uint64_t begin = 0, end = 0;
    std::uint32_t crc = 0;
  };

  void done(std::uint64_t bytes, bool sent) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    if (sent) report_.sent += bytes;
    if (options_.progress) options_.progress(done_, report_.bytes);
  }

  /// Reads a part and checks it against the manifest.
  std::vector<std::byte> read_part(const OpenCheckpoint::File& file, const Part& part) const {
    std::vector<std::byte> bytes(part.end - part.begin);
    const std::string path = path_join(checkpoint_.folder(), file.listed.name);
    read_exactly(file.fd.get(), part.begin, bytes, path);
    if (format::crc32c(bytes) != part.crc)
      throw InputError(concat(path, ": bytes ", part.begin, " to ", part.end,
                              " are damaged: their checksum differs from the manifest's"));
    return bytes;
  }

  void push_file(const OpenCheckpoint::File& file) {
    const ObjectUrl object = to_.below(file.listed.name);
    const format::Digest& digest = file.listed.digest;
    const std::uint32_t crc = crc_between(digest, 0, digest.size);
    const auto there = store_.find(object);
    if (there && there->size == digest.size && there->crc32c == crc) return done(digest.size, false);
    const std::uint64_t part_bytes = part_size(digest);
    if (digest.size <= part_bytes) {
      store_.put(object, read_part(file, {0, digest.size, crc}), crc);
      return done(digest.size, true);
    }
    std::vector<Part> parts;
    for (std::uint64_t begin = 0; begin < digest.size; begin += part_bytes) {
      const std::uint64_t end = std::min(begin + part_bytes, digest.size);
      parts.push_back({begin, end, crc_between(digest, begin, end)});
    }
    push_parts(file, object, parts, crc);
  }

  /// A multiple of the digest's chunk size, so that parts' checksums follow without reading the file.
  std::uint64_t part_size(const format::Digest& digest) const {
    const std::uint64_t least = std::max(options_.part_bytes, (digest.size + most_parts - 1) / most_parts);
    return (least + digest.chunk_bytes - 1) / digest.chunk_bytes * digest.chunk_bytes;
  }

  void push_parts(const OpenCheckpoint::File& file, const ObjectUrl& object, const std::vector<Part>& parts,
                  std::uint32_t crc) {
    std::vector<std::optional<StoredPart>> stored(parts.size());
    std::string upload = resumable(file, object, parts, stored);
    if (upload.empty()) upload = store_.begin_upload(object, crc);
    std::atomic<bool> all_verified = true;
    in_parallel(parts.size(), options_.connections, [&](std::size_t i) {
      const std::uint64_t size = parts[i].end - parts[i].begin;
      if (stored[i]) return done(size, false);
      bool verified = true;
      stored[i] =
          store_.put_part(object, upload, static_cast<int>(i) + 1, read_part(file, parts[i]), parts[i].crc, verified);
      if (!verified) all_verified = false;
      done(size, true);
    });
    std::vector<StoredPart> list;
    for (const auto& part : stored) list.push_back(*part);
    store_.complete_upload(object, upload, list);
    const auto whole = store_.find(object);
    if (!whole || whole->size != file.listed.digest.size)
      throw StorageError(StorageError::Kind::passing,
                         object.text() + " has the wrong size after completing the upload");
    if (!all_verified) read_back(object, parts, whole->etag);
  }

  /// Returns the newest unfinished upload of this object and, in `stored`, the parts it already has: those with the
  /// right size and checksum (or MD5, if the store reports no checksum). Older uploads are aborted: they cost money,
  /// and nobody will complete them.
  std::string resumable(const OpenCheckpoint::File& file, const ObjectUrl& object, const std::vector<Part>& parts,
                        std::vector<std::optional<StoredPart>>& stored) const {
    std::vector<std::string> uploads = store_.uploads_of(object);
    if (uploads.empty()) return "";
    const std::string upload = uploads.back();
    uploads.pop_back();
    for (const std::string& old : uploads) store_.abort_upload(object, old);
    for (StoredPart& part : store_.parts_of(object, upload)) {
      const auto index = static_cast<std::size_t>(part.number) - 1;
      if (index >= parts.size() || part.size != parts[index].end - parts[index].begin) continue;
      const bool same = part.crc32c ? *part.crc32c == parts[index].crc
                                    : part.etag == http_plugin().md5(read_part(file, parts[index]));
      if (same) stored[index] = std::move(part);
    }
    return upload;
  }

  void read_back(const ObjectUrl& object, const std::vector<Part>& parts, const std::string& etag) const {
    std::atomic<bool> damaged = false;
    try {
      in_parallel(parts.size(), options_.connections, [&](std::size_t i) {
        std::vector<std::byte> bytes(parts[i].end - parts[i].begin);
        store_.get_range(object, parts[i].begin, bytes, etag);
        if (format::crc32c(bytes) == parts[i].crc) return;
        damaged = true;
        throw StorageError(StorageError::Kind::passing,
                           concat(object.text(), ": reading it back, bytes ", parts[i].begin, " to ", parts[i].end,
                                  " differ from those sent"));
      });
    } catch (const StorageError&) {
      // The object is removed only after all parts have been read: otherwise the other threads would find it missing
      // and report that instead.
      if (damaged) store_.erase(object);
      throw;
    }
  }

  const ObjectStore& store_;
  const OpenCheckpoint& checkpoint_;
  const ObjectUrl& to_;
  const TransferOptions& options_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
  PushReport report_;
};

}  // namespace

OpenCheckpoint::OpenCheckpoint(std::string folder)
    : folder_(std::move(folder)), manifest_text_(read_file(path_join(folder_, format::kManifestName), most_manifest)) {
  manifest_ = format::parse_manifest(manifest_text_, path_join(folder_, format::kManifestName));
  for (const format::ManifestFile& file : manifest_.files) files_.push_back({file, open_listed(folder_, file)});
}

std::uint64_t OpenCheckpoint::bytes() const {
  return std::accumulate(files_.begin(), files_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const File& file) { return sum + file.listed.digest.size; });
}

PushReport push_checkpoint(const ObjectStore& store, const OpenCheckpoint& checkpoint, const ObjectUrl& to,
                           const TransferOptions& options) {
  return Push(store, checkpoint, to, options).run();
}

}  // namespace tessera::storage
