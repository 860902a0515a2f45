/// \file
/// tessera train, inside a rank: joins the job, trains, leaves. The arguments are the configuration that
/// train_command() has resolved and checked, plus --local-rank.

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/world.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/record/resolved_text.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/launch/cli/environment.h>
#include <tessera/layout/units.h>
#include <tessera/train/loop/trainer.h>

#include "tool.h"

namespace tessera::tool {
namespace {

/// Fingerprint of all settings that must be equal on all hosts.
comm::Fingerprint settings_of(const RunConfig& config) {
  comm::Fingerprint facts;
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
  const config::Resolved resolved = config::resolved_from_text(arguments.at(0));
  const RunConfig& config = resolved.values;
  InitOptions options;
  options.backend = config.parallel.backend;
  options.device = config.device == Device::xla ? Device::cpu : config.device;
  options.timeout_seconds = config.parallel.ddp_timeout;
  options.fingerprint = settings_of(config);
  init(environment, options);
  try {
    const ExitCode code = train::train(config, config::to_value(resolved));
    shutdown();
    return static_cast<int>(code);
  } catch (const InputError& error) {
    const config::Origin& from = resolved.origin("transformer_layer_cls_to_wrap");
    if (!from.is_given() || !std::string_view(error.what()).starts_with(layout::no_class_to_wrap)) throw;
    throw InputError(concat(from, ": transformer_layer_cls_to_wrap: ", error.what(),
                            "; remove the setting to wrap the model's own blocks"));
  }
}

}  // namespace tessera::tool
