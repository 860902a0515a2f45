#include <tessera/train/saving/saver.h>

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/checkpoint/read_back.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/parallel/replicas.h>
#include <tessera/train/saving/part_files.h>
#include <tessera/train/saving/save_report.h>
#include <tessera/train/saving/tensor_parts.h>

namespace tessera::train {
namespace {

/// Runs `work` unless something failed before; stores its exception as text.
template <class Work>
void guarded(std::string& error, Work&& work) {
  if (!error.empty()) return;
  try {
    work();
  } catch (const std::exception& failed) {
    error = failed.what();
    if (error.empty()) error = "unknown failure";
  }
}

std::size_t image_bytes(const SavePlan& plan) {
  return PartFiles::image_bytes(plan.weights) + PartFiles::image_bytes(plan.states);
}

/// Called once a checkpoint is complete: failures to remove old ones only cause warnings.
void prune_or_warn(const std::string& folder, const std::function<void()>& prune) {
  try {
    prune();
  } catch (const std::exception& failed) {
    log::warning(folder, " is saved, but old checkpoints could not be removed: ", failed.what());
  }
}

/// Removes files left in the output folder by runs that died while saving. Failures only cause warnings.
void remove_stale_or_warn(const std::string& output_dir) {
  try {
    checkpoint::remove_stale_folders(output_dir);
  } catch (const std::exception& failed) {
    log::warning("half-written checkpoints of earlier runs could not be removed yet: ", failed.what());
  }
}

/// Removes the leftovers of a dropped save, if any. Returns false, with a warning, if they cannot be removed now.
bool remove_or_warn(const std::string& folder) {
  try {
    remove_tree(folder);
    return true;
  } catch (const std::exception& failed) {
    log::warning("the remains of a dropped checkpoint could not be removed yet: ", failed.what());
    return false;
  }
}

}  // namespace

/// This rank's part of one model.
struct Saver::Part {
  SavePlan plan;
  std::optional<PartFiles> weights, states;  // empty: the memory could not be allocated
  RankTensors of_rank = {};
};

/// One save, from the copy to the rename to its final name.
struct Saver::Job {
  SaveContents contents;
  std::vector<SavedModel> models;
  std::vector<Part> parts;  // one per model
  std::string temporary;
  PartReport report;
  SaveOutcome outcome;
};

Saver::Saver(const comm::Group& group, SaverOptions options) : group_(group), options_(std::move(options)) {
  const std::vector<std::string> pids = comm::all_gather_text(group_, std::to_string(::getpid()));
  writer_pid_ = parse_int(pids[0]).value();
  if (group_.rank() == 0 && !options_.output_dir.empty()) remove_stale_or_warn(options_.output_dir);
  group_.barrier().wait();  // prevents writing before the cleanup
}

Saver::~Saver() {
  cancelled_ = true;
  if (thread_.joinable()) thread_.join();
  if (!busy() || group_.rank() != 0) return;
  try {
    remove_tree(job_->temporary);  // files that other ranks still write there are removed by the next run
  } catch (const std::exception& error) {
    log::warning("an unfinished checkpoint could not be removed: ", error.what());
  }
}

void Saver::start_thread(std::function<void()> work) {
  ended_ = false;
  thread_ = std::thread([this, work = std::move(work)] {
    guarded(error_, work);
    ended_.store(true, std::memory_order_release);
  });
}

void Saver::prepare(const SavedModel& model) {
  if (!options_.in_memory || busy() || thread_.joinable()) return;
  const SavePlan plan = plan_save(model, group_, {});
  thread_ = std::thread([this, bytes = image_bytes(plan)] {
    std::string ignored;  // the save will try again and report the error
    guarded(ignored, [&] { staging_.reserve(bytes); });
  });
}

void Saver::save(std::vector<SavedModel> models, SaveContents contents) {
  TESSERA_CHECK(!busy(), "a checkpoint is being written: finish() it first");
  if (thread_.joinable()) thread_.join();  // started by prepare()
  remove_leftovers();
  const std::int64_t begin = monotonic_ns();
  phase_ = Phase::writing;
  error_.clear();
  job_ = std::make_unique<Job>();
  Job& job = *job_;
  job.contents = std::move(contents);
  job.models = std::move(models);
  job.outcome.step = job.contents.step;
  if (job.contents.folder.empty()) {
    job.outcome.folder = checkpoint::step_folder(options_.output_dir, job.contents.step);
    job.temporary = checkpoint::writing_folder(options_.output_dir, job.contents.step, writer_pid_);
  } else {
    job.outcome.folder = job.contents.folder;
    job.temporary = job.contents.model ? path_join(job.contents.folder, "model.tmp") : job.contents.folder + ".tmp";
    if (group_.rank() == 0)
      guarded(error_, [&] { checkpoint::remove_written(job.temporary); });  // leftover of a run that died while saving
    group_.barrier().wait();                                                // prevents writing before the cleanup
  }
  for (const SavedModel& model : job.models)
    job.parts.emplace_back().plan = plan_save(model, group_, job.contents.form);
  guarded(error_, [this] { make_files(); });
  copy();
  if (options_.in_memory) {
    start_thread([this] { write_own(); });
  } else {
    guarded(error_, [this] { write_own(); });
    ended_ = true;
  }
  job.outcome.stall_seconds = seconds_since(begin);
}

void Saver::make_files() {
  Job& job = *job_;
  std::size_t bytes = 0;
  for (const Part& part : job.parts) bytes += image_bytes(part.plan);
  std::span<std::byte> memory;
  if (options_.in_memory)
    memory = staging_.reserve(bytes);
  else if (writes())
    make_folders(job.temporary);
  const auto make = [&](std::optional<PartFiles>& files, const std::vector<PartFile>& plan) {
    if (!options_.in_memory) {
      files.emplace(plan, job.temporary, cancelled_);
      return;
    }
    const std::size_t own = PartFiles::image_bytes(plan);
    files.emplace(plan, memory.first(own), cancelled_);
    memory = memory.subspan(own);
  };
  for (Part& part : job.parts) {
    make(part.weights, part.plan.weights);
    make(part.states, part.plan.states);
  }
}

/// An error here is stored: this rank must continue with the collectives, like the others.
void Saver::copy() {
  for (std::size_t m = 0; m < job_->models.size(); ++m) {
    const SavedModel& model = job_->models[m];
    Part& part = job_->parts[m];
    const comm::Group tensor = tensor_group(*model.sharded);
    const auto append_untrained = [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        const at::Tensor whole = model.untrained[i].whole();
        if (part.plan.untrained_owners[i] == part.plan.rank && part.plan.whole)
          guarded(error_, [&] { part.weights->append(whole); });
      }
    };
    append_untrained(0, part.plan.untrained_first);
    const auto append_weights = [&](std::size_t, std::int64_t, const at::Tensor& piece) {
      if (part.plan.whole) guarded(error_, [&] { part.weights->append(piece); });
    };
    model.sharded->gather_to_owners(part.plan.owners, of_whole_tensors(*model.sharded, tensor, append_weights));
    append_untrained(part.plan.untrained_first, model.untrained.size());
    for (const std::vector<std::size_t>& list : part.plan.delivered_states) {
      std::vector<at::Tensor> held;
      for (const std::size_t i : list) held.push_back(i == no_state ? at::Tensor() : model.states[i].values());
      const auto append_states = [&](std::size_t, std::int64_t, const at::Tensor& piece) {
        if (part.plan.whole) guarded(error_, [&] { part.states->append(piece); });
      };
      model.sharded->gather_like_to_owners(held, std::vector<int>(held.size(), 0),
                                           of_whole_tensors(*model.sharded, tensor, append_states));
    }
    if (model.of_rank && job_->contents.form.optimizer)
      guarded(error_, [&] { part.of_rank = model.of_rank(model.states_stem); });
    for (const auto& [place, box] : part.plan.own_states)
      guarded(error_, [&] {
        const HeldState& state = model.states[place];
        const at::Tensor values = state.values();
        part.states->append(box ? take_box(*state.parameter, values, *box) : values);
      });
  }
}

