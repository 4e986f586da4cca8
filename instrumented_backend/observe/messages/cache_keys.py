"""The key of a graph in Inductor's cache, as torch writes it down: a line for each component."""

Components = dict[str, int]  # component → a hash of its value


def key_of(components: list[str]) -> Components:
    """``"[4paxn...] example_inputs[0]: TensorMetadata(...)"`` → its name and hash."""
    key = {}
    for component in components:
        digest, _, rest = component.partition("] ")
        key[rest.partition(":")[0]] = hash(digest)
    return key
