#pragma once
/// \file
/// data/: from files to batches. Two kinds of rows: *blocks*, cut from a stream of tokens as run_clm.py cuts them
/// (.txt, .bin/.idx: T tokens are both input and labels, T-1 positions are scored; docs/configuration.md), and
/// *examples* for fine-tuning (.jsonl: examples.h), one per row and padded, or packed several to a row. This header:
/// the interface of datasets, samplers, batches.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/config/sections/words.h>
#include <tessera/data/image_input.h>
#include <tessera/nn/documents.h>
#include <tessera/text/tokenizer.h>

namespace tessera {
struct DataConfig;
}

namespace tessera::data {

/// The label of a position that is not scored, as in PyTorch's cross entropy.
inline constexpr std::int64_t not_scored = -100;

/// One row of a dataset. ids and labels have the same length; labels[t] is ids[t], or -100 where t is not scored.
/// document_starts: positions within the row, ascending, the first 0 (one document: {0}). types: token types of a pair
/// of texts, of the same length; empty: all 0.
struct Row {
  std::vector<std::int64_t> ids, labels, document_starts;  ///< tokens, what is scored, where documents begin
  std::vector<std::int64_t> types = {};                    ///< token types of a pair of texts; empty: all 0
  std::vector<std::string> images = {};                    ///< files of its images, in the order of their tokens
};

class Blend;      // blend.h
class RowStream;  // stream/row_stream.h
struct Batch;

/// Rows of tokens. Immutable: any number of threads may read.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;                    ///< rows
  virtual std::int64_t max_length() const = 0;              ///< tokens that a row may have at most
  virtual std::int64_t length(std::int64_t row) const = 0;  ///< tokens of a row; row in [0, size())
  virtual Row read(std::int64_t row) const = 0;  ///< row as in length(); throws InputError for bad ids of a file
  /// The same as a sample of the order of rows, counted over all epochs: what is drawn at random of a row (fill in the
  /// middle) may be another one each time it comes.
  virtual Row read_sample(std::int64_t row, std::int64_t /*sample*/) const { return read(row); }
  virtual std::int64_t tokens() const;  ///< in all rows; O(size())
  /// For a blend: in which order its rows are taken, by weights. size() is then the samples of an epoch, and rows are
  /// in [0, Blend::rows()). Else null.
  virtual const Blend* blend() const { return nullptr; }
  /// Rows are made while they are read, in the order of the samples (stream/row_stream.h): row i is sample i, there is
  /// no end, and what was read is gone.
  virtual bool streamed() const { return false; }
  /// The batch of such rows as the model takes it: what a row does not hold itself is added (pixels of `images`, files
  /// in the order of the rows), what is scored is chosen (Objective; `first`: number of its first sample in the run).
  virtual Batch complete(Batch batch, const std::vector<std::string>& images, std::int64_t first) const;
};

// Blocks: rows of block_size tokens, one document each, labels = ids. A rest shorter than a block is dropped (as
// run_clm.py does).

/// Blocks of tokens in memory. Every id must be in [0, vocab_size): else InputError naming `source`, position and
/// numbers.
std::shared_ptr<const Dataset> token_blocks(std::vector<std::int32_t> tokens, std::int64_t block_size,
                                            std::int64_t vocab_size, const std::string& source);
/// Blocks of a Megatron .bin/.idx pair, memory-mapped, as one stream over all documents. Ids are checked against
/// vocab_size at once when there are at most 16 Mi tokens, and in every read: InputError naming file, position and
/// numbers. `documents`: the file's documents do not see each other where they share a block.
std::shared_ptr<const Dataset> indexed_blocks(const std::string& path, std::int64_t block_size, std::int64_t vocab_size,
                                              bool documents = false);
/// Rows [first, first + count) of another dataset.
std::shared_ptr<const Dataset> slice(std::shared_ptr<const Dataset> all, std::int64_t first, std::int64_t count);

