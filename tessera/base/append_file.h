#pragma once
/// \file
/// A file to which a running program appends non-essential records, such as lines of metrics or events. A full or
/// failing disk must not end a healthy training run, so records that cannot be written are kept in memory and written
/// before the next ones.

#include <string>
#include <string_view>

namespace tessera {

/// Each record is one write(2), so readers see only whole records. One thread at a time.
class AppendFile {
 public:
  AppendFile() = default;
  /// Opens with O_WRONLY | O_APPEND | O_CLOEXEC and `flags`. Throws Error.
  explicit AppendFile(std::string path, int flags = 0);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;

  /// Never fails. Logs a warning for the first of several records that cannot be written, and a message once writing
  /// works again. If the file is no longer at its path (it or its folder was moved or removed), starts a new one there,
  /// with a warning: records written to the old file would be lost or overlooked.
  void append(std::string_view record);
  const std::string& path() const { return path_; }  ///< as given to the constructor
  /// Bytes not yet written.
  std::size_t waiting() const { return waiting_.size(); }

 private:
  void follow();

  std::string path_;
  int fd_ = -1;
  std::string waiting_;
  bool told_ = false;
};

}  // namespace tessera
