#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/format/crc32c.h>
#include <tessera/format/safetensors.h>
#include <tessera/format/safetensors_index.h>
#include <tessera/format/state_index.h>
#include <tessera/format/verify.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace tessera::format {
namespace {

constexpr std::string_view kSuffix = ".safetensors", kIndexSuffix = ".safetensors.index.json";
__extension__ using Wide = unsigned __int128;  // sums of sizes that a file claims

/// A regular file opened for reading, or why it is not one: never a symbolic link, a pipe, a device.
class RegularFile {
 public:
  RegularFile(const std::string& folder, const std::string& name)
      : fd_(::open(path_join(folder, name).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
    struct stat info {};
    if (fd_ < 0) {
      problem_ = errno == ENOENT  ? concat(name, " is missing")
                 : errno == ELOOP ? concat(name, " is a symbolic link; the files of a checkpoint must be in its folder")
                                  : concat(name, " cannot be opened: ", std::strerror(errno));
    } else if (::fstat(fd_, &info) != 0) {
      problem_ = concat(name, " cannot be opened: ", std::strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
      problem_ = concat(name, " is not a regular file");
    } else {
      size_ = static_cast<std::uint64_t>(info.st_size);
    }
  }
  ~RegularFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  const std::string& problem() const { return problem_; }  ///< "": it can be read
  std::uint64_t size() const { return size_; }
  void will_read_in_order() const { ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL); }

  /// Fills `to` with the bytes at `at`; false at the end of the file or on an error, which `why` then says.
  bool read(std::uint64_t at, std::span<std::byte> to, std::string& why) const {
    while (!to.empty()) {
      const ssize_t n = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        why = n < 0 ? std::strerror(errno) : "the file was cut while it was read";
        return false;
      }
      at += static_cast<std::uint64_t>(n);
      to = to.subspan(static_cast<std::size_t>(n));
    }
    return true;
  }

 private:
  int fd_;
  std::uint64_t size_ = 0;
  std::string problem_;
};

/// Chunks that follow one another in a file and are wrong for the same reason.
struct Range {
  std::uint64_t begin, end;
  std::string why;  ///< "": their bytes are others; else why they could not be read
};

/// What of a safetensors file lies in [begin, end): names from its header as it is now.
std::vector<std::string> tensors_at(const RegularFile& file, const std::string& name, std::uint64_t begin, std::uint64_t end) {
  std::vector<std::string> names;
  std::string why;
  std::vector<std::byte> front(std::min<std::uint64_t>(file.size(), 8));
  try {
    if (!file.read(0, front, why)) return names;
    const std::uint64_t front_bytes = safetensors_front_bytes(front, file.size(), name);
    if (begin < front_bytes) names.emplace_back("the header");
    front.resize(front_bytes);
    if (!file.read(0, front, why)) return names;
    const SafetensorsHeader header = parse_safetensors_header(front, file.size(), name);
    for (const TensorInfo& tensor : header.tensors)
      if (header.data_begin + tensor.begin < end && begin < header.data_begin + tensor.end) names.push_back(tensor.name);
  } catch (const InputError&) {  // the damage is in the header; that is what is said
    names = {"the header"};
  }
  return names;
}

Damage damage_of(const RegularFile& file, const std::string& name, const Range& range) {
  Damage damage{name, range.begin, range.end, {}, ""};
  if (!range.why.empty()) {
    damage.text = concat(name, ": bytes ", range.begin, " to ", range.end, " cannot be read: ", range.why);
    return damage;
  }
  damage.text = concat(name, ": bytes ", range.begin, " to ", range.end, " are damaged");
  if (!name.ends_with(kSuffix)) return damage;
  damage.tensors = tensors_at(file, name, range.begin, range.end);
  const std::size_t count = damage.tensors.size(), shown = std::min<std::size_t>(count, 3);
  if (count > 0)
    damage.text += concat(" (", join(std::span(damage.tensors).first(shown)), count > shown ? concat(" and ", count - shown, " more") : "", ")");
  return damage;
}

/// The part of all chunks that a share reads: those that begin in [begin, end) of the files' bytes put one after another.
struct Part {
  Wide begin, end;
  bool holds(Wide at) const { return begin <= at && at < end; }
};

Part part_of(const Manifest& manifest, const Share& share) {
  Wide all = 0;
  for (const ManifestFile& file : manifest.files) all += file.digest.size;
  const auto cut = [&](int rank) { return all * static_cast<Wide>(rank) / static_cast<Wide>(share.ranks); };
  return {cut(share.rank), cut(share.rank + 1)};
}

/// Compares files, one after another in the manifest's order.
class Reader {
 public:
  Reader(std::string folder, const Manifest& manifest, const Share& share, const VerifyProgress& progress)
      : folder_(std::move(folder)), progress_(progress), part_(part_of(manifest, share)) {
    for (const ManifestFile& file : manifest.files) {
      for_each_chunk(file.digest, [&](std::size_t, std::uint64_t begin, std::uint64_t end) { share_bytes_ += end - begin; });
      before_ += file.digest.size;
    }
    before_ = 0;
  }

