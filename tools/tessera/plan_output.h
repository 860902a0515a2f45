#pragma once
/// \file
/// Output of `tessera plan` and `tessera plan check` for one plan: tables that fit 80 columns, and JSON.

#include <tessera/base/value.h>
#include <tessera/plan/search.h>

#include <optional>
#include <string>

namespace tessera::tool {

/// "41.2 GB", "8.25 GB", "8.2 MB": decimal units, as in device specifications.
std::string gigabytes(double bytes);
/// Memory of the fullest rank by kind, and time of a step by kind, side by side.
void print_parts(const plan::Candidate& candidate);
Value value_of(const plan::Candidate& candidate, const plan::Question& question);
/// The engine selected by --engine and --engine_year. Throws InputError: unknown name (with the nearest), invalid year,
/// or a year for tessera, whose version is the installed one.
plan::Engine engine_of_words(const std::optional<std::string>& name, const std::optional<std::string>& year);
/// The command that runs the plan, in one line.
std::string command_of(const plan::Question& question, const plan::Plan& plan);

}  // namespace tessera::tool
