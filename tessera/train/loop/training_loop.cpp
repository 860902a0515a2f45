#include <tessera/train/loop/training_loop.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include <tessera/base/clock.h>
#include <tessera/base/file.h>
#include <tessera/comm/life.h>
#include <tessera/comm/long_phase.h>
#include <tessera/comm/recorder.h>
#include <tessera/config/rules/checkpointing.h>
#include <tessera/models/checkpoint_blocks.h>
#include <tessera/models/tensor_plans.h>
#include <tessera/models/vision/compose.h>
#include <tessera/parallel/context/attention.h>
#include <tessera/parallel/expert/experts.h>
#include <tessera/train/inference/unigram.h>
#include <tessera/train/loop/restart.h>
#include <tessera/train/reporting/model_card.h>

namespace tessera::train {
namespace {

/// How tp cuts the model; experts lie on a grid of their own.
layout::TensorPlan tensor_plan_of_run(const models::LanguageModel& model, const RunGroups& groups) {
  const layout::TensorPlan plan = models::tensor_plan(model);
  if (model.balance().experts == 0) return plan;
  std::vector<std::string> names;
  for (const auto& item : model.named_parameters()) names.push_back(item.key());
  return place_experts(
      plan, names, [&](const std::string& name) { return model.expert_of(name); }, model.balance().experts,
      groups.places_of_experts());
}

}  // namespace

TrainingLoop::TrainingLoop(Setup setup, const Value& configuration, std::int64_t process_bytes)
    : setup_(std::move(setup)),
      configuration_(configuration),
      world_(world()),
      plan_(setup_.plan),
      sampler_(setup_.config.data.train_sampling_strategy, *setup_.datasets.train, sampling_seed(setup_.config),
               plan_.rows_per_step(), plan_.batch_size),
      optimization_(with_learning_rate_rule(setup_.config.optimization, plan_.rows_per_step())),
      checkpoints_(world_.group(), setup_.config.output, setup_.resume ? &*setup_.resume : nullptr,
                   [this](const SaveOutcome& outcome) { saved(outcome); }),
      journal_(setup_, world_),
      step_(plan_.resumed_step),
      window_(setup_.config.output.hf_loss_scale, setup_.config.output.logging_nan_inf_filter),
      process_bytes_(process_bytes) {
  last_log_.loss = not_known;
  if (setup_.resume) setup_.resume->log_history = {};  // the journal goes on with it
  if (setup_.compression) setup_.compression->set_step(step_);
  setup_.model->set_label_smoothing(setup_.config.optimization.label_smoothing_factor);
  setup_.model->set_embedding_noise(setup_.config.optimization.neftune_noise_alpha);
  agree(world_.group(), [&] { set_up_routers(*setup_.model, setup_.config.optimization, setup_.groups); });
  if (setup_.config.optimization.balance_batches)
    balance_.emplace(world_, setup_.resume ? setup_.resume->seconds_per_row : std::vector<double>());
  if (setup_.config.optimization.gradient_noise_scale) small_.emplace();
  if (optimization_.preference_loss != PreferenceLoss::none) preferences_.emplace(optimization_);
  agree(world_.group(), [&] { shard_model(); });
  agree(world_.group(), [&] {
    const OptimizationConfig& config = optimization_;
    const auto decay = [&](const std::string& name, const std::vector<std::int64_t>&) {
      return setup_.model->is_norm_or_bias(name) ? 0.0 : config.weight_decay;
    };
    const auto* const model = setup_.model.get();
    const ParameterKinds kinds = {[model](const std::string& name) { return model->is_embedding(name); },
                                  [model](const std::string& name) { return model->is_embedding(name, true); },
                                  setup_.lora ? 1 : model->spec().mup.value_or(architectures::Mup{}).width,
                                  models::is_of_projector};
    core_.set_update(configured_update(config, decay, kinds)(*setup_.model, *sharded_));
    core_.set_schedule(make_schedule(config, plan_), make_schedule_of_embeddings(config, plan_));
    if (config.learning_rate_rule != BatchRule::none && !plan_.segments.empty())
      core_.scale_rates([this](std::int64_t step) {
        return batch_factor(optimization_.learning_rate_rule, plan_.rows_of_step(std::max(step, plan_.resumed_step)),
                            plan_.rows_per_step());
      });
    if (!setup_.resume) return;
    core_.restore(setup_.resume->models[0], setup_.resume_folder, setup_.resume_sums);
    setup_.resume_sums = nullptr;
  });
}

/// The first thing that is written.
void TrainingLoop::open_output() {
  agree(world_.group(), [&] {
    if (world_.rank() != 0) return;
    output_.emplace(setup_);
    journal_.open(*output_, configuration_);
  });
  open_checkpoints();
}

/// Collective; wrong class names and the like throw the same on every rank.
void TrainingLoop::shard_model() {
  const RunGroups& groups = setup_.groups;
  if (groups.tensor_ranks() > 1) {
    const models::WeightSource* const weights = setup_.weights.get();
    tensor_.emplace(*setup_.model,
                    TensorParallelOptions{.group = groups.tensor,
                                          .plan = tensor_plan_of_run(*setup_.model, groups),
                                          .sequence_parallel = setup_.config.parallel.sequence_parallel,
                                          .overlap_products = setup_.config.parallel.tp_comm_overlap,
                                          .fill = [&](const std::string& name, const at::Tensor& parameter) {
                                            models::fill_parameter(name, parameter, weights);
                                          }});
    models::fill_parameters(*setup_.model, weights);  // what is not cut
    setup_.weights.reset();
  }
  check_same_quantized(*setup_.model, groups.engine);
  if (groups.context_ranks() > 1) setup_.model->set_attention(context_attention_function(groups.context));
  ShardingOptions options = sharding_options(setup_.config, *setup_.model, groups.engine);
  if (groups.stages && groups.stages.size() > 1) options.stages = groups.stages;
  if (setup_.pipeline) {
    // In fixed order every backward is reduced, and it is one of several stages.
    if (setup_.config.parallel.deterministic_reduce && setup_.pipeline->parts_of(groups.pipeline.rank()).size() > 1)
      options.find_unused_parameters = true;
    const std::string tied = setup_.model->tied_parameter();
    const auto& rank_of = setup_.pipeline->schedule.rank_of;
    if (!tied.empty() && groups.pipeline.rank() == rank_of.back() && rank_of.front() != rank_of.back())
      options.held_by_earlier_stage = {tied};
  }
  if (groups.beside && groups.beside.size() > 1)
    options.shared_beyond = {groups.beside,
                             [model = setup_.model](const std::string& name) { return !model->expert_of(name); },
                             groups.apart};
  if (groups.beside && groups.beside.rank() > 0) {
    options.held_by_earlier_stage.clear();
    for (const auto& item : setup_.model->named_parameters())
      if (!setup_.model->expert_of(item.key())) options.held_by_earlier_stage.push_back(item.key());
  }
  if (small_ && groups.gradients.size() > 1)
    options.before_reduction = [this](const at::Tensor& flat) {
      const double norm = flat.norm().item<double>();
      small_->add_squares(norm * norm);
    };
  bool filled = false;            // a model that is not divided after all is not asked for
  std::exception_ptr unreadable;  // told when all ranks are through with the collectives of dividing
  if (setup_.weights)
    options.load = [&](const std::string& name, at::IntArrayRef, std::int64_t begin, at::Tensor piece) {
      filled = true;
      if (unreadable) return true;
      try {
        return setup_.weights->read(name, begin, piece);
      } catch (...) {
        unreadable = std::current_exception();
        return true;
      }
    };
  sharded_ = &core_.divide(setup_.model, std::move(options), make_loss_scale(setup_.config.optimization));
  if (unreadable) std::rethrow_exception(unreadable);
  if (setup_.weights && !filled)
    for (const auto& item : setup_.model->named_parameters())
      setup_.weights->read(item.key(), 0, item.value().detach());
  setup_.weights.reset();
  if (setup_.pipeline) {
    pipeline_.emplace(*setup_.pipeline, setup_.config, groups, *setup_.model, *sharded_,
                      [this](bool forward) { enter(forward ? Phase::forward : Phase::backward); });
    for (const RunPlan::Segment& segment : plan_.segments) pipeline_->prepare_for(plan_.micro_batches(segment.step));
  }
  if (setup_.config.optimization.gradient_checkpointing)
    checkpointing_ = models::checkpoint_blocks(
        *setup_.model, config::parse_checkpoint_plan(setup_.config.optimization.gradient_checkpointing_kwargs));
  routing_ = route_blocks(*setup_.model, setup_.config.optimization, models::part_runner_of(checkpointing_));
  if (routing_) routing_->set_step(step_);
}

ExitCode TrainingLoop::run() {
  open_output();
  for (const std::string& line : describe_start(setup_, world_)) journal_.note(line);
  for (const std::string& line :
       describe_sharding(setup_.config, *setup_.model, *sharded_, setup_.groups.engine.rank()))
    journal_.note(line);
  if (setup_.groups.expert_ranks() > 1)
    journal_.note(concat("experts: ", layout::describe(setup_.groups.mesh, layout::View::expert)));
  if (setup_.groups.cuts())
    journal_.note(concat("mesh: ", layout::describe(setup_.groups.mesh),
                         setup_.config.parallel.sequence_parallel ? ", sequence parallel" : ""));
  if (pipeline_) journal_.note(concat("pipeline: ", describe(pipeline_->plan())));
  if (!core_.moves_betas())
    journal_.note(concat("one_cycle: --optim ", setup_.config.optimization.optim,
                         " has no betas, so only the learning rate is cycled"));
  if (routing_)
    for (const std::string& line : routing_->describe()) journal_.note(line);
  predict_memory();
  if (preferences_)
    if (const std::string said =
            preferences_->measure_reference(setup_, sampler_, plan_.samples(step_), plan_.samples(plan_.total_steps));
        !said.empty())
      journal_.note(said);
  prepare_measuring();
  totals_.startup_seconds = seconds_since_process_start();
  if (setup_.config.output.profile) {
    trace_zero_ns_ = common_zero(world_.group(), world_.local_size() == world_.size());
    trace_.emplace();
  }
  started_ns_ = monotonic_ns();
  setup_.model->train();

  if (setup_.config.output.eval_on_start && setup_.datasets.validation) evaluate();
  while (step_ < plan_.total_steps) {
    const std::int64_t begin_ns = monotonic_ns();
    const double begin_cpu = process_cpu_seconds();
    enter(Phase::data);
    const std::vector<data::Batch> batches = read_step();
    const Agreement agreed = agree_on_step(batches);
    if (agreed.save_ended) checkpoints_.advance();
    if (agreed.stop != StopRequest::none) return finish(agreed.stop);

    window_.begin_step(agreed.counts);
    const PhaseSeconds before = clock_.booked();
    compute_gradients(batches, agreed.counts);
    enter(Phase::optimizer, "clip");
    if (balance_)
      balance_->computed(at(clock_.booked(), Phase::forward) + at(clock_.booked(), Phase::backward) -
                         at(before, Phase::forward) - at(before, Phase::backward));
    step_routers_ = setup_.model->take_router_statistics();
    if (!update_weights())
      skipped_steps_ += 1;
    else
      update_router_biases(*setup_.model, *sharded_, step_routers_, setup_.config.optimization.router_bias_update_rate,
                           setup_.groups);
    ++step_;
    if (setup_.compression) setup_.compression->set_step(step_);
    if (routing_) routing_->set_step(step_);
    enter(Phase::other);
    if (replicas_are_checked() && step_ % setup_.config.output.check_replicas_steps == 0) check_replicas();
    count_step(static_cast<double>(monotonic_ns() - begin_ns) * 1e-9, process_cpu_seconds() - begin_cpu);

    if (plan_.logs_after(step_)) log();
    const bool best = plan_.evaluates_after(step_) && evaluate();
    if (plan_.saves_after(step_) || (best && setup_.config.output.save_strategy == SaveStrategy::best))
      save();
    else if (checkpoints_.has_memory() && step_ % setup_.config.output.checkpoint_in_memory == 0)
      save_in_memory();
  }
  return finish(StopRequest::none);
}

/// What every rank of tp holds whole (norms, positions, biases of rows), gathered from shards. Collective.
std::vector<parallel::NamedTensor> TrainingLoop::whole_on_tensor_ranks() const {
  std::set<std::string> parts;
  for (const TensorParallelParameter& part : tensor_->parameters()) parts.insert(part.name);
  std::vector<parallel::NamedTensor> whole;
  for (const ShardedParameter& p : sharded_->named_parameters())
    if (!parts.contains(p.name)) whole.push_back({p.name, sharded_->gather_like(p, p.local.detach())});
  return whole;
}

bool TrainingLoop::replicas_are_checked() const {
  return setup_.config.output.check_replicas_steps > 0 && world_.size() > 1;
}

/// Ranks that should hold the same parameters compare them now and then: a flipped bit, or an update that is not the
/// same everywhere, is found here and not in a model that does not learn. Before every save as well, so that a restart
/// never goes on from what is wrong. Collective.
void TrainingLoop::check_replicas() {
  if (!replicas_are_checked() || step_ == equal_at_) return;
  enter(Phase::other, "check replicas");
  // Groups that find nothing wait here for those that do: the second comparison has other groups.
  const auto compare = [&](const auto& check) {
    agree(world_.group(), [&] {
      try {
        check();
      } catch (const parallel::ReplicasDiffer& error) {
        throw Error(concat("after step ", step_, ": ", error.what(), ". They were equal after step ", equal_at_,
                           ", and every checkpoint of this run was compared before it was written: go on from the ",
                           "newest (--resume_from_checkpoint last)"));
      }
    });
  };
  compare([&] { sharded_->check_replicas(); });
  if (tensor_)
    compare([&] { parallel::require_same_bits(setup_.groups.tensor, whole_on_tensor_ranks(), "parameter"); });
  equal_at_ = step_;
  enter(Phase::other);
}

/// What follows is booked on `phase`; `name` is what people see of it.
void TrainingLoop::enter(Phase phase, std::string_view name) {
  clock_.enter(phase);
  if (trace_) trace_->phase(phase == Phase::other && name == "other" ? "" : name);
  comm::life().set_phase(name);
}

/// The yardsticks: what the processors can do, what frequencies alone predict, what a pretrained model said before.
void TrainingLoop::prepare_measuring() {
  const comm::LongPhase phase("measuring");
  const comm::Tag tag("start");
  at::Tensor peak = at::full({1}, measured_peak_flops(world_.device(), setup_.config.optimization.bf16),
                             at::TensorOptions().dtype(at::kDouble).device(world_.device()));
  world_.group().all_reduce(peak).wait();
  peak_flops_ = peak.item<double>();
  if (output_) totals_.unigram_entropy = unigram_entropy(*setup_.rows_to_show(), setup_.model->vocab_size());
  if ((output_ || divided()) && !setup_.config.model.model_name_or_path.empty() && !setup_.resume)
    first_sample_ = sample_text(setup_);
  world_.group().barrier().wait();  // the others wait here, where it is not counted as communication of a step
}

/// The end of the loop, whatever led to it.
ExitCode TrainingLoop::finish(StopRequest stop) {
  const comm::LongPhase phase("finishing");
  if (window_.steps() > 0)
    log(setup_.config.output.logging_strategy != Interval::no);  // an early stop between two logs
  checkpoints_.finish();
  if (stop == StopRequest::terminate && checkpoints_.saved_step() != step_) {
    save();
    checkpoints_.finish();
    if (checkpoints_.saved_step() != step_ && world_.rank() != 0) throw FailedElsewhere(ExitCode::failed);
    if (checkpoints_.saved_step() != step_)
      throw Error(concat("step ", step_, " could not be saved before the run stopped, as it was asked to"));
  }
  if (stop == StopRequest::terminate && time_is_over())
    journal_.note(concat("--exit_duration_in_mins ", format_real(setup_.config.optimization.exit_duration_in_mins),
                         ": saved and stopped after step ", step_, " of ", plan_.total_steps,
                         "; go on with --resume_from_checkpoint last"));
  enter(Phase::other);
  if (trace_) {
    trace_->collect();
    const std::string file = merge_traces(*trace_, trace_zero_ns_, world_.group());
    if (output_) {
      output_->files().add({"trace.json"});
      write_file_atomically(output_->path("trace.json"), file);
      journal_.note(concat("timeline: ", output_->path("trace.json"), " (open it in ui.perfetto.dev)"));
    }
  }
  if (stop == StopRequest::none) {
    check_replicas();
    load_best_model();
  }
  if (pipeline_) pipeline_drawing_ = pipeline_->drawing();
  count_totals(stop);
  journal_.ended(totals_);
  if (stop == StopRequest::none) save_final_model();
  if (output_) {
    if (stop == StopRequest::none) journal_.sampled(step_, last_sample_.prompt, last_sample_.text);
    const comm::LongPhase papers("model card and report");
    if (stop == StopRequest::none && setup_.config.output.model_card)
      output_->write_cards(card_facts(setup_, world_, configuration_, totals_, journal_.log_history()));
    write_report();
    output_->finish_report();
    journal_.close();
    if (stop == StopRequest::none) unmark_output(setup_.config.output.output_dir);
    if (!describe_strategy(setup_.config, *sharded_).empty() && !last_log_.memory_kinds.empty())
      journal_.note("memory of rank 0: " +
                    compare_memory(predicted_memory_[0], to_json(last_log_.memory_kinds.front())));
    for (const std::string& line :
         describe_end(setup_, totals_, first_sample_, last_sample_, output_->path("report.html")))
      journal_.note(line);
  }
  if (stop == StopRequest::none) return ExitCode::done;
  if (stop == StopRequest::interrupt) return ExitCode::interrupted;
  return setup_.config.output.sigterm_is_success ? ExitCode::done : ExitCode::stopped;
}

}  // namespace tessera::train
