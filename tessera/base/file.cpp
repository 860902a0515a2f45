#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/system/abandoned.h>
#include <tessera/base/system/file_limit.h>
#include <tessera/base/system/open_file.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

namespace tessera {
namespace {

std::string reason() { return write_error_text(errno); }

/// Closes on destruction.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

void sync_folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const Descriptor fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // some file systems refuse to sync folders; the rename itself is still atomic
  if (fd.get() >= 0 && ::fsync(fd.get()) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
    throw Error(concat("cannot force the folder of '", path, "' to the disk: ", reason()));
}

}  // namespace

bool path_exists(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string path_join(std::string_view folder, std::string_view name) {
  return (std::filesystem::path(folder) / std::filesystem::path(name)).string();
}

std::string absolute_path(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

std::vector<std::string> list_folder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) throw InputError(concat("cannot list the folder '", path, "': ", error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

void make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw Error(concat("cannot create the folder '", path, "': ", error.message()));
}

void remove_tree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw Error(concat("cannot remove '", path, "': ", error.message()));
}

std::string read_file(const std::string& path, std::uint64_t max_bytes) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) throw InputError(concat("cannot open '", path, "': ", reason()));
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) throw InputError(concat("cannot stat '", path, "': ", reason()));
  if (S_ISDIR(info.st_mode)) throw InputError(concat("'", path, "' is a folder; expected a file"));
  std::string bytes;
  if (S_ISREG(info.st_mode)) {
    if (static_cast<std::uint64_t>(info.st_size) > max_bytes)
      throw InputError(concat("'", path, "' has ", info.st_size, " bytes; at most ", max_bytes, " are accepted here"));
    bytes.reserve(static_cast<std::size_t>(info.st_size));
  }
  std::vector<char> buffer(1 << 20);  // a file may grow while it is read, and pipes have no size: read to the end
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw InputError(concat("cannot read '", path, "': ", reason()));
    if (n == 0) return bytes;
    bytes.append(buffer.data(), static_cast<std::size_t>(n));
    if (bytes.size() > max_bytes)
      throw InputError(concat("'", path, "' has more than the ", max_bytes, " bytes accepted here"));
  }
}

std::string read_file_or_empty(const std::string& path) {
  try {
    return read_file(path);
  } catch (const InputError&) {
    return {};
  }
}

void write_all(int fd, std::span<const std::byte> bytes, const std::string& path_for_errors) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw Error(concat("cannot write '", path_for_errors, "': ", reason(), " (", bytes.size(), " bytes left)"));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void write_file_atomically(const std::string& path, const std::function<void(int fd)>& produce) {
  const std::string temporary = concat(path, ".tmp.", ::getpid());
  Descriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (fd.get() < 0) throw Error(concat("cannot create '", temporary, "': ", reason()));
  hold_as_ours(fd.get());
  const Descriptor held(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));  // keeps the lock until the file is renamed
  try {
    produce(fd.get());
    if (::fsync(fd.get()) != 0) throw Error(concat("cannot sync '", temporary, "': ", reason()));
    if (::close(fd.release()) != 0) throw Error(concat("cannot close '", temporary, "': ", reason()));
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      throw Error(concat("cannot rename '", temporary, "' to '", path, "': ", reason()));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder_of(path);
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  write_file_atomically(path, [&](int fd) { write_all(fd, std::as_bytes(std::span(bytes)), path); });
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) throw InputError(concat("cannot open '", path, "': ", reason()));
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) throw InputError(concat("cannot stat '", path, "': ", reason()));
  if (!S_ISREG(info.st_mode)) throw InputError(concat("'", path, "' is not a regular file"));
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ == 0) return;  // mmap refuses length 0
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) throw InputError(concat("cannot map '", path, "' (", size_, " bytes): ", reason()));
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

namespace {

constexpr std::string_view random_part = "XXXXXX";

/// "PREFIX.held.5f3a9c0b-": specific to this boot of this host, because locks of some shared file systems are per host.
std::string name_on_this_host(const std::string& prefix) {
  std::string boot;
  try {
    boot = read_file("/proc/sys/kernel/random/boot_id").substr(0, 8);
  } catch (const Error&) {  // no /proc
  }
  return concat(prefix, ".held.", boot, "-");
}

void remove_abandoned_once(const std::string& base, const std::string& prefix) {
  static std::mutex mutex;
  static std::set<std::string>& done = *new std::set<std::string>;
  const std::string begin = name_on_this_host(prefix);
  {
    const std::lock_guard lock(mutex);
    if (!done.insert(path_join(base, begin)).second) return;
  }
  remove_abandoned(base, [&](const std::string& name) {
    if (!name.starts_with(begin) || name.size() < begin.size() + random_part.size() + 2) return false;
    const auto pid = parse_int(name.substr(begin.size(), name.size() - begin.size() - random_part.size() - 1));
    // A free lock does not prove that the owner has exited (another file system may be mounted over the folder), so the
    // process itself is checked.
    return pid && *pid > 0 && ::kill(static_cast<pid_t>(*pid), 0) != 0 && errno == ESRCH;
  });
}

}  // namespace

TemporaryFolder::TemporaryFolder(const std::string& prefix) {
  const char* given = std::getenv("TMPDIR");
  const std::string base = given == nullptr || *given == '\0' ? "/tmp" : given;
  remove_abandoned_once(base, prefix);
  for (int tries = 0;; ++tries) {
    std::string pattern = path_join(base, concat(name_on_this_host(prefix), ::getpid(), ".", random_part));
    if (::mkdtemp(pattern.data()) == nullptr) {
      const int error = errno;
      const std::string what = concat("cannot create a temporary folder '", pattern, "': ", write_error_text(error));
      // A full disk is a temporary failure; a missing or unwritable folder is an input error.
      const bool said = error == ENOENT || error == ENOTDIR || error == EACCES || error == EROFS;
      if (said) throw InputError(concat(what, "; set TMPDIR to an existing folder that can be written"));
      throw Error(what);
    }
    path_ = pattern;
    fd_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd_ >= 0) hold_as_ours(fd_);
    if (fd_ >= 0 && leads_to(path_, fd_)) return;  // otherwise another process removed it as abandoned
    if (tries == 10)
      throw Error(concat("cannot keep a temporary folder: '", path_,
                         "' cannot be opened, or another process keeps removing it"));
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // a destructor cannot report; the folder is under TMPDIR anyway
  std::filesystem::remove_all(path_, ignored);
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace tessera
