#pragma once
/// \file
/// config/core/: RunConfig, the table of its settings, and how flags and files become one checked configuration.
///
/// config/: one RunConfig, however the user said it. This header: the values of a run, as plain data, by section.
/// Names are Hugging Face's (run_clm.py, TrainingArguments). Front ends (flags, variables, files of ours and of others)
/// fill it through the table in fields.h, which also holds help texts, ranges and origins. Nothing here acts.

#include <tessera/config/sections/data_config.h>
#include <tessera/config/sections/files_config.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/config/sections/optimization_config.h>
#include <tessera/config/sections/output_config.h>
#include <tessera/config/sections/parallel_config.h>
#include <tessera/config/sections/sharding_config.h>

namespace tessera {

/// All settings of a run, in the sections of --print_config.
struct RunConfig {
  FilesConfig files;                ///< files that describe the run
  ModelConfig model;                ///< what is trained
  DataConfig data;                  ///< on what
  OptimizationConfig optimization;  ///< how its weights change
  ParallelConfig parallel;          ///< by which processes
  ShardingConfig sharding;          ///< what of the states they divide
  OutputConfig output;              ///< what is written, and when
  Device device = Device::cpu;      ///< cuda and xla need their plug-ins
};

}  // namespace tessera
