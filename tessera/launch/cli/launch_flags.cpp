#include <tessera/launch/cli/launch_flags.h>

#include <dirent.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/affinity.h>
#include <algorithm>
#include <iterator>
#include <memory>

namespace tessera::launch {

namespace {

int number(const std::string& name, const std::string& value, int minimum, int maximum) {
  const auto parsed = parse_int(value);
  if (!parsed || *parsed < minimum || *parsed > maximum) {
    throw InputError(concat(name, " ", value, ": expected an integer from ", minimum, " to ", maximum));
  }
  return static_cast<int>(*parsed);
}

double real(const std::string& name, const std::string& value, double minimum, double maximum) {
  const auto parsed = parse_real(value);
  if (!parsed || !(*parsed >= minimum && *parsed <= maximum)) {
    throw InputError(concat(name, " ", value, ": expected a number from ", minimum, " to ", maximum));
  }
  return *parsed;
}

/// Counts the devices /dev/nvidia0, /dev/nvidia1, ...
int count_gpus() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/dev"), &::closedir);
  int count = 0;
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const std::string_view name(entry->d_name);
    if (name.starts_with("nvidia") && parse_int(name.substr(6))) ++count;
  }
  return count;
}

/// Parses a number, or torchrun's words: gpu, cpu, auto.
int processes(const std::string& name, const std::string& value) {
  if (value == "cpu") return static_cast<int>(usable_cores().size());
  if (value == "gpu" || value == "auto") {
    const int gpus = count_gpus();
    if (gpus > 0) return gpus;
    if (value == "gpu") throw InputError(concat(name, " gpu: no NVIDIA GPU on this host (no /dev/nvidia0)"));
    return static_cast<int>(usable_cores().size());
  }
  if (!parse_int(value)) {
    throw InputError(concat(name, " ", value, ": expected an integer from 1 to 4096, or gpu, cpu or auto"));
  }
  return number(name, value, 1, 4096);
}

int machines(const std::string& name, const std::string& value) {
  const auto colon = value.find(':');
  if (colon == std::string::npos) return number(name, value, 1, 65'536);
  const int minimum = number(name, value.substr(0, colon), 1, 65'536);
  const int maximum = number(name, value.substr(colon + 1), 1, 65'536);
  if (minimum != maximum) {
    throw InputError(concat(name, " ", value,
                            ": the number of machines of a job is fixed; give one number. A checkpoint "
                            "resumes on any other number, so a smaller job can continue where this one stopped"));
  }
  return minimum;
}

/// Parses "3", "0:3,1:0", and "*:2,0:3".
StreamFlags streams(const std::string& name, const std::string& value) {
  const auto one = [&](const std::string& text) {
    const auto number = parse_int(text);
    if (!number || *number < 0 || *number > 3) {
      throw InputError(concat(name, " ", value,
                              ": expected 0 (none), 1 (standard output), 2 (standard error) or 3 "
                              "(both), for all ranks or as RANK:N,RANK:N"));
    }
    return static_cast<int>(*number);
  };
  StreamFlags result;
  if (value.find(':') == std::string::npos) {
    result.all = one(value);
    return result;
  }
  for (const std::string& part : split(value, ',')) {
    const auto colon = part.find(':');
    const std::string rank = part.substr(0, colon);
    const int chosen = one(colon == std::string::npos ? "" : part.substr(colon + 1));
    if (rank == "*") {
      result.all = chosen;
    } else if (!result.of_rank.emplace(number(name, rank, 0, 4095), chosen).second) {
      throw InputError(concat(name, " ", value, ": rank ", rank, " is listed twice"));
    }
  }
  return result;
}

std::string one_of(const std::string& name, const std::string& value, const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), value) != words.end()) return value;
  throw InputError(concat(name, " ", value, ": expected ", join(words, " or ")));
}

std::string text(const std::string& name, const std::string& value) {
  if (value.empty()) throw InputError(concat("tessera launch: ", name, " needs a non-empty value"));
  return value;
}

void rdzv_conf(const std::string& name, const std::string& value) {
  for (const std::string& part : split(value, ',')) {
    if (part.find('=') == std::string::npos || part.starts_with('=')) {
      throw InputError(concat(name, " ", value, ": expected KEY=VALUE,KEY=VALUE"));
    }
  }
}

void rdzv_backend(const std::string& name, const std::string& value) {
  if (value == "static" || value == "c10d") return;
  throw InputError(concat(name, " ", value,
                          ": the agents use their own store on machine 0; use c10d or "
                          "static, or remove the option"));
}

