// A .jsonl file, tokenized on several threads.

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/data/example_line.h>
#include <tessera/data/share_out.h>
#include <tessera/format/jsonl.h>
#include <tessera/text/chat_template.h>

namespace tessera::data {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{4} << 20;  // lines that wait for their turn: some tenths of a second
constexpr std::size_t complaints_listed = 20;

/// What became of one line: an example or a complaint.
struct Outcome {
  int number = 0;
  ExampleLine example;
  std::string complaint;
};

std::vector<format::JsonlReader::Line> next_chunk(format::JsonlReader& reader) {
  std::vector<format::JsonlReader::Line> lines;
  for (std::size_t bytes = 0; bytes < chunk_bytes;) {
    const auto line = reader.next_line();
    if (!line) break;
    lines.push_back(*line);
    bytes += line->text.size();
  }
  return lines;
}

Outcome encode_line(const format::JsonlReader& reader, const format::JsonlReader::Line& line,
                    const text::Tokenizer& tokenizer, const ExampleOptions& options) {
  Outcome outcome;
  outcome.number = line.number;
  try {
    outcome.example = encode_example(reader.parse(line), tokenizer, options);
  } catch (const InputError& error) {
    outcome.complaint = error.what();
  }
  return outcome;
}

/// Takes the outcomes in the order of the lines.
class Collector {
 public:
  Collector(std::string name, const text::Tokenizer& tokenizer, const ExampleOptions& options)
      : name_(std::move(name)), tokenizer_(tokenizer), options_(options) {}

  void take(const Outcome& outcome) {
    if (!outcome.complaint.empty()) return complain(outcome.complaint);
    const ExampleLine& example = outcome.example;
    if (!kind_) {
      kind_ = example.kind;
      kind_line_ = outcome.number;
      check_kind();
    }
    if (example.kind != *kind_)
      return complain(concat(name_, ":", outcome.number, ":1: holds ", name_of(example.kind), ", but line ", kind_line_,
                             " holds ", name_of(*kind_), ": a file has examples of one kind"));
    for (const std::int32_t id : example.ids)
      if (id < 0 || id >= options_.vocab_size)
        return complain(concat(name_, ":", outcome.number, ":1: a token has id ", id,
                               ", but the model's vocabulary has ", options_.vocab_size,
                               " entries: tokenizer and model do not belong together"));
    file_.text_bytes += example.text_bytes;
    file_.text_tokens += example.text_tokens;
    unused_.insert(example.unused_fields.begin(), example.unused_fields.end());
    const std::int64_t scored = example.scored_tokens();
    if (scored == 0) {
      ++file_.dropped;
      return;
    }
    file_.cut += example.cut;
    file_.scored += scored;
    file_.tokens += static_cast<std::int64_t>(example.ids.size());
    file_.examples.add(example.ids, example.scored);
  }

  bool has_enough_complaints() const { return complaints_.size() > complaints_listed; }

  ExampleFile finish() {
    if (!complaints_.empty()) throw InputError(all_complaints());
    if (!kind_) throw InputError(concat(name_, ": has no lines: there is nothing to train on"));
    if (file_.examples.size() == 0)
      throw InputError(concat(name_, ": none of its ", file_.dropped, " examples has a scored token within the first ",
                              options_.max_length, " tokens: raise --max_seq_length or shorten the prompts"));
    file_.kind = name_of(*kind_);
    file_.unused_fields.assign(unused_.begin(), unused_.end());
    return std::move(file_);
  }

 private:
  void check_kind() const {
    if (*kind_ != ExampleKind::messages || text::has_chat_tokens(tokenizer_)) return;
    throw InputError(concat(name_, ":", kind_line_, ":1: holds messages, but the tokenizer has no tokens ",
                            text::chat_begin, " and ", text::chat_end,
                            ", which conversations are written with: use the "
                            "tokenizer of a chat model, or give \"prompt\" and \"completion\""));
  }

  void complain(std::string what) { complaints_.push_back(std::move(what)); }

  std::string all_complaints() {
    if (complaints_.size() == 1) return complaints_[0];
    const bool more = complaints_.size() > complaints_listed;
    complaints_.resize(std::min(complaints_.size(), complaints_listed));
    return concat(name_, ": ", more ? "the first " : "", complaints_.size(), " lines that cannot be used:\n  ",
                  join(complaints_, "\n  "), more ? "\n  ... and more" : "");
  }

  std::string name_;
  const text::Tokenizer& tokenizer_;
  const ExampleOptions& options_;
  ExampleFile file_;
  std::optional<ExampleKind> kind_;
  int kind_line_ = 0;
  std::set<std::string> unused_;
  std::vector<std::string> complaints_;
};

}  // namespace

ExampleFile read_examples(const std::string& path, const text::Tokenizer& tokenizer, const ExampleOptions& options,
                          const ReadProgress& progress) {
  TESSERA_CHECK(options.max_length >= 2, "max_length ", options.max_length);
  format::JsonlReader reader(path);
  Collector collector(path, tokenizer, options);
  while (!collector.has_enough_complaints()) {
    const auto lines = next_chunk(reader);
    if (lines.empty()) break;
    std::vector<Outcome> outcomes(lines.size());
    share_out(lines.size(), options.threads,
              [&](std::size_t i) { outcomes[i] = encode_line(reader, lines[i], tokenizer, options); });
    for (const Outcome& outcome : outcomes) collector.take(outcome);
    if (progress) progress(path, reader.bytes_read(), reader.bytes());
  }
  return collector.finish();
}

}  // namespace tessera::data
