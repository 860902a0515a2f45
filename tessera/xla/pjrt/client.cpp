#include <tessera/xla/pjrt/client.h>

#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/corpus/cache/source_state.h>
#include <tessera/xla/pjrt/call.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

namespace tessera::xla {

struct Connection {
  explicit Connection(std::shared_ptr<const Plugin> plugin_of) : plugin(std::move(plugin_of)) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    if (client == nullptr) return;
    auto destroy = arguments<PJRT_Client_Destroy_Args>(PJRT_Client_Destroy_Args_STRUCT_SIZE);
    destroy.client = client;
    plugin->api().PJRT_Client_Destroy(&destroy);
  }
  const PJRT_Api& api() const { return plugin->api(); }

  std::shared_ptr<const Plugin> plugin;
  PJRT_Client* client = nullptr;
};

namespace {

struct ElementRow {
  PJRT_Buffer_Type type;
  std::size_t bytes;
};
ElementRow row_of(Element element) {
  switch (element) {
    case Element::predicate:
      return {PJRT_Buffer_Type_PRED, 1};
    case Element::int32:
      return {PJRT_Buffer_Type_S32, 4};
    case Element::int64:
      return {PJRT_Buffer_Type_S64, 8};
    case Element::float16:
      return {PJRT_Buffer_Type_F16, 2};
    case Element::bfloat16:
      return {PJRT_Buffer_Type_BF16, 2};
    case Element::float32:
      return {PJRT_Buffer_Type_F32, 4};
    case Element::float64:
      return {PJRT_Buffer_Type_F64, 8};
  }
  throw Error("an element of an unknown type");
}

/// The line of /proc/cpuinfo that lists instruction sets: XLA's CPU backend compiles for its machine's sets.
std::string processor_features() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  return "";
}

/// Calls `f` with the executable behind a loaded executable, then frees it.
template <class F>
void with_executable(const Plugin& plugin, PJRT_LoadedExecutable* loaded, const F& f) {
  auto get = arguments<PJRT_LoadedExecutable_GetExecutable_Args>(PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE);
  get.loaded_executable = loaded;
  call(plugin, plugin.api().PJRT_LoadedExecutable_GetExecutable, get, "asking for a program");
  const auto free = [&plugin](PJRT_Executable* executable) { destroy(plugin, executable); };
  const std::unique_ptr<PJRT_Executable, decltype(free)> executable(get.executable, free);
  f(executable.get());
}

}  // namespace

std::size_t bytes_of(Element element) { return row_of(element).bytes; }

// ---- Buffer ----

