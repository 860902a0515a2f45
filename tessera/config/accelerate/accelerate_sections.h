#pragma once
/// \file
/// The sections of accelerate's file that describe training, each translated on its own. Internal to the reader
/// (accelerate_file.cpp).

#include <tessera/config/accelerate/accelerate_file.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

/// What the functions below read from, write to and complain to.
struct AccelerateSections {
  const Value& file;
  Translator& to;
  Problems& problems;
  std::vector<std::string>& notes;  ///< about sections that another reader translates

  /// A key of a section that is given; nullptr when not.
  const Value* find(std::string_view section, std::string_view key) const {
    return find_accelerate(file, section, key);
  }
  /// A whole number from least to most; nothing when it is not given, or wrong (which is said).
  std::optional<std::int64_t> whole(std::string_view section, std::string_view key, std::int64_t least,
                                    std::int64_t most) const;
  /// true or false in any spelling; nothing when it is not given, or wrong (which is said).
  std::optional<bool> flag(std::string_view section, std::string_view key) const;
  /// One word in lower case; nothing when it is not given ("none", "null", "").
  std::optional<std::string> word(std::string_view section, std::string_view key) const;
};

/// How many processes the mesh has by parallelism_config; 1 where it says nothing.
struct AccelerateMesh {
  std::int64_t replicate = 1, shard = 1, context = 1;  ///< context: cp_size or sp_size
  const Value* replicate_from = nullptr;
  const Value* shard_from = nullptr;

  /// FSDP's shards lie over dp_shard x cp.
  std::int64_t parts() const { return shard * context; }
};
/// Checks the section and gives what it says of tensor and context parallelism; a product of the sizes other than
/// `num_processes` (0: not known) is a problem. cp_comm_strategy alltoall is a ring: PyTorch passes keys and values on
/// by it (torch/distributed/tensor/experimental/_attention.py, _AllToAllRotater).
AccelerateMesh accelerate_mesh(const AccelerateSections& sections, std::int64_t num_processes);

void translate_accelerate_fsdp(const AccelerateSections& sections, const AccelerateMesh& mesh);
void translate_accelerate_deepspeed(const AccelerateSections& sections);
void translate_accelerate_megatron(const AccelerateSections& sections);
/// fp8_config, of mixed_precision fp8.
void translate_accelerate_fp8(const AccelerateSections& sections);

}  // namespace tessera::config
