// From the flags to datasets.

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/Parallel.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/data/dataset.h>
#include <tessera/data/examples.h>

namespace tessera::data {
namespace {

constexpr const char* kinds = ".txt (text), .jsonl (examples), or .bin with .idx beside it (tokens)";

/// What a file holds: blocks or examples.
struct Contents {
  std::shared_ptr<const Dataset> blocks;
  std::shared_ptr<const Examples> examples;
  double bytes_per_token = 0;

  std::int64_t count() const { return blocks ? blocks->size() : examples->size(); }
  const char* unit() const { return blocks ? "block" : "example"; }
};

bool ends_with(const std::string& path, std::string_view extension) { return to_lower(path).ends_with(extension); }

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

std::string percent(double part, double whole) { return concat(format_real(100 * ratio(part, whole), 3), "%"); }

/// Opens the files of one configuration and collects what there is to say about them.
class Opener {
 public:
  Opener(const DataConfig& config, const text::Tokenizer& tokenizer, std::int64_t block_size, std::int64_t vocab_size,
         const ReadProgress& progress)
      : config_(config),
        tokenizer_(tokenizer),
        block_size_(block_size),
        vocab_size_(vocab_size),
        example_length_(config.max_seq_length > 0 ? config.max_seq_length : block_size),
        progress_(progress) {}

  Contents open(const std::string& flag, const std::string& path) {
    if (path.empty())
      throw InputError(concat("--", flag, " is not given: there is nothing to train on; name a file: ", kinds));
    if (!path_exists(path)) throw InputError(concat("--", flag, ": no such file: ", path));
    if (is_directory(path)) throw InputError(concat("--", flag, ": ", path, " is a folder; expected ", kinds));
    if (ends_with(path, ".txt")) return open_text(path);
    if (ends_with(path, ".jsonl")) return open_examples(path);
    if (ends_with(path, ".bin") || ends_with(path, ".idx"))
      return {indexed_blocks(path, block_size_, vocab_size_), nullptr, 0};
    throw InputError(concat("--", flag, ": ", path, ": unknown kind of file; expected ", kinds));
  }

  /// [first, first + count) of a file, as rows.
  std::shared_ptr<const Dataset> rows(const Contents& contents, std::int64_t first, std::int64_t count) {
    if (contents.blocks) return count == contents.count() ? contents.blocks : slice(contents.blocks, first, count);
    if (!config_.packing) return example_rows(contents.examples, first, count);
    auto packed = packed_rows(contents.examples, first, count, example_length_);
    std::int64_t tokens = 0;
    for (std::int64_t i = first; i < first + count; ++i) tokens += contents.examples->length(i);
    notes.push_back(
        concat("packing: ", count, " examples in ", packed->size(), " rows of ", example_length_, " tokens, ",
               percent(static_cast<double>(tokens), static_cast<double>(packed->size() * example_length_)), " full"));
    return packed;
  }

  std::vector<std::string> notes, warnings;

 private:
  int threads() const { return at::get_num_threads(); }

  Contents open_text(const std::string& path) {
    const MappedFile file(path);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    if (text.empty()) throw InputError(concat(path, ": is empty: there is nothing to train on"));
    if (!is_utf8(text))
      warnings.push_back(
          concat(path, ": is not valid UTF-8 throughout; the tokenizer decides what becomes of ill-formed bytes"));
    std::vector<std::int32_t> tokens = encode_lines(text, tokenizer_, threads(), path, progress_);
    const double bytes_per_token = ratio(static_cast<double>(text.size()), static_cast<double>(tokens.size()));
    return {token_blocks(std::move(tokens), block_size_, vocab_size_, path), nullptr, bytes_per_token};
  }

  Contents open_examples(const std::string& path) {
    const ExampleOptions options{.text_field = config_.text_column_name,
                                 .max_length = example_length_,
                                 .vocab_size = vocab_size_,
                                 .assistant_only = config_.assistant_only_loss,
                                 .threads = threads()};
    ExampleFile file = read_examples(path, tokenizer_, options, progress_);
    describe(path, file);
    const double bytes_per_token = ratio(static_cast<double>(file.text_bytes), static_cast<double>(file.text_tokens));
    return {nullptr, std::make_shared<const Examples>(std::move(file.examples)), bytes_per_token};
  }

  void describe(const std::string& path, const ExampleFile& file) {
    const std::int64_t count = file.examples.size();
    notes.push_back(concat(path, ": ", count, count == 1 ? " example (" : " examples (", file.kind, "), ", file.tokens,
                           " tokens, ", percent(static_cast<double>(file.scored), static_cast<double>(file.tokens)),
                           " of them scored"));
    if (file.cut > 0)
      warnings.push_back(concat(path, ": ", file.cut, " of ", count, " examples are longer than ", example_length_,
                                " tokens and were cut (--max_seq_length)"));
    if (file.dropped > 0)
      warnings.push_back(concat(path, ": ", file.dropped, file.dropped == 1 ? " example was" : " examples were",
                                " left out: no scored token within the first ", example_length_,
                                " tokens (--max_seq_length)"));
    if (!file.unused_fields.empty())
      warnings.push_back(concat(path, ": fields that are not used: ", join(file.unused_fields)));
  }

  const DataConfig& config_;
  const text::Tokenizer& tokenizer_;
  std::int64_t block_size_, vocab_size_;
  std::int64_t example_length_;  // at most
  const ReadProgress& progress_;
};

/// Blocks or examples to hold out, for evaluation, at the end of a file.
std::int64_t held_out(const Contents& contents, double percentage, const std::string& path) {
  const std::int64_t count = contents.count();
  if (!(percentage >= 0 && percentage < 100))
    throw InputError(
        concat("--validation_split_percentage is ", percentage, "; it must be at least 0 and less than 100"));
  if (percentage == 0) return 0;
  if (count < 2)
    throw InputError(concat(path, ": has ", count, " ", contents.unit(),
                            ": none can be held out for evaluation; give --validation_file or more data",
                            contents.blocks ? ", or a smaller --block_size" : ""));
  const auto share = static_cast<std::int64_t>(std::floor(static_cast<double>(count) * percentage / 100));
  return std::clamp<std::int64_t>(share, 1, count - 1);
}

}  // namespace

Datasets open_datasets(const DataConfig& config, const text::Tokenizer& tokenizer, std::int64_t block_size,
                       std::int64_t vocab_size, bool want_validation, const ReadProgress& progress) {
  Opener opener(config, tokenizer, block_size, vocab_size, progress);
  const Contents train = opener.open("train_file", config.train_file);
  Datasets datasets;
  datasets.train_bytes_per_token = train.bytes_per_token;
  std::int64_t kept = train.count();
  if (want_validation && !config.validation_file.empty()) {
    const Contents validation = opener.open("validation_file", config.validation_file);
    datasets.validation = opener.rows(validation, 0, validation.count());
  } else if (want_validation) {
    const std::int64_t out = held_out(train, config.validation_split_percentage, config.train_file);
    kept -= out;
    if (out > 0) datasets.validation = opener.rows(train, kept, out);
  }
  datasets.train = opener.rows(train, 0, kept);
  datasets.notes = std::move(opener.notes);
  datasets.warnings = std::move(opener.warnings);
  return datasets;
}

void require_blocks(const Dataset& dataset, std::int64_t rows_per_step) {
  if (dataset.size() >= rows_per_step) return;
  throw InputError(concat("the training data have ", dataset.size(), " rows of up to ", dataset.max_length(),
                          " tokens, but one step takes ", rows_per_step,
                          ": give more data, a smaller --block_size or a smaller batch"));
}

}  // namespace tessera::data
