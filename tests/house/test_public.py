"""What users call says what it is for."""

import inspect

import pytest

import lhkit


@pytest.mark.parametrize("name", lhkit.__all__)
def test_a_public_name_and_its_methods_have_a_docstring(name: str) -> None:
    value = getattr(lhkit, name)
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return
    methods = [
        each
        for key, each in vars(value).items()
        if inspect.isfunction(each) and not key.startswith("_")
    ]
    assert [each.__qualname__ for each in (value, *methods) if not each.__doc__] == []
