#pragma once
/// \file
/// Finds what a process waits for outside of the job, as far as the kernel reveals it: a lock that another program
/// holds, a reader of its output, a program that it has started.

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace tessera::launch {

/// `own`: the processes of the job's ranks on this host. Returns "" if unknown.
using WhatItWaitsFor = std::function<std::string(pid_t pid, const std::vector<pid_t>& own)>;

/// "/data/cache/lock, which it has open, is locked by another program: pid 9 (tessera train ...)"; "nobody reads its
/// standard output"; "a program that it has started". Reads /proc only.
std::string what_it_waits_for(pid_t pid, const std::vector<pid_t>& own);

}  // namespace tessera::launch
