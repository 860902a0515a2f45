/// \file The part of tessera xla compile that needs tensors.

#include <cstdio>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/comm/backend_plugin.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/config/rules/validate_xla.h>
#include <tessera/models/load.h>
#include <tessera/train/core/precision.h>
#include <tessera/train/loop/compiled_run.h>
#include <tools/tessera/take_flag.h>

#include "tool.h"

namespace tessera::tool {
namespace {

Value to_value(const xla::TopologyReport& report, const std::string& topology) {
  Value programs = Value::make_array();
  for (const xla::ProgramReport& p : report.programs) {
    Value program = Value::make_object();
    program.set("name", Value::of(p.name));
    for (const auto& [name, number] : {std::pair{"argument_bytes", p.memory.arguments},
                                       {"result_bytes", p.memory.results},
                                       {"shared_bytes", p.memory.shared},
                                       {"temporary_bytes", p.memory.temporary},
                                       {"all_gathers", std::int64_t{p.collectives.gathers}},
                                       {"reduce_scatters", std::int64_t{p.collectives.reduce_scatters}},
                                       {"all_reduces", std::int64_t{p.collectives.all_reduces}}})
      program.set(name, Value::of(number));
    program.set("compile_seconds", Value::of(p.seconds));
    programs.push_back(std::move(program));
  }
  Value value = Value::make_object();
  value.set("topology", Value::of(topology));
  value.set("devices", Value::of(std::int64_t{report.devices}));
  value.set("kind", Value::of(report.kind));
  value.set("state_bytes", Value::of(report.states));
  value.set("programs", std::move(programs));
  return value;
}

void print(const xla::TopologyReport& report, const std::string& topology) {
  const auto bytes = [](std::int64_t n) { return format_bytes(static_cast<std::uint64_t>(n)); };
  std::printf("%s: %d x %s, on each of them:\n", topology.c_str(), report.devices, report.kind.c_str());
  std::printf("parameters, gradients and the optimizer's states: %s\n", bytes(report.states).c_str());
  std::printf("%-10s %12s %12s %8s %14s %11s %9s\n", "program", "arguments", "temporary", "gathers", "reduce-scatters",
              "all-reduces", "compiled");
  for (const xla::ProgramReport& p : report.programs)
    std::printf("%-10s %12s %12s %8d %14d %11d %7.1f s\n", p.name.c_str(), bytes(p.memory.arguments).c_str(),
                bytes(p.memory.temporary).c_str(), p.collectives.gathers, p.collectives.reduce_scatters,
                p.collectives.all_reduces, p.seconds);
  std::int64_t peak = 0;  // the optimizer's states stay in memory while gradients are computed
  for (const xla::ProgramReport& p : report.programs)
    if (p.name == "gradients") peak = report.states + p.memory.temporary;
  std::printf("at the fullest moment: %s\n", bytes(peak).c_str());
}

}  // namespace

int xla_compile(const Arguments& given) {
  Arguments arguments = given;
  xla::TopologyRequest request;
  request.topology = take_flag(arguments, "tessera xla compile", "topology").value_or("");
  if (request.topology.empty())
    throw InputError("tessera xla compile: --topology is missing; set it, for example to v5e:2x2");
  const bool json = take_switch(arguments, "json");
  arguments.insert(arguments.end(), {"--device", "xla"});
  config::Problems problems;
  const config::Resolved resolved = config::resolve_flags(arguments, problems);
  config::validate_xla(resolved, problems);
  config::throw_if_any(problems);
  const RunConfig& config = resolved.values;
  if (config.parallel.xla_devices > 0)
    throw InputError("tessera xla compile: --topology determines the number of devices; remove --xla_devices");
  if (config.model.lora_r > 0)
    throw InputError(
        "tessera xla compile: adapters are not supported; remove --lora_r (training the whole model needs more "
        "memory)");
  std::string weights_folder;  // not read: the compiler needs only sizes
  const auto model = models::load_model_deferred(config.model, 0, weights_folder);
  train::check_compilable(*model, nullptr);
  model->train();
  const std::int64_t length = config.data.block_size > 0 ? config.data.block_size : model->max_positions();
  const std::int64_t rows = config.optimization.per_device_train_batch_size;
  request.plugin = config.parallel.pjrt_plugin;
  request.micro_batch = {{{rows, length}, at::kLong}, {{rows, length}, at::kLong}, {{}, at::kFloat}};
  const xla::TopologyReport report = comm::plugin_table<xla::XlaPlugin>("xla").compile_ahead(
      request, *model, train::compiled_loss(*model, train::training_precision(config), /*padded=*/false),
      train::compiled_options(config, *model));
  if (json)
    std::puts(dump_json(to_value(report, request.topology), 1).c_str());
  else
    print(report, request.topology);
  return 0;
}

}  // namespace tessera::tool
