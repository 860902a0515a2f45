#pragma once
/// \file
/// Compiles for devices that this machine does not have.

#include <tessera/xla/pjrt/compile_options.h>
#include <tessera/xla/pjrt/executable.h>
#include <tessera/xla/pjrt/plugin.h>

#include <memory>
#include <string>

struct PJRT_TopologyDescription;

namespace tessera::xla {

/// Result of compiling a program for a topology.
struct AheadOfTime {
  ProgramMemory memory;
  std::string optimized;
  double seconds = 0;  ///< compile time
};

/// Devices identified by name, such as libtpu's "v5e:2x2".
class Topology {
 public:
  /// Throws Error with the plug-in's text for an unknown name.
  Topology(std::shared_ptr<const Plugin> plugin, const std::string& name);
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  ~Topology();

  int devices() const { return devices_; }
  const std::string& kind() const { return kind_; }  ///< "TPU v5 lite"
  AheadOfTime compile(const std::string& text, const CompileOptions& options) const;

 private:
  std::shared_ptr<const Plugin> plugin_;
  PJRT_TopologyDescription* topology_ = nullptr;
  int devices_ = 0;
  std::string kind_;
};

}  // namespace tessera::xla