Buffer::Buffer(Buffer&& other) noexcept
    : connection_(std::move(other.connection_)), buffer_(std::exchange(other.buffer_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(connection_, other.connection_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

Buffer::~Buffer() {
  if (buffer_ == nullptr) return;
  auto destroy = arguments<PJRT_Buffer_Destroy_Args>(PJRT_Buffer_Destroy_Args_STRUCT_SIZE);
  destroy.buffer = buffer_;
  connection_->api().PJRT_Buffer_Destroy(&destroy);
}

std::vector<std::int64_t> Buffer::sizes() const {
  auto ask = arguments<PJRT_Buffer_Dimensions_Args>(PJRT_Buffer_Dimensions_Args_STRUCT_SIZE);
  ask.buffer = buffer_;
  call(*connection_->plugin, connection_->api().PJRT_Buffer_Dimensions, ask, "asking for an array's sizes");
  return {ask.dims, ask.dims + ask.num_dims};
}

void Buffer::read(void* data, std::size_t bytes) const {
  auto copy = arguments<PJRT_Buffer_ToHostBuffer_Args>(PJRT_Buffer_ToHostBuffer_Args_STRUCT_SIZE);
  // The device's layout need not be row-major.
  auto layout = arguments<PJRT_Buffer_MemoryLayout>(PJRT_Buffer_MemoryLayout_STRUCT_SIZE);
  std::vector<std::int64_t> order(sizes().size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(order.size() - 1 - i);
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = order.data();
  layout.tiled.minor_to_major_size = order.size();
  copy.src = buffer_;
  copy.host_layout = &layout;
  call(*connection_->plugin, connection_->api().PJRT_Buffer_ToHostBuffer, copy, "asking for an array's bytes");
  if (copy.dst_size != bytes)
    throw Error(concat("an array on a device has ", copy.dst_size, " bytes, but ", bytes, " were expected"));
  copy.dst = data;
  call(*connection_->plugin, connection_->api().PJRT_Buffer_ToHostBuffer, copy, "reading an array");
  connection_->plugin->await(copy.event, "reading an array");
}

// ---- Program ----

Program::Program(std::shared_ptr<const Connection> connection, PJRT_LoadedExecutable* program, bool from_cache)
    : connection_(std::move(connection)), program_(program), from_cache_(from_cache) {
  with_executable(*connection_->plugin, program_, [this](PJRT_Executable* executable) {
    auto ask = arguments<PJRT_Executable_NumOutputs_Args>(PJRT_Executable_NumOutputs_Args_STRUCT_SIZE);
    ask.executable = executable;
    call(*connection_->plugin, connection_->api().PJRT_Executable_NumOutputs, ask, "asking for a program's results");
    results_ = ask.num_outputs;
  });
}

Program::~Program() {
  auto destroy = arguments<PJRT_LoadedExecutable_Destroy_Args>(PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE);
  destroy.executable = program_;
  connection_->api().PJRT_LoadedExecutable_Destroy(&destroy);
}

std::vector<std::vector<Buffer>> Program::run(const std::vector<std::vector<const Buffer*>>& given) const {
  const std::size_t devices = given.size();
  std::vector<std::vector<PJRT_Buffer*>> inputs(devices), outputs(devices, std::vector<PJRT_Buffer*>(results_));
  std::vector<PJRT_Buffer* const*> input_lists(devices);
  std::vector<PJRT_Buffer**> output_lists(devices);
  std::vector<PJRT_Event*> events(devices, nullptr);
  for (std::size_t d = 0; d < devices; ++d) {
    for (const Buffer* const buffer : given[d]) inputs[d].push_back(buffer->get());
    input_lists[d] = inputs[d].data();
    output_lists[d] = outputs[d].data();
  }
  auto options = arguments<PJRT_ExecuteOptions>(PJRT_ExecuteOptions_STRUCT_SIZE);
  auto execute = arguments<PJRT_LoadedExecutable_Execute_Args>(PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE);
  execute.executable = program_;
  execute.options = &options;
  execute.argument_lists = input_lists.data();
  execute.num_devices = devices;
  execute.num_args = inputs.front().size();
  execute.output_lists = output_lists.data();
  execute.device_complete_events = events.data();
  call(*connection_->plugin, connection_->api().PJRT_LoadedExecutable_Execute, execute, "running a program");
  std::vector<std::vector<Buffer>> results(devices);
  for (std::size_t d = 0; d < devices; ++d)
    for (PJRT_Buffer* const buffer : outputs[d]) results[d].emplace_back(connection_, buffer);
  for (PJRT_Event* const event : events) connection_->plugin->await(event, "running a program");
  return results;
}

ProgramMemory Program::memory() const {
  ProgramMemory memory;
  with_executable(*connection_->plugin, program_,
                  [&](PJRT_Executable* executable) { memory = memory_of(*connection_->plugin, executable); });
  return memory;
}

std::string Program::optimized() const {
  std::string text;
  with_executable(*connection_->plugin, program_,
                  [&](PJRT_Executable* executable) { text = optimized_of(*connection_->plugin, executable); });
  return text;
}

std::string Program::serialized() const {
  std::string bytes;
  with_executable(*connection_->plugin, program_,
                  [&](PJRT_Executable* executable) { bytes = xla::serialized(*connection_->plugin, executable); });
  return bytes;
}

// ---- Client ----

Client::Client(std::shared_ptr<const Plugin> plugin, int cpu_devices, std::unique_ptr<const ProgramCache> cache)
    : cache_(std::move(cache)) {
  const auto connection = std::make_shared<Connection>(std::move(plugin));
  connection_ = connection;
  static constexpr std::string_view name = "cpu_device_count";
  auto count = arguments<PJRT_NamedValue>(PJRT_NamedValue_STRUCT_SIZE);
  count.name = name.data();
  count.name_size = name.size();
  count.type = PJRT_NamedValue_kInt64;
  count.int64_value = cpu_devices;
  count.value_size = 1;
  auto create = arguments<PJRT_Client_Create_Args>(PJRT_Client_Create_Args_STRUCT_SIZE);
  create.create_options = &count;
  create.num_options = cpu_devices > 0 ? 1 : 0;
  call(*connection_->plugin, connection_->api().PJRT_Client_Create, create, "opening the devices");
  connection->client = create.client;
  auto ask = arguments<PJRT_Client_AddressableDevices_Args>(PJRT_Client_AddressableDevices_Args_STRUCT_SIZE);
  ask.client = connection_->client;
  call(*connection_->plugin, connection_->api().PJRT_Client_AddressableDevices, ask, "asking for the devices");
  devices_.assign(ask.addressable_devices, ask.addressable_devices + ask.num_addressable_devices);
  if (cache_) compiler_ = describe_compiler();
}

std::string Client::describe_compiler() const {
  const Plugin& plugin = *connection_->plugin;
  auto version = arguments<PJRT_Client_PlatformVersion_Args>(PJRT_Client_PlatformVersion_Args_STRUCT_SIZE);
  version.client = connection_->client;
  call(plugin, plugin.api().PJRT_Client_PlatformVersion, version, "asking for the platform's version");
  // Plug-ins of the same version have loaded each other's programs and computed wrong results, so hash the file itself.
  std::string text = concat(corpus::hash_of_file(plugin.path(), std::filesystem::file_size(plugin.path())).hex(), "\n",
                            platform(), " ", std::string_view(version.platform_version, version.platform_version_size));
  for (PJRT_Device* const device : devices_) {
    auto get = arguments<PJRT_Device_GetDescription_Args>(PJRT_Device_GetDescription_Args_STRUCT_SIZE);
    get.device = device;
    call(plugin, plugin.api().PJRT_Device_GetDescription, get, "asking for a device");
    auto ask = arguments<PJRT_DeviceDescription_DebugString_Args>(PJRT_DeviceDescription_DebugString_Args_STRUCT_SIZE);
    ask.device_description = get.device_description;
    call(plugin, plugin.api().PJRT_DeviceDescription_DebugString, ask, "asking for a device's description");
    auto kind = arguments<PJRT_DeviceDescription_Kind_Args>(PJRT_DeviceDescription_Kind_Args_STRUCT_SIZE);
    kind.device_description = get.device_description;
    call(plugin, plugin.api().PJRT_DeviceDescription_Kind, kind, "asking for a device's kind");
    text += concat("\n", std::string_view(kind.device_kind, kind.device_kind_size), " ",
                   std::string_view(ask.debug_string, ask.debug_string_size));
  }
  for (const char* const name : {"XLA_FLAGS", "LIBTPU_INIT_ARGS"})
    if (const char* const value = std::getenv(name)) text += concat("\n", name, "=", value);
  if (platform() == "cpu") text += concat("\n", processor_features());
  return text;
}

std::string Client::platform() const {
  auto ask = arguments<PJRT_Client_PlatformName_Args>(PJRT_Client_PlatformName_Args_STRUCT_SIZE);
  ask.client = connection_->client;
  call(*connection_->plugin, connection_->api().PJRT_Client_PlatformName, ask, "asking for the platform");
  return {ask.platform_name, ask.platform_name_size};
}

Buffer Client::upload(const void* data, Element element, std::span<const std::int64_t> sizes, int device) const {
  auto copy = arguments<PJRT_Client_BufferFromHostBuffer_Args>(PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE);
  copy.client = connection_->client;
  copy.data = data;
  copy.type = row_of(element).type;
  copy.dims = sizes.data();
  copy.num_dims = sizes.size();
  copy.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  copy.device = devices_.at(static_cast<std::size_t>(device));
  call(*connection_->plugin, connection_->api().PJRT_Client_BufferFromHostBuffer, copy, "copying an array to a device");
  Buffer buffer(connection_, copy.buffer);
  connection_->plugin->await(copy.done_with_host_buffer, "copying an array to a device");
  return buffer;
}

std::unique_ptr<Program> Client::compile(const std::string& text, const CompileOptions& options) const {
  const std::string bytes = serialize(options);
  if (!cache_) return compile_now(text, bytes);
  const std::string key =
      ProgramCache::key_of(concat(compiler_, "\n", bytes.size(), " ", text.size(), "\n", bytes, text));
  if (const auto kept = cache_->read(key)) {
    try {
      return load(*kept);
    } catch (const Error& error) {
      cache_->compiled_again(error.what());
    }
  }
  std::unique_ptr<Program> program = compile_now(text, bytes);
  try {
    cache_->write(key, program->serialized());
  } catch (const Error& error) {
    log::warning("xla: a compiled program is not cached: ", error.what());
  }
  return program;
}

std::unique_ptr<Program> Client::load(const std::string& bytes) const {
  auto load = arguments<PJRT_Executable_DeserializeAndLoad_Args>(PJRT_Executable_DeserializeAndLoad_Args_STRUCT_SIZE);
  load.client = connection_->client;
  load.serialized_executable = bytes.data();
  load.serialized_executable_size = bytes.size();
  call(*connection_->plugin, connection_->api().PJRT_Executable_DeserializeAndLoad, load, "loading a compiled program");
  return std::make_unique<Program>(connection_, load.loaded_executable, /*from_cache=*/true);
}

std::unique_ptr<Program> Client::compile_now(const std::string& text, const std::string& options) const {
  auto program = program_of(text);
  auto compile = arguments<PJRT_Client_Compile_Args>(PJRT_Client_Compile_Args_STRUCT_SIZE);
  compile.client = connection_->client;
  compile.program = &program;
  compile.compile_options = options.data();
  compile.compile_options_size = options.size();
  call(*connection_->plugin, connection_->api().PJRT_Client_Compile, compile, "compiling a program");
  return std::make_unique<Program>(connection_, compile.executable);
}

}  // namespace tessera::xla
