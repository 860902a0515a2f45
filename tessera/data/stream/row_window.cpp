#include <tessera/data/stream/row_window.h>

#include <algorithm>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/corpus/cache/tally.h>
#include <tessera/corpus/permutation.h>
#include <tessera/data/examples.h>

namespace tessera::data {
namespace {

corpus::CursorOptions cursor_options(const corpus::TokenRequest& request, const WindowOptions& options) {
  corpus::CursorOptions cursor;
  cursor.columns = request.columns;
  cursor.shuffle_key = options.shuffle_key;
  return cursor;
}

}  // namespace

Value to_json(const WindowPlace& place) {
  return Value::make_object({{"epoch", Value::of(place.cursor.epoch)},
                             {"file", Value::of(place.cursor.file)},
                             {"piece", Value::of(place.cursor.piece)},
                             {"records", Value::of(place.cursor.records)},
                             {"skip", Value::of(place.skip)},
                             {"window", Value::of(place.number)}});
}

WindowPlace window_place_from_json(const Value& value) {
  const auto count = [&](const char* name) {
    const Value& number = value.at(name);
    if (number.as_int() < 0) throw InputError(concat(number.where().str(), ": ", name, " is below 0"));
    return number.as_int();
  };
  return {{count("epoch"), count("file"), count("piece"), count("records")}, count("skip"), count("window")};
}

std::size_t RowWindow::row_at(std::int64_t i) const {
  TESSERA_CHECK(i >= 0 && i < rows(), "row ", i, " of ", rows());
  const auto row = static_cast<std::uint64_t>(i);
  return shuffle_ ? corpus::permuted(row, static_cast<std::uint64_t>(rows()), *shuffle_) : row;
}

std::int64_t RowWindow::length(std::int64_t i) const {
  const std::size_t row = row_at(i);
  std::int64_t tokens = 0;
  for (std::size_t s = row_begins_[row]; s < row_begins_[row + 1]; ++s) tokens += spans_[s].end - spans_[s].begin;
  return tokens;
}

Row RowWindow::read(std::int64_t i) const {
  const std::size_t row = row_at(i);
  Row out;
  for (std::size_t s = row_begins_[row]; s < row_begins_[row + 1]; ++s) {
    const std::size_t start = out.ids.size();
    out.document_starts.push_back(static_cast<std::int64_t>(start));
    for (std::int64_t t = spans_[s].begin; t < spans_[s].end; ++t) {
      const auto at = static_cast<std::size_t>(t);
      out.ids.push_back(ids_[at]);
      out.labels.push_back(scored_.empty() || scored_[at] ? ids_[at] : not_scored);
    }
    if (packed_ || start > 0) out.labels[start] = not_scored;  // not predicted from the previous document
  }
  return out;
}

WindowMaker::WindowMaker(corpus::TokenRequest request, const WindowOptions& options)
    : request_(std::move(request)), options_(options), cursor_(request_.sources, cursor_options(request_, options)) {
  TESSERA_CHECK(options_.rows >= 1 && row_length() >= 2, options_.rows, " rows of ", row_length(), " tokens");
}

std::shared_ptr<const RowWindow> WindowMaker::make() {
  for (;;) {
    auto window = std::make_shared<RowWindow>();
    begin(*window);
    const bool whole = fill(*window);
    make_rows(*window);
    const auto used = static_cast<std::int64_t>(window->ids_.size());
    rest_place_.reset();
    if (!whole) {
      rest_.clear();                       // dropped, like any remainder shorter than a block
      next_ = {cursor_.position(), 0, 0};  // another epoch
    } else if (request_.examples || rest_.empty()) {
      next_ = {cursor_.position(), 0, next_.number + 1};
    } else {
      next_ = {last_.cursor, last_.skip + used - last_.at, next_.number + 1};
      rest_place_ = next_;
    }
    if (window->rows() > 0) return window;
    const WindowPlace& begun = window->begin_;
    if (begun == WindowPlace{{begun.cursor.epoch, 0, 0, 0}, 0, 0})
      throw InputError(concat(
          request_.sources.front().path, request_.sources.size() > 1 ? " and others" : "",
          request_.examples
              ? concat(": no example has a scored token within the first ", row_length(),
                       " tokens: raise --max_seq_length, shorten the prompts, or check the "
                       "records that were left out")
              : concat(": fewer tokens than one block of ", row_length(), ": add data or use a smaller --block_size")));
  }
}

/// Moves to the start of the window and appends the rest of the record in which the previous window ended.
void WindowMaker::begin(RowWindow& window) {
  window.begin_ = next_;
  window.packed_ = options_.packing && request_.examples;
  if (options_.shuffle_key)
    window.shuffle_ = corpus::mix(*options_.shuffle_key ^ corpus::mix(static_cast<std::uint64_t>(next_.cursor.epoch))) +
                      corpus::mix(static_cast<std::uint64_t>(next_.number));
  starts_.clear();
  last_ = {next_.cursor, next_.skip, 0};
  if (rest_place_ == next_) {
    window.ids_ = std::exchange(rest_, {});
    return;
  }
  rest_.clear();
  if (next_.skip == 0 && cursor_.position() == next_.cursor) return;
  cursor_.seek(next_.cursor);
  if (next_.skip == 0) return;
  const auto item = cursor_.next();
  if (!item || !encode(*item) || static_cast<std::int64_t>(encoded_.ids.size()) < next_.skip)
    throw InputError(concat(request_.sources.front().path,
                            ": the record at which the stream resumes has different tokens than before: files or "
                            "tokenizer have changed"));
  put(window, next_.skip, false);
}

/// Reads until the window is full; returns false if the epoch ends first.
bool WindowMaker::fill(RowWindow& window) {
  while (!is_full(window)) {
    const corpus::CursorPosition before = cursor_.position();
    const auto item = cursor_.next();
    if (!item) return false;
    if (!encode(*item)) continue;
    last_ = {before, 0, static_cast<std::int64_t>(window.ids_.size())};
    put(window, 0, item->begins);
  }
  return true;
}

bool WindowMaker::is_full(const RowWindow& window) const {
  if (request_.examples && !options_.packing) return static_cast<std::int64_t>(window.spans_.size()) >= options_.rows;
  return static_cast<std::int64_t>(window.ids_.size()) >= options_.rows * row_length();
}

/// Encodes a record into encoded_; returns false if it must be left out.
bool WindowMaker::encode(const corpus::RecordCursor::Item& item) {
  encoded_.ids.clear();
  encoded_.scored.clear();
  encoded_.unused_fields.clear();
  encoded_.left_out.clear();
  encoded_.remark.clear();
  encoded_.cut = false;
  if (!item.record) {
    request_.encode_line(item.line, encoded_);
    check_ids();
    return true;
  }
  request_.encode(*item.record, encoded_);
  check_ids();
  if (!request_.examples) return true;
  const std::string place = item.record->where().str();
  count(encoded_.remark, place, "");
  count(encoded_.left_out, place, "left out: ");
  for (const std::string& name : encoded_.unused_fields)
    if (unused_.insert(name).second && options_.warn) options_.warn(concat(place, ": unused field: ", name));
  if (!encoded_.left_out.empty()) return false;
  check_kind(*item.record);
  const auto& scored = encoded_.scored;
  const bool useless = scored.empty() || std::find(scored.begin() + 1, scored.end(), true) == scored.end();
  if (useless)
    warn_once(told_dropped_, concat(item.record->where().str(), ": left out, as are others like it: no scored ",
                                    "token within the first ", row_length(), " tokens (--max_seq_length)"));
  else if (encoded_.cut)
    warn_once(told_cut_, concat(item.record->where().str(), ": longer than ", row_length(),
                                " tokens and truncated, as are others like it (--max_seq_length)"));
  return !useless;
}

void WindowMaker::warn_once(bool& told, const std::string& text) const {
  if (!std::exchange(told, true) && options_.warn) options_.warn(text);
}

/// Warns about the 1st, 10th, 100th, ... record with the same problem, because a stream never ends and has no final
/// count.
void WindowMaker::count(const std::string& said, const std::string& place, const char* what) {
  if (said.empty()) return;
  const std::int64_t count = ++counts_[said];
  std::int64_t round = 1;
  while (round < count) round *= 10;
  if (round != count || !options_.warn) return;
  options_.warn(concat(place, ": ", what, said, count == 1 ? "" : concat(" (", count, " records so far)")));
}

void WindowMaker::check_ids() const {
  const auto bad = std::find_if(encoded_.ids.begin(), encoded_.ids.end(),
                                [&](std::int32_t id) { return id < 0 || id >= options_.vocab_size; });
  if (bad == encoded_.ids.end()) return;
  throw InputError(concat(request_.sources.front().path, ": a token has id ", *bad, ", but the model's vocabulary has ",
                          options_.vocab_size, " entries: tokenizer and model do not match"));
}

void WindowMaker::check_kind(const Value& record) {
  if (kind_.empty()) {
    kind_ = encoded_.kind;
    kind_place_ = record.where().str();
  } else if (kind_ != encoded_.kind) {
    corpus::Tally before;
    before.kind = kind_;
    before.kind_place = kind_place_;
    throw InputError(corpus::mixed_kinds(record.where().str(), encoded_.kind, before));
  }
}

/// Appends encoded_, starting at token `skip`.
void WindowMaker::put(RowWindow& window, std::int64_t skip, bool begins) {
  const auto at = static_cast<std::int64_t>(window.ids_.size());
  if (begins && (starts_.empty() || starts_.back() != at)) starts_.push_back(at);
  window.ids_.insert(window.ids_.end(), encoded_.ids.begin() + skip, encoded_.ids.end());
  if (!request_.examples) return;
  window.scored_.insert(window.scored_.end(), encoded_.scored.begin(), encoded_.scored.end());
  window.spans_.push_back({at, static_cast<std::int64_t>(window.ids_.size())});
}

void WindowMaker::make_rows(RowWindow& window) {
  window.row_begins_ = {0};
  if (request_.examples)
    put_examples(window);
  else
    cut_blocks(window);
}

void WindowMaker::put_examples(RowWindow& window) const {
  if (!options_.packing) {
    for (std::size_t i = 1; i <= window.spans_.size(); ++i) window.row_begins_.push_back(i);
    return;
  }
  std::vector<std::int64_t> lengths;
  for (const RowWindow::Span& span : window.spans_) lengths.push_back(span.end - span.begin);
  const std::vector<RowWindow::Span> examples = std::exchange(window.spans_, {});
  for (const auto& row : pack(lengths, row_length())) {
    for (const std::int64_t i : row) window.spans_.push_back(examples[static_cast<std::size_t>(i)]);
    window.row_begins_.push_back(window.spans_.size());
  }
}

/// Cuts whole blocks; the rest goes to rest_.
void WindowMaker::cut_blocks(RowWindow& window) {
  const std::int64_t rows = std::min(options_.rows, static_cast<std::int64_t>(window.ids_.size()) / row_length());
  auto start = starts_.begin();
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t begin = row * row_length();
    const std::int64_t end = begin + row_length();
    for (; options_.documents && start != starts_.end() && *start < end; ++start) {
      if (*start <= begin) continue;
      window.spans_.push_back({begin, *start});
      begin = *start;
    }
    window.spans_.push_back({begin, end});
    window.row_begins_.push_back(window.spans_.size());
  }
  const auto used = window.ids_.begin() + static_cast<std::ptrdiff_t>(rows * row_length());
  rest_.assign(used, window.ids_.end());
  window.ids_.erase(used, window.ids_.end());
}

}  // namespace tessera::data
