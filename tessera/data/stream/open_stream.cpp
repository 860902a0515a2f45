// Opens a stream from settings: --train_file with --streaming.

#include <algorithm>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/config/sections/data_config.h>
#include <tessera/data/block_rows.h>
#include <tessera/data/fill_in_middle.h>
#include <tessera/data/named_files.h>
#include <tessera/data/stream/row_stream.h>
#include <tessera/data/text_records.h>

namespace tessera::data {
namespace {

bool is_text(const corpus::SourceFile& file) { return file.kind == corpus::FileKind::text; }

/// Throws if some files are text and others are not.
void check_kinds(const std::vector<corpus::SourceFile>& files) {
  for (const corpus::SourceFile& file : files) {
    if (file.kind == corpus::FileKind::tokens)
      throw InputError(concat(file.path,
                              ": already contains tokens, which are read from the file on demand: remove "
                              "--streaming"));
    if (is_text(file) != is_text(files.front()))
      throw InputError(concat("--streaming: ", files.front().path, " and ", file.path,
                              " are text and records, which cannot be mixed in one part: give each a weight "
                              "(0.5 a.txt 0.5 b.jsonl)"));
  }
}

}  // namespace

std::shared_ptr<RowStream> open_stream(const DataConfig& config, const text::Tokenizer& tokenizer,
                                       const std::string& tokenizer_place, std::int64_t block_size,
                                       std::int64_t vocab_size, std::uint64_t seed,
                                       const std::function<void(const std::string&)>& warn,
                                       std::vector<std::string>& notes) {
  check_block_size(block_size);
  if (config.train_sampling_strategy == SamplingStrategy::group_by_length ||
      config.train_sampling_strategy == SamplingStrategy::group_by_modality_length)
    throw InputError(
        "--streaming does not know the lengths of all rows, by which group_by_length sorts: use another "
        "--train_sampling_strategy");
  const ExampleOptions examples = example_options(config, tokenizer, tokenizer_place, block_size, vocab_size);
  const std::string identity = identity_of(tokenizer);
  std::vector<StreamPart> parts;
  std::uint64_t bytes = 0;
  std::size_t files = 0;
  bool has_text = false, has_examples = false;
  for (const corpus::DataPart& part : corpus::parse_data_list(config.train_file)) {
    std::vector<corpus::SourceFile> sources = named_files("train_file", part, corpus::Split::train);
    check_kinds(sources);
    files += sources.size();
    for (const corpus::SourceFile& source : sources) bytes += source.bytes;
    const bool text = is_text(sources.front());
    if (!text && config.fim_data) throw InputError(no_blocks_to_fill(sources.front().path));
    (text ? has_text : has_examples) = true;
    parts.push_back({part.weight, text ? lines_request(std::move(sources), tokenizer, 1)
                                       : examples_request(std::move(sources), tokenizer, examples, 1, notes)});
    parts.back().request.settings += concat(", tokenizer ", identity);
  }
  RowStreamOptions options;
  options.window = {.rows = config.streaming_buffer,
                    .block_length = block_size,
                    .example_length = examples.max_length,
                    .packing = config.packing,
                    .documents = config.reset_position_ids,
                    .vocab_size = vocab_size,
                    .warn = warn};
  options.seed = seed;
  options.shuffle = config.train_sampling_strategy == SamplingStrategy::random;
  if (has_text)
    options.settings =
        concat("blocks of ", block_size, " tokens", config.reset_position_ids ? ", documents apart" : "");
  if (has_examples)
    options.settings += concat(has_text ? "; " : "", "examples of at most ", examples.max_length, " tokens",
                               config.packing ? ", packed" : "");
  notes.push_back(concat(
      "streaming: ", files, files == 1 ? " file" : " files", " (", format_bytes(bytes), "), tokenized during the run; ",
      options.settings, "; ",
      options.shuffle ? concat("shuffled among ", config.streaming_buffer, " rows") : std::string("in file order")));
  return std::make_shared<RowStream>(std::move(parts), options);
}

}  // namespace tessera::data
