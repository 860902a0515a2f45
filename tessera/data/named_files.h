#pragma once
/// \file
/// The files that a part of a list names.

#include <tessera/corpus/data_list.h>
#include <tessera/corpus/sources.h>

#include <string>
#include <vector>

namespace tessera::data {

/// In the order of the list; of folders that tell splits those of `split`, of others all. Throws InputError, naming the
/// setting `flag`, for what is not there, and for an empty file.
std::vector<corpus::SourceFile> named_files(const std::string& flag, const corpus::DataPart& part, corpus::Split split);

}  // namespace tessera::data
