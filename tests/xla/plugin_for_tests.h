#pragma once
/// \file
/// The PJRT plug-in for tests: virtual devices on the CPU.

#include <gtest/gtest.h>
#include <tessera/xla/pjrt/client.h>
#include <tests/paths.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

namespace tessera::testing {

/// TESSERA_TEST_PJRT, else the plug-in installed by tools/deps_pjrt.sh; empty if there is neither.
inline std::string cpu_plugin() {
  if (const char* const path = std::getenv("TESSERA_TEST_PJRT")) return path;
  const std::string installed = source_path(".deps/pjrt/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so");
  return std::filesystem::exists(installed) ? installed : "";
}

/// Returns this many devices, which live until the process ends: opening them takes a second.
inline std::shared_ptr<const xla::Client> cpu_devices(int count) {
  static std::map<int, std::shared_ptr<const xla::Client>> clients;
  std::shared_ptr<const xla::Client>& client = clients[count];
  if (!client) client = std::make_shared<xla::Client>(xla::Plugin::load(cpu_plugin()), count);
  return client;
}

}  // namespace tessera::testing
