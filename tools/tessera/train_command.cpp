/// \file
/// tessera train, before any tensor exists: help, --print_config, all checks; then either the agent that starts the
/// ranks, or, in a rank or with a single process, the training itself.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/system/gpu.h>
#include <tessera/base/text.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/record/resolved_text.h>
#include <tessera/config/resolve/print.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/config/resolve/validate_said.h>
#include <tessera/launch/agent/available_memory.h>
#include <tessera/launch/agent/launcher.h>
#include <tessera/launch/agent/sealed_fd.h>
#include <tessera/launch/cli/environment.h>
#include <tessera/launch/cli/job_variables.h>
#include <tessera/plan/automatic.h>
#include <tools/tessera/commands.h>
#include <tools/tessera/objects/training.h>
#include <tools/tessera/tuning/memory_check.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

namespace tessera::tool {
namespace {

/// Removes every spelling of a switch; returns whether it was given.
bool take_switch(Arguments& arguments, std::string_view underscored, std::string_view hyphened) {
  return std::erase_if(arguments, [&](const std::string& argument) {
           return argument == underscored || argument == hyphened;
         }) > 0;
}

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

/// For checks only: a restarted rank finds its own job's files in the output folder, which is not an error
/// (train/loop/restart.h describes what happens to them).
config::Resolved as_at_first(config::Resolved resolved, const launch::RankEnvironment& environment) {
  if (environment.generation > 0) resolved.values.output.overwrite_output_dir = true;
  return resolved;
}

/// --strategy auto: fills in the plan for settings that were not given. A resumed run takes the plan stored in its
/// output folder.
config::Resolved planned(const config::Resolved& resolved, const launch::RankEnvironment& environment) {
  const bool launched = environment.launcher != "none";
  const std::int64_t asked = std::max<std::int64_t>(1, resolved.values.parallel.num_processes);
  const plan::Processes processes{.world_size = launched ? environment.world_size : static_cast<int>(asked),
                                  .per_host = launched ? environment.local_world_size : static_cast<int>(asked),
                                  .free_bytes = static_cast<double>(launch::available_bytes())};
  const OutputConfig& output = resolved.values.output;
  std::optional<plan::Chosen> chosen;
  std::string note;
  if (!output.resume_from_checkpoint.empty() || environment.generation > 0)
    chosen = plan::chosen_before(resolved, path_join(output.output_dir, plan::chosen_file), processes.world_size, note);
  if (!chosen)
    chosen = plan::choose_plan(resolved, processes, [&](const config::Resolved& with) {
      config::Resolved alone = as_at_first(with, environment);
      alone.values.sharding.auto_strategy = false;  // the strategy is being determined
      config::Problems problems;
      config::validate(alone, problems);
      if (!problems.lines.empty()) return problems.lines.front();
      return config::mesh_problem(with.values, processes.world_size, processes.per_host);
    });
  if (environment.rank == 0) {
    if (!note.empty()) log::warning(note);
    for (const std::string& line : chosen->lines) log::info(line);
  }
  return std::move(chosen->resolved);
}

/// Resets `environment` to "no launcher" if RANK=0 and WORLD_SIZE=1 merely come from a shell or a pod.
config::Resolved resolve_in_job(const Arguments& arguments, launch::RankEnvironment& environment) {
  const char* handed = std::getenv("TESSERA_CONFIG_FD");
  // the agent has already resolved and checked the configuration
  if (environment.launcher == "tessera" && handed != nullptr)
    return config::resolved_from_text(
        launch::text_from_fd(static_cast<int>(parse_int(handed).value_or(-1)), "TESSERA_CONFIG_FD"));
  config::Problems problems;
  config::Resolved resolved = config::resolve_flags(arguments, problems, launch::job_variables(environment));
  const std::int64_t asked = resolved.values.parallel.num_processes;
  if (environment.world_size == 1 && !environment.unvouched.empty() && asked > 1) {
    log::info(environment.unvouched, " are in the environment of a shell or a pod: this process starts the ", asked,
              " of --num_processes");
    environment = {};
    environment.launcher = "none";
  }
  const bool launched = environment.launcher != "none";
  config::validate(as_at_first(resolved, environment), problems);
  if (launched && asked > 0 && asked != environment.world_size && !problems.doubtful.contains("num_processes")) {
    const std::string others = concat(environment.world_size, environment.world_size == 1 ? " process" : " processes");
    problems.lines.push_back(environment.unvouched.empty()
                                 ? concat("--num_processes is ", asked, " but ", environment.launcher, " has started ",
                                          others, ": set it in only one of them")
                                 : concat("--num_processes is ", asked, " but ", environment.unvouched,
                                          " in the environment make this one of ", others,
                                          ": unset RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT to start ", asked,
                                          " here (tessera launch does this automatically), or remove the flag"));
  }
  if (!problems.told().empty() && environment.rank > 0) throw Error("", ExitCode::bad_input);  // rank 0 reports it
  if (!problems.told().empty())  // the notes may explain why something is missing
    for (const std::string& line : resolved.notes) log::warning(line);
  config::throw_if_any(problems);
  if (!resolved.values.sharding.auto_strategy) return resolved;
  try {
    return planned(resolved, environment);
  } catch (const InputError&) {
    if (environment.rank > 0) throw Error("", ExitCode::bad_input);
    throw;
  }
}

int launch_ranks(const Arguments& arguments, const config::Resolved& resolved) {
  const RunConfig& config = resolved.values;
  launch::LaunchOptions options;
  options.num_processes = static_cast<int>(config.parallel.num_processes);
  options.master_port = static_cast<int>(config.parallel.main_process_port);
  options.threads_per_process = static_cast<int>(config.parallel.threads_per_process);
  options.prefix_rank0 = false;  // rank 0 draws the progress line
  options.max_restarts = static_cast<int>(config.parallel.max_restarts);
  options.hang_timeout = config.parallel.hang_timeout;
  options.configuration = config::resolved_to_text(resolved);
  options.job = "tessera train -> " + config.output.output_dir;
  std::vector<std::string> command = {own_program(), "train"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch::run(command, options);
}

}  // namespace

int train_command(const Arguments& given) {
  Arguments arguments = given;
  if (take_switch(arguments, "--help", "-h")) {
    print(config::help_text());
    return 0;
  }
  const bool print_config = take_switch(arguments, "--print_config", "--print-config");
  launch::RankEnvironment environment = launch::read_rank_environment(&arguments);
  if (print_config) {
    config::Problems problems;
    const config::Resolved resolved = config::resolve_flags(arguments, problems, launch::job_variables(environment));
    config::validate_said(resolved, problems);
    if (environment.rank > 0) return 0;  // rank 0 prints
    config::throw_if_any(problems);
    for (const std::string& line : config::unused_settings(resolved)) log::warning(line);
    print(config::print_config_json(resolved));
    return 0;
  }
  config::Resolved resolved = resolve_in_job(arguments, environment);
  fetch_objects(resolved, environment);
  const bool launched = environment.launcher != "none";
  const bool first_to_speak =
      // our agent has already printed these lines for the ranks that it starts
      launched ? environment.launcher != "tessera" && environment.rank == 0 : true;
  if (first_to_speak) {
    for (const std::string& line : config::unused_settings(resolved)) log::warning(line);
    if (const std::string line = config::unused_gpu(resolved, has_gpu_driver()); !line.empty()) log::warning(line);
  }
  const int local_ranks = launched
                              ? std::max(1, environment.local_world_size)
                              : static_cast<int>(std::max<std::int64_t>(1, resolved.values.parallel.num_processes));
  // our agent has already checked the memory for the ranks that it starts
  if (environment.launcher != "tessera" || std::getenv("TESSERA_CONFIG_FD") == nullptr)
    check_memory(resolved.values, launched ? environment.world_size : local_ranks, local_ranks, environment.rank == 0);
  return !launched && resolved.values.parallel.num_processes > 1
             ? launch_ranks(arguments, resolved)
             : run_with_tensors("train",
                                {config::resolved_to_text(resolved), concat("--local-rank=", environment.local_rank)});
}

}  // namespace tessera::tool
