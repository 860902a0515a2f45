#pragma once
/// \file
/// The files named by a part of a data list.

#include <tessera/corpus/data_list.h>
#include <tessera/corpus/sources.h>

#include <string>
#include <vector>

namespace tessera::data {

/// Returns the files in list order: from folders with splits those of `split`, from other folders all. Throws
/// InputError, naming the setting `flag`, for a missing or an empty file.
std::vector<corpus::SourceFile> named_files(const std::string& flag, const corpus::DataPart& part, corpus::Split split);

}  // namespace tessera::data
