/// \file
/// Loads a checkpoint like one rank of a resuming run, in a fresh process: reads its part of weights and optimizer
/// states into new memory and computes checksums, which are compared with the manifest together with the other ranks'.
/// Prints {"seconds", "weights_seconds", "states_seconds", "verdict_seconds", "cpu_seconds", "bytes", "extra_bytes"}:
/// verdict_seconds is the time after the last tensor was read, extra_bytes the peak of resident memory above the sum of
/// the process before and the loaded bytes.
///
///   resume_bench FOLDER whole|share [THREADS]     whole: holds everything (plain data parallelism)
///                                                 share: holds 1/ranks of it
///
/// The ranks come from any launcher's environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT); none: one rank.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/checkpoint/choose.h>
#include <tessera/checkpoint/read_into.h>
#include <tessera/checkpoint/stored_state.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/world.h>
#include <tessera/nn/allocator.h>
#include <tessera/parallel/replicas.h>
#include <tessera/train/core/resume.h>
#include <tessera/train/reporting/metrics.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace tessera;

namespace {

struct Part {
  int rank, ranks;
  bool whole;
  std::int64_t begin(std::int64_t numel) const { return whole ? 0 : numel * rank / ranks; }
  at::Tensor room(std::int64_t numel, format::DType dtype) const {
    const std::int64_t end = whole ? numel : numel * (rank + 1) / ranks;
    return at::empty({end - begin(numel)}, at::TensorOptions().dtype(checkpoint::scalar_type(dtype)));
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "resume_bench FOLDER whole|share [THREADS]\n"), 2;
  const std::string folder = argv[1];
  const comm::World& world = init();
  const Part part{world.rank(), world.size(), std::string(argv[2]) == "whole"};
  at::set_num_threads(argc > 3 ? std::atoi(argv[3]) : 1);
  nn::keep_memory();
  at::empty({1 << 20}).zero_();  // excludes LibTorch's own first-call cost
  const std::int64_t idle = train::resident_bytes();
  const double cpu = train::process_cpu_seconds();
  std::vector<double> times;
  std::vector<at::Tensor> held;
  std::int64_t bytes = 0;
  const auto keep = [&](at::Tensor tensor) {
    bytes += static_cast<std::int64_t>(tensor.nbytes());
    held.push_back(std::move(tensor));
  };
  const auto mark = [&] {
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
  };
  try {
    const checkpoint::Ranks ranks = train::examiners(world.group());
    comm::all_gather_text(world.group(), "ready");
    mark();
    if (checkpoint::examine(folder, ranks, checkpoint::Depth::small_files).kind != checkpoint::Finding::Kind::whole)
      throw InputError("damaged");
    checkpoint::Examination examination(folder, ranks);
    mark();
    const format::SafetensorsFolder weights(folder);
    std::vector<checkpoint::PieceReader> readers;
    for (const format::SafetensorsFile& file : weights.files()) readers.emplace_back(file, examination.sums());
    // In the order of the model's units, in which the engine requests them: this is the order within each file.
    auto order = weights.tensors();
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.info.begin < b.info.begin; });
    for (const auto& stored : order) {
      const std::int64_t numel = layout::whole_region(stored.info.shape).numel();
      keep(part.room(numel, stored.info.dtype));
      readers[stored.file].read(stored.info, part.begin(numel), held.back());
    }
    mark();
    const checkpoint::StoredState states(folder, examination.sums());
    for (const auto& tensor : states.tensors()) {
      const std::int64_t numel = layout::whole_region(tensor.shape).numel();
      keep(part.room(numel, tensor.dtype));
      states.read(tensor.name, part.begin(numel), held.back());
    }
    mark();
    const checkpoint::Finding finding = examination.finish();
    if (finding.kind != checkpoint::Finding::Kind::whole) throw InputError(finding.text);
    mark();
  } catch (const Error& error) {
    return std::fprintf(stderr, "resume_bench: %s\n", error.what()), 1;
  }
  shutdown();
  const auto number = [](double value) { return Value::of(value); };
  std::printf("%s\n",
              dump_json(Value::make_object({{"seconds", number(times[4] - times[0])},
                                            {"verdict_seconds", number(times[4] - times[3])},
                                            {"weights_seconds", number(times[2] - times[1])},
                                            {"states_seconds", number(times[3] - times[2])},
                                            {"cpu_seconds", number(train::process_cpu_seconds() - cpu)},
                                            {"bytes", Value::of(bytes)},
                                            {"extra_bytes", Value::of(train::peak_resident_bytes() - idle - bytes)}}),
                        -1)
                  .c_str());
  return 0;
}
