#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/launch/agent/process.h>
#include <tessera/launch/cli/command_line.h>
#include <tessera/launch/cli/emit.h>
#include <tessera/launch/fleet/ssh.h>
#include <tests/paths.h>

#include <algorithm>

namespace tessera::launch {
namespace {

using Strings = std::vector<std::string>;

EmitJob job_of(const Strings& words) {
  const LaunchCommand command = parse_launch_command(words);
  return {command.options, command.command, command.emission, std::string(64, '7')};
}

/// Compares with the committed file; TESSERA_WRITE_GOLDEN=1 rewrites it.
void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = tessera::testing::source_path(concat("tests/fixtures/launch/", name));
  if (std::getenv("TESSERA_WRITE_GOLDEN") != nullptr) write_file_atomically(path, text);
  EXPECT_EQ(read_file(path), text) << path;
}

const Strings full = {"--emit",
                      "slurm",
                      "--num_machines=2",
                      "--nproc_per_node",
                      "4",
                      "--max_restarts",
                      "3",
                      "--time",
                      "2:00:00",
                      "--partition",
                      "gpu",
                      "--account",
                      "a1",
                      "--gpus_per_machine",
                      "4",
                      "--cpus_per_machine",
                      "32",
                      "--job_name",
                      "gpt2-small",
                      "--namespace",
                      "ml",
                      "--log_dir",
                      "logs",
                      "train.py",
                      "--name",
                      "it's $HOME",
                      "--lr",
                      "1e-3"};

/// The same job in a container.
Strings with_image(Strings more = {}, const std::string& image = "registry.example/tessera:1") {
  more.insert(more.end(), {"--image", image});
  more.insert(more.end(), full.begin(), full.end());
  return more;
}

/// The parsed documents of a manifest.
std::vector<Value> documents(const std::string& text) {
  std::vector<Value> all;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = text.find("\n---\n", begin);
    all.push_back(parse_yaml(text.substr(begin, end == std::string::npos ? end : end - begin + 1), "manifest"));
    begin = end == std::string::npos ? end : end + 5;
  }
  return all;
}
Strings kinds(const std::vector<Value>& documents) {
  Strings names;
  for (const Value& document : documents) names.push_back(document.at("kind").as_string());
  return names;
}

/// The words after `tessera launch` of a pod's only container, parsed as the agent in it parses them.
LaunchCommand command_in(const Value& pod, const std::vector<std::pair<const char*, const char*>>& variables) {
  Strings words;
  for (const Value& word : pod.at("containers").items().at(0).at("command").items()) words.push_back(word.as_string());
  EXPECT_EQ(Strings(words.begin(), words.begin() + 2), (Strings{"tessera", "launch"}));
  EXPECT_EQ(words.at(words.size() - 3), "it's $HOME");
  words.erase(words.begin(), words.begin() + 2);
  for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  const LaunchCommand command = parse_launch_command(words);
  for (const auto& [name, value] : variables) ::unsetenv(name);
  EXPECT_EQ(command.options.num_processes, 4);
  EXPECT_EQ(command.options.num_machines, 2);
  EXPECT_EQ(command.options.machine_rank, 1);
  EXPECT_EQ(command.options.max_restarts, 3);
  EXPECT_EQ(command.secret_file, "/run/tessera/secret");
  return command;
}

TEST(Emit, SlurmScript) {
  const std::string script = emit_slurm(job_of(full));
  expect_golden("job.slurm", script);
  const TemporaryFolder folder;
  write_file_atomically(folder.path() + "/job", script);
  const Captured check = run_and_capture({"bash", "-n", folder.path() + "/job"});
  EXPECT_EQ(check.exit_code, 0) << check.err;
  EXPECT_THROW(emit_slurm(job_of({"--job_name", "a b", "prog"})), InputError);
  EXPECT_THROW(emit_slurm(job_of({"--time", "1\n#SBATCH --uid=0", "prog"})), InputError);
}

