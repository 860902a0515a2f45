#include <tessera/launch/cli/emit.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/cli/command_line.h>
#include <algorithm>

namespace tessera::launch {

namespace {

/// The words of an agent, without those that the job file fills in by itself.
std::vector<std::string> agent_words(const EmitJob& job) {
  LaunchOptions options = job.options;
  options.num_machines = 1;
  options.master_addr = LaunchOptions().master_addr;
  options.master_port = 0;
  std::vector<std::string> words = words_of(options);
  for (const std::string& variable : job.exports) words.insert(words.end(), {"--export", variable});
  if (!job.exports.empty()) words.insert(words.end(), {"--config_file", "none"});  // all of it has been said
  return words;
}

std::string shell_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += " " + quote_for_shell(word);
  return text;
}

/// A value of an #SBATCH line: Slurm cuts it at blanks and knows no quotes.
std::string slurm_value(const std::string& name, const std::string& value) {
  const bool good = !value.empty() && std::all_of(value.begin(), value.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == ':' || c == ',' || c == '+';
  });
  if (!good) throw InputError(concat(name, " ", value, ": letters, digits and _ - . : , + only"));
  return value;
}

/// A double-quoted YAML scalar (JSON's escapes are YAML's).
std::string yaml(const std::string& text) {
  if (!is_utf8(text)) throw InputError(concat("--emit kubernetes: a word is not UTF-8: ", text));
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7f) {
      const char* digits = "0123456789abcdef";
      out += concat("\\u00", digits[c >> 4], digits[c & 15]);
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

/// RFC 1123 label, and short enough that NAME-INDEX is one too.
void check_kubernetes_name(const std::string& option, const std::string& name) {
  const auto good = [](unsigned char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  if (name.empty() || name.size() > 50 || name.front() == '-' || name.back() == '-' ||
      !(name[0] >= 'a' && name[0] <= 'z') || !std::all_of(name.begin(), name.end(), good)) {
    throw InputError(concat(option, " ", name,
                            ": Kubernetes wants at most 50 lower-case letters, digits and '-', "
                            "beginning with a letter"));
  }
}

}  // namespace

std::string quote_for_shell(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./:,=@%+").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return word;
  std::string quoted = "'";
  for (char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string emit_slurm(const EmitJob& job) {
  const EmitOptions& o = job.emission;
  std::string text = concat("#!/bin/bash\n#SBATCH --job-name=", slurm_value("--job_name", o.job_name),
                            "\n#SBATCH --nodes=", job.options.num_machines, "\n#SBATCH --ntasks-per-node=1\n");
  if (o.cpus_per_machine > 0) text += concat("#SBATCH --cpus-per-task=", o.cpus_per_machine, "\n");
  if (o.gpus_per_machine > 0) text += concat("#SBATCH --gpus-per-node=", o.gpus_per_machine, "\n");
  if (!o.time.empty()) text += concat("#SBATCH --time=", slurm_value("--time", o.time), "\n");
  if (!o.partition.empty()) text += concat("#SBATCH --partition=", slurm_value("--partition", o.partition), "\n");
  if (!o.account.empty()) text += concat("#SBATCH --account=", slurm_value("--account", o.account), "\n");
  text +=
      "#SBATCH --output=%x-%j.log\n"
      "# 90 s before the time limit the ranks are asked to save and end.\n"
      "#SBATCH --signal=TERM@90\n"
      "set -euo pipefail\n\n"
      "# One agent per node starts its ranks; the agents meet on the first node. This folder must be the same on\n"
      "# all nodes: the job's secret is passed in a file here that only you can read.\n"
      "first_node=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p)\n"
      "port=$((20000 + SLURM_JOB_ID % 10000))\n"
      "secret=$PWD/.tessera-secret-$SLURM_JOB_ID\n"
      "trap 'rm -f \"$secret\"' EXIT\n"
      "(umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \\n' > \"$secret\")\n\n"
      "srun --kill-on-bad-exit=0 tessera launch --num_machines \"$SLURM_JOB_NUM_NODES\" --machine_rank auto \\\n"
      "  --main_process_ip \"$first_node\" --main_process_port \"$port\" --secret_file \"$secret\" \\\n ";
  return text + shell_words(agent_words(job)) + " --" + shell_words(job.command) + "\n";
}

std::string emit_kubernetes(const EmitJob& job) {
  const EmitOptions& o = job.emission;
  check_kubernetes_name("--job_name", o.job_name);
  if (!o.name_space.empty()) check_kubernetes_name("--namespace", o.name_space);
  if (o.image.empty())
    throw InputError("--emit kubernetes: name the container image that holds tessera: --image IMAGE");
  const int machines = job.options.num_machines;
  constexpr int port = 29500;
  const std::string space = o.name_space.empty() ? "" : concat("  namespace: ", o.name_space, "\n");
  std::vector<std::string> words = {"tessera", "launch"};
  if (machines > 1) {
    words.insert(words.end(), {"--num_machines", std::to_string(machines), "--machine_rank", "auto",
                               "--main_process_ip", concat(o.job_name, "-0.", o.job_name), "--main_process_port",
                               std::to_string(port), "--secret_file", "/run/tessera/secret"});
  }
  for (const std::string& word : agent_words(job)) words.push_back(word);
  words.push_back("--");
  words.insert(words.end(), job.command.begin(), job.command.end());
  std::string command;
  for (const std::string& word : words) command += concat("            - ", yaml(word), "\n");

  std::string resources;
  if (o.cpus_per_machine > 0)
    resources += concat("              cpu: ", yaml(std::to_string(o.cpus_per_machine)), "\n");
  if (o.gpus_per_machine > 0) {
    resources += concat("              nvidia.com/gpu: ", yaml(std::to_string(o.gpus_per_machine)), "\n");
  }
  if (!resources.empty()) resources = "          resources:\n            limits:\n" + resources;

  return concat(
      "# An agent in each pod starts its ranks; the agents meet in pod 0, found through the headless service.\n"
      "# kubectl apply -f FILE; kubectl logs -f -l job-name=",
      o.job_name,
      " --prefix\n"
      "apiVersion: v1\nkind: Secret\nmetadata:\n  name: ",
      o.job_name, "-secret\n", space, "type: Opaque\nstringData:\n  secret: ", yaml(job.secret_hex),
      "\n---\n"
      "apiVersion: v1\nkind: Service\nmetadata:\n  name: ",
      o.job_name, "\n", space,
      "spec:\n  clusterIP: None\n  publishNotReadyAddresses: true\n  selector:\n    job-name: ", o.job_name,
      "\n  ports:\n    - name: rendezvous\n      port: ", port,
      "\n---\n"
      "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: ",
      o.job_name, "\n", space, "spec:\n  completionMode: Indexed\n  completions: ", machines,
      "\n  parallelism: ", machines,
      "\n  backoffLimit: 0\n  template:\n    metadata:\n      labels:\n        job-name: ", o.job_name,
      "\n    spec:\n      subdomain: ", o.job_name,
      "\n      restartPolicy: Never\n      terminationGracePeriodSeconds: 90\n      containers:\n        - name: "
      "tessera\n"
      "          image: ",
      yaml(o.image), "\n          command:\n", command, resources,
      "          volumeMounts:\n"
      "            - name: secret\n              mountPath: /run/tessera\n              readOnly: true\n"
      "            - name: shm\n              mountPath: /dev/shm\n"
      "      volumes:\n"
      "        - name: secret\n          secret:\n            secretName: ",
      o.job_name,
      "-secret\n"
      "            defaultMode: 256  # 0400: readable by its owner only\n"
      "        - name: shm\n          emptyDir:\n            medium: Memory\n");
}

std::string emit_hostfile(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts) text += concat(host.name, " slots=", host.slots.size(), "\n");
  return text;
}

}  // namespace tessera::launch
