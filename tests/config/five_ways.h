#pragma once
/// \file
/// The same run described five ways: flags, accelerate's YAML, DeepSpeed's JSON, an FSDP JSON, our own YAML. Settings
/// that a format cannot express (accelerate's has no learning rate) are given as flags.

#include <tessera/base/file.h>

#include <string>
#include <vector>

namespace tessera::config::testing {

struct Way {
  std::string name;                ///< "accelerate's YAML"
  std::vector<std::string> flags;  ///< FILE is replaced by the path of the file
  std::string file, text;          ///< its name and contents
};
struct Run {
  std::string name;
  std::vector<Way> ways;
};

/// The flags of `way`; writes its file into `folder`.
inline std::vector<std::string> flags_of(const Way& way, const std::string& folder) {
  std::vector<std::string> flags = way.flags;
  if (way.file.empty()) return flags;
  const std::string path = path_join(folder, way.file);
  write_file_atomically(path, way.text);
  for (std::string& flag : flags)
    if (flag == "FILE") flag = path;
  return flags;
}

inline std::vector<Run> runs_in_five_ways() {
  const std::vector<std::string> rate = {"--learning_rate", "0.01"}, size = {"--per_device_train_batch_size", "2"},
                                 accumulation = {"--gradient_accumulation_steps", "2"},
                                 clip = {"--max_grad_norm", "0.5"}, processes = {"--num_processes", "2"};
  const auto all = [](std::vector<std::vector<std::string>> parts) {
    std::vector<std::string> flags;
    for (const auto& part : parts) flags.insert(flags.end(), part.begin(), part.end());
    return flags;
  };
  return {
      {"full sharding",
       {{"flags", all({{"--fsdp", "full_shard"}, rate, size, accumulation, clip, processes}), "", ""},
        {"accelerate's YAML", all({{"--config_file", "FILE"}, rate, size, accumulation, clip}), "accelerate.yaml",
         "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: no\nnum_processes: "
         "2\nfsdp_config:\n"
         "  fsdp_sharding_strategy: 1\nuse_cpu: true\n"},
        {"DeepSpeed's JSON", all({{"--deepspeed", "FILE"}, processes}), "deepspeed.json",
         "{\n  \"train_batch_size\": 8, \"gradient_accumulation_steps\": 2, // the micro batch is inferred\n"
         "  \"gradient_clipping\": 0.5, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}},\n"
         "  \"zero_optimization\": {\"stage\": 3},\n}\n"},
        {"an FSDP JSON", all({{"--fsdp_config", "FILE"}, rate, size, accumulation, clip, processes}), "fsdp.json",
         "{\n  \"sharding_strategy\": \"FULL_SHARD\"\n}\n"},
        {"our own YAML",
         {"--config", "FILE"},
         "tessera.yaml",
         "learning_rate: 1e-2\nmax_grad_norm: 0.5\nsharding:\n  strategy: zero3\nparallel:\n  num_processes: "
         "2\noptimization:\n"
         "  per_device_train_batch_size: 2\n  gradient_accumulation_steps: 2\n"}}},
      {"sharded gradients and optimizer, without communication in the background",
       {{"flags", all({{"--zero_stage", "2", "--no_overlap_comm"}, rate, size, accumulation, clip, processes}), "", ""},
        {"accelerate's YAML", all({{"--config_file", "FILE", "--no_overlap_comm"}, rate, size}), "accelerate.yaml",
         "distributed_type: DEEPSPEED\nnum_processes: 2\nuse_cpu: true\ndeepspeed_config:\n  zero_stage: 2\n  "
         "gradient_accumulation_steps: 2\n"
         "  gradient_clipping: 0.5\n"},
        {"DeepSpeed's JSON", all({{"--deepspeed", "FILE"}, rate, processes}), "deepspeed.json",
         "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 2, \"gradient_clipping\": 0.5,\n"
         " \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": \"auto\"}}, \"zero_optimization\": {\"stage\": 2, "
         "\"overlap_comm\": false}}\n"},
        {"TrainingArguments",
         {"FILE"},
         "arguments.json",
         "{\"learning_rate\": 0.01, \"max_grad_norm\": 0.5, \"per_device_train_batch_size\": 2, "
         "\"gradient_accumulation_steps\": 2,\n"
         " \"num_processes\": 2, \"deepspeed\": {\"zero_optimization\": {\"stage\": 2}}}\n"},
        {"our own YAML",
         {"--config", "FILE"},
         "tessera.yaml",
         "learning_rate: 1e-2\nmax_grad_norm: 0.5\nstrategy: zero2\noverlap_comm: false\nnum_processes: "
         "2\nper_device_train_batch_size: 2\n"
         "gradient_accumulation_steps: 2\n"}}},
  };
}

}  // namespace tessera::config::testing
