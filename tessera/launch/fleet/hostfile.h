#pragma once
/// \file
/// Lists of hosts: DeepSpeed's hostfile with its --include/--exclude, and Slurm's node lists. All bad input throws
/// InputError with the place.

#include <string>
#include <string_view>
#include <vector>

namespace tessera::launch {

/// A host and which of its slots are used (0-based; without a filter 0 .. N-1). One process runs in each.
struct HostSlots {
  std::string name;
  std::vector<int> slots;
  int slots_of_host = 0;  ///< N of "slots=N"
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

/// A name that may stand in a host list: letters, digits, '.', '-', '_', ':' and an optional USER@ in front; it never
/// starts with '-' (ssh would take it for an option).
bool is_host_name(std::string_view name);

/// Lines "NAME slots=N"; '#' starts a comment; empty lines are skipped. Errors are "WHERE:LINE: ...": another form, a
/// host twice, N not 1 .. 4096, no host at all.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& where);
std::vector<HostSlots> read_hostfile(const std::string& path);

/// A file of bad hosts: one name per line, '#' begins a comment (what sbatch's --exclude=FILE reads). A file that is
/// not there has none. Errors are "FILE:LINE: ...": what is no host name.
std::vector<std::string> read_bad_hosts(const std::string& path);

/// DeepSpeed's filters: "worker-0@worker-1:0,2" names hosts, or single slots of a host. Keeps only (include) or drops
/// (exclude) what is named; at most one of the two is not empty. The order of the hostfile stays; hosts without slots
/// left disappear. Errors: unknown host or slot, something twice, nothing left.
std::vector<HostSlots> filter_hosts(const std::vector<HostSlots>& hosts, const std::string& include,
                                    const std::string& exclude);

/// CUDA_VISIBLE_DEVICES for a host of which only some slots are used, "1,3"; empty when they are the first ones.
std::string device_list(const HostSlots& host);

/// What `scontrol show hostnames LIST` prints: "gpu[07-09,12],rack[0-1]n[1-2]-ib" -> gpu07 gpu08 gpu09 gpu12 rack0n1-ib
/// rack0n2-ib rack1n1-ib rack1n2-ib. A number is as wide as the first of its range. At most 65,536 names.
std::vector<std::string> expand_node_list(const std::string& list);

/// Slurm's "tasks per node", "4(x2),3" -> {4, 4, 3}. At most 65,536 nodes.
std::vector<int> expand_task_counts(const std::string& text);

}  // namespace tessera::launch
