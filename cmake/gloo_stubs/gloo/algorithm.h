#pragma once
// Stand-in, see gloo/context.h.
#include <gloo/context.h>
