#include <tessera/format/deepspeed_checkpoint.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/deepspeed_states.h>
#include <tessera/format/half.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace tessera::format {
namespace {

using deepspeed::elements_of;
using deepspeed::Parameter;
using deepspeed::Rank;
using deepspeed::read_shapes;
using deepspeed::shape_text;
using deepspeed::StateFile;

/// Bytes of a file that are the next ones of a tensor.
struct Piece {
  std::shared_ptr<StateFile> file;
  std::size_t storage = 0;
  std::uint64_t begin = 0, end = 0;
};

/// Flat tensors one behind the other, as one row.
struct Row {
  std::vector<std::pair<std::shared_ptr<StateFile>, const TorchTensor*>> parts;
  std::uint64_t elements = 0;

  void add(const std::shared_ptr<StateFile>& file, const TorchTensor& part) {
    parts.emplace_back(file, &part);
    elements += static_cast<std::uint64_t>(part.shape[0]);
  }
  /// Appends the elements from `begin` to `end`, which lie in the row.
  void cut(std::uint64_t begin, std::uint64_t end, std::vector<Piece>& pieces) const {
    std::uint64_t at = 0;
    for (const auto& [file, part] : parts) {
      const std::uint64_t size = dtype_size(part->dtype), next = at + static_cast<std::uint64_t>(part->shape[0]);
      const std::uint64_t from = std::max(begin, at), to = std::min(end, next);
      if (from < to) pieces.push_back({file, part->storage, part->begin + (from - at) * size, part->begin + (to - at) * size});
      at = next;
    }
  }
};

using Buffer = std::shared_ptr<std::vector<std::byte>>;

/// Joined in the buffer, or where they lie when they are one.
std::span<const std::byte> joined(const std::vector<Piece>& pieces, const Buffer& buffer) {
  if (pieces.size() == 1) return pieces[0].file->bytes(pieces[0].storage, pieces[0].begin, pieces[0].end);
  std::uint64_t size = 0;
  for (const Piece& piece : pieces) size += piece.end - piece.begin;
  buffer->clear();
  buffer->reserve(size);
  for (const Piece& piece : pieces) {
    const auto bytes = piece.file->bytes(piece.storage, piece.begin, piece.end);
    buffer->insert(buffer->end(), bytes.begin(), bytes.end());
  }
  return *buffer;
}

/// fp16 or bf16 as fp32, in the buffer.
std::span<const std::byte> widened(std::span<const std::byte> bytes, DType dtype, const Buffer& buffer) {
  std::vector<std::byte> out(bytes.size() * 2);
  for (std::size_t i = 0; i * 2 < bytes.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, bytes.data() + i * 2, 2);
    const float value = dtype == DType::bf16 ? from_bf16(bits) : from_f16(bits);
    std::memcpy(&out[i * 4], &value, 4);
  }
  *buffer = std::move(out);
  return *buffer;
}

class Reader {
 public:
  explicit Reader(const std::string& folder) : folder_(deepspeed::list_states(folder)), ranks_(deepspeed::read_ranks(folder_)) {
    if (stage() < 3) {
      models_.push_back(open_model(-1, "mp_rank_00_model_states.pt"));
    } else {
      for (std::size_t r = 0; r < ranks_.size(); ++r) models_.push_back(open_model(static_cast<std::int64_t>(r), concat("zero_pp_rank_", r, "_mp_rank_00_model_states.pt")));
    }
    for (const char* parallel : {"mp_world_size", "pp_world_size"})
      if (const PickleNode* size = model().find(root(), parallel); size != nullptr && size->kind == PickleKind::integer && size->integer > 1)
        model().fail("'", parallel, "' is ", size->integer, ": of tensor or pipeline parallelism, whose parts are not joined");
    for (const char* experts : {"ds_autoep_layers", "autoep_layers"})
      if (const PickleNode* layers = model().find(root(), experts); layers != nullptr && !layers->items.empty()) model().fail("holds experts ('", experts, "'), which are not read");
  }

