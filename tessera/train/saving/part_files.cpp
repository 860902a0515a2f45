#include <tessera/train/saving/part_files.h>

#include <utility>

#include <tessera/base/error.h>

namespace tessera::train {

std::size_t PartFiles::image_bytes(const std::vector<PartFile>& files) {
  std::size_t bytes = 0;
  for (const PartFile& file : files) bytes += checkpoint::ShardFile::image_bytes(file.tensors);
  return bytes;
}

PartFiles::PartFiles(std::vector<PartFile> files, std::span<std::byte> memory, const std::atomic<bool>& cancelled)
    : files_(std::move(files)), memory_(memory), cancelled_(cancelled) {}

PartFiles::PartFiles(std::vector<PartFile> files, std::string folder, const std::atomic<bool>& cancelled)
    : files_(std::move(files)), folder_(std::move(folder)), cancelled_(cancelled) {}

void PartFiles::append(const at::Tensor& piece) {
  if (piece.numel() == 0) return;
  while (!open_ || open_->full()) open_next();
  open_->append(piece);
}

const std::vector<format::ManifestFile>& PartFiles::write(const std::string& folder) {
  while (opened_ < files_.size()) open_next();
  close();
  for (checkpoint::ShardFile& file : full_) finish(file, folder);
  return written_;
}

void PartFiles::open_next() {
  close();
  TESSERA_CHECK(opened_ < files_.size(), "more elements than the ", files_.size(), " files of this rank hold");
  const PartFile& file = files_[opened_++];
  if (kept()) {
    const std::size_t bytes = checkpoint::ShardFile::image_bytes(file.tensors);
    open_.emplace(file.name, file.tensors, memory_.first(bytes));
    memory_ = memory_.subspan(bytes);
  } else {
    open_.emplace(file.name, file.tensors, folder_);
  }
}

void PartFiles::close() {
  if (!open_) return;
  if (kept())
    full_.push_back(std::move(*open_));
  else
    finish(*open_, folder_);
  open_.reset();
}

void PartFiles::finish(checkpoint::ShardFile& file, const std::string& folder) {
  written_.push_back(file.write(folder, files_[written_.size()].finite, cancelled_));
  bytes_ += file.bytes();
  seconds_ += file.times().write;
}

}  // namespace tessera::train
