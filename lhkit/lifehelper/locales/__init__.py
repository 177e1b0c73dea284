"""Texts of life-helper for people: its confirmation cards, and its scripted assistant."""

from lhkit.base.locales import Catalog, load_catalog


def life_helper_catalog(locale: str) -> Catalog:
    """Return life-helper's own texts in `locale`.

    Raises:
        UsageError: there is no such locale.
    """
    return load_catalog(locale, __name__)
