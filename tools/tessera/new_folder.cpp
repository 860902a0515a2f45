#include <tools/tessera/new_folder.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/text/tokenizer_files.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

namespace tessera::tool {

namespace fs = std::filesystem;

bool is_model_file(const std::string& name) {
  return name == "config.json" || name == "generation_config.json" || name == "preprocessor_config.json" ||
         text::is_tokenizer_file(name) || name == text::more_templates || name.ends_with(".safetensors") ||
         name.ends_with(".safetensors.index.json");
}

void check_output(const std::string& out, const std::string& source, bool overwrite) {
  if (!path_exists(out)) return;
  if (!is_directory(out)) throw InputError(concat("OUT_DIR '", out, "' is a file; expected a folder"));
  const std::vector<std::string> names = list_folder(out);
  if (names.empty()) return;
  if (!overwrite)
    throw InputError(concat("the folder '", out, "' is not empty; choose another one, or --overwrite to replace it"));
  std::vector<std::string> foreign;
  for (const std::string& name : names)
    if (!is_model_file(name)) foreign.push_back(name);
  if (!foreign.empty())
    throw InputError(concat("--overwrite: the folder '", out,
                            "' contains files other than a model, which would be lost: ",
                            join(std::span(foreign).first(std::min<std::size_t>(foreign.size(), 5))),
                            foreign.size() > 5 ? ", ..." : "", "; choose another folder"));
  const fs::path folder = fs::weakly_canonical(out), file = fs::weakly_canonical(source);
  if (file.parent_path() == folder)
    throw InputError(concat("--overwrite: '", source, "' is in the folder '", out, "' itself"));
}

void copy_model_files(const std::string& from, const std::string& to) {
  if (!is_directory(from)) return;
  const auto copy = [&](const std::string& name) {
    write_file_atomically(path_join(to, name), read_file(path_join(from, name)));
  };
  for (const std::string& name : list_folder(from)) {
    if (!is_model_file(name) || name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) continue;
    if (!is_directory(path_join(from, name))) {
      copy(name);
      continue;
    }
    make_folders(path_join(to, name));
    for (const std::string& inner : list_folder(path_join(from, name))) copy(path_join(name, inner));
  }
}

NewFolder::NewFolder(const std::string& out) : out_(absolute_path(out)) {
  while (out_.size() > 1 && out_.back() == '/') out_.pop_back();
  for (fs::path p = fs::path(out_).parent_path(); !fs::exists(p); p = p.parent_path()) made_ = p.string();
  path_ = concat(out_, ".tmp.", ::getpid());
  remove_tree(path_);
  make_folders(path_);
}

NewFolder::~NewFolder() {
  if (done_) return;
  std::error_code ignored;  // a destructor cannot report errors, and only the original error matters
  fs::remove_all(path_, ignored);
  if (made_.empty()) return;
  // Removes only empty folders, because other processes may have written files there in the meantime.
  for (fs::path p = fs::path(out_).parent_path(); p.string().size() >= made_.size(); p = p.parent_path())
    if (!fs::remove(p, ignored)) break;
}

void NewFolder::publish() {
  const std::string old = concat(out_, ".old.", ::getpid());
  const bool replaces = path_exists(out_);
  std::error_code error;
  if (replaces) fs::rename(out_, old, error);
  if (!error) fs::rename(path_, out_, error);
  if (error) {
    std::error_code ignored;  // restore the previous folder
    if (replaces && !path_exists(out_)) fs::rename(old, out_, ignored);
    throw Error(concat("cannot rename '", path_, "' to '", out_, "': ", error.message()));
  }
  done_ = true;
  if (replaces) remove_tree(old);
}

namespace {

volatile std::sig_atomic_t stop_signal = 0;  // a signal handler may write to it

}  // namespace

StopOnSignal::StopOnSignal() {
  struct sigaction action{};
  action.sa_handler = [](int signal) { stop_signal = signal; };
  ::sigaction(SIGINT, &action, &interrupt_);
  ::sigaction(SIGTERM, &action, &terminate_);
}

StopOnSignal::~StopOnSignal() {
  ::sigaction(SIGINT, &interrupt_, nullptr);
  ::sigaction(SIGTERM, &terminate_, nullptr);
}

void StopOnSignal::check() {
  if (stop_signal != 0) throw Error("interrupted: nothing was written", ExitCode::interrupted);
}

}  // namespace tessera::tool
