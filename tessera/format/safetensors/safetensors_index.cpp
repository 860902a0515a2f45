#include <tessera/format/safetensors/safetensors_index.h>

#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/format/manifest/manifest.h>

namespace tessera::format {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".index.json";

/// "a, b, c and 12 more".
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 20;
  if (names.size() <= most) return join(names);
  return concat(join(std::span(names).first(most)), " and ", names.size() - most, " more");
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

[[noreturn]] void no_weights(const std::string& folder, const std::string& stem) {
  const bool pickled = path_exists(path_join(folder, "pytorch_model.bin")) ||
                       path_exists(path_join(folder, "pytorch_model.bin.index.json"));
  throw InputError(concat(
      folder, ": contains neither ", stem, kSuffix, " nor ", stem, kSuffix, kIndexSuffix,
      pickled ? "; its pytorch_model.bin is a pickle, which is never read here: save it again as safetensors" : ""));
}

}  // namespace

SafetensorsIndex parse_safetensors_index(std::string_view text, const std::string& path) {
  const Value root = parse_json(text, path);
  SafetensorsIndex index;
  if (const Value* metadata = root.find("metadata"); metadata != nullptr && metadata->is_object()) {
    const Value* size = metadata->find("total_size");
    if (size != nullptr && size->is_number()) {
      if (size->as_int() < 0)
        throw InputError(concat(size->where().str(), ": total_size ", size->as_int(), " is negative"));
      index.total_size = static_cast<std::uint64_t>(size->as_int());
    }
  }
  const Value& map = root.at("weight_map");
  if (map.members().empty()) throw InputError(concat(map.where().str(), ": weight_map lists no tensor"));
  for (const auto& [tensor, file] : map.members()) {
    const std::string& name = file.as_string();
    if (!is_plain_file_name(name) || !name.ends_with(kSuffix)) {
      throw InputError(concat(file.where().str(), ": tensor '", tensor, "' is in ", dump_json(file, -1),
                              ": a shard must be a .safetensors file directly inside the folder"));
    }
    index.files.push_back(name);
  }
  std::sort(index.files.begin(), index.files.end());
  index.files.erase(std::unique(index.files.begin(), index.files.end()), index.files.end());
  index.tensors.reserve(map.members().size());
  for (const auto& [tensor, file] : map.members()) {
    const auto place = std::lower_bound(index.files.begin(), index.files.end(), file.as_string());
    index.tensors.push_back({tensor, static_cast<std::size_t>(place - index.files.begin())});
  }
  return index;
}

SafetensorsFolder::SafetensorsFolder(const std::string& path, const std::string& stem) {
  if (is_directory(path)) {
    const std::string single = path_join(path, stem + std::string(kSuffix));
    const std::string index = single + std::string(kIndexSuffix);
    if (path_exists(single)) {
      open_single(single);
    } else if (path_exists(index)) {
      open_sharded(index);
    } else {
      no_weights(path, stem);
    }
  } else if (!path_exists(path)) {
    throw InputError(concat(path, ": no such folder or file; expected one that contains ", stem, kSuffix));
  } else if (path.ends_with(kIndexSuffix)) {
    open_sharded(path);
  } else {
    open_single(path);
  }
  by_name_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].info.name, i);
}

void SafetensorsFolder::open_single(const std::string& path) {
  files_.emplace_back(path);
  for (const TensorInfo& info : files_[0].tensors()) tensors_.push_back({info, 0});
}

void SafetensorsFolder::open_sharded(const std::string& index_path) {
  constexpr std::uint64_t most_bytes = 256u << 20;
  sharded_ = true;
  const SafetensorsIndex index = parse_safetensors_index(read_file(index_path, most_bytes), index_path);
  const std::string folder = folder_of(index_path);
  std::vector<std::string> absent;
  for (const std::string& name : index.files)
    if (!path_exists(path_join(folder, name))) absent.push_back(name);
  if (!absent.empty())
    throw InputError(concat(index_path, ": ", absent.size(), " of the ", index.files.size(),
                            " listed shards are missing: ", some_of(absent)));
  for (const std::string& name : index.files) files_.emplace_back(path_join(folder, name));

  std::vector<std::string> lost;
  for (const auto& [tensor, file] : index.tensors) {
    if (const TensorInfo* info = files_[file].find(tensor); info != nullptr)
      tensors_.push_back({*info, file});
    else
      lost.push_back(concat("'", tensor, "' (", index.files[file], ")"));
  }
  if (!lost.empty())
    throw InputError(concat(index_path, ": ", lost.size(), lost.size() == 1 ? " tensor is" : " tensors are",
                            " not in the shard named by the index, so index and shards do not match: ", some_of(lost)));

  std::unordered_map<std::string_view, std::size_t> holder;  // views into files_, which does not change after this
  for (std::size_t i = 0; i < files_.size(); ++i) {
    for (const TensorInfo& info : files_[i].tensors()) {
      const auto [place, fresh] = holder.emplace(info.name, i);
      if (!fresh)
        throw InputError(concat(index_path, ": tensor '", info.name, "' is in two shards: ", index.files[place->second],
                                " and ", index.files[i]));
    }
  }
  if (holder.size() > index.tensors.size())
    log::warning(index_path, ": the shards contain ", holder.size(), " tensors, but the index lists ",
                 index.tensors.size(), ": the others are not read");
  if (index.total_size && *index.total_size != data_bytes())
    log::warning(index_path, ": total_size is ", *index.total_size, ", but its tensors have ", data_bytes(), " bytes");
}

std::vector<std::string> SafetensorsFolder::paths() const {
  std::vector<std::string> out;
  for (const SafetensorsFile& file : files_) out.push_back(file.path());
  return out;
}

const SafetensorsFolder::Stored* SafetensorsFolder::find(const std::string& name) const {
  const auto place = by_name_.find(name);
  return place == by_name_.end() ? nullptr : &tensors_[place->second];
}

std::span<const std::byte> SafetensorsFolder::bytes(const Stored& tensor) const {
  return files_[tensor.file].bytes(tensor.info);
}

std::uint64_t SafetensorsFolder::data_bytes() const {
  std::uint64_t total = 0;
  for (const Stored& tensor : tensors_) total += tensor.info.end - tensor.info.begin;
  return total;
}

}  // namespace tessera::format
