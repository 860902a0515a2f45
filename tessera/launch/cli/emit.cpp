#include <tessera/launch/cli/emit.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/cli/command_line.h>
#include <algorithm>
#include <cmath>

namespace tessera::launch {

namespace {

std::string shell_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += " " + quote_for_shell(word);
  return text;
}

/// A value of an #SBATCH line: Slurm cuts it at blanks and has no quoting.
std::string slurm_value(const std::string& name, const std::string& value) {
  const bool good = !value.empty() && std::all_of(value.begin(), value.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == ':' || c == ',' || c == '+';
  });
  if (!good) throw InputError(concat(name, " ", value, ": only letters, digits and _ - . : , + are allowed"));
  return value;
}

/// Returns the words before `tessera launch` that run it in a container with the same working directory.
std::string container_words(const EmitJob& job) {
  const EmitOptions& o = job.emission;
  if (o.image.empty()) {
    if (!o.container.empty() || !o.mounts.empty())
      throw InputError("--emit slurm: --container and --mounts need a container image: add --image IMAGE");
    return "";
  }
  const std::string mounts = o.mounts.empty() ? "" : "," + quote_for_shell(o.mounts);
  const bool apptainer = o.container.empty() ? o.image.ends_with(".sif") : o.container == "apptainer";
  if (apptainer)
    return concat("apptainer exec", o.gpus_per_machine > 0 ? " --nv" : "", " --bind \"$PWD\"", mounts,
                  " --pwd \"$PWD\" \\\n  ", quote_for_shell(o.image), " ");
  return concat("--container-image=", quote_for_shell(o.image), " --container-mounts=\"$PWD:$PWD\"", mounts,
                " --container-workdir=\"$PWD\" \\\n  ");
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

std::string quote_for_yaml(const std::string& text) {
  if (!is_utf8(text)) throw InputError(concat("--emit: a word is not UTF-8: ", text));
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

std::vector<std::string> agent_words(const EmitJob& job) {
  LaunchOptions options = job.options;
  options.num_machines = 1;
  options.master_addr = LaunchOptions().master_addr;
  options.master_port = 0;
  std::vector<std::string> words = words_of(options);
  for (const std::string& variable : job.exports) words.insert(words.end(), {"--export", variable});
  if (!job.exports.empty())
    words.insert(words.end(), {"--config_file", "none"});  // the exports contain all of the
                                                           // configuration
  return words;
}

int grace_seconds(const EmitJob& job) { return static_cast<int>(std::ceil(job.options.stop_seconds)) + 30; }

std::string emit_slurm(const EmitJob& job) {
  const EmitOptions& o = job.emission;
  std::string text = concat("#!/bin/bash\n#SBATCH --job-name=", slurm_value("--job_name", o.job_name),
                            "\n#SBATCH --nodes=", job.options.num_machines, "\n#SBATCH --ntasks-per-node=1\n");
  if (o.cpus_per_machine > 0) text += concat("#SBATCH --cpus-per-task=", o.cpus_per_machine, "\n");
  if (o.gpus_per_machine > 0) text += concat("#SBATCH --gpus-per-node=", o.gpus_per_machine, "\n");
  if (!o.time.empty()) text += concat("#SBATCH --time=", slurm_value("--time", o.time), "\n");
  if (!o.partition.empty()) text += concat("#SBATCH --partition=", slurm_value("--partition", o.partition), "\n");
  if (!o.account.empty()) text += concat("#SBATCH --account=", slurm_value("--account", o.account), "\n");
  if (o.requeue) text += "#SBATCH --requeue\n#SBATCH --open-mode=append\n";
  text += concat("#SBATCH --output=%x-%j.log\n# ", grace_seconds(job),
                 " s before the time limit the ranks are asked to save and exit.\n#SBATCH --signal=TERM@",
                 grace_seconds(job), "\n");
  text +=
      "set -euo pipefail\n\n"
      "# One agent per node starts its ranks; the agents meet on the first node. This folder must be the same on\n"
      "# all nodes: the job's secret is passed in a file here that only you can read.\n"
      "first_node=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p)\n"
      "port=$((20000 + SLURM_JOB_ID % 10000))\n"
      "secret=$PWD/.tessera-secret-$SLURM_JOB_ID\n"
      "trap 'rm -f \"$secret\"' EXIT\n"
      "(umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \\n' > \"$secret\")\n\n";
  if (o.requeue) text += "status=0\n";
  text += concat("srun --kill-on-bad-exit=0 ", container_words(job),
                 "tessera launch --num_machines \"$SLURM_JOB_NUM_NODES\" --machine_rank auto \\\n"
                 "  --main_process_ip \"$first_node\" --main_process_port \"$port\" --secret_file \"$secret\" \\\n ",
                 shell_words(agent_words(job)), " --", shell_words(job.command));
  if (!o.requeue) return text + "\n";
  return text +
         " || status=$?\n\n"
         "# 3: the ranks were asked to stop and have saved; the job is requeued and continues from the checkpoint.\n"
         "if [ \"$status\" -eq 3 ]; then scontrol requeue \"$SLURM_JOB_ID\"; fi\n"
         "exit \"$status\"\n";
}

std::string emit_hostfile(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts) text += concat(host.name, " slots=", host.slots.size(), "\n");
  return text;
}

}  // namespace tessera::launch
