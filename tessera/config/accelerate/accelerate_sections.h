#pragma once
/// \file
/// Translates the training sections of accelerate's file, each on its own. Internal to the reader
/// (accelerate_file.cpp).

#include <tessera/config/accelerate/accelerate_file.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

/// Input and outputs of the functions below.
struct AccelerateSections {
  const Value& file;
  Translator& to;
  Problems& problems;
  std::vector<std::string>& notes;  ///< notes about sections that another reader translates

  /// The value of a section's key; nullptr if absent.
  const Value* find(std::string_view section, std::string_view key) const {
    return find_accelerate(file, section, key);
  }
  /// A whole number from least to most; nullopt if absent, or invalid (which is reported).
  std::optional<std::int64_t> whole(std::string_view section, std::string_view key, std::int64_t least,
                                    std::int64_t most) const;
  /// true or false in any spelling; nullopt if absent, or invalid (which is reported).
  std::optional<bool> flag(std::string_view section, std::string_view key) const;
  /// One word in lower case; nullopt if not given ("none", "null", "").
  std::optional<std::string> word(std::string_view section, std::string_view key) const;
};

/// Sizes of the mesh from parallelism_config; 1 where not specified.
struct AccelerateMesh {
  std::int64_t replicate = 1, shard = 1, context = 1;  ///< context: cp_size or sp_size
  const Value* replicate_from = nullptr;
  const Value* shard_from = nullptr;

  /// FSDP shards over dp_shard x cp.
  std::int64_t parts() const { return shard * context; }
};
/// Checks the section and sets tensor and context parallelism; a product of sizes other than `num_processes` (0:
/// unknown) is a problem. cp_comm_strategy alltoall is a ring: PyTorch uses it to pass keys and values on
/// (torch/distributed/tensor/experimental/_attention.py, _AllToAllRotater).
AccelerateMesh accelerate_mesh(const AccelerateSections& sections, std::int64_t num_processes);

void translate_accelerate_fsdp(const AccelerateSections& sections, const AccelerateMesh& mesh);
void translate_accelerate_deepspeed(const AccelerateSections& sections);
void translate_accelerate_megatron(const AccelerateSections& sections);
/// Translates fp8_config, for mixed_precision fp8.
void translate_accelerate_fp8(const AccelerateSections& sections);

}  // namespace tessera::config
