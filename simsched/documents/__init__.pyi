from . import yaml_lines as yaml_lines
from .overrides import Draft as Draft, draft_of as draft_of
from .section import (
    Section as Section,
    keys_at as keys_at,
    problems_of as problems_of,
    read_section as read_section,
    say as say,
    section_of as section_of,
)
from .yaml_lines import (
    MOST_NUMBER as MOST_NUMBER,
    Document as Document,
    KeyPath as KeyPath,
    parse_value as parse_value,
    yaml_text as yaml_text,
)
