#pragma once
/// \file
/// Folders of torch.distributed.checkpoint (DCP, what FSDP's SHARDED_STATE_DICT is): `.metadata`, a pickle that says
/// which box of which tensor lies where, and `*.distcp` files, in which each box is a file of torch.save of its own.
/// Read as data: no class is made. Source: torch/distributed/checkpoint/{metadata,filesystem}.py.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tessera/format/torch/torch_file.h>

namespace tessera::format {

/// A part of a tensor: the elements from offsets to offsets + sizes.
struct DcpBox {
  std::vector<std::int64_t> offsets, sizes;
  std::string file;                     ///< plain name in the folder
  std::uint64_t begin = 0, length = 0;  ///< bytes of that file: a file of torch.save
};

struct DcpTensor {
  std::string name;   ///< "model.h.0.attn.c_attn.weight"
  std::string group;  ///< the first key of the nested dicts that were saved: "model"; "" when they were not nested
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<DcpBox> boxes;  ///< cover the tensor, and do not overlap
};

struct DcpMetadata {
  std::vector<DcpTensor> tensors;       ///< in the file's order
  std::vector<std::string> left_aside;  ///< names of what is no tensor
};

/// Parses the bytes of a `.metadata`. Checked: the classes, shapes (their products fit int64), that the boxes of a
/// tensor lie in it, do not overlap and leave nothing out, that each has a place, that file names are plain. Throws
/// InputError naming the tensor and the numbers.
DcpMetadata parse_dcp_metadata(std::span<const std::byte> bytes, const std::string& path);

/// A folder opened for reading, its files mapped. Immutable: any number of threads may read.
class DcpFolder {
 public:
  explicit DcpFolder(const std::string& folder);
  const DcpMetadata& metadata() const { return metadata_; }
  /// The box's elements, row-major. Valid while this object lives. The file must say the dtype and sizes that the
  /// metadata says.
  std::span<const std::byte> bytes(const DcpTensor& tensor, const DcpBox& box) const;

 private:
  void check_places();

  std::string folder_;
  DcpMetadata metadata_;
  std::map<std::string, std::unique_ptr<MappedFile>> files_;
};

}  // namespace tessera::format
