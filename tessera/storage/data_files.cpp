#include <tessera/storage/data_files.h>

#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/corpus/data_list.h>
#include <tessera/launch/store/hmac.h>
#include <tessera/storage/checksum.h>
#include <tessera/storage/folder_lock.h>
#include <tessera/storage/in_parallel.h>

namespace tessera::storage {
namespace {

/// The objects that one URL refers to.
struct ObjectSet {
  std::string base;  ///< common prefix of all keys, removed from local names
  std::vector<ObjectFacts> objects;
  std::string place;  ///< local path within the set's folder that replaces the URL; "" for the whole folder
};

bool has_wildcard(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

std::string folder_of_key(std::string_view key) {
  const std::size_t slash = key.rfind('/');
  return slash == std::string_view::npos ? std::string() : std::string(key.substr(0, slash + 1));
}

/// The objects of a listing that `wanted` accepts.
ObjectSet listed_set(const ObjectStore& store, const ObjectUrl& below,
                     const std::function<bool(const std::string&)>& wanted) {
  ObjectSet set{.base = below.key.empty() ? "" : below.key + "/", .objects = {}, .place = ""};
  for (ObjectFacts& object : store.list(below, false).objects)
    if (wanted(object.key)) set.objects.push_back(std::move(object));
  return set;
}

ObjectSet objects_of(const ObjectStore& store, const ObjectUrl& url) {
  if (has_wildcard(url.key)) {
    const std::string fixed = folder_of_key(url.key.substr(0, url.key.find_first_of("*?[")));
    const ObjectUrl below{url.bucket, fixed.empty() ? "" : fixed.substr(0, fixed.size() - 1)};
    return listed_set(store, below, [&](const std::string& key) {
      return ::fnmatch(url.key.c_str(), key.c_str(), FNM_PATHNAME) == 0;
    });
  }
  if (auto object = url.key.empty() ? std::nullopt : store.find(url)) {
    ObjectSet set{.base = folder_of_key(url.key), .objects = {std::move(*object)}, .place = ""};
    set.place = url.key.substr(set.base.size());
    if (url.key.ends_with(".bin"))
      if (auto index = store.find({url.bucket, url.key.substr(0, url.key.size() - 4) + ".idx"}))
        set.objects.push_back(std::move(*index));
    return set;
  }
  return listed_set(store, url, [](const std::string&) { return true; });
}

/// Identifies a set: 32 hexadecimal digits, a hash of its URL, keys, sizes and ETags.
std::string name_of(const ObjectStore& store, const ObjectUrl& url, const ObjectSet& set) {
  launch::Sha256 hash;
  const auto take = [&](std::string_view text) {
    const std::string counted = concat(text.size(), ":", text);
    hash.update({reinterpret_cast<const std::uint8_t*>(counted.data()), counted.size()});
  };
  take(store.access().endpoint);
  take(url.bucket);
  take(set.base);
  for (const ObjectFacts& object : set.objects) {
    take(object.key);
    take(concat(object.size));
    take(object.etag);
  }
  const auto digest = hash.finish();
  std::string name;
  for (std::size_t i = 0; i < 16; ++i) {
    name += "0123456789abcdef"[digest[i] >> 4];
    name += "0123456789abcdef"[digest[i] & 15];
  }
  return name;
}

/// Fetches one object to `path` and verifies it; `path` appears only when it is complete.
class DataFile {
 public:
  DataFile(const ObjectStore& store, ObjectUrl object, std::string path, const TransferOptions& options,
           std::function<void(std::uint64_t)> arrived)
      : store_(store),
        object_(std::move(object)),
        path_(std::move(path)),
        options_(options),
        arrived_(std::move(arrived)) {}

  void fetch() {
    const auto facts = store_.find(object_);
    if (!facts) throw StorageError(StorageError::Kind::changed, object_.text() + " was deleted in the meantime");
    const std::string growing = path_ + ".part";
    {
      const launch::UniqueFd fd(::open(growing.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
      if (!fd) throw Error(concat(growing, " cannot be created: ", std::strerror(errno)));
      const std::uint64_t each = options_.part_bytes;
      in_parallel((facts->size + each - 1) / each, options_.connections, [&](std::size_t i) {
        const std::uint64_t begin = i * each;
        std::vector<std::byte> bytes(std::min(each, facts->size - begin));
        store_.get_range(object_, begin, bytes, facts->etag);
        write_at(fd.get(), begin, bytes, growing);
        arrived_(bytes.size());
      });
      if (::fsync(fd.get()) != 0) throw Error(concat(growing, " cannot be synced to disk: ", std::strerror(errno)));
    }
    verify(growing, *facts);
    if (std::rename(growing.c_str(), path_.c_str()) != 0)
      throw Error(concat(growing, " cannot be renamed to ", path_, ": ", std::strerror(errno)));
  }

 private:
  static void write_at(int fd, std::uint64_t begin, std::span<const std::byte> bytes, const std::string& path) {
    while (!bytes.empty()) {
      const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(begin));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) throw Error(concat(path, " cannot be written: ", std::strerror(errno)));
      begin += static_cast<std::uint64_t>(put);
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
  }

  /// Compares the file with the size and checksum that the store has for the object; skips the checksum if the store
  /// has none.
  void verify(const std::string& growing, const ObjectFacts& facts) const {
    const MappedFile file(growing);
    const char* wrong = nullptr;
    if (file.bytes().size() != facts.size) wrong = "size";
    if (facts.crc32c && format::crc32c(file.bytes()) != *facts.crc32c) wrong = "CRC-32C";
    if (wrong == nullptr && !facts.crc32c && facts.etag_is_md5) {
      const std::string md5 = http_plugin().md5(file.bytes());
      if (!md5.empty() && md5 != facts.etag) wrong = "MD5 (ETag)";
    }
    if (wrong == nullptr) return;
    ::unlink(growing.c_str());
    throw StorageError(StorageError::Kind::damaged, concat(object_.text(), " is damaged: the received data differs in ",
                                                           wrong, " from the store's record"));
  }

  const ObjectStore& store_;
  ObjectUrl object_;
  std::string path_;
  const TransferOptions& options_;
  std::function<void(std::uint64_t)> arrived_;
};

/// The local path of the URL's objects.
std::string fetch_place(const ObjectStore& store, const std::string& text, const std::string& cache,
                        const TransferOptions& options) {
  const ObjectUrl url = parse_object_url(text);
  const ObjectSet set = objects_of(store, url);
  if (set.objects.empty()) throw InputError(text + ": no such object, and nothing below this prefix");
  const std::string folder = path_join(cache, name_of(store, url, set));
  const std::string local = set.place.empty() ? folder : path_join(folder, set.place);
  make_folders(cache);
  const FolderLock lock(folder);
  if (is_directory(folder)) return local;
  const std::string growing = folder + ".fetching";
  std::uint64_t all = 0, done = 0;
  for (const ObjectFacts& object : set.objects) all += object.size;
  std::mutex mutex;
  const auto arrived = [&](std::uint64_t bytes) {
    const std::lock_guard guard(mutex);
    done += bytes;
    if (options.progress) options.progress(done, all);
  };
  for (const ObjectFacts& object : set.objects) {
    const std::string path = path_join(growing, object.key.substr(set.base.size()));
    make_folders(std::filesystem::path(path).parent_path().string());
    if (path_exists(path))  // completed by an interrupted fetch; a file gets this name only after verification
      arrived(object.size);
    else
      DataFile(store, {url.bucket, object.key}, path, options, arrived).fetch();
  }
  if (std::rename(growing.c_str(), folder.c_str()) != 0)
    throw Error(concat(growing, " cannot be renamed to ", folder, ": ", std::strerror(errno)));
  return local;
}

}  // namespace

std::string fetch_data_list(const ObjectStore& store, const std::string& list, const std::string& cache,
                            const TransferOptions& options) {
  std::string local;
  for (const corpus::DataPart& part : corpus::parse_data_list(list)) {
    if (part.weight > 0) local += concat(local.empty() ? "" : " ", format_real(part.weight));
    for (const std::string& place : part.places)
      local += concat(local.empty() ? "" : " ",
                      corpus::quoted(is_object_url(place) ? fetch_place(store, place, cache, options) : place));
  }
  return local;
}

}  // namespace tessera::storage
