#include <tessera/xla/pjrt/executable.h>

#include <tessera/xla/pjrt/call.h>

#include <memory>

namespace tessera::xla {

ProgramMemory memory_of(const Plugin& plugin, PJRT_Executable* executable) {
  auto ask =
      arguments<PJRT_Executable_GetCompiledMemoryStats_Args>(PJRT_Executable_GetCompiledMemoryStats_Args_STRUCT_SIZE);
  ask.executable = executable;
  call(plugin, plugin.api().PJRT_Executable_GetCompiledMemoryStats, ask, "asking for a program's memory");
  return {ask.argument_size_in_bytes, ask.output_size_in_bytes, ask.alias_size_in_bytes, ask.temp_size_in_bytes};
}

std::string optimized_of(const Plugin& plugin, PJRT_Executable* executable) {
  static constexpr std::string_view what = "asking for an optimized program";
  auto program = arguments<PJRT_Program>(PJRT_Program_STRUCT_SIZE);
  auto ask = arguments<PJRT_Executable_OptimizedProgram_Args>(PJRT_Executable_OptimizedProgram_Args_STRUCT_SIZE);
  ask.executable = executable;
  ask.program = &program;
  call(plugin, plugin.api().PJRT_Executable_OptimizedProgram, ask, what);
  std::string text(program.code_size, '\0');
  program.code = text.data();
  call(plugin, plugin.api().PJRT_Executable_OptimizedProgram, ask, what);
  return text;
}

std::string serialized(const Plugin& plugin, PJRT_Executable* executable) {
  auto ask = arguments<PJRT_Executable_Serialize_Args>(PJRT_Executable_Serialize_Args_STRUCT_SIZE);
  ask.executable = executable;
  call(plugin, plugin.api().PJRT_Executable_Serialize, ask, "asking for a compiled program's bytes");
  const std::unique_ptr<PJRT_SerializedExecutable, decltype(ask.serialized_executable_deleter)> owner(
      ask.serialized_executable, ask.serialized_executable_deleter);
  return {ask.serialized_bytes, ask.serialized_bytes_size};
}

void destroy(const Plugin& plugin, PJRT_Executable* executable) {
  auto destroy = arguments<PJRT_Executable_Destroy_Args>(PJRT_Executable_Destroy_Args_STRUCT_SIZE);
  destroy.executable = executable;
  plugin.api().PJRT_Executable_Destroy(&destroy);
}

}  // namespace tessera::xla
