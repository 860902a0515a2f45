#pragma once
/// \file
/// base/system/: what the kernel does with processes that are killed, limited or far away, and how that is met.
///
/// Files and folders that processes which were killed have left. Who writes one holds a lock of the kernel on it
/// (flock), which ends with the process however it ends, also in a container with process numbers of its own. What
/// nobody holds, where locks work, is abandoned.

#include <functional>
#include <string>

namespace tessera {

/// This process holds the file that is open at `fd` until its last descriptor is closed. Where locks do not exist,
/// nothing is held and nothing counts as abandoned.
void hold_as_ours(int fd);

/// Removes the entries of a folder whose names `ours` knows, which belong to this user, are regular files or folders,
/// and which nobody holds. Never throws: what cannot be looked at or removed stays.
void remove_abandoned(const std::string& folder, const std::function<bool(const std::string& name)>& ours) noexcept;

/// The name in "NAME.tmp.123" (write_file_atomically()'s, before they are whole); empty for other names.
std::string name_of_temporary(const std::string& name);

}  // namespace tessera
