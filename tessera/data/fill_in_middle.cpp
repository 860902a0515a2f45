#include <tessera/data/fill_in_middle.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/config/sections/data_config.h>
#include <tessera/corpus/permutation.h>

namespace tessera::data {
namespace {

using Ids = std::vector<std::int64_t>;

/// Pseudo-random numbers for one sample.
class Draws {
 public:
  Draws(std::uint64_t seed, std::int64_t sample)
      : state_(corpus::mix(corpus::mix(seed) + static_cast<std::uint64_t>(sample))) {}
  bool happens(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }

 private:
  std::uint64_t next() { return corpus::mix(state_ += 0x9e3779b97f4a7c15u); }

  std::uint64_t state_;
};

void append(Ids& out, std::span<const std::int64_t> ids) { out.insert(out.end(), ids.begin(), ids.end()); }

/// Positions between characters, including both ends, so that no cut splits a character. Bytes that are not valid UTF-8
/// belong to the preceding character.
std::vector<std::size_t> places_between(std::string_view text) {
  std::vector<std::size_t> places = {0};
  for (std::size_t i = 1; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) places.push_back(i);
  if (!text.empty()) places.push_back(text.size());
  return places;
}

class Rearranged {
 public:
  Rearranged(const FillInMiddle& how, const text::Tokenizer& tokenizer, std::int64_t sample)
      : how_(how), tokenizer_(tokenizer), draws_(how.seed, sample) {}

  /// Appends the texts of a document, each with the token that ends it.
  void document(std::span<const std::int64_t> ids, Ids& out) {
    while (!ids.empty()) {
      const auto length = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), how_.end) - ids.begin());
      if (length > 0) text(ids.first(length), out);
      if (length > 0 && length < ids.size()) out.push_back(how_.end);
      ids = ids.subspan(std::min(length + 1, ids.size()));
    }
  }

 private:
  void text(std::span<const std::int64_t> ids, Ids& out) {
    if (!how_.split || std::find(ids.begin(), ids.end(), *how_.split) == ids.end()) return piece(ids, how_.rate, out);
    if (!draws_.happens(how_.rate)) return append(out, ids);
    while (!ids.empty()) {
      const auto length = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), *how_.split) - ids.begin());
      if (length > 0) piece(ids.first(length), how_.fragment_rate, out);
      if (length > 0 && length < ids.size()) out.push_back(*how_.split);
      ids = ids.subspan(std::min(length + 1, ids.size()));
    }
  }

  void piece(std::span<const std::int64_t> ids, double rate, Ids& out) {
    if (!draws_.happens(rate)) return append(out, ids);
    std::vector<std::int32_t> plain;
    for (const std::int64_t id : ids)
      if (!tokenizer_.is_special(static_cast<std::int32_t>(id))) plain.push_back(static_cast<std::int32_t>(id));
    const std::string contents = tokenizer_.decode(plain);
    if (!how_.no_prefix.empty() && contents.starts_with(how_.no_prefix)) return append(out, ids);
    const std::vector<std::size_t> places = places_between(contents);
    std::size_t a = places[draws_.below(places.size())], b = places[draws_.below(places.size())];
    if (a > b) std::swap(a, b);
    const std::string_view all = contents;
    const std::string_view before = all.substr(0, a), between = all.substr(a, b - a), after = all.substr(b);
    const bool suffix_first = draws_.happens(how_.spm_rate);
    out.push_back(how_.prefix);
    if (!suffix_first) encode(before, out);
    out.push_back(how_.suffix);
    encode(after, out);
    out.push_back(how_.middle);
    if (suffix_first) encode(before, out);
    encode(between, out);
  }

  void encode(std::string_view text, Ids& out) const {
    const std::vector<std::int32_t> ids = tokenizer_.encode(text);
    out.insert(out.end(), ids.begin(), ids.end());
  }

  const FillInMiddle& how_;
  const text::Tokenizer& tokenizer_;
  Draws draws_;
};

