#pragma once
/// \file
/// Finds the files of a ZeRO checkpoint (deepspeed_checkpoint.h) and the rank of each. Errors are InputErrors that name
/// the folder. Source: the names created by deepspeed/runtime/engine.py (_get_ckpt_name, _get_rank_zero_ckpt_name,
/// _get_optimizer_ckpt_name, _get_expert_ckpt_name) and runtime/pipe/module.py (ckpt_layer_path), DeepSpeed 0.19.8.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera::format::deepspeed {

/// The file in a run's folder that contains the newest tag, which is the name of the folder with the files.
inline constexpr const char* latest_file = "latest";

/// The files of a tag's folder: plain names by data-parallel rank.
struct Folder {
  std::string path;
  std::map<std::int64_t, std::string> optimizer;
  std::map<std::int64_t, std::string> model;  ///< -1: a single file for all ranks (stages 1 and 2)
};

/// `path` is for messages; `names` are all names in the folder, of which only *_states.pt are considered. Refuses files
/// from other kinds of parallelism, two files for one rank, and a folder without optimizer files.
Folder sort_states(const std::string& path, const std::vector<std::string>& names);

/// `folder`: the one with `latest`, or that of a tag. Also refuses a tag that points outside the folder.
Folder list_states(const std::string& folder);

/// Returns the path, which must be a regular file: a link could lead outside the folder, and opening a pipe would
/// block.
const std::string& require_regular(const std::string& path);

}  // namespace tessera::format::deepspeed
