#pragma once
/// \file
/// format/: file formats, without LibTorch; formats that need several source files have their own folder.
///
/// JSON Lines (jsonlines.org): one strict JSON value (RFC 8259) per line of a UTF-8 file. Lines end with '\n' or "\r\n"
/// (optional for the last one); blank lines are skipped; a byte order mark at the beginning of the file is ignored.
/// Values and error messages carry file:line:column.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/base/file.h>
#include <tessera/base/value.h>

namespace tessera::format {

/// Reads a file line by line. The file is mapped, so only one line and its value occupy memory.
///
///   JsonlReader reader(path);
///   while (const auto value = reader.next()) use(value->at("text").as_string());
class JsonlReader {
 public:
  struct Line {
    std::string_view text;  ///< without the line end; valid as long as the reader (or the bytes passed to it)
    int number = 0;         ///< from 1, counting blank lines
  };

  /// Maps the file. Throws InputError when it cannot be read.
  explicit JsonlReader(const std::string& path);
  /// Reads bytes owned by the caller; `name` is used as the file name in messages.
  JsonlReader(std::string_view bytes, const std::string& name);

  /// Returns the next non-blank line, not yet parsed; nullopt at the end.
  std::optional<Line> next_line();
  /// Parses a line. Throws InputError "file:line:column: ..." for ill-formed UTF-8 or JSON. Any number of threads may
  /// parse lines at the same time.
  Value parse(const Line& line) const;
  /// Combines next_line() and parse(). After an error the next call continues with the next line.
  std::optional<Value> next();

  std::uint64_t bytes_read() const noexcept { return at_; }  ///< for progress
  std::uint64_t bytes() const noexcept { return text_.size(); }
  const std::string& name() const noexcept { return *name_; }

 private:
  MappedFile file_;
  std::shared_ptr<const std::string> name_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 0;
};

}  // namespace tessera::format
