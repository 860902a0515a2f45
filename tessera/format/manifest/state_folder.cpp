#include <tessera/format/manifest/state_folder.h>

#include <algorithm>
#include <map>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>

namespace tessera::format {
namespace {

// about 100 bytes per piece, so this is enough for millions of pieces
constexpr std::uint64_t longest_index = std::uint64_t{256} << 20;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += concat(i ? ", " : "", shape[i]);
  return text + "]";
}

/// The tensor in `file` that an index lists as this piece of `whole`.
TensorInfo piece_of(const SafetensorsFile& file, const StoredTensor& whole, const StoredPiece& piece,
                    const std::string& index_path) {
  const TensorInfo* info = file.find(piece.key);
  std::string problem;
  if (info == nullptr)
    problem = "is missing";
  else if (info->dtype != whole.dtype)
    problem = concat("is ", dtype_name(info->dtype));
  else if (info->shape != std::vector<std::int64_t>{piece.region.numel()})
    problem = concat("has shape ", shape_text(info->shape));
  if (problem.empty()) return *info;
  throw InputError(concat(file.path(), ": tensor '", piece.key, "' ", problem, ", but ", index_path,
                          " lists it as elements [", piece.region.begin, ", ", piece.region.end, ") of '", whole.name,
                          "', ", dtype_name(whole.dtype), ": they are not from the same checkpoint"));
}

}  // namespace

StateFolder::StateFolder(const std::string& folder, const std::string& stem) {
  const std::string whole = path_join(folder, stem + ".safetensors"), index = whole + ".index.json";
  if (path_exists(whole)) {
    open_whole(folder, stem);
  } else if (path_exists(index)) {
    open_pieces(folder, index);
  } else {
    throw InputError(concat(folder, ": contains neither ", stem, ".safetensors nor ", stem, ".safetensors.index.json"));
  }
  for (const StoredTensor& tensor : tensors_)
    if (tensor.dtype ==
        DType::boolean)  // the bytes would have to be checked, because a bool other than 0 and 1 is undefined behaviour
      throw InputError(
          concat(folder, ": tensor '", tensor.name, "' of ", stem, " is BOOL; a state must consist of numbers"));
}

void StateFolder::open_whole(const std::string& folder, const std::string& stem) {
  const std::string name = stem + ".safetensors";
  const SafetensorsFile file(path_join(folder, name));
  files_ = {{file.path(), file.data_begin()}};
  std::vector<TensorInfo> infos = file.tensors();
  std::sort(infos.begin(), infos.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (TensorInfo& info : infos) {
    tensors_.push_back({info.name, info.dtype, info.shape, {{name, info.name, layout::whole_region(info.shape)}}});
    stored_.push_back({{0, std::move(info)}});
  }
}

void StateFolder::open_pieces(const std::string& folder, const std::string& index_path) {
  in_pieces_ = true;
  tensors_ = parse_state_index(read_file(index_path, longest_index), index_path).tensors;
  struct Place {
    std::size_t tensor, piece;
  };
  std::map<std::string, std::vector<Place>> places;  // by file
  stored_.resize(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    stored_[i].resize(tensors_[i].pieces.size());
    for (std::size_t j = 0; j < tensors_[i].pieces.size(); ++j) places[tensors_[i].pieces[j].file].push_back({i, j});
  }
  std::vector<std::string> missing;
  for (const auto& [name, pieces] : places)
    if (!path_exists(path_join(folder, name))) missing.push_back(name);
  if (!missing.empty())
    throw InputError(concat(index_path, ": names ", join(missing), missing.size() == 1 ? ", which is" : ", which are",
                            " not in the folder"));
  for (const auto& [name, pieces] : places) {
    const SafetensorsFile file(path_join(folder, name));
    for (const Place& place : pieces) {
      const StoredTensor& whole = tensors_[place.tensor];
      stored_[place.tensor][place.piece] = {files_.size(),
                                            piece_of(file, whole, whole.pieces[place.piece], index_path)};
    }
    files_.push_back({file.path(), file.data_begin()});
  }
}

const StoredTensor* StateFolder::find(const std::string& name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const auto& tensor, const std::string& n) { return tensor.name < n; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

std::uint64_t StateFolder::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& pieces : stored_)
    for (const Stored& piece : pieces) sum += piece.info.end - piece.info.begin;
  return sum;
}

void StateFolder::for_each_run(const StoredTensor& tensor, const layout::Region& wanted,
                               const std::function<void(const Run&)>& visit) const {
  layout::check_region(wanted, tensor.shape, tensor.name);
  const auto& stored = stored_[static_cast<std::size_t>(&tensor - tensors_.data())];
  std::int64_t found = 0;
  for (std::size_t i = 0; i < stored.size(); ++i)
    layout::for_each_common_run(tensor.shape, tensor.pieces[i].region, wanted, [&](const layout::CommonRun& run) {
      visit({files_[stored[i].file], stored[i].info, run.from, run.to, run.count});
      found += run.count;
    });
  TESSERA_CHECK(found == wanted.numel(), tensor.name, ": ", found, " of ", wanted.numel(),
                " elements found, although the index was checked");
}

}  // namespace tessera::format
