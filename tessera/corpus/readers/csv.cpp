// CSV (RFC 4180) and TSV: the first row has the column names; every cell is a string, even if it looks like a number.

#include <algorithm>
#include <limits>

#include <tessera/base/byte_order_mark.h>
#include <tessera/base/error.h>
#include <tessera/corpus/bytes/window.h>
#include <tessera/corpus/readers/readers.h>

namespace tessera::corpus {
namespace {

struct Cell {
  std::string text;
  int line = 0, column = 0;
};

/// Quoted cells may contain separators, line ends and doubled quotes; in an unquoted cell a quote is an ordinary
/// character. Rows end with "\n", "\r\n" or the end of the file; empty lines are skipped.
class CsvReader : public RecordReader {
 public:
  CsvReader(Window bytes, char separator)
      : window_(std::move(bytes)), name_(std::make_shared<const std::string>(window_.name())), separator_(separator) {}

  std::optional<Value> next() override {
    if (!complaint_.empty()) throw InputError(complaint_);
    if (names_.empty() && !read_names()) return std::nullopt;
    std::vector<Cell> cells = row();
    if (cells.empty()) return std::nullopt;
    const SourcePos where = place(cells[0]);
    if (cells.size() != names_.size())
      throw InputError(concat(where.str(), ": has ", cells.size(), cells.size() == 1 ? " cell" : " cells",
                              ", but the first row names ", names_.size(), ": is a quote or a separator missing?"));
    std::vector<Value::Member> members;
    members.reserve(cells.size());
    for (std::size_t i = 0; i < cells.size(); ++i) {
      members.emplace_back(names_[i], Value::of(std::move(cells[i].text)));
      members.back().second.set_where(place(cells[i]));
    }
    Value record = Value::make_object(std::move(members));
    record.set_where(where);
    return record;
  }
  std::uint64_t bytes_read() const override { return window_.used(at_); }

 private:
  SourcePos place(const Cell& cell) const { return {name_, cell.line, cell.column}; }

  bool read_names() {
    if (byte(byte_order_mark.size() - 1) && window_.text().starts_with(byte_order_mark))
      at_ = line_begin_ = byte_order_mark.size();
    for (Cell& cell : row()) {
      if (std::find(names_.begin(), names_.end(), cell.text) != names_.end())
        stop(place(cell), concat("two columns are named \"", cell.text, "\""));
      names_.push_back(std::move(cell.text));
    }
    return !names_.empty();
  }

  /// Returns the cells of the next row; empty at the end of the file.
  std::vector<Cell> row() {
    while (skip_line_end()) {
    }
    std::vector<Cell> cells;
    if (!byte(at_)) return cells;
    for (;;) {
      cells.push_back(cell());
      if (!byte(at_) || skip_line_end()) return cells;
      ++at_;  // the separator
    }
  }

  Cell cell() {
    Cell cell{"", line_, static_cast<int>(at_ - line_begin_) + 1};
    if (byte(at_) && window_.text()[at_] == '"') {
      quoted(cell);
    } else {
      plain(cell);
    }
    return cell;
  }

  void plain(Cell& cell) {
    const std::size_t begin = at_;
    const char ends[] = {separator_, '\n'};
    for (;;) {
      at_ = std::min(window_.text().find_first_of(std::string_view(ends, 2), at_), window_.text().size());
      if (at_ < window_.text().size() || !window_.more()) break;
    }
    cell.text = window_.text().substr(begin, at_ - begin);
    if (cell.text.ends_with('\r') && (!byte(at_) || window_.text()[at_] == '\n')) {
      cell.text.pop_back();
      --at_;  // skip_line_end() consumes it
    }
  }

  void quoted(Cell& cell) {
    ++at_;
    for (;;) {
      const std::size_t quote = window_.text().find('"', at_);
      const std::size_t end = std::min(quote, window_.text().size());
      add_quoted(cell, end);
      if (quote == std::string_view::npos) {
        if (!window_.more()) stop(place(cell), "a quoted cell that begins here never ends");
        continue;
      }
      ++at_;
      if (!byte(at_) || window_.text()[at_] != '"') break;
      cell.text += '"';
      ++at_;
    }
    if (!byte(at_)) return;
    const char next = window_.text()[at_];
    const bool line_ends = next == '\n' || (next == '\r' && (!byte(at_ + 1) || window_.text()[at_ + 1] == '\n'));
    if (next != separator_ && !line_ends)
      stop({name_, line_, static_cast<int>(at_ - line_begin_) + 1},
           concat("expected '", separator_ == '\t' ? std::string("\\t") : std::string(1, separator_),
                  "' or the end of the line after a quoted cell (a quote inside is written \"\")"));
  }

  /// Appends the bytes up to `end` and counts their lines.
  void add_quoted(Cell& cell, std::size_t end) {
    const std::string_view part = window_.text().substr(at_, end - at_);
    cell.text += part;
    if (const std::size_t feed = part.rfind('\n'); feed != std::string_view::npos) {
      line_ += static_cast<int>(std::count(part.begin(), part.end(), '\n'));
      line_begin_ = at_ + feed + 1;
    }
    at_ = end;
  }

  /// Consumes "\n" or "\r\n" (or "\r" at the end of the file) and drops everything before it; returns false if there is
  /// no line end.
  bool skip_line_end() {
    if (!byte(at_)) return false;
    std::size_t size = window_.text()[at_] == '\n' ? 1 : 0;
    if (window_.text()[at_] == '\r') {
      if (!byte(at_ + 1)) {
        size = 1;
      } else if (window_.text()[at_ + 1] == '\n') {
        size = 2;
      }
    }
    if (size == 0) return false;
    window_.drop(at_ + size);
    at_ = line_begin_ = 0;
    if (line_ < std::numeric_limits<int>::max()) ++line_;
    return true;
  }

  bool byte(std::size_t at) {
    while (window_.text().size() <= at)
      if (!window_.more()) return false;
    return true;
  }

  /// Row boundaries are lost, so every later call throws the same error.
  [[noreturn]] void stop(const SourcePos& where, const std::string& what) {
    complaint_ = concat(where.str(), ": ", what);
    throw InputError(complaint_);
  }

  Window window_;
  std::shared_ptr<const std::string> name_;
  char separator_;
  std::vector<std::string> names_;
  std::size_t at_ = 0, line_begin_ = 0;  ///< position in the window; only whole rows are dropped, so `line_begin_` is
                                         ///< inside
  int line_ = 1;
  std::string complaint_;
};

}  // namespace

std::unique_ptr<RecordReader> read_csv(Window bytes, char separator) {
  return std::make_unique<CsvReader>(std::move(bytes), separator);
}

}  // namespace tessera::corpus
