/// \file
/// tessera env: prints the information for an issue report.

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>

#include <tessera/base/error.h>
#include <tessera/base/processor.h>
#include <tessera/comm/backend_plugin.h>
#include <tessera/comm/rendezvous.h>
#include <tessera/kernels/cpu/dispatch.h>
#include <tessera/train/loop/setup.h>
#include <tessera/xla/compiled_step.h>

#include "tool.h"

namespace tessera::tool {
namespace {

void row(const std::string& name, const std::string& value) { std::printf("- %s: %s\n", name.c_str(), value.c_str()); }

std::string platform() {
  utsname name = {};
  return uname(&name) == 0 ? concat(name.sysname, " ", name.release, " ", name.machine) : "unknown";
}

std::string cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? concat(CPU_COUNT(&allowed), " usable of ", online)
                                                             : concat(online);
}

std::string cuda() {
  try {
    const int count = comm::backend_plugin("cuda").device_count();
    return concat("plug-in found, ", count, count == 1 ? " device" : " devices");
  } catch (const Error& error) {
    return concat("not available (", error.what(), ")");
  }
}

/// Does not open the device, because a TPU serves one process at a time.
std::string xla() {
  try {
    comm::plugin_table("xla", "tessera_xla_plugin", xla::XlaPlugin::current_abi);
  } catch (const Error& error) {
    return concat("not available (", error.what(), ")");
  }
  for (const char* const name : {"TESSERA_PJRT_PLUGIN", "TPU_LIBRARY_PATH"})
    if (const char* const path = std::getenv(name); path != nullptr && *path != '\0')
      return concat("plug-in found, for the PJRT plug-in ", path, " (", name, ")");
  return "plug-in found, but no PJRT plug-in is configured (TPU_LIBRARY_PATH: docs/tpu.md)";
}

}  // namespace

int env(const Arguments& arguments) {
  const Flags flags("env", arguments, {}, {"help"});
  if (flags.has("help")) {
    std::puts("tessera env: prints versions, processor features, threads and backends, for issue reports.");
    return 0;
  }
  train::set_threads(0, 1);
  row("Build", comm::build_text());
  row("Platform", platform());
  row("Processor", processor_name());
  row("Cores", cores());
  row("Memory", format_bytes(static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                             static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))));
  row("Threads per process", concat(at::get_num_threads(), " (default of a single process)"));
  row("Instruction set of our kernels", kernels::isa_name(kernels::isa()));
  row("Instruction set of LibTorch's kernels", at::get_cpu_capability());
  row("MKL", trim(split(at::get_mkl_version(), '\n').front()));
  row("oneDNN", trim(split(at::get_mkldnn_version(), '\n').front()));
  row("OpenMP", trim(split(at::get_openmp_version(), '\n').front()));
  std::vector<std::string> backends;
  for (const layout::BackendRow& backend : layout::backends())
    backends.push_back(concat(backend.name, " (", backend.rule, ")"));
  row("Backends", join(backends));
  row("CUDA", cuda());
  row("XLA", xla());
  return 0;
}

}  // namespace tessera::tool
