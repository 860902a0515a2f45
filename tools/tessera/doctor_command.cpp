// tessera doctor: checks, before a job starts, for problems on this machine or on all machines of the job that would
// stop or slow it.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/launch/doctor/meeting.h>
#include <tessera/launch/fleet/hostfile.h>
#include <tools/tessera/commands.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <iostream>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera doctor: checks this machine, or all machines of a job, before it starts, and suggests a remedy for each "
    "finding"
    "\n\n"
    "usage: tessera doctor [--folder DIR] [--num_processes N] [--json]\n"
    "       tessera launch [options of the job] tessera doctor [--folder DIR] [--bad_hosts FILE] [--json]\n\n"
    "  --folder DIR         where the run will write; default: the current folder. Writes 32 MiB and removes them\n"
    "  --num_processes N    ranks planned for this machine; default 1, under tessera launch the ranks it starts "
    "here\n"
    "  --bad_hosts FILE     hosts that fail or slow the others down, with the reason; hosts that are good "
    "again are "
    "removed.\n"
    "                       tessera launch --bad_hosts FILE and sbatch --exclude=FILE skip them\n"
    "  --json               one JSON object instead of the table\n\n"
    "Under tessera launch the hosts are also compared: versions, processors, speed, clocks, and for each pair the "
    "delay\n"
    "and the bandwidth of the connection. The first rank prints one table for all.\n"
    "Exit code 0: a job can run (warnings cost speed), 1: a failure prevents it, 2: wrong arguments.\n";

std::string today() {
  std::array<char, 32> text{};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%MZ", &parts);
  return text.data();
}

launch::Readings read_here(const config::Flags& flags, int ranks) {
  const std::int64_t given = flags.integer("num_processes", ranks);
  if (given < 1 || given > 4096)
    throw InputError(concat("--num_processes is ", given, "; expected the number of ranks per machine, 1 .. 4096"));
  return launch::read_machine(flags.text("folder").value_or("."), static_cast<int>(given));
}

/// Checks one machine.
int check_machine(const config::Flags& flags) {
  if (flags.has("bad_hosts"))
    throw InputError("--bad_hosts needs the hosts of a job: use tessera launch --num_machines M ... tessera doctor");
  const launch::Readings readings = read_here(flags, 1);
  const auto findings = launch::diagnose(readings);
  // Written in one piece, so that tables of several hosts do not interleave.
  std::cout << (flags.has("json") ? dump_json(launch::value_of(readings.host, findings)) + "\n"
                                  : launch::table_of(readings.host, findings))
            << std::flush;
  return launch::worst(findings) == launch::Health::failure ? 1 : 0;
}

/// Checks all machines of a job: the first rank of each machine takes part, and rank 0 prints.
int check_allocation(const config::Flags& flags, const launch::RankEnvironment& environment) {
  if (environment.local_rank != 0) {
    launch::meet(environment, nullptr);
    return 0;
  }
  const launch::HostReport own = launch::report_of(read_here(flags, environment.local_world_size));
  const auto allocation = launch::meet(environment, &own);
  if (environment.rank != 0) return 0;
  const auto findings = launch::diagnose(*allocation);
  std::cout << (flags.has("json") ? dump_json(launch::value_of(*allocation, findings)) + "\n"
                                  : launch::table_of(*allocation, findings))
            << std::flush;
  if (const auto file = flags.text("bad_hosts")) {
    const auto bad = launch::bad_hosts(*allocation, findings);
    launch::read_bad_hosts(*file);  // throws unless it is a file of bad hosts, so that another file is not overwritten
    const std::string before = path_exists(*file) ? read_file(*file, 1 << 20) : "";
    write_file_atomically(*file, launch::updated_bad_hosts(before, *allocation, bad, today()));
    log::info(concat(bad.size(), " of ", allocation->hosts.size(), " hosts are in ", *file));
  }
  return launch::worst(findings) == launch::Health::failure ? 1 : 0;
}

}  // namespace

int doctor_command(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << help;
    return 0;
  }
  const config::Flags flags("doctor", arguments, {"folder", "num_processes", "bad_hosts"}, {"json"});
  // Only ranks of our launcher can connect to each other; variables of other launchers are ignored.
  if (std::getenv("TESSERA_STORE") == nullptr) return check_machine(flags);
  const launch::RankEnvironment environment = launch::read_rank_environment();
  return launch::can_meet(environment) ? check_allocation(flags, environment) : check_machine(flags);
}

}  // namespace tessera::tool
