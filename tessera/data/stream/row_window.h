#pragma once
/// \file
/// data/stream/: rows of data that is too large to tokenize in advance and is tokenized while the steps run
/// (--streaming).
///
/// The stream of a list of files is a sequence of *windows*: a fixed number of consecutive rows of the files, in an
/// order permuted by seed, epoch and window number. A window is a pure function of files, settings and its starting
/// position. So a resumed run rebuilds the window in which it stopped, and any number of processes see the same rows:
/// each produces the whole stream and takes its own share. This header: a window and its maker.

#include <tessera/corpus/cache/request.h>
#include <tessera/corpus/stream/record_cursor.h>
#include <tessera/data/dataset.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tessera::data {

/// The position at which a window begins.
struct WindowPlace {
  corpus::CursorPosition cursor;  ///< position before the record that contains the window's first token
  std::int64_t skip = 0;          ///< for blocks: number of tokens of this record that belong to the previous window
  std::int64_t number = 0;        ///< index of the window within its epoch
  bool operator==(const WindowPlace&) const = default;
};

Value to_json(const WindowPlace& place);
WindowPlace window_place_from_json(const Value& value);

/// Immutable: any number of threads may read.
class RowWindow {
 public:
  std::int64_t rows() const { return static_cast<std::int64_t>(row_begins_.size()) - 1; }
  /// Row i in the window's order.
  Row read(std::int64_t i) const;
  std::int64_t length(std::int64_t i) const;
  const WindowPlace& begin() const { return begin_; }

 private:
  friend class WindowMaker;
  /// Tokens [begin, end) of the window: a document or a part of one.
  struct Span {
    std::int64_t begin = 0, end = 0;
  };
  std::size_t row_at(std::int64_t i) const;

  std::vector<std::int32_t> ids_;
  std::vector<bool> scored_;              ///< empty for blocks: all are scored
  std::vector<Span> spans_;               ///< row after row
  std::vector<std::size_t> row_begins_;   ///< index of each row's first span, and the end
  std::optional<std::uint64_t> shuffle_;  ///< key of the permutation; not set: file order
  /// whether rows are packed; then the first token of every document is not scored
  bool packed_ = false;
  WindowPlace begin_;
};

struct WindowOptions {
  /// rows per window (approximate when packed); fewer at an epoch's end
  std::int64_t rows = 10'000;
  std::int64_t block_length = 0;                      ///< tokens of a block of text
  std::int64_t example_length = 0;                    ///< maximum tokens of an example, or of a packed row
  bool packing = false;                               ///< examples share rows
  bool documents = false;                             ///< text files that share a block do not attend to each other
  std::int64_t vocab_size = 0;                        ///< every id must be below this
  std::optional<std::uint64_t> shuffle_key = {};      ///< if not set, rows are in file order
  std::function<void(const std::string&)> warn = {};  ///< called for examples that are truncated or left out
};

/// Makes the windows of a list of files, one after another, endlessly. For one thread at a time; needs memory for one
/// window.
class WindowMaker {
 public:
  /// `request`: the files and how to tokenize them (text_records.h).
  WindowMaker(corpus::TokenRequest request, const WindowOptions& options);

  void seek(const WindowPlace& place) { next_ = place; }
  /// Returns the position at which the next window will begin.
  const WindowPlace& place() const { return next_; }
  /// Makes the next window, of at least one row. Throws InputError with the position of an unusable record or when an
  /// epoch has no row, and Error for a file that has changed.
  std::shared_ptr<const RowWindow> make();

 private:
  /// The record appended last: its position, and the token `skip` of the record that is token `at` of the window.
  struct Last {
    corpus::CursorPosition cursor;
    std::int64_t skip = 0, at = 0;
  };

  std::int64_t row_length() const { return request_.examples ? options_.example_length : options_.block_length; }
  void begin(RowWindow& window);
  bool fill(RowWindow& window);
  bool is_full(const RowWindow& window) const;
  bool encode(const corpus::RecordCursor::Item& item);
  void check_ids() const;
  void check_kind(const Value& record);
  void warn_once(bool& told, const std::string& text) const;
  void count(const std::string& said, const std::string& place, const char* what);
  void put(RowWindow& window, std::int64_t skip, bool begins);
  void make_rows(RowWindow& window);
  void cut_blocks(RowWindow& window);
  void put_examples(RowWindow& window) const;

  corpus::TokenRequest request_;
  WindowOptions options_;
  corpus::RecordCursor cursor_;
  WindowPlace next_;
  corpus::EncodedRecord encoded_;
  std::string kind_, kind_place_;  ///< the kind that all examples have, and the place of the first example
  bool told_cut_ = false, told_dropped_ = false;
  std::map<std::string, std::int64_t> counts_;  ///< number of records left out or warned about, by reason
  std::set<std::string> unused_;                ///< fields already reported

  // The rest of the record in which the last window ended; cursor_ is positioned after it.
  std::vector<std::int32_t> rest_;
  std::optional<WindowPlace> rest_place_;

  // The window under construction:
  Last last_;
  std::vector<std::int64_t> starts_;  ///< positions of the window's documents, in tokens
};

}  // namespace tessera::data
