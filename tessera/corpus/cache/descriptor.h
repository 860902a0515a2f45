#pragma once
/// \file
/// File descriptors, and file locks that are released when the process dies.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace tessera::corpus {

/// A file descriptor that is closed on destruction.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Throws InputError naming path and reason.
Descriptor open_to_read(const std::string& path);
/// Fills `into` from `offset`. Throws InputError when reading fails or the file is too short.
void read_all(const Descriptor& file, std::span<std::byte> into, std::uint64_t offset, const std::string& path);

/// Locks on individual numbered positions of one file (Linux's open file description locks: they belong to this object,
/// not to the process, and the kernel releases them however the process dies). On NFS they are byte-range locks at the
/// server, so hosts that share a folder see each other's locks if the server supports them. The positions need not
/// exist as bytes. Not thread-safe.
class PlaceLocks {
 public:
  /// Opens the file; `create`: creates it if missing. Throws InputError (missing) or Error.
  PlaceLocks(const std::string& path, bool create);

  enum class Kind { shared, exclusive };
  /// Takes the lock, or changes the kind of a lock already held, without waiting; returns false if another holder
  /// conflicts. Throws Error when the file system has no locks.
  bool try_lock(std::uint64_t place, Kind kind);
  void unlock(std::uint64_t place);
  /// Whether another holder has a lock of either kind.
  bool is_locked(std::uint64_t place) const;
  /// Whether the path still refers to the opened file; false after its folder was renamed or removed.
  bool still_there() const;

 private:
  std::string path_;
  Descriptor file_;
};

}  // namespace tessera::corpus
