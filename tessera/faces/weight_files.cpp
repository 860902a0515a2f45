#include <tessera/faces/weight_files.h>

#include <cstdio>
#include <map>
#include <utility>

#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/checkpoint/files.h>

namespace tessera::faces {

WeightFiles::WeightFiles(std::string folder, const std::vector<format::TensorSpec>& tensors, std::int64_t max_bytes)
    : folder_(std::move(folder)), files_(1) {
  std::int64_t filled = 0;
  for (const format::TensorSpec& tensor : tensors) {
    const auto size = static_cast<std::int64_t>(format::byte_size(tensor));
    if (filled > 0 && filled + size > max_bytes) {
      files_.emplace_back();
      filled = 0;
    }
    filled += size;
    total_ += size;
    file_of_.push_back(files_.size() - 1);
    files_.back().push_back(tensor);
  }
}

void WeightFiles::begin() const {
  make_folders(folder_);
  for (const std::string& name : list_folder(folder_))
    if (name == checkpoint::kWeightsFile || name == checkpoint::kWeightsIndexFile ||
        (name.starts_with("model-") && name.ends_with(".safetensors")))
      remove_tree(path_join(folder_, name));
}

void WeightFiles::put(std::size_t place, const at::Tensor& piece) {
  if (piece.numel() == 0) return;
  open(file_of_.at(place));
  file_->append(piece);
}

void WeightFiles::finish() {
  open(files_.size() - 1);
  close();
  if (files_.size() == 1) return;
  std::map<std::string, std::string> places;  // sorted, as Hugging Face writes them
  for (std::size_t i = 0; i < files_.size(); ++i)
    for (const format::TensorSpec& tensor : files_[i]) places[tensor.name] = name(i);
  Value map = Value::make_object();
  for (const auto& [tensor, file] : places) map.set(tensor, Value::of(file));
  checkpoint::write_json_file(
      folder_, checkpoint::kWeightsIndexFile,
      Value::make_object({{"metadata", Value::make_object({{"total_size", Value::of(total_)}})}, {"weight_map", map}}));
}

std::string WeightFiles::name(std::size_t i) const {
  if (files_.size() == 1) return checkpoint::kWeightsFile;
  char text[64];
  std::snprintf(text, sizeof text, "model-%05zu-of-%05zu.safetensors", i + 1, files_.size());
  return text;
}

void WeightFiles::open(std::size_t i) {
  for (; opened_ <= i; ++opened_) {
    close();
    file_.emplace(name(opened_), files_[opened_], folder_);
  }
}

void WeightFiles::close() {
  if (!file_) return;
  file_->write(folder_, /*finite=*/{}, /*cancelled=*/false);
  file_.reset();
}

}  // namespace tessera::faces
