#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/format/crc32c.h>
#include <tessera/format/safetensors.h>
#include <tessera/format/safetensors_index.h>
#include <tessera/format/state_index.h>
#include <tessera/format/verify.h>
#include <tessera/layout/owners.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

namespace tessera::format {
namespace {

constexpr std::string_view kSuffix = ".safetensors", kIndexSuffix = ".safetensors.index.json";

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
    if (map_ != nullptr && map_ != MAP_FAILED) ::munmap(map_, size_);
    if (fd_ >= 0) ::close(fd_);
  }
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  const std::string& problem() const { return problem_; }  ///< "": it can be read
  std::uint64_t size() const { return size_; }
  void will_read_in_order() const { ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL); }

  /// Whether all of [begin, end) is in the page cache; true where that cannot be told. Starts no reading, which preadv2's RWF_NOWAIT
  /// does.
  bool is_cached(std::uint64_t begin, std::uint64_t end) const {
    if (map_ == nullptr) map_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);  // only its addresses are used
    if (map_ == MAP_FAILED) return true;
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const auto resident = [&](std::uint64_t from) {
      cached_.resize((end - from + page - 1) / page);
      if (::mincore(static_cast<char*>(map_) + from, end - from, cached_.data()) != 0) return true;
      return std::all_of(cached_.begin(), cached_.end(), [](unsigned char is) { return (is & 1) != 0; });
    };
    return resident((end - 1) / page * page) && resident(begin / page * page);  // what is read in order ends with the last page
  }

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
  mutable void* map_ = nullptr;
  mutable std::vector<unsigned char> cached_;  // by page
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

/// Compares the chunks of a share.
class Reader {
 public:
  Reader(std::string folder, const Manifest& manifest, const Share& share, const VerifyProgress& progress, const OthersRead& others_read)
      : folder_(std::move(folder)), manifest_(manifest), progress_(progress), others_read_(others_read) {
    std::vector<Chunk> all;
    std::vector<std::int64_t> bytes;
    for (std::size_t file = 0; file < manifest.files.size(); ++file) {
      const Digest& digest = manifest.files[file].digest;
      for (std::size_t i = 0; i < digest.chunks.size(); ++i) {
        const std::uint64_t begin = i * digest.chunk_bytes, end = std::min(begin + digest.chunk_bytes, digest.size);
        all.push_back({file, i, begin, end});
        bytes.push_back(static_cast<std::int64_t>(end - begin));
      }
    }
    const std::vector<int> owners = layout::assign_owners(bytes, share.ranks);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (owners[i] == share.rank) chunks_.push_back(std::move(all[i]));
    for (const Chunk& chunk : chunks_) share_bytes_ += chunk.end - chunk.begin;
  }

  /// In the manifest's order.
  std::vector<Damage> check() {
    std::vector<std::vector<Damage>> damages(manifest_.files.size());
    for (std::size_t file = 0; file < manifest_.files.size(); ++file)
      if (std::string problem = problem_of(file); !problem.empty()) {
        const ManifestFile& listed = manifest_.files[file];
        damages[file].push_back({listed.name, 0, listed.digest.size, {}, std::move(problem)});
      }
    std::erase_if(chunks_, [&](const Chunk& chunk) {  // there is nothing to compare with
      if (damages[chunk.file].empty()) return false;
      advance(chunk);
      return true;
    });
    compare_all();
    for (std::size_t i = 0; i < chunks_.size();) {
      const std::size_t file = chunks_[i].file;
      std::vector<Range> ranges;
      for (; i < chunks_.size() && chunks_[i].file == file; ++i) {
        const Chunk& chunk = chunks_[i];
        if (!chunk.wrong) continue;
        if (!ranges.empty() && ranges.back().end == chunk.begin && ranges.back().why == chunk.why)
          ranges.back().end = chunk.end;
        else
          ranges.push_back({chunk.begin, chunk.end, chunk.why});
      }
      for (const Range& range : ranges) damages[file].push_back(damage_of(open(file), manifest_.files[file].name, range));
    }
    std::vector<Damage> all;
    for (auto& of_file : damages) std::move(of_file.begin(), of_file.end(), std::back_inserter(all));
    return all;
  }

  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  struct Chunk {
    std::size_t file, number;
    std::uint64_t begin, end;
    bool done = false, wrong = false;
    std::string why = {};  ///< it could not be read
  };

  /// One file is open at a time: a checkpoint may have more files than a process may open.
  const RegularFile& open(std::size_t file) {
    if (!open_ || open_number_ != file) {
      open_.emplace(folder_, manifest_.files[file].name);
      open_number_ = file;
      open_->will_read_in_order();
    }
    return *open_;
  }

  std::string problem_of(std::size_t file) {
    const ManifestFile& listed = manifest_.files[file];
    const RegularFile found(folder_, listed.name);
    if (!found.problem().empty() || found.size() == listed.digest.size) return found.problem();
    return concat(listed.name, " has ", found.size(), " bytes instead of ", listed.digest.size);
  }

  void advance(const Chunk& chunk) {
    done_ += chunk.end - chunk.begin;
    if (progress_) progress_(done_, share_bytes_);
  }

  void compare_all() {
    constexpr int patience = 100;  // rounds in which nothing came: others are slow, or on another host, so one chunk is read here
    int idle = 0;
    for (std::size_t left = chunks_.size(); left > 0;) {
      bool wait = others_read_ && others_read_();
      std::size_t compared = 0;
      for (Chunk& chunk : chunks_) {
        if (chunk.done || !compare(chunk, wait && idle < patience)) continue;
        ++compared;
        idle = 0;
        advance(chunk);
        wait = wait && others_read_();
      }
      left -= compared;
      idle += compared == 0;
      if (left > 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  /// False: it is left for now.
  bool compare(Chunk& chunk, bool wait) {
    const RegularFile& file = open(chunk.file);
    if (wait && !file.is_cached(chunk.begin, chunk.end)) return false;
    chunk.why = file.problem();  // it was whole when its size was looked at
    std::uint32_t crc = 0;
    std::uint64_t at = chunk.begin;
    while (at < chunk.end && chunk.why.empty()) {
      const auto bytes = std::span(buffer_).first(std::min<std::uint64_t>(buffer_.size(), chunk.end - at));
      if (!file.read(at, bytes, chunk.why)) break;
      crc = crc32c(bytes, crc);
      at += bytes.size();
    }
    bytes_read_ += at - chunk.begin;
    chunk.done = true;
    chunk.wrong = !chunk.why.empty() || crc != manifest_.files[chunk.file].digest.chunks[chunk.number];
    return true;
  }

  std::string folder_;
  const Manifest& manifest_;
  const VerifyProgress& progress_;
  const OthersRead& others_read_;
  std::vector<Chunk> chunks_;  // of this share
  std::optional<RegularFile> open_;
  std::size_t open_number_ = 0;
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

Verdict verify_folder(const std::string& folder, const Share& share, const VerifyProgress& progress, const OthersRead& others_read) {
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
  Reader reader(folder, verdict.manifest, share, progress, others_read);
  std::vector<Damage> found = reader.check();
  found.insert(found.end(), std::make_move_iterator(verdict.damages.begin()), std::make_move_iterator(verdict.damages.end()));
  for (Damage& damage : found) damage.text = one_line(std::move(damage.text));
  verdict.damages = std::move(found);
  verdict.bytes_read = reader.bytes_read();
  return verdict;
}

}  // namespace tessera::format
