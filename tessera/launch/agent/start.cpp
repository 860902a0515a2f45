#include <tessera/launch/agent/start.h>

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/system/endpoint.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/ports.h>
#include <tessera/launch/fleet/ssh.h>
#include <tessera/launch/store/hmac.h>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tessera::launch {

namespace {

/// Waits until a name resolves. The name of a pod or node may appear in DNS only after its programs have started.
void wait_for_name(const std::string& host) {
  for (int attempt = 0;; ++attempt) {
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(host.c_str(), nullptr, nullptr, &found);
    if (error == 0) {
      ::freeaddrinfo(found);
      return;
    }
    if (attempt == 60) throw InputError(concat("--main_process_ip ", host, ": ", ::gai_strerror(error)));
    if (attempt == 2) std::fprintf(stderr, "[agent] waiting for the name %s\n", host.c_str());
    ::sleep(1);
  }
}

void set_exports(const std::vector<std::string>& exports) {
  for (const std::string& word : exports) {
    const auto equals = word.find('=');
    if (equals != std::string::npos) ::setenv(word.substr(0, equals).c_str(), word.substr(equals + 1).c_str(), 1);
  }
}

std::string emit(const LaunchCommand& command) {
  if (command.emit == "hostfile") {
    if (command.hosts.empty()) {
      throw InputError(
          "--emit hostfile: name the hosts with --host_list gpu[01-04] (and --nproc_per_node), or --hostfile");
    }
    return emit_hostfile(command.hosts);
  }
  EmitJob job{command.options, command.command, command.emission, "", command.exports};
  if (command.emit == "slurm") return emit_slurm(job);
  if (command.emit == "ray") return emit_ray(job);
  if (command.emit == "mpijob") return emit_mpijob(job);
  job.secret_hex = secret_digits(command.secret_file.empty() ? make_secret() : read_secret_file(command.secret_file));
  if (command.emit == "jobset") return emit_jobset(job);
  if (command.emit == "trainjob") return emit_trainjob(job);
  if (command.emit == "volcano") return emit_volcano(job);
  return emit_kubernetes(job);
}

}  // namespace

std::string secret_digits(const Secret& secret) {
  std::string digits;
  for (std::uint8_t byte : secret) {
    for (int half : {byte >> 4, byte & 15}) digits += "0123456789abcdef"[half];
  }
  return digits;
}

Secret parse_secret(const std::string& digits, const std::string& where) {
  Secret secret{};
  if (digits.size() == secret.size()) {
    std::memcpy(secret.data(), digits.data(), secret.size());
    return secret;
  }
  const std::string text = to_lower(trim(digits));
  const auto bad = [&] {
    throw InputError(
        concat(where,
               ": expected a secret of 64 hexadecimal digits; create one with:  (umask 077; od -An -tx1 -N32 "
               "/dev/urandom | tr -d ' \\n' > FILE)"));
  };
  if (text.size() != 2 * secret.size()) bad();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto value = std::string_view("0123456789abcdef").find(text[i]);
    if (value == std::string_view::npos) bad();
    secret[i / 2] = static_cast<std::uint8_t>(secret[i / 2] << 4 | value);
  }
  return secret;
}

Secret read_secret_file(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) throw InputError(concat("--secret_file ", path, ": ", std::strerror(errno)));
  if ((info.st_mode & 077) != 0) {
    throw InputError(concat("--secret_file ", path, ": others can read or write it; chmod 600 ", path));
  }
  return parse_secret(read_file(path, 4096), concat("--secret_file ", path));
}

std::optional<Secret> secret_of(const LaunchCommand& command) {
  if (!command.secret_file.empty()) return read_secret_file(command.secret_file);
  const LaunchOptions& options = command.options;
  if (options.num_machines == 1) return std::nullopt;
  if (!is_loopback(options.master_addr) && !command.trusted_network) {
    throw InputError(
        concat("the rendezvous at ", endpoint_text(options.master_addr, options.master_port),
               " is reachable by anyone on "
               "the network: give all machines the same --secret_file FILE (mode 600; create it with: "
               "(umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \\n' > FILE)), start them with --hostfile, "
               "or use --trusted_network"));
  }
  if (command.trusted_network) {
    std::fprintf(stderr, "[agent] warning: --trusted_network: anyone who can reach %s may join this job\n",
                 endpoint_text(options.master_addr, options.master_port).c_str());
  }
  const std::string known =
      concat("tessera without a secret\n", options.job, "\n", options.master_addr, "\n", options.master_port);
  Sha256 hash;
  hash.update({reinterpret_cast<const std::uint8_t*>(known.data()), known.size()});
  return hash.finish();
}

int start(const LaunchCommand& command, const std::string& program) {
  if (command.help || !command.emit.empty()) {
    const std::string text = command.help ? launch_help() : emit(command);
    if (std::fputs(text.c_str(), stdout) < 0) throw Error("cannot write to standard output");
    return 0;
  }
  const bool here = command.hosts.size() == 1 && is_this_host(command.hosts[0].name);
  if (command.over_ssh && !here) return run_over_ssh(command, program);
  LaunchOptions options = command.options;
  if (command.over_ssh) {
    options.num_processes = static_cast<int>(command.hosts[0].slots.size());
    const std::string devices = device_list(command.hosts[0]);
    if (!devices.empty()) ::setenv("CUDA_VISIBLE_DEVICES", devices.c_str(), 1);
    options.master_addr = is_this_host(options.master_addr) ? "127.0.0.1" : options.master_addr;
  }
  options.secret = command.secret_from_stdin ? secret_from_stdin() : secret_of(command);
  if (options.num_machines > 1) wait_for_name(options.master_addr);
  set_exports(command.exports);
  options.by_launcher = command.secret_from_stdin;
  const bool replaced = options.machine_rank > 0 && options.max_restarts > 0;  // replaced by a restarted agent
  if (command.secret_from_stdin) obey_stdin(options.stop_seconds + 10, replaced ? SIGHUP : SIGTERM);
  return run(command.command, options);
}

}  // namespace tessera::launch
