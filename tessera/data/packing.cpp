// Examples as rows: one or several per row.

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/data/examples.h>

namespace tessera::data {
namespace {

class ExampleRows final : public Dataset {
 public:
  ExampleRows(std::shared_ptr<const ExampleSource> examples, std::int64_t first, std::int64_t count)
      : examples_(std::move(examples)), first_(first), count_(count) {}
  std::int64_t size() const override { return count_; }
  std::int64_t max_length() const override { return examples_->longest(); }
  std::int64_t length(std::int64_t row) const override { return examples_->length(example(row)); }
  std::int64_t tokens() const override {
    std::int64_t tokens = 0;
    examples_->lengths(first_, count_, [&](std::int64_t length) { tokens += length; });
    return tokens;
  }
  Row read(std::int64_t row) const override {
    Row out{{}, {}, {0}};
    examples_->append(example(row), out.ids, out.labels);
    examples_->append_images(example(row), out.images);
    return out;
  }

 private:
  std::int64_t example(std::int64_t row) const {
    TESSERA_CHECK(row >= 0 && row < count_, "row ", row, " of ", count_);
    return first_ + row;
  }

  std::shared_ptr<const ExampleSource> examples_;
  std::int64_t first_, count_;
};

class PackedRows final : public Dataset {
 public:
  PackedRows(std::shared_ptr<const ExampleSource> examples, std::vector<std::vector<std::int64_t>> rows,
             std::int64_t capacity, std::int64_t tokens)
      : examples_(std::move(examples)), rows_(std::move(rows)), capacity_(capacity), tokens_(tokens) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t max_length() const override { return capacity_; }
  std::int64_t tokens() const override { return tokens_; }
  std::int64_t length(std::int64_t row) const override {
    std::int64_t tokens = 0;
    for (const std::int64_t example : examples_of(row)) tokens += examples_->length(example);
    return tokens;
  }
  Row read(std::int64_t row) const override {
    Row out;
    for (const std::int64_t example : examples_of(row)) {
      const auto start = out.ids.size();
      out.document_starts.push_back(static_cast<std::int64_t>(start));
      examples_->append(example, out.ids, out.labels);
      examples_->append_images(example, out.images);
      out.labels[start] = not_scored;  // not predicted from the previous document
    }
    return out;
  }

 private:
  const std::vector<std::int64_t>& examples_of(std::int64_t row) const {
    TESSERA_CHECK(row >= 0 && row < size(), "row ", row, " of ", size());
    return rows_[static_cast<std::size_t>(row)];
  }

  std::shared_ptr<const ExampleSource> examples_;
  std::vector<std::vector<std::int64_t>> rows_;
  std::int64_t capacity_, tokens_;
};

}  // namespace

std::vector<std::vector<std::int64_t>> pack(std::span<const std::int64_t> lengths, std::int64_t capacity) {
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return length(a) > length(b); });

  std::vector<std::vector<std::int64_t>> rows;
  std::map<std::int64_t, std::vector<std::size_t>> by_room;  // number of free tokens -> rows that have this many
  for (const std::int64_t i : order) {
    TESSERA_CHECK(length(i) >= 1 && length(i) <= capacity, "an example of ", length(i), " tokens in rows of ",
                  capacity);
    std::int64_t room = capacity;
    std::size_t row = rows.size();
    if (const auto fullest = by_room.lower_bound(length(i)); fullest != by_room.end()) {
      room = fullest->first;
      row = fullest->second.back();
      fullest->second.pop_back();
      if (fullest->second.empty()) by_room.erase(fullest);
    } else {
      rows.emplace_back();
    }
    rows[row].push_back(i);
    if (room > length(i)) by_room[room - length(i)].push_back(row);
  }
  for (auto& row : rows) std::sort(row.begin(), row.end());
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::shared_ptr<const Dataset> example_rows(std::shared_ptr<const ExampleSource> examples, std::int64_t first,
                                            std::int64_t count) {
  TESSERA_CHECK(first >= 0 && count >= 0 && first + count <= examples->size(), "examples [", first, ", ", first + count,
                ") of ", examples->size());
  return std::make_shared<ExampleRows>(std::move(examples), first, count);
}

std::shared_ptr<const Dataset> packed_rows(std::shared_ptr<const ExampleSource> examples, std::int64_t first,
                                           std::int64_t count, std::int64_t capacity) {
  TESSERA_CHECK(first >= 0 && count >= 0 && first + count <= examples->size(), "examples [", first, ", ", first + count,
                ") of ", examples->size());
  std::vector<std::int64_t> lengths;
  lengths.reserve(static_cast<std::size_t>(count));
  examples->lengths(first, count, [&](std::int64_t length) { lengths.push_back(length); });
  const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  auto rows = pack(lengths, capacity);
  for (auto& row : rows)
    for (std::int64_t& i : row) i += first;
  return std::make_shared<PackedRows>(std::move(examples), std::move(rows), capacity, tokens);
}

}  // namespace tessera::data
