#include <tessera/format/torch/torch_to_hf.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/format/torch/dcp.h>
#include <tessera/format/torch/torch_file.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <tuple>

namespace tessera::format {
namespace {

constexpr const char* weights_file = "pytorch_model.bin";
constexpr const char* index_file = "pytorch_model.bin.index.json";

std::uint64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::uint64_t all = 1;
  for (const std::int64_t n : shape) all *= static_cast<std::uint64_t>(n);  // readers have checked that the number fits
  return all;
}

/// An open torch.save file with its parsed description; each storage is verified once.
struct OpenFile {
  explicit OpenFile(const std::string& path)
      : mapping(path), parsed(parse_torch_file(mapping.bytes(), path)), verified(parsed.storages.size(), false) {}
  MappedFile mapping;
  TorchFile parsed;
  std::vector<bool> verified;

  std::span<const std::byte> bytes(const TorchTensor& tensor) {
    if (!verified[tensor.storage]) {
      TorchFile one;
      one.storages.push_back(parsed.storages[tensor.storage]);
      verify_torch_file(mapping.bytes(), one, mapping.path());
      verified[tensor.storage] = true;
    }
    return mapping.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
  }
};

/// Row-major copy of a tensor with arbitrary strides.
std::vector<std::byte> packed(std::span<const std::byte> stored, const TorchTensor& tensor) {
  const std::size_t size = dtype_size(tensor.dtype);
  std::vector<std::byte> out(elements_of(tensor.shape) * size);
  std::vector<std::int64_t> index(tensor.shape.size(), 0);
  std::uint64_t at = 0;
  for (std::size_t i = 0; i * size < out.size(); ++i) {
    std::memcpy(&out[i * size], stored.data() + at * size, size);
    for (std::size_t d = index.size(); d-- > 0;) {
      at += static_cast<std::uint64_t>(tensor.strides[d]);
      if (++index[d] < tensor.shape[d]) break;
      at -= static_cast<std::uint64_t>(tensor.strides[d]) * static_cast<std::uint64_t>(tensor.shape[d]);
      index[d] = 0;
    }
  }
  return out;
}

/// Copies a box into the whole tensor.
void place(std::span<const std::byte> box_bytes, const DcpBox& box, const std::vector<std::int64_t>& shape,
           std::size_t size, std::vector<std::byte>& whole) {
  if (box_bytes.empty()) return;
  const std::size_t dims = shape.size();
  const std::uint64_t row = (dims == 0 ? 1 : static_cast<std::uint64_t>(box.sizes[dims - 1])) * size;
  std::vector<std::int64_t> index(dims, 0);
  for (std::uint64_t from = 0; from < box_bytes.size(); from += row) {
    std::uint64_t to = 0;
    for (std::size_t d = 0; d < dims; ++d)
      to = to * static_cast<std::uint64_t>(shape[d]) + static_cast<std::uint64_t>(box.offsets[d] + index[d]);
    std::memcpy(&whole[to * size], box_bytes.data() + from, row);
    for (std::size_t d = dims < 1 ? 0 : dims - 1; d-- > 0;) {
      if (++index[d] < box.sizes[d]) break;
      index[d] = 0;
    }
  }
}

/// A tensor whose group has not been determined yet.
struct Found {
  std::string name, group;
  DType dtype;
  std::vector<std::int64_t> shape;
  /// equal for tensors with the same bytes; null: not shared
  std::tuple<const void*, std::uint64_t, std::uint64_t> memory;
  std::function<std::span<const std::byte>()> bytes;
};

void add_file(const std::string& path, const std::set<std::string>* wanted, std::vector<Found>& found,
              std::vector<std::string>& left_aside) {
  const auto file = std::make_shared<OpenFile>(path);
  for (const std::string& name : file->parsed.left_aside) left_aside.push_back(name);
  for (const TorchTensor& tensor : file->parsed.tensors) {
    if (wanted != nullptr && !wanted->contains(tensor.name)) {
      left_aside.push_back(tensor.name);
      continue;
    }
    const auto buffer = std::make_shared<std::vector<std::byte>>();
    found.push_back({tensor.name.empty() ? "weight" : tensor.name,
                     tensor.group,
                     tensor.dtype,
                     tensor.shape,
                     {tensor.contiguous() && tensor.begin != tensor.end ? file->mapping.bytes().data() : nullptr,
                      tensor.begin, tensor.end},
                     [file, &tensor, buffer] {
                       const auto stored = file->bytes(tensor);
                       if (tensor.contiguous()) return stored;
                       *buffer = packed(stored, tensor);
                       return std::span<const std::byte>(*buffer);
                     }});
  }
}

void add_index(const std::string& folder, std::vector<Found>& found, std::vector<std::string>& left_aside) {
  const Value index = read_json(path_join(folder, index_file));
  std::map<std::string, std::set<std::string>> by_file;
  for (const auto& [tensor, file] : index.at("weight_map").members()) {
    if (!is_plain_file_name(file.as_string()))
      throw InputError(
          concat(file.where().str(), ": '", file.as_string(), "' is not the plain name of a file in this folder"));
    by_file[file.as_string()].insert(tensor);
  }
  for (const auto& [file, tensors] : by_file) {
    const std::size_t before = found.size();
    const std::string path = path_join(folder, file);
    if (!path_exists(path)) throw InputError(concat(path, ": listed in ", index_file, ", but does not exist"));
    add_file(path, &tensors, found, left_aside);
    if (found.size() - before != tensors.size()) {
      std::set<std::string> missing = tensors;
      for (std::size_t i = before; i < found.size(); ++i) missing.erase(found[i].name);
      throw InputError(concat(path, ": tensor '", *missing.begin(), "' (and ", missing.size() - 1, " more) of ",
                              index_file, " is missing"));
    }
  }
}

void add_dcp(const std::string& folder, std::vector<Found>& found, std::vector<std::string>& left_aside) {
  const auto dcp = std::make_shared<DcpFolder>(folder);
  for (const std::string& name : dcp->metadata().left_aside) left_aside.push_back(name);
  for (const DcpTensor& tensor : dcp->metadata().tensors) {
    const auto buffer = std::make_shared<std::vector<std::byte>>();
    found.push_back({tensor.name, tensor.group, tensor.dtype, tensor.shape, {nullptr, 0, 0}, [dcp, &tensor, buffer] {
                       buffer->assign(elements_of(tensor.shape) * dtype_size(tensor.dtype), std::byte{});
                       for (const DcpBox& box : tensor.boxes)
                         place(dcp->bytes(tensor, box), box, tensor.shape, dtype_size(tensor.dtype), *buffer);
                       return std::span<const std::byte>(*buffer);
                     }});
  }
}

/// Returns "" if nothing is nested.
std::string choose_group(const std::vector<Found>& found, const std::string& wanted, const std::string& path) {
  std::set<std::string> groups;
  for (const Found& tensor : found) groups.insert(tensor.group);
  groups.erase("");
  if (!wanted.empty()) {
    if (groups.contains(wanted)) return wanted;
    throw InputError(concat(
        path, ": --group ", wanted, ": no such group; ",
        groups.empty() ? "its tensors are not grouped"
                       : concat("the groups are ", join(std::vector<std::string>(groups.begin(), groups.end())))));
  }
  std::vector<std::string> usual;
  for (const char* name : {"model", "module", "state_dict", "model_state_dict"})
    if (groups.contains(name)) usual.emplace_back(name);
  if (usual.size() == 1) return usual[0];
  if (groups.empty() ||
      std::any_of(found.begin(), found.end(), [](const Found& t) { return t.group.empty() && !t.shape.empty(); }))
    return "";
  if (groups.size() == 1) return *groups.begin();
  throw InputError(concat(path, " contains the groups ", join(std::vector<std::string>(groups.begin(), groups.end())),
                          "; choose the weights with --group NAME"));
}

}  // namespace

