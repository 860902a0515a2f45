#pragma once
// Stand-in, see gloo/context.h.
