#include <tessera/format/torch/torch_file.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/format/torch/pickle.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>

namespace tessera::format {
namespace {

constexpr auto torch_file_names = std::to_array<std::string_view>({"collections.OrderedDict",
                                                                   "torch.Size",
                                                                   "torch._utils._rebuild_tensor_v2",
                                                                   "torch._utils._rebuild_tensor_v3",
                                                                   "torch._utils._rebuild_parameter",
                                                                   "torch._utils._rebuild_parameter_with_state",
                                                                   "torch.storage.UntypedStorage",
                                                                   "torch.storage.TypedStorage",
                                                                   "torch.serialization._get_layout",
                                                                   "torch.FloatStorage",
                                                                   "torch.DoubleStorage",
                                                                   "torch.HalfStorage",
                                                                   "torch.BFloat16Storage",
                                                                   "torch.LongStorage",
                                                                   "torch.IntStorage",
                                                                   "torch.ShortStorage",
                                                                   "torch.CharStorage",
                                                                   "torch.ByteStorage",
                                                                   "torch.BoolStorage",
                                                                   "torch.UInt16Storage",
                                                                   "torch.UInt32Storage",
                                                                   "torch.UInt64Storage",
                                                                   "torch.float32",
                                                                   "torch.float64",
                                                                   "torch.float16",
                                                                   "torch.bfloat16",
                                                                   "torch.int64",
                                                                   "torch.int32",
                                                                   "torch.int16",
                                                                   "torch.int8",
                                                                   "torch.uint8",
                                                                   "torch.bool",
                                                                   "torch.uint16",
                                                                   "torch.uint32",
                                                                   "torch.uint64",
                                                                   "torch.float",
                                                                   "torch.half",
                                                                   "torch.long"});

std::optional<DType> dtype_of(std::string_view global) {
  static const std::map<std::string_view, DType> known = {
      {"torch.FloatStorage", DType::f32},  {"torch.DoubleStorage", DType::f64},
      {"torch.HalfStorage", DType::f16},   {"torch.BFloat16Storage", DType::bf16},
      {"torch.LongStorage", DType::i64},   {"torch.IntStorage", DType::i32},
      {"torch.ShortStorage", DType::i16},  {"torch.CharStorage", DType::i8},
      {"torch.ByteStorage", DType::u8},    {"torch.BoolStorage", DType::boolean},
      {"torch.UInt16Storage", DType::u16}, {"torch.UInt32Storage", DType::u32},
      {"torch.UInt64Storage", DType::u64}, {"torch.float32", DType::f32},
      {"torch.float", DType::f32},         {"torch.float64", DType::f64},
      {"torch.float16", DType::f16},       {"torch.half", DType::f16},
      {"torch.bfloat16", DType::bf16},     {"torch.int64", DType::i64},
      {"torch.long", DType::i64},          {"torch.int32", DType::i32},
      {"torch.int16", DType::i16},         {"torch.int8", DType::i8},
      {"torch.uint8", DType::u8},          {"torch.bool", DType::boolean},
      {"torch.uint16", DType::u16},        {"torch.uint32", DType::u32},
      {"torch.uint64", DType::u64}};
  const auto found = known.find(global);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

/// The bytes of a short entry.
std::string text_of(std::span<const std::byte> file, const ZipEntry& entry) {
  const auto bytes = file.subspan(entry.begin, entry.end - entry.begin);
  return {reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 64)};
}

}  // namespace

template <class... Parts>
void TorchArchive::fail(const Parts&... parts) const {
  throw InputError(concat(path_, ": ", parts...));
}

TorchArchive::TorchArchive(std::span<const std::byte> file, const std::string& path,
                           std::span<const std::string_view> allowed)
    : path_(path) {
  if (!(file.size() >= 4 && file[0] == std::byte{'P'} && file[1] == std::byte{'K'})) {
    fail("not a file of torch.save in its ZIP format",
         !file.empty() && file[0] == std::byte{0x80}
             ? " but a bare pickle, as PyTorch before 1.6 wrote; load and save it once with a newer one"
             : "");
  }
  for (ZipEntry& entry : parse_zip(file, path)) entries_.emplace(entry.name, std::move(entry));
  const auto pickle = std::find_if(entries_.begin(), entries_.end(), [](const auto& e) {
    return e.first.ends_with("/data.pkl") && std::count(e.first.begin(), e.first.end(), '/') == 1;
  });
  if (pickle == entries_.end()) fail("the archive has no data.pkl: torch.save did not write it");
  prefix_ = pickle->first.substr(0, pickle->first.size() - std::string_view("data.pkl").size());
  if (const auto order = entries_.find(prefix_ + "byteorder");
      order != entries_.end() && text_of(file, order->second) != "little")
    fail("its numbers are big-endian, which is not supported");
  pickle_ = parse_pickle(file.subspan(pickle->second.begin, pickle->second.end - pickle->second.begin), path, allowed);
}

bool TorchArchive::is_parameter(const PickleNode& node) const {
  return pickle_.is_a(node, "torch._utils._rebuild_parameter") ||
         pickle_.is_a(node, "torch._utils._rebuild_parameter_with_state");
}

/// Returns the arguments of _rebuild_tensor_v2 or a variant, for a plain tensor or a tensor with attributes
/// (_rebuild_from_type_v2).
std::optional<std::span<const std::uint32_t>> TorchArchive::tensor_arguments(const PickleNode& node) const {
  const auto makes = [](std::string_view function) {
    return function == "torch._utils._rebuild_tensor_v2" || function == "torch._utils._rebuild_tensor_v3";
  };
  if (node.kind != PickleKind::object) return std::nullopt;
  const auto arguments = pickle_.arguments(node);
  if (makes(pickle_[node.items[0]].text)) return arguments;
  if (!pickle_.is_a(node, "torch._tensor._rebuild_from_type_v2") || arguments.size() != 4) return std::nullopt;
  const PickleNode &function = pickle_[arguments[0]], &inner = pickle_[arguments[2]];
  if (function.kind != PickleKind::global || !makes(function.text) || inner.kind != PickleKind::tuple)
    return std::nullopt;
  return std::span<const std::uint32_t>(inner.items);
}

bool TorchArchive::is_tensor(const PickleNode& node) const {
  return is_parameter(node) || tensor_arguments(node).has_value();
}

/// An OrderedDict's members follow its class, arguments and state.
std::optional<std::span<const std::uint32_t>> TorchArchive::members(const PickleNode& node) const {
  if (node.kind == PickleKind::dict) return std::span(node.items);
  if (!pickle_.is_a(node, "collections.OrderedDict")) return std::nullopt;
  return std::span(node.items).subspan(std::min<std::size_t>(3, node.items.size()));
}

std::int64_t TorchArchive::integer(const PickleNode& node, const std::string& name, const char* what) const {
  if (node.kind != PickleKind::integer || node.integer < 0)
    fail("tensor '", name, "': ", what, " is not an integer of at least 0");
  return node.integer;
}

std::vector<std::int64_t> TorchArchive::sizes(const PickleNode& node, const std::string& name, const char* what) const {
  const PickleNode* tuple = &node;
  if (pickle_.is_a(node, "torch.Size") && pickle_.arguments(node).size() == 1)
    tuple = &pickle_[pickle_.arguments(node)[0]];
  if (tuple->kind != PickleKind::tuple)
    fail("tensor '", name, "': ", what, " is a ", pickle_kind_name(tuple->kind), "; expected a tuple");
  if (tuple->items.size() > 16)
    fail("tensor '", name, "': ", what, " has ", tuple->items.size(), " dimensions; at most 16 are supported");
  std::vector<std::int64_t> values;
  for (const std::uint32_t item : tuple->items) values.push_back(integer(pickle_[item], name, what));
  return values;
}

TorchTensor TorchArchive::tensor(const PickleNode& node, const std::string& name) {
  std::optional<std::span<const std::uint32_t>> found;
  if (is_parameter(node)) {
    if (!pickle_.arguments(node).empty()) found = tensor_arguments(pickle_[pickle_.arguments(node)[0]]);
    if (!found) fail("tensor '", name, "': a parameter without a tensor");
  } else {
    found = tensor_arguments(node);
    if (!found) fail("'", name, "' is a ", pickle_kind_name(node.kind), " and not a tensor");
  }
  const auto arguments = *found;
  if (arguments.size() < 4) fail("tensor '", name, "' has ", arguments.size(), " arguments; at least 4 are needed");
  TorchTensor tensor;
  tensor.name = name;
  const auto [entry, storage_dtype] = storage_of(pickle_[arguments[0]], name);
  tensor.shape = sizes(pickle_[arguments[2]], name, "its shape");
  tensor.strides = sizes(pickle_[arguments[3]], name, "its strides");
  if (tensor.shape.size() != tensor.strides.size())
    fail("tensor '", name, "' has ", tensor.shape.size(), " sizes and ", tensor.strides.size(), " strides");
  std::optional<DType> dtype = storage_dtype;
  if (arguments.size() > 6 && pickle_[arguments[6]].kind == PickleKind::global)
    dtype = dtype_of(pickle_[arguments[6]].text);  // _rebuild_tensor_v3
  if (!dtype) fail("tensor '", name, "': its dtype is unknown");
  tensor.dtype = *dtype;
  place(tensor, *entry, integer(pickle_[arguments[1]], name, "its offset"));
  tensor.storage = storage_index(*entry);
  return tensor;
}

/// Looks up a storage by its persistent id ("storage", class, key, device, elements).
std::pair<const ZipEntry*, std::optional<DType>> TorchArchive::storage_of(const PickleNode& node,
                                                                          const std::string& name) const {
  const PickleNode* id = node.kind == PickleKind::persistent ? &pickle_[node.items[0]] : nullptr;
  if (id == nullptr || id->kind != PickleKind::tuple || id->items.size() < 5 || pickle_[id->items[0]].text != "storage")
    fail("tensor '", name, "' has no storage in this file");
  const PickleNode &type = pickle_[id->items[1]], &key = pickle_[id->items[2]];
  if (type.kind != PickleKind::global || key.kind != PickleKind::text)
    fail("tensor '", name, "': its storage has no name");
  const auto found = entries_.find(concat(prefix_, "data/", key.text));
  if (found == entries_.end()) fail("tensor '", name, "': its storage '", key.text, "' is not in the archive");
  return {&found->second, dtype_of(type.text)};
}

/// Sets [begin, end), the range of elements reachable through shape and strides, with overflow checks.
void TorchArchive::place(TorchTensor& tensor, const ZipEntry& entry, std::int64_t offset) const {
  const std::uint64_t bytes = entry.end - entry.begin, size = dtype_size(tensor.dtype), limit = bytes / size;
  std::uint64_t last = 0;  // distance from the first to the last element
  bool none = false;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    const auto extent = static_cast<std::uint64_t>(tensor.shape[d]),
               stride = static_cast<std::uint64_t>(tensor.strides[d]);
    if (extent == 0) none = true;
    if (extent < 2) continue;
    if (stride != 0 && extent - 1 > (std::numeric_limits<std::uint64_t>::max() - last) / stride)
      fail("tensor '", tensor.name, "': its strides overflow");
    if (stride == 0 && extent > limit + 1) fail("tensor '", tensor.name, "' repeats its elements ", extent, " times");
    last += (extent - 1) * stride;
  }
  const auto first = static_cast<std::uint64_t>(offset);
  if (none ? first > limit : first >= limit || last >= limit - first)
    fail("tensor '", tensor.name, "' extends to element ", first, " + ", last, " of a storage with ", limit,
         " elements");
  tensor.begin = entry.begin + first * size;
  tensor.end = none ? tensor.begin : tensor.begin + (last + 1) * size;
}

