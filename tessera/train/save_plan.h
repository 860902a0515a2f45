#pragma once
/// \file
/// Who writes which tensors of a SHARDED checkpoint under which names, and what the ranks tell rank 0 about it.

#include <tessera/base/value.h>
#include <tessera/comm/group.h>
#include <tessera/format/manifest.h>
#include <tessera/format/state_index.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/fully_shard.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::train {

/// A file of this rank: its tensors in the order in which their bytes come.
struct PartFile {
  std::string name;
  bool written = false;  ///< false: this rank has no such file
  std::vector<format::TensorSpec> tensors;
};

/// This rank's part of a save.
struct SavePlan {
  std::vector<int> owners;                ///< of Sharded::named_parameters(), the same on every rank
  PartFile weights;                       ///< in the order in which Sharded::deliver_parameters() brings them
  PartFile states;                        ///< in the order of own_states
  std::vector<std::size_t> own_states;    ///< places in Optimizer::state()
  std::vector<format::StoredTensor> state_pieces;  ///< what of each state is in `states`: one piece each
};

/// Weights go whole to the rank that writes them: those that a rank has whole stay there, the others are dealt out so that each writes
/// about the same number of bytes. A state that is divided over the shard group is
/// written as it is held, by one of the copies (HSDP); one that several ranks hold whole is written by one of them. On one rank the files
/// have the plain names and hold whole tensors.
SavePlan plan_save(const Sharded& sharded, const optim::Optimizer& optimizer, const comm::Group& group, bool with_optimizer);

/// What a rank has written.
struct PartReport {
  std::vector<format::ManifestFile> files;
  PartFile weights;
  std::vector<format::StoredTensor> states;
  std::int64_t bytes = 0;
};
Value to_value(const PartReport& report);
PartReport parse_report(const Value& value);

/// model.safetensors.index.json, unless one file holds all weights, and, of several ranks, optimizer.safetensors.index.json.
std::vector<format::ManifestFile> write_indexes(const std::string& folder, const std::vector<PartReport>& parts, int ranks,
                                                bool with_optimizer);

}  // namespace tessera::train
