#pragma once
/// \file
/// Folders of torch.distributed.checkpoint (DCP, the format of FSDP's SHARDED_STATE_DICT): `.metadata`, a pickle that
/// locates the boxes of each tensor, and `*.distcp` files, in which each box is a torch.save file of its own. Read as
/// data: no class is instantiated. Source: torch/distributed/checkpoint/{metadata,filesystem}.py.

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
  std::string file;                     ///< name of a file in the folder, without a path
  std::uint64_t begin = 0, length = 0;  ///< byte range in that file, which is a torch.save file
};

struct DcpTensor {
  std::string name;   ///< "model.h.0.attn.c_attn.weight"
  std::string group;  ///< first key of the nested dicts that were saved, e.g. "model"; "": not nested
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<DcpBox> boxes;  ///< disjoint; together they cover the tensor
};

struct DcpMetadata {
  std::vector<DcpTensor> tensors;       ///< in file order
  std::vector<std::string> left_aside;  ///< names of values that are not tensors
};

/// Parses the bytes of a `.metadata`. Checks classes and shapes (their products must fit int64), that the boxes of a
/// tensor are inside it, do not overlap and cover it, that each box has a location, and that file names are plain.
/// Throws InputError naming the tensor and the numbers.
DcpMetadata parse_dcp_metadata(std::span<const std::byte> bytes, const std::string& path);

/// A folder opened for reading, with mapped files. Immutable: any number of threads may read.
class DcpFolder {
 public:
  explicit DcpFolder(const std::string& folder);
  const DcpMetadata& metadata() const { return metadata_; }
  /// The box's elements, row-major. They are valid while this object lives. Throws InputError unless the file has the
  /// dtype and sizes given in the metadata.
  std::span<const std::byte> bytes(const DcpTensor& tensor, const DcpBox& box) const;

 private:
  void check_places();

  std::string folder_;
  DcpMetadata metadata_;
  std::map<std::string, std::unique_ptr<MappedFile>> files_;
};

}  // namespace tessera::format
