#pragma once
/// \file
/// tools/tessera/: the program. main.cpp dispatches; one file per subcommand. This header declares the subcommands.
/// Each takes the arguments after its own name and returns an exit code (docs/configuration.md); errors are thrown.

#include <string>
#include <vector>

namespace tessera::tool {

using Arguments = std::vector<std::string>;

int train_command(const Arguments& arguments);       ///< resolves the configuration; launches, or loads the tensor part
int launch_command(const Arguments& arguments);      ///< tessera launch [options] PROGRAM args...
int tokenizer_command(const Arguments& arguments);   ///< tessera tokenizer train ...
int tokenize_command(const Arguments& arguments);    ///< tessera tokenize: text -> Megatron .bin/.idx
int cache_command(const Arguments& arguments);       ///< tessera cache ls|verify|rm: cached tokens
int data_command(const Arguments& arguments);        ///< tessera data stats|check|shuffle|split|merge
int checkpoint_command(const Arguments& arguments);  ///< tessera checkpoint convert|inspect ...
int config_command(const Arguments& arguments);      ///< tessera config show|check|convert ...
int bench_command(const Arguments& arguments);       ///< tessera bench comm|scaling ...
int plan_command(const Arguments& arguments);        ///< tessera plan groups: ranks of a mesh, without a job
int plan_search_command(const Arguments& arguments);     ///< tessera plan --model M --gpus 64xH100: the best plans
int plan_batch_command(const Arguments& arguments);      ///< tessera plan batch: benefits and costs of larger batches
int plan_check_command(const Arguments& arguments);      ///< tessera plan check: requirements of a run
int plan_hardware_command(const Arguments& arguments);   ///< tessera plan hardware: known devices
int plan_calibrate_command(const Arguments& arguments);  ///< tessera plan calibrate: measures this machine
int plan_schedule_command(const Arguments& arguments);   ///< tessera plan schedule: a pipeline's order, verified and
                                                         ///< drawn
int xla_command(const Arguments& arguments);             ///< tessera xla compile: for TPUs that this machine lacks
int lr_find_command(const Arguments& arguments);         ///< tessera lr-find: a learning-rate range test
int top_command(const Arguments& arguments);             ///< tessera top: watches running jobs
int doctor_command(const Arguments& arguments);          ///< tessera doctor: checks this machine before a job

/// The path of the running program.
std::string own_program();

/// Runs `name` inside libtessera_tool.so (the subcommands that need tensors: train's ranks, generate, chat, env, test,
/// bench_comm, calibrate, xla_compile) and returns its exit code. Throws Error when the library is missing or cannot be
/// loaded.
int run_with_tensors(const std::string& name, const Arguments& arguments);

}  // namespace tessera::tool
