"""The head of a model's own: beside a GGUF file, or shipped with akunu."""

import json
import shutil
import struct
from pathlib import Path

from akunu_py.models import head_places
from akunu_py.models.head_places import own_place

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.head.safetensors"


def test_the_side_car_of_a_file_has_its_name(tmp_path):
    model, folder = tmp_path / "one.v2.gguf", tmp_path / "folder"
    folder.mkdir()
    for path in (model, tmp_path / "two.gguf", tmp_path / "one.head.safetensors"):
        path.write_bytes(b"")
    assert own_place(model) == model
    side_car = tmp_path / "one.v2.head.safetensors"
    side_car.write_bytes(b"")
    assert own_place(model) == side_car
    assert own_place(tmp_path / "two.gguf") == tmp_path / "two.gguf"
    shutil.copy(side_car, tmp_path / "folder.head.safetensors")
    assert own_place(folder) == folder


def test_a_side_car_beside_the_model_comes_before_the_shipped_one(tmp_path, monkeypatch):
    shipped, user = tmp_path / "shipped", tmp_path / "user"
    for folder in (shipped, user):
        folder.mkdir()
    monkeypatch.setattr(head_places, "_SHIPPED", (tmp_path / "none", shipped))
    (shipped / "model.head.safetensors").write_bytes(b"")
    assert own_place(user / "model.gguf") == shipped / "model.head.safetensors"
    (user / "model.head.safetensors").write_bytes(b"")
    assert own_place(user / "model.gguf") == user / "model.head.safetensors"


def test_the_default_models_head_is_shipped():
    assert own_place(Path("elsewhere") / "SmolLM2-135M-Instruct.Q4_1.gguf") == SHIPPED
    with SHIPPED.open("rb") as stream:
        (size,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(size))
    assert header["mtp.d2t"]["shape"] == [4096]
    assert header["mtp.fc.weight"]["shape"] == [576, 1152]
    wheel = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'"models/{SHIPPED.name}" = "akunu_py/default_models/{SHIPPED.name}"' in wheel
