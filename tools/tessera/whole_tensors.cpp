#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/format/manifest/state_folder.h>
#include <tessera/format/safetensors/safetensors_index.h>
#include <tools/tessera/whole_tensors.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

namespace tessera::tool {

WholeTensors::WholeTensors(std::vector<Tensor> tensors, std::function<std::span<const std::byte>(std::size_t)> read)
    : tensors_(std::move(tensors)), read_(std::move(read)) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

const WholeTensors::Tensor* WholeTensors::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

std::uint64_t WholeTensors::bytes() const {
  std::uint64_t sum = 0;
  for (const Tensor& tensor : tensors_) sum += tensor.bytes;
  return sum;
}

WholeTensors WholeTensors::weights(const std::string& path, const std::string& stem) {
  const auto folder = std::make_shared<format::SafetensorsFolder>(path, stem);
  std::vector<Tensor> tensors;
  for (const auto& stored : folder->tensors())
    tensors.push_back({stored.info.name, stored.info.dtype, stored.info.shape, stored.info.end - stored.info.begin});
  return {std::move(tensors), [folder](std::size_t i) { return folder->bytes(folder->tensors()[i]); }};
}

WholeTensors WholeTensors::optimizer(const std::string& path) {
  const auto folder = std::make_shared<format::StateFolder>(path);
  std::vector<Tensor> tensors;
  for (const auto& stored : folder->tensors()) {
    std::uint64_t bytes = 0;
    for (const auto& piece : stored.pieces)
      bytes += static_cast<std::uint64_t>(piece.region.numel()) * format::dtype_size(stored.dtype);
    tensors.push_back({stored.name, stored.dtype, stored.shape, bytes});
  }
  auto room = std::make_shared<std::vector<std::byte>>();  // one assembled tensor
  return {std::move(tensors), [folder, room](std::size_t i) {
            const format::StoredTensor& tensor = folder->tensors()[i];
            const std::size_t size = format::dtype_size(tensor.dtype);
            const std::int64_t all = layout::whole_region(tensor.shape).numel();
            room->resize(static_cast<std::size_t>(all) * size);
            std::optional<MappedFile> file;
            folder->for_each_run(tensor, 0, all, [&](const format::StateFolder::Run& run) {
              if (!file || file->path() != run.file.path) file.emplace(run.file.path);
              const std::uint64_t begin = run.file.data_begin + run.info.begin +
                                          static_cast<std::uint64_t>(run.from) * size,
                                  bytes = static_cast<std::uint64_t>(run.count) * size;
              if (file->bytes().size() < begin + bytes)
                throw InputError(concat(run.file.path, ": became shorter while it was read"));
              std::memcpy(room->data() + static_cast<std::size_t>(run.to) * size, file->bytes().data() + begin, bytes);
            });
            return std::span<const std::byte>(*room);
          }};
}

}  // namespace tessera::tool
