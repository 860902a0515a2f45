#!/bin/bash
# Prints docs/configuration.md, or docs/configuration_keys.md, from the program itself, so that the pages cannot drift
# from its tables.
#   tools/docs_configuration.sh BUILD > docs/configuration.md        (tests/scripts/docs_configuration.sh compares them)
#   tools/docs_configuration.sh BUILD keys > docs/configuration_keys.md
set -euo pipefail
build=$1
if [ "${2:-}" = keys ]; then
  cat <<'MD'
# Every key of every format

*Made by `tools/docs_configuration.sh build keys` from the front ends' tables (`tessera config docs`); edit those
instead.*

After this page you know what any key of your file does here. A key **acts**: it becomes the named setting, explained in
[configuration.md](configuration.md). Or it is **accepted and ignored** for the stated reason; a warning gives it if the
key asks for something. Or it is **refused**: an error with the reason and the remedy. Any other key is an error with
the nearest known name. `tessera config check FILE...` reports on a file.
MD
  "$build/tessera" config docs
  exit
fi
cat <<'MD'
# Configuration

*Made by `tools/docs_configuration.sh build`; edit `tessera/config/core/fields.cpp` instead.*

After this page you can set anything by flag, environment or file, and know which source wins. Every setting is one row
of the table in `tessera/config/core/fields.cpp`; flags, `--help`, `--print_config` and this page come from it.
- `--x_y V`, `--x-y V` and `--x_y=V` are the same; a boolean is `--x`, `--x false` or `--no_x`.
- Files of other systems work unchanged: accelerate's YAML (`--config_file`), DeepSpeed's JSON (`--deepspeed`),
  TrainingArguments (a `.json`, `.yaml` or `.args` file as the only argument without a flag), Megatron-LM's arguments
  (as flags, or `MODEL_ARGS` in a `.yaml` of its tests), fsdp_config (`--fsdp_config`), and our own (`--config`).
  [configuration_keys.md](configuration_keys.md) lists every key of every format.
- Precedence: default < our file < TrainingArguments' file < environment of `accelerate launch` < flag. DeepSpeed's and
  accelerate's files must agree with explicit values elsewhere (except that DeepSpeed's schedule wins, as under
  transformers, and `num_processes` of accelerate's file yields, with a warning). Of a flag or key given twice the last
  one counts, with a note. All problems are reported together.
- `tessera train --num_processes N` reads flags and files once for all its ranks. Under other launchers each rank reads
  them, and the ranks compare the results.
- `--print_config` prints every value with its origin (`default`, the flag as typed, `fsdp.json:3`, `environment NAME`,
  `derived (why)`) and exits.
- Unknown flags are errors with the nearest known name. An unambiguous prefix of an argument of TrainingArguments, TRL
  or run_clm.py is accepted with a warning, as in argparse; `--unknown warn` skips flags that can hardly concern the
  training (`--my_tag`). Keys that DeepSpeed or accelerate ignore get a warning, with `--strict` (`--unknown refuse`) an
  error. Words of other programs (LLaMA-Factory, axolotl, ms-swift, GPT-NeoX, torchtune) are answered in one line.
- Exit codes: 0 done, 1 failed while running, 2 bad configuration or input (nothing was written), 3 stopped after saving
  (SIGTERM, `--exit_duration_in_mins`), 130 interrupted.

## Sharding
`--fsdp`, `--zero_stage`, `--strategy` and the file of `--fsdp_config` are four ways to name a strategy. They must
agree; contradictions are listed together.

| strategy | shards optimizer states | gradients | parameters | other names |
|---|---|---|---|---|
| `ddp` | - | - | - | default; `--fsdp no_shard`, `--zero_stage 0`, `NO_SHARD`, 3 |
| `zero1` | x | after accumulating | - | `--zero_stage 1` |
| `zero2` | x | x | - | `--zero_stage 2` |
| `shard_grad_op` | x | x | between steps | `--fsdp shard_grad_op`, `SHARD_GRAD_OP`, 2 |
| `full_shard` = `zero3` | x | x | x | `--fsdp full_shard`, `--zero_stage 3`, `FULL_SHARD`, 1 |
| `hybrid_shard` | x | x | x | within groups (of a host, or `--shard_group_size`), copies across; `HYBRID_SHARD`, 4 |
| `hybrid_shard_zero2` | x | x | between steps | the same; `HYBRID_SHARD_ZERO2`, 5 |

`--fsdp_config FILE` is JSON or YAML with Hugging Face's or accelerate's keys, with or without `fsdp_`; accelerate's
whole file works, too. `transformer_layer_cls_to_wrap` takes Hugging Face's class names; at least one must occur in the
model, and a warning names the others. `backward_prefetch_policy`, `wrap_policy` and `min_num_param` act;
`reshard_after_forward: SHARD_GRAD_OP` names the strategy, an integer the size of the groups; `LOCAL_STATE_DICT` is
written as sharded; `use_orig_params` has no effect; `xla: true` compiles the step ([TPUs](tpu.md)). Blocks are wrapped
without `auto_wrap`, too; `auto_wrap_policy: NO_WRAP` prevents it.

