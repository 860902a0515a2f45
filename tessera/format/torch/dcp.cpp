#include <tessera/format/torch/dcp.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/format/torch/pickle.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>

namespace tessera::format {
namespace {

constexpr auto dcp_names = std::to_array<std::string_view>(
    {"torch.distributed.checkpoint.metadata.", "torch.distributed.checkpoint.filesystem._StorageInfo",
     "torch.distributed.checkpoint.filesystem._StorageWriterTransforms", "torch.serialization._get_layout",
     "torch.Size", "torch.", "collections.OrderedDict", "pathlib.PosixPath", "pathlib.Path"});

constexpr std::string_view in_metadata = "torch.distributed.checkpoint.metadata.";

/// The contents of a MetadataIndex: a tensor and the offsets of one of its boxes.
using Key = std::pair<std::string, std::vector<std::int64_t>>;
struct Place {
  std::string file;
  std::uint64_t begin = 0, length = 0;
};

class DcpReader {
 public:
  DcpReader(std::span<const std::byte> bytes, const std::string& path)
      : path_(path), pickle_(parse_pickle(bytes, path, dcp_names)) {}

  DcpMetadata read() {
    const PickleNode& root = state_of(pickle_.root(), "Metadata", "the file");
    read_places(member(root, "storage_data", "the file"));
    read_groups(pickle_.find(root, "planner_data"));
    const PickleNode& described = member(root, "state_dict_metadata", "the file");
    if (described.kind != PickleKind::dict) fail("state_dict_metadata is a ", pickle_kind_name(described.kind));
    DcpMetadata out;
    std::set<std::string> names;
    for (std::size_t i = 0; i + 1 < described.items.size(); i += 2) {
      const PickleNode &key = pickle_[described.items[i]], &value = pickle_[described.items[i + 1]];
      if (key.kind != PickleKind::text) fail("a name is a ", pickle_kind_name(key.kind));
      if (!names.insert(key.text).second) fail("tensor '", key.text, "' is described twice");
      if (pickle_.is_a(value, concat(in_metadata, "BytesStorageMetadata")))
        out.left_aside.push_back(key.text);
      else
        out.tensors.push_back(read_tensor(key.text, state_of(value, "TensorStorageMetadata", key.text)));
    }
    return out;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError(concat(path_, ": ", parts...));
  }
  /// The members of a dataclass object.
  const PickleNode& state_of(const PickleNode& node, std::string_view type, const std::string& about) const {
    if (!pickle_.is_a(node, concat(in_metadata, type)))
      fail("'", about, "' is not a ", type, " of torch.distributed.checkpoint");
    const PickleNode* state = pickle_.state(node);
    if (state == nullptr) fail("'", about, "': its ", type, " is empty");
    return *state;
  }
  const PickleNode& member(const PickleNode& dict, const char* key, const std::string& about) const {
    const PickleNode* found = pickle_.find(dict, key);
    if (found == nullptr) fail("'", about, "' has no ", key);
    return *found;
  }
  std::uint64_t number(const PickleNode& node, const std::string& about, const char* what) const {
    if (node.kind != PickleKind::integer || node.integer < 0)
      fail("'", about, "': ", what, " is not an integer of at least 0");
    return static_cast<std::uint64_t>(node.integer);
  }
  /// torch.Size((3, 4)).
  std::vector<std::int64_t> size(const PickleNode& node, const std::string& about, const char* what) const {
    if (!pickle_.is_a(node, "torch.Size") || pickle_.arguments(node).size() != 1)
      fail("'", about, "': ", what, " is not a torch.Size");
    const PickleNode& tuple = pickle_[pickle_.arguments(node)[0]];
    if (tuple.kind != PickleKind::tuple || tuple.items.size() > 16)
      fail("'", about, "': ", what, " is not a tuple of at most 16 integers");
    std::vector<std::int64_t> values;
    for (const std::uint32_t item : tuple.items)
      values.push_back(static_cast<std::int64_t>(number(pickle_[item], about, what)));
    return values;
  }

  /// planner_data: name -> its keys in the nested dicts, if these were flattened.
  void read_groups(const PickleNode* planner) {
    if (planner == nullptr || planner->kind != PickleKind::dict) return;
    for (std::size_t i = 0; i + 1 < planner->items.size(); i += 2) {
      const PickleNode &name = pickle_[planner->items[i]], &keys = pickle_[planner->items[i + 1]];
      if (name.kind != PickleKind::text || keys.kind != PickleKind::tuple || keys.items.size() < 2) continue;
      if (const PickleNode& first = pickle_[keys.items[0]];
          first.kind == PickleKind::text && name.text.starts_with(first.text + "."))
        groups_[name.text] = first.text;
    }
  }

