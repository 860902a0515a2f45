#pragma once
/// \file
/// Compile options for a plug-in, serialized as xla.CompileOptionsProto.

#include <map>
#include <string>

namespace tessera::xla {

struct CompileOptions {
  int replicas = 1;                        ///< devices that run the program, each with its own arguments
  int partitions = 1;                      ///< devices over which the compiler partitions one program
  std::map<std::string, bool> flags = {};  ///< compiler flags, such as "xla_cpu_use_xnnpack"
};

/// Encodes xla.CompileOptionsProto (openxla/xla, xla/pjrt/proto/compile_options.proto): replica r of partition p runs
/// on device r * partitions + p.
std::string serialize(const CompileOptions& options);

}  // namespace tessera::xla
