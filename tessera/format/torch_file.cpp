#include <tessera/format/torch_file.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/format/pickle.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>

namespace tessera::format {
namespace {

constexpr auto allowed_names = std::to_array<std::string_view>({
    "collections.OrderedDict", "torch.Size", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state", "torch.storage.UntypedStorage",
    "torch.storage.TypedStorage", "torch.serialization._get_layout",
    "torch.FloatStorage", "torch.DoubleStorage", "torch.HalfStorage", "torch.BFloat16Storage", "torch.LongStorage", "torch.IntStorage",
    "torch.ShortStorage", "torch.CharStorage", "torch.ByteStorage", "torch.BoolStorage", "torch.UInt16Storage", "torch.UInt32Storage",
    "torch.UInt64Storage",
    "torch.float32", "torch.float64", "torch.float16", "torch.bfloat16", "torch.int64", "torch.int32", "torch.int16", "torch.int8",
    "torch.uint8", "torch.bool", "torch.uint16", "torch.uint32", "torch.uint64", "torch.float", "torch.half", "torch.long"});

std::optional<DType> dtype_of(std::string_view global) {
  static const std::map<std::string_view, DType> known = {
      {"torch.FloatStorage", DType::f32},   {"torch.DoubleStorage", DType::f64},  {"torch.HalfStorage", DType::f16},
      {"torch.BFloat16Storage", DType::bf16}, {"torch.LongStorage", DType::i64},  {"torch.IntStorage", DType::i32},
      {"torch.ShortStorage", DType::i16},   {"torch.CharStorage", DType::i8},     {"torch.ByteStorage", DType::u8},
      {"torch.BoolStorage", DType::boolean}, {"torch.UInt16Storage", DType::u16}, {"torch.UInt32Storage", DType::u32},
      {"torch.UInt64Storage", DType::u64},  {"torch.float32", DType::f32},        {"torch.float", DType::f32},
      {"torch.float64", DType::f64},        {"torch.float16", DType::f16},        {"torch.half", DType::f16},
      {"torch.bfloat16", DType::bf16},      {"torch.int64", DType::i64},          {"torch.long", DType::i64},
      {"torch.int32", DType::i32},          {"torch.int16", DType::i16},          {"torch.int8", DType::i8},
      {"torch.uint8", DType::u8},           {"torch.bool", DType::boolean},       {"torch.uint16", DType::u16},
      {"torch.uint32", DType::u32},         {"torch.uint64", DType::u64}};
  const auto found = known.find(global);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

class Reader {
 public:
  Reader(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {
    if (!(file.size() >= 4 && file[0] == std::byte{'P'} && file[1] == std::byte{'K'})) {
      throw InputError(concat(path, ": not a file of torch.save in its ZIP format",
                              !file.empty() && file[0] == std::byte{0x80} ? " but a bare pickle, as PyTorch before 1.6 wrote; load and save it once with a newer one" : ""));
    }
    for (ZipEntry& entry : parse_zip(file, path)) entries_.emplace(entry.name, std::move(entry));
    const auto pickle = std::find_if(entries_.begin(), entries_.end(), [](const auto& e) { return e.first.ends_with("/data.pkl") && std::count(e.first.begin(), e.first.end(), '/') == 1; });
    if (pickle == entries_.end()) fail("the archive has no data.pkl: torch.save did not write it");
    prefix_ = pickle->first.substr(0, pickle->first.size() - std::string_view("data.pkl").size());
    if (const auto order = entries_.find(prefix_ + "byteorder"); order != entries_.end() && text_of(order->second) != "little")
      fail("its numbers are big-endian, which are not read");
    pickle_ = parse_pickle(bytes_of(pickle->second), path, allowed_names);
  }

  TorchFile read() {
    if (is_tensor(pickle_.root())) add_tensor("", "", pickle_.root());
    else walk("", "", pickle_.root(), 0);
    return std::move(out_);
  }

 private:
  using Kind = PickleKind;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError(concat(path_, ": ", parts...));
  }
  std::span<const std::byte> bytes_of(const ZipEntry& entry) const { return file_.subspan(entry.begin, entry.end - entry.begin); }
  std::string text_of(const ZipEntry& entry) const {
    const auto bytes = bytes_of(entry);
    return {reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 64)};
  }

  bool is_parameter(const PickleNode& node) const {
    return pickle_.is_a(node, "torch._utils._rebuild_parameter") || pickle_.is_a(node, "torch._utils._rebuild_parameter_with_state");
  }
  bool is_tensor(const PickleNode& node) const {
    return is_parameter(node) || pickle_.is_a(node, "torch._utils._rebuild_tensor_v2") || pickle_.is_a(node, "torch._utils._rebuild_tensor_v3");
  }

  /// A dict's or an OrderedDict's members; an OrderedDict's come after its class, arguments and state.
  std::optional<std::span<const std::uint32_t>> members(const PickleNode& node) const {
    if (node.kind == Kind::dict) return std::span(node.items);
    if (!pickle_.is_a(node, "collections.OrderedDict")) return std::nullopt;
    return std::span(node.items).subspan(std::min<std::size_t>(3, node.items.size()));
  }

  void walk(const std::string& group, const std::string& prefix, const PickleNode& node, int depth) {
    const auto inside = members(node);
    if (!inside) fail("holds a ", pickle_kind_name(node.kind), " and not tensors by name");
    if (depth > 8) fail("dicts are nested deeper than 8 at '", prefix, "'");
    for (std::size_t i = 0; i + 1 < inside->size(); i += 2) {
      const PickleNode &key = pickle_[(*inside)[i]], &value = pickle_[(*inside)[i + 1]];
      if (++visited_ > pickle_.size()) fail("a dict contains itself, or is listed over and over");
      std::string name = key.kind == Kind::text ? key.text : key.kind == Kind::integer ? std::to_string(key.integer) : "";
      if (name.empty()) fail("a key of '", prefix, "' is a ", pickle_kind_name(key.kind), "; names are wanted");
      if (!prefix.empty()) name = concat(prefix, ".", name);
      if (is_tensor(value)) add_tensor(group, name, value);
      else if (members(value)) walk(depth == 0 ? name : group, name, value, depth + 1);
      else out_.left_aside.push_back(name);
    }
  }

  std::int64_t integer(const PickleNode& node, const std::string& name, const char* what) const {
    if (node.kind != Kind::integer || node.integer < 0) fail("tensor '", name, "': ", what, " is not an integer of at least 0");
    return node.integer;
  }
  std::vector<std::int64_t> integers(const PickleNode& node, const std::string& name, const char* what) const {
    const PickleNode* tuple = &node;
    if (pickle_.is_a(node, "torch.Size") && pickle_.arguments(node).size() == 1) tuple = &pickle_[pickle_.arguments(node)[0]];
    if (tuple->kind != Kind::tuple) fail("tensor '", name, "': ", what, " is a ", pickle_kind_name(tuple->kind), "; expected a tuple");
    if (tuple->items.size() > 16) fail("tensor '", name, "': ", what, " has ", tuple->items.size(), " dimensions; at most 16 are read");
    std::vector<std::int64_t> values;
    for (const std::uint32_t item : tuple->items) values.push_back(integer(pickle_[item], name, what));
    return values;
  }

  void add_tensor(const std::string& group, const std::string& name, const PickleNode& node) {
    if (!names_.insert(name).second) fail("tensor '", name, "' is there twice");
    auto arguments = pickle_.arguments(node);
    if (is_parameter(node)) {
      if (arguments.empty() || is_parameter(pickle_[arguments[0]]) || !is_tensor(pickle_[arguments[0]])) fail("tensor '", name, "': a parameter without a tensor");
      arguments = pickle_.arguments(pickle_[arguments[0]]);
    }
    if (arguments.size() < 4) fail("tensor '", name, "' is described by ", arguments.size(), " numbers; at least 4 are wanted");
    TorchTensor tensor;
    tensor.name = name;
    tensor.group = group;
    const auto [entry, storage_dtype] = storage_of(pickle_[arguments[0]], name);
    tensor.shape = integers(pickle_[arguments[2]], name, "its shape");
    tensor.strides = integers(pickle_[arguments[3]], name, "its strides");
    if (tensor.shape.size() != tensor.strides.size()) fail("tensor '", name, "' has ", tensor.shape.size(), " sizes and ", tensor.strides.size(), " strides");
    std::optional<DType> dtype = storage_dtype;
    if (arguments.size() > 6 && pickle_[arguments[6]].kind == Kind::global) dtype = dtype_of(pickle_[arguments[6]].text);  // _rebuild_tensor_v3
    if (!dtype) fail("tensor '", name, "': its dtype is not known");
    tensor.dtype = *dtype;
    place(tensor, *entry, integer(pickle_[arguments[1]], name, "its offset"));
    tensor.storage = storage_index(*entry);
    out_.tensors.push_back(std::move(tensor));
  }

  /// ("storage", class, key, device, elements), by persistent id.
  std::pair<const ZipEntry*, std::optional<DType>> storage_of(const PickleNode& node, const std::string& name) const {
    const PickleNode* id = node.kind == Kind::persistent ? &pickle_[node.items[0]] : nullptr;
    if (id == nullptr || id->kind != Kind::tuple || id->items.size() < 5 || pickle_[id->items[0]].text != "storage")
      fail("tensor '", name, "' has no storage in this file");
    const PickleNode &type = pickle_[id->items[1]], &key = pickle_[id->items[2]];
    if (type.kind != Kind::global || key.kind != Kind::text) fail("tensor '", name, "': its storage has no name");
    const auto found = entries_.find(concat(prefix_, "data/", key.text));
    if (found == entries_.end()) fail("tensor '", name, "': its storage '", key.text, "' is not in the archive");
    return {&found->second, dtype_of(type.text)};
  }

  /// [begin, end) of the elements that shape and strides reach, in checked arithmetic.
  void place(TorchTensor& tensor, const ZipEntry& entry, std::int64_t offset) const {
    const std::uint64_t bytes = entry.end - entry.begin, size = dtype_size(tensor.dtype), limit = bytes / size;
    std::uint64_t last = 0;  // elements between the first and the last one
    bool none = false;
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
      const auto extent = static_cast<std::uint64_t>(tensor.shape[d]), stride = static_cast<std::uint64_t>(tensor.strides[d]);
      if (extent == 0) none = true;
      if (extent < 2) continue;
      if (stride != 0 && extent - 1 > (std::numeric_limits<std::uint64_t>::max() - last) / stride) fail("tensor '", tensor.name, "': its strides overflow");
      if (stride == 0 && extent > limit + 1) fail("tensor '", tensor.name, "' repeats ", extent, " times what it holds once");
      last += (extent - 1) * stride;
    }
    const auto first = static_cast<std::uint64_t>(offset);
    if (none ? first > limit : first >= limit || last >= limit - first)
      fail("tensor '", tensor.name, "' reaches to element ", first, " + ", last, " of a storage with ", limit, " elements");
    tensor.begin = entry.begin + first * size;
    tensor.end = none ? tensor.begin : tensor.begin + (last + 1) * size;
  }

