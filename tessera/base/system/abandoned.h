#pragma once
/// \file
/// base/system/: operating-system facilities for processes that are killed, limited or remote.
///
/// Cleanup of files and folders left behind by killed processes. Their writer holds a kernel lock on them (flock),
/// which the kernel releases however the process ends, even in a container with its own process numbers. If the file
/// system supports locks, an entry that nobody holds is abandoned.

#include <functional>
#include <string>

namespace tessera {

/// Locks the file open at `fd` for this process until its last descriptor is closed. On a file system without locks,
/// nothing is locked and nothing counts as abandoned.
void hold_as_ours(int fd);

/// Removes the entries of a folder whose names `ours` accepts, that belong to this user, are regular files or folders,
/// and are not locked by anyone. Never throws: entries that cannot be inspected or removed remain.
void remove_abandoned(const std::string& folder, const std::function<bool(const std::string& name)>& ours) noexcept;

/// The NAME in "NAME.tmp.123" (write_file_atomically()'s incomplete files); empty for other names.
std::string name_of_temporary(const std::string& name);

}  // namespace tessera
