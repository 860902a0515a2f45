#pragma once
/// \file
/// corpus/: turns texts and examples in files of many kinds into tokens on disk; torch-free.
///
/// This header: records. Every kind of file is a sequence of records, and a record is an object with named fields (the
/// line of a .jsonl, the row of a table; a line of plain text is {"text": "a line\n"}), so the tokenizing code does not
/// depend on the file kind. Large files are read in pieces, by several processes at once. How each kind converts its
/// cells: see readers/, and tables/arrow.h for Parquet and Arrow.

#include <tessera/base/value.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::corpus {

enum class FileKind { text, jsonl, json, csv, tsv, parquet, arrow, tokens };
enum class Compression { none, gzip, zstd, xz };

/// A file to read, with its detected kind (sources.h).
struct SourceFile {
  std::string path;
  FileKind kind = FileKind::text;  ///< tokens: a Megatron .bin with its .idx, which has no records
  Compression compression = Compression::none;
  std::uint64_t bytes = 0;  ///< on disk
};

/// A part of a file that can be read independently: a half-open range in the kind's own units (bytes of lines, row
/// groups of Parquet, batches of Arrow). The pieces of a file, in order, contain each of its records once.
struct Piece {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t bytes = 0;  ///< approximate bytes of the file, for sharing work and for progress
};

/// Divides a file into pieces of about `bytes_each` bytes; at least one. A compressed file, a .json and a .csv are one
/// piece (their record boundaries are only known when read from the start). A pure function of the file and the size.
/// Throws InputError naming file and reason when the file cannot be read.
std::vector<Piece> pieces_of(const SourceFile& file, std::uint64_t bytes_each);

/// Iterates over the records of a piece, in order. Memory: one record of at most 1 GiB; for Parquet a few pages per
/// column, for Arrow one batch. Use a reader from one thread at a time; different readers are independent.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  /// Returns an object whose position identifies the record ("a.jsonl:12:1", "a.parquet: row group 3, row 17"); nullopt
  /// at the end. Rows, row groups and batches count from 0. Throws InputError with that position for unreadable data;
  /// the next call continues with the next record (line, row, item of a .json), row group or batch or, where no
  /// boundary can be found, throws again.
  virtual std::optional<Value> next() = 0;
  /// Bytes of the file consumed so far, for progress.
  virtual std::uint64_t bytes_read() const = 0;
};

/// Opens a reader. `columns`: columns to read (for Parquet and Arrow, others are skipped); missing ones are not an
/// error; empty: all. Throws InputError when the file cannot be opened, and Error when it needs the plug-in for Parquet
/// and Arrow (tables/table_plugin.h) and that was not built.
std::unique_ptr<RecordReader> read_records(const SourceFile& file, const Piece& piece,
                                           const std::vector<std::string>& columns = {});

}  // namespace tessera::corpus
