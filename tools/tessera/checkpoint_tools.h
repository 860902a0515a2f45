#pragma once
/// \file
/// The parts of `tessera checkpoint` (checkpoint_command.cpp).

#include <tools/tessera/commands.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::tool {

int checkpoint_convert(const Arguments& arguments);
int checkpoint_inspect(const Arguments& arguments);
int checkpoint_verify(const Arguments& arguments);
int checkpoint_diff(const Arguments& arguments);
int checkpoint_merge(const Arguments& arguments);
int checkpoint_push(const Arguments& arguments);
int checkpoint_fetch(const Arguments& arguments);
int checkpoint_ls(const Arguments& arguments);

/// Reads every byte of the checkpoints at an s3:// URL and prints a line for each; whether all are whole.
bool verify_objects(const std::string& url, bool json);

/// Arguments that are no flags, and the flags with their values. `with_value`: flags that take the word after them.
std::pair<Arguments, Arguments> split_positional(const Arguments& arguments,
                                                 const std::vector<std::string>& with_value);

}  // namespace tessera::tool
