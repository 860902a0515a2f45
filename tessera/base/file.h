#pragma once
/// \file
/// Files: whole-file reads with a limit, atomic writes, memory mapping, temporary folders. Errors name the path and
/// errno.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

bool path_exists(const std::string& path);   ///< also true for a folder; false if it cannot be inspected
bool is_directory(const std::string& path);  ///< follows symbolic links; false if it does not exist
std::string path_join(std::string_view folder, std::string_view name);  ///< "a/b"; `name` alone if it begins with /
std::string absolute_path(const std::string& path);  ///< from the current folder, without "." and ".."; need not exist
/// The names in a folder, sorted, without "." and "..".
std::vector<std::string> list_folder(const std::string& path);
void make_folders(const std::string& path);  ///< mkdir -p
void remove_tree(const std::string& path);   ///< rm -rf; a missing path is fine

/// Whole file. Throws InputError when missing, unreadable or larger than max_bytes.
std::string read_file(const std::string& path, std::uint64_t max_bytes = std::uint64_t{8} << 30);
/// Whole file; empty if it cannot be opened or read to its end. For files of /proc: the process that a file describes
/// can end between open() and read(), which then fails with ESRCH.
std::string read_file_or_empty(const std::string& path);
/// Writes path.tmp.PID, fsyncs file and folder, and renames, so readers see either the old bytes or the new ones. If
/// the process is killed meanwhile, remove_abandoned() recognizes the leftover temporary file (abandoned.h).
void write_file_atomically(const std::string& path, std::string_view bytes);
/// As above, but `produce` writes through the given file descriptor (large files without a copy in memory).
void write_file_atomically(const std::string& path, const std::function<void(int fd)>& produce);
/// Repeats write(2) until all bytes are written; throws Error with errno (ENOSPC...).
void write_all(int fd, std::span<const std::byte> bytes, const std::string& path_for_errors);

/// A read-only private mapping of a whole file. Movable; unmaps on destruction. An empty file maps to an empty span.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::string& path);  ///< throws InputError if it is not a regular file or cannot be mapped
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }  ///< valid as long as the mapping
  const std::string& path() const noexcept { return path_; }                    ///< as passed to the constructor

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// mkdtemp under TMPDIR; removed with its contents on destruction. The first one that a process creates with a given
/// prefix also removes folders left behind by killed processes (abandoned.h).
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& prefix = "tessera");  ///< PREFIX.held.xxxxxx; throws Error on failure,
                                                                    ///< InputError when TMPDIR is not a writable folder
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const noexcept { return path_; }  ///< without a trailing slash

 private:
  std::string path_;
  int fd_ = -1;  ///< holds the lock
};

}  // namespace tessera
