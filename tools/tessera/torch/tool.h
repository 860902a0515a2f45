#pragma once
/// \file
/// tools/tessera/torch/: the subcommands that need tensors, in libtessera_tool.so. Each takes the arguments after its
/// name and returns an exit code; errors are thrown (tool_main.cpp turns them into messages and exit codes).

#include <c10/core/Device.h>
#include <tessera/config/resolve/command_flags.h>
#include <string>
#include <vector>

namespace tessera::tool {

using Arguments = std::vector<std::string>;

int train_rank(const Arguments& arguments);  ///< one rank of `tessera train`
int generate(const Arguments& arguments);
int chat(const Arguments& arguments);
int embed(const Arguments& arguments);
int env(const Arguments& arguments);
int self_test(const Arguments& arguments);
int bench_comm(const Arguments& arguments);   ///< one rank of `tessera bench comm`
int xla_compile(const Arguments& arguments);  ///< tessera xla compile
int calibrate(const Arguments& arguments);    ///< one rank of `tessera plan calibrate`

using config::Flags;

/// Opens the device of --device cpu|cuda|auto (auto without the flag) for this process; logs a GPU that auto found.
/// Throws InputError for any other word, and for cuda without a GPU.
c10::Device device_of(const Flags& flags);

}  // namespace tessera::tool
