#include <tessera/data/pairs.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/data/example_line.h>

namespace tessera::data {
namespace {

constexpr const char* answers[] = {"chosen", "rejected"};

/// Appends one example; returns whether a token of its answer is scored.
bool append(const ExampleLine& example, const ExampleOptions& options, corpus::EncodedRecord& out) {
  const auto begin = static_cast<std::ptrdiff_t>(out.ids.size());
  const auto answer =
      std::find(example.scored.begin() + static_cast<std::ptrdiff_t>(example.ends_before), example.scored.end(), true) -
      example.scored.begin();
  const auto ends = static_cast<std::ptrdiff_t>(example.ends_before);
  const std::ptrdiff_t most = options.max_prompt_length;
  const std::ptrdiff_t left_out = most > 0 ? std::max<std::ptrdiff_t>(answer - ends - most, 0) : 0;
  const auto put = [&](std::ptrdiff_t from, std::ptrdiff_t to) {
    out.ids.insert(out.ids.end(), example.ids.begin() + from, example.ids.begin() + to);
  };
  put(0, ends);
  put(ends + left_out, std::ssize(example.ids));
  out.scored.resize(out.ids.size(), false);
  std::fill(out.scored.begin() + begin + answer - left_out, out.scored.end(), true);
  const auto length = static_cast<std::size_t>(begin + options.max_length);
  out.cut |= left_out > 0 || out.ids.size() > length;
  out.ids.resize(std::min(out.ids.size(), length));
  out.scored.resize(out.ids.size());
  if (begin < std::ssize(out.scored)) out.scored[static_cast<std::size_t>(begin)] = false;
  return std::find(out.scored.begin() + begin, out.scored.end(), true) != out.scored.end();
}

class PairRows final : public Dataset {
 public:
  PairRows(std::shared_ptr<const ExampleSource> pairs, std::int64_t first, std::int64_t count, std::int64_t max_length)
      : pairs_(std::move(pairs)), first_(first), count_(count), max_length_(max_length) {}
  std::int64_t size() const override { return count_; }
  std::int64_t max_length() const override { return std::min(max_length_, pairs_->longest()); }
  std::int64_t length(std::int64_t row) const override { return pairs_->length(first_ + row); }
  Row read(std::int64_t row) const override {
    Row read{{}, {}, {0}};
    pairs_->append(first_ + row, read.ids, read.labels);
    // The second example begins after the answer of the first, the only place where an unscored token follows a scored
    // one.
    const auto scored = std::find_if(read.labels.begin(), read.labels.end(), [](auto label) { return label >= 0; });
    const auto second = std::find(scored, read.labels.end(), not_scored);
    TESSERA_CHECK(second != read.labels.end(), "pair ", first_ + row, " has only one answer");
    read.document_starts.push_back(second - read.labels.begin());
    return read;
  }

 private:
  std::shared_ptr<const ExampleSource> pairs_;
  std::int64_t first_, count_, max_length_;
};

}  // namespace

void encode_pair(const Value& record, const text::Tokenizer& tokenizer, const ExampleOptions& options,
                 corpus::EncodedRecord& out) {
  bool usable = true;
  for (const char* name : answers) {
    std::vector<Value::Member> members = {{"prompt", record.at("prompt")}, {"completion", record.at(name)}};
    for (const auto& [beside, value] : record.members())
      if (beside != "prompt" && beside != answers[0] && beside != answers[1]) members.emplace_back(beside, value);
    Value one = Value::make_object(std::move(members));
    one.set_where(record.where());
    ExampleLine example = encode_answer(one, tokenizer, options);
    usable &= append(example, options, out);
    out.text_bytes += example.text_bytes;
    out.text_tokens += example.text_tokens;
    out.unused_fields.insert(out.unused_fields.end(), example.unused_fields.begin(), example.unused_fields.end());
    if (out.remark.empty()) out.remark = std::move(example.remark);
  }
  if (!usable) out.scored.assign(out.scored.size(), false);
  out.kind = "pairs of answers";
}

std::shared_ptr<const Dataset> pair_rows(std::shared_ptr<const ExampleSource> pairs, std::int64_t first,
                                         std::int64_t count, std::int64_t max_length) {
  return std::make_shared<PairRows>(std::move(pairs), first, count, max_length);
}

Batch as_pairs(const Batch& batch) {
  const std::int64_t n = batch.ids.size(0), t = batch.ids.size(1);
  const auto& starts = batch.document_starts;
  TESSERA_CHECK(std::ssize(starts) == 2 * n && std::ssize(batch.lengths) == n && !batch.part, "a batch of ", n,
                " rows with ", starts.size(), " documents is not a batch of pairs");
  Batch pairs = batch;
  pairs.document_starts.clear();
  pairs.lengths.clear();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t first = starts[static_cast<std::size_t>(2 * i + 1)] - i * t;
    pairs.lengths.push_back(first);
    pairs.lengths.push_back(batch.lengths[static_cast<std::size_t>(i)] - first);
  }
  const std::int64_t longest = *std::max_element(pairs.lengths.begin(), pairs.lengths.end());
  pairs.ids = at::zeros({2 * n, longest}, batch.ids.options());
  pairs.labels = at::full({2 * n, longest}, not_scored, batch.labels.options());
  for (std::int64_t row = 0; row < 2 * n; ++row) {
    const std::int64_t length = pairs.lengths[static_cast<std::size_t>(row)];
    const std::int64_t begin = starts[static_cast<std::size_t>(row)] - row / 2 * t;
    pairs.ids[row].narrow(0, 0, length).copy_(batch.ids[row / 2].narrow(0, begin, length));
    pairs.labels[row].narrow(0, 0, length).copy_(batch.labels[row / 2].narrow(0, begin, length));
  }
  pairs.first_row = 2 * batch.first_row;
  pairs.scored_tokens = pairs.labels_not_ignored = n;
  return pairs;
}

}  // namespace tessera::data
