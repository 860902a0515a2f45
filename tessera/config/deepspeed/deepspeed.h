#pragma once
/// \file
/// config/deepspeed/: DeepSpeed's JSON (--deepspeed, --deepspeed_config, tessera::initialize): a front end, which
/// translates keys into our settings and acts on nothing.
///
/// Names, kinds and defaults: deepspeed/runtime/{config,precision_config,lr_schedules}.py and
/// deepspeed/runtime/zero/config.py; "auto": transformers/integrations/deepspeed.py. Sections that the file has mean
/// what they mean there, with DeepSpeed's defaults where those change what is computed (fp16's loss scale, the
/// optimizer's learning rate) or are the stage's own (overlap_comm). Sections that it lacks leave our settings alone.
/// Unlike there, every unknown key is a problem, at any level.

#include <tessera/config/core/translation.h>

#include <cstdint>
#include <span>
#include <string>

namespace tessera::config {

/// `given`: the name of a file (JSON or HJSON: base/json_lenient.h), a JSON object, or one in base64 (also the url-safe
/// alphabet). `so_far`: what everything else has said. "auto" takes its values from there by Hugging Face's rules, for
/// the key that its table names; any other "auto" leaves the default. A value that differs from one which `so_far`
/// holds explicitly (neither by default nor derived) is a problem in Hugging Face's words, "- ds KEY=V
/// vs hf NAME=V"; all are listed, compared as what they mean ("8" equals 8, 2e8 equals 200000000). The batch sizes are
/// inferred from each other with the number of processes of `so_far` (0: one). Keys that
/// have no effect here are named, with reasons, in one note.
Translation read_deepspeed(const std::string& given, const Resolved& so_far, Problems& problems);

/// For programs of one's own (tessera::initialize): the file is all that is known, besides the number of processes.
/// "auto" means DeepSpeed's default; without train_batch_size and train_micro_batch_size_per_gpu that is a problem, as
/// it is there.
Resolved resolve_deepspeed(const std::string& given, std::int64_t world_size, Problems& problems);

/// The object itself that is given in one of these forms. Throws InputError.
Value deepspeed_object(const std::string& given);

/// What becomes of each key: "zero_optimization.stage" -> zero_stage. Sections stand in the table when something is
/// said of the whole.
std::span<const KeyRow> deepspeed_rows();

}  // namespace tessera::config
