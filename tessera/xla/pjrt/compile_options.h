#pragma once
/// \file
/// What a plug-in is told about compiling: xla.CompileOptionsProto, of which it takes the serialized form.

#include <map>
#include <string>

namespace tessera::xla {

struct CompileOptions {
  int replicas = 1;                        ///< devices that run the program, each with arguments of its own
  int partitions = 1;                      ///< devices over which the compiler cuts one program
  std::map<std::string, bool> flags = {};  ///< the compiler's, "xla_cpu_use_xnnpack"
};

/// As the bytes of xla.CompileOptionsProto (openxla/xla, xla/pjrt/proto/compile_options.proto): replica r of partition
/// p runs on device r * partitions + p.
std::string serialize(const CompileOptions& options);

}  // namespace tessera::xla
