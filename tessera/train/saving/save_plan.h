#pragma once
/// \file
/// train/saving/: checkpoints while the training goes on, and the best of them.
///
/// Who writes which tensors of a SHARDED checkpoint under which names, and what the ranks tell rank 0 about it.

#include <tessera/base/value.h>
#include <tessera/checkpoint/shard_file.h>
#include <tessera/comm/group.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/format/manifest/state_index.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/fully_shard.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::train {

/// A state of an optimizer as this rank holds it.
struct HeldState {
  std::string name;                             ///< "exp_avg.h.0.weight"
  at::Tensor held;                              ///< laid out as the parameter's part; it may alias the live state
  const ShardedParameter* parameter = nullptr;  ///< whose it is; nullptr: every rank has the whole of it
};
std::vector<HeldState> held_states(const Sharded& sharded, const optim::Optimizer& optimizer);

/// A tensor that is saved beside the trained parameters: a frozen parameter, a buffer.
struct UntrainedTensor {
  std::string name;
  at::ScalarType type;
  std::vector<std::int64_t> shape;
  std::function<at::Tensor()> whole;  ///< called once on every rank, in the order of the list; may be collective
  int holder = -1;                    ///< the rank whose values count; -1: all have the same
};

/// Wide elements before narrow ones, as the reference writer: then each tensor of a file begins at a multiple of its
/// elements' size, and readers can use the mapped file as it is.
void put_in_writing_order(std::vector<UntrainedTensor>& tensors);
/// How many of them, in that order, are to precede the trained parameters in a file.
std::size_t count_wider(const std::vector<UntrainedTensor>& tensors, const Sharded& sharded);

/// What is saved of one model.
struct SavedModel {
  const Sharded* sharded = nullptr;
  std::vector<HeldState> states = {};
  std::vector<UntrainedTensor> untrained = {};  ///< the same list on every rank, put_in_writing_order()
  std::string weights_stem = "model", states_stem = "optimizer";
};

/// A file of this rank: its tensors in the order in which their bytes come.
struct PartFile {
  std::string name;
  bool written = false;  ///< false: this rank has no such file
  std::vector<format::TensorSpec> tensors;
};

inline constexpr std::size_t no_state = static_cast<std::size_t>(-1);

/// This rank's part of a save.
struct SavePlan {
  std::vector<int> owners;            ///< of Sharded::named_parameters(), the same on every rank
  std::vector<int> untrained_owners;  ///< of SavedModel::untrained, the same on every rank
  std::size_t untrained_first = 0;    ///< so many of SavedModel::untrained precede the trained parameters in `weights`
  PartFile weights;                   ///< trained ones in the order in which Sharded::deliver_parameters() brings them
  checkpoint::ShardFile::Tensors trained;  ///< of `weights`
  PartFile states;                         ///< in the order of own_states
  std::vector<std::size_t> own_states;     ///< places in SavedModel::states, of what is written as it is held here
  /// FULL: places in SavedModel::states by parameter, each a list for Sharded::deliver_like(); no_state: it has none in
  /// this list. They precede own_states in `states`.
  std::vector<std::vector<std::size_t>> delivered_states;
  std::vector<format::StoredTensor> state_pieces;  ///< what of each state is in `states`: one piece each
};

/// Weights go whole to the rank that writes them: those that a rank has whole stay there, the others are dealt out so
/// that each writes about the same number of bytes. A state that is divided over the shard group is written as it is
/// held, by one of the copies (HSDP); one that several ranks hold whole is written by one of them. On one rank the
/// files have the plain names and hold whole tensors. FULL: so has rank 0, and the others write nothing.
SavePlan plan_save(const SavedModel& model, const comm::Group& group, bool with_optimizer, bool full = false);

/// What a rank has written of one model.
struct ModelReport {
  PartFile weights;
  std::vector<format::StoredTensor> states;
};
/// What a rank has written.
struct PartReport {
  std::vector<format::ManifestFile> files;
  std::vector<ModelReport> models;
  std::int64_t bytes = 0;
};
Value to_value(const PartReport& report);
PartReport parse_report(const Value& value);

/// Of models[place], from the reports of all ranks: model.safetensors.index.json, unless one file holds all weights,
/// and, where states are in pieces, optimizer.safetensors.index.json.
std::vector<format::ManifestFile> write_indexes(const std::string& folder, const SavedModel& model, std::size_t place,
                                                const std::vector<PartReport>& parts, bool with_states_index);

}  // namespace tessera::train
