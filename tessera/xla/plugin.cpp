// The function table of libtessera_xla.so.

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/xla/capture/shapes.h>
#include <tessera/xla/compiled_step.h>
#include <tessera/xla/pjrt/topology.h>
#include <tessera/xla/step/compiled_training.h>
#include <tessera/xla/step/programs.h>
#include <tessera/xla/step/update_program.h>

#include <cstdlib>
#include <filesystem>

namespace tessera::xla {
namespace {

/// Whether the plug-in is XLA's CPU backend, which creates as many devices as requested. Other plug-ins refuse that
/// option, libtpu only after minutes.
bool makes_devices(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.find("cpu") != std::string::npos;
}

/// Without a TPU, libtpu searches for one for minutes. Device files of TPUs: /dev/accel0 (up to v4), /dev/vfio/0
/// (later).
void require_tpu(const std::string& path) {
  if (path.substr(path.rfind('/') + 1).find("libtpu") == std::string::npos) return;
  std::error_code ignored;
  for (const char* const folder : {"/dev", "/dev/vfio"})
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename();
      const std::string_view number = std::string_view(name).substr(name.starts_with("accel") ? 5 : 0);
      const bool numbered = !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
      if (numbered && (name.starts_with("accel") || folder == std::string_view("/dev/vfio"))) return;
    }
  throw InputError(
      "device xla: this machine has no TPU (neither /dev/accel0 nor /dev/vfio/0 exists); `tessera xla compile` needs "
      "none, and a PJRT plug-in of XLA's CPU backend runs here (docs/tpu.md)");
}

class PjrtDevices final : public Devices {
 public:
  explicit PjrtDevices(const DeviceRequest& request) : path_(find_plugin(request.plugin)) {
    const auto plugin = Plugin::load(path_);
    require_tpu(path_);
    log::info("xla: opening the devices of the PJRT plug-in ", path_);
    const int count = request.count;
    auto cache = request.cache_folder.empty() ? nullptr : std::make_unique<const ProgramCache>(request.cache_folder);
    client_ = std::make_shared<Client>(plugin, makes_devices(path_) ? std::max(1, count) : 0, std::move(cache));
    if (count > 0 && client_->devices() != count)
      throw InputError(
          concat("device xla: ", count, " devices are requested, but ", path_, " has ", client_->devices()));
  }
  int count() const override { return client_->devices(); }
  std::string describe() const override {
    return concat(count(), " x ", client_->platform(), " (PJRT plug-in ", path_, ")");
  }
  std::unique_ptr<CompiledStep> compile(torch::nn::Module& module, CompiledStep::Loss loss,
                                        TrainingOptions options) const override {
    return std::make_unique<CompiledTraining>(client_, module, std::move(loss), std::move(options));
  }

 private:
  std::string path_;
  std::shared_ptr<const Client> client_;
};

std::unique_ptr<Devices> open(const DeviceRequest& request) { return std::make_unique<PjrtDevices>(request); }

TopologyReport compile_ahead(const TopologyRequest& request, torch::nn::Module& module, const CompiledStep::Loss& loss,
                             const TrainingOptions& options) {
  setenv("TPU_SKIP_MDS_QUERY", "1", /*overwrite=*/0);  // otherwise libtpu waits minutes for the services of a TPU
                                                       // machine
  const Topology topology(Plugin::load(find_plugin(request.plugin)), request.topology);
  const int devices = topology.devices();
  for (at::Tensor parameter : module.parameters())
    parameter.set_data(without_memory(at::empty(parameter.sizes(), parameter.options().device(at::kMeta))));
  const parallel::ModuleParameters parameters = parallel::parameters_of(module);
  const std::vector<FlatUnit> units = units_of(parameters, options, devices);
  TopologyReport report{
      .devices = devices, .kind = topology.kind(), .states = bytes_of_states(units, options), .programs = {}};
  std::vector<ValueInfo> batch;
  for (const auto& [sizes, type] : request.micro_batch) batch.push_back({sizes, type});
  const std::vector<std::pair<std::string, std::string>> programs = {
      {"gradients", program_of_step(parameters, units, batch, loss, options, devices).text},
      {"norm", norm_program(units, devices, options)},
      {"update", update_program(units, devices, options)}};
  for (const auto& [name, text] : programs) {
    if (options.tell) options.tell(concat("compiling ", name, " (", text.size() >> 10, " KiB of StableHLO)"));
    const AheadOfTime compiled = topology.compile(text, compile_options(options, devices));
    report.programs.push_back({name, compiled.memory, compiled.seconds,
                               options.global ? collectives_added(compiled.optimized) : count_collectives(text)});
  }
  return report;
}

constexpr XlaPlugin plugin{.open = &open, .compile_ahead = &compile_ahead};

}  // namespace
}  // namespace tessera::xla

extern "C" const void* tessera_xla_plugin() { return &tessera::xla::plugin; }
