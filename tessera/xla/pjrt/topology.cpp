#include <tessera/xla/pjrt/topology.h>

#include <tessera/base/clock.h>
#include <tessera/xla/pjrt/call.h>

namespace tessera::xla {

Topology::Topology(std::shared_ptr<const Plugin> plugin, const std::string& name) : plugin_(std::move(plugin)) {
  const PJRT_Api& api = plugin_->api();
  auto create = arguments<PJRT_TopologyDescription_Create_Args>(PJRT_TopologyDescription_Create_Args_STRUCT_SIZE);
  create.topology_name = name.data();
  create.topology_name_size = name.size();
  call(*plugin_, api.PJRT_TopologyDescription_Create, create, concat("describing the topology ", name));
  topology_ = create.topology;
  auto list = arguments<PJRT_TopologyDescription_GetDeviceDescriptions_Args>(
      PJRT_TopologyDescription_GetDeviceDescriptions_Args_STRUCT_SIZE);
  list.topology = topology_;
  call(*plugin_, api.PJRT_TopologyDescription_GetDeviceDescriptions, list, "asking for a topology's devices");
  devices_ = static_cast<int>(list.num_descriptions);
  if (devices_ == 0) return;
  auto ask = arguments<PJRT_DeviceDescription_Kind_Args>(PJRT_DeviceDescription_Kind_Args_STRUCT_SIZE);
  ask.device_description = const_cast<PJRT_DeviceDescription*>(list.descriptions[0]);
  call(*plugin_, api.PJRT_DeviceDescription_Kind, ask, "asking for a device's kind");
  kind_.assign(ask.device_kind, ask.device_kind_size);
}

Topology::~Topology() {
  auto destroy = arguments<PJRT_TopologyDescription_Destroy_Args>(PJRT_TopologyDescription_Destroy_Args_STRUCT_SIZE);
  destroy.topology = topology_;
  plugin_->api().PJRT_TopologyDescription_Destroy(&destroy);
}

AheadOfTime Topology::compile(const std::string& text, const CompileOptions& options) const {
  const std::string bytes = serialize(options);
  auto program = program_of(text);
  auto compile = arguments<PJRT_Compile_Args>(PJRT_Compile_Args_STRUCT_SIZE);
  compile.topology = topology_;
  compile.program = &program;
  compile.compile_options = bytes.data();
  compile.compile_options_size = bytes.size();
  const std::int64_t begin = monotonic_ns();
  call(*plugin_, plugin_->api().PJRT_Compile, compile, "compiling a program");
  AheadOfTime result;
  result.seconds = static_cast<double>(monotonic_ns() - begin) * 1e-9;
  const auto free = [this](PJRT_Executable* executable) { destroy(*plugin_, executable); };
  const std::unique_ptr<PJRT_Executable, decltype(free)> executable(compile.executable, free);
  result.memory = memory_of(*plugin_, executable.get());
  result.optimized = optimized_of(*plugin_, executable.get());
  return result;
}

}  // namespace tessera::xla
