#pragma once
/// \file
/// Records that are already tokenized, in the format of Hugging Face's trainers:
///
///   {"input_ids": [5, 7, 9], "labels": [-100, 7, 9], "attention_mask": [1, 1, 1]}
///
/// All tokens are scored, except where the label is -100 or completion_mask or assistant_masks (TRL's) is 0. Tokens at
/// the ends that attention_mask masks out are padding and are removed.

#include <tessera/base/value.h>

#include <cstdint>
#include <vector>

namespace tessera::data {

struct TokenRecord {
  std::vector<std::int32_t> ids;
  std::vector<bool> scored;  ///< one per id
};

/// Whether a record specifies which tokens are scored.
bool has_labels(const Value& record);

/// `completion_only`: apply completion_mask. Throws InputError with the position if a list's length differs from that
/// of input_ids, a label is neither its token nor -100, or a mask has a gap; LeftOut for an empty list of tokens.
TokenRecord read_token_record(const Value& record, bool completion_only);

}  // namespace tessera::data
