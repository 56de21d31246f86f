"""A failure storm."""


def storm(site, nodes: int = 4, at_h: float = 4, hours: float = 3, down_s: float = 1800):
    """Breaks some nodes, drawn afresh every half an hour, for so many hours from a time on."""
    yield site.timeout(at_h * 3600)
    while site.now_s < (at_h + hours) * 3600:
        for node in site.rng.choice(site.nodes, nodes, replace=False):
            site.fail(node, for_s=down_s)
        yield site.timeout(1800)
