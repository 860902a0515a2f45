/// \file
/// tessera train, inside a rank: joins the job, trains, leaves. train_command has checked the arguments already.

#include <tessera/base/text.h>
#include <tessera/comm/world.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/resolve.h>
#include <tessera/launch/cli/job_variables.h>
#include <tessera/train/loop/trainer.h>

#include "tool.h"

namespace tessera::tool {
namespace {

/// Every setting but those that hosts may differ in.
comm::Facts settings_of(const RunConfig& config) {
  comm::Facts facts;
  for (const config::Field& field : config::fields()) {
    if (field.name == "num_processes" || field.name == "threads_per_process" || field.name == "main_process_port")
      continue;
    facts.emplace_back(concat("--", field.name), dump_json(field.get(config)));
  }
  return facts;
}

}  // namespace

int train_rank(const Arguments& given) {
  Arguments arguments = given;
  const launch::RankEnvironment environment = launch::read_rank_environment(&arguments);
  config::Resolved resolved = config::resolve_flags(arguments, launch::job_variables(environment));
  config::Resolved as_at_first = resolved;  // a restarted rank finds what its own job has written
  if (environment.generation > 0) as_at_first.values.output.overwrite_output_dir = true;
  config::validate(as_at_first);
  const RunConfig& config = resolved.values;
  InitOptions options;
  options.backend = config.parallel.backend;
  options.device = config.device;
  options.timeout_seconds = config.parallel.ddp_timeout;
  options.fingerprint = settings_of(config);
  init(environment, options);
  const ExitCode code = train::train(config, config::to_value(resolved));
  shutdown();
  return static_cast<int>(code);
}

}  // namespace tessera::tool
