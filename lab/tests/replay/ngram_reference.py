"""The drafter `ngram`, written once more from its description in docs/drafting.md alone."""


class ReferenceNgram:
    def __init__(self, count=4):
        self.text, self.count = [], count
        self.seen = {}  # (context) -> {follower: [sightings, position of the last one]}

    def observe(self, tokens):
        for token in tokens:
            for size in (1, 2, 3):
                if len(self.text) >= size:
                    followers = self.seen.setdefault(tuple(self.text[-size:]), {})
                    sightings = followers.setdefault(token, [0, 0])
                    sightings[0] += 1
                    sightings[1] = len(self.text)
            self.text.append(token)

    def propose(self, limit):
        context, drafted = self.text[-3:], []
        while len(drafted) < min(limit, self.count):
            for size in range(min(3, len(context)), 0, -1):
                followers = self.seen.get(tuple(context[-size:]))
                if followers:
                    break
            else:
                break
            token = max(followers, key=followers.get)
            drafted.append(token)
            context = [*context, token]
        return drafted
