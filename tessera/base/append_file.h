#pragma once
/// \file
/// A file to which a running program appends what it could go on without: a line of metrics, an event. A full disk or a
/// failing one must not end a training that computes well, so what cannot be written is kept and written before what
/// comes next.

#include <string>
#include <string_view>

namespace tessera {

/// Every record is one write(2), so that readers see whole ones. One thread at a time.
class AppendFile {
 public:
  AppendFile() = default;
  /// Opens with O_WRONLY | O_APPEND | O_CLOEXEC and `flags`. Throws Error.
  explicit AppendFile(std::string path, int flags = 0);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;

  /// Never fails: the first of several records that cannot be written is told in a warning, and so is the first that
  /// can be again. When the file is no longer where it was (its folder was moved or removed), a new one is begun there,
  /// with a warning: what goes into the old one would be lost, or where nobody looks for it.
  void append(std::string_view record);
  const std::string& path() const { return path_; }  ///< as given to the constructor
  /// Bytes that wait to be written.
  std::size_t waiting() const { return waiting_.size(); }

 private:
  void follow();

  std::string path_;
  int fd_ = -1;
  std::string waiting_;
  bool told_ = false;
};

}  // namespace tessera