/// A rank without files must not create a folder, which would stay empty.
bool Saver::writes() const {
  if (group_.rank() == 0) return true;
  return std::any_of(job_->parts.begin(), job_->parts.end(), [](const Part& part) {
    return !part.plan.weights.empty() || !part.plan.states.empty() || !part.of_rank.file.empty();
  });
}

void Saver::write_own() {
  Job& job = *job_;
  if (writes()) make_folders(job.temporary);
  PartReport& report = job.report;
  if (group_.rank() == 0 && job.contents.small_files) report.files = job.contents.small_files(job.temporary);
  const auto write = [&](PartFiles& files) {
    const std::vector<format::ManifestFile>& written = files.write(job.temporary);
    report.files.insert(report.files.end(), written.begin(), written.end());
    report.bytes += static_cast<std::int64_t>(files.bytes());
    job.outcome.write_seconds += files.write_seconds();
  };
  for (Part& part : job.parts) {
    write(part.weights.value());
    write(part.states.value());
    if (const RankTensors& own = part.of_rank; !own.file.empty()) {
      report.files.push_back(
          checkpoint::write_tensors_file(job.temporary, own.file.c_str(), checkpoint::sources_of(own.tensors)));
      checkpoint::read_back(path_join(job.temporary, own.file), report.files.back().digest, cancelled_);
    }
    report.models.push_back(report_of(part.plan));
  }
  job.outcome.own_bytes = report.bytes;
}

