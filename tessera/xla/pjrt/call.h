#pragma once
/// \file
/// Internal to xla/pjrt: calls functions of the C API.

#include <tessera/base/error.h>
#include <tessera/xla/pjrt/plugin.h>
#include <third_party/pjrt/pjrt_c_api.h>

#include <cstddef>
#include <cstring>

namespace tessera::xla {

/// The argument struct of type T, zeroed, with the size that this header declares: newer plug-ins accept smaller
/// structs.
template <class T>
T arguments(std::size_t size) {
  T result;
  std::memset(&result, 0, sizeof result);
  result.struct_size = size;
  return result;
}

/// Calls `function` of the table. Throws Error if the plug-in lacks it or returns an error.
template <class Function, class Arguments>
void call(const Plugin& plugin, Function* function, Arguments& arguments, std::string_view what) {
  if (function == nullptr) throw Error(concat(what, ": the PJRT plug-in ", plugin.path(), " has no such function"));
  plugin.check(function(&arguments), what);
}

/// StableHLO text as an argument; `text` must outlive the call.
inline PJRT_Program program_of(const std::string& text) {
  static constexpr std::string_view format = "mlir";
  auto program = arguments<PJRT_Program>(PJRT_Program_STRUCT_SIZE);
  program.code = const_cast<char*>(text.data());
  program.code_size = text.size();
  program.format = format.data();
  program.format_size = format.size();
  return program;
}

}  // namespace tessera::xla
