// From the flags to datasets.

#include <algorithm>
#include <cmath>
#include <span>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/data/dataset.h>

namespace tessera::data {
namespace {

struct Opened {
  std::shared_ptr<const Dataset> blocks;
  double bytes_per_token = 0;
};

bool ends_with(const std::string& path, std::string_view extension) { return to_lower(path).ends_with(extension); }

Opened open_text(const std::string& path, const text::Tokenizer& tokenizer, std::int64_t block_size,
                 std::int64_t vocab_size) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (text.empty()) throw InputError(concat(path, ": is empty: there is nothing to train on"));
  if (!is_utf8(text))
    log::warning(path, ": is not valid UTF-8 throughout; the tokenizer decides what becomes of ill-formed bytes");
  std::vector<std::int32_t> tokens = encode_lines(text, tokenizer);
  const double bytes_per_token =
      tokens.empty() ? 0 : static_cast<double>(text.size()) / static_cast<double>(tokens.size());
  return {token_blocks(std::move(tokens), block_size, vocab_size, path), bytes_per_token};
}

Opened open_file(const std::string& flag, const std::string& path, const text::Tokenizer& tokenizer,
                 std::int64_t block_size, std::int64_t vocab_size) {
  if (path.empty())
    throw InputError(concat("--", flag, " is not given: there is nothing to train on; name a .txt or .bin file"));
  if (!path_exists(path)) throw InputError(concat("--", flag, ": no such file: ", path));
  if (is_directory(path))
    throw InputError(concat("--", flag, ": ", path, " is a folder; expected a .txt or .bin file"));
  if (ends_with(path, ".txt")) return open_text(path, tokenizer, block_size, vocab_size);
  if (ends_with(path, ".bin") || ends_with(path, ".idx")) return {indexed_blocks(path, block_size, vocab_size), 0};
  throw InputError(concat("--", flag, ": ", path,
                          ": unknown kind of file; expected .txt (text), or .bin with .idx beside it (tokens)"));
}

// Blocks to hold out of `blocks`, for evaluation at the end of the stream.
std::int64_t held_out(std::int64_t blocks, double percentage, const std::string& path) {
  if (!(percentage >= 0 && percentage < 100)) {
    throw InputError(
        concat("--validation_split_percentage is ", percentage, "; it must be at least 0 and less than 100"));
  }
  if (percentage == 0) return 0;
  if (blocks < 2) {
    throw InputError(concat(path, ": has ", blocks,
                            " block: none can be held out for evaluation; give --validation_file, more data or a "
                            "smaller --block_size"));
  }
  const auto share = static_cast<std::int64_t>(std::floor(static_cast<double>(blocks) * percentage / 100));
  return std::clamp<std::int64_t>(share, 1, blocks - 1);
}

}  // namespace

std::vector<std::int32_t> encode_lines(std::string_view text, const text::Tokenizer& tokenizer) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size() / 3);
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end == std::string_view::npos ? end : end + 1);
    const std::vector<std::int32_t> ids = tokenizer.encode(line);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    text.remove_prefix(line.size());
  }
  return tokens;
}

Datasets open_datasets(const DataConfig& config, const text::Tokenizer& tokenizer, std::int64_t block_size,
                       std::int64_t vocab_size, bool want_validation, const ReadProgress&) {
  const Opened train = open_file("train_file", config.train_file, tokenizer, block_size, vocab_size);
  Datasets datasets{train.blocks, nullptr, train.bytes_per_token, {}, {}};
  if (!want_validation) return datasets;
  if (!config.validation_file.empty()) {
    datasets.validation =
        open_file("validation_file", config.validation_file, tokenizer, block_size, vocab_size).blocks;
    return datasets;
  }
  const std::int64_t all = train.blocks->size(),
                     out = held_out(all, config.validation_split_percentage, config.train_file);
  if (out == 0) return datasets;
  datasets.train = slice(train.blocks, 0, all - out);
  datasets.validation = slice(train.blocks, all - out, out);
  return datasets;
}

void require_blocks(const Dataset& dataset, std::int64_t rows_per_step) {
  if (dataset.size() >= rows_per_step) return;
  throw InputError(concat("the training data have ", dataset.size(), " blocks of ", dataset.max_length(),
                          " tokens, but one step takes ", rows_per_step,
                          ": give more data, a smaller --block_size or a smaller batch"));
}

}  // namespace tessera::data
