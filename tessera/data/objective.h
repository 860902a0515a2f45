#pragma once
/// \file
/// What a model is to predict of a batch. make_batch() gives rows as they are; an Objective makes of them what is
/// scored: the next token (nothing to do), tokens that are hidden (BERT's masked language modelling), or the class of a
/// row.

#include <tessera/data/dataset.h>

#include <cstdint>
#include <vector>

namespace tessera::data {

/// What of a batch is scored, and how it is made from the rows as they are.
struct Objective {
  enum class Kind {
    next_token,    ///< labels[t] is predicted from what stands before t
    masked_token,  ///< labels[t] is predicted at t from the whole row; -100 where nothing was hidden
    row_class      ///< labels[0] is the row's class; the others are -100
  };  ///< which positions are scored
  Kind kind = Kind::next_token;  ///< how labels are made and read

  // masked_token
  double probability = 0.15;    ///< share of the tokens that are hidden, special ones never
  std::int64_t mask_id = 0;     ///< what 8 of 10 hidden tokens become; of the others half become any token, half stay
  std::int64_t vocab_size = 0;  ///< any token: of these
  std::vector<bool> special;    ///< by id: [CLS], [SEP], ...
  std::uint64_t seed = 0;       ///< what is hidden depends on it

  /// The batch as the model takes it, its counts too. `first`: number of its first sample in the run; what is hidden
  /// depends on (seed, sample, position) only, so it is the same on any number of ranks and differs from epoch to epoch
  /// (Devlin et al. 2019 with the dynamic masking of Liu et al. 2019; transformers' DataCollatorForLanguageModeling).
  Batch operator()(Batch batch, std::int64_t first) const;
};

}  // namespace tessera::data
