#include <tessera/launch/cli/horovod_flags.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/plural.h>
#include <tessera/base/text.h>
#include <tessera/base/yaml.h>
#include <tessera/config/core/translation.h>
#include <tessera/launch/cli/launch_flags.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>

namespace tessera::launch {

namespace {

using C = LaunchCommand;
using V = FlagValues;
using S = const std::string&;

double flag_seconds(const std::string& name, const std::string& value) {
  const auto parsed = parse_real(value);
  if (!parsed || !(*parsed >= 0 && *parsed <= 1e6)) {
    throw InputError(concat(name, " ", value, ": expected a number of seconds from 0 to 1000000"));
  }
  return *parsed;
}

/// An option that is passed to the ranks in a variable.
LaunchFlag exported(std::string name, std::string value, std::string variable, std::string help) {
  return {{std::move(name)}, std::move(value), std::move(help), [variable = std::move(variable)](C& c, V&, S n, S s) {
            flag_seconds(n, s);
            c.exports.push_back(concat(variable, "=", s));
          }};
}

/// Accepts an option without effect; the reason is reported in a note. `value` empty: a switch.
LaunchFlag without_effect(std::vector<std::string> names, std::string value, std::string why) {
  return {std::move(names), std::move(value), "",
          [why = std::move(why)](C& c, V&, S n, S) { c.notes.push_back(concat(n, " has no effect: ", why)); }};
}

void take_interfaces(C& command, S name, S value) {
  const bool good = !value.empty() && std::all_of(value.begin(), value.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == ',' || c == '-' || c == '_' || c == '.' || c == '@';
  });
  if (!good) throw InputError(concat(name, " ", value, ": expected names of network interfaces such as eth0,eth1"));
  for (const char* variable : {"HOROVOD_GLOO_IFACE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"})
    command.exports.push_back(concat(variable, "=", value));
}

/// The section of horovodrun's YAML that holds an option, and the option's name there.
struct Place {
  const char *section, *key, *flag;
};
constexpr Place places[] = {
    {"params", "fusion_threshold_mb", "--fusion_threshold_mb"},
    {"params", "cycle_time_ms", "--cycle_time_ms"},
    {"params", "cache_capacity", "--cache_capacity"},
    {"params", "hierarchical_allreduce", "--hierarchical_allreduce"},
    {"params", "hierarchical_allgather", "--hierarchical_allgather"},
    {"params", "torus_allreduce", "--torus_allreduce"},
    {"autotune", "enabled", "--autotune"},
    {"autotune", "log_file", "--autotune_log_file"},
    {"autotune", "warmup_samples", "--autotune_warmup_samples"},
    {"autotune", "steps_per_sample", "--autotune_steps_per_sample"},
    {"autotune", "bayes_opt_max_samples", "--autotune_bayes_opt_max_samples"},
    {"autotune", "gaussian_process_noise", "--autotune_gaussian_process_noise"},
    {"timeline", "filename", "--timeline_filename"},
    {"timeline", "mark_cycles", "--timeline_mark_cycles"},
    {"stall_check", "enabled", "--stall_check"},
    {"stall_check", "warning_time_seconds", "--stall_check_warning_time_seconds"},
    {"stall_check", "shutdown_time_seconds", "--stall_check_shutdown_time_seconds"},
    {"library_options", "mpi_threads_disable", "--mpi_threads_disable"},
    {"library_options", "num_nccl_streams", "--num_nccl_streams"},
    {"library_options", "thread_affinity", "--thread_affinity"},
    {"library_options", "gloo_timeout_seconds", "--gloo_timeout_seconds"},
    {"logging", "level", "--log_level"},
    {"logging", "with_timestamp", "--log_with_timestamp"},
};

bool is_horovod_file(const Value& file) {
  if (!file.is_object() || file.members().empty()) return false;
  return std::all_of(file.members().begin(), file.members().end(), [](const auto& member) {
    return member.first == "controller" || std::any_of(std::begin(places), std::end(places), [&](const Place& place) {
             return member.first == place.section;
           });
  });
}

void apply_key(V& given, C& command, const std::string& flag_name, const std::string& value, const std::string& where) {
  if (given.typed.count(flag_name) != 0) return;
  for (const LaunchFlag& flag : launch_flags()) {
    if (std::find(flag.names.begin(), flag.names.end(), flag_name) == flag.names.end()) continue;
    if (flag.value.empty() && value == "false") return;
    flag.apply(command, given, concat(where, " (", flag_name, ")"), value);
    return;
  }
}

void take_horovod_file(V& given, C& command, const std::string& path, const Value& file) {
  command.notes.push_back(concat("reading horovodrun's settings from ", path));
  for (const auto& [section, values] : file.members()) {
    if (section == "controller") {
      const std::string controller = to_lower(config::as_text(values, true).value_or(""));
      if (controller == "mpi" || controller == "jsrun") {
        apply_key(given, command, "--" + controller, "", concat(path, ": controller"));
      } else if (controller != "gloo") {
        throw InputError(
            concat(values.where().str(), ": controller is '", controller, "'; it must be one of gloo, mpi, jsrun"));
      }
      continue;
    }
    if (!values.is_object()) throw InputError(concat(values.where().str(), ": ", section, " is a section with keys"));
    for (const auto& [key, value] : values.members()) {
      const auto place = std::find_if(std::begin(places), std::end(places),
                                      [&](const Place& known) { return section == known.section && key == known.key; });
      if (place == std::end(places)) {
        std::vector<std::string> known;
        for (const Place& other : places)
          if (section == other.section) known.emplace_back(other.key);
        const auto near = nearest(key, known);
        throw InputError(concat(value.where().str(), ": unknown key ", section, ".", key,
                                near ? concat("; did you mean ", *near, "?") : concat(" (", join(known), ")")));
      }
      const auto text = config::as_text(value, true);
      if (!text) throw InputError(concat(value.where().str(), ": ", section, ".", key, " is a single value"));
      std::string flag = place->flag;
      std::string said = to_lower(*text) == "false" || to_lower(*text) == "true" ? to_lower(*text) : *text;
      if (flag == "--stall_check" && said == "false") flag = "--no_stall_check", said = "true";
      apply_key(given, command, flag, said, value.where().str());
    }
  }
}

/// Returns the script's standard output.
std::string output_of(const std::string& script) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(script.c_str(), "r"), [](FILE*) { return 0; });
  if (!pipe) throw InputError(concat("--host_discovery_script ", script, ": cannot be started"));
  std::string text;
  char part[4096];
  while (const std::size_t n = std::fread(part, 1, sizeof part, pipe.get())) text.append(part, n);
  const int status = ::pclose(pipe.get());
  if (status != 0) throw InputError(concat("--host_discovery_script ", script, ": it failed"));
  return text;
}

