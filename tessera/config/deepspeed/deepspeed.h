#pragma once
/// \file
/// config/deepspeed/: front end for DeepSpeed's JSON (--deepspeed, --deepspeed_config, tessera::initialize); it only
/// translates keys into our settings.
///
/// Names, types and defaults: deepspeed/runtime/{config,precision_config,lr_schedules}.py and
/// deepspeed/runtime/zero/config.py; "auto": transformers/integrations/deepspeed.py. Sections present in the file have
/// DeepSpeed's meaning, with its defaults where those change the computation (fp16's loss scale, the optimizer's
/// learning rate) or depend on the stage (overlap_comm). Absent sections leave our settings unchanged. Unlike in
/// DeepSpeed, every unknown key is a problem, at any level.

#include <tessera/config/core/translation.h>

#include <cstdint>
#include <span>
#include <string>

namespace tessera::config {

/// `given`: a file's name (JSON or HJSON: base/json/json_lenient.h), a JSON object, or one in base64 (URL-safe or
/// not). `so_far`: the settings from all other sources. "auto" takes its value from there for the keys in Hugging
/// Face's table, by its rules; any other "auto" leaves the default. A value that differs from an explicit one in
/// `so_far` (neither default nor derived) is a problem in Hugging Face's words, "- ds KEY=V vs hf NAME=V"; all are
/// listed, and values are compared by meaning ("8" equals 8, 2e8 equals 200000000). The batch sizes are inferred from
/// each other with the number of processes in `so_far` (0: one). One note names the keys without effect, with reasons.
Translation read_deepspeed(const std::string& given, const Resolved& so_far, Problems& problems);

/// For custom programs (tessera::initialize): the file and the number of processes are all that is known. "auto" means
/// DeepSpeed's default. As in DeepSpeed, train_batch_size or train_micro_batch_size_per_gpu is required.
Resolved resolve_deepspeed(const std::string& given, std::int64_t world_size, Problems& problems);

/// Parses the object from any of these forms. Throws InputError.
Value deepspeed_object(const std::string& given);

/// How each key is handled: "zero_optimization.stage" -> zero_stage. A section has a row of its own if the row applies
/// to all of it.
std::span<const KeyRow> deepspeed_rows();

}  // namespace tessera::config
