// Opens datasets from settings.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <ATen/Parallel.h>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/config/sections/data_config.h>
#include <tessera/corpus/data_list.h>
#include <tessera/corpus/sources.h>
#include <tessera/data/blend.h>
#include <tessera/data/cached_rows.h>
#include <tessera/data/dataset.h>
#include <tessera/data/examples.h>
#include <tessera/data/fill_in_middle.h>
#include <tessera/data/images/image_examples.h>
#include <tessera/data/images/image_rows.h>
#include <tessera/data/mock_data.h>
#include <tessera/data/named_files.h>
#include <tessera/data/pairs.h>
#include <tessera/data/stream/row_stream.h>
#include <tessera/data/text_records.h>

namespace tessera::data {
namespace {

constexpr std::chrono::seconds between_lines(5);

/// The data of one part of a list, from files of one kind: blocks or examples.
struct Contents {
  std::string name;  ///< the first file
  std::shared_ptr<const Dataset> blocks;
  std::shared_ptr<const ExampleSource> examples;
  double text_bytes = 0, text_tokens = 0;  ///< set for text

  std::int64_t count() const { return blocks ? blocks->size() : examples->size(); }
  const char* unit() const { return blocks ? "block" : "example"; }
};

/// The contents that share a weight (0: no weights).
struct Part {
  double weight = 0;
  std::vector<Contents> contents;
};

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

std::string percent(double part, double whole) { return concat(format_real(100 * ratio(part, whole), 3), "%"); }

std::string counted(std::int64_t count, const char* what) { return concat(count, " ", what, count == 1 ? "" : "s"); }

/// Opens the files of one configuration and collects notes and warnings.
class DatasetOpener {
 public:
  DatasetOpener(const DataConfig& config, const text::Tokenizer& tokenizer, std::int64_t block_size,
                std::int64_t vocab_size, const ReadProgress& progress, const std::string& tokenizer_place, bool pairs,
                const std::optional<ImageInput>& images)
      : config_(config),
        tokenizer_(tokenizer),
        block_size_(block_size),
        vocab_size_(vocab_size),
        example_length_(config.max_seq_length > 0 ? config.max_seq_length : block_size),
        progress_(progress),
        tokenizer_place_(tokenizer_place),
        pairs_(pairs),
        images_{images, nullptr, config.image_folder} {
    // For records with images, LLaVA's default applies.
    if (!config.version.empty() || images)
      images_.conversation = &text::conversation_of(config.version.empty() ? "vicuna_v1" : config.version);
  }

  std::vector<Part> open(const std::string& flag, const std::string& list, corpus::Split split) {
    const auto named = corpus::parse_data_list(list);
    if (named.empty())
      throw InputError(concat("--", flag,
                              " is not set, so there is nothing to train on; specify a file of text (.txt), ",
                              "examples (.jsonl), or tokens (.bin with an .idx next to it)"));
    std::vector<Part> parts;
    for (const corpus::DataPart& part : named) parts.push_back({part.weight, open_part(flag, part, split)});
    return parts;
  }

  /// Rows [first, first + count) of the given contents.
  std::shared_ptr<const Dataset> rows(const Contents& contents, std::int64_t first, std::int64_t count) {
    if (contents.blocks) return count == contents.count() ? contents.blocks : slice(contents.blocks, first, count);
    if (pairs_) return pair_rows(contents.examples, first, count, example_length_);
    if (!config_.packing) return example_rows(contents.examples, first, count);
    auto packed = packed_rows(contents.examples, first, count, example_length_);
    std::int64_t tokens = 0;
    contents.examples->lengths(first, count, [&](std::int64_t length) { tokens += length; });
    notes.push_back(concat("packing: ", counted(count, "example"), " in ", counted(packed->size(), "row"), " of ",
                           example_length_, " tokens, ",
                           percent(static_cast<double>(tokens), static_cast<double>(packed->size() * example_length_)),
                           " full"));
    return packed;
  }

  std::vector<std::string> notes, warnings;

 private:
  int threads() const { return at::get_num_threads(); }

  std::vector<Contents> open_part(const std::string& flag, const corpus::DataPart& part, corpus::Split split) {
    std::vector<corpus::SourceFile> text, records;
    std::vector<Contents> contents;
    for (corpus::SourceFile& file : named_files(flag, part, split)) {
      if (pairs_ && (file.kind == corpus::FileKind::tokens || file.kind == corpus::FileKind::text))
        throw InputError(concat("--", flag, " ", file.path,
                                ": --preference_loss needs records with prompt, chosen and rejected (.jsonl)"));
      if (file.kind == corpus::FileKind::tokens)
        contents.push_back(
            {file.path, indexed_blocks(file.path, block_size_, vocab_size_, config_.reset_position_ids), nullptr});
      else
        (file.kind == corpus::FileKind::text ? text : records).push_back(std::move(file));
    }
    if (!text.empty()) contents.push_back(open_text(std::move(text)));
    if (!records.empty()) contents.push_back(open_examples(std::move(records)));
    return contents;
  }

