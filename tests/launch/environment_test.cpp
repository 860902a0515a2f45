#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/launch/cli/environment.h>

#include <tests/error_of.h>

#include <map>

namespace tessera::launch {
namespace {

using Variables = std::map<std::string, std::string>;

RankEnvironment read(const Variables& variables, std::vector<std::string>* arguments = nullptr) {
  return read_rank_environment(arguments, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string message_of(const Variables& variables, std::vector<std::string> arguments = {}) {
  return tessera::testing::error_of([&] { read(variables, &arguments); });
}
void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

const Variables torchrun = {{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "node01"},
                            {"MASTER_PORT", "29500"}};

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::vector<std::string>& names) {
  for (const auto& name : names) variables.erase(name);
  return variables;
}

TEST(Environment, NothingMeansOneRank) {
  const RankEnvironment e = read({{"RANK", ""}});  // an empty value counts as not set
  EXPECT_EQ(e.rank, 0);
  EXPECT_EQ(e.world_size, 1);
  EXPECT_EQ(e.local_rank, 0);
  EXPECT_EQ(e.local_world_size, 1);
  EXPECT_EQ(e.master_port, 0);
  EXPECT_EQ(e.launcher, "none");
}

TEST(Environment, Torchrun) {
  const RankEnvironment e =
      read(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RUN_ID", "none"}}));
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.world_size, 8);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world_size, 4);
  EXPECT_EQ(e.master_addr, "node01");
  EXPECT_EQ(e.master_port, 29500);
  EXPECT_TRUE(e.agent_hosts_store);
  EXPECT_EQ(e.launcher, "torchrun");
  EXPECT_FALSE(read(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).agent_hosts_store);
  EXPECT_FALSE(read(torchrun).agent_hosts_store);
}

TEST(Environment, Tessera) {
  const Variables ours = with(torchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"TESSERA_LAUNCHER", "1"}});
  EXPECT_EQ(read(ours).launcher, "tessera");
  EXPECT_EQ(read(without(ours, {"TESSERA_LAUNCHER"})).launcher, "torchrun");
}

TEST(Environment, LocalVariablesMayBeMissing) {
  const Variables four = without(torchrun, {"LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  EXPECT_EQ(read(four).local_rank, 0);
  EXPECT_EQ(read(four).local_world_size, 1);
  const RankEnvironment here = read(with(four, {{"MASTER_ADDR", "127.0.0.1"}}));
  EXPECT_EQ(here.local_rank, 5);
  EXPECT_EQ(here.local_world_size, 8);
}

TEST(Environment, AHalfSetOneListsWhatIsSetAndMissing) {
  const auto rank_only = message_of({{"RANK", "1"}});
  expect_says(rank_only, "set: RANK=1; missing: WORLD_SIZE, MASTER_ADDR, MASTER_PORT");
  expect_says(rank_only, "tessera launch");
  expect_says(message_of({{"WORLD_SIZE", "2"}}), "set: WORLD_SIZE=2; missing: RANK, MASTER_ADDR, MASTER_PORT");
  expect_says(message_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}}), "missing: MASTER_PORT");
  expect_says(message_of({{"LOCAL_RANK", "1"}}), "set: LOCAL_RANK=1; missing: RANK");
  expect_says(message_of({{"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}}),
              "set: MASTER_ADDR=h, MASTER_PORT=1; missing: RANK");
  expect_says(message_of({{"OMPI_COMM_WORLD_RANK", "1"}}), "missing: OMPI_COMM_WORLD_SIZE");
  expect_says(message_of({{"SLURM_PROCID", "1"}}), "missing: SLURM_NTASKS");
}

TEST(Environment, ContradictionsGiveTheNumbers) {
  expect_says(message_of(with(torchrun, {{"RANK", "8"}})), "rank 8 in a world of 8");
  expect_says(message_of(with(torchrun, {{"LOCAL_RANK", "4"}})), "local rank 4 among 4");
  expect_says(message_of(with(torchrun, {{"LOCAL_WORLD_SIZE", "9"}})), "9 ranks on this host in a world of 8");
  expect_says(message_of(with(torchrun, {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}})),
              "OMPI_COMM_WORLD_RANK=3");
  // mpirun may start one agent per host.
  EXPECT_EQ(read(with(torchrun, {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}})).rank, 5);
}

