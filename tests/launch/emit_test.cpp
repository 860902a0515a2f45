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

namespace tessera::launch {
namespace {

using Strings = std::vector<std::string>;

EmitJob job_of(const Strings& words) {
  const LaunchCommand command = parse_launch_command(words);
  return {command.options, command.command, command.emission, std::string(64, '7')};
}

/// The committed file; TESSERA_WRITE_GOLDEN=1 writes it anew.
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
                      "--image",
                      "registry.example/tessera:1",
                      "--namespace",
                      "ml",
                      "--log_dir",
                      "logs",
                      "train.py",
                      "--name",
                      "it's $HOME",
                      "--lr",
                      "1e-3"};

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

// The script runs, with stand-ins for Slurm's programs: what reaches tessera is what was asked for, and the secret is
// private while the job runs and gone afterwards.
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

TEST(Emit, KubernetesManifest) {
  const std::string text = emit_kubernetes(job_of(full));
  expect_golden("job.yaml", text);
  Strings kinds;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = text.find("\n---\n", begin);
    const Value document = parse_yaml(text.substr(begin, end == std::string::npos ? end : end - begin + 1), "job.yaml");
    kinds.push_back(document.find("kind")->as_string());
    if (kinds.back() == "Job") {
      const Value& spec = *document.find("spec");
      EXPECT_EQ(spec.find("completionMode")->as_string(), "Indexed");
      const Value& pod = *spec.find("template")->find("spec");
      EXPECT_EQ(pod.find("subdomain")->as_string(), "gpt2-small");
      Strings words;
      for (const Value& word : pod.find("containers")->items()[0].find("command")->items())
        words.push_back(word.as_string());
      ASSERT_GT(words.size(), 6u);
      EXPECT_EQ(words[words.size() - 3], "it's $HOME");
      // The pod's agent reads these words back.
      words.erase(words.begin(), words.begin() + 2);
      ::setenv("JOB_COMPLETION_INDEX", "1", 1);
      const LaunchCommand command = parse_launch_command(words);
      ::unsetenv("JOB_COMPLETION_INDEX");
      EXPECT_EQ(command.options.machine_rank, 1);
      EXPECT_EQ(command.options.master_addr, "gpt2-small-0.gpt2-small");
      EXPECT_EQ(command.options.num_processes, 4);
      EXPECT_EQ(command.secret_file, "/run/tessera/secret");
    }
    begin = end == std::string::npos ? end : end + 5;
  }
  EXPECT_EQ(kinds, (Strings{"Secret", "Service", "Job"}));
  EXPECT_THROW(emit_kubernetes(job_of({"prog"})), InputError);  // no image
  EXPECT_THROW(emit_kubernetes(job_of({"--image", "i", "--job_name", "Big_Name", "prog"})), InputError);
  EXPECT_THROW(emit_kubernetes(job_of({"--image", "i", "prog", "\xff"})), InputError);
}

TEST(Emit, Hostfile) {
  const auto hosts = parse_launch_command({"--emit=hostfile", "--host_list", "gpu[09-10]", "--nproc_per_node=8"}).hosts;
  const std::string text = emit_hostfile(hosts);
  EXPECT_EQ(text, "gpu09 slots=8\ngpu10 slots=8\n");
  EXPECT_EQ(parse_hostfile(text, "f"), hosts);
}

// What a shell makes of the quoted words is the words.
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