  TorchWeights read(bool keep_tied) {
    add_buffers();
    const PickleNode* frozen = model().find(root(), "frozen_param_shapes");
    std::set<std::string_view> names;
    if (frozen != nullptr) add_frozen(read_shapes(model(), *frozen, "frozen_param_shapes", names));
    std::vector<std::vector<Parameter>> groups;
    for (const std::uint32_t item : model().list(model().member(root(), "param_shapes"), "param_shapes"))
      groups.push_back(read_shapes(model(), model().node(item), "param_shapes", names));
    if (stage() == 3) add_divided(groups);
    else add_flat(groups);
    const auto tied = tied_names();
    if (frozen == nullptr && stage() < 3) add_the_rest(tied);
    add_tied(tied, keep_tied);
    if (out_.tensors.empty()) throw InputError(concat(folder_.path, ": holds no weights"));
    return std::move(out_);
  }

 private:
  std::int64_t stage() const { return ranks_.front().stage; }
  StateFile& model() const { return *models_.front(); }
  const PickleNode& root() const { return model().root(); }

  std::shared_ptr<StateFile> open_model(std::int64_t rank, const std::string& expected) const {
    const auto found = folder_.model.find(rank);
    if (found == folder_.model.end())
      throw InputError(concat(folder_.path, ": '", expected, "' is missing, which a checkpoint of ZeRO stage ", stage(), " and ", ranks_.size(), " ranks has"));
    return std::make_shared<StateFile>(path_join(folder_.path, found->second));
  }

  void add(const std::string& name, DType dtype, std::vector<std::int64_t> shape, std::uint64_t elements, std::function<std::span<const std::byte>()> bytes) {
    if (!indices_.emplace(name, out_.tensors.size()).second) model().fail("tensor '", name, "' is there twice");
    out_.parameters += elements;
    out_.bytes += elements * dtype_size(dtype);
    out_.tensors.push_back({name, dtype, std::move(shape), std::move(bytes)});
  }
  void add_pieces(const Parameter& parameter, DType dtype, std::vector<Piece> pieces) {
    add(parameter.name, dtype, parameter.shape, parameter.elements, [pieces = std::move(pieces), buffer = buffer_] { return joined(pieces, buffer); });
  }
  /// A whole tensor of a file.
  void add_stored(const std::shared_ptr<StateFile>& file, const TorchTensor& tensor, bool widen) {
    if (!tensor.contiguous()) file->fail("tensor '", tensor.name, "' is not contiguous");
    const bool wider = widen && (tensor.dtype == DType::f16 || tensor.dtype == DType::bf16);
    add(tensor.name, wider ? DType::f32 : tensor.dtype, tensor.shape, elements_of(*file, tensor.name, tensor.shape),
        [file, storage = tensor.storage, begin = tensor.begin, end = tensor.end, dtype = tensor.dtype, wider, buffer = buffer_] {
          const auto bytes = file->bytes(storage, begin, end);
          return wider ? widened(bytes, dtype, buffer) : bytes;
        });
  }

  void add_buffers() {
    const PickleNode& names = model().member(root(), "buffer_names");
    std::set<std::string_view> wanted;
    for (const std::uint32_t item : model().list(names, "buffer_names")) wanted.insert(model().name(model().node(item), "buffer_names"));
    for (const auto& [name, value] : model().items(model().member(root(), "module"), "module"))
      if (wanted.contains(name)) add_stored(models_.front(), model().archive.tensor(*value, std::string(name)), true);
  }

