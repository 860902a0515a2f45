#pragma once
/// \file
/// format/torch/: files written by torch.save and torch.distributed.checkpoint: pickles that are read as data.
///
/// Files of torch.save (ZIP format, PyTorch 1.6 and newer): an archive with NAME/data.pkl, which describes the object,
/// and NAME/data/KEY, the bytes of each storage. Read as data (pickle.h): no class is instantiated and no code runs.
/// Source: torch/serialization.py (_save), torch/_utils.py (_rebuild_tensor_v2 and its variants).

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tessera/format/torch/pickle.h>
#include <tessera/format/torch/zip.h>

namespace tessera::format {

struct TorchTensor {
  std::string name;   ///< keys of nested dicts, joined by '.'; "" if the file is a single tensor
  std::string group;  ///< the first of several keys: "model" for "model.h.0.bias"; "" for a name with one key
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< in elements, non-negative
  std::uint64_t begin = 0,
                end = 0;    ///< byte range in the file: all elements reachable through the strides
  std::size_t storage = 0;  ///< tensors with one storage share memory (tied weights)
  bool contiguous() const;  ///< row-major without gaps: [begin, end) is the tensor
};

/// The archive with its pickle, for readers that know which structure to expect. `file` must outlive it; each thread
/// needs its own.
class TorchArchive {
 public:
  /// `path` is for messages, `allowed` as in parse_pickle. Throws InputError.
  TorchArchive(std::span<const std::byte> file, const std::string& path, std::span<const std::string_view> allowed);

  const Pickle& pickle() const { return pickle_; }
  /// The alternating keys and values of a dict or OrderedDict; nullopt for other nodes.
  std::optional<std::span<const std::uint32_t>> members(const PickleNode& node) const;
  bool is_tensor(const PickleNode& node) const;
  /// The tensor described by the node, checked against the available bytes; `name` is for messages. Throws InputError.
  TorchTensor tensor(const PickleNode& node, const std::string& name);
  /// Reads a torch.Size or a tuple: at most 16 non-negative integers. Throws InputError.
  std::vector<std::int64_t> sizes(const PickleNode& node, const std::string& name, const char* what) const;
  const std::vector<ZipEntry>& storages() const {
    return storages_;
  }  ///< storages of the tensors so far, by TorchTensor::storage

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const;
  bool is_parameter(const PickleNode& node) const;
  std::optional<std::span<const std::uint32_t>> tensor_arguments(const PickleNode& node) const;
  std::int64_t integer(const PickleNode& node, const std::string& name, const char* what) const;
  std::pair<const ZipEntry*, std::optional<DType>> storage_of(const PickleNode& node, const std::string& name) const;
  void place(TorchTensor& tensor, const ZipEntry& entry, std::int64_t offset) const;
  std::size_t storage_index(const ZipEntry& entry);

  std::string path_;
  std::map<std::string, ZipEntry> entries_;
  std::string prefix_;  ///< "archive/"
  Pickle pickle_;
  std::map<std::string, std::size_t> storage_indices_;
  std::vector<ZipEntry> storages_;
};

struct TorchFile {
  std::vector<TorchTensor> tensors;     ///< in the order of the dicts
  std::vector<std::string> left_aside;  ///< names of values that are not tensors: numbers, texts, lists
  std::vector<ZipEntry> storages;       ///< indexed by TorchTensor::storage
};

/// Parses the archive `file`; `path` is for messages. Accepted roots: a tensor, a dict of tensors, dicts of dicts (at
/// most 8 deep). Everything is checked against the available bytes. Throws InputError naming the tensor, the rule and
/// the numbers; also for classes other than tensors, parameters, storages, OrderedDict and Size, and for files of older
/// formats.
TorchFile parse_torch_file(std::span<const std::byte> file, const std::string& path);

/// Verifies a storage's bytes against the archive's checksum (0: none); throws InputError on a mismatch.
void verify_storage(std::span<const std::byte> file, const ZipEntry& storage, const std::string& path);

/// Verifies all storages' bytes against the archive's checksums (0: written without a checksum); throws InputError on a
/// mismatch.
void verify_torch_file(std::span<const std::byte> file, const TorchFile& parsed, const std::string& path);

}  // namespace tessera::format
