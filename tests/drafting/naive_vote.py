"""What `make_chain` is to return, written down the slow and obvious way."""

import math

from akunu_py.drafting.auto import features as f
from akunu_py.drafting.auto import vote
from akunu_py.drafting.auto.vote import MIN_REACH


def bucket(value, bounds):
    """The first bound that is not below the value."""
    return sum(value > bound for bound in bounds)


def naive_occurrences(text, longest, most, enough, further):
    """All places with the last two tokens, else the last one, else the two before; latest first."""
    end = len(text) - 1
    if text[end] < 0:
        return []
    found = []
    for position in range(end - 1, 0, -1):
        length = 0
        while length < longest and text[position - length] == text[end - length] >= 0:
            length += 1
        found.append((length, position + 1))
    pairs = [one for one in found if one[0] >= 2]
    if not pairs:
        most = (most + 1) // 2
        if not (found := [one for one in found if one[0] == 1]):
            before = text[end - 2 : end]
            return [
                (0, start + 2)
                for start in range(end - 2, 0, -1)
                if text[start - 1 : start + 1] == before and min(before) >= 0
            ][:most]
    found = pairs or found
    until, best = most, enough - 1
    for count, (length, _) in enumerate(found, start=1):
        if length > best:
            best, until = length, min(most, count + further)
        if count >= until:
            return found[:count]
    return found


def naive_chain(text, calibration, at, longest):
    """(tokens, probabilities, sets of features, sources, match length)."""
    text = list(text)
    found = naive_occurrences(
        text, f.MAX_MATCH, vote.MAX_OCCURRENCES, vote.LONG_MATCH, vote.FURTHER_OCCURRENCES
    )
    tokens, probabilities, features, sources, match_length = [], [], [], [], 0
    if not found:
        return tokens, probabilities, features, sources, match_length
    floor = min(max(length for length, _ in found), 12) - 4
    voters = [(length, start) for length, start in found if length >= floor]
    alike = contexts_in_common(text, voters)
    voters = [
        (length, common, start) for (length, start), common in zip(voters, alike, strict=True)
    ]
    weights = {voter: 3.0 ** min(voter[0], 12) * 3.0 ** (0.8 * voter[1]) for voter in voters}
    previous, size = text[-1], len(text)
    for k in range(longest):
        groups = {}
        for voter in voters:
            groups.setdefault(text[voter[2] + k], []).append(voter)
        total = sum(weights[voter] for voter in voters)
        order = sorted(groups, key=lambda t: -sum(weights[voter] for voter in groups[t]))
        best = None
        for token in sorted(order, key=list(groups).index) if len(order) <= 2 else order[:2]:
            if token < 0:
                continue
            group = groups[token]
            lead = max(group)  # the longest match, then the likest context, then the latest
            m = lead[0] + k
            share = sum(weights[voter] for voter in group) / total
            rows = features_of(at, found, text, (token, previous, group, lead, m, share, k, size),
                               probabilities, calibration)  # fmt: skip
            z = at.bias + sum(calibration.weights[row] for row in rows)
            if best is None or z > best[0]:
                best = (z, token, rows, group, lead)
        if best is None:
            break
        z, token, rows, voters, lead = best
        tokens.append(token)
        probabilities.append(1 / (1 + math.exp(-z)))
        features.append(set(rows))
        sources.append(lead[2] + k)
        match_length = match_length or lead[0]
        text.append(token)
        previous = token
        if math.prod(probabilities) < MIN_REACH:
            break
    assert len(text) == size + len(tokens)
    return tokens, probabilities, features, sources, match_length


def contexts_in_common(text, voters):
    """How many different tokens the last 16 before each voter's token share with the last 16."""
    longest = max(length for length, _ in voters)
    if longest >= 7:
        return [0] * len(voters)
    shared = [len(set(text[max(0, start - 16) : start]) & set(text[-16:])) for _, start in voters]
    if len({text[start] for _, start in voters}) == 1:
        best = max(voters)
        return [one if voter == best else 0 for voter, one in zip(voters, shared, strict=True)]
    return shared


def outcome_level(history):
    """The bucket of a history, a one and then its outcomes."""
    outcomes = [] if history is None else [int(bit) for bit in f"{history:b}"[1:]]
    if not outcomes:
        return 0
    ages = [0.9**age for age in reversed(range(len(outcomes)))]
    uses = sum(ages)
    hits = sum(age * outcome for age, outcome in zip(ages, outcomes, strict=True))
    trust = 0 if len(outcomes) == 1 else 1 if uses <= 3 else 2
    return 1 + 5 * trust + min(4, int(5 * (hits + 0.5) / (uses + 1)))


def features_of(at, found, text, candidate, probabilities, calibration):
    token, previous, group, lead, m, share, k, end = candidate
    match = bucket(m, (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 40))
    position = bucket(k, (0, 1, 2, 3, 7, 15, 31))
    streak = bucket(at.streak, (0, 1, 2, 3, 7, 15, 31))
    region = 0 if lead[2] < at.memory_end else 1 if lead[2] < at.prompt_end else 2
    rows = [
        f.MATCH_SHARE
        + match * 6
        + (5 if share >= 0.995 else bucket(share, (0.35, 0.6, 0.8, 0.95))),
        f.POSITION_MATCH + position * 3 + bucket(m, (2, 6)),
        f.SUPPORT_MATCH + bucket(len(group), (1, 2, 3, 7)) * 4 + bucket(m, (1, 3, 7)),
        f.REGION_MATCH + region * 2 + (m > 3),
        f.STREAK + streak * 6 + at.last_outcome * 2 + (k > 0),
        f.DISTANCE + 2 * (math.floor(math.log2(end - lead[2])) + 1) + (m > 3),
    ]
    tables = calibration.by_token, calibration.by_previous, calibration.by_pair
    keys = token, previous, previous << 24 ^ token
    for number, (table, key) in enumerate(zip(tables, keys, strict=True)):
        rows.append(f.OUTCOMES + 16 * number + outcome_level(table.get(key)))
    if k == 0:
        latest = [text[start] == token for _, start in found[:2]]
        second = 2 if len(latest) == 1 else latest[1]
        common = bucket(lead[1], (0, 1, 2, 3, 4, 6, 8, 10))
        rows.append(f.CONTEXT + 9 * bucket(m, (0, 1, 2)) + common)
        rows.append(f.RECENT + 6 * bucket(m, (2, 6)) + 3 * latest[0] + second)
        times = sum(text[start] == token for _, start in found)
        ratio = bucket((times + 0.4) / (len(found) + 0.8), (0.1, 0.2, 0.4, 0.6, 0.85, 0.95))
        rows.append(f.RATIO + (ratio * 5 + bucket(len(found), (1, 2, 5, 15))) * 2 + (m > 2))
    else:
        certainties = int(probabilities[0] * 5.99), int(probabilities[k - 1] * 5.99)
        rows.append(f.EARLIER + certainties[0] * 6 + certainties[1])
    return rows
