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

/// Reads every byte of the checkpoints at an s3:// URL and prints a line for each; returns whether all are intact.
bool verify_objects(const std::string& url, bool json);

/// Splits arguments into positional ones and flags with their values. `with_value`: flags whose value is the next word.
std::pair<Arguments, Arguments> split_positional(const Arguments& arguments,
                                                 const std::vector<std::string>& with_value);

}  // namespace tessera::tool
