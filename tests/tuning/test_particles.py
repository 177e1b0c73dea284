import pytest

from lhkit.tuning.phrases.file import Word


@pytest.mark.parametrize(
    ("word", "spec", "said"),
    [
        ("걷기", "을", "걷기를"),
        ("물", "을", "물을"),
        ("물", "으로", "물로"),
        ("책상", "으로", "책상으로"),
        ("SNS 하루 30분", "이에요", "SNS 하루 30분이에요"),
        ("어제(6월 14일)", "은", "어제(6월 14일)는"),
        ("'물', '걷기'", "이", "'물', '걷기'가"),
        ("10", "이", "10이"),
        ("daily-walk", "은", "daily-walk는"),
        ("걷기", "q을", "'걷기'를"),
        ("walk", "", "walk"),
    ],
)
def test_a_particle_fits_its_word(word: str, spec: str, said: str) -> None:
    assert f"{Word(word):{spec}}" == said
