"""An autoscaler that follows a price."""

#: Price of a node in each hour of the day.
PRICES = (1, 1, 1, 1, 1, 1.2, 1.6, 2.4, 3, 3, 2.6, 2.2, 2, 2, 2, 2.2, 2.6, 3.2, 3.6, 3.2, 2.4, 1.6, 1.2, 1)


def autoscale(site, most_price: float = 2, least_nodes: int = 4):
    """Has all nodes in use in the hours in which one costs at most `most_price`, and `least_nodes` in the others."""
    nodes = len(site.nodes)
    while True:
        price = PRICES[int(site.now_s // 3600) % 24]
        site.provision(nodes if price <= most_price else least_nodes)
        yield site.timeout(3600)