bool is_torch_weights(const std::string& path) {
  if (is_directory(path))
    return path_exists(path_join(path, ".metadata")) || path_exists(path_join(path, weights_file)) ||
           path_exists(path_join(path, index_file));
  const std::string lower = to_lower(path);
  return lower.ends_with(".bin") || lower.ends_with(".pt") || lower.ends_with(".pth");
}

TorchWeights read_torch_weights(const std::string& path, const std::string& group, bool keep_tied) {
  TorchWeights out;
  std::vector<Found> found;
  if (!is_directory(path))
    add_file(path, nullptr, found, out.left_aside);
  else if (path_exists(path_join(path, ".metadata")))
    add_dcp(path, found, out.left_aside);
  else if (path_exists(path_join(path, index_file)))
    add_index(path, found, out.left_aside);
  else if (path_exists(path_join(path, weights_file)))
    add_file(path_join(path, weights_file), nullptr, found, out.left_aside);
  else
    throw InputError(concat(path, ": contains neither ", weights_file, " nor ", index_file,
                            " nor the .metadata of torch.distributed.checkpoint"));

  out.group = choose_group(found, group, path);
  std::map<std::tuple<const void*, std::uint64_t, std::uint64_t>, std::string> memories;
  std::set<std::string> names;
  for (Found& tensor : found) {
    if (tensor.group != out.group) {
      out.left_aside.push_back(tensor.name);
      continue;
    }
    std::string name = out.group.empty() ? tensor.name : tensor.name.substr(out.group.size() + 1);
    if (!names.insert(name).second) throw InputError(concat(path, ": tensor '", name, "' appears twice"));
    if (!keep_tied && std::get<0>(tensor.memory) != nullptr) {
      const auto [first, is_new] = memories.emplace(tensor.memory, name);
      if (!is_new) {
        out.tied.emplace_back(name, first->second);
        continue;
      }
    }
    out.parameters += elements_of(tensor.shape);
    out.bytes += elements_of(tensor.shape) * dtype_size(tensor.dtype);
    out.tensors.push_back({std::move(name), tensor.dtype, std::move(tensor.shape), std::move(tensor.bytes)});
  }
  if (out.tensors.empty()) throw InputError(concat(path, ": contains no tensors"));
  return out;
}

}  // namespace tessera::format
