"""Write two small tasks for lm-evaluation-harness, of texts that scikit-learn ships.

    python scripts/evaluation_tasks.py FOLDER
    lm_eval --include_path FOLDER --tasks next_sentence,descriptions --model ...

`next_sentence` asks which of four sentences follows another one; `descriptions` measures how likely
paragraphs are. Both are made of the descriptions of data sets (sklearn/datasets/descr), so that no
hub is needed. Runs with the harness's Python, which has scikit-learn.
"""

import itertools
import json
import random
import re
import sys
from pathlib import Path

import sklearn

SENTENCE = re.compile(r"[A-Z][^.:`*|_=]{40,160}\. ")
MOST_PARAGRAPHS = 12

NEXT_SENTENCE = """
task: next_sentence
output_type: multiple_choice
doc_to_text: "{{said}}"
doc_to_choice: "{{choices}}"
doc_to_target: label
target_delimiter: " "
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
"""
DESCRIPTIONS = """
task: descriptions
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - {metric: bits_per_byte}
  - {metric: word_perplexity}
"""
DATA = """
dataset_path: json
dataset_kwargs: {{data_files: {{test: {path}}}}}
test_split: test
metadata: {{version: 1.0}}
"""


def paragraphs() -> list[str]:
    """Return the paragraphs of several sentences, in order of the files' names."""
    folder = Path(sklearn.__file__).parent / "datasets" / "descr"
    texts = [file.read_text("utf-8") for file in sorted(folder.glob("*.rst"))]
    found = [" ".join(part.split()) for text in texts for part in text.split("\n\n")]
    return [one for one in found if len(SENTENCE.findall(one + " ")) >= 2]


def questions(texts: list[str]) -> list[dict[str, object]]:
    """Return a question for each sentence that another one follows."""
    sentences = [[one.strip() for one in SENTENCE.findall(text + " ")] for text in texts]
    pairs = [(said, after) for one in sentences for said, after in itertools.pairwise(one)]
    drawn = random.Random(0)
    found = []
    for said, after in pairs:
        others = [other for _, other in pairs if other not in {said, after}]
        choices = [after, *drawn.sample(others, 3)]
        drawn.shuffle(choices)
        found.append({"said": said, "choices": choices, "label": choices.index(after)})
    return found


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    texts = paragraphs()
    tasks = {
        "next_sentence": (NEXT_SENTENCE, questions(texts)),
        "descriptions": (DESCRIPTIONS, [{"text": text} for text in texts[:MOST_PARAGRAPHS]]),
    }
    for name, (task, items) in tasks.items():
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(item) + "\n" for item in items), "utf-8")
        (folder / f"{name}.yaml").write_text(task.lstrip() + DATA.format(path=data).lstrip())
        print(f"{name}: {len(items)} items")


if __name__ == "__main__":
    main()
