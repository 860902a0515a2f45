"""Prints the file that transformers writes for default TrainingArguments: every argument with its default.

    python tests/parity/training_args_defaults.py > tests/fixtures/training_args/defaults.json        (transformers
    5.23)
"""

from transformers import TrainingArguments

print(TrainingArguments(output_dir="out").to_json_string())
