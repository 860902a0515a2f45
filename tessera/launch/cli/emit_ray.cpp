// A program for Ray: Ray places one task on each of several nodes, and each task runs an agent.
#include <tessera/launch/cli/emit.h>

#include <tessera/base/text.h>

namespace tessera::launch {

namespace {

std::string python_list(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(quote_for_yaml(word));
  return "[" + join(quoted) + "]";
}

}  // namespace

std::string emit_ray(const EmitJob& job) {
  const EmitOptions& o = job.emission;
  const int cpus = o.cpus_per_machine > 0 ? o.cpus_per_machine : job.options.num_processes;
  return concat(
      "# An agent of tessera on each of ", job.options.num_machines,
      " nodes of a Ray cluster, which has tessera on all of them:\n"
      "#   ray job submit --working-dir . -- python FILE\n"
      "import os, secrets, signal, socket, subprocess, sys, tempfile\n\n"
      "os.environ.setdefault(\"RAY_DEDUP_LOGS\", \"0\")  # lines of several ranks look alike but are not duplicates\n"
      "import ray\n"
      "from ray.util.placement_group import placement_group\n"
      "from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy\n\n"
      "MACHINES = ",
      job.options.num_machines, "\nRESOURCES = {\"CPU\": ", cpus,
      o.gpus_per_machine > 0 ? concat(", \"GPU\": ", o.gpus_per_machine) : "",
      "}  # of each\nAGENT = ", python_list(agent_words(job)), "\nPROGRAM = ", python_list(job.command), "\n",
      R"PY(

@ray.remote
def meeting_place():
    with socket.socket() as s:
        s.bind(("", 0))
        return ray.util.get_node_ip_address(), s.getsockname()[1]


@ray.remote(max_retries=0)
def agent(machine, address, port, secret):
    with tempfile.TemporaryDirectory() as folder:  # of mode 700
        path = os.path.join(folder, "secret")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secret)
        process = subprocess.Popen(
            ["tessera", "launch", "--num_machines", str(MACHINES), "--machine_rank", str(machine),
             "--main_process_ip", address, "--main_process_port", str(port), "--secret_file", path,
             *AGENT, "--", *PROGRAM])
        try:
            return process.wait()
        finally:  # ray.cancel, or the end of the job: the ranks are asked to save
            process.terminate()
            process.wait()


ray.init()
# `ray job stop` sends this, and SIGKILL RAY_JOB_STOP_WAIT_TIME_S later (set it for `ray start`; by default 3 s).
signal.signal(signal.SIGTERM, signal.default_int_handler)
group = placement_group([RESOURCES] * MACHINES, strategy="STRICT_SPREAD")
ray.get(group.ready())


def on(machine, function):
    return function.options(num_cpus=RESOURCES["CPU"], num_gpus=RESOURCES.get("GPU", 0),
                            scheduling_strategy=PlacementGroupSchedulingStrategy(group, machine))


address, port = ray.get(on(0, meeting_place).remote())
secret = secrets.token_hex(32)
agents = [on(machine, agent).remote(machine, address, port, secret) for machine in range(MACHINES)]
try:
    codes = ray.get(agents)
except BaseException as reason:
    for task in agents:
        ray.cancel(task)  # a KeyboardInterrupt in the task
    ray.wait(agents, num_returns=MACHINES, timeout=)PY",
      grace_seconds(job), R"PY()
    if isinstance(reason, KeyboardInterrupt):
        sys.exit(3)  # asked to stop, in tessera's convention
    raise
sys.exit(max(codes))
)PY");
}

}  // namespace tessera::launch