  void read_places(const PickleNode& storage) {
    if (storage.kind != PickleKind::dict) fail("storage_data is a ", pickle_kind_name(storage.kind));
    for (std::size_t i = 0; i + 1 < storage.items.size(); i += 2) {
      const PickleNode& index = state_of(pickle_[storage.items[i]], "MetadataIndex", "storage_data");
      const PickleNode& name = member(index, "fqn", "storage_data");
      if (name.kind != PickleKind::text) fail("storage_data: a name is a ", pickle_kind_name(name.kind));
      const PickleNode* offset = pickle_.find(index, "offset");
      const PickleNode& info = pickle_[storage.items[i + 1]];
      const PickleNode* place = pickle_.state(info);
      if (!pickle_.is_a(info, "torch.distributed.checkpoint.filesystem._StorageInfo") || place == nullptr)
        fail("'", name.text, "' has no storage location");
      if (const PickleNode* how = pickle_.find(*place, "transform_descriptors");
          how != nullptr && !(how->kind == PickleKind::none || how->items.empty()))
        fail("'", name.text, "' is stored transformed (compressed?), which is not supported");
      const PickleNode& file = member(*place, "relative_path", name.text);
      if (file.kind != PickleKind::text || !is_plain_file_name(file.text))
        fail("'", name.text, "': '", file.text, "' is not the plain name of a file in this folder");
      Place stored{file.text, number(member(*place, "offset", name.text), name.text, "its offset"),
                   number(member(*place, "length", name.text), name.text, "its length")};
      std::vector<std::int64_t> offsets;
      if (offset != nullptr && offset->kind != PickleKind::none) offsets = size(*offset, name.text, "its offset");
      if (!places_.emplace(Key{name.text, offsets}, std::move(stored)).second)
        fail("'", name.text, "' is stored twice");
    }
  }

  DType dtype(const PickleNode& properties, const std::string& name) const {
    if (!pickle_.is_a(properties, concat(in_metadata, "TensorProperties")))
      fail("'", name, "' has no TensorProperties");
    const PickleNode* state = pickle_.state(properties);
    if (state == nullptr || state->kind != PickleKind::tuple || state->items.empty())
      fail("'", name, "': its dtype is missing");
    static const std::map<std::string_view, DType> known = {
        {"torch.float32", DType::f32},   {"torch.float64", DType::f64}, {"torch.float16", DType::f16},
        {"torch.bfloat16", DType::bf16}, {"torch.int64", DType::i64},   {"torch.int32", DType::i32},
        {"torch.int16", DType::i16},     {"torch.int8", DType::i8},     {"torch.uint8", DType::u8},
        {"torch.bool", DType::boolean}};
    const PickleNode& word = pickle_[state->items[0]];
    const auto found = known.find(word.text);
    if (word.kind != PickleKind::global || found == known.end())
      fail("'", name, "': dtype ", word.text, " is not supported");
    return found->second;
  }

  DcpTensor read_tensor(const std::string& name, const PickleNode& state) const {
    DcpTensor tensor;
    tensor.name = name;
    if (const auto group = groups_.find(name); group != groups_.end()) tensor.group = group->second;
    tensor.dtype = dtype(member(state, "properties", name), name);
    tensor.shape = size(member(state, "size", name), name, "its shape");
    const std::uint64_t elements = product(tensor.shape, name);
    const PickleNode& chunks = member(state, "chunks", name);
    if (chunks.kind != PickleKind::list) fail("'", name, "': its boxes are a ", pickle_kind_name(chunks.kind));
    std::uint64_t covered = 0;
    for (const std::uint32_t item : chunks.items) {
      const PickleNode& chunk = state_of(pickle_[item], "ChunkStorageMetadata", name);
      DcpBox box;
      box.offsets = size(member(chunk, "offsets", name), name, "the offsets of a box");
      box.sizes = size(member(chunk, "sizes", name), name, "the sizes of a box");
      if (box.offsets.size() != tensor.shape.size() || box.sizes.size() != tensor.shape.size())
        fail("'", name, "' has ", tensor.shape.size(), " dimensions, but one of its boxes has ", box.offsets.size(),
             " and ", box.sizes.size());
      for (std::size_t d = 0; d < tensor.shape.size(); ++d)
        if (box.offsets[d] > tensor.shape[d] || box.sizes[d] > tensor.shape[d] - box.offsets[d])
          fail("'", name, "': a box starts at ", box.offsets[d], " and has ", box.sizes[d], " elements of dimension ",
               d, ", which has ", tensor.shape[d]);
      auto place = places_.find({name, box.offsets});
      if (place == places_.end()) place = places_.find({name, {}});  // scalars are stored without offsets
      if (place == places_.end()) fail("'", name, "': a box has no storage location");
      box.file = place->second.file;
      box.begin = place->second.begin;
      box.length = place->second.length;
      if (product(box.sizes, name) > box.length / dtype_size(tensor.dtype))
        fail("'", name, "': a box of ", product(box.sizes, name), " elements is listed with only ", box.length,
             " bytes");
      covered += product(box.sizes,
                         name);  // cannot wrap around to `elements`, because boxes do not overlap
      tensor.boxes.push_back(std::move(box));
    }
    require_apart(tensor);
    if (covered != elements) fail("'", name, "': its boxes contain ", covered, " of ", elements, " elements");
    return tensor;
  }

