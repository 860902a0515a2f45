#pragma once
/// \file
/// Lists of hosts: DeepSpeed's hostfile with its --include/--exclude, and Slurm's node lists. All bad input throws
/// InputError with its location.

#include <string>
#include <string_view>
#include <vector>

namespace tessera::launch {

/// A host and its slots in use (0-based; without a filter 0 .. N-1). One process runs in each.
struct HostSlots {
  std::string name;
  std::vector<int> slots;
  int slots_of_host = 0;  ///< N of "slots=N"
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

/// Whether a name is allowed in a host list: letters, digits, '.', '-', '_', ':' and an optional USER@ in front; never
/// a leading '-' (ssh would take it for an option).
bool is_host_name(std::string_view name);

/// Lines "NAME slots=N"; '#' starts a comment; empty lines are skipped. Errors are "WHERE:LINE: ...": malformed line,
/// duplicate host, N not in 1 .. 4096, no host at all.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& where);
std::vector<HostSlots> read_hostfile(const std::string& path);

/// A file of bad hosts: one name per line, '#' starts a comment (the format of sbatch's --exclude=FILE). A missing file
/// counts as empty. Errors are "FILE:LINE: ..." for an invalid host name.
std::vector<std::string> read_bad_hosts(const std::string& path);

/// DeepSpeed's filters: "worker-0@worker-1:0,2" names hosts, or single slots of a host. Keeps only (include) or drops
/// (exclude) the named ones; at most one of the two may be given. Keeps the order of the hostfile; hosts without
/// remaining slots are removed. Errors: unknown host or slot, a duplicate, nothing left.
std::vector<HostSlots> filter_hosts(const std::vector<HostSlots>& hosts, const std::string& include,
                                    const std::string& exclude);

/// CUDA_VISIBLE_DEVICES for a host with only some slots in use, "1,3"; empty when those are the first slots.
std::string device_list(const HostSlots& host);

/// Expands as `scontrol show hostnames LIST` does: "gpu[07-09,12],rack[0-1]n[1-2]-ib" -> gpu07 gpu08 gpu09 gpu12
/// rack0n1-ib rack0n2-ib rack1n1-ib rack1n2-ib. A number is padded to the width of its range's start. At most 65,536
/// names.
std::vector<std::string> expand_node_list(const std::string& list);

/// Slurm's "tasks per node", "4(x2),3" -> {4, 4, 3}. At most 65,536 nodes.
std::vector<int> expand_task_counts(const std::string& text);

}  // namespace tessera::launch
