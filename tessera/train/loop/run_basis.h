#pragma once
/// \file
/// Facts besides the settings that determine the numbers of a run, as stored in a checkpoint, and the changes since
/// then.

#include <tessera/base/value.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::train {

struct RunBasis {
  std::int64_t processes = 1, rows_per_step = 1;
  /// Descriptions of contents for comparison (data/contents.h, checkpoint/weights_glance.h); empty: unknown or absent.
  /// base_model: the model that adapters belong to.
  std::string training_data, validation_data, base_model;
};

Value to_json(const RunBasis& basis);

/// Differences from `stored`: "rows per step 16 of 4 processes (was 8 of 2)", "training data 1024 rows, contents 5f3a
/// (was 1000 rows, contents 07c2)". Skips what either side does not know (an older program, a stream); `stored` may be
/// any JSON.
std::vector<std::string> changed_since(const Value& stored, const RunBasis& now);

}  // namespace tessera::train
