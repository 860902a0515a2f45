#pragma once
/// \file
/// train/saving/: the one writer of checkpoints and models. This header: who writes which tensors under which names,
/// SHARDED or FULL.

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

/// A state of an optimizer as this rank holds it.
struct HeldState {
  std::string name;                             ///< "exp_avg.h.0.weight"
  at::Tensor held;                              ///< laid out as the parameter's part; it may alias the live state
  const ShardedParameter* parameter = nullptr;  ///< whose it is; nullptr: every rank has the whole of it
  /// Kept in another form: `held` has its type and shape, but no values of its own. Null: `held` is the state.
  std::shared_ptr<const optim::EncodedState> encoded = nullptr;

  at::Tensor values() const { return encoded ? encoded->decode() : held; }  ///< laid out as `held`
  std::int64_t bytes() const;                                               ///< that it takes as it is kept
};
/// All states of an optimizer, which must outlive them.
std::vector<HeldState> held_states(const Sharded& sharded, const optim::Optimizer& optimizer);
/// The parameter whose state this is: "exp_avg.h.0.weight" is h.0.weight's. Throws Error for other names.
const ShardedParameter& parameter_of_state(const Sharded& sharded, const std::string& state_name);

/// A tensor that is saved beside the trained parameters: a frozen parameter, a buffer.
struct UntrainedTensor {
  std::string name;                   ///< in the file
  at::ScalarType type;                ///< as it is written
  std::vector<std::int64_t> shape;    ///< the whole tensor's
  std::function<at::Tensor()> whole;  ///< called once on every rank, in the order of the list; may be collective
  int holder = -1;                    ///< the rank whose values count; -1: all have the same
};

/// Frozen parameters of an engine, those that no earlier stage holds. `sharded` must live until they are saved.
std::vector<UntrainedTensor> frozen_tensors(const Sharded& sharded);

/// The values of an engine's parameter, saved under `name`. `sharded` must live until they are.
UntrainedTensor copy_of(const Sharded& sharded, ShardedParameter parameter, const std::string& name);

/// Wide elements before narrow ones, as the reference writer: then each tensor of a file begins at a multiple of its
/// elements' size, and readers can use the mapped file as it is.
void put_in_writing_order(std::vector<UntrainedTensor>& tensors);
/// How many of them, in that order, are to precede the trained parameters in a file.
std::size_t count_wider(const std::vector<UntrainedTensor>& tensors, const Sharded& sharded);

/// A file that one rank writes and reads again; "": none.
struct RankTensors {
  std::string file;                                         ///< its name, which no other rank uses
  std::vector<std::pair<std::string, at::Tensor>> tensors;  ///< copies, on the CPU
};

/// What is saved of one model.
struct SavedModel {
  const Sharded* sharded = nullptr;             ///< its trained parameters; outlives the save
  std::vector<HeldState> states = {};           ///< its optimizer's, as this rank holds them
  std::vector<UntrainedTensor> untrained = {};  ///< the same list on every rank of a stage, put_in_writing_order()
  std::string weights_stem = "model", states_stem = "optimizer";  ///< what its files' names begin with
  std::string weights_prefix = "";  ///< what the trained parameters' names begin with in the file
  bool one_file = false;            ///< its readers know one file of weights: rank 0 joins those of several stages
  /// Tensors that are this rank's alone, in a file of their own: asked for by each save of the optimizer's states.
  std::function<RankTensors(const std::string& states_stem)> of_rank = {};
};

/// A file of this rank: its tensors in the order in which their bytes come.
struct PartFile {
  std::string name;                            ///< inside the folder
  std::vector<format::TensorSpec> tensors;     ///< all of them, trained or not
  checkpoint::ShardFile::Tensors finite = {};  ///< those in which there may be no infinity and no NaN
};

/// In which form a save writes.
struct SaveForm {
  bool optimizer = true;  ///< false: weights only
  bool full = false;      ///< rank 0 (of every stage) writes everything, in whole tensors
  /// FULL: weights begin another file before a tensor that would make this one larger; a larger one has its own.
  std::int64_t max_file_bytes = std::numeric_limits<std::int64_t>::max();
  bool finite = true;  ///< infinities and NaN in trained parameters and in states are errors
};

inline constexpr std::size_t no_state = static_cast<std::size_t>(-1);  ///< a parameter without a state in a list

/// This rank's part of a save.
struct SavePlan {
  /// Who writes each of Sharded::named_parameters(), by ranks of the group that deals them out (stage_parts.h), the
  /// same on all of them; -1: an earlier stage does.
  std::vector<int> owners;
  std::vector<int> untrained_owners;  ///< the same for SavedModel::untrained
  int rank = 0;                       ///< this rank's number there
  bool whole = true;                  ///< this rank writes what it owns; false: another one, with the same, does
  std::size_t untrained_first = 0;    ///< so many of SavedModel::untrained precede the trained parameters in `weights`
  std::vector<PartFile> weights;      ///< trained ones in Sharded::gather_order(); none: this rank writes no weights
  std::vector<PartFile> states;       ///< none or one, in the order of own_states
  /// A state, or a box of one, as this rank writes it.
  struct OwnState {
    std::size_t place;                       ///< in SavedModel::states
    std::optional<layout::Region> box = {};  ///< the elements of it that are one tensor of the file; empty: all
  };
  std::vector<OwnState> own_states;  ///< what is written as it is held here
  /// FULL: places in SavedModel::states by parameter, each a list for gather_like_to_owners(); no_state: it has none in
  /// this list. They precede own_states in `states`.
  std::vector<std::vector<std::size_t>> delivered_states;
  std::vector<format::StoredTensor> state_pieces;  ///< what of each state is in `states`
};

/// Weights go whole to the rank that writes them: those that a rank has whole stay there, the others are dealt out so
/// that each writes about the same number of bytes. A state that is divided over the shard group is written as it is
/// held, by one of the copies (HSDP); one that several ranks hold whole is written by one of them. On one rank the
/// files have the plain names and hold whole tensors. FULL: so has rank 0, and the others write nothing. Where tensors
/// are cut over ranks of tp, `group` holds a group of the sharding engine for each of them: the first writes the
/// weights, each its states (tensor_parts.h). Where ranks hold stages, each stage's ranks write its tensors, FULL: the
/// first of them, into files that are numbered over all stages; whole states then lie in one file of each stage, which
/// an index lists. Collective over `group` in that case.
SavePlan plan_save(const SavedModel& model, const comm::Group& group, const SaveForm& form);

}  // namespace tessera::train
