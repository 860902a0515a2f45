#pragma once
/// \file
/// Writes records as lines of a new .jsonl or .txt file.

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

/// Chosen by the extension: .jsonl or .txt, each optionally followed by .gz, .zst or .xz. Throws InputError for any
/// other.
OutputFormat output_format(const std::string& path);

/// The records of files, one after another, each as a line including its line end. Lines of .jsonl or .txt that keep
/// their kind are passed through unchanged (a .jsonl without "\r"). Other records are converted: to a JSON object, or
/// to their text (a text of several lines becomes several lines of the .txt).
class LinesOfRecords {
 public:
  LinesOfRecords(std::vector<SourceFile> files, FileKind kind, ColumnOptions columns);
  ~LinesOfRecords();

  /// Returns the next line; nullopt at the end. Throws InputError with the place of a record that cannot be read or
  /// written.
  std::optional<std::string> next();
  std::uint64_t bytes_read() const;  ///< out of bytes()
  std::uint64_t bytes() const;       ///< total of all files

 private:
  struct Input;
  void open(const SourceFile& file);

  std::vector<SourceFile> files_;
  FileKind kind_;
  ColumnOptions options_;
  std::optional<Columns> columns_;
  std::unique_ptr<Input> input_;
  std::size_t at_ = 0;  ///< number of files opened
  std::uint64_t before_ = 0;
};

}  // namespace tessera::corpus
