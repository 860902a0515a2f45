#include <tessera/launch/cli/command_line.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/system/endpoint.h>
#include <tessera/base/text.h>
#include <tessera/launch/cli/launch_flags.h>
#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace tessera::launch {

namespace {

std::string canonical(std::string name) {
  if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

const LaunchFlag& find_flag(const std::string& given) {
  const std::string name = canonical(given);
  std::vector<std::string> known;
  for (const LaunchFlag& flag : launch_flags()) {
    if (std::find(flag.names.begin(), flag.names.end(), name) != flag.names.end()) return flag;
    known.insert(known.end(), flag.names.begin(), flag.names.end());
  }
  const auto near = nearest(name, known);
  throw InputError(concat("tessera launch: unknown option ", given, near ? concat("; did you mean ", *near, "?") : ".",
                          " Options of the program come after its name; see tessera launch --help"));
}

std::optional<int> number_in(const char* variable) {
  const char* value = std::getenv(variable);
  const auto number = value == nullptr ? std::nullopt : parse_int(value);
  return number && *number >= 0 && *number < (1 << 20) ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

/// Returns this machine's rank, from the variables of the batch system that started one agent on each machine.
std::optional<int> machine_rank_of_environment(int machines) {
  struct Source {
    const char *rank, *size;
  };
  for (const Source& source : {Source{"SLURM_NODEID", "SLURM_NNODES"}, Source{"JOB_COMPLETION_INDEX", nullptr},
                               Source{"VC_TASK_INDEX", nullptr}, Source{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                               Source{"PMI_RANK", "PMI_SIZE"}}) {
    const auto rank = number_in(source.rank);
    const auto size = source.size == nullptr ? std::nullopt : number_in(source.size);
    if (rank && (!size || *size == machines)) return rank;
  }
  return std::nullopt;
}

/// Kubeflow passes torchrun's options to a pod as variables PET_*; command-line options take precedence.
void take_kubeflow(FlagValues& given) {
  if (given.machines || !number_in("PET_NNODES")) return;
  given.machines = number_in("PET_NNODES");
  if (!given.per_machine && !given.total) given.per_machine = number_in("PET_NPROC_PER_NODE");
  if (!given.machine_rank) given.machine_rank = number_in("PET_NODE_RANK");
  const char* address = std::getenv("PET_MASTER_ADDR");
  if (given.address.empty() && given.endpoint.empty() && address != nullptr) given.address = address;
  if (!given.port && given.endpoint.empty()) given.port = number_in("PET_MASTER_PORT");
}

/// accelerate's rule: --num_processes counts the ranks of all machines.
void share_processes(const FlagValues& given, LaunchCommand& result) {
  LaunchOptions& options = result.options;
  if (given.per_machine) options.num_processes = *given.per_machine;
  if (!given.total) return;
  if (given.per_machine && *given.total != *given.per_machine * options.num_machines) {
    throw InputError(concat("--num_processes ", *given.total,
                            " counts the ranks of all machines, but --nproc_per_node ", *given.per_machine, " on ",
                            options.num_machines, " machines makes ", *given.per_machine * options.num_machines,
                            ": remove one of them"));
  }
  if (*given.total % options.num_machines != 0) {
    throw InputError(concat("--num_processes ", *given.total,
                            " counts the ranks of all machines and cannot be shared "
                            "evenly by ",
                            options.num_machines, "; give --nproc_per_node on each machine"));
  }
  options.num_processes = *given.total / options.num_machines;
}

/// Drops the hosts on the bad list, ignoring a user name in front of the host.
void leave_out_bad_hosts(const std::string& file, std::vector<HostSlots>& hosts, std::vector<std::string>& notes) {
  if (!path_exists(file)) throw InputError(concat("--bad_hosts: no such file: ", file));
  const std::vector<std::string> bad = read_bad_hosts(file);
  std::erase_if(hosts, [&](const HostSlots& host) {
    const bool is_bad = std::find(bad.begin(), bad.end(), host.name.substr(host.name.find('@') + 1)) != bad.end();
    if (is_bad) notes.push_back(concat(host.name, " is excluded: it is listed in ", file));
    return is_bad;
  });
  if (hosts.empty()) throw InputError(concat("--bad_hosts ", file, ": no host is left"));
}

/// Applies the hosts of a hostfile or list: number of machines, ranks, and the first host's address.
void take_hosts(const FlagValues& given, LaunchCommand& result) {
  LaunchOptions& options = result.options;
  std::vector<HostSlots> hosts;
  if (!given.hostfile.empty() && !given.host_list.empty()) {
    throw InputError("--hostfile and --host_list both name the hosts: remove one of them");
  }
  if (!given.hostfile.empty()) hosts = read_hostfile(given.hostfile);
  if (!given.host_list.empty()) {
    for (const std::string& name : expand_node_list(given.host_list)) {
      HostSlots host{name, std::vector<int>(static_cast<std::size_t>(given.per_machine.value_or(1))), 0};
      std::iota(host.slots.begin(), host.slots.end(), 0);
      host.slots_of_host = static_cast<int>(host.slots.size());
      hosts.push_back(host);
    }
  }
  if (hosts.empty() && given.exclude.empty() &&
      given.include.starts_with("localhost:")) {  // DeepSpeed: devices of this host
    const std::string devices = given.include.substr(10);
    if (given.per_machine || given.total) {
      throw InputError(concat("--include ", given.include,
                              " already sets the number of ranks: remove --num_processes and --nproc_per_node"));
    }
    for (const std::string& device : split(devices, ',')) {
      if (!parse_int(device))
        throw InputError(concat("--include ", given.include, ": expected device numbers, such as localhost:0,1"));
    }
    options.num_processes = static_cast<int>(split(devices, ',').size());
    result.exports.insert(result.exports.begin(), concat("CUDA_VISIBLE_DEVICES=", devices));
    return;
  }
  if (hosts.empty()) {
    if (!given.include.empty() || !given.exclude.empty()) {
      throw InputError("--include and --exclude select hosts of a --hostfile; give one");
    }
    if (!given.bad_hosts.empty()) {
      throw InputError("--bad_hosts excludes hosts of a --hostfile or --host_list; give one");
    }
    return;
  }
  const bool filtered = !given.include.empty() || !given.exclude.empty();
  if (filtered && (given.machines || given.per_machine)) {
    throw InputError(
        "--include and --exclude already select hosts and slots: remove --num_machines and "
        "--nproc_per_node");
  }
  hosts = filter_hosts(hosts, given.include, given.exclude);
  if (!given.bad_hosts.empty()) leave_out_bad_hosts(given.bad_hosts, hosts, result.notes);
  if (given.machines) {
    if (*given.machines > static_cast<int>(hosts.size())) {
      throw InputError(concat("--num_machines ", *given.machines, ", but only ", hosts.size(), " hosts were named"));
    }
    hosts.resize(static_cast<std::size_t>(*given.machines));
  }
  if (given.per_machine) {
    for (HostSlots& host : hosts) {
      if (*given.per_machine > static_cast<int>(host.slots.size())) {
        throw InputError(concat("--nproc_per_node ", *given.per_machine, ", but host ", host.name, " has ",
                                host.slots.size(), " slots"));
      }
      host.slots.resize(static_cast<std::size_t>(*given.per_machine));
    }
  }
  int total = 0;
  for (const HostSlots& host : hosts) total += static_cast<int>(host.slots.size());
  if (given.total && *given.total != total) {
    throw InputError(concat("--num_processes ", *given.total, ", but the hosts have ", total, " slots in use"));
  }
  options.num_machines = static_cast<int>(hosts.size());
  if (given.address.empty()) options.master_addr = hosts[0].name.substr(hosts[0].name.find('@') + 1);
  result.over_ssh = !given.machine_rank && result.emit.empty();
  if (given.machine_rank && *given.machine_rank < options.num_machines) {
    options.num_processes = static_cast<int>(hosts[static_cast<std::size_t>(*given.machine_rank)].slots.size());
  }
  result.hosts = std::move(hosts);
}

void take_rendezvous(const FlagValues& given, LaunchCommand& result) {
  LaunchOptions& options = result.options;
  std::string address = bare_host(given.address);
  std::optional<int> port = given.port;
  if (!given.endpoint.empty()) {
    const auto endpoint = parse_endpoint(given.endpoint);
    if (!endpoint) {
      throw InputError(concat("--rdzv_endpoint ", given.endpoint,
                              ": expected HOST or HOST:PORT ([ADDRESS]:PORT for an IPv6 address)"));
    }
    const int number = endpoint->port.value_or(29500);
    if ((!address.empty() && address != endpoint->host) || (port && *port != number)) {
      throw InputError(concat("--rdzv_endpoint ", given.endpoint,
                              " and --main_process_ip/--main_process_port set "
                              "different addresses: remove one of them"));
    }
    address = endpoint->host;
    port = number;
  }
  if (!address.empty()) options.master_addr = address;
  if (port) options.master_port = *port;
}

void check_machines(const FlagValues& given, LaunchCommand& result) {
  LaunchOptions& options = result.options;
  if (given.standalone && options.num_machines > 1) {
    throw InputError(concat("--standalone means one machine, but --num_machines is ", options.num_machines));
  }
  if (result.over_ssh || !result.emit.empty()) return;
  if (options.num_machines == 1) {
    if (given.machine_rank.value_or(0) > 0) {
      throw InputError(
          concat("--machine_rank ", *given.machine_rank, ", but there is only one machine; give --num_machines"));
    }
    return;
  }
  auto rank = given.machine_rank;
  if (!rank) rank = machine_rank_of_environment(options.num_machines);
  if (!rank) {
    throw InputError(concat("--num_machines is ", options.num_machines,
                            ": add --machine_rank, this machine's rank (0 is the one at --main_process_ip)"));
  }
  if (*rank >= options.num_machines) {
    throw InputError(concat("machine rank ", *rank, " of ", options.num_machines, " machines: ranks count from 0"));
  }
  options.machine_rank = *rank;
  if (given.address.empty() && given.endpoint.empty() && result.hosts.empty()) {
    throw InputError(
        "several machines meet at machine 0, whose address all of them need: add --main_process_ip HOST "
        "--main_process_port PORT");
  }
  if (options.master_port == 0) options.master_port = 29500;  // torchrun's default, because all machines must know it
}

void take_output(const FlagValues& given, LaunchOptions& options) {
  const auto shown = [&](int rank) {
    const auto of = [&](const StreamFlags& flags) {
      const auto own = flags.of_rank.find(rank);
      return own == flags.of_rank.end() ? flags.all : own->second;
    };
    return of(given.tee) | (3 & ~of(given.redirects));
  };
  const bool redirected = given.redirects.all != 0 || !given.redirects.of_rank.empty();
  if (redirected && options.log_dir.empty()) {
    throw InputError("--redirects sends output to files only: add --log_dir DIR");
  }
  options.tee = shown(-1);
  for (const StreamFlags* flags : {&given.tee, &given.redirects}) {
    for (const auto& [rank, streams] : flags->of_rank) options.tee_of_rank[rank] = shown(rank);
  }
}

}  // namespace

LaunchCommand parse_launch_command(const std::vector<std::string>& arguments) {
  LaunchCommand result;
  FlagValues given;
  std::size_t i = 0;
  for (; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--") {
      ++i;
      break;
    }
    if (!word.starts_with("-") || word == "-") break;
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const LaunchFlag& flag = find_flag(name);
    std::string value;
    if (flag.value.empty()) {
      if (equals != std::string::npos) throw InputError(concat("tessera launch: ", name, " takes no value"));
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (++i < arguments.size()) {
      value = arguments[i];
    } else {
      throw InputError(concat("tessera launch: ", name, " needs a value"));
    }
    flag.apply(result, given, name, value);
    if (result.help) return result;
  }
  result.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(std::min(i, arguments.size())),
                        arguments.end());
  if (result.command.empty() && result.emit != "hostfile") {
    // A quotation mark that is closed too late includes the program: --fsdp_config="path/ my-script.py"
    const auto holds = std::find_if(arguments.begin(), arguments.end(), [](const std::string& word) {
      const std::size_t blank = word.rfind(' ');
      return word.starts_with("--") && blank != std::string::npos &&
             (word.ends_with(".py") || path_exists(word.substr(blank + 1)));
    });
    throw InputError(concat("tessera launch: no program was given; see tessera launch --help",
                            holds == arguments.end() ? ""
                                                     : concat(". Is the program part of '", *holds,
                                                              "', because of a missing or misplaced quotation mark?")));
  }
  // -u: Python's own buffer would hold back lines until the end of the job, and lose them when a rank is killed.
  if (!result.command.empty() && given.module) {
    result.command.insert(result.command.begin(), {"python3", "-u", "-m"});
  } else if (!result.command.empty() && result.command[0].ends_with(".py")) {
    result.command.insert(result.command.begin(), {"python3", "-u"});
  }
  take_training(given, result);
  take_kubeflow(given);
  if (given.machines) result.options.num_machines = *given.machines;
  take_hosts(given, result);
  if (result.hosts.empty()) share_processes(given, result);
  if (result.hosts.empty() && !given.total && !given.per_machine && given.include.empty() && result.emit.empty() &&
      result.options.num_processes == 1)
    result.notes.emplace_back(
        "one process starts: --num_processes N starts more, gpu one per GPU (other launchers take all GPUs unasked)");
  take_rendezvous(given, result);
  check_machines(given, result);
  take_output(given, result.options);
  if (result.options.host_label.empty() && result.options.num_machines > 1 && !result.hosts.empty() &&
      !result.over_ssh) {
    result.options.host_label = result.hosts[static_cast<std::size_t>(result.options.machine_rank)].name;
  }
  return result;
}

std::vector<std::string> words_of(const LaunchOptions& options) {
  const LaunchOptions plain;
  std::vector<std::string> words;
  const auto add = [&](const char* name, const std::string& value) { words.insert(words.end(), {name, value}); };
  const auto number = [&](const char* name, auto value, auto usual) {
    if (value != usual) add(name, format_real(static_cast<double>(value), 9));
  };
  if (options.num_machines > 1) {
    add("--num_machines", std::to_string(options.num_machines));
    add("--machine_rank", std::to_string(options.machine_rank));
  }
  add("--nproc_per_node", std::to_string(options.num_processes));
  if (options.num_machines > 1 || options.master_addr != plain.master_addr) {
    add("--main_process_ip", options.master_addr);
  }
  if (options.master_port != 0) add("--main_process_port", std::to_string(options.master_port));
  number("--num_cpu_threads_per_process", options.threads_per_process, 0);
  if (!options.prefix_output) words.push_back("--no_prefix");
  number("--max_restarts", options.max_restarts, 0);
  number("--host_timeout", options.host_timeout, plain.host_timeout);
  number("--monitor_interval", options.monitor_interval, plain.monitor_interval);
  number("--heartbeat_timeout", options.heartbeat_timeout, plain.heartbeat_timeout);
  number("--hang_timeout", options.hang_timeout, plain.hang_timeout);
  number("--stop_seconds", options.stop_seconds, plain.stop_seconds);
  if (options.only_report) words.push_back("--only_report");
  if (!options.job.empty()) add("--rdzv_id", options.job);
  if (!options.log_dir.empty()) {
    add("--log_dir", options.log_dir);
    // Streams that --redirects does not hide are shown.
    std::string streams = std::to_string(3 & ~options.tee);
    if (!options.tee_of_rank.empty()) {
      std::vector<std::string> parts = {concat("*:", streams)};
      for (const auto& [rank, shown] : options.tee_of_rank) parts.push_back(concat(rank, ":", 3 & ~shown));
      streams = join(parts, ",");
    }
    if (streams != "0") add("--redirects", streams);
  }
  if (!options.shown_ranks.empty()) {
    std::vector<std::string> ranks;
    for (int rank : options.shown_ranks) ranks.push_back(std::to_string(rank));
    add("--local_ranks_filter", join(ranks, ","));
  }
  if (!options.bind_core_list.empty()) {
    add("--bind_core_list", options.bind_core_list);
  } else if (options.bind_cores) {
    words.push_back("--bind_cores");
  }
  if (!options.host_label.empty()) add("--host_label", options.host_label);
  return words;
}

}  // namespace tessera::launch
