#include <tessera/launch/cli/environment.h>

#include <tessera/base/error.h>
#include <tessera/base/hash.h>
#include <tessera/base/system/endpoint.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/ports.h>
#include <tessera/launch/fleet/hostfile.h>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace tessera::launch {

namespace {

using Getenv = std::function<std::optional<std::string>(const std::string&)>;

/// Reads and checks variables; errors name the variable.
class Variables {
 public:
  explicit Variables(Getenv getenv) : getenv_(std::move(getenv)) {}

  std::optional<std::string> text(const std::string& name) const {
    std::optional<std::string> value = getenv_(name);
    if (value && value->empty()) value.reset();
    return value;
  }
  bool has(const std::string& name) const { return text(name).has_value(); }

  std::optional<int> number(const std::string& name, int minimum, int maximum = std::numeric_limits<int>::max()) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto parsed = parse_int(*value);
    if (!parsed || *parsed < minimum || *parsed > maximum) {
      throw InputError(concat("environment variable ", name, "=", *value, ": expected an integer ",
                              maximum == std::numeric_limits<int>::max() ? concat("of at least ", minimum)
                                                                         : concat("from ", minimum, " to ", maximum)));
    }
    return static_cast<int>(*parsed);
  }

  /// "RANK=1, WORLD_SIZE=4 are set; MASTER_ADDR, MASTER_PORT are missing".
  std::string state_of(const std::vector<std::string>& names) const {
    std::vector<std::string> set, missing;
    for (const std::string& name : names) {
      if (const auto value = text(name)) {
        set.push_back(concat(name, "=", *value));
      } else {
        missing.push_back(name);
      }
    }
    return concat("set: ", set.empty() ? "nothing" : join(set),
                  "; missing: ", missing.empty() ? "nothing" : join(missing));
  }

 private:
  Getenv getenv_;
};

/// Removes --local-rank=N and --local_rank=N; the last one counts.
std::optional<int> take_local_rank(std::vector<std::string>& arguments) {
  std::optional<int> result;
  std::vector<std::string> kept;
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--local-rank=") && !argument.starts_with("--local_rank=")) {
      kept.push_back(argument);
      continue;
    }
    const auto value = parse_int(argument.substr(argument.find('=') + 1));
    if (!value || *value < -1 || *value > std::numeric_limits<int>::max()) {
      throw InputError(concat(argument, ": expected a rank, an integer of at least 0"));
    }
    if (*value >= 0) result = static_cast<int>(*value);
  }
  arguments = std::move(kept);
  return result;
}

/// Derives a port from the job's id, the same on every rank, between 20000 and 29999.
int port_from_job(const std::string& job) { return 20000 + static_cast<int>(fnv1a(job) % 10000); }

/// Names of one launcher's variables. Empty: the launcher has no such variable.
struct Family {
  std::string launcher, rank, world_size, local_rank, local_world_size;
};

const Family torchrun_family = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
const Family openmpi_family = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                               "OMPI_COMM_WORLD_LOCAL_SIZE"};
const Family slurm_family = {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""};
/// MPICH's and Intel MPI's Hydra.
const Family pmi_family = {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
const Family mvapich_family = {"mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
                               "MV2_COMM_WORLD_LOCAL_SIZE"};

/// Reads rank and sizes from one launcher's variables. Sizes that it does not provide stay 0.
RankEnvironment read_family(const Variables& variables, const Family& family, std::vector<std::string> needed) {
  RankEnvironment result;
  const auto world_size = variables.number(family.world_size, 1);
  const auto rank = variables.number(family.rank, 0);
  needed.insert(needed.begin(), {family.rank, family.world_size});
  if (!world_size || !rank) {
    throw InputError(
        concat("the environment of ", family.launcher, " is incomplete: ", variables.state_of(needed),
               ". Start the program with a launcher (tessera launch, torchrun, mpirun, srun), or unset them "
               "all to run as one process"));
  }
  result.launcher = family.launcher;
  result.rank = *rank;
  result.world_size = *world_size;
  result.local_rank = variables.number(family.local_rank, 0).value_or(-1);
  result.local_world_size =
      family.local_world_size.empty() ? 0 : variables.number(family.local_world_size, 1).value_or(0);
  return result;
}

/// Returns the number of ranks on this node, from "tasks per node" and the node's index in the step; 0: unknown.
int slurm_tasks_here(const Variables& variables) {
  const auto text = variables.text("SLURM_STEP_TASKS_PER_NODE");
  if (!text) return 0;
  const std::vector<int> counts = expand_task_counts(*text);
  const auto node = variables.number("SLURM_NODEID", 0);
  if (node && static_cast<std::size_t>(*node) < counts.size()) return counts[static_cast<std::size_t>(*node)];
  const bool equal = std::equal(counts.begin() + 1, counts.end(), counts.begin());
  return equal ? counts[0] : 0;
}

std::optional<std::string> first_text(const Variables& variables, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (auto value = variables.text(name)) return value;
  }
  return std::nullopt;
}

