from .answers import Section as Section, answer_name as answer_name, write_answer as write_answer
from .html import Part as Part, Wanted as Wanted, compose as compose, write_report as write_report
from .league import league_page as league_page, write_league as write_league
