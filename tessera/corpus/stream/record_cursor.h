#pragma once
/// \file
/// corpus/stream/: records of files one after another, epoch after epoch, for who makes tokens while training goes on.
///
/// This header: a place in an epoch of records that can be written down and found again.

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

/// Between two records. Numbers are those of the epoch's order, so that they mean the same wherever the cursor has the
/// same sources and key.
struct CursorPosition {
  std::int64_t epoch = 0;
  std::int64_t file = 0;     ///< files that were finished
  std::int64_t piece = 0;    ///< pieces of this file that were finished
  std::int64_t records = 0;  ///< records (of text: lines) that were taken from this piece
  bool operator==(const CursorPosition&) const = default;
};

struct CursorOptions {
  std::vector<std::string> columns;  ///< to read; empty: all
  /// Files, and pieces of a file that can be read by themselves (records.h), come in another order in each epoch, which
  /// is a function of this number and the epoch's; without it in their own order.
  std::optional<std::uint64_t> shuffle_key;
  std::uint64_t piece_bytes = std::uint64_t{4} << 20;  ///< about; at most 16384 pieces are made of a file
};

/// One thread at a time. Memory: that of a reader (records.h) and 24 bytes for each piece of a file.
class RecordCursor {
 public:
  /// Files of text, or of records. Throws InputError for a file that is not there.
  RecordCursor(std::vector<SourceFile> sources, CursorOptions options);

  struct Item {
    std::optional<Value> record;  ///< nothing where it is text
    std::string_view line;        ///< text: with its '\n'; valid until the next call
    bool begins = false;          ///< text that does not continue what came before it
  };
  /// The next of the epoch; nullopt at its end, from where a call goes on with the next epoch. Throws InputError with
  /// the place of what cannot be read, and Error for a file that is not what it was when the cursor was made.
  std::optional<Item> next();

  /// Before the item that next() will give.
  const CursorPosition& position() const { return at_; }
  /// Reads up to `records` of its piece again. Throws as next(), and InputError where the sources have no such place.
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
  std::vector<Piece> pieces_;  ///< those of the file that is open; empty: none is
  std::unique_ptr<LineStream> lines_;
  std::unique_ptr<RecordReader> records_;
  bool begins_ = true;
};

}  // namespace tessera::corpus
