"""A model as a GGUF file: what is in it, what stands beside it, and what is refused."""

import json
import shlex
import shutil
import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from lhkit.commands import export_model as export_module
from lhkit.commands.export_model import FORMATS, Check, export_model
from lhkit.commands.options import ExportModelOptions, ServeOptions
from lhkit.commands.serve import serve_model
from lhkit.errors import LhkitError, MissingPackageError, UsageError, WeightsError
from lhkit.locales import load_catalog
from lhkit.models import gguf_export
from lhkit.models.litert_serving import quantisation_of
from lhkit.models.weights import file_sha256
from lhkit.settings import Settings, load_settings
from tests.models.tiny_gemma import tiny_gemma

pytestmark = pytest.mark.anyio

VOCAB = [
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    "<end_of_turn>",
    "\n\n",
    "<0x41>",
    "\u2581",
    "a",
    "\u2581a",
]
WIDTH, DEPTH = 64, 32
CONFIG = {
    "architectures": ["Gemma3ForCausalLM"],
    "bos_token_id": 2,
    "eos_token_id": 1,
    "head_dim": 32,
    "hidden_size": WIDTH,
    "intermediate_size": DEPTH,
    "max_position_embeddings": 128,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"full_attention": {"rope_theta": 1000000.0}},
    "sliding_window": 16,
    "unk_token_id": 3,
}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    return load_settings()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Gemma 3 of one layer with random weights, as `lhkit tune merge` writes one."""
    place = tmp_path / "tuned"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(CONFIG))
    added = [{"id": number, "content": VOCAB[number], "special": number < 5} for number in range(6)]
    told = {"model": {"vocab": {token: n for n, token in enumerate(VOCAB)}}, "added_tokens": added}
    (place / "tokenizer.json").write_text(json.dumps(told))
    (place / "chat_template.jinja").write_text("{{ messages }}")
    rng = np.random.default_rng(1)
    tensors = {
        "model.embed_tokens.weight": rng.normal(size=(len(VOCAB), WIDTH)),
        "model.norm.weight": np.full(WIDTH, 0.5),
        "model.layers.0.mlp.down_proj.weight": rng.normal(size=(WIDTH, DEPTH)),
        "lm_head.weight": rng.normal(size=(len(VOCAB), WIDTH)),
    }
    _write_bf16(place / "model.safetensors", tensors)
    return place


def _write_bf16(file: Path, tensors: dict[str, Any]) -> None:
    """Write numbers as their upper halves: bfloat16."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, values in tensors.items():
        raw = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize(
    ("to", "close"), [("gguf:BF16", 0.01), ("gguf:Q8_0", 0.02), ("gguf:Q4_0", 0.3)]
)
async def test_the_file_holds_the_model_and_its_vocabulary(
    folder: Path, settings: Settings, tmp_path: Path, to: str, close: float
) -> None:
    into = tmp_path / "made" / "tuned.gguf"
    options = ExportModelOptions(source=str(folder), to=to, into=into, is_checked=False)
    assert await export_model(options, settings) == 0
    read = gguf.GGUFReader(into)
    tensors = {each.name: each for each in read.tensors}
    assert set(tensors) == {"token_embd.weight", "output_norm.weight", "blk.0.ffn_down.weight"}
    assert tensors["token_embd.weight"].tensor_type.name == to.removeprefix("gguf:")
    assert np.allclose(tensors["output_norm.weight"].data, 1.5)  # it is multiplied by, not added to
    found = tensors["token_embd.weight"]
    values = gguf.quants.dequantize(found.data, found.tensor_type)
    expected = np.random.default_rng(1).normal(size=(len(VOCAB), WIDTH))
    assert np.abs(values - expected).max() < close * np.abs(expected).max()

    def told(key: str) -> Any:
        return read.fields[key].contents()

    assert told("tokenizer.ggml.tokens") == VOCAB
    assert told("tokenizer.ggml.token_type") == [3, 3, 3, 3, 3, 4, 6, 1, 1, 1]
    scores = told("tokenizer.ggml.scores")
    assert scores[7] > scores[8] > scores[9]  # the lower id is merged first
    assert told("tokenizer.ggml.bos_token_id") == CONFIG["bos_token_id"]
    assert told("tokenizer.ggml.add_space_prefix") is False
    assert told("tokenizer.chat_template") == "{{ messages }}"
    assert told("gemma3.attention.sliding_window") == CONFIG["sliding_window"]


