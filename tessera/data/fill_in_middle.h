#pragma once
/// \file
/// Fill in the middle (Bavarian et al. 2022, "Efficient Training of Language Models to Fill in the Middle"): texts are
/// cut at two places, and the middle comes last, so that a model of the next token learns to write it from what stands
/// around it. As Megatron-LM has it (megatron/training/datasets/fim_dataset.py).

#include <tessera/data/dataset.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tessera::data {

/// What is done to the texts of a row, and the tokens that mark it.
struct FillInMiddle {
  double rate = 0.5;         ///< probability that a text is rearranged
  double spm_rate = 0.5;     ///< probability that the suffix comes first then
  double fragment_rate = 1;  ///< that of each fragment, in a text that is chosen by `rate` and has `split`
  std::optional<std::int64_t> split = {};  ///< the token between fragments
  std::string no_prefix = {};              ///< what begins with it stays; empty: nothing does
  std::int64_t prefix = 0, middle = 0, suffix = 0, pad = 0, end = 0;  ///< ids of tokens
  std::uint64_t seed = 0;
};

/// The settings fim_*. Throws InputError naming the flag for a token that the tokenizer does not have.
FillInMiddle fill_in_middle(const DataConfig& config, const text::Tokenizer& tokenizer, std::uint64_t seed);

/// What is wrong with --fim_data on a file of examples.
std::string no_blocks_to_fill(const std::string& path);

/// A row of the same length, in which each text of `row` - what lies between tokens `end`, and between the places
/// where documents begin - has become, with probability `rate`, `prefix` A `suffix` C `middle` B (PSM) or `prefix`
/// `suffix` C `middle` A B (SPM), of the characters A B C of the text, each of the three tokenized by itself. Special
/// tokens inside of it go. An empty text and its `end` go, too. What is too long is cut at the row's end; what is
/// missing there is filled with `pad`, which is not scored. What is drawn follows from (seed, sample) alone. All tokens
/// of the row must be scored, but for the first ones of documents.
Row filled_in_middle(const Row& row, const FillInMiddle& how, const text::Tokenizer& tokenizer, std::int64_t sample);

/// Rows of blocks, rearranged while they are read: read_sample() draws by the number of the sample, so that each epoch
/// sees a text cut elsewhere, and read() by that of the row.
std::shared_ptr<const Dataset> rows_to_fill(std::shared_ptr<const Dataset> rows, FillInMiddle how,
                                            std::shared_ptr<const text::Tokenizer> tokenizer);

}  // namespace tessera::data
