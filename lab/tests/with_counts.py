"""An engine whose replies by `corpus` draft from the counts of one file."""


class WithCounts:
    """The engine, told which file wherever the drafter is `corpus`."""

    def __init__(self, engine, path):
        self._engine, self._path = engine, path

    def __getattr__(self, name):
        found = getattr(self._engine, name)
        if name not in {"generate", "chat", "stream", "stream_chat"}:
            return found

        def told(*arguments, **options):
            if options.get("drafter") == "corpus":
                options["counts"] = str(self._path)
            return found(*arguments, **options)

        return told