/// Runs on rank 0's thread: turns the parts of all ranks into a complete folder.
void Saver::publish(const std::vector<Value>& reports) {
  Job& job = *job_;
  std::vector<PartReport> parts;
  for (const Value& report : reports) parts.push_back(parse_report(report));
  format::Manifest manifest{job.contents.step, {}};
  for (PartReport& part : parts) std::move(part.files.begin(), part.files.end(), std::back_inserter(manifest.files));
  for (std::size_t m = 0; m < job.models.size(); ++m) {
    const SaveForm& form = job.contents.form;
    const bool staged = bool(job.models[m].sharded->options().stages);
    if (const auto joined = join_weights(job.temporary, job.models[m], m, parts, manifest.files))
      checkpoint::read_back(path_join(job.temporary, joined->name), joined->digest, cancelled_);
    const bool in_pieces = form.optimizer && group_.size() > 1 && (!form.full || staged);
    for (format::ManifestFile& index : write_indexes(job.temporary, job.models[m], m, parts, in_pieces))
      manifest.files.push_back(std::move(index));
  }
  if (!job.contents.model) format::write_manifest(job.temporary, manifest);
  // Shards were read back by their writers; this checks the small files and the list itself, which has its own
  // checksum.
  for (const format::ManifestFile& file : manifest.files)
    if (!file.name.ends_with(".safetensors"))
      checkpoint::read_back(path_join(job.temporary, file.name), file.digest, cancelled_);
  if (job.contents.model) {
    const ModelFolder& model = *job.contents.model;
    if (model.before_publishing) model.before_publishing(list_folder(job.temporary));
    checkpoint::publish_files(job.temporary, job.contents.folder, model.replaces);
    remove_or_warn(job.temporary);
    return;
  }
  checkpoint::forget_pages(path_join(job.temporary, format::kManifestName));
  format::read_manifest(job.temporary);
  checkpoint::publish_written_folder(job.temporary, job.outcome.folder);
  if (job.contents.prune) prune_or_warn(job.outcome.folder, job.contents.prune);
}

std::optional<SaveOutcome> Saver::advance() {
  TESSERA_CHECK(busy(), "nothing is being saved");
  const std::int64_t begin = monotonic_ns();
  if (thread_.joinable()) thread_.join();
  const Value own = error_.empty() ? (phase_ == Phase::writing ? to_value(job_->report) : Value::make_object())
                                   : Value::make_object({{"error", Value::of(error_)}});
  std::vector<Value> reports;
  std::vector<std::string> by_rank;
  const std::vector<std::string> texts = comm::all_gather_text(group_, dump_json(own, -1));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    reports.push_back(parse_json(texts[rank], concat("report of rank ", rank)));
    const Value* error = reports.back().find("error");
    by_rank.push_back(error != nullptr ? error->as_string() : "");
  }
  std::string errors = comm::join_errors(by_rank);
  job_->outcome.stall_seconds += seconds_since(begin);
  if (!errors.empty()) return end(std::move(errors));
  if (phase_ == Phase::publishing) return end("");
  for (const Value& report : reports) job_->outcome.bytes += report.at("bytes").as_int();
  phase_ = Phase::publishing;
  if (group_.rank() == 0)
    start_thread([this, reports = std::move(reports)] { publish(reports); });
  else
    ended_ = true;
  return std::nullopt;
}

/// Ends the save. If there were errors, the checkpoint is dropped: the other ranks' threads have ended, too.
SaveOutcome Saver::end(std::string errors) {
  SaveOutcome outcome = std::move(job_->outcome);
  outcome.error = std::move(errors);
  const std::string temporary = job_->temporary;
  job_.reset();
  phase_ = Phase::idle;
  if (!outcome.error.empty() && group_.rank() == 0) leftovers_.push_back(temporary);
  remove_leftovers();
  last_ = outcome;
  return outcome;
}

/// With every save, tries again to remove folders that a failing disk has kept from being removed.
void Saver::remove_leftovers() { std::erase_if(leftovers_, remove_or_warn); }

std::optional<SaveOutcome> Saver::finish() {
  std::optional<SaveOutcome> outcome;
  while (busy()) outcome = advance();
  return outcome;
}

void save_now(const comm::Group& group, std::vector<SavedModel> models, SaveContents contents) {
  const comm::LifeState saving(launch::RankState::saving);  // a slow disk is not a hang
  Saver saver(group, {.output_dir = "", .in_memory = false});
  saver.save(std::move(models), std::move(contents));
  const SaveOutcome outcome = saver.finish().value();
  comm::run_on_all_ranks(group, [&] {
    if (!outcome.error.empty() && group.rank() == 0)
      throw Error(concat(outcome.folder, " is not saved: ", outcome.error));
  });
}

}  // namespace tessera::train
