"""What scheduling policies share: queues, placers, rounds, auctions, groupings, programs; each piece works without the others."""
