"""Rows on disk: they survive a restart, and a damaged file costs a prefill and nothing else."""

import dataclasses
import hashlib
import json
import os
import shutil
import signal
import stat
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import mlx.core as mx
import numpy as np
import pytest
from family_models import NAMES, build_family
from inside import session_of
from kept_worker import Worker
from pairwise import each_value
from programs import python
from tiny_families import VOCABULARY
from tiny_models import prompt_of
from toy_engine import PLAIN, toy_engine
from turns import run

from akunu_py.models.load_steps import finish
from akunu_py.models.row_file import write_arrays
from akunu_py.models.session import Session
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.server import disk_tier
from akunu_py.server.disk_tier import DiskTier
from akunu_py.server.prefix_cache import PrefixCache
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig

TEXT = "a cat and a dog, a cat and a bird. " * 2
OPTIONS = {"max_tokens": 8, "drafter": "none", "logit_bias": PLAIN}


@pytest.fixture(scope="module")
def engine():
    with toy_engine() as engine:
        yield engine


def tier_of(engine, folder, limit=1 << 28):
    return DiskTier(folder, limit, finish(session_of(engine).digest()))


def replies(engine, folder, *prompts, **options):
    """Answer prompts with a server of their own; return tokens and numbers of cached tokens."""
    worker = Worker(engine, cache=PrefixCache(1 << 28, tier_of(engine, folder, **options)))
    found = []
    for prompt in prompts:
        job = worker.submit(engine.check(prompt, **OPTIONS))
        run(worker)
        started, *_, last = list(job.events)
        found.append((last.result.token_ids, started.num_cached_tokens))
    worker.close()
    return found


def test_rows_are_written_beside_the_next_reply(engine, tmp_path, monkeypatch):
    """As an agent's turns come without a pause. Nobody waits for the disk."""
    go_on = threading.Event()

    def slowly(path, arrays):
        assert go_on.wait(60)
        write_arrays(path, arrays)

    monkeypatch.setattr(disk_tier, "write_arrays", slowly)
    tier = tier_of(engine, tmp_path)
    worker = Worker(engine, cache=PrefixCache(1 << 28, tier, rest_s=0))
    worker.start()
    list(worker.submit(engine.check(engine.prompt_ids(TEXT), **OPTIONS)).events)
    # The same rows are read on while they are written.
    *_, last = worker.submit(engine.check(engine.prompt_ids(TEXT + "more"), **OPTIONS)).events
    assert not files(tmp_path, "json")
    go_on.set()
    worker.close()
    monkeypatch.undo()
    assert last.result.token_ids == engine.generate(TEXT + "more", **OPTIONS).token_ids
    found = [tier.load(stored, session_of(engine)) for _, stored in list(tier.nearest(()))]
    assert found
    assert all(rows is not None for rows in found)


def test_rows_are_written_when_there_is_nothing_else_to_do(engine, tmp_path):
    cache = PrefixCache(1 << 28, tier_of(engine, tmp_path), rest_s=0.01)
    worker = Worker(engine, cache=cache)
    worker.start()
    list(worker.submit(engine.check(engine.prompt_ids(TEXT), **OPTIONS)).events)
    while not files(tmp_path, "json"):
        time.sleep(0.01)
    worker.close()
    assert len(files(tmp_path, "json")) == 1


def files(folder, suffix):
    return sorted(folder.glob(f"rows-*/*.{suffix}"))


@pytest.mark.parametrize(
    "name", ["llama", "llama, sliding", "llama, windows with sinks", "qwen3_next", "llama4_text"]
)
def test_a_conversation_goes_on_after_a_restart(tmp_path, name):
    with toy_engine(name) as engine, toy_engine(name) as cold:
        prompt = engine.prompt_ids(TEXT)
        ((tokens, cached),) = replies(engine, tmp_path, prompt)
        assert cached == 0
        later = [*prompt, *tokens, *engine.prompt_ids("and then?")[1:]]
        ((found, cached),) = replies(engine, tmp_path, later)
        assert cached >= len(prompt) + len(tokens) - 1
        assert found == cold.generate(later, **OPTIONS).token_ids
        # The longer rows replaced the shorter ones.
        assert len(files(tmp_path, "json")) == len(files(tmp_path, "safetensors")) == 1


