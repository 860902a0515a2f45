#include <tessera/format/deepspeed/deepspeed_checkpoint.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/deepspeed/deepspeed_ranks.h>
#include <tessera/format/deepspeed/deepspeed_rows.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace tessera::format {
namespace deepspeed {
namespace {

/// All files of a checkpoint, opened.
struct Checkpoint {
  std::string path;                                ///< the folder TAG
  std::vector<Rank> ranks;                         ///< at least one
  std::vector<std::shared_ptr<StateFile>> models;  ///< stages 1 and 2: one file; stage 3: one per rank

  std::int64_t stage() const { return ranks.front().stage; }
  /// Values common to all files are read from the first one, as in zero_to_fp32 (zero_model_states[0]).
  StateFile& model() const { return *models.front(); }
  const PickleNode* find(std::string_view key) const { return model().find(model().root(), key); }
  const PickleNode& member(std::string_view key) const { return model().member(model().root(), key); }
};

// one element per group, as in the optimizer's param_groups
using Groups = std::vector<std::vector<Parameter>>;
using Ties = std::map<std::string_view, std::string_view>;    // name -> the parameter whose memory it shares
using Nodes = std::map<std::string_view, const PickleNode*>;  // by name

// ---- files ----

std::shared_ptr<StateFile> open_model(const Checkpoint& checkpoint, const Folder& folder, const OpenState& open,
                                      std::int64_t rank, const std::string& expected) {
  const auto found = folder.model.find(rank);
  if (found == folder.model.end())
    throw InputError(concat(folder.path, ": '", expected, "' is missing, which every checkpoint of ZeRO stage ",
                            checkpoint.stage(), " with ", checkpoint.ranks.size(), " ranks contains"));
  return open(path_join(folder.path, found->second));
}

/// zero_to_fp32's get_model_state_file; for stage 3 every rank's file, since each has its parts of the frozen
/// parameters.
std::vector<std::shared_ptr<StateFile>> open_models(const Checkpoint& checkpoint, const Folder& folder,
                                                    const OpenState& open) {
  if (checkpoint.stage() < 3) return {open_model(checkpoint, folder, open, -1, "mp_rank_00_model_states.pt")};
  std::vector<std::shared_ptr<StateFile>> models;
  for (std::size_t r = 0; r < checkpoint.ranks.size(); ++r) {
    const std::string expected = concat("zero_pp_rank_", r, "_mp_rank_00_model_states.pt");
    models.push_back(open_model(checkpoint, folder, open, static_cast<std::int64_t>(r), expected));
  }
  return models;
}

/// Based on what the engine records about itself (_common_checkpoint_state, _checkpoint_parallel_metadata; for experts,
/// zero_to_fp32's _raise_if_autoep_zero3_partitioned_state).
void refuse_other_parallelism(const Checkpoint& checkpoint) {
  const StateFile& model = checkpoint.model();
  for (const char* key : {"mp_world_size", "pp_world_size"}) {
    const PickleNode* size = checkpoint.find(key);
    if (size != nullptr && size->kind == PickleKind::integer && size->integer > 1)
      model.fail("'", key, "' is ", size->integer,
                 ": joining the parts of tensor or pipeline parallelism is not supported");
  }
  for (const char* key : {"ds_autoep_layers", "autoep_layers"})
    if (const PickleNode* layers = checkpoint.find(key); layers != nullptr && !layers->items.empty())
      model.fail("contains experts ('", key, "'), which are not supported");
}

Checkpoint open_checkpoint(const Folder& folder, const OpenState& open) {
  Checkpoint out;
  out.path = folder.path;
  out.ranks = read_ranks(folder, open);
  out.models = open_models(out, folder, open);
  refuse_other_parallelism(out);
  return out;
}

// ---- results so far ----

/// Tensors in the order in which they were added; names are unique.
class Weights {
 public:
  /// `model` is used in messages.
  explicit Weights(const StateFile& model) : model_(model) {}

