#pragma once
/// \file
/// The prediction task. make_batch() returns rows unchanged; an Objective turns them into targets: the next token (no
/// change), hidden tokens (BERT's masked language modelling), or the class of a row.

#include <tessera/data/dataset.h>

#include <cstdint>
#include <vector>

namespace tessera::data {

/// Selects the scored positions of a batch and builds their targets.
struct Objective {
  enum class Kind {
    next_token,    ///< labels[t] is predicted from the tokens before t
    masked_token,  ///< labels[t] is predicted at t from the whole row; -100 where no token is hidden
    row_class      ///< labels[0] is the row's class; the others are -100
  };  ///< the scored positions
  Kind kind = Kind::next_token;  ///< how labels are built and interpreted

  // masked_token
  double probability = 0.15;    ///< share of tokens to hide; special tokens are never hidden
  std::int64_t mask_id = 0;     ///< replaces 8 of 10 hidden tokens; half of the others become random tokens
  std::int64_t vocab_size = 0;  ///< range of random tokens
  std::vector<bool> special;    ///< by id: [CLS], [SEP], ...
  std::uint64_t seed = 0;       ///< seed of the random choices

  /// Converts a batch, including its counts, for the model. `first`: number of its first sample in the run. Masking
  /// depends only on (seed, sample, position), so it is the same on any number of ranks and differs between epochs
  /// (Devlin et al. 2019 with the dynamic masking of Liu et al. 2019; transformers' DataCollatorForLanguageModeling).
  Batch operator()(Batch batch, std::int64_t first) const;
};

}  // namespace tessera::data
