#pragma once
/// \file
/// corpus/stream/: records of files one after another, epoch after epoch, for tokenizing during training.
///
/// This header: a cursor over an epoch's records whose position can be saved and restored.

#include <tessera/corpus/bytes/line_stream.h>
#include <tessera/corpus/cache/source_state.h>
#include <tessera/corpus/records.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

/// A position between two records. Its numbers refer to the epoch's order, so they are valid for any cursor with the
/// same sources and key.
struct CursorPosition {
  std::int64_t epoch = 0;
  std::int64_t file = 0;     ///< files completed
  std::int64_t piece = 0;    ///< number of completed pieces of this file
  std::int64_t records = 0;  ///< number of records (for text: lines) taken from this piece
  bool operator==(const CursorPosition&) const = default;
};

struct CursorOptions {
  std::vector<std::string> columns;  ///< columns to read; empty: all
  /// Permutes files, and the independently readable pieces of a file (records.h), differently in each epoch, as a
  /// function of this key and the epoch; if not set, they keep their order.
  std::optional<std::uint64_t> shuffle_key;
  std::uint64_t piece_bytes = std::uint64_t{4} << 20;  ///< approximate; a file is divided into at most 16384 pieces
};

/// Use from one thread at a time. Needs the memory of a reader (records.h) plus 24 bytes per piece of a file.
class RecordCursor {
 public:
  /// Either text files or record files. Throws InputError for a missing file.
  RecordCursor(std::vector<SourceFile> sources, CursorOptions options);

  struct Item {
    std::optional<Value> record;  ///< nullopt for text
    std::string_view line;        ///< text: with its '\n'; valid until the next call
    bool begins = false;          ///< the text does not continue the preceding item
  };
  /// Returns the epoch's next item; nullopt at its end, after which the next call starts the next epoch. Throws
  /// InputError with the place of unreadable data, and Error for a file that changed since the cursor was constructed.
  std::optional<Item> next();

  /// The position before the item that next() will return.
  const CursorPosition& position() const { return at_; }
  /// Restores a position. Rereads up to `records` records of the piece. Throws as next() does, and InputError if the
  /// sources do not have that position.
  void seek(const CursorPosition& position);

 private:
  std::size_t file_number() const;
  void open_file();
  void open_piece();
  bool take(Item& item);
  void close();

  std::vector<SourceFile> sources_;
  std::vector<FileState> states_;
  CursorOptions options_;
  CursorPosition at_;
  std::vector<Piece> pieces_;  ///< reader of the open file; empty: no file is open
  std::unique_ptr<LineStream> lines_;
  std::unique_ptr<RecordReader> records_;
  bool begins_ = true;
};

}  // namespace tessera::corpus
