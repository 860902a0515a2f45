#pragma once
/// \file
/// Compiling for devices that this machine does not have.

#include <tessera/xla/pjrt/compile_options.h>
#include <tessera/xla/pjrt/executable.h>
#include <tessera/xla/pjrt/plugin.h>

#include <memory>
#include <string>

struct PJRT_TopologyDescription;

namespace tessera::xla {

/// What compiling a program for a topology says.
struct AheadOfTime {
  ProgramMemory memory;
  std::string optimized;
  double seconds = 0;  ///< time of compiling
};

/// Devices by their name: "v5e:2x2" of libtpu.
class Topology {
 public:
  /// Throws Error with the plug-in's text for a name that it does not know.
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
