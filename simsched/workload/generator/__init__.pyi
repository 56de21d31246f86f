from .trace import (
    MONDAY as MONDAY,
    STRETCH_DAYS as STRETCH_DAYS,
    GeneratorOptions as GeneratorOptions,
    generate_from_seed as generate_from_seed,
    stretch_of as stretch_of,
)