/// Told how many of a file's bytes have become tokens, from the calling thread, a few times a second.
using ReadProgress = std::function<void(const std::string& path, std::uint64_t done, std::uint64_t of)>;
/// Logs "FILE: 12.0 MiB of 40.0 MiB tokenized (30%)" every five seconds; short work stays silent.
ReadProgress logged_progress();

/// What a run trains on, and what it is evaluated on.
struct Datasets {
  std::shared_ptr<const Dataset> train, validation;  ///< validation may be empty (nullptr)
  std::shared_ptr<RowStream> stream;  ///< --streaming: what `train` reads, to be started first; else nullptr
  double train_bytes_per_token = 0;   ///< bytes per token of text input; 0 when unknown
  /// What a run remembers of the rows, before anything is drawn of them at random (contents.h); empty: not known.
  std::string train_contents = {}, validation_contents = {};
  std::vector<std::string> notes, warnings;  ///< for the log, to be said once (by rank 0)
};

/// Opens what train_file and validation_file name (corpus/data_list.h). Text, several files of it one after the other,
/// becomes one stream of tokens as run_clm.py makes it: each line, its '\n' included, is encoded by itself and the ids
/// are joined. (So white space never merges into one token across a line end; '\r' is left as it is. A tokenizer with a
/// prefix or suffix, such as Llama 3's <|begin_of_text|>, puts it around every line, as transformers does there.) The
/// stream, like that of a .bin/.idx, is cut into blocks. Records of other files are examples of at most max_seq_length
/// (0: block_size) tokens; `packing` puts several in a row. Tokens are made once for all processes and runs and lie in
/// data_cache_dir (corpus/cache/cache.h): no process holds them in memory. Up to 1 MiB of data is not kept there.
///
/// Files without weights are seen once an epoch each, with weights in their proportions (blend.h). Without
/// validation_file the last validation_split_percentage of the blocks or examples of each kind of file and part, at
/// least one of all, is held out (none when want_validation is false or the percentage is 0); run_clm.py holds out the
/// *first* lines of the text, before it cuts blocks: to compare with it, give both files. Files to validate on are all
/// read once, whatever their weights. A missing or empty file, an unknown extension, an id >= vocab_size, fewer tokens
/// than one block, or records that are no examples throw InputError with the numbers; no room for the tokens throws
/// Error.
///
/// With `pairs` every record is a pair of answers and a row holds both (pairs.h); files of text or tokens throw
/// InputError.
///
/// `images`: what a model that sees images wants. Records with images, and those that --version writes, become rows as
/// data/images/image_examples.h says; make_batch() then reads the pixels of a batch's images.
///
/// With config.streaming the training data are a stream of seed `stream_seed`, of which nothing can be held out; where
/// `progress` is given its warnings go to the log.
Datasets open_datasets(const DataConfig& config, const text::Tokenizer& tokenizer, std::int64_t block_size,
                       std::int64_t vocab_size, bool want_validation, const ReadProgress& progress = {},
                       const std::string& tokenizer_place = "", std::uint64_t stream_seed = 0, bool pairs = false,
                       const std::optional<ImageInput>& images = {});

/// The order of rows: index of the i-th sample of a run (i counts samples over all epochs). A pure function of
/// (strategy, seed, i) and of the size, or for group_by_length the lengths and rows_per_step, of the dataset: the same
/// on any world size. O(1) to seek; group_by_length first prepares the epoch it lands in, O(n log n), and keeps that
/// order. In a blend BlendOrder says the part of each sample; the strategy holds within parts. `sequential`: file
/// order, epochs repeating. `random`: every epoch another permutation, keyed by (seed, epoch) (sampler.cpp says which).
/// `group_by_length` (transformers' LengthGroupedSampler): the random permutation is cut into megabatches of up to 50
/// steps, each sorted by length, longest first; the longest row of all comes first, so that an epoch that does not fit
/// the memory fails at once. `group_by_modality_length` (LLaVA's get_modality_length_grouped_indices): a step has rows
/// with images only, or rows without, but for the last of an epoch; the rows of a step are dealt to its micro-batches
/// so that their lengths add up alike. Copies share their state; any number of threads may use one.
class Sampler {
 public:
  /// Throws InputError for group_by_length, which needs the data, and for dataset_size < 1.
  Sampler(SamplingStrategy strategy, std::int64_t dataset_size, std::uint64_t seed);
  /// All strategies. rows_per_step: rows per rank and micro-batch x accumulation x ranks; rows_per_batch: per rank and
  /// micro-batch (0: the same). Make it once a run: group_by_length reads all lengths.
  Sampler(SamplingStrategy strategy, const Dataset& dataset, std::uint64_t seed, std::int64_t rows_per_step,
          std::int64_t rows_per_batch = 0);
  std::int64_t operator()(std::int64_t i) const;  ///< i >= 0