  Contents open_text(std::vector<corpus::SourceFile> files) {
    const std::string name = files.front().path;
    const auto tokens = open_tokens(lines_request(std::move(files), tokenizer_, threads()), tokenizer_,
                                    config_.data_cache_dir, progress_, notes);
    if (tokens.tally.ill_formed)
      warnings.push_back(
          concat(name, ": is not valid UTF-8 throughout; the tokenizer decides how ill-formed bytes are encoded"));
    check_ids(name, tokens);
    return {name, stored_blocks(tokens.store, block_size_, config_.reset_position_ids, name), nullptr,
            static_cast<double>(tokens.tally.text_bytes), static_cast<double>(tokens.tally.text_tokens)};
  }

  Contents open_examples(std::vector<corpus::SourceFile> files) {
    const std::string name = files.front().path;
    if (config_.fim_data) throw InputError(no_blocks_to_fill(name));
    ExampleOptions options = example_options(config_, tokenizer_, tokenizer_place_, block_size_, vocab_size_);
    options.pairs = pairs_;
    if (pairs_ && images_.input)
      throw InputError(concat(name, ": --preference_loss does not support images: remove it, or use a text model"));
    if (!pairs_ && has_image_records(files, images_)) return open_images(std::move(files), options);
    if (!config_.version.empty())
      throw InputError(concat(name, ": --version ", config_.version,
                              " needs records with `conversations`, but these have a different form: remove it"));
    const auto tokens = open_tokens(examples_request(std::move(files), tokenizer_, options, threads(), notes),
                                    tokenizer_, config_.data_cache_dir, progress_, notes);
    check_ids(name, tokens);
    check_usable(name, tokens.tally);
    describe(name, tokens.tally);
    return {name, nullptr, stored_examples(tokens.store, tokens.tally.longest),
            static_cast<double>(tokens.tally.text_bytes), static_cast<double>(tokens.tally.text_tokens)};
  }

  Contents open_images(std::vector<corpus::SourceFile> files, const ExampleOptions& options) {
    const std::string name = files.front().path;
    if (!config_.column_map.empty() || config_.text_column_name != "text")
      throw InputError(concat(name, ": records with images must use LLaVA's field names or `messages`: remove ",
                              config_.column_map.empty() ? "--text_column_name" : "--column_map"));
    const ImageExamples read = read_image_examples(files, tokenizer_, options, images_, progress_);
    const std::int64_t count = read.source->size(), unclear = read.unclear;
    corpus::Tally tally;
    tally.left_out = read.left_out;
    tally.remarks = read.remarks;
    if (read.kind.empty() && read.left_out.empty())
      throw InputError(concat(name, ": contains no records: use a file with at least one record"));
    if (read.kind.empty()) check_usable(name, tally);
    if (unclear > 0)
      warnings.push_back(concat(name, ": ", unclear, unclear == 1 ? " conversation was" : " conversations were",
                                " left out: a turn is empty or unanswered, or a text contains the turn separator, so "
                                "that it is not clear which tokens to score (LLaVA ignores these, too)"));
    if (read.stray > 0)
      warnings.push_back(concat(name, ": ", read.stray, read.stray == 1 ? " record" : " records",
                                " without an image have <image> in the text, which is read as text"));
    if (count == 0)
      throw InputError(concat(name, ": none of its examples has a scored token within the first ", example_length_,
                              " tokens, including image tokens: raise --max_seq_length (--model_max_length)"));
    tally.kind = concat(read.kind, ", ", read.images, read.images == 1 ? " image" : " images");
    tally.records = count;
    tally.tokens = read.tokens;
    tally.scored = read.scored;
    tally.cut = read.cut;
    tally.dropped = read.dropped;
    tally.unused_fields.insert(read.unused_fields.begin(), read.unused_fields.end());
    describe(name, tally);
    return {name, nullptr, read.source};
  }

