"""What a person does before pressing Run on a long card."""

from playwright.sync_api import Locator, expect


def read_through(card: Locator) -> None:
    """Unfold all of an open card and scroll every part of it into view."""
    folds = card.locator("[data-fold]:visible")
    while folds.count():
        folds.first.click()
    for end in card.locator("[data-end]").all():
        end.evaluate("each => each.scrollIntoView({ block: 'center' })")
        expect(end).to_have_attribute("data-end", "seen")
