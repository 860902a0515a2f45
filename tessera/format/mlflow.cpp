#include <tessera/format/mlflow.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/hash.h>
#include <tessera/base/log.h>
#include <tessera/base/value.h>

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

namespace tessera::format {
namespace {

constexpr std::size_t longest_parameter = 6000, longest_tag = 8000, longest_name = 250;  // mlflow/utils/validation.py
constexpr const char* kMeta = "meta.yaml";
constexpr const char* kTrash = ".trash";

std::int64_t milliseconds(double seconds) { return static_cast<std::int64_t>(std::llround(1000 * seconds)); }

/// JSON's quoted strings are YAML's, too.
std::string yaml(const std::string& text) { return dump_json(Value::of(text), -1); }

/// RFC 8089: every byte but the harmless ones as %XX.
std::string file_uri(const std::string& path) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string uri = "file://";
  for (const unsigned char c : path) {
    if (std::isalnum(c) || std::string_view("/-_.~").find(static_cast<char>(c)) != std::string_view::npos) {
      uri += static_cast<char>(c);
    } else {
      uri += '%';
      uri += digits[c >> 4];
      uri += digits[c & 15];
    }
  }
  return uri;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::string without_percents(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool code = text[i] == '%' && i + 2 < text.size() && digit_of(text[i + 1]) >= 0 && digit_of(text[i + 2]) >= 0;
    if (code) {
      out += static_cast<char>(16 * digit_of(text[i + 1]) + digit_of(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// A name of a metric, parameter or tag as a path inside its folder. MLflow has letters, digits, and "_-. :/" in names,
/// and no path that means another one.
std::string file_name(std::string name) {
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && std::string_view("_-. :/").find(c) == std::string_view::npos)
      c = '_';
  std::string path;
  for (const std::string& part : split(name, '/'))
    if (!part.empty() && part != "." && part != "..") path += (path.empty() ? "" : "/") + part;
  return path.empty() ? "_" : path.substr(0, longest_name);
}

std::string user_name() {
  passwd entry = {};
  passwd* found = nullptr;
  char buffer[4096];
  return getpwuid_r(::geteuid(), &entry, buffer, sizeof buffer, &found) == 0 && found != nullptr ? entry.pw_name
                                                                                                 : concat(::geteuid());
}

void write_entry(const std::string& folder, const std::string& name, std::string_view value) {
  const std::string path = path_join(folder, file_name(name));
  make_folders(path.substr(0, path.find_last_of('/')));
  write_file_atomically(path, value);
}

/// The meta.yaml of a folder; nothing where there is none, or none that can be read (a folder of somebody else).
std::optional<Value> meta_of(const std::string& folder) {
  const std::string path = path_join(folder, kMeta);
  if (!path_exists(path)) return std::nullopt;
  try {
    Value meta = read_yaml(path);
    if (meta.is_object()) return meta;
  } catch (const InputError& error) {
    log::warning("left aside in MLflow's store: ", error.what());
  }
  return std::nullopt;
}

std::string text_of(const Value& meta, std::string_view key) {
  const Value* value = meta.find(key);
  if (value == nullptr || value->is_null()) return "";
  return value->is_string() ? value->as_string() : dump_json(*value, -1);
}

void write_experiment(const std::string& store, const std::string& id, const std::string& name, double wall_time) {
  const std::string folder = path_join(store, id);
  make_folders(folder);
  write_file_atomically(
      path_join(folder, kMeta),
      concat("artifact_location: ", yaml(file_uri(folder)), "\ncreation_time: ", milliseconds(wall_time),
             "\nexperiment_id: ", yaml(id), "\nlast_update_time: ", milliseconds(wall_time),
             "\nlifecycle_stage: active\nname: ", yaml(name), "\n"));
}

/// Its folder's name, and where its artifacts lie.
struct Experiment {
  std::string id, artifacts;
};

/// The active experiment of that name. A new one's id follows from its name, so that two runs that begin at the same
/// time make one experiment.
Experiment experiment_of(const std::string& store, const std::string& name, double wall_time) {
  for (const std::string& id : list_folder(store)) {
    if (id == kTrash || !is_directory(path_join(store, id))) continue;
    const auto meta = meta_of(path_join(store, id));
    if (meta && text_of(*meta, "name") == name) return {id, text_of(*meta, "artifact_location")};
  }
  std::uint64_t number = 100'000'000'000'000'000u + fnv1a(name) % 800'000'000'000'000'000u;  // 18 digits, as MLflow's
  const auto is_anothers = [&](const std::string& id) {
    const auto meta = meta_of(path_join(store, id));
    return path_exists(path_join(path_join(store, kTrash), id)) || (meta && text_of(*meta, "name") != name);
  };
  std::string id = name == "Default" ? "0" : concat(number);
  while (is_anothers(id)) id = concat(++number);
  write_experiment(store, id, name, wall_time);
  return {id, file_uri(path_join(store, id))};
}

}  // namespace

std::string mlflow_store_folder(const std::string& tracking_uri) {
  const std::size_t colon = tracking_uri.find(':');
  const std::string scheme = colon == std::string::npos ? "" : to_lower(tracking_uri.substr(0, colon));
  const bool has_scheme = !scheme.empty() && std::isalpha(static_cast<unsigned char>(scheme[0])) &&
                          std::all_of(scheme.begin(), scheme.end(), [](unsigned char c) {
                            return std::isalnum(c) || c == '+' || c == '-' || c == '.';
                          });
  if (!has_scheme && tracking_uri != "databricks" && tracking_uri != "uc") return absolute_path(tracking_uri);
  const std::string rest = has_scheme ? tracking_uri.substr(colon + 1) : "";
  if (scheme == "file" && !rest.starts_with("//")) return absolute_path(without_percents(rest));
  if (scheme == "file" && rest.starts_with("///")) return without_percents(rest.substr(2));
  const std::string host = rest.substr(std::min(rest.size(), rest.find_last_of('@') + 1));
  throw InputError(
      concat("MLFLOW_TRACKING_URI names ",
             has_scheme ? concat(scheme, ":", rest.find('@') == std::string::npos ? rest : "..." + host) : tracking_uri,
             ", and only a file store is written: file:FOLDER. Unset it (the store is then OUT/mlruns), or leave "
             "mlflow out of "
             "--report_to; `mlflow migrate-filestore` takes a file store into a data base afterwards"));
}

bool is_mlflow_run_id(std::string_view text) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) && c < 0x80; };
  return !text.empty() && text.size() <= 256 && plain(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [&](unsigned char c) { return plain(c) || c == '_' || c == '-'; });
}

MlflowRun::MlflowRun(const std::string& store, const std::string& experiment, const std::string& run_id,
                     const std::string& name, double wall_time)
    : id_(run_id), name_(name), user_(user_name()), start_time_(wall_time), last_time_(wall_time) {
  if (!is_mlflow_run_id(run_id))
    throw InputError(
        concat("MLFLOW_RUN_ID is ", run_id, ": a run's id is a letter or digit and then up to 255 of these, _ and -"));
  make_folders(path_join(store, kTrash));
  if (!path_exists(path_join(path_join(store, "0"), kMeta))) write_experiment(store, "0", "Default", wall_time);
  for (const std::string& folder : list_folder(store)) {
    const auto meta = folder == kTrash ? std::nullopt : meta_of(path_join(path_join(store, folder), run_id));
    if (!meta) continue;
    folder_ = path_join(path_join(store, folder), run_id);
    if (text_of(*meta, "lifecycle_stage") == "deleted")
      throw InputError(
          concat("the MLflow run ", run_id, " in ", store, " has been deleted: restore it, or name another"));
    experiment_id_ = text_of(*meta, "experiment_id");
    artifacts_ = text_of(*meta, "artifact_uri");
    if (name_.empty()) name_ = text_of(*meta, "run_name");
    user_ = text_of(*meta, "user_id");
    if (const Value* start = meta->find("start_time"); start != nullptr && start->is_number())
      start_time_ = start->as_real() / 1000;
  }
  if (folder_.empty()) {
    const Experiment made = experiment_of(store, experiment, wall_time);
    experiment_id_ = made.id;
    artifacts_ = concat(made.artifacts, "/", run_id, "/artifacts");
    folder_ = path_join(path_join(store, made.id), run_id);
  }
  for (const char* part : {"metrics", "params", "tags", "artifacts"}) make_folders(path_join(folder_, part));
  write_meta(Status::running, -1);
  if (!name_.empty()) tag("mlflow.runName", name_);
  tag("mlflow.user", user_);
}

MlflowRun::~MlflowRun() {
  if (!ended_) end(last_time_, Status::failed);
}

void MlflowRun::write_meta(Status status, double end_time) {
  write_file_atomically(
      path_join(folder_, kMeta),
      concat("artifact_uri: ", yaml(artifacts_),
             "\nend_time: ", end_time < 0 ? "null" : std::to_string(milliseconds(end_time)),
             "\nentry_point_name: ''\nexperiment_id: ", yaml(experiment_id_),
             "\nlifecycle_stage: active\nrun_id: ", yaml(id_), "\nrun_name: ", yaml(name_), "\nrun_uuid: ", yaml(id_),
             "\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: ", milliseconds(start_time_),
             "\nstatus: ", static_cast<int>(status), "\ntags: []\nuser_id: ", yaml(user_), "\n"));
}

void MlflowRun::resume_after(std::int64_t step) {
  const std::string folder = path_join(folder_, "metrics");
  for (const std::string& name : list_folder(folder)) {
    const std::string path = path_join(folder, name);
    if (is_directory(path)) continue;  // somebody named metrics a/b: this run writes none
    std::string kept;
    const std::string all = read_file(path);
    for (const std::string& line : split(all, '\n')) {
      const std::vector<std::string> words = split(line, ' ');
      const auto at = words.size() == 3 ? parse_int(words[2]) : std::nullopt;
      if (at && *at <= step) kept += line + "\n";
    }
    if (kept != all) write_file_atomically(path, kept);
  }
}

void MlflowRun::points(double wall_time, std::int64_t step, Points values) {
  last_time_ = wall_time;
  for (const auto& [name, value] : values) {
    const std::string file = file_name(name);
    auto found = metrics_.find(file);
    if (found == metrics_.end()) {
      try {
        const std::string path = path_join(path_join(folder_, "metrics"), file);
        make_folders(path.substr(0, path.find_last_of('/')));
        found = metrics_.emplace(file, AppendFile(path, O_CREAT)).first;
      } catch (const Error& error) {  // a store that is gone ends no training
        if (!std::exchange(told_, true)) log::warning("MLflow's store misses points: ", error.what());
        continue;
      }
    }
    found->second.append(concat(milliseconds(wall_time), " ", format_real(value), " ", step, "\n"));
  }
}

bool MlflowRun::parameter(const std::string& name, const std::string& value) {
  if (value.size() > longest_parameter) return false;
  const std::string folder = path_join(folder_, "params");
  if (!path_exists(path_join(folder, file_name(name)))) write_entry(folder, name, value);
  return true;
}

void MlflowRun::tag(const std::string& name, const std::string& value) {
  write_entry(path_join(folder_, "tags"), name, value.substr(0, longest_tag));
}

void MlflowRun::end(double wall_time, Status status) {
  ended_ = true;
  try {
    write_meta(status, wall_time);
  } catch (const Error& error) {
    log::warning("MLflow's store does not say how the run ended: ", error.what());
  }
}

}  // namespace tessera::format