  /// Every id must be a valid row of the embedding.
  void check_ids(const std::string& name, const corpus::CachedTokens& tokens) const {
    if (tokens.tally.largest_id < vocab_size_) return;
    std::vector<std::int64_t> ids;
    std::int64_t position = 0, id = tokens.tally.largest_id;
    for (bool found = false; !found;) {
      constexpr std::int64_t at_once = 1 << 20;
      ids.clear();
      tokens.store->read(position, std::min(at_once, tokens.store->tokens() - position), ids);
      const auto bad = std::find_if(ids.begin(), ids.end(), [&](std::int64_t id) { return id >= vocab_size_; });
      position += bad - ids.begin();
      found = bad != ids.end() || ids.empty();
      if (bad != ids.end()) id = *bad;
    }
    throw InputError(concat(name, ": token ", position, " has id ", id, ", but the model's vocabulary has ",
                            vocab_size_, " entries (ids 0 to ", vocab_size_ - 1,
                            "): tokenizer and model do not match"));
  }

  void check_usable(const std::string& name, const corpus::Tally& tally) const {
    if (tally.kind.empty() && tally.left_out.empty())
      throw InputError(concat(name, ": contains no records: use a file with at least one record"));
    if (tally.records == 0 && tally.dropped == 0) {
      std::vector<std::string> why;
      for (const auto& [said, finding] : tally.left_out)
        why.push_back(concat(finding.count, " left out: ", said, " (", finding.place, ")"));
      throw InputError(concat(name, ": nothing can be learned from its ", counted(tally.all_left_out(), "record"), ": ",
                              join(why, "; ")));
    }
    if (tally.records == 0)
      throw InputError(concat(name, ": none of its ", tally.dropped, " examples has a scored token within the first ",
                              example_length_, " tokens: raise --max_seq_length or shorten the prompts"));
  }

  void describe(const std::string& name, const corpus::Tally& tally) {
    const std::int64_t count = tally.records;
    notes.push_back(concat(
        name, ": ", count, count == 1 ? " example (" : " examples (", tally.kind, "), ", tally.tokens, " tokens, ",
        percent(static_cast<double>(tally.scored), static_cast<double>(tally.tokens)), " of them scored"));
    if (tally.cut > 0)
      warnings.push_back(concat(
          name, ": ", tally.cut, " of ", counted(count, "example"), " are longer than ", example_length_, " tokens",
          pairs_ && config_.max_prompt_length > 0 ? concat(", or their prompts than ", config_.max_prompt_length, ",")
                                                  : "",
          " and were cut (--max_seq_length", pairs_ && config_.max_prompt_length > 0 ? ", --max_prompt_length)" : ")"));
    if (tally.dropped > 0)
      warnings.push_back(concat(name, ": ", tally.dropped, tally.dropped == 1 ? " example was" : " examples were",
                                " left out: no scored token within the first ", example_length_,
                                " tokens (--max_seq_length)"));
    for (const auto& [said, finding] : tally.left_out)
      warnings.push_back(concat(name, ": ", finding.count, " of ", count + tally.dropped + tally.all_left_out(),
                                finding.count == 1 ? " records was" : " records were", " left out: ", said,
                                finding.count == 1 ? " (" : " (first at ", finding.place, ")"));
    for (const auto& [said, finding] : tally.remarks)
      warnings.push_back(concat(name, ": ", counted(finding.count, "record"), ": ", said,
                                finding.count == 1 ? " (" : " (first at ", finding.place, ")"));
    if (!tally.unused_fields.empty())
      warnings.push_back(concat(
          name,
          ": unused fields: ", join(std::vector<std::string>(tally.unused_fields.begin(), tally.unused_fields.end()))));
  }