class RowsToFill final : public Dataset {
 public:
  RowsToFill(std::shared_ptr<const Dataset> rows, FillInMiddle how, std::shared_ptr<const text::Tokenizer> tokenizer)
      : rows_(std::move(rows)), how_(std::move(how)), tokenizer_(std::move(tokenizer)) {}
  std::int64_t size() const override { return rows_->size(); }
  std::int64_t max_length() const override { return rows_->max_length(); }
  std::int64_t length(std::int64_t row) const override { return rows_->length(row); }
  Row read(std::int64_t row) const override { return read_sample(row, row); }
  Row read_sample(std::int64_t row, std::int64_t sample) const override {
    return filled_in_middle(rows_->read(row), how_, *tokenizer_, sample);
  }
  std::int64_t tokens() const override { return rows_->tokens(); }
  const Blend* blend() const override { return rows_->blend(); }
  bool streamed() const override { return rows_->streamed(); }

 private:
  std::shared_ptr<const Dataset> rows_;
  FillInMiddle how_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
};

std::int64_t id_of(const char* flag, const std::string& token, const text::Tokenizer& tokenizer) {
  if (const auto id = tokenizer.token_id(token)) return *id;
  throw InputError(
      concat("--", flag, " ", token, ": the tokenizer (", tokenizer.vocab_size(),
             " tokens) has no such token: use the tokenizer that has these tokens (--tokenizer_name), choose "
             "a token that it has, or add this one to its tokenizer.json (added_tokens)"));
}

}  // namespace

FillInMiddle fill_in_middle(const DataConfig& config, const text::Tokenizer& tokenizer, std::uint64_t seed) {
  FillInMiddle how{.rate = config.fim_rate,
                   .spm_rate = config.fim_spm_rate,
                   .no_prefix = config.fim_no_prefix,
                   .prefix = id_of("fim_prefix_token", config.fim_prefix_token, tokenizer),
                   .middle = id_of("fim_middle_token", config.fim_middle_token, tokenizer),
                   .suffix = id_of("fim_suffix_token", config.fim_suffix_token, tokenizer),
                   .pad = id_of("fim_pad_token", config.fim_pad_token, tokenizer),
                   .end = id_of("fim_eod_token", config.fim_eod_token, tokenizer),
                   .seed = seed};
  if (config.fim_split_sample.empty()) return how;
  how.split = id_of("fim_split_sample", config.fim_split_sample, tokenizer);
  how.fragment_rate = config.fim_fragment_rate;
  return how;
}

std::string no_blocks_to_fill(const std::string& path) {
  return concat("--fim_data: ", path,
                " contains examples, but only blocks of text or tokens can be rearranged: use text (.txt) or "
                "tokens (.bin with .idx), or remove --fim_data");
}

Row filled_in_middle(const Row& row, const FillInMiddle& how, const text::Tokenizer& tokenizer, std::int64_t sample) {
  const std::span<const std::int64_t> ids = row.ids;
  Rearranged rearranged(how, tokenizer, sample);
  Row out{{}, {}, {0}};
  out.ids.reserve(ids.size() + 64);
  for (std::size_t i = 0; i < row.document_starts.size() && out.ids.size() < ids.size(); ++i) {
    const auto begin = static_cast<std::size_t>(row.document_starts[i]);
    const std::size_t end =
        i + 1 < row.document_starts.size() ? static_cast<std::size_t>(row.document_starts[i + 1]) : ids.size();
    const auto start = static_cast<std::int64_t>(out.ids.size());
    if (start > out.document_starts.back()) out.document_starts.push_back(start);
    rearranged.document(ids.subspan(begin, end - begin), out.ids);
  }
  const std::size_t made = std::min(out.ids.size(), ids.size());
  out.ids.resize(ids.size(), how.pad);
  out.labels = out.ids;
  std::fill(out.labels.begin() + static_cast<std::ptrdiff_t>(made), out.labels.end(), not_scored);
  if (made > 0 && out.document_starts.back() == static_cast<std::int64_t>(made)) out.document_starts.pop_back();
  for (const std::int64_t start : out.document_starts)
    // not predicted from the previous document
    if (start > 0) out.labels[static_cast<std::size_t>(start)] = not_scored;
  return out;
}

std::shared_ptr<const Dataset> rows_to_fill(std::shared_ptr<const Dataset> rows, FillInMiddle how,
                                            std::shared_ptr<const text::Tokenizer> tokenizer) {
  return std::make_shared<RowsToFill>(std::move(rows), std::move(how), std::move(tokenizer));
}

}  // namespace tessera::data
