#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/format/manifest/state_index.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <set>
#include <utility>

namespace tessera::format {
namespace {

constexpr const char* kPiecesWord = "tessera-pieces-1";
__extension__ using Wide = unsigned __int128;  // type for sums of sizes that each fit 63 bits

std::string text_of(Wide number) {
  if (number >> 64 == 0) return std::to_string(static_cast<std::uint64_t>(number));
  return concat("more than 2^64 (", static_cast<double>(number), ")");
}

/// Throws unless every member of the object has one of these names.
void check_keys(const Value& object, std::initializer_list<std::string_view> known, const std::string& what) {
  for (const auto& [key, value] : object.members())
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw InputError(concat(value.where().str(), ": ", what, " has an unknown key '", key, "'"));
}

std::vector<std::int64_t> parse_sizes(const Value& value) {
  std::vector<std::int64_t> sizes;
  for (const Value& item : value.items()) {
    if (item.as_int() < 0)
      throw InputError(concat(item.where().str(), ": ", item.as_int(), " is negative; a size or offset is 0 or more"));
    sizes.push_back(item.as_int());
  }
  return sizes;
}

/// The start of a message about a tensor: the place where it is listed, and its name.
std::string place(const Value& where, const std::string& name) {
  return concat(where.where().str(), ": tensor '", name, "'");
}

StoredPiece parse_piece(const Value& entry, const StoredTensor& tensor) {
  const std::string what = place(entry, tensor.name);
  check_keys(entry, {"file", "key", "begin", "end", "box"}, concat("a piece of tensor '", tensor.name, "'"));
  StoredPiece piece;
  piece.file = entry.at("file").as_string();
  if (!is_plain_file_name(piece.file) || !piece.file.ends_with(".safetensors"))
    throw InputError(
        concat(what, ": a piece is in '", piece.file, "'; it must be a .safetensors file directly inside the folder"));
  const Value* key = entry.find("key");
  piece.key = key == nullptr ? tensor.name : key->as_string();
  piece.region = {std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape, entry.at("begin").as_int(),
                  entry.at("end").as_int()};
  if (const Value* box = entry.find("box")) {
    check_keys(*box, {"offset", "shape"}, concat("a box of tensor '", tensor.name, "'"));
    piece.region.offset = parse_sizes(box->at("offset"));
    piece.region.shape = parse_sizes(box->at("shape"));
  }
  layout::check_region(piece.region, tensor.shape, what);
  return piece;
}

/// Offsets in the flattened tensor of a region's first element and after its last one; all others are in between.
std::pair<std::int64_t, std::int64_t> span_of(const layout::Region& region,
                                              const std::vector<std::int64_t>& tensor_shape) {
  const auto in_tensor = [&](std::int64_t place) {
    std::int64_t at = 0, stride = 1;
    for (std::size_t d = tensor_shape.size(); d-- > 0;) {
      at += (region.offset[d] + place % region.shape[d]) * stride;
      place /= region.shape[d];
      stride *= tensor_shape[d];
    }
    return at;
  };
  return {in_tensor(region.begin), in_tensor(region.end - 1) + 1};
}

std::string describe(const StoredPiece& piece) {
  return concat("elements [", piece.region.begin, ", ", piece.region.end, ") of '", piece.key, "' in ", piece.file);
}

/// Checks that every element of the tensor is in exactly one piece. Pieces are sorted by their first element, so only
/// pieces that begin before another one ends can overlap it; `comparisons` counts for the whole file.
void check_cover(const StoredTensor& tensor, const Value& entry, std::size_t& comparisons) {
  struct Extent {
    std::int64_t begin, end;
    const StoredPiece* piece;
  };
  std::vector<Extent> extents;
  Wide held = 0;
  for (const StoredPiece& piece : tensor.pieces) {
    if (piece.region.numel() == 0) continue;
    const auto [begin, end] = span_of(piece.region, tensor.shape);
    extents.push_back({begin, end, &piece});
    held += static_cast<Wide>(piece.region.numel());
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (std::size_t i = 0; i < extents.size(); ++i) {
    for (std::size_t j = i + 1; j < extents.size() && extents[j].begin < extents[i].end; ++j) {
      if (++comparisons > kMostComparisons)
        throw InputError(concat(place(entry, tensor.name), ": its boxes need more than ", kMostComparisons,
                                " comparisons to check"));
      if (layout::have_common_elements(tensor.shape, extents[i].piece->region, extents[j].piece->region))
        throw InputError(concat(place(entry, tensor.name), ": ", describe(*extents[i].piece), " and ",
                                describe(*extents[j].piece), " overlap"));
    }
  }
  const std::int64_t numel = layout::whole_region(tensor.shape).numel();
  if (held != static_cast<Wide>(numel))
    throw InputError(
        concat(place(entry, tensor.name), ": its pieces contain ", text_of(held), " of its ", numel, " elements"));
}

Wide bytes_of(const StoredTensor& tensor) {
  return static_cast<Wide>(layout::whole_region(tensor.shape).numel()) * dtype_size(tensor.dtype);
}

StoredTensor parse_tensor(const std::string& name, const Value& entry) {
  check_keys(entry, {"dtype", "shape", "pieces"}, concat("tensor '", name, "'"));
  StoredTensor tensor;
  tensor.name = name;
  const auto dtype = parse_dtype(entry.at("dtype").as_string());
  if (!dtype)
    throw InputError(concat(place(entry, name), ": dtype ", entry.at("dtype").as_string(), " is not supported"));
  tensor.dtype = *dtype;
  tensor.shape = parse_sizes(entry.at("shape"));
  layout::check_region({std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape, 0, 0}, tensor.shape,
                       place(entry, name));
  if (bytes_of(tensor) >> 63 != 0) throw InputError(concat(place(entry, name), " has 2^63 bytes or more"));
  for (const Value& piece : entry.at("pieces").items()) tensor.pieces.push_back(parse_piece(piece, tensor));
  return tensor;
}

void check_total_size(const Value& root, const StateIndex& index) {
  const Value* metadata = root.find("metadata");
  const Value* total = metadata == nullptr ? nullptr : metadata->find("total_size");
  if (total == nullptr) return;
  Wide bytes = 0;
  for (const StoredTensor& tensor : index.tensors) bytes += bytes_of(tensor);
  if (total->as_int() < 0 || static_cast<Wide>(total->as_int()) != bytes)
    throw InputError(concat(total->where().str(), ": total_size is ", total->as_int(), ", but the tensors have ",
                            text_of(bytes), " bytes"));
}

Value list_of(const std::vector<std::int64_t>& numbers) {
  Value list = Value::make_array();
  for (const std::int64_t number : numbers) list.push_back(Value::of(number));
  return list;
}

Value value_of(const StoredTensor& tensor) {
  Value pieces = Value::make_array();
  for (const StoredPiece& piece : tensor.pieces) {
    Value entry = Value::make_object({{"file", Value::of(piece.file)}});
    if (piece.key != tensor.name) entry.set("key", Value::of(piece.key));
    entry.set("begin", Value::of(piece.region.begin));
    entry.set("end", Value::of(piece.region.end));
    const std::vector<std::int64_t>& offset = piece.region.offset;
    if (piece.region.shape != tensor.shape ||
        std::any_of(offset.begin(), offset.end(), [](std::int64_t at) { return at != 0; }))
      entry.set("box",
                Value::make_object({{"offset", list_of(piece.region.offset)}, {"shape", list_of(piece.region.shape)}}));
    pieces.push_back(std::move(entry));
  }
  return Value::make_object({{"dtype", Value::of(dtype_name(tensor.dtype))},
                             {"shape", list_of(tensor.shape)},
                             {"pieces", std::move(pieces)}});
}

}  // namespace

StateIndex parse_state_index(std::string_view text, const std::string& path) {
  const Value root = parse_json(text, path);
  const std::string& word = root.at("format").as_string();
  if (word != kPiecesWord)
    throw InputError(
        concat(root.at("format").where().str(), ": format is '", word, "'; this program reads '", kPiecesWord, "'"));
  check_keys(root, {"format", "metadata", "tensors"}, "the index");
  StateIndex index;
  std::size_t pieces = 0, comparisons = 0;
  std::set<std::pair<std::string_view, std::string_view>> stored;  // file and key, as views into `root`
  for (const auto& [name, entry] : root.at("tensors").members()) {
    pieces += entry.at("pieces").items().size();
    if (pieces > kMostPieces)
      throw InputError(concat(entry.where().str(), ": the index lists more than ", kMostPieces, " pieces"));
    StoredTensor tensor = parse_tensor(name, entry);
    check_cover(tensor, entry, comparisons);
    for (const Value& piece : entry.at("pieces").items()) {
      const Value* key = piece.find("key");
      const std::pair<std::string_view, std::string_view> place(piece.at("file").as_string(),
                                                                key == nullptr ? name : key->as_string());
      if (!stored.insert(place).second)
        throw InputError(concat(piece.where().str(), ": '", place.second, "' in ", place.first,
                                " is listed as two pieces; each piece must be a tensor of its own"));
    }
    index.tensors.push_back(std::move(tensor));
  }
  std::sort(index.tensors.begin(), index.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  check_total_size(root, index);
  return index;
}

std::string state_index_text(const StateIndex& index) {
  std::vector<std::size_t> order(index.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return index.tensors[a].name < index.tensors[b].name; });
  Wide total = 0;
  std::string lines;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const StoredTensor& tensor = index.tensors[order[i]];
    TESSERA_CHECK(i == 0 || index.tensors[order[i - 1]].name != tensor.name, "an index of pieces: tensor '",
                  tensor.name, "' appears twice");
    total += bytes_of(tensor);
    lines += concat(i == 0 ? "\n    " : ",\n    ", dump_json(Value::of(tensor.name), -1), ": ",
                    dump_json(value_of(tensor), -1));
  }
  TESSERA_CHECK(total >> 63 == 0, "an index of pieces: its tensors have ", text_of(total), " bytes together");
  return concat("{\n  \"format\": \"", kPiecesWord, "\",\n  \"metadata\": {\"total_size\": ", text_of(total),
                "},\n  \"tensors\": {", lines, lines.empty() ? "" : "\n  ", "}\n}\n");
}

}  // namespace tessera::format