/// Fills in MASTER_ADDR and MASTER_PORT where mpirun and srun leave them to the user.
void complete_rendezvous(const Variables& variables, RankEnvironment& result) {
  const bool slurm = result.launcher == "srun";
  auto address = variables.text("MASTER_ADDR");
  if (!address && slurm) {
    if (const auto nodes = first_text(variables, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"})) {
      address = first_slurm_host(*nodes);
    }
  }
  const bool one_host = result.local_world_size == result.world_size;
  if (!address && one_host) address = "127.0.0.1";
  if (!address) {
    throw InputError(
        concat(result.launcher, " started ", result.world_size,
               " ranks, but MASTER_ADDR is missing: export the "
               "name of rank 0's host as MASTER_ADDR (and a free port there as MASTER_PORT) to all ranks"));
  }
  result.master_addr = bare_host(*address);
  if (const auto port = variables.number("MASTER_PORT", 1, 65535)) {
    result.master_port = *port;
    return;
  }
  const auto job = slurm ? first_text(variables, {"SLURM_JOB_ID", "SLURM_JOBID"})
                         : first_text(variables, {"PMIX_NAMESPACE", "OMPI_MCA_orte_ess_jobid",
                                                  "OMPI_MCA_ess_base_jobid", "PMI_ID", "MPIRUN_ID", "SLURM_JOB_ID"});
  const auto step = slurm ? variables.text("SLURM_STEP_ID") : std::nullopt;
  result.master_port = job ? port_from_job(*job + "." + step.value_or("")) : 29500;  // 29500: PyTorch's default
}

/// Reads the variables that our agent passes in addition to torchrun's.
void read_agent(const Variables& variables, RankEnvironment& result) {
  result.board_fd = variables.number("TESSERA_BOARD_FD", 0).value_or(-1);
  result.secret_fd = variables.number("TESSERA_SECRET_FD", 0).value_or(-1);
  result.generation = variables.number("TESSERA_GENERATION", 0).value_or(0);
  result.job = variables.text("TESSERA_JOB").value_or("");
  result.memory_folder = variables.text("TESSERA_MEMORY").value_or("");
  const auto store = variables.text("TESSERA_STORE");
  if (!store) return;
  const auto endpoint = parse_endpoint(*store);
  if (!endpoint || endpoint->port.value_or(0) < 1) {
    throw InputError(
        concat("environment variable TESSERA_STORE=", *store, ": expected HOST:PORT, a port from 1 to 65535"));
  }
  if (result.secret_fd < 0) {
    throw InputError(concat("TESSERA_STORE=", *store,
                            " is set but TESSERA_SECRET_FD is not: the store refuses clients ",
                            "without the job's secret. Both come from `tessera launch`; pass on both or neither"));
  }
  result.store_address = endpoint->host;
  result.store_port = *endpoint->port;
}

/// Refuses variables meant for a pod's torchrun: RANK and WORLD_SIZE then do not describe this process.
void refuse_pods_variables(const Variables& variables) {
  const auto per_pod = variables.text("PET_NPROC_PER_NODE");
  if (!per_pod || *per_pod == "1" || variables.has("LOCAL_RANK") || variables.has("TESSERA_LAUNCHER")) return;
  const auto pods = variables.number("PET_NNODES", 1);
  throw InputError(concat(variables.state_of({"RANK", "WORLD_SIZE", "LOCAL_RANK", "PET_NNODES", "PET_NPROC_PER_NODE"}),
                          ". They describe a pod whose launcher has to start ", *per_pod,
                          " processes: start the program with tessera launch ",
                          pods.value_or(1) > 1 ? "--secret_file FILE PROGRAM, which reads PET_*"
                                               : concat("--nproc_per_node ", *per_pod, " PROGRAM"),
                          "; or unset RANK, WORLD_SIZE and PET_NPROC_PER_NODE to run as one process"));
}

/// Reads the environment of tessera launch, torchrun, or variables set by hand as torch.distributed's env:// expects.
RankEnvironment read_torchrun(const Variables& variables) {
  refuse_pods_variables(variables);
  const std::vector<std::string> rendezvous = {"MASTER_ADDR", "MASTER_PORT"};
  RankEnvironment result = read_family(variables, torchrun_family, rendezvous);
  if (variables.has("TESSERA_LAUNCHER")) result.launcher = "tessera";
  const auto address = variables.text("MASTER_ADDR");
  const auto port = variables.number("MASTER_PORT", 1, 65535);
  if (result.world_size > 1 && (!address || !port)) {
    throw InputError(concat("WORLD_SIZE is ", result.world_size, ", so every rank needs the rendezvous address; ",
                            variables.state_of({"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}),
                            ". Start the program with a launcher (tessera launch, torchrun, mpirun, srun)"));
  }
  result.master_addr = bare_host(address.value_or("127.0.0.1"));
  result.master_port = port.value_or(0);
  const auto agent = variables.text("TORCHELASTIC_USE_AGENT_STORE");
  result.agent_hosts_store = result.launcher != "tessera" && agent && to_lower(*agent) == "true";
  if (result.launcher == "tessera") read_agent(variables, result);
  // If mpirun passed on the variables of another job, every process would get the same rank.
  const auto mpi_rank = variables.number(openmpi_family.rank, 0);
  const auto mpi_size = variables.number(openmpi_family.world_size, 1);
  const bool by_hand = result.launcher == "torchrun" && !variables.has("TORCHELASTIC_RUN_ID");
  if (by_hand) result.unvouched = concat("RANK=", result.rank, ", WORLD_SIZE=", result.world_size);
  if (by_hand && mpi_rank && mpi_size && *mpi_size == result.world_size && *mpi_rank != result.rank) {
    throw InputError(concat("contradictory environment: RANK=", result.rank, " but OMPI_COMM_WORLD_RANK=", *mpi_rank,
                            " in a world of ", *mpi_size, "; unset RANK and WORLD_SIZE under mpirun"));
  }
  return result;
}

/// A batch script has SLURM_PROCID=0 too, but is not a task of a step: it is a single process.
bool is_slurm_task(const Variables& variables) {
  const bool batch_script = variables.text("ENVIRONMENT") == "BATCH" && !variables.has("SLURM_STEP_ID");
  return variables.has("SLURM_PROCID") && !batch_script;
}

/// Reads one family of mpirun's variables, if any of them is set.
std::optional<RankEnvironment> read_mpi(const Variables& variables, const Family& family) {
  if (!variables.has(family.rank) && !variables.has(family.world_size)) return std::nullopt;
  RankEnvironment result = read_family(variables, family, {});
  if (result.world_size > 1) complete_rendezvous(variables, result);
  return result;
}

RankEnvironment read_slurm(const Variables& variables) {
  Family family = slurm_family;
  if (variables.has("SLURM_STEP_NUM_TASKS"))
    family.world_size = "SLURM_STEP_NUM_TASKS";  // the step is smaller than
                                                 // the job
  RankEnvironment result = read_family(variables, family, {});
  result.local_world_size = slurm_tasks_here(variables);
  const auto nodes = first_text(variables, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
  if (result.local_world_size == 0 && nodes == "1") result.local_world_size = result.world_size;
  if (result.world_size > 1) complete_rendezvous(variables, result);
  return result;
}

/// A pod of a Kubernetes Indexed Job with one process per pod. The index alone does not imply ranks (a job of
/// independent tasks has it too); WORLD_SIZE, or PET_NNODES (Kubeflow), is required as well.
std::optional<RankEnvironment> read_kubernetes(const Variables& variables) {
  const auto index = variables.number("JOB_COMPLETION_INDEX", 0);
  const bool own_size = variables.has("WORLD_SIZE");
  if (!index || variables.has("RANK") || (!own_size && !variables.has("PET_NNODES"))) return std::nullopt;
  RankEnvironment result;
  result.launcher = "kubernetes";
  result.rank = *index;
  result.world_size = variables.number(own_size ? "WORLD_SIZE" : "PET_NNODES", 1).value_or(1);
  result.local_rank = 0;
  result.local_world_size = 1;
  const auto per_pod = variables.text("PET_NPROC_PER_NODE");
  if (!own_size && per_pod && *per_pod != "1") {
    throw InputError(concat("PET_NPROC_PER_NODE=", *per_pod,
                            ": several processes per pod need an agent that starts them: "
                            "tessera launch --num_machines ",
                            result.world_size, " --machine_rank auto --nproc_per_node ", *per_pod,
                            " --main_process_ip NAME-0.SERVICE --secret_file FILE PROGRAM"));
  }
  const auto address = first_text(variables, {"MASTER_ADDR", "PET_MASTER_ADDR"});
  if (!address && result.world_size > 1) {
    throw InputError(concat("an Indexed Job of ", result.world_size,
                            " pods, but every pod needs the rendezvous address; ",
                            variables.state_of({"JOB_COMPLETION_INDEX", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}),
                            ". Give the Job a headless service as its subdomain and set MASTER_ADDR to JOB-0.SERVICE "
                            "(tessera launch --emit kubernetes prints such a manifest)"));
  }
  result.master_addr = bare_host(address.value_or("127.0.0.1"));
  const auto port = variables.number("MASTER_PORT", 1, 65535);
  result.master_port = port ? *port : variables.number("PET_MASTER_PORT", 1, 65535).value_or(29500);
  return result;
}

RankEnvironment read_any(const Variables& variables) {
  if (const auto pod = read_kubernetes(variables)) return *pod;
  if (variables.has("RANK") || variables.has("WORLD_SIZE")) return read_torchrun(variables);
  if (const auto mpi = read_mpi(variables, openmpi_family)) return *mpi;
  if (const auto mpi = read_mpi(variables, mvapich_family)) return *mpi;
  // Hydra may start its proxies with srun: the ranks then see the proxies' SLURM_PROCID. Hydra provides local ranks,
  // which Slurm's own PMI does not.
  const bool hydra = variables.has(pmi_family.local_rank) && variables.has(pmi_family.rank);
  if (!hydra && is_slurm_task(variables)) return read_slurm(variables);
  if (const auto mpi = read_mpi(variables, pmi_family)) return *mpi;
  if (const auto rank = variables.text("PMIX_RANK"); rank && !variables.has("SLURM_JOB_ID")) {
    throw InputError(
        concat("PMIX_RANK=", *rank,
               " is set, but no variable has the number of ranks (PMIx keeps it in a "
               "server that only an MPI library can query): start the program with mpirun or srun, or export RANK, "
               "WORLD_SIZE, MASTER_ADDR and MASTER_PORT"));
  }
  const std::vector<std::string> all = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR", "MASTER_PORT"};
  if (std::any_of(all.begin(), all.end(), [&](const std::string& name) { return variables.has(name); })) {
    throw InputError(
        concat("the launcher's environment is incomplete: ", variables.state_of(all),
               ". Start the program with a launcher (tessera launch, torchrun, mpirun, srun), or unset them all "
               "to run as one process"));
  }
  RankEnvironment result;
  result.launcher = "none";
  return result;
}

void complete_local(RankEnvironment& result, const std::optional<int>& local_rank_argument) {
  if (local_rank_argument) {
    if (result.launcher == "none" && *local_rank_argument != 0) {
      throw InputError(concat("--local-rank=", *local_rank_argument,
                              " was given, but RANK, WORLD_SIZE, MASTER_ADDR and "
                              "MASTER_PORT are not set: start the program with a launcher"));
    }
    if (result.local_rank >= 0 && result.local_rank != *local_rank_argument) {
      throw InputError(concat("contradictory: --local-rank=", *local_rank_argument, " but the environment of ",
                              result.launcher, " has local rank ", result.local_rank));
    }
    result.local_rank = *local_rank_argument;
  }
  const bool all_here = result.world_size == 1 || is_loopback(result.master_addr);
  if (result.local_rank < 0) result.local_rank = all_here ? result.rank : 0;
  if (result.local_world_size == 0) result.local_world_size = all_here ? result.world_size : result.local_rank + 1;
}

void check(const RankEnvironment& e) {
  if (e.rank >= e.world_size) {
    throw InputError(
        concat("contradictory environment of ", e.launcher, ": rank ", e.rank, " in a world of ", e.world_size));
  }
  if (e.local_world_size > e.world_size) {
    throw InputError(concat("contradictory environment of ", e.launcher, ": ", e.local_world_size,
                            " ranks on this host in a world of ", e.world_size));
  }
  if (e.local_rank >= e.local_world_size) {
    throw InputError(concat("contradictory environment of ", e.launcher, ": local rank ", e.local_rank, " among ",
                            e.local_world_size, " ranks on this host"));
  }
}

}  // namespace

std::string first_slurm_host(const std::string& node_list) { return expand_node_list(node_list).front(); }

RankEnvironment read_rank_environment(std::vector<std::string>* arguments, const Getenv& getenv) {
  const Variables variables(getenv ? getenv : [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
  const std::optional<int> local_rank = arguments == nullptr ? std::nullopt : take_local_rank(*arguments);
  RankEnvironment result = read_any(variables);
  complete_local(result, local_rank);
  check(result);
  return result;
}

}  // namespace tessera::launch