  /// What is wrong with the next file.
  std::vector<Damage> check(const ManifestFile& listed) {
    std::vector<Damage> damages;
    const RegularFile file(folder_, listed.name);
    std::string problem = file.problem();
    if (problem.empty() && file.size() != listed.digest.size)
      problem = concat(listed.name, " has ", file.size(), " bytes instead of ", listed.digest.size);
    if (!problem.empty()) {
      damages.push_back({listed.name, 0, listed.digest.size, {}, std::move(problem)});
      for_each_chunk(listed.digest, [&](std::size_t, std::uint64_t begin, std::uint64_t end) { advance(end - begin); });
    } else {
      for (const Range& range : wrong_ranges(file, listed.digest)) damages.push_back(damage_of(file, listed.name, range));
    }
    before_ += listed.digest.size;
    return damages;
  }

  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  /// Chunks of the current file that are of this share: number, begin, end.
  template <class Visit>
  void for_each_chunk(const Digest& digest, const Visit& visit) const {
    for (std::size_t i = 0; i < digest.chunks.size(); ++i) {
      const std::uint64_t begin = i * digest.chunk_bytes;
      if (part_.holds(before_ + begin)) visit(i, begin, std::min(begin + digest.chunk_bytes, digest.size));
    }
  }

  void advance(std::uint64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, share_bytes_);
  }

  std::vector<Range> wrong_ranges(const RegularFile& file, const Digest& digest) {
    std::vector<Range> ranges;
    file.will_read_in_order();
    for_each_chunk(digest, [&](std::size_t i, std::uint64_t begin, std::uint64_t end) {
      std::uint32_t crc = 0;
      std::string why;
      for (std::uint64_t at = begin; at < end && why.empty();) {
        const auto bytes = std::span(buffer_).first(std::min<std::uint64_t>(buffer_.size(), end - at));
        if (!file.read(at, bytes, why)) break;
        crc = crc32c(bytes, crc);
        at += bytes.size();
        bytes_read_ += bytes.size();
      }
      if (!why.empty() || crc != digest.chunks[i]) {
        if (!ranges.empty() && ranges.back().end == begin && ranges.back().why == why)
          ranges.back().end = end;
        else
          ranges.push_back({begin, end, why});
      }
      advance(end - begin);
    });
    return ranges;
  }

  std::string folder_;
  const VerifyProgress& progress_;
  const Part part_;
  Wide before_ = 0;  // bytes of the files before the current one
  std::uint64_t share_bytes_ = 0, done_ = 0, bytes_read_ = 0;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(256 << 10);  // stays in the cache between pread and the checksum
};

/// Names come from the files: a line break or an escape sequence in one must not look like a line of ours.
std::string one_line(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return text;
}