using C = LaunchCommand;
using V = FlagValues;
using S = const std::string&;

/// Builds an option of other launchers that is not supported here.
LaunchFlag refused(std::vector<std::string> names, const std::string& value, const std::string& advice) {
  return {std::move(names), value, "",
          [advice](C&, V&, S name, S) { throw InputError(concat("tessera launch: ", name, " ", advice)); }};
}
LaunchFlag ignored(std::vector<std::string> names, const std::string& value) {
  return {std::move(names), value, "", [](C&, V&, S, S) {}};
}

std::vector<LaunchFlag> make_flags() {
  return {
      {{}, "", "Processes", {}},
      {{"--num_processes", "-n"},
       "N",
       "ranks of all machines together (default 1)",
       [](C&, V& v, S n, S s) { v.total = processes(n, s); }},
      {{"--nproc_per_node", "--num_gpus"},
       "N",
       "ranks on this machine; gpu: one per GPU, cpu: one per core, auto: gpu "
       "if there are any, else cpu",
       [](C&, V& v, S n, S s) { v.per_machine = processes(n, s); }},
      {{"--num_cpu_threads_per_process"},
       "T",
       "OMP_NUM_THREADS of each rank (default: its value here, else its share "
       "of the cores)",
       [](C& c, V&, S n, S s) { c.options.threads_per_process = number(n, s, 1, 4096); }},
      {{"--bind_cores", "--bind_cores_to_rank", "--enable_cpu_affinity"},
       "",
       "bind each rank to its share of the "
       "cores; with more ranks than cores, ranks share",
       [](C& c, V&, S, S) { c.options.bind_cores = true; }},
      {{"--bind_core_list"},
       "LIST",
       "the cores to share out: 1,3-5",
       [](C& c, V&, S n, S s) {
         c.options.bind_cores = true;
         c.options.bind_core_list = text(n, s);
       }},

      {{}, "", "Several machines: the same command on each, or once with a list of hosts", {}},
      {{"--num_machines", "--nnodes", "--num_nodes"},
       "M",
       "number of machines (default 1)",
       [](C&, V& v, S n, S s) { v.machines = machines(n, s); }},
      {{"--machine_rank", "--node_rank"},
       "K",
       "which machine this is, 0 .. M-1 (default, or auto: from Slurm, Kubernetes "
       "or mpirun)",
       [](C&, V& v, S n, S s) {
         if (s != "auto") v.machine_rank = number(n, s, 0, 65'535);
       }},
      {{"--main_process_ip", "--master_addr"},
       "A",
       "address of machine 0, the rendezvous (default 127.0.0.1)",
       [](C&, V& v, S n, S s) { v.address = text(n, s); }},
      {{"--main_process_port", "--master_port"},
       "P",
       "port there; with one machine it becomes MASTER_PORT (default: a "
       "free one; 0 means the same)",
       [](C&, V& v, S n, S s) { v.port = number(n, s, 0, 65'535); }},
      {{"--rdzv_endpoint"}, "A:P", "both of the above", [](C&, V& v, S n, S s) { v.endpoint = text(n, s); }},
      {{"--secret_file"},
       "FILE",
       "64 hexadecimal digits that only this job's machines know; mode 600",
       [](C& c, V&, S n, S s) { c.secret_file = text(n, s); }},
      {{"--trusted_network"},
       "",
       "no secret: anyone who can reach the port may join",
       [](C& c, V&, S, S) { c.trusted_network = true; }},
      {{"--hostfile", "-H", "--deepspeed_hostfile"},
       "FILE",
       "lines NAME slots=N: an agent is started on each host with "
       "ssh",
       [](C&, V& v, S n, S s) { v.hostfile = text(n, s); }},
      {{"--host_list"},
       "LIST",
       "the same from a list: gpu[01-04],login; ranks by --nproc_per_node",
       [](C&, V& v, S n, S s) { v.host_list = text(n, s); }},
      {{"--include", "-i", "--deepspeed_inclusion_filter"},
       "SPEC",
       "only these hosts or slots of the hostfile: "
       "worker-0@worker-1:0,2",
       [](C&, V& v, S n, S s) { v.include = text(n, s); }},
      {{"--exclude", "-e", "--deepspeed_exclusion_filter"},
       "SPEC",
       "all but these",
       [](C&, V& v, S n, S s) { v.exclude = text(n, s); }},
      {{"--bad_hosts"},
       "FILE",
       "skip the hosts in this file, written by tessera doctor --bad_hosts",
       [](C&, V& v, S n, S s) { v.bad_hosts = text(n, s); }},
      {{"--export"},
       "NAME[=VALUE]",
       "set it for all ranks on all hosts (may be repeated)",
       [](C& c, V&, S n, S s) {
         const std::string name = s.substr(0, s.find('='));
         const bool good =
             !name.empty() && !(name[0] >= '0' && name[0] <= '9') &&
             std::all_of(name.begin(), name.end(), [](unsigned char x) { return x == '_' || std::isalnum(x); });
         if (!good) throw InputError(concat(n, " ", s, ": expected NAME or NAME=VALUE"));
         c.exports.push_back(s);
       }},

      {{}, "", "When something fails", {}},
      {{"--max_restarts"},
       "N",
       "start all ranks again after a failure, at most N times (default 0)",
       [](C& c, V&, S n, S s) { c.options.max_restarts = number(n, s, 0, 1'000'000); }},
      {{"--host_timeout"},
       "S",
       "seconds without contact until another machine is considered lost (default 30)",
       [](C& c, V&, S n, S s) { c.options.host_timeout = real(n, s, 0.5, 1e6); }},
      {{"--monitor_interval"},
       "S",
       "seconds between looks at the heartbeats (default 0.1)",
       [](C& c, V&, S n, S s) { c.options.monitor_interval = real(n, s, 0.01, 3600); }},
      {{"--heartbeat_timeout"},
       "S",
       "seconds after which a stopped rank counts as frozen (default 2.5; 0: never)",
       [](C& c, V&, S n, S s) { c.options.heartbeat_timeout = real(n, s, 0, 1e6); }},
      {{"--hang_timeout"},
       "S",
       "seconds of sleep without progress that count as a hang (default 0: 300 s; -1: never)",
       [](C& c, V&, S n, S s) { c.options.hang_timeout = real(n, s, -1, 1e6); }},
      {{"--only_report"},
       "",
       "report frozen and hanging ranks but do not end them",
       [](C& c, V&, S, S) { c.options.only_report = true; }},
      {{"--stop_seconds"},
       "S",
       "time to save after Ctrl-C or SIGTERM (default 60)",
       [](C& c, V&, S n, S s) { c.options.stop_seconds = real(n, s, 0, 1e6); }},

      {{}, "", "Output", {}},
      {{"--log_dir"},
       "DIR",
       "also write DIR/rank-N.log; with restarts DIR/generation-G/rank-N.log",
       [](C& c, V&, S n, S s) { c.options.log_dir = text(n, s); }},
      {{"--redirects", "-r"},
       "N",
       "to the files only: 0 none (default), 1 standard output, 2 standard error, 3 both; or "
       "by local rank, 0:3,1:0",
       [](C&, V& v, S n, S s) { v.redirects = streams(n, s); }},
      {{"--tee", "-t"},
       "N",
       "to the files and here, same numbers; overrides --redirects",
       [](C&, V& v, S n, S s) { v.tee = streams(n, s); }},
      {{"--local_ranks_filter"},
       "R,R",
       "show the output of these local ranks only",
       [](C& c, V&, S n, S s) {
         for (const std::string& rank : split(s, ',')) c.options.shown_ranks.push_back(number(n, rank, 0, 4095));
       }},
      {{"--no_prefix"}, "", "no [rank R] before each line", [](C& c, V&, S, S) { c.options.prefix_output = false; }},

      {{}, "", "Job files: printed instead of starting anything", {}},
      {{"--emit"},
       "KIND",
       "slurm: sbatch script; kubernetes, jobset, trainjob, mpijob, volcano: manifests; ray: program for ray job "
       "submit; hostfile: of --host_list or --hostfile",
       [](C& c, V&, S n, S s) {
         c.emit = one_of(n, s, {"slurm", "kubernetes", "jobset", "trainjob", "mpijob", "volcano", "ray", "hostfile"});
       }},
      {{"--job_name"},
       "NAME",
       "name of the job (default tessera)",
       [](C& c, V&, S n, S s) { c.emission.job_name = text(n, s); }},
      {{"--time"},
       "T",
       "Slurm: time limit; the ranks are asked to save --stop_seconds and 30 s before",
       [](C& c, V&, S n, S s) { c.emission.time = text(n, s); }},
      {{"--partition"},
       "NAME",
       "Slurm: partition; Volcano: queue",
       [](C& c, V&, S n, S s) { c.emission.partition = text(n, s); }},
      {{"--account"}, "NAME", "Slurm: account to charge", [](C& c, V&, S n, S s) { c.emission.account = text(n, s); }},
      {{"--image"},
       "IMAGE",
       "container image of Kubernetes' pods, or of a containerized Slurm job",
       [](C& c, V&, S n, S s) { c.emission.image = text(n, s); }},
      {{"--container"},
       "KIND",
       "Slurm: pyxis or apptainer runs the image (default: apptainer for a .sif, else pyxis)",
       [](C& c, V&, S n, S s) { c.emission.container = one_of(n, s, {"pyxis", "apptainer"}); }},
      {{"--mounts"},
       "A:B,C",
       "Slurm: further folders to mount in the container",
       [](C& c, V&, S n, S s) { c.emission.mounts = text(n, s); }},
      {{"--requeue"},
       "",
       "Slurm: requeue a job that was asked to stop and has saved",
       [](C& c, V&, S, S) { c.emission.requeue = true; }},
      {{"--namespace"},
       "NAME",
       "Kubernetes namespace (default: that of kubectl's context)",
       [](C& c, V&, S n, S s) { c.emission.name_space = text(n, s); }},
      {{"--gpus_per_machine"},
       "G",
       "GPUs to request",
       [](C& c, V&, S n, S s) { c.emission.gpus_per_machine = number(n, s, 0, 4096); }},
      {{"--cpus_per_machine"},
       "C",
       "cores to request",
       [](C& c, V&, S n, S s) { c.emission.cpus_per_machine = number(n, s, 1, 65'536); }},

      {{}, "", "", {}},
      {{"--help", "-h"}, "", "show this help", [](C& c, V&, S, S) { c.help = true; }},

      // Accepted, not shown.
      {{"--enable_each_rank_log"}, "DIR", "", [](C& c, V&, S n, S s) { c.options.log_dir = text(n, s); }},
      {{"--standalone"}, "", "", [](C&, V& v, S, S) { v.standalone = true; }},
      {{"--rdzv_id"}, "ID", "", [](C& c, V&, S, S s) { c.options.job = s; }},
      {{"--rdzv_backend"}, "NAME", "", [](C&, V&, S n, S s) { rdzv_backend(n, s); }},
      {{"--rdzv_conf"}, "CONF", "", [](C&, V&, S n, S s) { rdzv_conf(n, s); }},
      {{"--module", "-m"}, "", "", [](C&, V& v, S, S) { v.module = true; }},
      ignored({"--no_python"}, ""),  // torchrun: the program is not a Python script; here that follows from its name
      ignored({"--same_network"}, ""),
      ignored({"--use_env"}, ""),                   // torchrun: LOCAL_RANK is always in the environment
      ignored({"--ipex", "--use_xpu"}, ""),         // accelerate: Intel's accelerators
      ignored({"--no_ssh", "--no_ssh_check"}, ""),  // DeepSpeed: used with --node_rank, which implies it here
      ignored({"--quiet", "-q"}, ""),
      ignored({"--launcher"}, "NAME"),  // DeepSpeed: how it reaches other hosts; we use ssh
      ignored({"--launcher_args"}, "ARGS"),
      ignored({"--force_multi", "--no_local_rank", "--save_pid"}, ""),
      ignored({"--role"}, "NAME"),
      ignored({"--start_method"}, "NAME"),
      ignored({"--local_addr"}, "A"),
      // Used when our launcher starts agents by ssh.
      {{"--host_label"}, "NAME", "", [](C& c, V&, S, S s) { c.options.host_label = s; }},
      {{"--secret_from_stdin"}, "", "", [](C& c, V&, S, S) { c.secret_from_stdin = true; }},

      refused({"--run_path"}, "", "runs a file through Python's runpy; name the program itself"),
      refused({"--autotuning"}, "MODE",
              "searches for a fast configuration by trial; tessera plan and tessera train --strategy auto choose one"),
      refused({"--elastic_training"}, "",
              "changes the size of a running job; resume a checkpoint on another number of processes instead"),
      refused({"--mps"}, "", "is for Apple GPUs; Tessera runs on CPUs and NVIDIA GPUs"),
  };
}

}  // namespace

const std::vector<LaunchFlag>& launch_flags() {
  static const std::vector<LaunchFlag> all = [] {
    std::vector<LaunchFlag> flags = make_flags();
    const auto end = std::find_if(flags.begin(), flags.end(),
                                  [](const LaunchFlag& flag) { return flag.names.empty() && flag.help.empty(); });
    std::vector<LaunchFlag> training = training_flags();
    flags.insert(end, std::make_move_iterator(training.begin()), std::make_move_iterator(training.end()));
    return flags;
  }();
  return all;
}

}  // namespace tessera::launch
