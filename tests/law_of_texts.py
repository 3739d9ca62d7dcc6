"""Chi-squared of texts that were drawn, against the probabilities that a model gives them."""

from collections import Counter


def above_the_mean(texts, law, length):
    """Return chi-squared of the first `length` tokens, in standard deviations above its mean.

    `law` has the probability of each text. Beginnings that are expected less than five times count
    as one.
    """
    expected = Counter()
    for text, p in law.items():
        expected[text[:length]] += len(texts) * p
    observed = Counter(text[:length] for text in texts)
    rare = [text for text, number in expected.items() if number < 5]
    cells = [(observed[text], number) for text, number in expected.items() if text not in rare]
    if rare:
        cells.append((sum(observed[text] for text in rare), sum(expected[text] for text in rare)))
    freedom = len(cells) - 1
    assert freedom >= 10, "so few cells see little"
    statistic = sum((found - number) ** 2 / number for found, number in cells)
    return (statistic - freedom) / (2 * freedom) ** 0.5