TEST(Environment, NumbersAreChecked) {
  expect_says(message_of(with(torchrun, {{"RANK", "one"}})), "RANK=one");
  expect_says(message_of(with(torchrun, {{"RANK", "-1"}})), "RANK=-1");
  expect_says(message_of(with(torchrun, {{"WORLD_SIZE", "0"}})), "WORLD_SIZE=0");
  expect_says(message_of(with(torchrun, {{"MASTER_PORT", "70000"}})), "from 1 to 65535");
  expect_says(message_of(with(torchrun, {{"WORLD_SIZE", "99999999999"}})), "WORLD_SIZE=99999999999");
}

TEST(Environment, LocalRankArgumentIsRemovedAndChecked) {
  for (const char* flag : {"--local-rank=1", "--local_rank=1"}) {
    std::vector<std::string> arguments = {"--epochs", "3", flag, "data"};
    EXPECT_EQ(read(torchrun, &arguments).local_rank, 1);
    EXPECT_EQ(arguments, (std::vector<std::string>{"--epochs", "3", "data"}));
  }
  std::vector<std::string> arguments = {"--local-rank=2"};
  EXPECT_EQ(read(without(torchrun, {"LOCAL_RANK"}), &arguments).local_rank, 2);
  std::vector<std::string> none = {"--local_rank=-1"};
  EXPECT_EQ(read({}, &none).world_size, 1);
  EXPECT_TRUE(none.empty());
  expect_says(message_of(torchrun, {"--local-rank=2"}),
              "--local-rank=2 but the environment of torchrun has local rank 1");
  expect_says(message_of({}, {"--local-rank=1"}), "--local-rank=1 was given, but RANK, WORLD_SIZE");
  expect_says(message_of(torchrun, {"--local-rank=x"}), "--local-rank=x");
}

TEST(Environment, Mpirun) {
  const Variables open_mpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                              {"PMIX_NAMESPACE", "3301638145"}};
  const RankEnvironment e = read(open_mpi);
  EXPECT_EQ(e.rank, 2);
  EXPECT_EQ(e.world_size, 4);
  EXPECT_EQ(e.local_rank, 2);
  EXPECT_EQ(e.local_world_size, 4);
  EXPECT_EQ(e.master_addr, "127.0.0.1");
  EXPECT_EQ(e.launcher, "mpirun");
  EXPECT_GE(e.master_port, 20000);
  EXPECT_EQ(e.master_port,
            read(with(open_mpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})).master_port);
  EXPECT_NE(e.master_port, read(with(open_mpi, {{"PMIX_NAMESPACE", "3301638146"}})).master_port);

  const Variables two_hosts =
      with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  expect_says(message_of(two_hosts), "MASTER_ADDR");
  EXPECT_EQ(read(with(two_hosts, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "77"}})).master_port, 77);
  const RankEnvironment mpich =
      read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(mpich.rank, 1);
  EXPECT_EQ(mpich.local_rank, 1);
}

TEST(Environment, Srun) {
  const Variables task = {{"SLURM_PROCID", "3"},
                          {"SLURM_NTASKS", "4"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_JOB_ID", "4711"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                          {"SLURM_STEP_NODELIST", "gpu[07-08]"}};
  const RankEnvironment e = read(task);
  EXPECT_EQ(e.rank, 3);
  EXPECT_EQ(e.world_size, 4);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world_size, 2);
  EXPECT_EQ(e.master_addr, "gpu07");
  EXPECT_GE(e.master_port, 20000);
  EXPECT_EQ(e.launcher, "srun");
  EXPECT_EQ(read(with(task, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "9"}})).master_addr, "h");
  // A step smaller than its job.
  EXPECT_EQ(read(with(task, {{"SLURM_NTASKS", "16"}, {"SLURM_STEP_NUM_TASKS", "4"}})).world_size, 4);
  // A step on one node.
  EXPECT_EQ(read({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"}, {"SLURM_NNODES", "1"}})
                .local_world_size,
            2);
  // The batch script itself, or a shell under salloc, is a single process.
  EXPECT_EQ(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"ENVIRONMENT", "BATCH"}}).world_size, 1);
  EXPECT_EQ(read({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "4711"}}).world_size, 1);
  // tessera launch inside a step: tessera's own variables take precedence.
  EXPECT_EQ(read(with(torchrun, task)).rank, 5);
}

