#pragma once
/// \file
/// data/: token streams cut into blocks, samplers, batches. Blocks follow run_clm.py: T tokens are both input and labels,
/// T-1 positions are scored (DESIGN section 12).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/config/run_config.h>
#include <tessera/text/tokenizer.h>

namespace tessera::data {

/// A stream of tokens cut into blocks of block_size; a rest shorter than a block is dropped (as run_clm.py does).
/// Immutable: any number of threads may read.
class BlockDataset {
 public:
  virtual ~BlockDataset() = default;
  virtual std::int64_t block_size() const = 0;
  virtual std::int64_t size() const = 0;                                    ///< blocks
  virtual void read(std::int64_t block, std::int64_t* out) const = 0;       ///< block_size ids; block in [0, size())
};

/// Blocks of tokens in memory. Every id must be in [0, vocab_size): else InputError naming `source`, position and numbers.
std::shared_ptr<const BlockDataset> token_blocks(std::vector<std::int32_t> tokens, std::int64_t block_size,
                                                 std::int64_t vocab_size, const std::string& source);
/// Blocks of a Megatron .bin/.idx pair, memory-mapped, as one stream over all documents. Ids are checked against vocab_size
/// at once when there are at most 16 Mi tokens, and in every read: InputError naming file, position and numbers.
std::shared_ptr<const BlockDataset> indexed_blocks(const std::string& path, std::int64_t block_size, std::int64_t vocab_size);
/// Blocks [first, first + count) of another dataset.
std::shared_ptr<const BlockDataset> slice_blocks(std::shared_ptr<const BlockDataset> all, std::int64_t first, std::int64_t count);

/// The ids of a text as run_clm.py makes them: each line, its '\n' included, is encoded by itself and the ids are joined.
/// (So white space never merges into one token across a line end; '\r' is left as it is.)
std::vector<std::int32_t> encode_lines(std::string_view text, const text::Tokenizer& tokenizer);

struct Datasets {
  std::shared_ptr<const BlockDataset> train, validation;  ///< validation may be empty (nullptr)
  double train_bytes_per_token = 0;                       ///< of text input; 0 when unknown
};

/// Opens train_file/validation_file (.txt tokenised in memory; .bin/.idx mapped). Without validation_file the last
/// validation_split_percentage of the blocks, at least one, is held out (none when want_validation is false or the
/// percentage is 0). run_clm.py holds out the *first* lines of the text, before it cuts blocks: to compare with it, give
/// both files. A missing or empty file, an unknown extension, an id >= vocab_size, or fewer tokens than one block throw
/// InputError with the numbers.
Datasets open_datasets(const DataConfig& config, const text::Tokenizer& tokenizer, std::int64_t block_size,
                       std::int64_t vocab_size, bool want_validation);

/// Throws InputError when the dataset has fewer blocks than one optimizer step takes (rows x accumulation x ranks).
void require_blocks(const BlockDataset& dataset, std::int64_t blocks_per_step);

/// The order of blocks: index of the i-th sample of a run (i counts samples over all epochs). Pure function of
/// (strategy, seed, size, i): the same on any world size, O(1) to seek. `sequential`: file order, epochs repeating;
/// `random`: every epoch another permutation, keyed by (seed, epoch) (sampler.cpp says which).
class Sampler {
 public:
  /// Throws InputError for a strategy other than "random" and "sequential" or for dataset_size < 1.
  Sampler(std::string strategy, std::int64_t dataset_size, std::uint64_t seed);
  std::int64_t operator()(std::int64_t i) const;  ///< i >= 0

 private:
  bool random_;
  std::int64_t size_;
  std::uint64_t seed_;
};

/// ids and labels int64 [rows, T]: equal, but separate memory.
struct Batch {
  at::Tensor ids, labels;
  std::int64_t scored_tokens = 0;  ///< rows x (T - 1)
};
/// Rows [first, first + rows) of the sample order as a batch.
Batch make_batch(const BlockDataset& dataset, const Sampler& sampler, std::int64_t first, std::int64_t rows);

}  // namespace tessera::data
