from . import yaml_lines as yaml_lines
from .overrides import Draft as Draft, draft_of as draft_of
from .section import Section as Section, read_section as read_section, section_of as section_of
from .validation_messages import keys_at as keys_at, problems_of as problems_of, say as say
from .yaml_lines import (
    MOST_NUMBER as MOST_NUMBER,
    Document as Document,
    KeyPath as KeyPath,
    parse_value as parse_value,
    yaml_text as yaml_text,
)