void run_discovery(V& given, C& command) {
  const HorovodFlags& flags = given.horovod;
  if (!flags.hosts.empty() || !given.hostfile.empty() || !given.host_list.empty()) {
    throw InputError("--host_discovery_script and -H, --hostfile or --host_list all name the hosts: keep one of them");
  }
  std::vector<std::string> hosts;
  for (const std::string& line : split(output_of(flags.discovery_script), '\n')) {
    const std::string host{trim(line)};
    if (host.empty()) continue;
    const bool counted = host.find(':') != std::string::npos;
    if (!counted && flags.slots_per_host == 0) {
      throw InputError(concat("--host_discovery_script ", flags.discovery_script, ": '", host,
                              "' has no number of slots (HOST:SLOTS); add --slots_per_host N"));
    }
    hosts.push_back(counted ? host : concat(host, ":", flags.slots_per_host));
  }
  if (hosts.empty()) {
    throw InputError(concat("--host_discovery_script ", flags.discovery_script, ": it printed no host"));
  }
  given.horovod.hosts = join(hosts, ",");
  given.horovod.takes_first_slots = true;
  command.notes.push_back(concat("--host_discovery_script is run once: the job keeps the hosts ", given.horovod.hosts));
}

void take_elastic(V& given, C& command) {
  HorovodFlags& flags = given.horovod;
  if (flags.min_processes == 0 && flags.max_processes == 0) return;
  if (!given.total) {
    int slots = flags.max_processes;
    if (!flags.hosts.empty()) {
      slots = 0;
      for (const HostSlots& host : parse_horovod_hosts(flags.hosts, "-H")) slots += static_cast<int>(host.slots.size());
    }
    given.total = flags.min_processes != 0 ? flags.min_processes : std::min(slots, flags.max_processes);
    flags.takes_first_slots = true;
  }
  const int count = *given.total;
  if (flags.max_processes != 0 && (count > flags.max_processes || flags.min_processes > flags.max_processes)) {
    throw InputError(
        concat("--max_np ", flags.max_processes, " is less than ",
               count > flags.max_processes ? concat("-np ", count) : concat("--min_np ", flags.min_processes)));
  }
  if (count < flags.min_processes)
    throw InputError(concat("-np ", count, " is less than --min_np ", flags.min_processes));
  command.notes.push_back(
      concat("the job keeps ", plural(count, "process", "processes"),
             ": --min_np and --max_np do not change that; after a failure --max_restarts starts all of them "
             "again"));
}

}  // namespace