@pytest.fixture
def wide_folder(folder: Path) -> Path:
    """The same with three of sixteen layers, and rows of 256 numbers in a matrix of each."""
    config = {**CONFIG, "num_hidden_layers": 16, "intermediate_size": 256}
    (folder / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(2)
    tensors = {"model.embed_tokens.weight": rng.normal(size=(len(VOCAB), WIDTH))}
    for layer in (0, 3, 15):
        name = f"model.layers.{layer}"
        tensors[f"{name}.mlp.down_proj.weight"] = rng.normal(size=(WIDTH, 256))
        tensors[f"{name}.self_attn.q_proj.weight"] = rng.normal(size=(WIDTH, WIDTH))
    _write_bf16(folder / "model.safetensors", tensors)
    return folder


async def test_of_mixed_types_each_matrix_has_the_one_that_llama_cpp_chooses(
    wide_folder: Path, settings: Settings, tmp_path: Path
) -> None:
    into = tmp_path / "tuned.gguf"
    options = ExportModelOptions(
        source=str(wide_folder), to="gguf:Q4_K_M", into=into, is_checked=False
    )
    assert await export_model(options, settings) == 0
    read = gguf.GGUFReader(into)
    assert read.fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_Q4_K_M
    tensors = {each.name: each for each in read.tensors}
    assert {name: each.tensor_type.name for name, each in tensors.items()} == {
        "token_embd.weight": "Q8_0",  # rows of 64: no block of 256 fits
        **{f"blk.{layer}.attn_q.weight": "Q5_0" for layer in (0, 3, 15)},
        "blk.0.ffn_down.weight": "Q6_K",
        "blk.3.ffn_down.weight": "Q4_K",
        "blk.15.ffn_down.weight": "Q6_K",
    }
    rng = np.random.default_rng(2)
    rng.normal(size=(len(VOCAB), WIDTH))
    expected = rng.normal(size=(WIDTH, 256))
    found = tensors["blk.0.ffn_down.weight"]
    values = gguf.quants.dequantize(found.data, found.tensor_type)
    assert np.abs(values - expected).max() < 0.05 * np.abs(expected).max()


async def test_two_bits_are_a_quarter_of_a_byte_and_a_scale(
    wide_folder: Path, settings: Settings, tmp_path: Path
) -> None:
    sizes = []
    for to in ("gguf:Q2_0", "gguf:BF16"):
        into = tmp_path / "tuned.gguf"
        options = ExportModelOptions(source=str(wide_folder), to=to, into=into, is_checked=False)
        assert await export_model(options, settings) == 0
        sizes.append(into.stat().st_size)
    numbers = 3 * (WIDTH * 256 + WIDTH * WIDTH)
    saved = numbers * (16 - 2.25) / 8 + len(VOCAB) * WIDTH * (16 - 8.5) / 8
    assert sizes[1] - sizes[0] == pytest.approx(saved, abs=len(VOCAB) * 32)  # up to what aligns


async def test_where_rows_fit_no_block_the_matrix_is_named(
    folder: Path, settings: Settings, tmp_path: Path
) -> None:
    options = ExportModelOptions(source=str(folder), to="gguf:Q2_0", into=tmp_path / "x.gguf")
    with pytest.raises(WeightsError, match=r"blk\.0\.ffn_down\.weight has rows of 32 numbers"):
        await export_model(options, settings)


async def test_without_llama_cpp_its_own_types_cannot_be_made_and_the_others_can(
    wide_folder: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = export_module.find_spec
    monkeypatch.setattr(
        export_module, "find_spec", lambda name: None if name == "xllamacpp" else found(name)
    )
    into = tmp_path / "x.gguf"
    options = ExportModelOptions(source=str(wide_folder), to="gguf:Q2_0", into=into)
    with pytest.raises(MissingPackageError, match=r"lhkit\[light\]"):
        await export_model(options, settings)
    assert await export_model(replace(options, to="gguf:Q8_0"), settings) == 0


async def test_beside_it_stands_what_it_was_made_of_and_its_hash(
    folder: Path, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "tuned-Q8_0.gguf"
    await export_model(
        ExportModelOptions(source=str(folder), to="gguf:Q8_0", into=into, is_checked=False),
        settings,
    )
    manifest = json.loads(into.with_suffix(".json").read_text())
    assert manifest["source"]["folder"] == "tuned"
    assert len(manifest["source"]["sha256"]) == 64
    assert manifest["to"] == "gguf:Q8_0"
    assert manifest["file"]["sha256"] == file_sha256(into)
    assert set(manifest["versions"]) == {"lhkit", "gguf", "numpy"}
    assert "tuned-Q8_0.gguf" in capsys.readouterr().out


async def test_a_file_that_was_not_finished_is_not_there(
    folder: Path, settings: Settings, tmp_path: Path
) -> None:
    (folder / "tokenizer.json").unlink()
    into = tmp_path / "made" / "tuned.gguf"
    into.parent.mkdir()
    into.write_text("an earlier one")
    with pytest.raises(WeightsError, match="cannot be written as GGUF"):
        await export_model(
            ExportModelOptions(source=str(folder), to="gguf:F16", into=into), settings
        )
    assert [each.name for each in into.parent.iterdir()] == ["tuned.gguf"]
    assert into.read_text() == "an earlier one"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"to": "gguf:Q2_K"}, f"choose one of {', '.join(FORMATS)}"),
        ({"into": Path("model.bin")}, "give .gguf"),
        ({"to": "litertlm:int8"}, "LiteRT-LM knows its files by their ending: give .litertlm"),
        ({"to": "litertlm:int3", "into": Path("x.litertlm")}, "choose one of"),
        ({"source": "nowhere"}, "holds no model"),
    ],
)
async def test_what_cannot_be_exported_is_refused_in_a_sentence(
    folder: Path, settings: Settings, changed: dict[str, Any], said: str
) -> None:
    plain = {"source": str(folder), "to": "gguf:Q8_0", "into": Path("model.gguf"), **changed}
    with pytest.raises(UsageError, match=said):
        await export_model(ExportModelOptions(**plain), settings)


