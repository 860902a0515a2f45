#pragma once
/// \file
/// Which files a checkpoint of ZeRO (deepspeed_checkpoint.h) consists of, and whose each one is. Errors are InputErrors
/// that name the folder. Source: the names that deepspeed/runtime/engine.py makes (_get_ckpt_name,
/// _get_rank_zero_ckpt_name, _get_optimizer_ckpt_name, _get_expert_ckpt_name) and runtime/pipe/module.py
/// (ckpt_layer_path), DeepSpeed 0.19.8.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera::format::deepspeed {

/// The file in a run's folder that holds the name of the newest tag, which is that of the folder with the files.
inline constexpr const char* latest_file = "latest";

/// What a tag's folder holds: plain names by rank of data parallelism.
struct Folder {
  std::string path;
  std::map<std::int64_t, std::string> optimizer;
  std::map<std::int64_t, std::string> model;  ///< -1: the one file of all ranks (stages 1 and 2)
};

/// `path` is for messages, `names` are all that the folder holds; others than *_states.pt are passed over. Refused:
/// files of other kinds of parallelism, two files of one rank, and that there is none of an optimizer.
Folder sort_states(const std::string& path, const std::vector<std::string>& names);

/// `folder`: the one with `latest`, or that of a tag. Refused besides: a tag that leads elsewhere.
Folder list_states(const std::string& folder);

/// The path, which must be a regular file's: a link could lead out of the folder, opening a pipe would wait for ever.
const std::string& require_regular(const std::string& path);

}  // namespace tessera::format::deepspeed