// The script runs against stand-ins for Slurm's programs: tessera receives the requested words, and the secret is
// private while the job runs and deleted afterwards.
TEST(Emit, SlurmScriptRuns) {
  const TemporaryFolder folder;
  const std::string bin = folder.path() + "/bin", work = folder.path() + "/work";
  make_folders(bin);
  make_folders(work);
  const auto program = [&](const std::string& name, const std::string& text) {
    write_file_atomically(bin + "/" + name, "#!/bin/bash\n" + text);
    ASSERT_EQ(run_and_capture({"chmod", "+x", bin + "/" + name}).exit_code, 0);
  };
  program("scontrol", "[ \"$*\" = 'show hostnames n[1-2]' ] && printf 'n1\\nn2\\n'\n");
  program("srun", "shift; exec \"$@\"\n");
  program("tessera",
          "for w in \"$@\"; do echo \"<$w>\"; case $w in *secret-7) stat -c %a \"$w\"; wc -c < \"$w\";; esac; done\n");
  write_file_atomically(folder.path() + "/job", emit_slurm(job_of(full)));
  const Captured run =
      run_and_capture({"bash", "-c", "cd " + work + " && bash ../job"}, {{"PATH", bin + ":/usr/bin:/bin"},
                                                                         {"SLURM_JOB_ID", "7"},
                                                                         {"SLURM_JOB_NODELIST", "n[1-2]"},
                                                                         {"SLURM_JOB_NUM_NODES", "2"}});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::string secret = work + "/.tessera-secret-7";
  EXPECT_EQ(run.out,
            concat("<launch>\n<--num_machines>\n<2>\n<--machine_rank>\n<auto>\n<--main_process_ip>\n<n1>\n"
                   "<--main_process_port>\n<20007>\n<--secret_file>\n<",
                   secret,
                   ">\n600\n64\n"
                   "<--nproc_per_node>\n<4>\n<--max_restarts>\n<3>\n<--log_dir>\n<logs>\n<-->\n<python3>\n<-u>\n"
                   "<train.py>\n<--name>\n<it's $HOME>\n<--lr>\n<1e-3>\n"));
  EXPECT_FALSE(path_exists(secret));
}

/// As SlurmScriptRuns, in a container and with a program that was asked to stop: srun's arguments and the job's end.
TEST(Emit, SlurmInAContainer) {
  const auto script = [](const Strings& words) { return emit_slurm(job_of(words)); };
  const std::string pyxis = script(with_image({"--mounts", "/data:/data,/my models", "--requeue"}));
  expect_golden("job_container.slurm", pyxis);
  EXPECT_NE(script(with_image({}, "tessera.sif"))
                .find("srun --kill-on-bad-exit=0 apptainer exec --nv --bind \"$PWD\" --pwd \"$PWD\" \\\n  tessera.sif "
                      "tessera launch"),
            std::string::npos);
  EXPECT_NE(
      script(with_image({"--container", "pyxis"}, "./tessera.sqsh.sif")).find("--container-image=./tessera.sqsh.sif"),
      std::string::npos);
  EXPECT_THROW(script({"--mounts", "/data", "prog"}), InputError);  // no image
  const TemporaryFolder folder;
  const auto program = [&](const std::string& name, const std::string& text) {
    write_file_atomically(folder.path() + "/" + name, "#!/bin/bash\n" + text);
    ASSERT_EQ(run_and_capture({"chmod", "+x", folder.path() + "/" + name}).exit_code, 0);
  };
  program("scontrol", "if [ $1 = requeue ]; then echo \"requeued $2\"; else echo n1; fi\n");
  program("srun", "printf '<%s>\\n' \"${@:1:4}\"; exit $SRUN_CODE\n");
  write_file_atomically(folder.path() + "/job", pyxis);
  const auto run = [&](const char* code) {
    return run_and_capture({"bash", "-c", "cd " + folder.path() + " && bash job"},
                           {{"PATH", folder.path() + ":/usr/bin:/bin"},
                            {"SLURM_JOB_ID", "7"},
                            {"SLURM_JOB_NODELIST", "n1"},
                            {"SLURM_JOB_NUM_NODES", "1"},
                            {"SRUN_CODE", code}});
  };
  const Captured stopped = run("3");
  EXPECT_EQ(stopped.exit_code, 3) << stopped.err;
  EXPECT_EQ(stopped.out, concat("<--kill-on-bad-exit=0>\n<--container-image=registry.example/tessera:1>\n",
                                "<--container-mounts=", folder.path(), ":", folder.path(), ",/data:/data,/my models>\n",
                                "<--container-workdir=", folder.path(), ">\nrequeued 7\n"));
  for (const char* code : {"0", "1"}) {
    const Captured other = run(code);
    EXPECT_EQ(concat(other.exit_code), code);
    EXPECT_EQ(other.out.find("requeued"), std::string::npos) << "only a job that has saved and stopped";
  }
}

