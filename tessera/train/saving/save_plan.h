#pragma once
/// \file
/// train/saving/: the single writer of checkpoints and models. This header plans which rank writes which tensors under
/// which names, SHARDED or FULL.

#include <tessera/checkpoint/shard_file.h>
#include <tessera/comm/group.h>
#include <tessera/format/manifest/state_index.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/fully_shard.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::train {

/// An optimizer state as this rank holds it.
struct HeldState {
  std::string name;                             ///< "exp_avg.h.0.weight"
  at::Tensor held;                              ///< laid out like the parameter's part; may alias the live state
  const ShardedParameter* parameter = nullptr;  ///< its parameter; nullptr: every rank holds the whole state
  /// Set if the state is stored in a different form; `held` then has its type and shape, but no values. Null: `held` is
  /// the state.
  std::shared_ptr<const optim::EncodedState> encoded = nullptr;

  at::Tensor values() const { return encoded ? encoded->decode() : held; }  ///< laid out as `held`
  std::int64_t bytes() const;                                               ///< bytes in its stored form
};
/// All states of an optimizer; the optimizer must outlive them.
std::vector<HeldState> held_states(const Sharded& sharded, const optim::Optimizer& optimizer);
/// The parameter of a state: "exp_avg.h.0.weight" belongs to h.0.weight. Throws Error for other names.
const ShardedParameter& parameter_of_state(const Sharded& sharded, const std::string& state_name);

/// A tensor that is saved in addition to the trained parameters: a frozen parameter or a buffer.
struct UntrainedTensor {
  std::string name;                   ///< in the file
  at::ScalarType type;                ///< in the file
  std::vector<std::int64_t> shape;    ///< shape of the whole tensor
  std::function<at::Tensor()> whole;  ///< called once on every rank, in the order of the list; may be collective
  int holder = -1;                    ///< the rank whose values are saved; -1: all ranks have the same values
};

/// Frozen parameters of an engine, except those held by an earlier stage. `sharded` must live until they are saved.
std::vector<UntrainedTensor> frozen_tensors(const Sharded& sharded);

/// The values of an engine's parameter, saved under `name`. `sharded` must live until they are saved.
UntrainedTensor copy_of(const Sharded& sharded, ShardedParameter parameter, const std::string& name);

/// Sorts wide elements before narrow ones, like the reference writer, so that each tensor of a file starts at a
/// multiple of its element size, and readers can use the mapped file directly.
void put_in_writing_order(std::vector<UntrainedTensor>& tensors);
/// Number of tensors, in that order, that precede the trained parameters in a file.
std::size_t count_wider(const std::vector<UntrainedTensor>& tensors, const Sharded& sharded);

/// A file that one rank writes and reads back; no file if `file` is "".
struct RankTensors {
  std::string file;                                         ///< its name, unique to this rank
  std::vector<std::pair<std::string, at::Tensor>> tensors;  ///< copies on the CPU
};

/// The parts of one model to save.
struct SavedModel {
  const Sharded* sharded = nullptr;             ///< its trained parameters; outlives the save
  std::vector<HeldState> states = {};           ///< the optimizer states that this rank holds
  std::vector<UntrainedTensor> untrained = {};  ///< the same list on every rank of a stage, put_in_writing_order()
  std::string weights_stem = "model", states_stem = "optimizer";  ///< prefixes of its file names
  std::string weights_prefix = "";  ///< prefix of the trained parameters' names in the file
  bool one_file = false;            ///< its readers require a single file of weights, so rank 0 joins the stages' files
  /// Tensors of this rank alone, in a separate file; called by each save of the optimizer's states.
  std::function<RankTensors(const std::string& states_stem)> of_rank = {};
};

/// A file of this rank, with its tensors in the order of their bytes.
struct PartFile {
  std::string name;                            ///< inside the folder
  std::vector<format::TensorSpec> tensors;     ///< all tensors of the file, trained or not
  checkpoint::ShardFile::Tensors finite = {};  ///< tensors in which infinities and NaN are errors
};

/// How a checkpoint is divided into files, and what it contains.
struct SaveForm {
  bool optimizer = true;  ///< false: weights only
  bool full = false;      ///< rank 0 (of every stage) writes everything as whole tensors
  /// FULL: starts another file of weights before a tensor that would exceed this size; a larger tensor gets its own
  /// file.
  std::int64_t max_file_bytes = std::numeric_limits<std::int64_t>::max();
  bool finite = true;  ///< whether infinities and NaN in trained parameters and in states are errors
};

/// marks a parameter that has no state in a list
inline constexpr std::size_t no_state = static_cast<std::size_t>(-1);

/// This rank's part of a save.
struct SavePlan {
  /// Writer of each of Sharded::named_parameters(), by ranks of the group that distributes them (stage_parts.h), the
  /// same on all of them; -1: an earlier stage writes it.
  std::vector<int> owners;
  std::vector<int> untrained_owners;  ///< same for SavedModel::untrained
  int rank = 0;                       ///< this rank's index in that group
  bool whole = true;                  ///< this rank writes what it owns; false: another rank with the same data does
  std::size_t untrained_first = 0;    ///< number of SavedModel::untrained before the trained parameters in `weights`
  std::vector<PartFile> weights;      ///< trained ones in Sharded::gather_order(); empty: this rank writes no weights
  std::vector<PartFile> states;       ///< at most one, in the order of own_states
  /// A state, or a box of one, that this rank writes.
  struct OwnState {
    std::size_t place;                       ///< index in SavedModel::states
    std::optional<layout::Region> box = {};  ///< elements that form one tensor of the file; empty: all
  };
  std::vector<OwnState> own_states;  ///< states written as they are held here
  /// FULL: indices in SavedModel::states by parameter, each a list for gather_like_to_owners(); no_state: the parameter
  /// has none in this list. They precede own_states in `states`.
  std::vector<std::vector<std::size_t>> delivered_states;
  std::vector<format::StoredTensor> state_pieces;  ///< the part of each state that `states` contains
};

/// Weights are sent whole to the rank that writes them: a tensor that a rank already has whole stays there, and the
/// others are distributed so that each rank writes about the same number of bytes. A state that is divided over the
/// shard group is written as it is held, by one of the replicas (HSDP); one that several ranks hold whole is written by
/// one of them. On a single rank the files have the plain names and contain whole tensors. The same holds for rank 0
/// with FULL, where the others write nothing. If tensors are cut over ranks of tp, `group` contains a group of the
/// sharding engine for each of them: the first writes the weights, each writes its states (tensor_parts.h). If ranks
/// hold stages, each stage's ranks write its tensors (FULL: the stage's first rank), into files that are numbered over
/// all stages; whole states are then in one file per stage, listed in an index. Collective over `group` in that case.
SavePlan plan_save(const SavedModel& model, const comm::Group& group, const SaveForm& form);

}  // namespace tessera::train
