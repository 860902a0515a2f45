#pragma once
/// \file
/// What the numbers of a run depend on besides its settings, as a checkpoint remembers it, and what has changed since.

#include <tessera/base/value.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::train {

struct RunBasis {
  std::int64_t processes = 1, rows_per_step = 1;
  /// Contents in words that are compared (data/contents.h, checkpoint/weights_glance.h); empty: not known, or there is
  /// none. base_model: that of adapters.
  std::string training_data, validation_data, base_model;
};

Value to_json(const RunBasis& basis);

/// "rows per step 16 of 4 processes (was 8 of 2)", "training data 1024 rows, contents 5f3a (was 1000 rows, contents
/// 07c2)": what is another than stored. What either does not know (an older program's, a stream) is passed over;
/// `stored` may be any JSON.
std::vector<std::string> changed_since(const Value& stored, const RunBasis& now);

}  // namespace tessera::train
