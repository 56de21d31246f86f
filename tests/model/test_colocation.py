"""Models of GPU sharing: hand-worked pipelines, tables of pairs, turns and constants."""

import json
import statistics
from typing import NamedTuple

import pytest

from simsched.errors import InputError
from simsched.model.colocation.contract import Colocation, ConstantSharing, GuaranteedFirst, TimeSlicing
from simsched.model.colocation.pairs import COLUMNS, TEMPLATE, PairTable, pairs_from_gavel, read_pairs, write_pairs
from simsched.model.colocation.stages import GapFilling, StageInterleaving, gap_turns, group_s, pipeline_s


class Job(NamedTuple):
    application: str = "lm"
    batch_size: int = 20
    iteration_s: float = 1.0
    stages_s: tuple[float, ...] = ()
    guaranteed: bool = False


class Fixed(NamedTuple):
    """Speeds of three jobs, whoever they are."""

    given: tuple[float, ...]

    def speeds(self, on_one_gpu, gpu_type: str) -> tuple[float, ...]:
        return self.given


def speeds(model: Colocation, *jobs: Job, gpu_type: str = "v100") -> tuple[float, ...]:
    return model.speeds(jobs, gpu_type)


def test_equal_turns_end_two_equal_jobs_at_twice_their_time():
    assert speeds(TimeSlicing(), Job(), Job()) == (0.5, 0.5)
    assert speeds(TimeSlicing(60, 0.6), Job(), Job(), Job()) == pytest.approx([0.33] * 3)
    assert speeds(TimeSlicing(60, 0.6), Job()) == (1.0,)


def test_constant_sharing_is_one_over_k_or_the_factor():
    assert speeds(ConstantSharing(), *[Job()] * 4) == (0.25,) * 4
    assert speeds(ConstantSharing(0.8), Job(), Job()) == (0.8, 0.8)
    assert speeds(ConstantSharing(0.8), Job()) == (1.0,)
    assert speeds(ConstantSharing()) == ()


def test_priority_divides_what_jobs_do_together_and_adds_nothing_to_it():
    # Two at 0.685 do 1.37 of a GPU's work: 1 is the guaranteed job's, 0.37 the other's.
    model = GuaranteedFirst(ConstantSharing(0.685))
    assert speeds(model, Job(), Job(guaranteed=True)) == pytest.approx((0.37, 1.0))
    assert speeds(model, Job(), Job()) == (0.685, 0.685)
    assert speeds(model, Job(guaranteed=True)) == (1.0,)
    # Three at 0.5 do 1.5: half a GPU is left for two. Unequal ones (0.9 and 0.3 and 0.6, together 1.8) keep 1 to 2.
    assert speeds(GuaranteedFirst(ConstantSharing(0.5)), Job(guaranteed=True), Job(), Job()) == (1.0, 0.25, 0.25)
    unequal = GuaranteedFirst(Fixed((0.9, 0.3, 0.6)))
    assert speeds(unequal, Job(guaranteed=True), Job(), Job()) == pytest.approx((1.0, 0.8 / 3, 1.6 / 3))
    # Turns give nothing away: beside a guaranteed job the other stands still.
    assert speeds(GuaranteedFirst(TimeSlicing(60, 0.6)), Job(guaranteed=True), Job()) == (1.0, 0.0)
    with pytest.raises(InputError, match="both guaranteed"):
        speeds(model, Job(guaranteed=True), Job(guaranteed=True))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConstantSharing(0), "factor: is 0"),
        (lambda: TimeSlicing(0), "quantum_s: is 0"),
        (lambda: TimeSlicing(1, 1), "no time is left"),
    ],
)
def test_impossible_settings_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_one_unit_of_every_stage_fills_the_slots():
    unit = (1.0, 1.0, 1.0)
    # f: 0, then max(net, gpu) = 1 a slot: four equal jobs each finish one iteration in 4 s, the least on one GPU.
    assert pipeline_s([unit] * 4) == 4
    assert group_s([unit] * 4) == 4
    # Two jobs that alternate take max(1, 1 + 1) twice; the pipeline overlaps the ends of one with the other's loading.
    assert group_s([unit] * 2) == 3
    assert group_s([unit] * 2, worst=True) == 4


def test_two_jobs_that_use_different_resources_do_not_wait_for_each_other():
    loader, trainer = (2.0, 0.0, 0.0), (0.0, 2.0, 0.0)
    # While one loads for 2 s the other computes for 2 s, then both have nothing left to do.
    assert group_s([loader, trainer]) == 2
    # The pipeline cannot do worse than one after the other.
    assert group_s([loader, trainer], worst=True) <= 4


def test_two_that_compute_take_turns():
    assert group_s([(0.0, 2.0, 0.0), (0.0, 3.0, 0.0)]) == 5


def test_three_jobs_with_one_resource_each_overlap_perfectly_in_one_order():
    data, gpu, net = (3.0, 0.0, 0.0), (0.0, 3.0, 0.0), (0.0, 0.0, 3.0)
    # In the order network, data, GPU: the GPU job computes in slot 0 (to 3), the loader loads through slots 1 and 2
    # (to 6) and the network job sends in slot 3 (to 9): one after the other.
    assert pipeline_s([net, data, gpu]) == 9
    # In the order data, network, GPU: the network and GPU jobs both run in slot 0 and the loader in slots 0 and 1.
    assert pipeline_s([data, net, gpu]) == 3
    assert (group_s([data, gpu, net]), group_s([data, gpu, net], worst=True)) == (3, 9)


def test_four_jobs_are_bound_by_their_busiest_resource():
    jobs = [(0.0, 1.0, 0.5), (0.0, 2.0, 0.5), (0.0, 3.0, 0.5), (0.0, 4.0, 0.5)]
    assert group_s(jobs) == 10, "the GPU is busy for 1 + 2 + 3 + 4 s"


