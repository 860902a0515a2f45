#pragma once
/// \file
/// The folder for a user's regenerable data.

#include <optional>
#include <string>

namespace tessera {

/// $XDG_CACHE_HOME/tessera, else $HOME/.cache/tessera (XDG Base Directory Specification); nullopt when neither variable
/// is set. Nothing is created.
std::optional<std::string> user_cache_folder();

}  // namespace tessera