TEST(Environment, SrunWithUnequalNodes) {
  const Variables third = {{"SLURM_PROCID", "4"},
                           {"SLURM_NTASKS", "5"},
                           {"SLURM_LOCALID", "0"},
                           {"SLURM_NODEID", "2"},
                           {"SLURM_JOB_ID", "4711"},
                           {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                           {"SLURM_STEP_NODELIST", "rack[0-1]n[07-08]-ib"}};
  EXPECT_EQ(read(third).local_world_size, 1);
  EXPECT_EQ(read(third).master_addr, "rack0n07-ib");
  EXPECT_EQ(read(with(third, {{"SLURM_PROCID", "3"}, {"SLURM_NODEID", "1"}, {"SLURM_LOCALID", "1"}})).local_world_size,
            2);
  expect_says(message_of(with(third, {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}})), "Slurm tasks per node '2(x'");
  expect_says(message_of(with(third, {{"SLURM_STEP_NODELIST", "a[1"}})), "Slurm node list 'a[1': missing ']'");
}

TEST(Environment, Mvapich) {
  const RankEnvironment e = read({{"MV2_COMM_WORLD_RANK", "1"},
                                  {"MV2_COMM_WORLD_SIZE", "2"},
                                  {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                                  {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(e.rank, 1);
  EXPECT_EQ(e.world_size, 2);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.launcher, "mpirun");
  EXPECT_EQ(e.master_addr, "127.0.0.1");
  expect_says(message_of({{"MV2_COMM_WORLD_RANK", "1"}}), "missing: MV2_COMM_WORLD_SIZE");
}

TEST(Environment, HydraThatSlurmStarted) {
  const Variables proxy = {{"SLURM_PROCID", "0"},    {"SLURM_NTASKS", "1"},   {"SLURM_STEP_ID", "0"},
                           {"SLURM_JOB_ID", "7"},    {"PMI_RANK", "2"},       {"PMI_SIZE", "4"},
                           {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}};
  EXPECT_EQ(read(proxy).rank, 2);
  EXPECT_EQ(read(proxy).world_size, 4);
  // srun with Slurm's own PMI.
  const Variables slurm = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_NNODES", "1"}, {"SLURM_LOCALID", "1"},
                           {"SLURM_JOB_ID", "7"}, {"PMI_RANK", "1"},     {"PMI_SIZE", "2"}};
  EXPECT_EQ(read(slurm).launcher, "srun");
  EXPECT_EQ(read(slurm).rank, 1);
}

TEST(Environment, PmixAloneDoesNotTellTheSize) {
  expect_says(message_of({{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "x"}}), "PMIX_RANK=3");
  EXPECT_EQ(read({{"PMIX_RANK", "1"},
                  {"PMIX_NAMESPACE", "x"},
                  {"OMPI_COMM_WORLD_RANK", "1"},
                  {"OMPI_COMM_WORLD_SIZE", "2"},
                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})
                .rank,
            1);
}

TEST(Environment, KubernetesIndexedJob) {
  const Variables pod = {{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "job-0.job"}};
  const RankEnvironment e = read(pod);
  EXPECT_EQ(e.rank, 2);
  EXPECT_EQ(e.world_size, 4);
  EXPECT_EQ(e.local_rank, 0);
  EXPECT_EQ(e.local_world_size, 1);
  EXPECT_EQ(e.master_addr, "job-0.job");
  EXPECT_EQ(e.master_port, 29500);
  EXPECT_EQ(e.launcher, "kubernetes");
  EXPECT_EQ(read(with(pod, {{"MASTER_PORT", "77"}})).master_port, 77);
  const Variables kubeflow = {{"JOB_COMPLETION_INDEX", "1"},
                              {"PET_NNODES", "2"},
                              {"PET_NPROC_PER_NODE", "1"},
                              {"PET_MASTER_ADDR", "job-node-0-0"},
                              {"PET_MASTER_PORT", "78"}};
  EXPECT_EQ(read(kubeflow).world_size, 2);
  EXPECT_EQ(read(kubeflow).master_port, 78);
  expect_says(message_of(with(kubeflow, {{"PET_NPROC_PER_NODE", "4"}})), "--machine_rank auto --nproc_per_node 4");
  expect_says(message_of(without(pod, {"MASTER_ADDR"})), "missing: MASTER_ADDR, MASTER_PORT");
  expect_says(message_of(with(pod, {{"JOB_COMPLETION_INDEX", "4"}})), "rank 4 in a world of 4");
  // A job of independent tasks, and ranks started by an agent in the pod.
  EXPECT_EQ(read({{"JOB_COMPLETION_INDEX", "5"}}).world_size, 1);
  EXPECT_EQ(read(with(torchrun, {{"JOB_COMPLETION_INDEX", "1"}})).rank, 5);
}

TEST(Environment, VariablesThatNoLauncherVouchesForAreKnownAsSuch) {
  const Variables shell = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29577"}};
  EXPECT_EQ(read(shell).unvouched, "RANK=0, WORLD_SIZE=2");
  EXPECT_EQ(read(with(shell, {{"TORCHELASTIC_RUN_ID", "x"}, {"LOCAL_RANK", "0"}})).unvouched, "");
  EXPECT_EQ(read(with(shell, {{"TESSERA_LAUNCHER", "1"}})).unvouched, "");
  EXPECT_EQ(read({}).unvouched, "");
}

TEST(Environment, APodsVariablesAreNotARanks) {
  const Variables pod = {
      {"RANK", "0"},       {"WORLD_SIZE", "2"},    {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29577"},
      {"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}, {"PET_NPROC_PER_NODE", "2"}};
  EXPECT_EQ(
      message_of(pod),
      "set: RANK=0, WORLD_SIZE=2, PET_NNODES=1, PET_NPROC_PER_NODE=2; missing: LOCAL_RANK. They describe a pod whose "
      "launcher has to start 2 processes: start the program with tessera launch --nproc_per_node 2 PROGRAM; or unset "
      "RANK, WORLD_SIZE and PET_NPROC_PER_NODE to run as one process");
  expect_says(message_of(with(pod, {{"PET_NNODES", "4"}})),
              "tessera launch --secret_file FILE PROGRAM, which reads PET_*");
  EXPECT_EQ(read(with(pod, {{"LOCAL_RANK", "0"}})).world_size, 2) << "torchrun has started it";
  EXPECT_EQ(read(with(pod, {{"PET_NPROC_PER_NODE", "1"}})).world_size, 2);
}

TEST(Environment, AnIpv6AddressMayStandInBrackets) {
  EXPECT_EQ(read(with(torchrun, {{"MASTER_ADDR", "[fd00::1]"}})).master_addr, "fd00::1");
  const Variables ours = with(torchrun, {{"TESSERA_LAUNCHER", "1"}, {"TESSERA_SECRET_FD", "5"}});
  const RankEnvironment e = read(with(ours, {{"TESSERA_STORE", "[fd00::1]:23456"}}));
  EXPECT_EQ(e.store_address, "fd00::1");
  EXPECT_EQ(e.store_port, 23456);
  expect_says(message_of(with(ours, {{"TESSERA_STORE", "fd00::1"}})), "expected HOST:PORT");
}

TEST(Environment, SlurmHostLists) {
  EXPECT_EQ(first_slurm_host("node1"), "node1");
  EXPECT_EQ(first_slurm_host("node1,node2"), "node1");
  EXPECT_EQ(first_slurm_host("node[03-05,9],other"), "node03");
  EXPECT_EQ(first_slurm_host("node[9,11]"), "node9");
  EXPECT_EQ(first_slurm_host("a,node[1-2]"), "a");
  EXPECT_THROW(first_slurm_host("node[3"), InputError);
}

}  // namespace
}  // namespace tessera::launch