## The mesh
The processes of a run are a grid `pp x dp_replicate x dp_shard x cp x tp`, the last varying fastest. `--pp_size`,
`--tp_size` and `--cp_size` set three sizes; the remaining processes are data-parallel, and the strategy decides which
of them share shards. Batch sizes, `"auto"` and accumulation count data-parallel processes: processes / (pp x tp x cp).
`--shard_group_size` counts processes of dp_shard x cp. A mesh that does not fit is refused with the rule, the numbers
and the nearest choices. [parallelism.md](parallelism.md) explains the axes; `tessera train` runs them all, the
[faces](faces.md) support `tp_size` and `sequence_parallel` and refuse the others above 1.

With `--pp_size` above 1 the `gradient_accumulation_steps` micro-batches of a step follow `--pipeline_schedule`, a name
of [pipelines.md](pipelines.md)'s table or a file. An impossible or wrong schedule is refused before anything starts.
`--pipeline_layout` assigns blocks to stages (`E` embeddings, `t` a block, `a` and `f` its attention and its MLP, `m` a
depth of multi-token prediction, `L` the end, `|` the next stage, `*N` or `xN` repeats a letter or bracket), or is
`flops` or `half_blocks`. Every `m` belongs in the last stage, before `L`; Megatron-LM's `m|L` becomes `|mL`, with a
note.

| ours | TrainingArguments | accelerate | DeepSpeed | Megatron-LM |
|---|---|---|---|---|
| `pp_size` | - | `megatron_lm_pp_degree` | `pipeline.stages` | `--pipeline-model-parallel-size` |
| `gradient_accumulation_steps` (of a pipeline) | the same | `megatron_lm_num_micro_batches` | the same | `--global-batch-size` / (micro-batch x data-parallel processes) |
| `pipeline_schedule` | - | - | - | `interleaved_1f1b` with several stages per process, else `1f1b` |
| `pipeline_stages_per_rank` | - | - | - | `--num-virtual-stages-per-pipeline-rank`, or by `--num-layers-per-virtual-pipeline-stage` or the layout |
| `pipeline_group_size` | - | - | - | `--microbatch-group-size-per-virtual-pipeline-stage` |
| `pipeline_layout` | - | - | - | `--pipeline-model-parallel-layout`, `--account-for-*-in-pipeline-split` |
| `tp_size` | `tp_size`, `parallelism_config.tp_size` | `parallelism_config_tp_size`, `megatron_lm_tp_degree` | `tensor_parallel.autotp_size` | `--tensor-model-parallel-size` |
| `cp_size` | `parallelism_config.cp_size` | `parallelism_config_cp_size`, `megatron_lm_context_parallel_size` | - | `--context-parallel-size` |
| `cp_size` with `cp_comm_type a2a` | `parallelism_config.sp_size` | `parallelism_config_sp_size` | `sequence_parallel_size` | `--cp-comm-type a2a` |
| `cp_comm_type` `p2p`, `all_gather` | `cp_handler`: `alltoall`, `allgather` | `cp_comm_strategy`: `alltoall`, `allgather` | - | `--cp-comm-type` |
| `cp_a2a_size` | - | - | - | first of `--hierarchical-context-parallel-sizes` |
| `sequence_parallel` | - | `megatron_lm_sequence_parallelism` | - | `--sequence-parallel` |
| `strategy`, `shard_group_size` | `parallelism_config.dp_*_size` | `parallelism_config_dp_*_size` | - | - |

PyTorch's context parallelism calls the ring `alltoall`, after the operation it uses.