 private:
  struct Groups;

  bool random_;
  std::int64_t size_;
  std::uint64_t seed_;
  std::shared_ptr<Groups> groups_;  // group_by_length, group_by_modality_length
  std::shared_ptr<const Blend> blend_;
};

/// What a batch that holds a part of every row's tokens must say of the whole (parallel/context/batch.h).
struct SequencePart {
  std::int64_t length = 0;    ///< tokens T of a whole row
  std::int64_t longest = 0;   ///< tokens of the longest document
  at::Tensor positions = {};  ///< where each token lies in its document: int64 [t], or, with documents, [rows * t]
  at::Tensor targets = {};    ///< int64 [rows, t]: the label of what follows each token, -100 where it is not scored
  std::shared_ptr<const std::vector<std::int64_t>> tokens = nullptr;  ///< the position of each token in its row: [t]
};

/// A micro-batch. ids and labels int64 [rows, T], separate memory. A position t >= 1 is scored (predicted from the
/// tokens before it) when labels[b, t] != -100. Not scored: padding, prompts, the first token of each document.
struct Batch {
  at::Tensor ids, labels;                   ///< int64 [rows, T] each
  nn::DocumentStarts document_starts = {};  ///< for packed rows; empty: one document per row
  std::int64_t scored_tokens = 0;           ///< number of scored positions
  std::int64_t tokens = 0;                  ///< tokens of the data, without padding
  std::int64_t labels_not_ignored =
      0;  ///< labels != -100, the first column included: what transformers' Trainer divides by
  std::vector<std::int64_t> lengths = {};  ///< tokens of each row, for models that see padding; empty: all T
  at::Tensor seen = {};                    ///< bool [rows, T], in place of lengths: tokens that are no padding
  at::Tensor types = {};                   ///< token types, int64 [rows, T]; undefined: all 0
  /// fp32 [images, 3, side, side] (image_input.h), row by row in the order of their tokens; undefined: there are none.
  at::Tensor images = {};
  /// What dropout belongs to (nn/dropout.h): the key of all batches of a step, and the number of the first row among
  /// their rows. Without a key each forward pass in training draws one.
  std::optional<std::uint64_t> random_key = {};
  std::int64_t first_row = 0;
  /// Null: rows are whole. Else ids, labels and types are [rows, t], document_starts and lengths are those of whole
  /// rows of part->length tokens, and the numbers count this part's tokens.
  std::shared_ptr<const SequencePart> part = nullptr;
  /// False: this rank has no row of the micro-batch and computes along with another one's, since parts of the model may
  /// be elsewhere. No label is scored, and routers do not count its tokens.
  bool counts = true;
};
/// Rows [first, first + rows) of the sample order as a batch. T is the length of the longest of them; shorter rows are
/// filled up at their end with id 0, label -100 (no scored token sees it: the model is causal).
Batch make_batch(const Dataset& dataset, const Sampler& sampler, std::int64_t first, std::int64_t rows);
/// The same of any samples of that order, at least one. `first`: the number of the first one for what is drawn at
/// random for each row (an objective's): two batches of a run should not have the same.
Batch make_batch(const Dataset& dataset, const Sampler& sampler, const std::vector<std::int64_t>& samples,
                 std::int64_t first);
/// The same rows filled up to so many tokens, at least as many as they have, with what make_batch() fills up with.
Batch filled_up(const Batch& batch, std::int64_t length);

}  // namespace tessera::data