async def test_another_architecture_is_named(folder: Path, settings: Settings) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, "architectures": ["Other"]}))
    options = ExportModelOptions(source=str(folder), to="gguf:F16", into=folder / "x.gguf")
    with pytest.raises(WeightsError, match="Other"):
        await export_model(options, settings)


CONVERTER = """
import json, pathlib
def export(model, output_dir, **options):
    said = pathlib.Path(model, "config.json").read_text()
    if "broken" in said:
        raise ValueError("Cannot lower this model")
    pathlib.Path(output_dir, "model.litertlm").write_text(json.dumps(options))
"""
_PACKAGES = ("litert-torch", "litert-lm-builder", "ai-edge-quantizer", "torch", "transformers")


@pytest.fixture
def converter(tmp_path: Path) -> str:
    """A Python that has something in the place of LiteRT's converter, and nothing else."""
    place = tmp_path / "converter"
    for name in ("litert_torch/generative/export_hf", "litert_lm_builder", "tensorflow"):
        (place / "lib" / name).mkdir(parents=True)
    (place / "lib/litert_torch/generative/export_hf/export.py").write_text(CONVERTER)
    for name in _PACKAGES:
        about = place / "lib" / f"{name.replace('-', '_')}-0.1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    python = place / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(place / "lib"))} exec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize(("to", "recipe"), [("none", "none"), ("int8", "dynamic_wi8_afp32")])
async def test_a_bundle_is_written_by_the_converter_of_another_python(
    folder: Path, settings: Settings, tmp_path: Path, converter: str, *, to: str, recipe: str
) -> None:
    into = tmp_path / "made" / "tuned.litertlm"
    options = ExportModelOptions(
        source=str(folder), to=f"litertlm:{to}", into=into, is_checked=False, converter=converter
    )
    assert await export_model(options, settings) == 0
    asked = json.loads(into.read_text())
    assert asked["quantization_recipe"] == recipe
    manifest = json.loads(into.with_suffix(".json").read_text())
    assert manifest["options"] == asked
    assert manifest["to"] == f"litertlm:{to}"
    assert manifest["file"]["sha256"] == file_sha256(into)
    assert len(manifest["source"]["sha256"]) == 64
    assert set(manifest["versions"]) == {"lhkit", *_PACKAGES}
    assert quantisation_of(into, file_sha256(into)) == to
    assert {each.name for each in into.parent.iterdir()} == {"tuned.litertlm", "tuned.json"}


async def test_a_converter_that_fails_is_told_in_its_words_and_leaves_the_file_as_it_was(
    folder: Path, settings: Settings, tmp_path: Path, converter: str
) -> None:
    (folder / "config.json").write_text('{"broken": 1}')
    into = tmp_path / "made" / "tuned.litertlm"
    into.parent.mkdir()
    into.write_text("an earlier one")
    options = ExportModelOptions(
        source=str(folder), to="litertlm:int8", into=into, converter=converter
    )
    with pytest.raises(WeightsError, match="Cannot lower this model"):
        await export_model(options, settings)
    assert [each.name for each in into.parent.iterdir()] == ["tuned.litertlm"]
    assert into.read_text() == "an earlier one"


