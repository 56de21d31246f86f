"""Where the units of a round go, and who stays there in the next."""

from itertools import accumulate
from random import Random

import pytest

from simsched.model import Cluster, NodeGroup
from simsched.toolkit.rounds import Grant, keep_places
from simsched.toolkit.rounds.places import Seats

A, B, C = ("a",), ("b",), ("c",)


def grant(unit, gpus, kind="v100", *, runs=True):
    return Grant(unit, kind, gpus, runs)


@pytest.mark.parametrize("seed", range(20))
def test_units_stay_where_they_were_and_others_take_as_few_servers_as_they_can(seed):
    rng = Random(seed)
    sizes = [rng.randint(0, 4) for _ in range(rng.randint(1, 4))]
    servers = [list(range(end - size, end)) for size, end in zip(sizes, accumulate(sizes), strict=True)]
    room = sum(sizes)
    held, left = {}, rng.sample(range(room), room)
    for name in "abc":
        gpus = tuple(left.pop() for _ in range(min(len(left), rng.randint(1, 4))))
        held[name,] = rng.choice(["v100", "p100"]), gpus
    grants = []
    for name in rng.sample("abcdef", 6):
        gpus = min(room, rng.choice([len(held.get((name,), ("", ()))[1]), rng.randint(1, 4)]))
        grants += [grant((name,), gpus)] if gpus else []
        room -= gpus
    places = keep_places(grants, held, {"v100": servers, "p100": []})

    stay = {
        one.unit
        for one in grants
        if held.get(one.unit, ("", ()))[0] == "v100" and len(held[one.unit][1]) == one.num_gpus
    }
    assert places.extended == stay
    assert all(places.gpus[unit] == held[unit][1] for unit in stay)
    free = [set(server) - {gpu for unit in stay for gpu in places.gpus[unit]} for server in servers]
    for one in sorted((one for one in grants if one.unit not in stay), key=lambda one: -one.num_gpus):
        gpus = set(places.gpus[one.unit])
        assert len(gpus) == one.num_gpus
        assert gpus <= set().union(*free), "nobody has them yet"
        on = [server for server in free if server & gpus]
        rooms = sorted(map(len, free))
        if rooms[-1] >= one.num_gpus:
            assert [len(server) for server in on] == [min(room for room in rooms if room >= one.num_gpus)]
        else:
            least = next(count for count in range(len(free) + 1) if sum(rooms[::-1][:count]) >= one.num_gpus)
            assert len(on) == least
        free = [server - gpus for server in free]


def test_a_unit_of_all_gpus_stays_and_one_whose_gpus_are_gone_moves():
    servers = {"v100": [[0, 1], [2, 3]]}
    assert keep_places([grant(A, 4)], {A: ("v100", (0, 1, 2, 3))}, servers).extended == {A}
    moved = keep_places([grant(A, 2)], {A: ("v100", (4, 5))}, servers)
    assert (moved.gpus, moved.extended) == ({A: (0, 1)}, frozenset())
    fewer = keep_places([grant(A, 1)], {A: ("v100", (2, 3))}, servers)
    assert (fewer.gpus, fewer.extended) == ({A: (0,)}, frozenset())


def test_seats_are_nodes_and_gpus_on_them_round_by_round():
    # The nodes: 0 and 1 of two and four v100, 2 and 3 of four p100.
    seats = Seats(Cluster.of(NodeGroup(1, 2, "v100"), NodeGroup(1, 4, "v100"), NodeGroup(2, 4, "p100")).nodes)
    up = [True] * 4
    assert seats.place([grant(A, 2), grant(B, 3), grant(C, 6, "p100")], up) == {
        A: ((0, 2),),
        B: ((1, 3),),
        C: ((2, 4), (3, 2)),
    }
    # b waits for a round, while d begins on the node that b leaves.
    rests = [grant(A, 2), grant(B, 3, runs=False), grant(("d",), 1)]
    assert seats.place(rests, up) == {A: ((0, 2),), ("d",): ((1, 1),)}
    assert seats.place([grant(A, 2), grant(B, 3), grant(("d",), 1)], up) == {
        A: ((0, 2),),
        B: ((1, 3),),
        ("d",): ((1, 1),),
    }
    # Without its node a moves to the other.
    assert seats.place([grant(A, 2)], [False, True, True, True]) == {A: ((1, 2),)}
    assert seats.place([grant(A, 2)], up) == {A: ((1, 2),)}, "it stays there"
    with pytest.raises(ValueError, match="a needs 3 GPUs of v100, too few are free"):
        seats.place([grant(A, 3)], [True, False, True, True])
