#pragma once
/// \file
/// What the ranks tell rank 0 about the files of a save that they have written, and the indexes that it writes of that.

#include <tessera/base/value.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/format/manifest/state_index.h>
#include <tessera/train/saving/save_plan.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::train {

/// What a rank has written of one model.
struct ModelReport {
  std::int64_t files = 0, bytes = 0;                ///< those of weights
  std::map<std::string, std::string> file_of = {};  ///< the file of each weight
  std::vector<format::StoredTensor> states = {};
};
ModelReport report_of(const SavePlan& plan);

/// What a rank has written.
struct PartReport {
  std::vector<format::ManifestFile> files = {};
  std::vector<ModelReport> models = {};
  std::int64_t bytes = 0;
};
Value to_value(const PartReport& report);
PartReport parse_report(const Value& value);

/// SavedModel::one_file: where several ranks have written weights of models[place], their files become one, in the
/// folder and in the list of `files`. Returns it; nothing: there was one already.
std::optional<format::ManifestFile> join_weights(const std::string& folder, const SavedModel& model, std::size_t place,
                                                 const std::vector<PartReport>& parts,
                                                 std::vector<format::ManifestFile>& files);

/// Writes the indexes of models[place] from the reports of all ranks: model.safetensors.index.json, unless one file
/// holds all weights, and, where states are in pieces, optimizer.safetensors.index.json.
std::vector<format::ManifestFile> write_indexes(const std::string& folder, const SavedModel& model, std::size_t place,
                                                const std::vector<PartReport>& parts, bool with_states_index);

}  // namespace tessera::train
