#pragma once
/// \file
/// config/core/: RunConfig, the table of its settings, and how flags and files become one checked configuration.
///
/// config/: one RunConfig from all of the user's settings. This header: the values of a run as plain data, by section.
/// Names are Hugging Face's (run_clm.py, TrainingArguments). Front ends (flags, variables, our files and other
/// systems') fill it through the table in fields.h, which also contains help texts, ranges and origins.

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
  FilesConfig files;                ///< configuration files
  ModelConfig model;                ///< the model to train
  DataConfig data;                  ///< training and evaluation data
  OptimizationConfig optimization;  ///< optimizer, schedule, batch sizes, precision
  ParallelConfig parallel;          ///< processes and their mesh
  ShardingConfig sharding;          ///< how states are divided
  OutputConfig output;              ///< what is written, and when
  Device device = Device::cpu;      ///< cuda and xla need their plug-ins
};

}  // namespace tessera