  bool contains(std::string_view name) const { return indices_.contains(name); }

  void add(const std::string& name, DType dtype, std::vector<std::int64_t> shape, std::uint64_t elements,
           std::function<std::span<const std::byte>()> bytes) {
    if (!indices_.emplace(name, out_.tensors.size()).second) model_.fail("tensor '", name, "' appears twice");
    out_.parameters += elements;
    out_.bytes += elements * dtype_size(dtype);
    out_.tensors.push_back({name, dtype, std::move(shape), std::move(bytes)});
  }

  void add_pieces(const Parameter& parameter, DType dtype, std::vector<Piece> pieces) {
    add(parameter.name, dtype, parameter.shape, parameter.elements,
        [pieces = std::move(pieces), buffer = buffer_] { return joined(pieces, buffer); });
  }

  /// Adds a tensor stored contiguously in a file. `widen`: convert fp16 and bf16 to fp32.
  void add_stored(const std::shared_ptr<StateFile>& file, const TorchTensor& tensor, bool widen) {
    if (!tensor.contiguous()) file->fail("tensor '", tensor.name, "' is not contiguous");
    const bool wider = widen && (tensor.dtype == DType::f16 || tensor.dtype == DType::bf16);
    add(tensor.name, wider ? DType::f32 : tensor.dtype, tensor.shape, elements_of(*file, tensor.name, tensor.shape),
        [file, storage = tensor.storage, begin = tensor.begin, end = tensor.end, dtype = tensor.dtype, wider,
         buffer = buffer_] {
          const auto bytes = file->bytes(storage, begin, end);
          return wider ? widened(bytes, dtype, buffer) : bytes;
        });
  }

  /// Adds `name`, which is tied to `source`. `keep`: adds it as a separate tensor.
  void add_tied(std::string_view name, std::string_view source, bool keep) {
    const auto found = indices_.find(source);
    if (found == indices_.end()) return leave_aside(name);  // belongs to a frozen parameter, which is not saved
    if (!keep) {
      out_.tied.emplace_back(name, source);
      return;
    }
    const TensorSource same = out_.tensors[found->second];
    add(std::string(name), same.dtype, same.shape, elements_of(model_, same.name, same.shape), same.bytes);
  }

  void leave_aside(std::string_view name) { out_.left_aside.emplace_back(name); }

  TorchWeights take() { return std::move(out_); }