// The time the agent gives its ranks to save determines the batch system's warning times.
TEST(Emit, BatchSystemsLeaveTimeToSave) {
  const Strings longer = with_image({"--stop_seconds", "270"});
  EXPECT_NE(emit_slurm(job_of(longer)).find("#SBATCH --signal=TERM@300\n"), std::string::npos);
  for (const auto& manifest : {emit_kubernetes, emit_jobset, emit_trainjob, emit_mpijob, emit_volcano})
    EXPECT_NE(manifest(job_of(longer)).find("terminationGracePeriodSeconds: 300\n"), std::string::npos);
}

TEST(Emit, KubernetesManifest) {
  const std::string text = emit_kubernetes(job_of(with_image()));
  expect_golden("job.yaml", text);
  const std::vector<Value> all = documents(text);
  EXPECT_EQ(kinds(all), (Strings{"Secret", "Service", "Job"}));
  const Value& spec = all[2].at("spec");
  EXPECT_EQ(spec.at("completionMode").as_string(), "Indexed");
  const Value& pod = spec.at("template").at("spec");
  EXPECT_EQ(pod.at("subdomain").as_string(), "gpt2-small");
  EXPECT_EQ(command_in(pod, {{"JOB_COMPLETION_INDEX", "1"}}).options.master_addr, "gpt2-small-0.gpt2-small");
  for (const auto& manifest : {emit_kubernetes, emit_jobset, emit_trainjob, emit_mpijob, emit_volcano}) {
    EXPECT_THROW(manifest(job_of({"prog"})), InputError);  // no image
    EXPECT_THROW(manifest(job_of({"--image", "i", "--job_name", "Big_Name", "prog"})), InputError);
    EXPECT_THROW(manifest(job_of({"--image", "i", "prog", "\xff"})), InputError);
  }
}

// The schemas of the following manifests were checked against the published ones (tools/job_schemas.py).
TEST(Emit, JobSet) {
  const std::string text = emit_jobset(job_of(with_image()));
  expect_golden("job_jobset.yaml", text);
  const std::vector<Value> all = documents(text);
  EXPECT_EQ(kinds(all), (Strings{"Secret", "JobSet"}));
  const Value& spec = all[1].at("spec");
  EXPECT_EQ(spec.at("failurePolicy").at("maxRestarts").as_int(), 3);
  const Value& job = spec.at("replicatedJobs").items().at(0).at("template").at("spec");
  EXPECT_EQ(job.at("completions").as_int(), 2);
  const Value& pod = job.at("template").at("spec");
  EXPECT_EQ(command_in(pod, {{"JOB_COMPLETION_INDEX", "1"}}).options.master_addr, "gpt2-small-node-0-0.gpt2-small");
}

TEST(Emit, KubeflowTrainJob) {
  const std::string text = emit_trainjob(job_of(with_image()));
  expect_golden("job_trainjob.yaml", text);
  const std::vector<Value> all = documents(text);
  EXPECT_EQ(kinds(all), (Strings{"Secret", "TrainingRuntime", "TrainJob"}));
  EXPECT_EQ(all[2].at("spec").at("trainer").at("numProcPerNode").as_int(), 4);
  EXPECT_EQ(all[2].at("spec").at("runtimeRef").at("name").as_string(), all[1].at("metadata").at("name").as_string());
  const Value& job = all[1].at("spec").at("template").at("spec").at("replicatedJobs").items().at(0);
  const Value& pod = job.at("template").at("spec").at("template").at("spec");
  const LaunchCommand command = command_in(pod, {{"PET_NNODES", "2"},
                                                 {"PET_NODE_RANK", "1"},
                                                 {"PET_NPROC_PER_NODE", "4"},
                                                 {"PET_MASTER_ADDR", "gpt2-small-node-0-0.gpt2-small"},
                                                 {"PET_MASTER_PORT", "29500"}});
  EXPECT_EQ(command.options.master_addr, "gpt2-small-node-0-0.gpt2-small");
  EXPECT_EQ(command.options.master_port, 29500);
}

TEST(Emit, VolcanoJob) {
  const std::string text = emit_volcano(job_of(with_image()));
  expect_golden("job_volcano.yaml", text);
  const std::vector<Value> all = documents(text);
  EXPECT_EQ(kinds(all), (Strings{"Secret", "Job"}));
  const Value& spec = all[1].at("spec");
  EXPECT_EQ(spec.at("minAvailable").as_int(), 2);
  EXPECT_EQ(spec.at("queue").as_string(), "gpu");
  const Value& pod = spec.at("tasks").items().at(0).at("template").at("spec");
  EXPECT_EQ(command_in(pod, {{"VC_TASK_INDEX", "1"}}).options.master_addr, "gpt2-small-node-0.gpt2-small");
}