async def test_without_the_converter_a_sentence_says_how_to_get_one(
    folder: Path, settings: Settings, tmp_path: Path, converter: str
) -> None:
    shutil.rmtree(Path(converter).parent / "lib" / "tensorflow")
    into = tmp_path / "x.litertlm"
    options = ExportModelOptions(
        source=str(folder), to="litertlm:none", into=into, converter=converter
    )
    with pytest.raises(MissingPackageError, match=r"\(tensorflow missing\).*pip install"):
        await export_model(options, settings)
    broken = replace(options, converter=str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=r"--converter .*nowhere is no Python that runs"):
        await export_model(broken, settings)


async def served(file: str, settings: Settings, *, dry_run: bool) -> int:
    options = ServeOptions(model=file, port=8099, dry_run=dry_run)
    return await serve_model(options, settings)


async def test_a_gguf_file_is_served_by_llama_cpp(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tuned.gguf"
    file.write_text("")
    assert await served(str(file), settings, dry_run=True) == 0
    line = capsys.readouterr().out
    assert "gguf_serving.py" in line
    assert line.split()[-4:-1] == [str(file), "8099", "2"]
    assert line.rstrip().endswith(file_sha256(file))  # as an alias: clients learn which file it is
    with pytest.raises(UsageError, match="lhkit export-model"):
        await served("nowhere.gguf", settings, dry_run=True)


async def test_without_llama_cpp_a_sentence_says_what_to_install(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tuned.gguf"
    file.write_text("")
    monkeypatch.setattr("lhkit.models.light.find_spec", lambda _name: None)
    with pytest.raises(MissingPackageError, match=r"lhkit\[light\]") as caught:
        await served(str(file), settings, dry_run=False)
    assert isinstance(caught.value, LhkitError)


@pytest.fixture(scope="module")
def whole_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Gemma 3 of two layers that answers, if only letters in no order."""
    place = tmp_path_factory.mktemp("whole")
    tiny_gemma(place)
    return place


async def exported(
    source: Path, into: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> tuple[dict[str, Any], str]:
    """Export in BF16; return what the manifest tells of the check, and what was said."""
    options = ExportModelOptions(source=str(source), to="gguf:BF16", into=into)
    assert await export_model(options, settings) == 0
    told: dict[str, Any] = json.loads(into.with_suffix(".json").read_text())["check"]
    return told, " ".join(capsys.readouterr().out.split())


@pytest.mark.timeout(600)
async def test_a_written_file_answers_five_prompts_and_its_source_agrees(
    whole_folder: Path, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told, said = await exported(whole_folder, tmp_path / "whole.gguf", settings, capsys)
    assert (told["prompts"], told["answered"]) == (5, 5)
    assert told["tokens"] > 5
    assert told["agreed"] >= 0.95 * told["tokens"]
    assert (
        f"Of {told['tokens']} tokens the source would have chosen {told['agreed']} itself" in said
    )


@pytest.mark.timeout(600)
async def test_a_file_that_holds_another_model_than_its_source_is_found_out(
    whole_folder: Path,
    settings: Settings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: behind the converter's back the folder becomes another model."""
    place = tmp_path / "source"
    shutil.copytree(whole_folder, place)
    run_offline = export_module.run_offline

    async def run(script: str, *arguments: str) -> tuple[int, str]:
        told = await run_offline(script, *arguments)
        if script == gguf_export.__file__:
            tiny_gemma(place, seed=1)
        return told

    monkeypatch.setattr(export_module, "run_offline", run)
    told, _ = await exported(place, tmp_path / "whole.gguf", settings, capsys)
    assert told["agreed"] < 0.5 * told["tokens"]
    assert told["same"] == 0


@pytest.mark.timeout(600)
async def test_without_torch_the_file_answers_and_one_sentence_says_that_nothing_was_compared(
    whole_folder: Path,
    settings: Settings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = export_module.find_spec
    monkeypatch.setattr(
        export_module, "find_spec", lambda name: None if name == "torch" else found(name)
    )
    told, said = await exported(whole_folder, tmp_path / "whole.gguf", settings, capsys)
    assert (told["answered"], told["agreed"]) == (5, None)
    assert "They were not compared with the source" in said


def test_a_file_that_leaves_prompts_without_an_answer_is_called_of_no_use() -> None:
    said = Check(prompts=5, answered=3, tokens=40).words(load_catalog("en"))
    assert said.startswith("Only 3 of 5 prompts are answered")
