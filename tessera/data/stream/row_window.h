#pragma once
/// \file
/// data/stream/: rows for what is too large to be tokenized first: they are made while the steps run (--streaming).
///
/// The stream of a list of files is a sequence of *windows*: so many rows that follow one another in the files, in an
/// order that is a permutation chosen by seed, epoch and number of the window. A window is a pure function of files,
/// settings and the place at which it begins. So a resumed run makes the window again in which it stopped, and any
/// number of processes sees the same rows: each makes the whole stream and takes its own share. This header: a window,
/// and how it is made.

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

/// Where a window begins.
struct WindowPlace {
  corpus::CursorPosition cursor;  ///< before the record with its first token
  std::int64_t skip = 0;          ///< blocks: tokens of this record that belong to the window before
  std::int64_t number = 0;        ///< counts the windows of an epoch
  bool operator==(const WindowPlace&) const = default;
};

Value to_json(const WindowPlace& place);
WindowPlace window_place_from_json(const Value& value);

/// Immutable: any number of threads may read.
class RowWindow {
 public:
  std::int64_t rows() const { return static_cast<std::int64_t>(row_begins_.size()) - 1; }
  /// Row i of the window's order.
  Row read(std::int64_t i) const;
  std::int64_t length(std::int64_t i) const;
  const WindowPlace& begin() const { return begin_; }

 private:
  friend class WindowMaker;
  /// Tokens [begin, end) of the window, a document or a part of one.
  struct Span {
    std::int64_t begin = 0, end = 0;
  };
  std::size_t row_at(std::int64_t i) const;

  std::vector<std::int32_t> ids_;
  std::vector<bool> scored_;              ///< empty for blocks: all are
  std::vector<Span> spans_;               ///< row after row
  std::vector<std::size_t> row_begins_;   ///< in spans_, and the end
  std::optional<std::uint64_t> shuffle_;  ///< key of the permutation
  bool packed_ = false;                   ///< the first token of every document is not scored
  WindowPlace begin_;
};

struct WindowOptions {
  std::int64_t rows = 10'000;                         ///< in a window; fewer at the end of an epoch; packed ones about
  std::int64_t block_length = 0;                      ///< tokens of a block of text
  std::int64_t example_length = 0;                    ///< tokens of an example, or of packed ones, at most
  bool packing = false;                               ///< examples share rows
  bool documents = false;                             ///< files of text that share a block do not see each other
  std::int64_t vocab_size = 0;                        ///< every id must be below
  std::optional<std::uint64_t> shuffle_key = {};      ///< without it rows come in the order of the files
  std::function<void(const std::string&)> warn = {};  ///< told that examples are cut or left out
};

/// Makes the windows of some files, one after another, without end. One thread at a time; memory: one window.
class WindowMaker {
 public:
  /// `request` says which files, and how they become tokens (text_records.h).
  WindowMaker(corpus::TokenRequest request, const WindowOptions& options);

  void seek(const WindowPlace& place) { next_ = place; }
  /// Where the next window will begin.
  const WindowPlace& place() const { return next_; }
  /// The next window, of at least one row. Throws InputError with the place of a record that cannot be used, or when
  /// an epoch has no row, and Error for a file that has changed.
  std::shared_ptr<const RowWindow> make();

 private:
  /// The record whose tokens were put last: where it stands, and that its token `skip` is token `at` of the window.
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
  std::string kind_, kind_place_;  ///< what all examples are
  bool told_cut_ = false, told_dropped_ = false;
  std::map<std::string, std::int64_t> counts_;  ///< records that are left out or remarked on, by what is said of them
  std::set<std::string> unused_;                ///< fields that were told

  // What is left of the record that the last window ended in; cursor_ stands behind it.
  std::vector<std::int32_t> rest_;
  std::optional<WindowPlace> rest_place_;

  // The window that is being made:
  Last last_;
  std::vector<std::int64_t> starts_;  ///< where its documents begin, by token
};

}  // namespace tessera::data
