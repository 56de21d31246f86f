from . import registry as registry
from .agent import (
    Agent as Agent,
    AgentFactory as AgentFactory,
    GoodputReport as GoodputReport,
    Lease as Lease,
    LeasingAgent as LeasingAgent,
    Measurement as Measurement,
    TypeReport as TypeReport,
    UnlearningAgent as UnlearningAgent,
    no_goodput as no_goodput,
)
from .fit import fit as fit
from .fixed_agent import FixedBatchAgent as FixedBatchAgent, NoBatchAgent as NoBatchAgent, fixed_agent as fixed_agent
from .goodput_agent import (
    GoodputAgent as GoodputAgent,
    Prior as Prior,
    Shared as Shared,
    check_noise as check_noise,
    goodput_agent as goodput_agent,
    offline_prior as offline_prior,
    offline_priors as offline_priors,
)
from .pool import (
    HistoryPool as HistoryPool,
    history_of_job as history_of_job,
    pool_text as pool_text,
    read_pool as read_pool,
)
from .registry import AGENTS as AGENTS
from .rule_agent import configured_agent as configured_agent
