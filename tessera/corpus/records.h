#pragma once
/// \file
/// corpus/: texts and examples as people have them, from files of many kinds to tokens on disk; torch-free.
///
/// This header: records. Every kind of file is a sequence of records, and a record is an object with named fields (the
/// line of a .jsonl, the row of a table; a line of plain text is {"text": "a line\n"}), so that what makes tokens of
/// them need not know which kind it was. Large files are read in pieces, by several processes at once. What each kind
/// makes of its cells: readers/, and tables/arrow.h for Parquet and Arrow.

#include <tessera/base/value.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::corpus {

enum class FileKind { text, jsonl, json, csv, tsv, parquet, arrow, tokens };
enum class Compression { none, gzip, zstd, xz };

/// A file to read, found and recognised (sources.h).
struct SourceFile {
  std::string path;
  FileKind kind = FileKind::text;  ///< tokens: a Megatron .bin with its .idx, which has no records
  Compression compression = Compression::none;
  std::uint64_t bytes = 0;  ///< on disk
};

/// A part of a file that can be read without the others: a half-open range in units of the kind's own (bytes of lines,
/// row groups of Parquet, batches of Arrow). Pieces of one file, in order, hold all of its records, each once.
struct Piece {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t bytes = 0;  ///< so many of the file, about: for sharing work and for progress
};

/// Divides a file into pieces of about `bytes_each` bytes; at least one. A compressed file, a .json, a .csv is one
/// piece (where records begin is known only to who reads from the beginning). A pure function of the file and the size.
/// Throws InputError naming file and reason when the file cannot be read.
std::vector<Piece> pieces_of(const SourceFile& file, std::uint64_t bytes_each);

/// Goes through the records of a piece, in order. Memory: one record of at most 1 GiB; of Parquet a few pages of each
/// column, of Arrow one batch.
/// One thread at a time; different readers are independent.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  /// An object whose position says where it stands ("a.jsonl:12:1", "a.parquet: row group 3, row 17"); nullopt at the
  /// end. Rows count from 0, as row groups and batches do. Throws InputError with that place for what cannot be read;
  /// the next call goes on with the next record (line, row, item of a .json), row group or batch, or, where none can be
  /// found any more, throws again.
  virtual std::optional<Value> next() = 0;
  /// Bytes of the file that were used up, for progress.
  virtual std::uint64_t bytes_read() const = 0;
};

/// Columns to read (others are skipped where that saves work: Parquet, Arrow); those that are not there are no error;
/// empty: all. Throws InputError when the file cannot be opened, and Error when it needs the plug-in for Parquet and
/// Arrow (tables/table_plugin.h) and that was not built.
std::unique_ptr<RecordReader> read_records(const SourceFile& file, const Piece& piece,
                                           const std::vector<std::string>& columns = {});

}  // namespace tessera::corpus