def test_texts_on_disk_give_their_ids_to_prompts(engine, tmp_path):
    """With the reply's last token, which has no row; and once, where memory has the text, too."""
    worker = Worker(engine, cache=PrefixCache(1 << 28, tier_of(engine, tmp_path)))
    prompt = engine.prompt_ids(TEXT)
    job = worker.submit(engine.check(prompt, **OPTIONS))
    run(worker)
    worker.models.default.resident.store()
    text = (*prompt, *job.reply)
    assert len(files(tmp_path, "json")) == 1
    assert list(map(tuple, worker.cache.nearest(prompt, ()))) == [text]
    worker.close()
    restarted = PrefixCache(1 << 28, tier_of(engine, tmp_path))
    assert list(restarted.nearest(prompt, ())) == [text]


def test_caches_that_cannot_be_checked_stay_in_memory(tmp_path):
    with toy_engine("deepseek_v41") as engine:
        replies(engine, tmp_path, engine.prompt_ids(TEXT))
        assert not list(tmp_path.glob("rows-*/*"))


@pytest.mark.parametrize(
    "options",
    [
        {"kv_bits": 8},
        {"reproducible": True},
    ],
)  # fmt: skip
def test_rows_of_other_kinds(tmp_path, options):
    name = "llama, 8-bit caches" if "kv_bits" in options else "llama"
    with toy_engine(name, **options) as engine:
        prompt = engine.prompt_ids(TEXT)
        ((tokens, _),) = replies(engine, tmp_path, prompt)
        later = [*prompt, *tokens, *engine.prompt_ids("and then?")[1:]]
        ((_, cached),) = replies(engine, tmp_path, later)
        assert cached >= len(prompt) - 8


def test_files_are_private_and_named_after_the_model(engine, tmp_path):
    replies(engine, tmp_path, engine.prompt_ids(TEXT))
    (folder,) = tmp_path.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600] * 2
    assert finish(session_of(engine).digest()) in folder.name


def test_other_weights_and_settings_have_other_names(engine):
    with toy_engine("llama, sliding") as other, toy_engine(reproducible=True) as aligned:
        names = {finish(session_of(one).digest()) for one in (engine, other, aligned)}
    with toy_engine() as again:
        assert len(names | {finish(session_of(again).digest())}) == 3
    model = build_family("llama, 8-bit caches")
    quantized = [Session(model, context=64, kv_bits=bits) for bits in (None, 4, 8)]
    assert len({finish(one.digest()) for one in quantized}) == 3


@pytest.mark.parametrize("name", ["llama", "plamo2"])
def test_other_arguments_with_the_same_weights_have_other_names(name):
    """Rows depend on them, too; some classes call them `config`."""
    arguments = "args" if name == "llama" else "config"
    with toy_engine(name) as engine:
        model = session_of(engine).rows.model
        before, given = finish(session_of(engine).digest()), getattr(model, arguments)
        try:
            setattr(model, arguments, dataclasses.replace(given, rms_norm_eps=0.1))
            assert finish(session_of(engine).digest()) != before
        finally:
            setattr(model, arguments, given)


def rewritten(folder, change):
    """Change the description, and write it with checksums that are right."""
    (path,), (data,) = files(folder, "json"), files(folder, "safetensors")
    found = json.loads(path.read_bytes().partition(b"\n")[2])
    change(found, data)
    found["sha256"] = hashlib.sha256(data.read_bytes()).hexdigest()
    found["bytes"] = data.stat().st_size
    body = json.dumps(found).encode()
    head = {"version": 2, "sha256": hashlib.sha256(body).hexdigest()}
    path.write_bytes(json.dumps(head).encode() + b"\n" + body)


def first_fields(found):
    return found["layout"]["caches"][0]["fields"]


def arrays(change, **more):
    """Write each array as a function of its name and itself makes it, and more of them."""

    def changed(found, data):
        held = mx.load(str(data)).items()
        mx.save_safetensors(str(data), {name: change(name, array) for name, array in held} | more)

    return changed


def lying_header(found, data):
    content = bytearray(data.read_bytes())
    content[:8] = (1 << 40).to_bytes(8, "little")
    data.write_bytes(content)


