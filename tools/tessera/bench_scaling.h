#pragma once
/// \file
/// tessera bench scaling: the same training job on 1, 2, 4, ... processes, with a breakdown of the lost speed.

#include <tools/tessera/commands.h>

namespace tessera::tool {

int scaling_command(const Arguments& arguments);

}  // namespace tessera::tool