  /// Stages 1 and 2: whole; stage 3: a part of ceil(n / W) elements in each rank's file.
  void add_frozen(const std::vector<Parameter>& frozen) {
    if (frozen.empty()) return;
    std::vector<std::map<std::string_view, const PickleNode*>> fragments;  // by rank
    for (const auto& file : models_) {
      auto& of_rank = fragments.emplace_back();
      for (const auto& [name, fragment] : file->items(file->member(file->root(), "frozen_param_fragments"), "frozen_param_fragments")) of_rank[name] = fragment;
    }
    for (const Parameter& parameter : frozen) {
      std::vector<Piece> pieces;
      std::optional<DType> dtype;
      std::uint64_t left = parameter.elements;
      const std::uint64_t each = stage() < 3 ? left : part_of(left);
      for (std::size_t r = 0; r < models_.size(); ++r) {
        const auto& file = models_[r];
        const auto fragment = fragments[r].find(parameter.name);
        if (fragment == fragments[r].end()) file->fail("frozen parameter '", parameter.name, "' is not in it");
        const TorchTensor part = file->archive.tensor(*fragment->second, parameter.name);
        const std::uint64_t found = elements_of(*file, parameter.name, part.shape);
        if (found != each || !part.contiguous())
          file->fail("frozen parameter '", parameter.name, "' of shape ", shape_text(parameter.shape), ": ", part.contiguous() ? "" : "not contiguous, ", found, " elements are stored, ",
                     each, " expected");
        if (part.dtype != dtype.value_or(part.dtype)) file->fail("frozen parameter '", parameter.name, "' is ", dtype_name(part.dtype), " here and ", dtype_name(*dtype), " before");
        dtype = part.dtype;
        const std::uint64_t taken = std::min(left, each);
        if (taken > 0) pieces.push_back({file, part.storage, part.begin, part.begin + taken * dtype_size(part.dtype)});
        left -= taken;
      }
      add_pieces(parameter, *dtype, std::move(pieces));
    }
  }

  std::uint64_t part_of(std::uint64_t elements) const { return elements / ranks_.size() + (elements % ranks_.size() != 0); }

  /// Stages 1 and 2.
  void add_flat(const std::vector<std::vector<Parameter>>& groups) {
    const Rank& first = ranks_.front();
    if (groups.size() != first.groups.size())
      model().fail("describes ", groups.size(), " groups of parameters, but ", first.file->path, " holds ", first.groups.size());
    if (!first.alignments.empty() && first.alignments.size() != groups.size())
      first.file->fail("'param_alignment_paddings' is of ", first.alignments.size(), " groups; expected ", groups.size());
    const std::uint64_t unit = 2 * ranks_.size();
    const auto aligned = [&](std::uint64_t n) { return (n + unit - 1) / unit * unit; };
    for (std::size_t g = 0; g < groups.size(); ++g) {
      Row row;
      for (const Rank& rank : ranks_) row.add(rank.file, rank.groups[g]);
      if (!first.alignments.empty() && first.alignments[g].size() != groups[g].size())
        first.file->fail("'param_alignment_paddings' is of ", first.alignments[g].size(), " parameters in group ", g, "; expected ", groups[g].size());
      std::uint64_t at = 0;
      for (std::size_t p = 0; p < groups[g].size(); ++p) {
        const Parameter& parameter = groups[g][p];
        if (parameter.elements > row.elements - at)
          model().fail("parameter '", parameter.name, "' of shape ", shape_text(parameter.shape), " begins at element ", at, " of group ", g, ", of which the ranks hold ", row.elements);
        std::vector<Piece> pieces;
        row.cut(at, at + parameter.elements, pieces);
        at += parameter.elements;
        add_pieces(parameter, first.groups[g].dtype, std::move(pieces));
        const auto gap = first.alignments.empty() ? 0 : static_cast<std::uint64_t>(first.alignments[g][p]);
        if (gap > row.elements - at) first.file->fail("'param_alignment_paddings' leaves ", gap, " elements behind '", parameter.name, "'; the ranks hold ", row.elements - at);
        at += gap;
      }
      if (aligned(at) != aligned(row.elements))
        model().fail("the parameters of group ", g, " take ", at, " elements, but the ranks hold ", row.elements, " (both are padded to a multiple of ", unit, ")");
    }
  }

