#pragma once
/// \file
/// Reports of the ranks to rank 0 about the files of a save that they have written, and the indexes that rank 0 writes
/// from them.

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

/// A rank's files of one model.
struct ModelReport {
  std::int64_t files = 0, bytes = 0;                ///< files and bytes of weights
  std::map<std::string, std::string> file_of = {};  ///< the file of each weight
  std::vector<format::StoredTensor> states = {};
};
ModelReport report_of(const SavePlan& plan);

/// All files that a rank has written.
struct PartReport {
  std::vector<format::ManifestFile> files = {};
  std::vector<ModelReport> models = {};
  std::int64_t bytes = 0;
};
Value to_value(const PartReport& report);
PartReport parse_report(const Value& value);

/// SavedModel::one_file: if several ranks have written weights of models[place], joins their files into one, in the
/// folder and in the list `files`. Returns the joined file; nullopt if there was only one file.
std::optional<format::ManifestFile> join_weights(const std::string& folder, const SavedModel& model, std::size_t place,
                                                 const std::vector<PartReport>& parts,
                                                 std::vector<format::ManifestFile>& files);

/// Writes the indexes of models[place] from the reports of all ranks: model.safetensors.index.json, unless one file
/// contains all weights, and, if states are in pieces, optimizer.safetensors.index.json.
std::vector<format::ManifestFile> write_indexes(const std::string& folder, const SavedModel& model, std::size_t place,
                                                const std::vector<PartReport>& parts, bool with_states_index);

}  // namespace tessera::train