## Optimizers and rates
`--optim_args` sets what an optimizer takes beyond the flags. `muon` (Jordan et al. 2024) orthogonalises the update of
every matrix of the blocks by torch.optim.Muon's formula: `momentum` 0.95, `nesterov` true, `ns_steps` 5,
`ns_coefficients` `simple` or `quintic`, `scale_mode` `shape_scaling` (sqrt(max(1, rows / columns)), torch's
`original`), `spectral` (sqrt(max(rows, columns)); with `extra_scale_factor` 0.2 torch's `match_rms_adamw`) or
`unit_rms_norm` (sqrt(rows / columns)). Embeddings, head, biases and norms use AdamW with the same rate. It iterates in
the weights' precision (torch: bfloat16), under every strategy, pipelines, context and expert parallelism; `--tp_size`
above 1 is refused.

`rmsprop` is torch.optim.RMSprop: `alpha` 0.99, `eps` 1e-8, `momentum` 0 and `centered` false in `--optim_args`.
bitsandbytes' 32-bit names (`paged_adamw_32bit`, `paged_lion_32bit`, `rmsprop_bnb`) mean adamw, lion and rmsprop.
`adamw_8bit` (`adamw_bnb_8bit`, `paged_adamw_8bit`) and `lion_8bit` (`paged_lion_8bit`) keep
[moments in 8 bits](precision.md#optimizer-states-in-few-bits). Refused: 8-bit RMSprop and AdEMAMix, GaLore, torchao's,
and 4 bits.

`--decoupled_lr` is the peak rate of word embeddings and head, `--decoupled_min_lr` the minimum, of the same schedule; 0
freezes them. The log shows the rate of all others.

## Differences from Hugging Face and DeepSpeed
- DeepSpeed's file without `gradient_clipping` clips nothing; DeepSpeed itself clips at 1.0 since version 0.19.3. A
  warning says so, unless the file or `--max_grad_norm` sets it.
- The printed loss is the mean over scored positions. Hugging Face's Trainer divides by all labels, including the
  shifted-away one, and prints (T-1)/T of it.
- Text is one stream cut into blocks; `run_clm.py` drops a remainder per 1000 lines. Without `--validation_file` the
  *last* blocks are held out.
- `eval_steps` alone evaluates nothing, as there: add `--eval_strategy steps`.
- A name that only TRL has (`use_peft`, `dataset_text_field`, `packing_strategy`, ...) brings TRL's defaults for unset
  values: learning rate 2e-5, bf16, gradient checkpointing, every message scored, 1024 tokens; a warning lists them.
  `beta`, `loss_type`, `rpo_alpha` and `simpo_gamma` bring its DPOTrainer's: `--preference_loss sigmoid`, learning rate
  1e-6, `--disable_dropout`. Likewise `use_lora` of Qwen and `lora_enable` of LLaVA for the rank of their adapters.
  `q_lora` (FastChat) and `bits 4` (LLaVA) mean `--load_in_4bit` with double quantization.
- Epochs are one continuous stream of samples; a step may straddle two of them.
- `--tokenizer_name byte` needs no file: ids 0-255 are bytes, 256 is `<|endoftext|>`.

## Other projects' files
`tools/real_configs.py FOLDER build/tessera` reads configurations in checkouts of other projects, counts how many are
accepted, and compares their meaning with a reading of its own (learning rate, betas, decay, batch, accumulation, ZeRO
stage, clipping, precision, warm-up, processes, mesh). With snapshots of accelerate, DeepSpeed, DeepSpeedExamples,
Megatron-LM, TRL, alignment-handbook, FastChat, Stanford Alpaca, LLaVA, Qwen and LLaMA-Factory (2026-11-28):

| what | number | accepted | asks for what is not built | otherwise refused |
|---|---|---|---|---|
| DeepSpeed's JSON | 124 | 121 | 3 | 0 |
| accelerate's YAML | 56 | 54 | 2 | 0 |
| TRL's recipes | 25 | 25 | 0 | 0 |
| Megatron-LM's functional tests of pretrain_gpt.py | 220 | 217 | 3 | 0 |
| command lines | 43 | 38 | 3 | 2 |

No accepted file of DeepSpeed, accelerate and Megatron-LM differed in meaning. 15 of DeepSpeed's name OneBitAdam,
OneBitLamb or ZeroOneAdam: a warning explains the difference (gradients are compressed, not momenta). Of 853 files and
command lines of 153 other projects (2026-11-30), 93.5 % of those that ask only for what is built were accepted: 189 of
190 of DeepSpeed, all 151 of accelerate, 46 of 52 recipes, 86 of 113 command lines.

## tessera train
```text
MD
"$build/tessera" train --help
cat <<'MD'
```

## Environment
| variable | meaning |
|---|---|
| `RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT` | set by `tessera launch`, torchrun; `OMPI_COMM_WORLD_*` (mpirun) and `SLURM_*` (srun) are understood too |
| `TESSERA_BACKEND` | the transport when `--backend` is auto |
| `TESSERA_TRANSPORT` | `libtessera_c.so` and the Python modules: the transport when a program asks for auto: shm, tcp, mpi |
| `TESSERA_MPI_LIBRARY TESSERA_MPI_COLLECTIVES` | `--backend mpi`: the library's file, or our shim for it; who reduces: library, messages ([communication](communication.md)) |
| `TESSERA_HOST_ID` | the host of this rank (tests simulate several hosts on one machine) |
| `TESSERA_BOARD_FD TESSERA_STORE TESSERA_SECRET_FD TESSERA_CONFIG_FD TESSERA_GENERATION TESSERA_JOB` | from our agent to its ranks ([launching](launching.md)); nothing to set by hand |
| `TESSERA_SSH` | the ssh program of `tessera launch --hostfile` |
| `TESSERA_LOG` | debug, info, warning, error |
| `TESSERA_ISA` | lowers the instruction set of the CPU kernels: baseline, avx2, avx512; on ARM baseline, neon |
| `OMP_NUM_THREADS`, `OMP_WAIT_POLICY` | threads per rank when `--threads_per_process` is not given; how OpenMP waits (kept if set) |

## tessera launch
```text
MD
"$build/tessera" launch --help
cat <<'MD'
```

## tessera config
```text
MD
"$build/tessera" config --help
echo '```'