  std::uint64_t product(const std::vector<std::int64_t>& sizes, const std::string& name) const {
    std::uint64_t all = 1;
    for (const std::int64_t extent : sizes) {
      if (extent != 0 && all > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) /
                                   static_cast<std::uint64_t>(extent))
        fail("'", name, "': its number of elements overflows");
      all *= static_cast<std::uint64_t>(extent);
    }
    return all;
  }

  /// Throws if boxes overlap. They are sorted by the first offset, so only boxes that begin before another one ends can
  /// overlap it.
  void require_apart(const DcpTensor& tensor) const {
    if (tensor.shape.empty()) {
      if (tensor.boxes.size() > 1) fail("'", tensor.name, "': a scalar in ", tensor.boxes.size(), " boxes");
      return;
    }
    std::vector<const DcpBox*> boxes;
    for (const DcpBox& box : tensor.boxes)
      if (std::find(box.sizes.begin(), box.sizes.end(), 0) == box.sizes.end()) boxes.push_back(&box);
    std::sort(boxes.begin(), boxes.end(),
              [](const DcpBox* a, const DcpBox* b) { return a->offsets[0] < b->offsets[0]; });
    std::size_t compared = 0;
    for (std::size_t i = 0; i < boxes.size(); ++i)
      for (std::size_t j = i + 1; j < boxes.size() && boxes[j]->offsets[0] < boxes[i]->offsets[0] + boxes[i]->sizes[0];
           ++j) {
        if (++compared > 1'000'000) fail("'", tensor.name, "' is cut into too many boxes (", boxes.size(), ")");
        bool apart = false;
        for (std::size_t d = 1; d < tensor.shape.size(); ++d)
          apart = apart || boxes[i]->offsets[d] >= boxes[j]->offsets[d] + boxes[j]->sizes[d] ||
                  boxes[j]->offsets[d] >= boxes[i]->offsets[d] + boxes[i]->sizes[d];
        if (!apart) fail("'", tensor.name, "': two of its boxes overlap");
      }
  }

  const std::string& path_;
  Pickle pickle_;
  std::map<Key, Place> places_;
  std::map<std::string, std::string> groups_;
};

}  // namespace

DcpMetadata parse_dcp_metadata(std::span<const std::byte> bytes, const std::string& path) {
  return DcpReader(bytes, path).read();
}

DcpFolder::DcpFolder(const std::string& folder) : folder_(folder) {
  const std::string path = path_join(folder, ".metadata");
  if (!path_exists(path))
    throw InputError(concat(folder, ": not a folder of torch.distributed.checkpoint: it has no .metadata"));
  const MappedFile file(path);
  metadata_ = parse_dcp_metadata(file.bytes(), path);
  check_places();
}

/// Checks that every box is inside its file and that no two boxes share bytes, so that the data read never exceeds the
/// data present.
void DcpFolder::check_places() {
  std::map<std::string, std::vector<std::pair<const DcpBox*, const DcpTensor*>>> by_file;
  for (const DcpTensor& tensor : metadata_.tensors)
    for (const DcpBox& box : tensor.boxes) by_file[box.file].emplace_back(&box, &tensor);
  for (auto& [name, boxes] : by_file) {
    const std::string path = path_join(folder_, name);
    if (!path_exists(path))
      throw InputError(
          concat(path, ": no such file, but .metadata refers to it for tensor '", boxes[0].second->name, "'"));
    auto& file = files_[name] = std::make_unique<MappedFile>(path);
    std::sort(boxes.begin(), boxes.end(), [](const auto& a, const auto& b) { return a.first->begin < b.first->begin; });
    std::uint64_t end = 0;
    for (const auto& [box, tensor] : boxes) {
      const std::uint64_t size = file->bytes().size();
      if (box->begin > size || box->length > size - box->begin)
        throw InputError(concat(path, ": tensor '", tensor->name, "': its part of ", box->length, " bytes at ",
                                box->begin, " extends beyond the ", size, " bytes of the file"));
      if (box->begin < end)
        throw InputError(
            concat(path, ": tensor '", tensor->name, "': its part at ", box->begin, " overlaps another one"));
      end = box->begin + box->length;
    }
  }
}

std::span<const std::byte> DcpFolder::bytes(const DcpTensor& tensor, const DcpBox& box) const {
  const std::string path = path_join(folder_, box.file);
  const auto fail = [&](const auto&... parts) {
    return InputError(concat(path, ": tensor '", tensor.name, "': ", parts...));
  };
  const auto all = files_.at(box.file)->bytes();
  const auto part = all.subspan(box.begin, box.length);
  const TorchFile stored = parse_torch_file(part, path);
  if (stored.tensors.size() != 1 || stored.tensors[0].shape != box.sizes || stored.tensors[0].dtype != tensor.dtype)
    throw fail("the data at byte ", box.begin, " differs in shape or dtype from .metadata");
  if (!stored.tensors[0].contiguous()) throw fail("the data at byte ", box.begin, " is not contiguous");
  verify_torch_file(part, stored, path);
  return part.subspan(stored.tensors[0].begin, stored.tensors[0].end - stored.tensors[0].begin);
}

}  // namespace tessera::format