FORGERIES = {
    "offset": lambda found, _: first_fields(found).update(offset=3),
    "negative": lambda found, _: first_fields(found).update(offset=-1),
    "flag": lambda found, _: first_fields(found).update(offset=True),
    "offset as text": lambda found, _: first_fields(found).update(offset="9"),
    "no field": lambda found, _: first_fields(found).pop("offset"),
    "list for a number": lambda found, _: first_fields(found).update(step=[]),
    "new field": lambda found, _: first_fields(found).update(step=1),
    "kind": lambda found, _: found["layout"]["caches"][0].update(kind="KVCach"),
    "fewer caches": lambda found, _: found["layout"]["caches"].pop(),
    "no keys": lambda found, _: first_fields(found).update(keys=None),
    "list for array": lambda found, _: first_fields(found).update(keys=[]),
    "no description": lambda found, _: found["layout"]["caches"].__setitem__(0, None),
    "layout": lambda found, _: found.update(layout=3),
    "deep": lambda found, _: found["layout"].update(caches=[[]] * 4),
    "marks": lambda found, _: found["layout"].update(marks=3),
    "no marks": lambda found, _: found["layout"].pop("marks"),
    "more tokens": lambda found, _: found["tokens"].append(9),
    "negative token": lambda found, _: found["tokens"].append(-9),
    "token as text": lambda found, _: found["tokens"].append("9"),
    "no tokens": lambda found, _: found.pop("tokens"),
    "text": lambda found, _: found.update(text=["9"]),
    "last message": lambda found, _: found.update(last_message=None),
    "type": arrays(lambda _, array: array.astype(mx.float16)),
    "rows": arrays(lambda _, array: array[..., :4, :]),
    "more arrays": arrays(lambda _, array: array, more=mx.zeros(3)),
    "header": lying_header,
}


# Each is refused for the reason of another one.
ALIKE = {
    "offset as text", "new field", "no keys", "deep", "no marks", "negative token", "token as text",
    "text",
}  # fmt: skip


@pytest.fixture(scope="module")
def written(engine, tmp_path_factory):
    """A folder with one entry, and the reply."""
    folder = tmp_path_factory.mktemp("written")
    (first,) = replies(engine, folder, engine.prompt_ids(TEXT))
    return folder, first


def checker(engine, folder, prompt, first):
    """Return a function that asks again, after the entry in a folder was damaged."""
    data = files(folder, "safetensors")[0].read_bytes()

    def check():
        (again,) = replies(engine, folder, prompt)
        assert again == first, "the reply is that of an empty cache"
        # The entry was written anew.
        assert files(folder, "safetensors")[0].read_bytes()[:8] == data[:8]
        ((_, cached),) = replies(engine, folder, prompt)
        assert cached == len(prompt) - 1

    return check


class TestDamage:
    @pytest.fixture
    def damaged(self, engine, written, tmp_path):
        folder, first = written
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        return checker(engine, tmp_path, engine.prompt_ids(TEXT), first)

    def test_without_damage_it_is_found(self, engine, tmp_path):
        prompt = engine.prompt_ids(TEXT)
        replies(engine, tmp_path, prompt)
        ((_, cached),) = replies(engine, tmp_path, prompt)
        assert cached == len(prompt) - 1

    @pytest.mark.parametrize(
        ("suffix", "place"), each_value(("json", "safetensors"), (0, 7, 8, 60, 4000, -1))
    )
    def test_cut_or_changed_bytes(self, damaged, tmp_path, suffix, place):
        (path,) = files(tmp_path, suffix)
        content = bytearray(path.read_bytes())
        place = min(place, len(content) - 2)
        if place % 2:
            content[place] ^= 0xFF
        else:
            del content[place:]
        path.write_bytes(content)
        damaged()

    @pytest.mark.parametrize("suffix", ["json", "safetensors"])
    def test_a_missing_file(self, damaged, tmp_path, suffix):
        files(tmp_path, suffix)[0].unlink()
        damaged()

    @pytest.mark.parametrize(
        "content",
        [b"", b"[]", b"[]\n{}", b"null", b"[" * 100_000, b'{"version": 1, "tokens": [1]}',
         b'{"version": 2}\n{}'],
    )  # fmt: skip
    def test_another_description(self, damaged, tmp_path, content):
        files(tmp_path, "json")[0].write_bytes(content)
        damaged()

    def test_a_token_that_was_changed(self, damaged, tmp_path):
        """Rows would be taken for those of another text."""
        (path,) = files(tmp_path, "json")
        head, _, body = path.read_bytes().partition(b"\n")
        changed = json.loads(body)
        changed["tokens"][-1] += 1
        path.write_bytes(head + b"\n" + json.dumps(changed).encode())
        damaged()

    def test_another_version(self, damaged, tmp_path, caplog):
        (path,) = files(tmp_path, "json")
        path.write_bytes(path.read_bytes().replace(b'"version": 2', b'"version": 3', 1))
        damaged()
        assert "another version of akunu wrote it" in caplog.text

    @pytest.mark.parametrize(
        "forgery",
        [pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in FORGERIES],
    )
    def test_numbers_that_do_not_belong_to_the_model(self, damaged, tmp_path, forgery):
        rewritten(tmp_path, FORGERIES[forgery])
        damaged()


