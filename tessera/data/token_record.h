#pragma once
/// \file
/// Records that are tokens already, as Hugging Face's trainers take them:
///
///   {"input_ids": [5, 7, 9], "labels": [-100, 7, 9], "attention_mask": [1, 1, 1]}
///
/// All tokens are scored, but those whose label is -100 or whose completion_mask or assistant_masks (TRL's) is 0. What
/// attention_mask leaves out at the ends is padding and goes.

#include <tessera/base/value.h>

#include <cstdint>
#include <vector>

namespace tessera::data {

struct TokenRecord {
  std::vector<std::int32_t> ids;
  std::vector<bool> scored;  ///< one for each
};

/// Whether a record says what is scored.
bool has_labels(const Value& record);

/// `completion_only`: completion_mask counts. Throws InputError with the place where a list has another length than
/// input_ids, a label is another token than the one in its place, or a mask leaves a gap; LeftOut where there are no
/// tokens.
TokenRecord read_token_record(const Value& record, bool completion_only);

}  // namespace tessera::data