  std::size_t storage_index(const ZipEntry& entry) {
    const auto [known, is_new] = storages_.emplace(entry.name, out_.storages.size());
    if (is_new) out_.storages.push_back(entry);
    return known->second;
  }

  std::span<const std::byte> file_;
  const std::string& path_;
  std::map<std::string, ZipEntry> entries_;
  std::string prefix_;  ///< "archive/"
  Pickle pickle_;
  TorchFile out_;
  std::set<std::string> names_;
  std::map<std::string, std::size_t> storages_;
  std::size_t visited_ = 0;
};

}  // namespace

bool TorchTensor::contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 0) return true;
    if (shape[d] > 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

TorchFile parse_torch_file(std::span<const std::byte> file, const std::string& path) { return Reader(file, path).read(); }

void verify_torch_file(std::span<const std::byte> file, const TorchFile& parsed, const std::string& path) {
  for (const ZipEntry& entry : parsed.storages) {
    if (entry.crc32 == 0) continue;
    const std::uint32_t found = crc32(file.subspan(entry.begin, entry.end - entry.begin));
    if (found != entry.crc32)
      throw InputError(concat(path, ": bytes ", entry.begin, " to ", entry.end, " ('", entry.name, "') have CRC-32 ", found, ", but the archive says ", entry.crc32,
                              ": the file is damaged"));
  }
}

}  // namespace tessera::format