RECURRENT = {"max_tokens": 4, "drafter": "none", "logit_bias": PLAIN}


def first_mark(found):
    return found["layout"]["marks"][0]


def recurrent_of(found):
    """The description of a recurrent state at a marked place."""
    return next(one for one in first_mark(found)["caches"] if one and one["kind"] == "ArraysCache")


@arrays
def longer_states(name, array):
    """States of another length, which rows by length may have."""
    return mx.concatenate([array, array], axis=-2) if "/" in name else array


FORGED_MARKS = {
    "held": lambda found, _: first_mark(found).update(held=0),
    "beyond": lambda found, _: first_mark(found).update(held=999),
    "elsewhere": lambda found, _: first_mark(found).update(held=first_mark(found)["held"] - 1),
    "flag": lambda found, _: first_mark(found).update(held=True),
    "names": lambda found, _: first_mark(found).pop("names"),
    "fewer caches": lambda found, _: first_mark(found)["caches"].pop(),
    "nothing": lambda found, _: first_mark(found).update(caches=[None] * 4),
    "kind": lambda found, _: recurrent_of(found).update(kind="KVCache"),
    "field": lambda found, _: recurrent_of(found)["fields"].update(cache=[None, None]),
    "more marks": lambda found, _: found["layout"]["marks"].append(first_mark(found)),
    "shape": longer_states,
}


@pytest.fixture(scope="module")
def recurrent():
    with toy_engine("qwen3_next") as engine:
        yield engine


def ask(engine, folder, prompt, **checkpoints):
    worker = Worker(engine, cache=PrefixCache(1 << 28, tier_of(engine, folder)))
    job = worker.submit(engine.check(prompt, **RECURRENT), checkpoints=checkpoints)
    run(worker)
    started, *_, last = list(job.events)
    worker.close()
    return last.result.token_ids, started.num_cached_tokens


@pytest.fixture(scope="module")
def marked(recurrent, tmp_path_factory):
    folder = tmp_path_factory.mktemp("marked")
    prompt = recurrent.prompt_ids("you are a cat. " * 2)
    return folder, prompt, ask(recurrent, folder, prompt, message=20)


