/// \file
/// tessera bench: measures this machine. `comm`: bandwidth and latency of the collectives, with its own ranks.
/// `scaling`: a training job on increasing numbers of processes (bench_scaling.cpp).

#include <tessera/base/error.h>
#include <tessera/launch/agent/launcher.h>
#include <tessera/launch/cli/environment.h>
#include <tools/tessera/bench_comm_options.h>
#include <tools/tessera/bench_scaling.h>
#include <tools/tessera/commands.h>

#include <cstdio>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera bench comm [options]              bandwidth and latency of collectives\n"
    "tessera bench scaling [options] [-- ...]  one training job on 1, 2, 4, ... processes\n\n"
    "See tessera bench comm --help and tessera bench scaling --help.\n";

constexpr const char* comm_help =
    "tessera bench comm [options]\n\n"
    "Starts processes and measures their collectives. Every rank has its own output;\n"
    "each result is checked once. A round is as many operations, back to back, as fill\n"
    "5 ms; its time is that of the slowest rank. latency: median over the rounds\n"
    "of one operation's time; p95: of the same times. Definitions as in nccl-tests:\n"
    "bytes: size of the larger tensor, algbw = bytes / latency, busbw = bytes that\n"
    "each rank must move at least / latency; GB = 10^9 bytes. send_recv: every rank\n"
    "sends to the next and receives from the one before.\n\n"
    "  --num_processes N   ranks [2]. Under mpirun, srun or torchrun: theirs\n"
    "  --backend B[,B2]    auto, shm, gloo, c10d_gloo (LibTorch's own), nccl, hier\n"
    "                      [auto]. With two, they alternate in the same processes,\n"
    "                      and the ratio of their times, pair by pair, is printed:\n"
    "                      median, and in brackets the 10th and 90th percentile\n"
    "  --op OP[,OP]|all    all_reduce reduce_scatter all_gather broadcast reduce\n"
    "                      all_to_all scatter gather send_recv barrier\n"
    "                      [all_reduce,reduce_scatter,all_gather]\n"
    "  --bytes SIZES       4096, 64K, 64M; a list 4K,64M; a range 1K..256M (doubling)\n"
    "                      [4K,64K,1M,16M,64M]\n"
    "  --dtype T           float32 float64 bfloat16 float16 int32 int64 int8 uint8\n"
    "  --device D          cpu, cuda [cpu]\n"
    "  --rounds N          [20]\n"
    "  --warmup N          operations before the first round [2]\n"
    "  --shared            tensors in the shared arena (comm::empty_shared), like the\n"
    "                      training's own buffers; default: ordinary ones\n"
    "  --json              one JSON object per measurement and line\n";

int comm_command(const Arguments& given) {
  Arguments arguments = given;
  const launch::RankEnvironment environment = launch::read_rank_environment(&arguments);
  const BenchCommOptions options = parse_bench_comm(arguments);
  if (options.help) {
    std::fputs(comm_help, stdout);
    return 0;
  }
  if (environment.launcher != "none") return run_with_tensors("bench_comm", arguments);
  if (options.num_processes == 1) return run_with_tensors("bench_comm", arguments);
  std::vector<std::string> command = {own_program(), "bench", "comm"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  launch::LaunchOptions launch_options;
  launch_options.num_processes = options.num_processes;
  launch_options.prefix_rank0 = false;  // rank 0 prints the table
  launch_options.job = concat("bench comm ", join(options.ops, ","));
  launch_options.hang_timeout = 60;  // without steps a hang looks the same as 256 MB over slow sockets
  return launch::run(command, launch_options);
}

}  // namespace

int bench_command(const Arguments& arguments) {
  static const std::vector<std::string> names = {"comm", "scaling"};
  if (arguments.empty()) throw InputError(concat("tessera bench: a benchmark name is missing\n\n", trim(help)));
  const std::string& what = arguments.front();
  const Arguments rest(arguments.begin() + 1, arguments.end());
  if (what == "--help" || what == "-h" || what == "help") {
    std::fputs(help, stdout);
    return 0;
  }
  const bool asks_help = rest == Arguments{"-h"};
  if (what == "comm") return comm_command(asks_help ? Arguments{"--help"} : rest);
  if (what == "scaling") return scaling_command(asks_help ? Arguments{"--help"} : rest);
  const auto near = nearest(what, names);
  throw InputError(concat("tessera bench: unknown benchmark '", what, "'; ",
                          near ? concat("did you mean '", *near, "'?") : concat("expected one of ", join(names))));
}

}  // namespace tessera::tool