std::size_t TorchArchive::storage_index(const ZipEntry& entry) {
  const auto [known, is_new] = storage_indices_.emplace(entry.name, storages_.size());
  if (is_new) storages_.push_back(entry);
  return known->second;
}

namespace {

class TorchFileReader {
 public:
  TorchFileReader(std::span<const std::byte> file, const std::string& path)
      : path_(path), archive_(file, path, torch_file_names), pickle_(archive_.pickle()) {}

  TorchFile read() {
    if (archive_.is_tensor(pickle_.root()))
      add_tensor("", "", pickle_.root());
    else
      walk("", "", pickle_.root(), 0);
    out_.storages = archive_.storages();
    return std::move(out_);
  }

 private:
  using Kind = PickleKind;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError(concat(path_, ": ", parts...));
  }

  void walk(const std::string& group, const std::string& prefix, const PickleNode& node, int depth) {
    const auto inside = archive_.members(node);
    if (!inside) fail("contains a ", pickle_kind_name(node.kind), " instead of named tensors");
    if (depth > 8) fail("dicts are nested deeper than 8 at '", prefix, "'");
    for (std::size_t i = 0; i + 1 < inside->size(); i += 2) {
      const PickleNode &key = pickle_[(*inside)[i]], &value = pickle_[(*inside)[i + 1]];
      if (++visited_ > pickle_.size()) fail("a dict contains itself, or is repeated too often");
      std::string name = key.kind == Kind::text      ? key.text
                         : key.kind == Kind::integer ? std::to_string(key.integer)
                                                     : "";
      if (name.empty()) fail("a key of '", prefix, "' is a ", pickle_kind_name(key.kind), "; expected a name");
      if (!prefix.empty()) name = concat(prefix, ".", name);
      if (archive_.is_tensor(value))
        add_tensor(group, name, value);
      else if (archive_.members(value))
        walk(depth == 0 ? name : group, name, value, depth + 1);
      else
        out_.left_aside.push_back(name);
    }
  }

