#pragma once
/// \file
/// data/: from files to batches. There are two kinds of rows: *blocks*, cut from a stream of tokens as in run_clm.py
/// (.txt, .bin/.idx: T tokens are both input and labels, T-1 positions are scored; docs/configuration.md), and
/// *examples* for fine-tuning (.jsonl: examples.h), padded one per row or packed several to a row. This header: the
/// interface of datasets, samplers and batches.

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

/// One row of a dataset. ids and labels have the same length; labels[t] is ids[t], or -100 if t is not scored.
/// document_starts: positions within the row, ascending, starting with 0 (one document: {0}). types: token types of a
/// pair of texts, same length; empty: all 0.
struct Row {
  std::vector<std::int64_t> ids, labels, document_starts;  ///< token ids, labels, starts of documents
  std::vector<std::int64_t> types = {};                    ///< token types of a pair of texts; empty: all 0
  std::vector<std::string> images = {};                    ///< files of the row's images, in the order of their tokens
};

class Blend;      // blend.h
class RowStream;  // stream/row_stream.h
struct Batch;

/// Rows of tokens. Immutable: any number of threads may read.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;                    ///< rows
  virtual std::int64_t max_length() const = 0;              ///< maximum number of tokens in a row
  virtual std::int64_t length(std::int64_t row) const = 0;  ///< tokens of a row; row in [0, size())
  virtual Row read(std::int64_t row) const = 0;  ///< row as in length(); throws InputError for invalid ids in a file
  /// Reads a row as the given sample, counted over all epochs: random choices within a row (fill in the middle) may
  /// differ each time it is read.
  virtual Row read_sample(std::int64_t row, std::int64_t /*sample*/) const { return read(row); }
  virtual std::int64_t tokens() const;  ///< tokens in all rows; takes O(size())
  /// For a blend: the weighted order of its rows. size() is then the number of samples per epoch, and rows are in [0,
  /// Blend::rows()). Null for other datasets.
  virtual const Blend* blend() const { return nullptr; }
  /// Whether rows are produced while they are read, in sample order (stream/row_stream.h): row i is sample i, the
  /// dataset is endless, and rows cannot be read again.
  virtual bool streamed() const { return false; }
  /// Completes a batch of this dataset's rows for the model: adds data that the rows do not contain (pixels of
  /// `images`, files in the order of the rows) and selects the scored positions (Objective). `first`: number of the
  /// batch's first sample in the run.
  virtual Batch complete(Batch batch, const std::vector<std::string>& images, std::int64_t first) const;
};

// Blocks: rows of block_size tokens, one document each, labels = ids. A remainder shorter than a block is dropped (as
// in run_clm.py).

/// Blocks of tokens in memory. Throws InputError naming `source`, the token's position, its id and the vocabulary size
/// if an id is not in [0, vocab_size).
std::shared_ptr<const Dataset> token_blocks(std::vector<std::int32_t> tokens, std::int64_t block_size,
                                            std::int64_t vocab_size, const std::string& source);
/// Blocks of a Megatron .bin/.idx pair, memory-mapped, as one stream over all documents. Ids are checked against
/// vocab_size on opening if there are at most 16 Mi tokens, and in every read; InputError names file, position and
/// numbers. `documents`: the file's documents do not attend to each other within a block.
std::shared_ptr<const Dataset> indexed_blocks(const std::string& path, std::int64_t block_size, std::int64_t vocab_size,
                                              bool documents = false);
/// Rows [first, first + count) of another dataset.
std::shared_ptr<const Dataset> slice(std::shared_ptr<const Dataset> all, std::int64_t first, std::int64_t count);

/// Called with the number of a file's bytes tokenized so far, from the calling thread, a few times a second.
using ReadProgress = std::function<void(const std::string& path, std::uint64_t done, std::uint64_t of)>;
/// Logs "FILE: 12.0 MiB of 40.0 MiB tokenized (30%)" every five seconds; work that takes less logs nothing.
ReadProgress logged_progress();

/// The training and the validation data of a run.
struct Datasets {
  std::shared_ptr<const Dataset> train, validation;  ///< validation may be nullptr
  std::shared_ptr<RowStream> stream;  ///< --streaming: the source of `train`, to be started first; otherwise nullptr
  double train_bytes_per_token = 0;   ///< bytes per token of text input; 0: unknown
  /// Identifies the rows in checkpoints, before any random choices (contents.h); empty: unknown.
  std::string train_contents = {}, validation_contents = {};
  std::vector<std::string> notes, warnings;  ///< messages for rank 0 to log once
};

/// Opens the files named by train_file and validation_file (corpus/data_list.h). Text files, one after the other,
/// become one stream of tokens as in run_clm.py: each line, including its '\n', is encoded separately and the ids are
/// concatenated. (So white space never merges into one token across a line end, and '\r' is kept. A tokenizer with a
/// prefix or suffix, such as Llama 3's <|begin_of_text|>, adds it to every line, as transformers does there.) This
/// stream, like that of a .bin/.idx, is cut into blocks. Records of other files are examples of at most max_seq_length
/// (0: block_size) tokens; `packing` puts several in a row. Tokenization happens once for all processes and runs; the
/// tokens are stored in data_cache_dir (corpus/cache/cache.h), so no process holds them in memory. Data of up to 1 MiB
/// is not cached.
///
/// Without weights each file is read once per epoch; with weights, files are mixed in their proportions (blend.h).
/// Without validation_file the last validation_split_percentage of the blocks or examples of each kind of file and
/// part, at least one in total, is held out (none when want_validation is false or the percentage is 0). run_clm.py
/// holds out the *first* lines of the text, before it cuts blocks: to compare with it, specify both files. Each
/// validation file is read once, whatever its weight. Throws InputError with the numbers for a missing or empty file,
/// an unknown extension, an id >= vocab_size, fewer tokens than one block, and records that are not examples; throws
/// Error when the disk has no space for the tokens.
///
/// With `pairs` every record is a pair of answers and a row contains both (pairs.h); text and token files throw
/// InputError.
///
/// `images`: the input format of a vision model. Records with images, and conversations formatted by --version, become
/// rows as described in data/images/image_examples.h; make_batch() then reads the pixels of a batch's images.
///
/// With config.streaming the training data are a stream with seed `stream_seed`, from which nothing can be held out; if
/// `progress` is given, its warnings are logged.
Datasets open_datasets(const DataConfig& config, const text::Tokenizer& tokenizer, std::int64_t block_size,
                       std::int64_t vocab_size, bool want_validation, const ReadProgress& progress = {},
                       const std::string& tokenizer_place = "", std::uint64_t stream_seed = 0, bool pairs = false,
                       const std::optional<ImageInput>& images = {});

