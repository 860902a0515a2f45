#include <tessera/data/pairs.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/text/chat_template.h>

namespace tessera::data {
namespace {

constexpr const char* answers[] = {"chosen", "rejected"};

const Value& needed(const Value& record, const char* name) {
  const Value* found = record.find(name);
  if (found == nullptr)
    throw InputError(concat(record.where().str(), ": has no \"", name,
                            "\": a pair has \"prompt\", \"chosen\" and \"rejected\" (--preference_loss)"));
  return *found;
}

/// Messages that both lists begin with.
std::size_t common_messages(const Value& a, const Value& b) {
  std::size_t n = 0;
  while (n < a.items().size() && n < b.items().size() && dump_json(a.items()[n], -1) == dump_json(b.items()[n], -1))
    ++n;
  return n;
}

/// One example: what is not scored, then what is.
struct Example {
  std::vector<std::int32_t> prompt, answer;
};

class Encoder {
 public:
  Encoder(const text::Tokenizer& tokenizer, const ExampleOptions& options, corpus::EncodedRecord& out)
      : tokenizer_(tokenizer), options_(options), out_(out) {}

  Example of_texts(const Value& prompt, const Value& answer, const char* name) {
    if (answer.as_string().empty())
      throw InputError(concat(answer.where().str(), ": \"", name, "\" is empty: nothing can be learnt from it"));
    Example example;
    example.prompt = encode(prompt.as_string());
    example.answer = encode(answer.as_string());
    for (const std::int32_t id : tokenizer_.suffix()) example.answer.push_back(id);
    if (const auto end = tokenizer_.end_of_turn(); end && (example.answer.empty() || example.answer.back() != *end))
      example.answer.push_back(*end);
    return example;
  }

  /// The last thing that the assistant says is the answer.
  Example of_messages(const Value& messages, const SourcePos& where) {
    text::ChatOptions chat;
    std::vector<text::Piece> pieces;
    try {
      pieces = options_.chat->scored_pieces(messages, chat);
    } catch (const InputError& error) {
      throw InputError(concat(where.str(), ": ", error.what()));
    }
    while (!pieces.empty() && !pieces.back().scored) pieces.pop_back();
    if (pieces.empty()) throw InputError(concat(where.str(), ": the chat template writes nothing of the answer"));
    const text::ChatEncoder encoder(tokenizer_);
    Example example;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::vector<std::int32_t> ids = encoder.encode(pieces[i].text, i == 0);
      count(pieces[i].text, ids);
      auto& part = i + 1 == pieces.size() ? example.answer : example.prompt;
      part.insert(part.end(), ids.begin(), ids.end());
    }
    return example;
  }

 private:
  std::vector<std::int32_t> encode(const std::string& text) {
    std::vector<std::int32_t> ids = tokenizer_.encode(text);
    count(text, ids);
    return ids;
  }
  void count(const std::string& text, const std::vector<std::int32_t>& ids) {
    out_.text_bytes += text.size();
    out_.text_tokens += ids.size();
  }

