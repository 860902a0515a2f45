#pragma once
/// \file
/// Files of torch.save (zip format, PyTorch 1.6 and newer): a ZIP archive with NAME/data.pkl, which describes the object, and
/// NAME/data/KEY, the bytes of each storage. Read as data (pickle.h): no class is made and no code runs.
/// Source: torch/serialization.py (_save), torch/_utils.py (_rebuild_tensor_v2 and its like).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/format/safetensors.h>
#include <tessera/format/zip.h>

namespace tessera::format {

struct TorchTensor {
  std::string name;                   ///< keys of nested dicts, joined by '.'; "" when the file is a tensor
  std::string group;                  ///< the first of several keys: "model" of "model.h.0.bias"; "" for a name of one key
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< in elements, none negative
  std::uint64_t begin = 0, end = 0;   ///< bytes of the file, from the tensor's first element to the last one that its strides reach
  std::size_t storage = 0;            ///< tensors with one storage share memory (tied weights)
  bool contiguous() const;            ///< row-major without gaps: [begin, end) is the tensor
};

struct TorchFile {
  std::vector<TorchTensor> tensors;     ///< in the order of the dicts
  std::vector<std::string> left_aside;  ///< names of what is no tensor: numbers, texts, lists
  std::vector<ZipEntry> storages;       ///< by TorchTensor::storage
};

/// Parses the archive that `file` is; `path` is for messages. Accepted roots: a tensor, a dict of tensors, dicts of dicts (at most 8 deep).
/// Everything is checked against the bytes that are there. Classes other than tensors, parameters, storages, OrderedDict and Size end the
/// reading, as files of older formats do. Throws InputError naming the tensor, the rule and the numbers.
TorchFile parse_torch_file(std::span<const std::byte> file, const std::string& path);

/// Whether the storages' bytes have the checksums that the archive lists (entries with checksum 0 were written without); throws InputError.
void verify_torch_file(std::span<const std::byte> file, const TorchFile& parsed, const std::string& path);

}  // namespace tessera::format
