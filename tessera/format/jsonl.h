#pragma once
/// \file
/// format/: file formats, without tensors; what needs several files has a folder.
///
/// JSON Lines (jsonlines.org): one strict JSON value (RFC 8259) per line of a UTF-8 file. Lines end with '\n' or
/// "\r\n", the last one may lack it; blank lines are skipped; a byte order mark at the beginning of the file is passed
/// over. Values and complaints carry file:line:column.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/base/file.h>
#include <tessera/base/value.h>

namespace tessera::format {

/// Goes through a file line by line. The file is mapped, so the memory in use is that of one line and its value.
///
///   JsonlReader reader(path);
///   while (const auto value = reader.next()) use(value->at("text").as_string());
class JsonlReader {
 public:
  struct Line {
    std::string_view text;  ///< without its end of line; valid as long as the reader (or the bytes it was made of)
    int number = 0;         ///< from 1, blank lines counted
  };

  /// Maps the file. Throws InputError when it cannot be read.
  explicit JsonlReader(const std::string& path);
  /// Reads bytes that the caller keeps; `name` stands for the file in messages.
  JsonlReader(std::string_view bytes, const std::string& name);

  /// The next line that is not blank, not yet parsed; nullopt at the end.
  std::optional<Line> next_line();
  /// The value of a line. Throws InputError "file:line:column: ..." for ill-formed UTF-8 or JSON. Any number of threads
  /// may parse lines at the same time.
  Value parse(const Line& line) const;
  /// next_line() and parse() in one. After an error the next call goes on with the next line.
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