class TestPlacesToGoBackTo:
    """Recurrent states and sliding windows go back to the same places after a restart."""

    @pytest.mark.parametrize("name", ["qwen3_next", "llama, sliding", "llama, windows with sinks"])
    def test_another_message_goes_back_to_the_last_one(self, tmp_path, name):
        with toy_engine(name) as engine, toy_engine(name) as cold:
            prompt = engine.prompt_ids("you are a cat. " * 4 + "and you?")
            system, message = 24, len(prompt) - 3
            ask(engine, tmp_path, prompt, system=system, message=message)
            # The history was rewritten behind the last message, then within it.
            for place, kept in (message, message), (message - 1, system):
                later = [*prompt[:place], *engine.prompt_ids("zzz and then?")[1:]]
                tokens, cached = ask(engine, tmp_path, later, system=system)
                assert cached == kept
                assert tokens == cold.generate(later, **RECURRENT).token_ids

    def test_aligned_rows_go_back_to_their_blocks(self, tmp_path):
        with toy_engine("qwen3_next", reproducible=True) as engine:
            prompt = engine.prompt_ids("you are a cat. " * 4 + "and you?")
            ask(engine, tmp_path, prompt, message=33)
            later = [*prompt[:40], *engine.prompt_ids("zzz and then?")[1:]]
            assert ask(engine, tmp_path, later)[1] == 32

    def test_rows_that_share_a_place_are_found_behind_others(self, recurrent, tmp_path):
        """A text that shares more tokens may have no place to go back to."""
        lead = recurrent.prompt_ids("you are a cat. " * 4)
        one, other = (lead + recurrent.prompt_ids(text)[1:] for text in ("and you?", "and me?"))
        # In the other order the second one would get a place where it differs from the first.
        ask(recurrent, tmp_path, other)
        ask(recurrent, tmp_path, one, message=len(lead) - 2)
        later = [*other[:-2], *recurrent.prompt_ids("zzz")[1:]]
        assert ask(recurrent, tmp_path, later)[1] == len(lead) - 2

    @pytest.mark.parametrize("forgery", FORGED_MARKS)
    def test_marks_that_do_not_belong_to_the_model(self, recurrent, marked, tmp_path, forgery):
        folder, prompt, first = marked
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        rewritten(tmp_path, FORGED_MARKS[forgery])
        assert ask(recurrent, tmp_path, prompt, message=20) == first, "of an empty cache"
        assert ask(recurrent, tmp_path, prompt)[1] == len(prompt) - 1

    def test_files_of_another_model_are_not_read(self, recurrent, marked, tmp_path):
        """Its folder has another name; a folder that was renamed is found out by its arrays."""
        folder, prompt, _ = marked
        with toy_engine("llama") as other:
            shutil.copytree(
                next(folder.iterdir()), tmp_path / f"rows-{finish(session_of(other).digest())}"
            )
            assert ask(other, tmp_path, prompt)[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_family_goes_back_as_far_as_before(name, tmp_path):
    session = Session(build_family(name), context=200)
    chain = TransformChain.from_config(GenerationConfig(), VOCABULARY)
    prompt = prompt_of(60)
    for _ in session.beginning(prompt, Sampler(chain, 1, VOCABULARY), 1, {"a": 20, "b": 40}):
        pass
    rows, path = session.exchange(None), tmp_path / "rows.safetensors"
    if name == "deepseek_v41":
        with pytest.raises(ValueError, match="cannot be kept on disk"):
            session.describe_rows(rows)
        return
    layout, arrays = session.describe_rows(rows)
    write_arrays(path, arrays)
    again = session.read_rows(path, json.loads(json.dumps(layout)), rows.tokens)
    assert again.marks == rows.marks
    for place in (59, 50, 40, 30, 20, 10):
        assert again.reach(place) == rows.reach(place)
        if not rows.reach(place):
            continue
        session.exchange(session.copy(again, place))
        found = session.logits(prompt, len(prompt) - 1)
        session.exchange(session.copy(rows, place))
        assert np.array_equal(found, session.logits(prompt, len(prompt) - 1))


@pytest.mark.parametrize("at", ["write_arrays", "_sha256", "replace_file"])
def test_a_kill_during_a_write_loses_that_entry_alone(engine, tmp_path, monkeypatch, at):
    class Killed(BaseException):
        pass

    first, second = engine.prompt_ids(TEXT), engine.prompt_ids("efg" * 20)
    replies(engine, tmp_path, first)
    sound = disk_tier.__dict__.get(at)

    def kill(path, *_, **__):
        if at == "write_arrays":
            path.write_bytes(b"half")
        raise Killed

    monkeypatch.setattr(disk_tier, at, kill)
    # What a killed process would have cleaned up stays.
    monkeypatch.setattr("pathlib.Path.unlink", lambda *_, **__: None)
    with pytest.raises(Killed):
        replies(engine, tmp_path, second)
    monkeypatch.undo()
    assert sound is disk_tier.__dict__.get(at)
    make_old(tmp_path)
    (_, one), (_, other) = replies(engine, tmp_path, first, second)
    assert one == len(first) - 1
    assert other == 0
    # Nothing is left but the two entries, the second written anew.
    assert len(list(tmp_path.glob("rows-*/*"))) == 4
    assert not list(tmp_path.glob("rows-*/.*"))


def test_the_oldest_go_first_and_those_of_other_models_too(engine, tmp_path):
    prompts = [engine.prompt_ids(letter * 40) for letter in "ace"]
    with toy_engine("llama, sliding") as other:
        replies(other, tmp_path, prompts[0])
    replies(engine, tmp_path, prompts[0])
    size = files(tmp_path, "safetensors")[0].stat().st_size
    limit = 5 * size // 2
    replies(engine, tmp_path, *prompts[1:], limit=limit)
    left = files(tmp_path, "safetensors")
    assert sum(path.stat().st_size for path in left) <= limit
    assert len(left) == len(files(tmp_path, "json")) >= 1
    ((_, cached),) = replies(engine, tmp_path, prompts[2], limit=limit)
    assert cached == len(prompts[2]) - 1


def make_old(folder):
    """As long after an interrupted write as no server takes for one."""
    for path in folder.glob("rows-*/*"):
        os.utime(path, (time.time() - 1e5,) * 2)


ODD = {
    "a folder with a hidden name": lambda folder, name: (folder / ".hidden").mkdir(),
    "a hidden file": lambda folder, name: (folder / ".DS_Store").touch(),
    "a folder with the name of rows": lambda folder, name: (folder / f"{'a' * 32}.safetensors").mkdir(),
    "a folder with the name of a description": lambda folder, name: (folder / f"{'a' * 32}.json").mkdir(),
    "a folder in the place of a description": lambda folder, name: replaced(folder / f"{name}.json", Path.mkdir),
    "a folder in the place of rows": lambda folder, name: replaced(folder / f"{name}.safetensors", Path.mkdir),
    "a pipe in the place of rows": lambda folder, name: replaced(folder / f"{name}.safetensors", os.mkfifo),
    "a pipe in the place of a description": lambda folder, name: replaced(folder / f"{name}.json", os.mkfifo),
    "a link to nowhere": lambda folder, name: (folder / f"{'b' * 32}.json").symlink_to("nowhere"),
    "a link to itself": lambda folder, name: (folder / f"{'b' * 32}.safetensors").symlink_to(f"{'b' * 32}.safetensors"),
    "another file": lambda folder, name: (folder / "x.safetensors").touch(),
    "a file among the folders": lambda folder, name: (folder.parent / "rows-file").touch(),
    "a folder that went": lambda folder, name: shutil.rmtree(folder),
}  # fmt: skip


def replaced(path, make):
    path.unlink()
    make(path)


@pytest.mark.parametrize("late", [False, True], ids=["before the start", "while it runs"])
@pytest.mark.parametrize("name", ODD)
def test_nothing_in_the_folder_ends_the_worker(engine, tmp_path, name, late):
    """What is not the tier's stays, and replies are made whatever happens to the folder."""
    first, second = engine.prompt_ids(TEXT), engine.prompt_ids("efg" * 20)
    replies(engine, tmp_path, first)
    (folder,) = tmp_path.glob("rows-*")
    entry = files(tmp_path, "json")[0].stem
    worker = Worker(engine, cache=PrefixCache(1 << 28, tier_of(engine, tmp_path))) if late else None
    ODD[name](folder, entry)
    odd = {path for path in tmp_path.glob("rows-*/*") if path.stem != entry}
    worker = worker or Worker(engine, cache=PrefixCache(1 << 28, tier_of(engine, tmp_path)))
    for prompt in (first, second):
        job = worker.submit(engine.check(prompt, **OPTIONS))
        run(worker)
        *_, last = list(job.events)
        assert last.result.token_ids == engine.generate(prompt, **OPTIONS).token_ids
        worker.models.default.resident.store()
    worker.close()
    assert odd <= set(tmp_path.glob("rows-*/*"))


@pytest.mark.parametrize("call", ["os.listdir", "os.utime", "pathlib.Path.lstat", "pathlib.Path.unlink", "pathlib.Path.exists"])  # fmt: skip
def test_a_folder_that_another_process_empties(engine, tmp_path, monkeypatch, call):
    prompts = [engine.prompt_ids(TEXT), engine.prompt_ids("efg" * 20)]
    replies(engine, tmp_path, *prompts)

    def gone(*_, **__):
        raise FileNotFoundError(2, "No such file or directory")

    if call.endswith("exists"):
        gone = lambda self: shutil.rmtree(self.parent, ignore_errors=True) or True  # noqa: E731
    monkeypatch.setattr(call, gone)
    assert len(replies(engine, tmp_path, *prompts, limit=1000)) == 2


def test_two_servers_share_a_folder(engine, tmp_path):
    """One does not delete what the other is writing."""
    tier_of(engine, tmp_path)
    (folder,) = tmp_path.iterdir()
    half = [folder / f".{'a' * 32}.{'b' * 8}", folder / f"{'c' * 32}.safetensors"]
    for path in half:
        path.write_bytes(b"half")
    replies(engine, tmp_path, engine.prompt_ids(TEXT))
    assert all(path.exists() for path in half)
    make_old(tmp_path)
    tier_of(engine, tmp_path)
    assert not any(path.exists() for path in half)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made"):
        DiskTier(tmp_path / "file" / "x", 1, "digest")


def test_a_full_disk_costs_the_entry_alone(engine, tmp_path, monkeypatch, caplog):
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(disk_tier, "write_arrays", full)
    replies(engine, tmp_path, engine.prompt_ids(TEXT))
    assert "No space left on device" in caplog.text
    assert not files(tmp_path, "json")


@pytest.mark.parametrize("error", [MemoryError, RuntimeError, Exception])
@pytest.mark.parametrize("at", ["write_arrays", "_sha256", "_stored"])
def test_whatever_a_write_raises_costs_the_entry_alone(engine, tmp_path, monkeypatch, at, error):
    worker = Worker(engine, cache=PrefixCache(1 << 28, tier_of(engine, tmp_path), rest_s=0))
    tried = threading.Event()

    def fail(*_):
        tried.set()
        raise error

    monkeypatch.setattr(disk_tier, at, fail)
    worker.start()
    prompt = engine.prompt_ids(TEXT)
    list(worker.submit(engine.check(prompt, **OPTIONS)).events)
    assert tried.wait(60)
    *_, last = worker.submit(engine.check(prompt, **OPTIONS)).events
    assert last.result.token_ids == engine.generate(prompt, **OPTIONS).token_ids
    assert worker.health().state == "ok"
    worker.close()


def test_files_that_were_exchanged_give_no_rows(engine, tmp_path):
    """Each is sound, and of the same length; a tier that runs knows them by their names."""
    prompts = [engine.prompt_ids(letter * 40) for letter in "ac"]
    replies(engine, tmp_path, *prompts)
    tier = tier_of(engine, tmp_path)
    one, other = files(tmp_path, "json")
    for suffix in (".json", ".safetensors"):
        one.with_suffix(suffix).rename(tmp_path / "kept")
        other.with_suffix(suffix).rename(one.with_suffix(suffix))
        (tmp_path / "kept").rename(other.with_suffix(suffix))
    for prompt in prompts:
        _, stored = next(tier.nearest(prompt))
        assert tier.load(stored, session_of(engine)) is None


def test_what_another_version_wrote_is_left_to_it(engine, tmp_path):
    replies(engine, tmp_path, engine.prompt_ids(TEXT))
    (path,) = files(tmp_path, "json")
    path.write_bytes(path.read_bytes().replace(b'"version": 2', b'"version": 3', 1))
    assert not list(tier_of(engine, tmp_path).nearest(()))
    assert path.exists()
    assert path.with_suffix(".safetensors").exists()
    # It counts all the same.
    tier_of(engine, tmp_path, limit=1)
    assert not path.exists()


def test_a_folder_that_went_is_made_again(engine, tmp_path):
    tier = tier_of(engine, tmp_path)
    shutil.rmtree(tmp_path)
    worker = Worker(engine, cache=PrefixCache(1 << 28, tier))
    worker.submit(engine.check(engine.prompt_ids(TEXT), **OPTIONS))
    run(worker)
    worker.close()
    assert len(files(tmp_path, "json")) == 1


def test_folders_of_others_are_left_alone(engine, tmp_path):
    """Also if they hold files with the names of entries."""
    folder = tmp_path / "rows-images"
    folder.mkdir()
    for suffix in ("json", "safetensors"):
        (folder / f"{'a' * 32}.{suffix}").write_bytes(b"x" * 100)
    make_old(tmp_path)
    tier_of(engine, tmp_path, limit=1)
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("rests", [False, True])
def test_a_conversation_without_a_rest_is_written_all_the_same(engine, tmp_path, rests):
    """As an agent's, whose requests follow each other at once, for hours."""
    now = 0.0
    cache = PrefixCache(1 << 28, tier_of(engine, tmp_path), clock=lambda: now)
    worker = Worker(engine, cache=cache)
    prompt, written = engine.prompt_ids(TEXT), []
    for turn in range(1, 36):
        job = worker.submit(engine.check(prompt, **{**OPTIONS, "max_tokens": 1}))
        run(worker)
        prompt = [*prompt, *job.reply, 20]
        now += 3 if rests else 1
        if cache.store_in() == 0:
            worker.models.default.resident.store()
            written.append(turn)
    assert written == (list(range(1, 36)) if rests else [30])
    assert len(files(tmp_path, "json")) == 1
    worker.close()


_KILLED = """
import io, os, pathlib, signal, sys
sys.path[:0] = {path!r}
from inside import session_of
from toy_engine import PLAIN, toy_engine
from akunu_py.models import row_file
from akunu_py.models.load_steps import finish
from akunu_py.server import disk_tier
from akunu_py.server.prefix_cache import PrefixCache
from kept_worker import Worker

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def half_of_the_rows(stream, arrays):
    whole = io.BytesIO()
    sound(whole, arrays)
    stream.write(whole.getvalue()[: whole.tell() // 2])
    stream.flush()
    die()

def fsync_of_the_description(handle):
    if os.path.getsize(os.readlink(f"/proc/self/fd/{{handle}}")) < rows_bytes:
        die()

unlink = pathlib.Path.unlink

def unlink_of_rows(path, **_):
    if path.suffix == ".safetensors":
        die()
    unlink(path, **_)

engine = toy_engine("qwen3_next")
tier = disk_tier.DiskTier(pathlib.Path(sys.argv[1]), 1 << 28, finish(session_of(engine).digest()))
worker = Worker(engine, cache=PrefixCache(1 << 28, tier))
prompt = engine.prompt_ids("you are a cat. " * 4)

def ask():
    call = engine.check(prompt, max_tokens=4, drafter="none", logit_bias=PLAIN)
    job = worker.submit(call, checkpoints={{"message": len(prompt) - 2}})
    while worker.step():
        pass
    worker.models.default.resident.store()
    return job.reply

prompt += [*ask(), *engine.prompt_ids("and then?")[1:]]
((_, stored),) = tier.nearest(())
rows_bytes = stored.nbytes
sound = row_file.mx.save_safetensors
match sys.argv[2]:
    case "within the rows":
        row_file.mx.save_safetensors = half_of_the_rows
    case "before the rows have their name":
        disk_tier._sha256 = die
    case "before the description":
        disk_tier.replace_file = die
    case "within the description":
        os.fsync = fsync_of_the_description
    case "before the earlier rows are deleted":
        disk_tier._delete = die
    case "within that":
        pathlib.Path.unlink = unlink_of_rows
ask()
print("not killed")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "turns"),
    [
        ("within the rows", [1]),
        ("before the rows have their name", [1]),
        ("before the description", [1]),
        ("within the description", [1]),
        ("before the earlier rows are deleted", [1, 2]),
        ("within that", [2]),
    ],
)
def test_a_killed_process_loses_nothing_but_the_entry_it_wrote(tmp_path, moment, turns):
    """The second turn of a conversation is written, and its rows replace those of the first."""
    program = _KILLED.format(path=[str(Path(__file__).parent), str(Path(__file__).parents[1])])
    python("-c", program, tmp_path, moment, code=-signal.SIGKILL)
    make_old(tmp_path)
    with toy_engine("qwen3_next") as engine:
        tier = tier_of(engine, tmp_path)
        found = sorted((stored for _, stored in tier.nearest(())), key=lambda one: len(one.tokens))
        first = len(engine.prompt_ids("you are a cat. " * 4)) + 3
        sizes = {1: first, 2: first + 1 + len(engine.prompt_ids("and then?")) - 1 + 3}
        assert [len(stored.tokens) for stored in found] == [sizes[turn] for turn in turns]
        for stored in found:
            rows = tier.load(stored, session_of(engine))
            assert rows.marks["message"] == stored.last_message
        # What the write left was deleted.
        assert len(list(tmp_path.glob("rows-*/*"))) == 2 * len(turns)
        assert not list(tmp_path.glob("rows-*/.*"))