  void add_tensor(const std::string& group, const std::string& name, const PickleNode& node) {
    if (!names_.insert(name).second) fail("tensor '", name, "' appears twice");
    out_.tensors.push_back(archive_.tensor(node, name));
    out_.tensors.back().group = group;
  }

  const std::string& path_;
  TorchArchive archive_;
  const Pickle& pickle_;
  TorchFile out_;
  std::set<std::string> names_;
  std::size_t visited_ = 0;
};

}  // namespace

bool TorchTensor::contiguous() const {
  std::uint64_t expected = 1;  // may wrap around if a dimension of size 0 follows
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 0) return true;
    if (shape[d] > 1 && static_cast<std::uint64_t>(strides[d]) != expected) return false;
    expected *= static_cast<std::uint64_t>(shape[d]);
  }
  return true;
}

TorchFile parse_torch_file(std::span<const std::byte> file, const std::string& path) {
  return TorchFileReader(file, path).read();
}

void verify_storage(std::span<const std::byte> file, const ZipEntry& storage, const std::string& path) {
  if (storage.crc32 == 0) return;
  const std::uint32_t found = crc32(file.subspan(storage.begin, storage.end - storage.begin));
  if (found != storage.crc32)
    throw InputError(concat(path, ": bytes ", storage.begin, " to ", storage.end, " ('", storage.name,
                            "') have CRC-32 ", found, ", but the archive lists ", storage.crc32,
                            ": the file is damaged"));
}

void verify_torch_file(std::span<const std::byte> file, const TorchFile& parsed, const std::string& path) {
  for (const ZipEntry& storage : parsed.storages) verify_storage(file, storage, path);
}

}  // namespace tessera::format
