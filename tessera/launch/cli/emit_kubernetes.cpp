// Manifests for Kubernetes and its job controllers: JobSet, Kubeflow, Volcano. An agent in each pod starts its ranks,
// and the agents meet in the first pod.
#include <tessera/launch/cli/emit.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <algorithm>

namespace tessera::launch {

namespace {

constexpr int port = 29500;
constexpr const char* secret_file = "/run/tessera/secret";

/// Checks for an RFC 1123 label, short enough that NAME-INDEX is one, too.
void check_kubernetes_name(const std::string& option, const std::string& name) {
  const auto good = [](unsigned char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  if (name.empty() || name.size() > 50 || name.front() == '-' || name.back() == '-' ||
      !(name[0] >= 'a' && name[0] <= 'z') || !std::all_of(name.begin(), name.end(), good)) {
    throw InputError(concat(option, " ", name,
                            ": Kubernetes requires at most 50 lower-case letters, digits and '-', "
                            "beginning with a letter"));
  }
}

void check(const EmitJob& job, const char* kind) {
  const EmitOptions& o = job.emission;
  check_kubernetes_name("--job_name", o.job_name);
  if (!o.name_space.empty()) check_kubernetes_name("--namespace", o.name_space);
  if (o.image.empty())
    throw InputError(concat("--emit ", kind, ": add --image IMAGE, the container image with tessera"));
}

/// Indents every line of `block` by `columns`.
std::string indented(const std::string& block, int columns) {
  std::string out;
  for (const std::string& line : split(block, '\n'))
    if (!line.empty()) out += std::string(static_cast<std::size_t>(columns), ' ') + line + "\n";
  return out;
}

/// Returns the beginning of an object, up to its metadata.
std::string head(const EmitJob& job, const std::string& version, const std::string& kind,
                 const std::string& suffix = "") {
  const std::string& space = job.emission.name_space;
  return concat("apiVersion: ", version, "\nkind: ", kind, "\nmetadata:\n  name: ", job.emission.job_name, suffix, "\n",
                space.empty() ? "" : concat("  namespace: ", space, "\n"));
}

std::string secret_object(const EmitJob& job) {
  return concat(head(job, "v1", "Secret", "-secret"),
                "type: Opaque\nstringData:\n  secret: ", quote_for_yaml(job.secret_hex), "\n---\n");
}

/// Returns the command line `tessera launch` with the rendezvous address and the program. `address`: machine 0's
/// address; empty: set by the pod's variables.
std::vector<std::string> pod_words(const EmitJob& job, const std::string& address, bool counted = true) {
  std::vector<std::string> words = {"tessera", "launch"};
  const int machines = job.options.num_machines;
  if (machines > 1 && counted)
    words.insert(words.end(), {"--num_machines", std::to_string(machines), "--machine_rank", "auto",
                               "--main_process_ip", address, "--main_process_port", std::to_string(port)});
  if (machines > 1) words.insert(words.end(), {"--secret_file", secret_file});
  for (const std::string& word : agent_words(job)) words.push_back(word);
  words.push_back("--");
  words.insert(words.end(), job.command.begin(), job.command.end());
  return words;
}

std::string command_lines(const std::vector<std::string>& words) {
  std::string text = "command:\n";
  for (const std::string& word : words) text += concat("  - ", quote_for_yaml(word), "\n");
  return text;
}

std::string resources(const EmitJob& job) {
  const EmitOptions& o = job.emission;
  std::string limits;
  if (o.cpus_per_machine > 0) limits += concat("    cpu: ", quote_for_yaml(std::to_string(o.cpus_per_machine)), "\n");
  if (o.gpus_per_machine > 0)
    limits += concat("    nvidia.com/gpu: ", quote_for_yaml(std::to_string(o.gpus_per_machine)), "\n");
  return limits.empty() ? "" : "resources:\n  limits:\n" + limits;
}

/// Returns the spec of a pod with one container. `before`: additional lines of the pod.
std::string pod_spec(const EmitJob& job, const std::string& container, const std::string& command,
                     const std::string& before, bool with_secret = true) {
  const std::string mount = with_secret ? "  - name: secret\n    mountPath: /run/tessera\n    readOnly: true\n" : "";
  const std::string volume = with_secret
                                 ? concat("  - name: secret\n    secret:\n      secretName: ", job.emission.job_name,
                                          "-secret\n      defaultMode: 256  # 0400: readable by its owner only\n")
                                 : std::string();
  return concat(before, "terminationGracePeriodSeconds: ", grace_seconds(job), "\ncontainers:\n  - name: ", container,
                "\n    image: ", quote_for_yaml(job.emission.image), "\n", indented(command, 4),
                indented(resources(job), 4), "    volumeMounts:\n",
                indented(concat(mount, "  - name: shm\n    mountPath: /dev/shm\n"), 4), "volumes:\n", volume,
                "  - name: shm\n    emptyDir:\n      medium: Memory\n");
}

/// Returns an Indexed Job's spec around a pod.
std::string indexed_job(const EmitJob& job, const std::string& more, const std::string& pod) {
  return concat("completionMode: Indexed\ncompletions: ", job.options.num_machines,
                "\nparallelism: ", job.options.num_machines, "\nbackoffLimit: 0\n", more, indented(pod, 0));
}

}  // namespace

std::string emit_kubernetes(const EmitJob& job) {
  check(job, "kubernetes");
  const std::string& name = job.emission.job_name;
  const std::string command = command_lines(pod_words(job, concat(name, "-0.", name)));
  const std::string pod = pod_spec(job, "tessera", command, concat("subdomain: ", name, "\nrestartPolicy: Never\n"));
  return concat(
      "# An agent in each pod starts its ranks; the agents meet in pod 0, found through the headless service.\n"
      "# kubectl apply -f FILE; kubectl logs -f -l job-name=",
      name, " --prefix\n", secret_object(job), head(job, "v1", "Service"),
      "spec:\n  clusterIP: None\n  publishNotReadyAddresses: true\n  selector:\n    job-name: ", name,
      "\n  ports:\n    - name: rendezvous\n      port: ", port, "\n---\n", head(job, "batch/v1", "Job"), "spec:\n",
      indented(indexed_job(job, concat("template:\n  metadata:\n    labels:\n      job-name: ", name, "\n  spec:\n"),
                           indented(pod, 4)),
               2));
}

std::string emit_jobset(const EmitJob& job) {
  check(job, "jobset");
  const std::string& name = job.emission.job_name;
  const std::string command = command_lines(pod_words(job, concat(name, "-node-0-0.", name)));
  const std::string pod = pod_spec(job, "tessera", command, "restartPolicy: Never\n");
  // A pod evicted by Kubernetes fails its Job at once, with a reason that the JobSet's rule matches.
  const std::string disruption =
      "podFailurePolicy:\n  rules:\n    - action: FailJob\n      onPodConditions:\n        - type: DisruptionTarget\n"
      "          status: \"True\"\n";
  return concat(
      "# An agent in each pod starts its ranks; the agents meet in pod 0, whose name JobSet makes. When a pod is "
      "evicted\n"
      "# all start again and, with --resume_from_checkpoint auto, continue from their checkpoints.\n"
      "# kubectl apply -f FILE; kubectl logs -f -l jobset.sigs.k8s.io/jobset-name=",
      name, " --prefix\n", secret_object(job), head(job, "jobset.x-k8s.io/v1alpha2", "JobSet"),
      "spec:\n  network:\n    enableDNSHostnames: true\n    publishNotReadyAddresses: true\n  failurePolicy:\n"
      "    maxRestarts: ",
      job.options.max_restarts,
      "\n    rules:\n      - name: evicted\n        action: RestartJobSetAndIgnoreMaxRestarts\n"
      "        onJobFailureReasons:\n          - PodFailurePolicy\n"
      "  replicatedJobs:\n    - name: node\n      replicas: 1\n      template:\n        spec:\n",
      indented(indexed_job(job, disruption + "template:\n  spec:\n", indented(pod, 4)), 10));
}

std::string emit_trainjob(const EmitJob& job) {
  check(job, "trainjob");
  const std::string& name = job.emission.job_name;
  // The number of machines and the rendezvous address come from Kubeflow's variables PET_*, which tessera launch reads.
  const std::string command = command_lines(pod_words(job, "", false));
  const std::string pod = pod_spec(job, "node", command, "restartPolicy: Never\n");
  return concat(
      "# An agent in each pod starts its ranks; the number of pods and their meeting point come from Kubeflow's\n"
      "# torch policy. The runtime is this job's own: it mounts the job's secret and leaves time to save.\n"
      "# kubectl apply -f FILE; kubectl logs -f -l jobset.sigs.k8s.io/jobset-name=",
      name, " --prefix\n", secret_object(job), head(job, "trainer.kubeflow.org/v1alpha1", "TrainingRuntime"),
      "spec:\n  mlPolicy:\n    numNodes: ", job.options.num_machines, "\n    torch: {}\n  template:\n    spec:\n",
      "      replicatedJobs:\n        - name: node\n          template:\n            metadata:\n              labels:\n"
      "                trainer.kubeflow.org/trainjob-ancestor-step: trainer\n            spec:\n"
      "              backoffLimit: 0\n              template:\n                spec:\n",
      indented(pod, 18), "---\n", head(job, "trainer.kubeflow.org/v1alpha1", "TrainJob"),
      "spec:\n  runtimeRef:\n    apiGroup: trainer.kubeflow.org\n    kind: TrainingRuntime\n    name: ", name,
      "\n  trainer:\n    numNodes: ", job.options.num_machines, "\n    numProcPerNode: ", job.options.num_processes,
      "\n");
}

std::string emit_mpijob(const EmitJob& job) {
  check(job, "mpijob");
  const std::string& name = job.emission.job_name;
  std::vector<std::string> words = {"tessera", "launch", "--hostfile", "/etc/mpi/hostfile"};
  for (const std::string& word : agent_words(job)) words.push_back(word);
  words.insert(words.end(), {"--export", "PATH", "--"});  // sshd sets its own
  words.insert(words.end(), job.command.begin(), job.command.end());
  // The workers' host keys change with every job.
  const std::string launcher = concat(
      "containers:\n  - name: tessera\n    image: ", quote_for_yaml(job.emission.image), "\n    env:\n",
      "      - name: TESSERA_SSH\n        value: \"ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o "
      "LogLevel=ERROR\"\n",
      indented(command_lines(words), 4));
  const std::string worker = pod_spec(job, "tessera", "command:\n  - \"/usr/sbin/sshd\"\n  - \"-De\"\n", "", false);
  return concat(
      "# The launcher starts an agent on each worker by ssh, from the hostfile that the operator writes; the "
      "operator's\n"
      "# keys authenticate it. The image has an sshd, and tessera at the launcher's path; it needs no MPI.\n"
      "# kubectl apply -f FILE; kubectl logs -f -l "
      "training.kubeflow.org/job-role=launcher,training.kubeflow.org/job-name=",
      name, "\n", head(job, "kubeflow.org/v2beta1", "MPIJob"), "spec:\n  slotsPerWorker: ", job.options.num_processes,
      "\n  launcherCreationPolicy: WaitForWorkersReady\n  runPolicy:\n    cleanPodPolicy: Running\n    backoffLimit: "
      "0\n",
      "  mpiReplicaSpecs:\n    Launcher:\n      replicas: 1\n      restartPolicy: Never\n      template:\n        "
      "spec:\n"
      "          terminationGracePeriodSeconds: ",
      grace_seconds(job), "\n", indented(launcher, 10), "    Worker:\n      replicas: ", job.options.num_machines,
      "\n      template:\n        spec:\n", indented(worker, 10));
}

std::string emit_volcano(const EmitJob& job) {
  check(job, "volcano");
  const EmitOptions& o = job.emission;
  if (!o.partition.empty()) check_kubernetes_name("--partition", o.partition);
  const std::string command = command_lines(pod_words(job, concat(o.job_name, "-node-0.", o.job_name)));
  const std::string pod = pod_spec(job, "tessera", command, "restartPolicy: Never\n");
  const int restarts = job.options.max_restarts;
  return concat(
      "# An agent in each pod starts its ranks; the agents meet in pod 0, whose name Volcano's svc plug-in makes. When "
      "a\n"
      "# pod is evicted all start again and, with --resume_from_checkpoint auto, continue from their checkpoints.\n"
      "# kubectl apply -f FILE; kubectl logs -f -l volcano.sh/job-name=",
      o.job_name, " --prefix\n", secret_object(job), head(job, "batch.volcano.sh/v1alpha1", "Job"),
      "spec:\n  schedulerName: volcano\n", o.partition.empty() ? "" : concat("  queue: ", o.partition, "\n"),
      "  minAvailable: ", job.options.num_machines, "\n  maxRetry: ", std::max(1, restarts),
      "\n  plugins:\n    svc: [\"--publish-not-ready-addresses=true\"]\n    env: []\n"
      "  policies:\n    - exitCode: 2  # bad input fails again\n      action: TerminateJob\n"
      "    - event: PodEvicted\n      action: RestartJob\n    - event: PodFailed\n      action: ",
      restarts > 0 ? "RestartJob" : "TerminateJob",
      "\n  tasks:\n    - name: node\n      replicas: ", job.options.num_machines,
      "\n      policies:\n        - event: TaskCompleted\n          action: CompleteJob\n      template:\n        "
      "spec:\n",
      indented(pod, 10));
}

}  // namespace tessera::launch