TEST(Emit, KubeflowMpiJob) {
  const std::string text = emit_mpijob(job_of(with_image()));
  expect_golden("job_mpijob.yaml", text);
  const std::vector<Value> all = documents(text);
  EXPECT_EQ(kinds(all), Strings{"MPIJob"});
  const Value& replicas = all[0].at("spec").at("mpiReplicaSpecs");
  EXPECT_EQ(all[0].at("spec").at("slotsPerWorker").as_int(), 4);
  EXPECT_EQ(replicas.at("Worker").at("replicas").as_int(), 2);
  const Value& launcher = replicas.at("Launcher").at("template").at("spec").at("containers").items().at(0);
  Strings words;
  for (const Value& word : launcher.at("command").items()) words.push_back(word.as_string());
  // The hostfile as the operator writes it.
  const TemporaryFolder folder;
  const std::string hostfile = folder.path() + "/hostfile";
  write_file_atomically(hostfile,
                        "gpt2-small-worker-0.gpt2-small.ml.svc slots=4\n"
                        "gpt2-small-worker-1.gpt2-small.ml.svc slots=4\n");
  *std::find(words.begin(), words.end(), "/etc/mpi/hostfile") = hostfile;
  words.erase(words.begin(), words.begin() + 2);
  const LaunchCommand command = parse_launch_command(words);
  EXPECT_TRUE(command.over_ssh);
  ASSERT_EQ(command.hosts.size(), 2u);
  for (const HostSlots& host : command.hosts) EXPECT_EQ(host.slots.size(), 4u) << host.name;
  EXPECT_EQ(command.options.master_addr, "gpt2-small-worker-0.gpt2-small.ml.svc");
  EXPECT_EQ(command.exports, Strings{"PATH"});
}

// tests/launchers/ray.sh runs the program on a Ray cluster.
TEST(Emit, RayProgram) {
  const std::string text = emit_ray(job_of(full));
  expect_golden("job_ray.py", text);
  const TemporaryFolder folder;
  write_file_atomically(folder.path() + "/job.py", text);
  const Captured check = run_and_capture({"python3", "-m", "py_compile", folder.path() + "/job.py"});
  EXPECT_EQ(check.exit_code, 0) << check.err;
  EXPECT_NE(text.find("\"it's $HOME\""), std::string::npos);
}

TEST(Emit, Hostfile) {
  const auto hosts = parse_launch_command({"--emit=hostfile", "--host_list", "gpu[09-10]", "--nproc_per_node=8"}).hosts;
  const std::string text = emit_hostfile(hosts);
  EXPECT_EQ(text, "gpu09 slots=8\ngpu10 slots=8\n");
  EXPECT_EQ(parse_hostfile(text, "f"), hosts);
}

// A shell parses the quoted words back into the original words.
RC_GTEST_PROP(Quoting, AShellReadsTheWordsBack, ()) {
  const std::string alphabet = "ab '\"\\$`!*?;&|<>()[]{}#~=\n\t-\x7f\xc3";
  Strings words;
  std::string expected;
  for (int i = *rc::gen::inRange(1, 5); i > 0; --i) {
    std::string word;
    for (int n = *rc::gen::inRange(0, 12); n > 0; --n)
      word += alphabet[*rc::gen::inRange<std::size_t>(0, alphabet.size())];
    words.push_back(word);
    expected += word + "\x01";
  }
  Strings command = {"printf", "%s\\001"};
  command.insert(command.end(), words.begin(), words.end());
  const Captured run = run_and_capture({"sh", "-c", remote_line("/", {"A=x y"}, command)});
  RC_ASSERT(run.exit_code == 0);
  RC_ASSERT(run.out == expected);
}

TEST(Quoting, RemoteLine) {
  EXPECT_EQ(remote_line("/a b", {}, {"p", "it's"}), "cd '/a b' && exec p 'it'\\''s'");
  EXPECT_EQ(remote_line("/", {"A=1", "B=$x"}, {"p", ""}), "cd / && exec env A=1 'B=$x' p ''");
}

TEST(Ssh, Hosts) {
  EXPECT_TRUE(is_this_host("localhost"));
  EXPECT_TRUE(is_this_host("127.0.0.2"));
  EXPECT_FALSE(is_this_host("no-such-host.example"));
}

}  // namespace
}  // namespace tessera::launch