/// The files that an index of shards (safetensors_index.h) or of pieces (state_index.h) names.
std::set<std::string> files_named_by(const std::string& path) {
  const std::string text = read_file(path, std::uint64_t{256} << 20);
  if (parse_json(text, path).find("weight_map") != nullptr) {
    const SafetensorsIndex index = parse_safetensors_index(text, path);
    return {index.files.begin(), index.files.end()};
  }
  std::set<std::string> files;
  for (const StoredTensor& tensor : parse_state_index(text, path).tensors)
    for (const StoredPiece& piece : tensor.pieces) files.insert(piece.file);
  return files;
}

/// What readers would open must be listed: the shards of an index, and the file or index that a name stands for.
std::vector<Damage> check_names(const std::string& folder, const Manifest& manifest) {
  std::set<std::string> listed;
  for (const ManifestFile& file : manifest.files) listed.insert(file.name);
  std::vector<Damage> damages;
  const auto complain = [&](const std::string& file, std::string text) { damages.push_back({file, 0, 0, {}, std::move(text)}); };
  for (const std::string& name : listed) {
    if (!name.ends_with(kIndexSuffix) || !RegularFile(folder, name).problem().empty()) continue;
    try {
      for (const std::string& file : files_named_by(path_join(folder, name)))
        if (!listed.contains(file)) complain(name, concat(name, " names ", file, ", which ", kManifestName, " does not list"));
    } catch (const InputError& error) {
      complain(name, error.what());
    }
    const std::string single = name.substr(0, name.size() - kIndexSuffix.size()) + std::string(kSuffix);
    if (!listed.contains(single) && path_exists(path_join(folder, single)))
      complain(single, concat(single, " is not listed in ", kManifestName, ", but would be read instead of the files that ", name, " names"));
  }
  for (const std::string& name : list_folder(folder)) {
    if (listed.contains(name)) continue;
    if (name == "adapter_config.json" || name == "adapter_model.safetensors")  // PEFT's: whoever has them is not a whole model
      complain(name, concat(name, " is not listed in ", kManifestName, ", but would make the folder one of adapters"));
    if (!name.ends_with(kIndexSuffix)) continue;
    const std::string single = name.substr(0, name.size() - kIndexSuffix.size()) + std::string(kSuffix);
    if (!listed.contains(single)) complain(name, concat(name, " is not listed in ", kManifestName));
  }
  return damages;
}

}  // namespace

std::string Verdict::text() const {
  std::vector<std::string> lines;
  for (const Damage& damage : damages) lines.push_back(damage.text);
  const std::size_t shown = std::min<std::size_t>(lines.size(), 3);
  return concat(join(std::span(lines).first(shown), "; "), lines.size() > shown ? concat("; and ", lines.size() - shown, " more") : "");
}

Verdict verify_folder(const std::string& folder, const Share& share, const VerifyProgress& progress) {
  TESSERA_CHECK(share.ranks >= 1 && 0 <= share.rank && share.rank < share.ranks, "part ", share.rank, " of ", share.ranks);
  Verdict verdict;
  try {
    if (const RegularFile list(folder, kManifestName); !list.problem().empty() && path_exists(path_join(folder, kManifestName)))
      throw InputError(concat(folder, ": ", list.problem()));
    verdict.manifest = read_manifest(folder);
    if (share.rank == 0) verdict.damages = check_names(folder, verdict.manifest);
  } catch (const InputError& error) {
    verdict.manifest = {};
    verdict.damages = {{kManifestName, 0, 0, {}, one_line(error.what())}};
    return verdict;
  }
  Reader reader(folder, verdict.manifest, share, progress);
  std::vector<Damage> found;
  for (const ManifestFile& file : verdict.manifest.files)
    for (Damage& damage : reader.check(file)) found.push_back(std::move(damage));
  found.insert(found.end(), std::make_move_iterator(verdict.damages.begin()), std::make_move_iterator(verdict.damages.end()));
  for (Damage& damage : found) damage.text = one_line(std::move(damage.text));
  verdict.damages = std::move(found);
  verdict.bytes_read = reader.bytes_read();
  return verdict;
}

}  // namespace tessera::format
