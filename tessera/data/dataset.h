#pragma once
/// \file
/// data/: token streams cut into blocks, samplers, batches. Blocks follow run_clm.py: T tokens are both input and labels,
/// T-1 positions are scored (DESIGN section 12).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/config/run_config.h>
#include <tessera/text/tokenizer.h>

namespace tessera::data {

/// A stream of tokens cut into blocks of block_size; a rest shorter than a block is dropped (as run_clm.py does).
class BlockDataset {
 public:
  virtual ~BlockDataset() = default;
  virtual std::int64_t block_size() const = 0;
  virtual std::int64_t size() const = 0;                                    ///< blocks
  virtual void read(std::int64_t block, std::int64_t* out) const = 0;       ///< block_size ids
};

struct Datasets {
  std::shared_ptr<const BlockDataset> train, validation;  ///< validation may be empty (nullptr)
  double train_bytes_per_token = 0;                       ///< of text input; 0 when unknown
};

/// Opens train_file/validation_file (.txt tokenised in memory; .bin/.idx mapped). Without validation_file the last
/// validation_split_percentage of the blocks is held out (none when want_validation is false).
/// An empty dataset, an id >= vocab_size, or fewer blocks than one step needs throw InputError with the numbers.
Datasets open_datasets(const DataConfig& config, const text::Tokenizer& tokenizer, std::int64_t block_size,
                       std::int64_t vocab_size, bool want_validation);

/// The order of blocks: index of the i-th sample of a run (i counts samples over all epochs). Pure function of
/// (strategy, seed, size, i): the same on any world size, O(1) to seek.
class Sampler {
 public:
  Sampler(std::string strategy, std::int64_t dataset_size, std::uint64_t seed);
  std::int64_t operator()(std::int64_t i) const;

 private:
  bool random_;
  std::int64_t size_;
  std::uint64_t seed_;
};

/// ids and labels int64 [rows, T].
struct Batch {
  at::Tensor ids, labels;
  std::int64_t scored_tokens = 0;
};
/// Rows [first, first + rows) of the sample order as a batch.
Batch make_batch(const BlockDataset& dataset, const Sampler& sampler, std::int64_t first, std::int64_t rows);

}  // namespace tessera::data
