#pragma once
/// \file
/// Records as the lines of a new file, .jsonl or .txt.

#include <tessera/corpus/columns.h>
#include <tessera/corpus/records.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::corpus {

struct OutputFormat {
  FileKind kind = FileKind::jsonl;  ///< or text
  Compression compression = Compression::none;
};

/// By the extension: .jsonl or .txt, each also .gz, .zst, .xz. Throws InputError for another one.
OutputFormat output_format(const std::string& path);

/// The records of files, one after another, each as a line with its end. Lines of .jsonl that stay .jsonl, and of .txt
/// that stay .txt, are passed on as they are (a .jsonl without "\r"); other kinds are written anew: a record as a JSON
/// object, or its text as it is (a text of several lines becomes so many lines of the .txt).
class LinesOfRecords {
 public:
  LinesOfRecords(std::vector<SourceFile> files, FileKind kind, ColumnOptions columns);
  ~LinesOfRecords();

  /// nullopt at the end. Throws InputError with the place for a record that cannot be read or written.
  std::optional<std::string> next();
  std::uint64_t bytes_read() const;  ///< so many of bytes()
  std::uint64_t bytes() const;       ///< that all files have

 private:
  struct Input;
  void open(const SourceFile& file);

  std::vector<SourceFile> files_;
  FileKind kind_;
  ColumnOptions options_;
  std::optional<Columns> columns_;
  std::unique_ptr<Input> input_;
  std::size_t at_ = 0;  ///< files begun
  std::uint64_t before_ = 0;
};

}  // namespace tessera::corpus