  /// Stage 3.
  void add_divided(const std::vector<std::vector<Parameter>>& groups) {
    std::vector<Row> rows(ranks_.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      for (const TorchTensor& group : ranks_[r].groups) rows[r].add(ranks_[r].file, group);
    for (std::size_t r = 1; r < rows.size(); ++r)
      if (rows[r].elements != rows[0].elements)
        ranks_[r].file->fail("holds ", rows[r].elements, " elements of parameters, but ", ranks_[0].file->path, " ", rows[0].elements);
    std::uint64_t at = 0;
    for (const std::vector<Parameter>& group : groups)
      for (const Parameter& parameter : group) {
        const std::uint64_t each = part_of(parameter.elements);
        if (each > rows[0].elements - at)
          model().fail("parameter '", parameter.name, "' of shape ", shape_text(parameter.shape), " begins at element ", at, " of each rank's part, which has ", rows[0].elements);
        std::vector<Piece> pieces;
        std::uint64_t left = parameter.elements;
        for (const Row& row : rows) {
          const std::uint64_t taken = std::min(left, each);
          row.cut(at, at + taken, pieces);
          left -= taken;
        }
        at += each;
        add_pieces(parameter, ranks_[0].groups.at(0).dtype, std::move(pieces));
      }
    if (at != rows[0].elements) model().fail("the parameters take ", at, " elements of each rank, but the ranks hold ", rows[0].elements);
  }

  /// Name and the one whose memory it shares.
  std::map<std::string_view, std::string_view> tied_names() const {
    std::map<std::string_view, std::string_view> out;
    const PickleNode* shared = model().find(root(), "shared_params");
    if (shared == nullptr) return out;
    for (const auto& [name, source] : model().items(*shared, "shared_params")) out[name] = model().name(*source, "shared_params");
    return out;
  }

  /// What the module holds beside what was read: stage 1 does not say which parameters are frozen.
  void add_the_rest(const std::map<std::string_view, std::string_view>& tied) {
    for (const auto& [name, value] : model().items(model().member(root(), "module"), "module")) {
      if (indices_.contains(name) || tied.contains(name)) continue;
      if (model().archive.is_tensor(*value)) add_stored(models_.front(), model().archive.tensor(*value, std::string(name)), false);
      else out_.left_aside.emplace_back(name);
    }
  }

  void add_tied(const std::map<std::string_view, std::string_view>& tied, bool keep) {
    for (const auto& [name, source] : tied) {
      if (indices_.contains(name)) continue;
      const auto found = indices_.find(source);
      if (found == indices_.end()) {
        out_.left_aside.emplace_back(name);  // of a frozen parameter that was not saved
      } else if (keep) {
        const TensorSource same = out_.tensors[found->second];
        std::uint64_t elements = 1;
        for (const std::int64_t n : same.shape) elements *= static_cast<std::uint64_t>(n);
        add(std::string(name), same.dtype, same.shape, elements, same.bytes);
      } else {
        out_.tied.emplace_back(name, source);
      }
    }
  }

  deepspeed::Folder folder_;
  std::vector<Rank> ranks_;
  std::vector<std::shared_ptr<StateFile>> models_;  ///< stages 1 and 2: one; stage 3: by rank
  Buffer buffer_ = std::make_shared<std::vector<std::byte>>();
  std::map<std::string, std::size_t, std::less<>> indices_;  ///< of out_.tensors
  TorchWeights out_;
};

}  // namespace

bool is_deepspeed_checkpoint(const std::string& folder) {
  if (!is_directory(folder)) return false;
  if (path_exists(path_join(folder, deepspeed::latest_file))) return true;
  const std::vector<std::string> names = list_folder(folder);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.ends_with("_optim_states.pt"); });
}

TorchWeights read_deepspeed_checkpoint(const std::string& folder, bool keep_tied) { return Reader(folder).read(keep_tied); }

}  // namespace tessera::format
