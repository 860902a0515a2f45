/// \file
/// Loads a model folder once, in a fresh process. Prints {"seconds", "cpu_seconds", "parameters", "idle_bytes",
/// "peak_bytes"}: the time of models::load_model() alone, the resident memory before it, and the peak.
///
///   load_bench FOLDER [THREADS]
///   load_bench --idle                  {"idle_bytes"}: a process that has only loaded the library

#include <ATen/Parallel.h>
#include <tessera/base/error.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/models/load.h>
#include <tessera/train/reporting/metrics.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace tessera;

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "load_bench FOLDER [THREADS] | --idle\n"), 2;
  const std::int64_t idle = train::resident_bytes();
  if (std::strcmp(argv[1], "--idle") == 0)
    return std::printf("{\"idle_bytes\": %lld}\n", static_cast<long long>(idle)), 0;
  if (argc > 2) at::set_num_threads(std::atoi(argv[2]));
  ModelConfig config;
  config.model_name_or_path = argv[1];
  const double cpu = train::process_cpu_seconds();
  const auto begin = std::chrono::steady_clock::now();
  try {
    const auto model = models::load_model(config, 0);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::int64_t parameters = 0;
    for (const auto& p : model->parameters()) parameters += p.numel();
    std::printf(
        "{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"parameters\": %lld, \"idle_bytes\": %lld, \"peak_bytes\": "
        "%lld}\n",
        seconds, train::process_cpu_seconds() - cpu, static_cast<long long>(parameters), static_cast<long long>(idle),
        static_cast<long long>(train::peak_resident_bytes()));
  } catch (const Error& error) {
    return std::fprintf(stderr, "load_bench: %s\n", error.what()), 1;
  }
  return 0;
}
