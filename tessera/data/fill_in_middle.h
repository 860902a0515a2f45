#pragma once
/// \file
/// Fill in the middle (Bavarian et al. 2022, "Efficient Training of Language Models to Fill in the Middle"): texts are
/// cut at two places and the middle is moved to the end, so that a next-token model learns to generate it from its
/// context. Follows Megatron-LM (megatron/training/datasets/fim_dataset.py).

#include <tessera/data/dataset.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tessera::data {

/// How the texts of a row are rearranged, and the marker tokens.
struct FillInMiddle {
  double rate = 0.5;         ///< probability that a text is rearranged
  double spm_rate = 0.5;     ///< probability that a rearranged text puts the suffix first (SPM)
  double fragment_rate = 1;  ///< probability for each fragment of a text that was chosen by `rate` and contains `split`
  std::optional<std::int64_t> split = {};  ///< the token between fragments
  std::string no_prefix = {};              ///< texts with this prefix are not rearranged; empty: no such prefix
  std::int64_t prefix = 0, middle = 0, suffix = 0, pad = 0, end = 0;  ///< ids of tokens
  std::uint64_t seed = 0;
};

/// Reads the settings fim_*. Throws InputError naming the flag for a token that the tokenizer does not have.
FillInMiddle fill_in_middle(const DataConfig& config, const text::Tokenizer& tokenizer, std::uint64_t seed);

/// The error text for --fim_data with a file of examples.
std::string no_blocks_to_fill(const std::string& path);

/// Returns a row of the same length in which each text of `row` (delimited by tokens `end` and by document starts) is,
/// with probability `rate`, rearranged into `prefix` A `suffix` C `middle` B (PSM) or `prefix` `suffix` C `middle` A B
/// (SPM), where A B C are the parts of its text, each tokenized separately. Special tokens inside a text are dropped,
/// and so are empty texts together with their `end`. A result that is too long is cut at the row's end; one that is too
/// short is filled with `pad`, which is not scored. Random choices depend on (seed, sample) alone. All tokens of the
/// row must be scored, except the first ones of documents.
Row filled_in_middle(const Row& row, const FillInMiddle& how, const text::Tokenizer& tokenizer, std::int64_t sample);

/// Blocks that are rearranged while they are read: read_sample() draws by sample number, so that each epoch cuts a text
/// at different places; read() draws by row number.
std::shared_ptr<const Dataset> rows_to_fill(std::shared_ptr<const Dataset> rows, FillInMiddle how,
                                            std::shared_ptr<const text::Tokenizer> tokenizer);

}  // namespace tessera::data