std::vector<HostSlots> parse_horovod_hosts(const std::string& list, const std::string& flag) {
  std::vector<HostSlots> hosts;
  for (const std::string& word : split(list, ',')) {
    const std::size_t colon = word.rfind(':');
    const std::string name = word.substr(0, colon);
    const auto slots = colon == std::string::npos ? std::nullopt : parse_int(word.substr(colon + 1));
    if (!is_host_name(name) || !slots || *slots < 1 || *slots > 4096) {
      throw InputError(
          concat(flag, " ", list, ": '", word,
                 "' is not HOST:SLOTS, such as localhost:4 or one:2,two:2; a file of hosts needs to exist"));
    }
    if (std::any_of(hosts.begin(), hosts.end(), [&](const HostSlots& host) { return host.name == name; })) {
      throw InputError(concat(flag, " ", list, ": host ", name, " is listed twice"));
    }
    HostSlots host{name, std::vector<int>(static_cast<std::size_t>(*slots)), static_cast<int>(*slots)};
    std::iota(host.slots.begin(), host.slots.end(), 0);
    hosts.push_back(std::move(host));
  }
  return hosts;
}

std::vector<LaunchFlag> horovod_flags() {
  const std::string at_once = "operations that wait are combined at once, without a cycle";
  const std::string no_tuning = "there is nothing to tune by trial";
  const std::string one_algorithm = "the algorithm follows from the size and from where the ranks are";
  const std::string stamps = "lines of output have no time stamps";
  std::vector<LaunchFlag> rows = {
      {{}, "", "As in horovodrun, for scripts with tessera.hvd", {}},
      {{"-np", "--num_proc"},
       "N",
       "ranks, in the first N slots of the hosts",
       [](C&, V& v, S n, S s) {
         v.total = flag_number(n, s, 1, 4096);
         v.horovod.takes_first_slots = true;
       }},
      {{"--hosts"}, "LIST", "hosts and slots: one:2,two:4 (-H, too)", [](C&, V& v, S, S s) { v.horovod.hosts = s; }},
      {{"--host_discovery_script"},
       "CMD",
       "prints HOST:SLOTS lines; it is run once",
       [](C&, V& v, S, S s) { v.horovod.discovery_script = s; }},
      {{"--slots_per_host"},
       "N",
       "slots of hosts for which the script prints none",
       [](C&, V& v, S n, S s) { v.horovod.slots_per_host = flag_number(n, s, 1, 4096); }},
      {{"--network_interfaces", "--network_interface"},
       "LIST",
       "interfaces that the ranks use",
       [](C& c, V&, S n, S s) { take_interfaces(c, n, s); }},
      {{"--timeline_filename"},
       "FILE",
       "trace of the operations, for chrome://tracing; rank R > 0 writes FILE.R",
       [](C& c, V&, S n, S s) {
         if (s.empty()) throw InputError(concat("tessera launch: ", n, " needs a non-empty value"));
         c.exports.push_back("HOROVOD_TIMELINE=" + s);
       }},
      {{"--output_filename"}, "DIR", "the same as --log_dir", [](C& c, V&, S, S s) { c.options.log_dir = s; }},
      exported("--start_timeout", "S", "HOROVOD_START_TIMEOUT", "seconds for all ranks to meet (default 300)"),
      exported("--gloo_timeout_seconds", "S", "HOROVOD_GLOO_TIMEOUT_SECONDS",
               "seconds that an operation waits for a rank (default 1800)"),
      {{"--fusion_threshold_mb"},
       "MB",
       "size of reductions that travel as one (default and most: 16; 0: each alone)",
       [](C& c, V&, S n, S s) {
         c.exports.push_back(concat("HOROVOD_FUSION_THRESHOLD=", std::int64_t{flag_number(n, s, 0, 65'536)} << 20));
       }},
      {{"--min_np", "--min_num_proc"},
       "N",
       "minimum number of ranks (the number does not change while a job runs)",
       [](C&, V& v, S n, S s) { v.horovod.min_processes = flag_number(n, s, 1, 4096); }},
      {{"--max_np", "--max_num_proc"},
       "N",
       "maximum number of ranks",
       [](C&, V& v, S n, S s) { v.horovod.max_processes = flag_number(n, s, 1, 4096); }},
      {{"--check_build", "-cb"},
       "",
       "print which frameworks and operations there are",
       [](C&, V& v, S, S) { v.horovod.check_build = true; }},
      // Accepted, not shown.
      {{"--reset_limit"},
       "N",
       "",
       [](C& c, V&, S n, S s) { c.options.max_restarts = flag_number(n, s, 0, 1'000'000); }},
      {{"--no_stall_check"}, "", "", [](C& c, V&, S, S) { c.options.hang_timeout = -1; }},
      {{"--stall_check_shutdown_time_seconds"},
       "S",
       "",
       [](C& c, V&, S n, S s) {
         const double limit = flag_seconds(n, s);
         c.options.hang_timeout = limit == 0 ? -1 : limit;
       }},
      {{"--stall_check"}, "", "", [](C&, V&, S, S) {}},
      {{"--gloo"}, "", "", [](C&, V&, S, S) {}},  // no MPI: so it is
      {{"--verbose"}, "", "", [](C&, V&, S, S) {}},
      {{"--disable_cache"}, "", "", [](C&, V&, S, S) {}},  // the checks of hosts that it caches are not made here
      without_effect({"--stall_check_warning_time_seconds"}, "S",
                     "a hang is reported when it ends the job; see --hang_timeout"),
      without_effect({"--cycle_time_ms"}, "MS", at_once),
      without_effect({"--cache_capacity"}, "N", "every name is agreed upon once and kept"),
      without_effect({"--hierarchical_allreduce", "--no_hierarchical_allreduce", "--hierarchical_allgather",
                      "--no_hierarchical_allgather", "--torus_allreduce", "--no_torus_allreduce"},
                     "", one_algorithm),
      without_effect({"--autotune", "--no_autotune"}, "", no_tuning),
      without_effect({"--autotune_log_file"}, "FILE", no_tuning),
      without_effect({"--autotune_warmup_samples", "--autotune_steps_per_sample", "--autotune_bayes_opt_max_samples",
                      "--autotune_gaussian_process_noise"},
                     "N", no_tuning),
      without_effect({"--timeline_mark_cycles", "--no_timeline_mark_cycles"}, "", at_once),
      without_effect({"--mpi_threads_disable", "--no_mpi_threads_disable"}, "", "no MPI is used"),
      without_effect({"--tcp"}, "", "hosts talk TCP, and ranks of one host share memory"),
      without_effect({"--num_nccl_streams"}, "N", "tensors are those of the CPU"),
      without_effect({"--thread_affinity"}, "LIST", "--bind_cores binds each rank with all of its threads"),
      without_effect({"--log_level"}, "LEVEL", "errors and warnings are always shown"),
      without_effect({"--log_with_timestamp", "--log_without_timestamp", "--log_hide_timestamp",
                      "--no_log_hide_timestamp", "--prefix_output_with_timestamp", "-prefix-timestamp"},
                     "", stamps),
      without_effect({"--elastic_timeout"}, "S",
                     "the ranks of a job do not change; --start_timeout limits their meeting"),
      refused_flag({"--version", "-v"}, "", "is printed by tessera --version"),
      refused_flag(
          {"--mpi", "--use_mpi"}, "",
          "starts the ranks by mpirun: run mpirun -np N python3 SCRIPT; a script finds its place there by itself"),
      refused_flag({"--jsrun"}, "",
                   "starts the ranks by jsrun: run jsrun -n N python3 SCRIPT with RANK and WORLD_SIZE set"),
      refused_flag({"--mpi_args"}, "ARGS", "is for mpirun: give them to mpirun -np N python3 SCRIPT"),
      refused_flag({"--binding_args"}, "ARGS", "is for mpirun; --bind_cores binds each rank to its share of the cores"),
      refused_flag({"--ssh_port", "-p"}, "P", "is not passed on: write Port into ~/.ssh/config, which ssh reads"),
      refused_flag({"--ssh_identity_file"}, "FILE", "is not passed on: write IdentityFile into ~/.ssh/config"),
      refused_flag({"--blacklist_cooldown_range"}, "MIN",
                   "is for hosts that come back: the hosts of a job do not change; --bad_hosts FILE leaves some out"),
  };
  return rows;
}

void take_horovod(FlagValues& given, LaunchCommand& command) {
  const std::string path = given.training.config_file;
  if (!path.empty() && path != "none" && path_exists(path)) {
    const std::string lower = to_lower(path);
    if (lower.ends_with(".yaml") || lower.ends_with(".yml")) {
      const Value file = parse_yaml(read_file(path, 1 << 20), path);
      if (is_horovod_file(file)) {
        take_horovod_file(given, command, path, file);
        given.training.config_file = "none";
      }
    }
  }
  if (!given.horovod.discovery_script.empty()) run_discovery(given, command);
  take_elastic(given, command);
}

std::string horovod_build() {
  return "tessera.hvd:\n\n"
         "Available Frameworks:\n"
         "    [X] PyTorch (tessera.hvd.torch)\n"
         "    [ ] TensorFlow\n"
         "    [ ] MXNet\n\n"
         "Available Controllers:\n"
         "    [ ] MPI (ranks that mpirun starts find their places)\n"
         "    [X] tessera launch, in place of Gloo\n\n"
         "Available Tensor Operations:\n"
         "    [X] shared memory and TCP, in place of Gloo, on the CPU\n"
         "    [ ] NCCL\n"
         "    [ ] MPI\n";
}

}  // namespace tessera::launch