def test_interleaving_gives_speeds_relative_to_alone():
    model = StageInterleaving(overhead={2: 1.5})
    jobs = Job(iteration_s=2.0, stages_s=(0, 2.0, 0)), Job(iteration_s=3.0, stages_s=(0, 3.0, 0))
    assert speeds(model, *jobs) == pytest.approx((2 / 7.5, 3 / 7.5))
    assert speeds(model, jobs[0]) == (1.0,)
    with pytest.raises(InputError, match="at most four"):
        speeds(model, *jobs, *jobs, jobs[0])
    with pytest.raises(InputError, match=r"'lm'.*needs three"):
        speeds(model, jobs[0], Job())


def test_an_opportunistic_job_fits_into_the_gaps():
    host = (1.0, 2.0, 1.0)
    # The host leaves the loader free for 3 s, the GPU for 2 s and the network for 3 s of every iteration.
    assert gap_turns((3.0, 2.0, 0.0), host) == 2, "3 s of loading fill one iteration, 2 s on the GPU another"
    assert gap_turns((1.0, 1.0, 0.0), host) == 1, "loading leaves 2 s of the gap, of which 1 s falls to the GPU"
    assert gap_turns((6.5, 0.0, 0.0), host) == 3
    beside = speeds(
        GapFilling(),
        Job(iteration_s=4.0, stages_s=host, guaranteed=True),
        Job(iteration_s=5.0, stages_s=(3.0, 2.0, 0.0)),
    )
    assert beside == (1.0, 5 / 8)
    assert speeds(GapFilling(), Job(), Job()) == (0.5, 0.5)


def test_gaps_that_cannot_be_filled_are_refused():
    busy = Job(iteration_s=2.0, stages_s=(0.0, 2.0, 0.0), guaranteed=True)
    idle_gpu = Job(iteration_s=2.0, stages_s=(1.0, 0.0, 1.0))
    assert speeds(GapFilling(), busy, idle_gpu) == (1.0, 1 / 2), (
        "loading fits into one iteration, the rest into another"
    )
    with pytest.raises(InputError, match="leaves 'lm' no gap at all"):
        speeds(GapFilling(), busy, Job(iteration_s=2.0, stages_s=(1.0, 1.0, 0.0)))
    with pytest.raises(InputError, match="both guaranteed"):
        speeds(GapFilling(), busy, busy)


def test_the_template_is_a_valid_table():
    table = read_pairs(TEMPLATE, "template.csv")
    assert speeds(table, Job("lm", 20), Job("resnet-18", 64)) == (0.65, 0.8)
    assert speeds(table, Job("resnet-18", 64), Job("lm", 20)) == (0.8, 0.65)
    assert read_pairs(write_pairs(table), "again") == table


def test_an_unknown_pair_is_named_or_takes_the_default():
    table = read_pairs(TEMPLATE, "pairs.csv")
    with pytest.raises(InputError, match=r"'lm' at batch size 20 .* beside 'lm' at batch size 40 .* on 'v100'"):
        speeds(table, Job("lm", 20), Job("lm", 40))
    with pytest.raises(InputError, match="no pair is known on 'v10'; did you mean 'v100'"):
        speeds(table, Job("lm", 20), Job("lm", 20), gpu_type="v10")
    assert speeds(PairTable(table.pairs, 0.5), Job("lm", 20), Job("lm", 40)) == (0.5, 0.5)
    with pytest.raises(InputError, match="3 jobs"):
        speeds(table, Job(), Job(), Job())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (",lm,20,lm,40,0.5,0.5", "gpu_type is empty"),
        ("v100,lm,20,lm,40,-0.5,0.5", "speed is -0.5"),
        ("v100,lm,20,lm,40,0.5,1.6", "other_speed is 1.6"),
        ("v100,lm,20,lm,40,fast,0.5", "speed, a share of the speed when alone, is 'fast'"),
        ("v100,lm,20.5,lm,40,0.5,0.5", r"batch size .* is '20.5'"),
        ("v100,lm,20,resnet-18,64,0.5,0.5", "already in line 2"),
    ],
)
def test_a_bad_row_is_one_message_with_file_and_line(row, message):
    with pytest.raises(InputError, match=rf"^pairs.csv:4: .*{message}") as caught:
        read_pairs(f"{TEMPLATE}{row}\n", "pairs.csv")
    assert len(caught.value.problems) == 1


def test_a_missing_column_is_named():
    header = ",".join(column for column in COLUMNS if column != "gpu_type")
    with pytest.raises(InputError, match=r"pairs.csv:1: column 'gpu_type' is missing"):
        read_pairs(f"{header}\n", "pairs.csv")


def test_the_published_table_has_the_known_pairs(shared):
    document = json.loads((shared / "gavel" / "simulation_throughputs.json").read_text())
    table = pairs_from_gavel(document)
    assert {key[0] for key in table.pairs} == {"k80", "p100", "v100"}
    # 26 kinds make 676 ordered pairs a type; a pair of unlike kinds is in the table once.
    live = {t: sum(2 - (a == b) for kind, a, b in table.pairs if kind == t) for t in ("v100", "p100", "k80")}
    assert live == {"v100": 636, "p100": 656, "k80": 589}
    sums = [sum(pair) for (kind, a, b), pair in table.pairs.items() if kind == "v100" for _ in range(2 - (a == b))]
    assert statistics.median(sums) == pytest.approx(1.37, abs=0.005)
    assert max(sums) == pytest.approx(2.0, abs=0.005)
    assert read_pairs(write_pairs(table), "again") == table
