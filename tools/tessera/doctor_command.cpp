// tessera doctor: what of this machine would stop or slow a job, before it starts.

#include <tessera/base/error.h>
#include <tessera/config/core/command_flags.h>
#include <tessera/launch/doctor/diagnosis.h>
#include <tools/tessera/commands.h>

#include <algorithm>
#include <iostream>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera doctor: checks this machine before a job, and says what to do about what it finds\n\n"
    "usage: tessera doctor [--folder DIR] [--num_processes N] [--json]\n\n"
    "  --folder DIR         where the run will write; default: the current folder. 32 MiB are written and removed\n"
    "  --num_processes N    ranks that are to run on this machine; default 1\n"
    "  --json               one JSON object instead of the table\n"
    "Exit code 0: a job can run (warnings cost speed), 1: something fails it, 2: wrong arguments.\n"
    "On every host of a Slurm job: srun --ntasks-per-node=1 tessera doctor\n";

}  // namespace

int doctor_command(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << help;
    return 0;
  }
  const config::Flags flags("doctor", arguments, {"folder", "num_processes"}, {"json"});
  const std::int64_t ranks = flags.integer("num_processes", 1);
  if (ranks < 1 || ranks > 4096)
    throw InputError(concat("--num_processes is ", ranks, "; it takes the ranks of one machine, 1 .. 4096"));
  const launch::Readings readings = launch::read_machine(flags.text("folder").value_or("."), static_cast<int>(ranks));
  const auto findings = launch::diagnose(readings);
  // Written at once, so that the tables of several hosts do not mix.
  std::cout << (flags.has("json") ? dump_json(launch::value_of(readings.host, findings)) + "\n"
                                  : launch::table_of(readings.host, findings))
            << std::flush;
  return launch::worst(findings) == launch::Health::failure ? 1 : 0;
}

}  // namespace tessera::tool