  const text::Tokenizer& tokenizer_;
  const ExampleOptions& options_;
  corpus::EncodedRecord& out_;
};

/// The list of messages, which is one answer of the assistant.
const Value& one_answer(const Value& list, const char* name) {
  const auto& items = list.items();
  if (items.size() != 1 || items[0].at("role").as_string() != "assistant")
    throw InputError(concat(list.where().str(), ": \"", name,
                            "\" must be one message of the assistant after what both answers begin with; it has ",
                            items.size(), items.size() == 1 ? " message of another role" : " messages"));
  return items[0];
}

Value rest_of(const Value& list, std::size_t begin) {
  Value rest = Value::make_array();
  for (std::size_t i = begin; i < list.items().size(); ++i) rest.push_back(list.items()[i]);
  rest.set_where(list.where());
  return rest;
}

/// Appends a row; returns whether a token of its answer is scored.
bool append(const Example& example, bool tokenizer_ends, const text::Tokenizer& tokenizer,
            const ExampleOptions& options, corpus::EncodedRecord& out) {
  const std::size_t begin = out.ids.size();
  if (tokenizer_ends)
    for (const std::int32_t id : tokenizer.prefix()) out.ids.push_back(id);
  const auto most = static_cast<std::size_t>(options.max_prompt_length);
  const std::size_t left_out = most > 0 && example.prompt.size() > most ? example.prompt.size() - most : 0;
  out.ids.insert(out.ids.end(), example.prompt.begin() + static_cast<std::ptrdiff_t>(left_out), example.prompt.end());
  out.scored.resize(out.ids.size(), false);
  out.ids.insert(out.ids.end(), example.answer.begin(), example.answer.end());
  out.scored.resize(out.ids.size(), true);
  const auto length = static_cast<std::size_t>(options.max_length);
  if (out.ids.size() - begin > length) {
    out.ids.resize(begin + length);
    out.scored.resize(begin + length);
    out.cut = true;
  }
  out.cut |= left_out > 0;
  if (begin < out.scored.size()) out.scored[begin] = false;
  return std::find(out.scored.begin() + static_cast<std::ptrdiff_t>(begin), out.scored.end(), true) != out.scored.end();
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
    // The second example begins behind the answer of the first, the only place where a scored token is followed by one
    // that is not.
    const auto scored = std::find_if(read.labels.begin(), read.labels.end(), [](auto label) { return label >= 0; });
    const auto second = std::find(scored, read.labels.end(), not_scored);
    TESSERA_CHECK(second != read.labels.end(), "pair ", first_ + row, " has one answer only");
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
  const Value* prompt = record.find("prompt");
  Encoder encoder(tokenizer, options, out);
  const bool messages = needed(record, answers[0]).is_array() && needed(record, answers[1]).is_array();
  if (messages && options.chat == nullptr)
    throw InputError(concat(record.where().str(), ": holds messages, but ", options.why_no_chat));
  // A prompt beside lists that is a text repeats what both lists begin with.
  const bool begins_both = messages && (prompt == nullptr || !prompt->is_array());
  const std::size_t common = begins_both ? common_messages(record.at(answers[0]), record.at(answers[1])) : 0;
  if (begins_both && common == 0)
    throw InputError(concat(record.where().str(),
                            ": \"chosen\" and \"rejected\" have no message in common that they begin with, and there "
                            "is no list \"prompt\""));
  bool usable = true;
  for (const char* name : answers) {
    const Value& answer = needed(record, name);
    Example example;
    if (messages) {
      const Value rest = rest_of(answer, common);
      Value all = begins_both ? Value::make_array() : *prompt;
      for (std::size_t i = 0; i < common; ++i) all.push_back(answer.items()[i]);
      all.push_back(one_answer(rest, name));
      example = encoder.of_messages(all, answer.where());
    } else {
      example = encoder.of_texts(needed(record, "prompt"), answer, name);
    }
    usable &= append(example, !messages || options.chat->is_chatml(), tokenizer, options, out);
  }
  if (!usable) out.scored.assign(out.scored.size(), false);
  out.kind = "pairs of answers";
  for (const auto& [name, value] : record.members())
    if (name != "prompt" && name != answers[0] && name != answers[1]) out.unused_fields.push_back(name);
}

std::shared_ptr<const Dataset> pair_rows(std::shared_ptr<const ExampleSource> pairs, std::int64_t first,
                                         std::int64_t count, std::int64_t max_length) {
  return std::make_shared<PairRows>(std::move(pairs), first, count, max_length);
}

Batch as_pairs(const Batch& batch) {
  const std::int64_t n = batch.ids.size(0), t = batch.ids.size(1);
  const auto& starts = batch.document_starts;
  TESSERA_CHECK(std::ssize(starts) == 2 * n && std::ssize(batch.lengths) == n && !batch.part, "a batch of ", n,
                " rows with ", starts.size(), " documents is none of pairs");
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