/// The order of rows: index of the i-th sample of a run (i counts samples over all epochs). A pure function of
/// (strategy, seed, i) and of the dataset's size or, for group_by_length, its lengths and rows_per_step; so it is the
/// same for any world size. Seeking is O(1), except that group_by_length first sorts the epoch that contains i, O(n log
/// n), and keeps that order. In a blend BlendOrder selects the part of each sample, and the strategy applies within
/// parts. `sequential`: file order, every epoch. `random`: a different permutation every epoch, keyed by (seed, epoch)
/// (see sampler.cpp). `group_by_length` (transformers' LengthGroupedSampler): the random permutation is cut into
/// megabatches of up to 50 steps, each sorted by length, longest first; the longest row of all comes first, so that an
/// epoch that does not fit in memory fails immediately. `group_by_modality_length` (LLaVA's
/// get_modality_length_grouped_indices): every step except an epoch's last one has either only rows with images or only
/// rows without; the rows of a step are distributed to its micro-batches so that their total lengths are similar.
/// Copies share their state; any number of threads may use one.
class Sampler {
 public:
  /// Throws InputError for the strategies that group by length, which need the data, and for dataset_size < 1.
  Sampler(SamplingStrategy strategy, std::int64_t dataset_size, std::uint64_t seed);
  /// Supports all strategies. rows_per_step: rows per rank and micro-batch x accumulation x ranks; rows_per_batch: per
  /// rank and micro-batch (0: the same). Construct it only once per run, because group_by_length reads all lengths.
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

/// Information about whole rows for a batch that contains only a part of every row's tokens (parallel/context/batch.h).
struct SequencePart {
  std::int64_t length = 0;    ///< tokens T of a whole row
  std::int64_t longest = 0;   ///< tokens of the longest document
  at::Tensor positions = {};  ///< position of each token in its document: int64 [t] or, with documents, [rows * t]
  at::Tensor targets = {};    ///< int64 [rows, t]: the label of each token's successor, -100 where it is not scored
  std::shared_ptr<const std::vector<std::int64_t>> tokens = nullptr;  ///< position of each token in its row: [t]
};

/// A micro-batch. ids and labels are int64 [rows, T] in separate memory. A position t >= 1 is scored (predicted from
/// the tokens before it) when labels[b, t] != -100. Not scored: padding, prompts, the first token of each document.
struct Batch {
  at::Tensor ids, labels;                   ///< int64 [rows, T] each
  nn::DocumentStarts document_starts = {};  ///< for packed rows; empty: one document per row
  std::int64_t scored_tokens = 0;           ///< number of scored positions
  std::int64_t tokens = 0;                  ///< tokens of the data, without padding
  std::int64_t labels_not_ignored =
      0;  ///< labels != -100, including the first column: the divisor of transformers' Trainer
  std::vector<std::int64_t> lengths = {};  ///< tokens of each row, for models that attend to padding; empty: all T
  at::Tensor seen = {};                    ///< bool [rows, T], replaces lengths: true for tokens that are not padding
  at::Tensor types = {};                   ///< token types, int64 [rows, T]; undefined: all 0
  /// fp32 [images, 3, side, side] (image_input.h), row by row in the order of their tokens; undefined: no images.
  at::Tensor images = {};
  /// Identifies the dropout masks (nn/dropout.h): a key for all batches of a step, and the number of this batch's first
  /// row within the step. Without a key, each forward pass in training draws a new one.
  std::optional<std::uint64_t> random_key = {};
  std::int64_t first_row = 0;
  /// Null: rows are complete. Otherwise ids, labels and types are [rows, t], document_starts and lengths refer to whole
  /// rows of part->length tokens, and the counts are of this part's tokens.
  std::shared_ptr<const SequencePart> part = nullptr;
  /// False: this rank has no rows in the micro-batch and computes only to take part in other ranks' collectives,
  /// because parts of the model may be on other ranks. No label is scored, and routers ignore its tokens.
  bool counts = true;
};
/// Makes a batch of rows [first, first + rows) of the sample order. T is the length of the longest row; shorter rows
/// are padded at the end with id 0 and label -100 (no scored token attends to padding: the model is causal).
Batch make_batch(const Dataset& dataset, const Sampler& sampler, std::int64_t first, std::int64_t rows);
/// The same for any samples of that order, at least one. `first`: number of the first sample, which is the key of an
/// objective's random choices per row; two batches of a run should not share it.
Batch make_batch(const Dataset& dataset, const Sampler& sampler, const std::vector<std::int64_t>& samples,
                 std::int64_t first);
/// Pads the rows to `length` tokens, at least their current length, as make_batch() does.
Batch filled_up(const Batch& batch, std::int64_t length);

}  // namespace tessera::data
