from . import store as store
from .cell import (
    blamed as blamed,
    describe_environment as describe_environment,
    make_cell as make_cell,
    run_cell as run_cell,
    run_to_outcome as run_to_outcome,
    say_nothing as say_nothing,
)
from .limits import Limits as Limits
from .pool import Listener as Listener, Silence as Silence
from .prepared import Progress as Progress, apart_if_foreign as apart_if_foreign, prepare_grid as prepare_grid
from .reproduce import reproduction_of as reproduction_of
from .runner import (
    Failure as Failure,
    RunResult as RunResult,
    run_grid as run_grid,
)
from .store import (
    SHARDS as SHARDS,
    Removal as Removal,
    Store as Store,
    remove as remove,
    runs_below as runs_below,
    why_not_ours as why_not_ours,
)
from .worker import LONGEST_MESSAGE as LONGEST_MESSAGE, begin_loading as begin_loading, end as end, start as start