  const DataConfig& config_;
  const text::Tokenizer& tokenizer_;
  std::int64_t block_size_, vocab_size_;
  std::int64_t example_length_;  // maximum
  const ReadProgress& progress_;
  const std::string& tokenizer_place_;
  bool pairs_;  // records are pairs of answers
  ImageOptions images_;
};

/// Number of blocks or examples to hold out for evaluation at the end of each of the contents, in order; at least one
/// in total, taken from the largest.
std::vector<std::int64_t> held_out(const std::vector<Part>& parts, double percentage) {
  if (!(percentage >= 0 && percentage < 100))
    throw InputError(
        concat("--validation_split_percentage is ", percentage, "; it must be at least 0 and less than 100"));
  std::vector<std::int64_t> out, counts;
  const Contents* largest = nullptr;
  std::size_t at = 0;
  std::int64_t all = 0;
  for (const Part& part : parts) {
    for (const Contents& contents : part.contents) {
      const std::int64_t count = contents.count();
      const auto share = static_cast<std::int64_t>(std::floor(static_cast<double>(count) * percentage / 100));
      out.push_back(std::min(share, count - 1));
      all += out.back();
      if (largest != nullptr && largest->count() >= count) continue;
      largest = &contents;
      at = out.size() - 1;
    }
  }
  if (percentage == 0 || all > 0) return out;
  if (largest->count() < 2)
    throw InputError(concat(largest->name, ": has ", largest->count(), " ", largest->unit(),
                            ": none can be held out for evaluation; use --validation_file or more data",
                            largest->blocks ? ", or a smaller --block_size" : ""));
  out[at] = 1;
  return out;
}

bool has_weights(const std::vector<Part>& parts) { return parts.front().weight > 0; }

}  // namespace

Datasets open_datasets(const DataConfig& config, const text::Tokenizer& tokenizer, std::int64_t block_size,
                       std::int64_t vocab_size, bool want_validation, const ReadProgress& progress,
                       const std::string& tokenizer_place, std::uint64_t stream_seed, bool pairs,
                       const std::optional<ImageInput>& images) {
  if (images && config.streaming) throw InputError("--streaming does not support images: remove it");
  DatasetOpener opener(config, tokenizer, block_size, vocab_size, progress, tokenizer_place, pairs, images);
  std::vector<Part> train;
  if (config.mock_data)
    train = {{0, {{"--mock_data", made_up_blocks(block_size, vocab_size, config.reset_position_ids), nullptr}}}};
  else if (!config.streaming)
    train = opener.open("train_file", config.train_file, corpus::Split::train);
  std::vector<Part> validation;
  if (want_validation && !config.validation_file.empty()) {
    validation = opener.open("validation_file", config.validation_file, corpus::Split::validation);
    if (has_weights(validation))
      opener.notes.push_back("--validation_file: weights apply only to training; every row is evaluated once");
  }
  std::vector<std::int64_t> out;
  if (want_validation && validation.empty()) {
    if (config.streaming && config.validation_split_percentage > 0)
      throw InputError(
          "--streaming: nothing can be held out of a stream for evaluation: set --validation_file, or "
          "--validation_split_percentage 0");
    if (!config.streaming) out = held_out(train, config.validation_split_percentage);
  }

  Datasets datasets;
  std::vector<std::shared_ptr<const Dataset>> parts, held;
  std::vector<double> weights;
  double text_bytes = 0, text_tokens = 0;
  std::size_t number = 0;
  for (const Part& part : train) {
    std::vector<std::shared_ptr<const Dataset>> kept;
    for (const Contents& contents : part.contents) {
      text_bytes += contents.text_bytes;
      text_tokens += contents.text_tokens;
      const std::int64_t count = contents.count(), without = out.empty() ? 0 : out[number++];
      if (without > 0) held.push_back(opener.rows(contents, count - without, without));
      kept.push_back(opener.rows(contents, 0, count - without));
    }
    parts.push_back(joined(std::move(kept)));
    weights.push_back(part.weight);
  }
  for (const Part& part : validation)
    for (const Contents& contents : part.contents) held.push_back(opener.rows(contents, 0, contents.count()));
  if (!held.empty()) datasets.validation = joined(std::move(held));
  if (config.streaming) {
    const auto warn = [](const std::string& text) { log::warning(text); };
    datasets.stream = open_stream(config, tokenizer, tokenizer_place, block_size, vocab_size, stream_seed,
                                  progress ? warn : std::function<void(const std::string&)>(), opener.notes);
    datasets.train = datasets.stream;
  } else {
    datasets.train =
        has_weights(train) ? blended(std::move(parts), weights, config.blend_mode) : joined(std::move(parts));
  }
  const auto first_of = [](std::shared_ptr<const Dataset>& rows, std::int64_t most) {
    if (rows && most > 0 && most < rows->size()) rows = slice(rows, 0, most);
  };
  if (!config.streaming) first_of(datasets.train, config.max_train_samples);
  first_of(datasets.validation, config.max_eval_samples);
  if (images) {
    const ImageReader reader(*images, config.image_aspect_ratio == ImageAspectRatio::pad);
    for (auto* rows : {&datasets.train, &datasets.validation})
      if (*rows) *rows = std::make_shared<ImageRows>(std::move(*rows), reader);
  }
  datasets.train_bytes_per_token = ratio(text_bytes, text_tokens);
  datasets.notes = std::move(opener.notes);
  datasets.warnings = std::move(opener.warnings);
  return datasets;
}

ReadProgress logged_progress() {
  using Clock = std::chrono::steady_clock;
  return [last = Clock::now()](const std::string& path, std::uint64_t done, std::uint64_t of) mutable {
    if (done >= of || Clock::now() - last < between_lines) return;
    last = Clock::now();
    log::info(path, ": ", format_bytes(done), " of ", format_bytes(of), " tokenized (", 100 * done / of, "%)");
  };
}

}  // namespace tessera::data
