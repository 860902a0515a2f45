#pragma once
/// \file
/// A one-line progress display for the text commands; prints nothing unless stderr is a terminal. Thread-safe.

#include <cstdint>
#include <memory>
#include <string>

namespace tessera::tool {

class TextProgress {
 public:
  TextProgress();
  ~TextProgress();  ///< wipes the line
  /// "reading 12.0 MiB of 40.0 MiB (30%)"; redraws at most ten times a second. `bytes`: the numbers are bytes.
  void show(const std::string& what, std::int64_t done, std::int64_t of, bool bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::tool