 private:
  const StateFile& model_;
  Buffer buffer_ = std::make_shared<std::vector<std::byte>>();
  std::map<std::string, std::size_t, std::less<>> indices_;  ///< indices in out_.tensors
  TorchWeights out_;
};

// ---- buffers, and parameters that stage 1 does not list ----

/// Adds the entries of 'module' that 'buffer_names' lists; floating-point ones as fp32 (parse_model_states).
void add_buffers(const Checkpoint& checkpoint, Weights& weights) {
  const StateFile& model = checkpoint.model();
  std::set<std::string_view> wanted;
  for (const std::uint32_t item : model.list(checkpoint.member("buffer_names"), "buffer_names"))
    wanted.insert(model.name(model.node(item), "buffer_names"));
  for (const auto& [name, value] : model.items(checkpoint.member("module"), "module"))
    if (wanted.contains(name))
      weights.add_stored(checkpoint.models.front(), checkpoint.model().tensor(*value, std::string(name)), true);
}

/// Adds the remaining tensors of the module. Stage 1 does not record which parameters are frozen: engine.py's
/// save_frozen_param is zero_optimization_partition_gradients(), i.e. stages 2 and 3. zero_to_fp32 omits them; here
/// they are taken from the module.
void add_the_rest(const Checkpoint& checkpoint, const Ties& ties, Weights& weights) {
  StateFile& model = checkpoint.model();
  for (const auto& [name, value] : model.items(checkpoint.member("module"), "module")) {
    if (weights.contains(name) || ties.contains(name)) continue;
    if (model.is_tensor(*value))
      weights.add_stored(checkpoint.models.front(), model.tensor(*value, std::string(name)), false);
    else
      weights.leave_aside(name);
  }
}

// ---- parameters ----

/// Number of elements in each rank's part of a parameter (stage 3); the last parts are padded
/// (zero3_partitioned_param_info).
std::uint64_t part_of(std::uint64_t elements, std::uint64_t ranks) {
  return elements / ranks + (elements % ranks != 0);
}

/// The 'frozen_param_fragments' of each file.
std::vector<Nodes> frozen_fragments(const Checkpoint& checkpoint) {
  std::vector<Nodes> out;
  for (const auto& file : checkpoint.models) {
    Nodes& of_file = out.emplace_back();
    constexpr const char* key = "frozen_param_fragments";
    for (const auto& [name, fragment] : file->items(file->member(file->root(), key), key)) of_file[name] = fragment;
  }
  return out;
}

/// A file's part of a frozen parameter, which must have `expected` elements.
TorchTensor frozen_part(StateFile& file, const Nodes& fragments, const Parameter& parameter, std::uint64_t expected) {
  const auto fragment = fragments.find(parameter.name);
  if (fragment == fragments.end()) file.fail("frozen parameter '", parameter.name, "' is missing from it");
  TorchTensor part = file.tensor(*fragment->second, parameter.name);
  const std::uint64_t found = elements_of(file, parameter.name, part.shape);
  if (found != expected || !part.contiguous())
    file.fail("frozen parameter '", parameter.name, "' of shape ", shape_text(parameter.shape), ": ",
              part.contiguous() ? "" : "not contiguous, ", found, " elements are stored, ", expected, " expected");
  return part;
}

void add_frozen_parameter(const Checkpoint& checkpoint, const std::vector<Nodes>& fragments, const Parameter& parameter,
                          Weights& weights) {
  std::uint64_t left = parameter.elements;
  const std::uint64_t each = checkpoint.stage() < 3 ? left : part_of(left, checkpoint.ranks.size());
  std::vector<Piece> pieces;
  std::optional<DType> dtype;
  for (std::size_t r = 0; r < checkpoint.models.size(); ++r) {
    const auto& file = checkpoint.models[r];
    const TorchTensor part = frozen_part(*file, fragments[r], parameter, each);
    if (part.dtype != dtype.value_or(part.dtype))
      file->fail("frozen parameter '", parameter.name, "' is ", dtype_name(part.dtype), " here and ",
                 dtype_name(*dtype), " before");
    dtype = part.dtype;
    const std::uint64_t taken = std::min(left, each);
    if (taken > 0) pieces.push_back({file, part.storage, part.begin, part.begin + taken * dtype_size(part.dtype)});
    left -= taken;
  }
  weights.add_pieces(parameter, *dtype, std::move(pieces));
}

/// Adds frozen parameters. Stages 1 and 2 store them whole in the single file (_zero2_merge_frozen_params); stage 3
/// stores them in parts, one in each rank's file, like trained parameters (_zero3_merge_frozen_params).
void add_frozen(const Checkpoint& checkpoint, const std::vector<Parameter>& frozen, Weights& weights) {
  if (frozen.empty()) return;
  const std::vector<Nodes> fragments = frozen_fragments(checkpoint);
  for (const Parameter& parameter : frozen) add_frozen_parameter(checkpoint, fragments, parameter, weights);
}

/// All ranks' parts of a group, concatenated (_zero2_merge_trainable_params, full_single_fp32_vector).
Row flat_row(const Checkpoint& checkpoint, std::size_t group) {
  Row row;
  for (const Rank& rank : checkpoint.ranks) row.add(rank.file, rank.groups[group]);
  return row;
}

/// Padding elements after a parameter, where DeepSpeed aligns parameters (group_alignment_paddings).
std::uint64_t gap_behind(const Rank& first, std::size_t group, std::size_t parameter) {
  return first.alignments.empty() ? 0 : static_cast<std::uint64_t>(first.alignments[group][parameter]);
}

/// Whether `taken` elements match a group of `held` elements: DeepSpeed pads groups to a multiple of 2 W and stores
/// them with or without the padding, so zero_to_fp32 compares both rounded up (zero2_align).
bool fills(std::uint64_t taken, std::uint64_t held, std::uint64_t ranks) {
  const std::uint64_t unit = 2 * ranks;
  const auto aligned = [unit](std::uint64_t n) { return (n + unit - 1) / unit * unit; };
  return aligned(taken) == aligned(held);
}

void add_flat_group(const Checkpoint& checkpoint, std::size_t group, const std::vector<Parameter>& parameters,
                    Weights& weights) {
  const StateFile& model = checkpoint.model();
  const Rank& first = checkpoint.ranks.front();
  const Row row = flat_row(checkpoint, group);
  if (!first.alignments.empty() && first.alignments[group].size() != parameters.size())
    first.file->fail("'param_alignment_paddings' lists ", first.alignments[group].size(), " parameters in group ",
                     group, "; expected ", parameters.size());
  std::uint64_t at = 0;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = parameters[p];
    if (parameter.elements > row.elements() - at)
      model.fail("parameter '", parameter.name, "' of shape ", shape_text(parameter.shape), " begins at element ", at,
                 " of group ", group, ", but the ranks contain only ", row.elements());
    std::vector<Piece> pieces;
    row.cut(at, at + parameter.elements, pieces);
    at += parameter.elements;
    weights.add_pieces(parameter, first.groups[group].dtype, std::move(pieces));
    const std::uint64_t gap = gap_behind(first, group, p);
    if (gap > row.elements() - at)
      first.file->fail("'param_alignment_paddings' leaves ", gap, " elements after '", parameter.name,
                       "', but the ranks contain ", row.elements() - at);
    at += gap;
  }
  if (!fills(at, row.elements(), checkpoint.ranks.size()))
    model.fail("the parameters of group ", group, " take ", at, " elements, but the ranks contain ", row.elements(),
               " (both are padded to a multiple of ", 2 * checkpoint.ranks.size(), ")");
}

/// Adds the trained parameters of stages 1 and 2 (_zero2_merge_trainable_params).
void add_flat(const Checkpoint& checkpoint, const Groups& groups, Weights& weights) {
  const Rank& first = checkpoint.ranks.front();
  if (groups.size() != first.groups.size())
    checkpoint.model().fail("describes ", groups.size(), " groups of parameters, but ", first.file->path, " contains ",
                            first.groups.size());
  if (!first.alignments.empty() && first.alignments.size() != groups.size())
    first.file->fail("'param_alignment_paddings' lists ", first.alignments.size(), " groups; expected ", groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) add_flat_group(checkpoint, g, groups[g], weights);
}

/// Each rank's groups, concatenated: a part may span two of them (GatheredTensor.contiguous).
std::vector<Row> divided_rows(const Checkpoint& checkpoint) {
  std::vector<Row> rows;
  for (const Rank& rank : checkpoint.ranks) {
    Row& row = rows.emplace_back();
    for (const TorchTensor& group : rank.groups) row.add(rank.file, group);
    if (row.elements() != rows.front().elements())
      rank.file->fail("contains ", row.elements(), " elements of parameters, but ", checkpoint.ranks.front().file->path,
                      " contains ", rows.front().elements());
  }
  return rows;
}

/// The pieces of a parameter of which each rank has `each` elements at `at`, without the padding of the last pieces.
std::vector<Piece> divided_pieces(const std::vector<Row>& rows, std::uint64_t at, std::uint64_t each,
                                  std::uint64_t elements) {
  std::vector<Piece> pieces;
  for (const Row& row : rows) {
    const std::uint64_t taken = std::min(elements, each);
    row.cut(at, at + taken, pieces);
    elements -= taken;
  }
  return pieces;
}

/// Adds the trained parameters of stage 3 (_zero3_merge_trainable_params). Groups do not matter: all parameters are
/// stored consecutively.
void add_divided(const Checkpoint& checkpoint, const Groups& groups, Weights& weights) {
  const StateFile& model = checkpoint.model();
  const std::vector<Row> rows = divided_rows(checkpoint);
  const std::uint64_t held = rows.front().elements();
  std::uint64_t at = 0;
  for (const std::vector<Parameter>& group : groups)
    for (const Parameter& parameter : group) {
      const std::uint64_t each = part_of(parameter.elements, rows.size());
      if (each > held - at)
        model.fail("parameter '", parameter.name, "' of shape ", shape_text(parameter.shape), " begins at element ", at,
                   " of each rank's part, which has ", held);
      weights.add_pieces(parameter, checkpoint.ranks.front().groups.front().dtype,
                         divided_pieces(rows, at, each, parameter.elements));
      at += each;
    }
  if (at != held) model.fail("the parameters take ", at, " elements of each rank, but the ranks contain ", held);
}

// ---- the whole checkpoint ----

/// 'param_shapes': one dict per group, in the order in which the optimizer flattened them (_get_zero_param_shapes).
Groups read_groups(const Checkpoint& checkpoint, std::set<std::string_view>& names) {
  const StateFile& model = checkpoint.model();
  Groups groups;
  for (const std::uint32_t item : model.list(checkpoint.member("param_shapes"), "param_shapes"))
    groups.push_back(read_shapes(model, model.node(item), "param_shapes", names));
  return groups;
}

/// 'shared_params' (_get_shared_params).
Ties read_ties(const Checkpoint& checkpoint) {
  Ties out;
  const StateFile& model = checkpoint.model();
  const PickleNode* shared = checkpoint.find("shared_params");
  if (shared == nullptr) return out;
  for (const auto& [name, source] : model.items(*shared, "shared_params"))
    out[name] = model.name(*source, "shared_params");
  return out;
}

/// Adds the tensors in the order of zero_to_fp32 (_get_fp32_state_dict_from_zero2_checkpoint, ..._zero3_checkpoint).
TorchWeights read_weights(const Checkpoint& checkpoint, bool keep_tied) {
  Weights weights(checkpoint.model());
  add_buffers(checkpoint, weights);
  const PickleNode* frozen = checkpoint.find("frozen_param_shapes");
  std::set<std::string_view> names;
  if (frozen != nullptr)
    add_frozen(checkpoint, read_shapes(checkpoint.model(), *frozen, "frozen_param_shapes", names), weights);
  const Groups groups = read_groups(checkpoint, names);
  if (checkpoint.stage() == 3)
    add_divided(checkpoint, groups, weights);
  else
    add_flat(checkpoint, groups, weights);
  const Ties ties = read_ties(checkpoint);
  if (frozen == nullptr && checkpoint.stage() < 3) add_the_rest(checkpoint, ties, weights);
  for (const auto& [name, source] : ties)
    if (!weights.contains(name)) weights.add_tied(name, source, keep_tied);
  TorchWeights out = weights.take();
  if (out.tensors.empty()) throw InputError(concat(checkpoint.path, ": contains no weights"));
  return out;
}

}  // namespace
}  // namespace deepspeed

bool is_deepspeed_checkpoint(const std::string& folder) {
  if (!is_directory(folder)) return false;
  if (path_exists(path_join(folder, deepspeed::latest_file))) return true;
  const std::vector<std::string> names = list_folder(folder);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with("_optim_states.pt"); });
}

TorchWeights read_deepspeed_checkpoint(const deepspeed::Folder& folder, const deepspeed::OpenState& open,
                                       bool keep_tied) {
  return deepspeed::read_weights(deepspeed::open_checkpoint(folder, open), keep_tied);
}

TorchWeights read_deepspeed_checkpoint(const std::string& folder, bool keep_tied) {
  return read_deepspeed_checkpoint(deepspeed::list_states(folder), deepspeed::open_state, keep_tied);
}

}  // namespace tessera::format
